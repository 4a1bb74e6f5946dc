package namel3ss

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"toolpost/config"
	"toolpost/host/sandbox"
	"toolpost/host/spawn"
	"toolpost/identity"
	"toolpost/internal/kit"
	"toolpost/protocol/namel3ss/appfile"
	"toolpost/tool"
	"toolpost/tool/tooltest"
	"toolpost/web"
	"toolpost/wire/strictjson"
)

// house is the standard tools and one more with guarantees.
type house struct{ tooltest.Reference }

func (h house) Lookup(ctx context.Context, p tool.Principal, name string) (*tool.Spec, error) {
	if name == "walled" {
		return &tool.Spec{Name: name, Guarantees: tool.Guarantees{NoNetwork: true, NoSubprocess: true, SecretsAllowed: []string{"A"}}}, nil
	}
	return h.Reference.Lookup(ctx, p, name)
}

// ada admits clients with the right token.
func ada(_ context.Context, shown identity.Credentials) (tool.Principal, error) {
	if shown.Token != "right" {
		return tool.Principal{}, tool.Errorf(tool.CodeAccessDenied, "the token is not known")
	}
	return tool.Principal{ID: "ada", Door: shown.Door}, nil
}

// serveHTTP opens a service door and returns its address, with the token in it.
func serveHTTP(t testing.TB, o ServiceOptions, h tool.Handler) string {
	t.Helper()
	return serveCatalog(t, o, h, house{})
}

func serveCatalog(t testing.TB, o ServiceOptions, h tool.Handler, c tool.Catalog) string {
	t.Helper()
	return "http://toolpost:right@" + serveFront(t, web.Options{Gate: ada}, o, h, c)
}

// serveBare opens a service door and returns its address without a token.
func serveBare(t testing.TB, h tool.Handler) string {
	t.Helper()
	return "http://" + serveFront(t, web.Options{Gate: ada}, ServiceOptions{}, h, house{})
}

func serveFront(t testing.TB, at web.Options, o ServiceOptions, h tool.Handler, c tool.Catalog) (addr string) {
	t.Helper()
	ready := make(chan string, 1)
	at.Listen, at.Ready = "127.0.0.1:0", func(addr string) { ready <- addr }
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- web.New(at, NewServiceDoor(o)).Serve(ctx, h, c) }()
	t.Cleanup(func() {
		cancel()
		kit.Check(t, <-ended)
	})
	return <-ready
}

// networkOnly covers no_network and nothing else.
func networkOnly(_ *tool.Spec, g tool.Guarantees) error {
	if cmp.Equal(g, tool.Guarantees{NoNetwork: true}) {
		return nil
	}
	return errors.New("no such wall")
}

func TestServiceDoorAnswersAnIndependentClient(t *testing.T) {
	tooltest.NoLeaks(t)
	url := "http://" + serveFront(t, web.Options{Gate: ada}, ServiceOptions{Cover: networkOnly, Version: "1.2.3"}, tooltest.Reference{}, house{})
	out, err := exec.Command(systemPython(t), "testdata/peer_client.py", url, "right").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := `200 {"ok": true, "result": {"name": "Ada \u00fc"}}
200 {"error": {"message": "Missing input", "type": "ToolError"}, "ok": false}
200 {"error": {"message": "the call ran out of time", "reason_code": "timeout", "type": "TimeoutError"}, "ok": false}
200 {"error": {"message": "no tool is called \"nobody\"", "reason_code": "unknown_tool", "type": "LookupError"}, "ok": false}
400 {"error": {"message": "the request: `
	got := string(out)
	if !strings.HasPrefix(got, want) {
		t.Errorf("want\n%s\ngot\n%s", want, got)
	}
	for _, line := range []string{
		`200 {"enforcement": "none", "ok": true, "service_version": "1.2.3", "supported_guarantees": {}}`,
		`200 {"enforcement": "enforced", "ok": true, "service_version": "1.2.3", "supported_guarantees": {"no_network": true}}`,
		`200 {"error": {"message": "no tool is called \"nobody\"", "reason_code": "unknown_tool", "type": "LookupError"}, "ok": false}`,
	} {
		kit.Contains(t, got, line)
	}
	out, _ = exec.Command(systemPython(t), "testdata/peer_client.py", url, "wrong").CombinedOutput()
	if n := strings.Count(string(out), `401 {"error": {"message": "the token is not known"`); n != 8 {
		t.Errorf("a wrong token was refused %d times of 8:\n%s", n, out)
	}
}

func TestServiceDoorPromisesNothingThatTheMachineCannotEnforce(t *testing.T) {
	url := serveHTTP(t, ServiceOptions{}, tooltest.Reference{}) // with the machine's own walls
	for body, want := range map[string]string{
		`{"protocol_version":1,"tool_name":"walled","runner":"service","required_guarantees":{"no_network":true}}`: "",
		`{"protocol_version":1,"tool_name":"walled"}`:                                                              "",
		`{"protocol_version":1,"tool_name":"walled","required_guarantees":{"no_worries":true}}`:                    "required_guarantees",
		`{"protocol_version":1,"tool_name":"walled","required_guarantees":[]}`:                                     "must be an object",
		`{"protocol_version":2,"tool_name":"walled"}`:                                                              "not supported",
		`{"protocol_version":1}`: "tool_name is missing",
	} {
		status, got := post(t, url+handshakePath, body, nil)
		if want != "" && (status != 400 || !strings.Contains(got, want)) {
			t.Errorf("%s: %d %s", body, status, got)
		}
		r, err := parseHandshake([]byte(got))
		if want == "" && (status != 200 || err != nil || r.Enforcement == enforced && networkOnlyMissing()) {
			t.Errorf("%s: %d %s, %v", body, status, got, err)
		}
	}
}

// networkOnlyMissing reports whether this machine lacks the wall of the test above.
func networkOnlyMissing() bool {
	return covered(&tool.Spec{Name: "walled"}, tool.Guarantees{NoNetwork: true}) != nil
}

func TestServiceDoorPromisesWallsOnlyForLocalTools(t *testing.T) {
	cover, no := covered, tool.Guarantees{NoNetwork: true}
	kit.Refused(t, cover(&tool.Spec{Name: "t", Protocol: "namel3ss", Walls: "none"}, no),
		tool.CodeOf(sandbox.Cover("t", no)), "", "around a tool of ours")
	for _, protocol := range []string{"namel3ss", "singularity", "rest", "builtin", ""} {
		if err := cover(&tool.Spec{Name: "t", Protocol: protocol}, no); err == nil || tool.AsError(err).Reason != sandbox.CoverageMissing {
			t.Errorf("%q: %v", protocol, err)
		}
	}
}

func post(t testing.TB, url, body string, change func(*http.Request)) (int, string) {
	t.Helper()
	req := kit.Must(http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body)))(t)
	req.Close = true
	if change != nil {
		change(req)
	}
	resp := kit.Must(http.DefaultClient.Do(req))(t)
	defer resp.Body.Close()
	got := kit.Must(io.ReadAll(resp.Body))(t)
	return resp.StatusCode, string(got)
}

func TestServiceDoorRefusesInvalidRequests(t *testing.T) {
	tooltest.NoLeaks(t)
	url := serveHTTP(t, ServiceOptions{}, tooltest.Reference{})
	const good = `{"protocol_version":1,"tool_name":"echo","payload":{}}`
	for _, c := range []struct {
		name, path, body string
		change           func(*http.Request)
		status           int
		want             string
	}{
		{"good", "/tools", good, nil, 200, `{"ok":true,"result":{}}`},
		{"another host", "/tools", good, func(r *http.Request) { r.Host = "evil.example" }, 421, "no service for the host"},
		{"a page", "/tools", good, func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") }, 403, "may not call this server"},
		{"another path", "/", good, nil, 404, "/capabilities/handshake"},
		{"another method", "/tools", "", func(r *http.Request) { r.Method = "GET" }, 405, "use POST"},
		{"empty", "/tools", "", nil, 400, "the request"},
		{"duplicate", "/tools", `{"protocol_version":1,"protocol_version":1}`, nil, 400, "duplicate"},
		{"deep", "/tools", strings.Repeat("[", 100_000), nil, 400, "the request"},
		{"invalid UTF-8", "/tools", "{\"tool_name\":\"\xff\"}", nil, 400, "the request"},
		{"payload", "/tools", `{"protocol_version":1,"tool_name":"echo","payload":[]}`, nil, 400, "payload must be an object"},
		{"no payload", "/tools", `{"protocol_version":1,"tool_name":"echo"}`, nil, 400, "payload is missing"},
		{"timeout", "/tools", `{"protocol_version":1,"tool_name":"echo","payload":{},"timeout_ms":-1}`, nil, 400, "timeout_ms"},
		{"too large", "/tools", `{"x":"` + strings.Repeat("x", maxDocument) + `"}`, nil, 413, "larger than 8388608 bytes"},
	} {
		status, got := post(t, url+c.path, c.body, c.change)
		if status != c.status || !strings.Contains(got, c.want) || c.status != 200 && !strings.HasPrefix(got, `{"ok":false,"error":{"type":`) {
			t.Errorf("%s: want %d with %q, got %d %s", c.name, c.status, c.want, status, got)
		}
	}
}

func TestServiceDoorDoesNotOpenWithoutAGate(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // only needed if the door opens
	defer cancel()
	err := web.New(web.Options{Listen: "127.0.0.1:0"}, NewServiceDoor(ServiceOptions{})).Serve(ctx, tooltest.Reference{}, house{})
	kit.Refused(t, err, tool.CodeInternal, "open to everyone")
}

func TestServiceDoorTakesBearerTokenOrPassword(t *testing.T) {
	tooltest.NoLeaks(t)
	url := serveBare(t, tooltest.Reference{})
	with := func(values ...string) func(*http.Request) {
		return func(r *http.Request) { r.Header["Authorization"] = values }
	}
	for _, c := range []struct {
		name   string
		change func(*http.Request)
		status int
	}{
		{"bearer", with("Bearer right"), 200},
		{"bearer in small letters", with("bearer right"), 200},
		{"password", func(r *http.Request) { r.SetBasicAuth("toolpost", "right") }, 200},
		{"password of nobody", func(r *http.Request) { r.SetBasicAuth("", "right") }, 200},
		{"nothing", nil, 401},
		{"wrong bearer", with("Bearer wrong"), 401},
		{"wrong password", func(r *http.Request) { r.SetBasicAuth("toolpost", "wrong") }, 401},
		{"the token as user", func(r *http.Request) { r.SetBasicAuth("right", "") }, 401},
		{"no scheme", with("right"), 401},
		{"another scheme", with("Digest right"), 401},
		{"not base64", with("Basic right"), 401},
		{"two", with("Bearer right", "Bearer right"), 401},
		{"empty", with(""), 401},
	} {
		for _, path := range []string{"/tools", "/capabilities/handshake"} {
			status, got := post(t, url+path, `{"protocol_version":1,"tool_name":"echo","payload":{}}`, c.change)
			if status != c.status || strings.Contains(got, "right") {
				t.Errorf("%s at %s: %d %s", c.name, path, status, got)
			}
		}
	}
}

// Unauthenticated connections keep no client out, and those of one caller do not keep out another.
func TestServiceDoorBoundsItsConnections(t *testing.T) {
	tooltest.NoLeaks(t)
	at := web.Options{Bounds: identity.Bounds{All: 8, Strangers: 4, Each: 2}, Gate: func(_ context.Context, shown identity.Credentials) (tool.Principal, error) {
		return tool.Principal{ID: shown.Token, Door: shown.Door}, nil
	}}
	url := "http://" + serveFront(t, at, ServiceOptions{}, tooltest.Reference{}, house{})
	dial := func(say string) (net.Conn, *bufio.Reader) {
		conn := kit.Must(net.Dial("tcp", strings.TrimPrefix(url, "http://")))(t)
		t.Cleanup(func() { conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		_, _ = io.WriteString(conn, say)
		return conn, bufio.NewReader(conn)
	}
	const body = `{"protocol_version":1,"tool_name":"echo","payload":{}}`
	ask := func(who string) (int, string) {
		_, r := dial(fmt.Sprintf("POST /tools HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", strings.TrimPrefix(url, "http://"), who, len(body), body))
		resp := kit.Must(http.ReadResponse(r, nil))(t)
		defer resp.Body.Close()
		got, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(got)
	}
	_, first := dial("")
	for range 40 {
		dial("POST /tools HTTP/1.1\r\n")
	}
	if resp, err := http.ReadResponse(first, nil); err != nil || resp.StatusCode != 503 {
		t.Errorf("who says nothing is not told why it has to go: %v, %v", resp, err)
	} else {
		got, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if !strings.HasPrefix(string(got), `{"ok":false,"error":{`) {
			t.Errorf("not in the words of the contract: %s", got)
		}
	}
	for range 2 {
		if status, got := ask("ada"); status != 200 {
			t.Errorf("ada: %d %s", status, got)
		}
	}
	if status, got := ask("ada"); status != 429 || !strings.Contains(got, "2 connections") {
		t.Errorf("one more of ada's: %d %s", status, got)
	}
	if status, got := ask("eve"); status != 200 {
		t.Errorf("eve: %d %s", status, got)
	}
}

// tokenEnv is the variable with the token of the door.
const tokenEnv = "SERVICE_DOOR_TOKEN"

func TestServiceDoorConforms(t *testing.T) {
	t.Setenv(tokenEnv, "right")
	tooltest.Run(t, tooltest.Subject{
		New: func(t testing.TB) tool.Handler {
			url := serveBare(t, tooltest.Reference{})
			files := map[string]string{}
			for _, s := range tooltest.Specs() {
				files[".namel3ss/tools.yaml"] += fmt.Sprintf("  %s: {runner: service, url: %q}\n", s.Name, url+"/tools")
			}
			files[".namel3ss/tools.yaml"] = "tools:\n" + files[".namel3ss/tools.yaml"]
			return open(t, write(t, files), Options{Options: spawn.Options{Timeout: config.Duration(time.Minute)}, TokenEnv: tokenEnv})
		},
		Without: tooltest.Events | tooltest.Crash,
	})
}

func TestServiceDoorCancelsTheCallOfAGoneCaller(t *testing.T) {
	tooltest.NoLeaks(t)
	began, ended := make(chan struct{}), make(chan struct{})
	t.Setenv(tokenEnv, "right")
	url := serveBare(t, handlerFunc(func(ctx context.Context) { close(began); <-ctx.Done(); close(ended) }))
	r := remote(t, url+"/tools", "hang", Options{TokenEnv: tokenEnv})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-began; cancel() }()
	kit.Refused(t, kit.Err(r.Invoke(ctx, &tool.Call{Tool: "hang"}, tool.Discard)), tool.CodeCancelled, "")
	kit.Receive(t, "the call ends with its caller", ended)
}

type handlerFunc func(context.Context)

func (f handlerFunc) Invoke(ctx context.Context, _ *tool.Call, _ tool.Sink) (*tool.Result, error) {
	f(ctx)
	return &tool.Result{OK: true}, nil
}

func FuzzServiceRequest(f *testing.F) {
	for _, seed := range []string{
		`{"protocol_version":1,"tool_name":"greeter","kind":"python","entry":"tools.sample_tool:greet","payload":{"name":"Ada"},"timeout_ms":10000,"trace_id":"uuid","project":{"app_root":"/path/to/app","flow":"demo"}}`,
		`{"protocol_version":1,"tool_name":"x","payload":{},"timeout_ms":1e300}`, `{}`, `[]`, `{"protocol_version":1,"tool_name":"x","payload":{},"timeout_ms":null}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseRequest(b, true)
		if err == nil && (r.tool == "" || r.timeout < 0 || r.timeout > appfile.MaxTimeout || strictjson.CheckObject(r.payload) != nil) {
			t.Errorf("%s was taken as %+v", b, r)
		}
		if _, _, err := parseHandshakeRequest(b); err != nil && err.Error() == "" {
			t.Error("an error without words")
		}
	})
}

// contract(namel3ss): `entry` and `kind` of a request that we answer do not choose what runs: the tool has its own. Nor does `project` choose the app or the session.
func TestServiceRequestChoosesOnlyTheTool(t *testing.T) {
	tooltest.NoLeaks(t)
	seen := make(chan tool.Call, 1)
	h := tool.HandlerFunc(func(_ context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
		seen <- *c
		return &tool.Result{OK: true, Output: json.RawMessage(`1`)}, nil
	})
	const document = `{"protocol_version":1,"tool_name":"t","kind":"node","entry":"os:system","payload":{"a":1},` +
		`"project":{"app_root":"/etc","flow":"of somebody"}}`
	resp, err := http.Post(serveHTTP(t, ServiceOptions{}, h)+"/tools", "application/json", strings.NewReader(document))
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp, err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer resp.Body.Close()
	if c := <-seen; c.Tool != "t" || string(c.Args) != `{"a":1}` || c.Session != "" {
		t.Errorf("%+v", c)
	}
}

func TestServiceDoorReadsCallHeaders(t *testing.T) {
	tooltest.NoLeaks(t)
	seen := make(chan tool.Call, 1)
	h := tool.HandlerFunc(func(_ context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
		seen <- *c
		return &tool.Result{OK: true, Output: json.RawMessage(`1`)}, nil
	})
	url := serveHTTP(t, ServiceOptions{}, h) + "/tools"
	const document = `{"protocol_version":1,"tool_name":"t","payload":{}}`
	post := func(body string, headers ...string) int {
		t.Helper()
		req := kit.Must(http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body)))(t)
		for i := 0; i < len(headers); i += 2 {
			req.Header.Add(headers[i], headers[i+1])
		}
		resp := kit.Must(http.DefaultClient.Do(req))(t)
		defer http.DefaultClient.CloseIdleConnections()
		defer resp.Body.Close()
		return resp.StatusCode
	}
	const trace = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
	kit.MustEqual(t, post(document, "Idempotency-Key", "k", "Toolpost-Session", "s", "Toolpost-Lease", "l", "Toolpost-Run", "r", "traceparent", trace), http.StatusOK)
	if c := <-seen; c.Key != "k" || c.Session != "s" || c.Lease != "l" || c.Run != "r" || c.Trace != "01234567-89ab-cdef-0123-456789abcdef" || c.Span != "0123456789abcdef" || c.Caller.ID != "ada" {
		t.Errorf("%+v", c)
	}
	for id, span := range map[string]string{"0123456789abcdef0123456789abcdef": "0123456789abcdef", "their own": ""} {
		post(strings.Replace(document, "{", `{"trace_id":"`+id+`",`, 1), "traceparent", trace)
		if c := <-seen; c.Trace != id || c.Span != span {
			t.Errorf("the trace_id %q became %q, the span %q", id, c.Trace, c.Span)
		}
	}
	for _, bad := range [][]string{{"Idempotency-Key", "a", "Idempotency-Key", "b"}, {"Toolpost-Session", strings.Repeat("x", 2000)}, {"Toolpost-Run", "\xff"}} {
		kit.Equal(t, post(document, bad...), http.StatusBadRequest, bad)
	}
}
