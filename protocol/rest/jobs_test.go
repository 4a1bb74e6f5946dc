package rest_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"toolpost/identity"
	"toolpost/internal/kit"
	"toolpost/protocol/rest"
	"toolpost/tool"
	"toolpost/tool/tooltest"
	"toolpost/web"
)

var jobTools = offer{"startJob", "showJob", "listJobs", "cancelJob", "watchJob", "echo"}

// A bureau stands in for the tools for jobs, and records its calls.
type bureau struct{ calls chan *tool.Call }

func (b bureau) Invoke(_ context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	b.calls <- c
	if strings.Contains(string(c.Args), "nope") {
		return nil, tool.Errorf(tool.CodeNotFound, "there is no job %q", "nope")
	}
	if c.Tool == "watchJob" {
		ev := tool.LogEvent("info", "began")
		ev.Seq = 1
		if err := out.Emit(ev); err != nil {
			return nil, err
		}
	}
	return &tool.Result{OK: true, Output: []byte(`{"job":"job-1","state":"queued"}`)}, nil
}

func openBureau(t *testing.T) (*house, bureau) {
	b := bureau{make(chan *tool.Call, 8)}
	return open(t, setup{handler: b, catalog: jobTools}), b
}

func TestACallCanBeAnsweredLater(t *testing.T) {
	tooltest.NoLeaks(t)
	h, b := openBureau(t)
	for _, prefer := range []string{"respond-async", "Respond-Async", "wait=10, respond-async", "respond-async; x=y,handling=lenient"} {
		req := h.request("POST", "/v1/tools/echo/call", `{ "n": 1.50 }`)
		for name, value := range map[string]string{
			"Prefer": prefer, "Toolpost-Session": "s", "Toolpost-Lease": "l", "Idempotency-Key": "k", "Toolpost-Call": "c1", "Accept": "text/event-stream",
			"Traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		} {
			req.Header.Set(name, value)
		}
		a := h.do(req)
		if d := a.document(t); a.status != 202 || !d.OK || string(d.Output) != `{"job":"job-1","state":"queued"}` || d.Call != "c1" {
			t.Errorf("%s: %d %s", prefer, a.status, a.body)
		}
		if a.header.Get("Location") != "/v1/jobs/job-1" || a.header.Get("Preference-Applied") != "respond-async" || a.header.Get("Toolpost-Call") != "c1" {
			t.Errorf("%s: %v", prefer, a.header)
		}
		want := &tool.Call{
			ID: "c1", Tool: "startJob", Args: []byte(`{"tool":"echo","arguments":{"n":1.50},"session":"s","lease":"l"}`), Key: "k",
			Trace: "0af76519-16cd-43dd-8448-eb211c80319c", Span: "b7ad6b7169203331", Caller: tool.Principal{ID: "owner", Door: "http", Operates: true},
		}
		kit.Equal(t, cmp.Diff(want, kit.Receive(t, "the call", b.calls)), "")
	}
	for _, prefer := range []string{"", "wait=1", "respond-asynchronously", "x=respond-async", "return=minimal"} {
		req := h.request("POST", "/v1/tools/echo/call", ``)
		req.Header.Set("Prefer", prefer)
		if a, c := h.do(req), kit.Receive(t, "the call", b.calls); a.status != 200 || c.Tool != "echo" || a.header.Get("Location") != "" {
			t.Errorf("%q: %d, a call of %s", prefer, a.status, c.Tool)
		}
	}
}

func TestInvalidAsyncRequestIsRefused(t *testing.T) {
	tooltest.NoLeaks(t)
	h, b := openBureau(t)
	for name, value := range map[string]string{
		"Toolpost-Timeout": "5s", "Toolpost-Dry-Run": "true", "Toolpost-Resume": "r", "Toolpost-Answers": `{}`, "": "",
	} {
		body := `{}`
		if name == "" {
			body = `{"a":`
		}
		req := h.request("POST", "/v1/tools/echo/call", body)
		req.Header.Set("Prefer", "respond-async")
		if name != "" {
			req.Header.Set(name, value)
		}
		a := h.do(req)
		a.refused(t, 400, tool.CodeInvalidInput)
		kit.Contains(t, string(a.body), name)
	}
	if len(b.calls) > 0 {
		t.Error("a job was started all the same")
	}
}

func TestJobsAreAskedForThroughTheirTools(t *testing.T) {
	tooltest.NoLeaks(t)
	h, b := openBureau(t)
	for _, c := range []struct {
		method, path string
		status       int
		tool, args   string // of the call; "" if there is none
	}{
		{"GET", "/v1/jobs", 200, "listJobs", `{}`},
		{"GET", "/v1/jobs?state=running&limit=5", 200, "listJobs", `{"limit":5,"state":"running"}`},
		{"GET", "/v1/jobs?limit=many", 400, "", ""},
		{"GET", "/v1/jobs?state=a&state=b", 400, "", ""},
		{"GET", "/v1/jobs?caller=eve", 400, "", ""},
		{"GET", "/v1/jobs/job-1", 200, "showJob", `{"job":"job-1"}`},
		{"GET", "/v1/jobs/a%22%2Fb", 200, "showJob", `{"job":"a\"/b"}`},
		{"GET", "/v1/jobs/nope", 404, "showJob", `{"job":"nope"}`},
		{"DELETE", "/v1/jobs/job-1", 200, "cancelJob", `{"job":"job-1"}`},
		{"DELETE", "/v1/jobs/nope", 404, "cancelJob", `{"job":"nope"}`},
		{"GET", "/v1/jobs/job-1/events", 200, "watchJob", `{"job":"job-1"}`},
		{"HEAD", "/v1/jobs/job-1/events", 405, "", ""},
		{"POST", "/v1/jobs", 405, "", ""},
		{"PUT", "/v1/jobs/job-1", 405, "", ""},
	} {
		a := h.do(h.request(c.method, c.path, ""))
		kit.Equal(t, a.status, c.status, c.method, c.path, a.body)
		if c.tool == "" {
			continue
		}
		if got := kit.Receive(t, c.path, b.calls); got.Tool != c.tool || string(got.Args) != c.args || got.Caller.ID != "owner" || got.ID == "" {
			t.Errorf("%s %s became %s %s", c.method, c.path, got.Tool, got.Args)
		}
	}
	if len(b.calls) > 0 {
		t.Errorf("%d calls too many", len(b.calls))
	}
	if a := h.do(h.request("PUT", "/v1/jobs/job-1", "")); a.header.Get("Allow") != "GET, DELETE" {
		t.Errorf("%v", a.header)
	}
}

func TestTheEventsOfAJobAreAStream(t *testing.T) {
	tooltest.NoLeaks(t)
	h, b := openBureau(t)
	a := h.do(h.request("GET", "/v1/jobs/job-1/events", ""))
	events, datas, err := rest.Messages(strings.NewReader(string(a.body)), 1<<20)
	if !errors.Is(err, io.ErrUnexpectedEOF) || !slices.Equal(events, []string{"log", "result"}) || a.header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%v %v %s", err, a.header, a.body)
	}
	kit.Contains(t, string(datas[1]), `"state":"queued"`, datas[1])
	<-b.calls
	again := h.request("GET", "/v1/jobs/job-1/events", "")
	again.Header.Set("Last-Event-ID", "41")
	a = h.do(again)
	if c := kit.Receive(t, "the call", b.calls); string(c.Args) != `{"after":41,"job":"job-1"}` || !strings.Contains(string(a.body), "id: 42\nevent: log\ndata: {\"seq\":42,") {
		t.Errorf("%s, %s", c.Args, a.body)
	}
	for _, bad := range []string{"-1", "x", "1.5", "18446744073709551615"} {
		again.Header.Set("Last-Event-ID", bad)
		h.do(again).refused(t, 400, tool.CodeInvalidInput)
	}
	a = h.do(h.request("GET", "/v1/jobs/nope/events", ""))
	if events, _, _ := rest.Messages(strings.NewReader(string(a.body)), 1<<20); !slices.Equal(events, []string{"no_outcome"}) {
		t.Errorf("%s", a.body)
	}
}

func TestWithoutTheirToolsThereAreNoJobs(t *testing.T) {
	tooltest.NoLeaks(t)
	p := newProbe()
	h := open(t, setup{handler: p, catalog: offer{"echo"}})
	for _, at := range []string{"GET /v1/jobs", "GET /v1/jobs/x", "DELETE /v1/jobs/x", "GET /v1/jobs/x/events", "POST /v1/tools/echo/call"} {
		method, path, _ := strings.Cut(at, " ")
		req := h.request(method, path, "")
		req.Header.Set("Prefer", "respond-async")
		a := h.do(req)
		a.refused(t, 501, tool.CodeUnsupported)
		if !strings.Contains(string(a.body), "Job") || !strings.Contains(string(a.body), "store") {
			t.Errorf("%s: %s", at, a.body)
		}
	}
	if len(p.began) > 0 {
		t.Error("the call was made all the same")
	}
}

func TestUnstartedJobHasNoLocation(t *testing.T) {
	tooltest.NoLeaks(t)
	for name, c := range map[string]struct {
		result *tool.Result
		err    error
		status int
	}{
		"it says no":       {&tool.Result{Failure: &tool.Error{Code: tool.CodeToolError, Message: "no"}}, nil, 200},
		"there is no room": {nil, &tool.Error{Code: tool.CodeQuotaExceeded, Message: "full", Details: []byte(`{"retry_after_ms":1500}`)}, 429},
		"no id":            {&tool.Result{OK: true, Output: []byte(`{}`)}, nil, 502},
		"an odd id":        {&tool.Result{OK: true, Output: []byte(`{"job":"a\r\nb"}`)}, nil, 502},
		"nothing":          {nil, nil, 500},
	} {
		h := open(t, setup{catalog: jobTools, handler: tool.HandlerFunc(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) { return c.result, c.err })})
		req := h.request("POST", "/v1/tools/echo/call", `{}`)
		req.Header.Set("Prefer", "respond-async")
		a := h.do(req)
		if a.status != c.status || a.header.Get("Location") != "" || a.document(t).OK {
			t.Errorf("%s: %d %v %s", name, a.status, a.header, a.body)
		}
		if c.status == 429 && a.header.Get("Retry-After") != "2" {
			t.Errorf("%s: %v", name, a.header)
		}
	}
}

func TestMetricsNeedFullRightsOrTheMetricsRole(t *testing.T) {
	tooltest.NoLeaks(t)
	const text = "# TYPE calls counter\ncalls 7\n"
	rights := map[string]*tool.Rights{
		"all": nil, "ops": {Roles: []string{"metrics"}, Tools: tool.Patterns{}}, "some": {Tools: tool.Patterns{"read*"}}, "role": {Roles: []string{"admin"}},
		"none": {Tools: tool.Patterns{}},
	}
	gate := func(ctx context.Context, shown identity.Credentials) (tool.Principal, error) {
		p, err := byName(ctx, shown)
		p.Rights = rights[p.ID]
		return p, err
	}
	h := open(t, setup{Options: web.Options{Gate: gate}, door: rest.Options{Metrics: func(w io.Writer) error { _, err := io.WriteString(w, text); return err }}})
	get := func(h *house, name string) answer {
		req := h.request("GET", "/metrics", "")
		req.Header.Set("Authorization", "Bearer token-for-"+name)
		return h.do(req)
	}
	for name, status := range map[string]int{"all": 200, "ops": 200, "role": 200, "some": 403, "none": 403} {
		a := get(h, name)
		kit.Equal(t, a.status, status, name, a.body)
		if status == 200 && (string(a.body) != text || !strings.HasPrefix(a.header.Get("Content-Type"), "text/plain; version=0.0.4")) {
			t.Errorf("%s: %v %q", name, a.header, a.body)
		}
	}
	h.do(h.request("GET", "/metrics", "")).refused(t, 401, tool.CodeAccessDenied)
	get(open(t, setup{Options: web.Options{Gate: gate}}), "all").refused(t, 404, tool.CodeNotFound)
	broken := open(t, setup{Options: web.Options{Gate: gate}, door: rest.Options{Metrics: func(io.Writer) error { return errors.New("broken") }}})
	get(broken, "all").refused(t, 500, tool.CodeInternal)
}

// If a caller's identity cannot be checked, the caller is neither admitted nor told that the token is wrong.
func TestFailingGateIsUnavailableNotUnauthorized(t *testing.T) {
	tooltest.NoLeaks(t)
	h := open(t, setup{Options: web.Options{Gate: func(context.Context, identity.Credentials) (tool.Principal, error) {
		return tool.Principal{}, tool.Errorf(tool.CodeUnavailable, "the store does not answer")
	}}})
	a := h.do(h.request("GET", "/v1/tools", ""))
	a.refused(t, 503, tool.CodeUnavailable)
	kit.Equal(t, a.header.Get("WWW-Authenticate"), "", a.header)
}

func TestEveryRouteIsListedAndServed(t *testing.T) {
	tooltest.NoLeaks(t)
	h := open(t, setup{catalog: jobTools, handler: bureau{make(chan *tool.Call, 64)}})
	for _, route := range rest.Routes() {
		method, path, ok := strings.Cut(route, " ")
		if !ok {
			t.Fatalf("%q is no route", route)
		}
		path = strings.NewReplacer("{name}", "echo", "{id}", "job-1", "{sha256}", strings.Repeat("0", 64)).Replace(path)
		open := path == "/healthz" || path == "/readyz" || path == "/openapi.json"
		req := h.request(method, path, "")
		req.Header.Del("Authorization")
		if a := h.do(req); (a.status == 200) != open || !open && a.status != http.StatusUnauthorized {
			t.Errorf("%s without a token: %d %s", route, a.status, a.body)
		}
		a := h.do(h.request(method, path, ""))
		if a.status == 401 || a.status == 405 || strings.Contains(string(a.body), "nothing at") {
			t.Errorf("%s: %d %s", route, a.status, a.body)
		}
	}
}
