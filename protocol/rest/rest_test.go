package rest_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"toolpost/engine/calls"
	"toolpost/identity"
	"toolpost/internal/kit"
	"toolpost/protocol/rest"
	"toolpost/tool"
	"toolpost/tool/tooltest"
	"toolpost/web"
	"toolpost/wire/strictjson"
)

const token = "tp_a-token-for-the-tests"

// limit only guards against a hang.
const limit = time.Minute

// A house is an open door, with what a test needs to use it.
type house struct {
	t     testing.TB
	addr  string
	base  string // of URLs
	web   *http.Client
	stop  context.CancelFunc
	ended chan error // Serve's error
}

type setup struct {
	web.Options
	door    rest.Options
	handler tool.Handler
	catalog tool.Catalog
}

// newDoor returns a door alone at its address.
func newDoor(o web.Options) *web.Front { return web.New(o, rest.NewDoor(rest.Options{})) }

// open opens a door in front of tooltest's reference, or of the handler of the setup.
func open(t testing.TB, s setup) *house {
	t.Helper()
	if s.handler == nil {
		s.handler = tooltest.Reference{}
	}
	if s.Calls == nil {
		s.Calls = calls.New(calls.Env{})
	}
	run := s.handler
	s.handler = s.Calls.Stage(slog.New(slog.DiscardHandler))(nil)(tool.HandlerFunc( // as in the engine
		func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
			if err := c.Watch.By.Admit(c); err != nil {
				return nil, err
			}
			sent := *c
			sent.Watch = tool.Watch{} // the door did not set it
			return run.Invoke(ctx, &sent, out)
		}))
	if s.catalog == nil {
		s.catalog = tooltest.Reference{}
	}
	if s.Gate == nil {
		auth := kit.Must(identity.StaticToken(token))(t)
		s.Gate = auth
	}
	if s.Listen == "" {
		s.Listen = "127.0.0.1:0"
	}
	ready := make(chan string, 1)
	s.Ready = func(addr string) { ready <- addr }
	ctx, cancel := context.WithCancel(context.Background())
	h := &house{t: t, stop: cancel, ended: make(chan error, 1), web: &http.Client{Transport: &http.Transport{}, Timeout: limit}}
	go func() {
		h.ended <- web.New(s.Options, rest.NewDoor(s.door)).Serve(ctx, s.handler, s.catalog)
		close(h.ended)
	}()
	select {
	case h.addr = <-ready:
	case err := <-h.ended:
		t.Fatalf("the door did not open: %v", err)
	}
	h.base = s.URL(h.addr)
	t.Cleanup(func() {
		h.web.CloseIdleConnections()
		h.stop()
		select {
		case err := <-h.ended:
			kit.Check(t, err, "Serve")
		case <-time.After(limit):
			t.Error("Serve did not return")
		}
	})
	return h
}

func (h *house) url(path string) string { return h.base + path }

func (h *house) request(method, path, body string) *http.Request {
	h.t.Helper()
	req := kit.Must(http.NewRequest(method, h.url(path), strings.NewReader(body)))(h.t)
	req.Header.Set("Authorization", "Bearer "+token)
	return req
}

// An answer is a whole response.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (h *house) do(req *http.Request) answer {
	h.t.Helper()
	resp, err := h.web.Do(req)
	kit.OK(h.t, err, "%s %s", req.Method, req.URL.Path)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	kit.OK(h.t, err, "%s %s", req.Method, req.URL.Path)
	return answer{resp.StatusCode, resp.Header, body}
}

func (h *house) call(name, args string) answer {
	h.t.Helper()
	return h.do(h.request("POST", "/v1/tools/"+name+"/call", args))
}

// A document is any body of the door.
type document struct {
	OK     bool            `json:"ok"`
	Output json.RawMessage `json:"output"`
	Error  *tool.Error     `json:"error"`
	Call   string          `json:"call"`
}

func (a answer) document(t testing.TB) document {
	t.Helper()
	var d document
	kit.OK(t, strictjson.Unmarshal(a.body, &d), "status %d with a body that is not ours: %.200q", a.status, a.body)
	return d
}

// refused checks the status and the code of a refusal.
func (a answer) refused(t testing.TB, status int, code tool.Code) {
	t.Helper()
	d := a.document(t)
	if a.status != status || d.OK || d.Error == nil || d.Error.Code != code || d.Error.Message == "" {
		t.Errorf("status %d and %s; %d with %s is wanted", a.status, a.body, status, code)
	}
}

func (h *house) client(t testing.TB) *rest.Client {
	t.Helper()
	c := kit.Must(rest.Dial("http://"+h.addr, token, ""))(t)
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// raw opens a bare connection, for requests that no HTTP client would send.
func (h *house) raw(t testing.TB, send string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn := kit.Must(net.Dial("tcp", h.addr))(t)
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(limit))
	kit.Must(io.WriteString(conn, send))(t)
	return conn, bufio.NewReader(conn)
}

func readRaw(t testing.TB, r *bufio.Reader) answer {
	t.Helper()
	resp, err := http.ReadResponse(r, nil)
	kit.OK(t, err, "no answer")
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, body}
}

func (h *house) head(method, path string, more ...string) string {
	return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n%s\r\n",
		method, path, h.addr, token, strings.Join(append(more, ""), "\r\n"))
}

// strict checks arguments as the engine does.
var strict = tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	if err := strictjson.CheckObject(c.Args); err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the arguments of %s: %w", c.Tool, err)
	}
	return tooltest.Reference{}.Invoke(ctx, c, out)
})

// fails is a handler without an outcome.
func fails(err error) tool.Handler {
	return tool.HandlerFunc(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) { return nil, err })
}

// A probe is a handler that waits, and reports when it began and how its context ended.
type probe struct {
	began chan *tool.Call
	ended chan error
	let   chan struct{} // closed: return a result
}

func newProbe() *probe {
	return &probe{make(chan *tool.Call, 8), make(chan error, 8), make(chan struct{})}
}

func (p *probe) Invoke(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	if err := out.Emit(tool.LogEvent("info", "began")); err != nil {
		return nil, err
	}
	p.began <- c
	select {
	case <-ctx.Done():
		p.ended <- context.Cause(ctx)
		return nil, tool.AsError(context.Cause(ctx))
	case <-p.let:
		return &tool.Result{OK: true, Output: json.RawMessage(`"let"`)}, nil
	}
}

func TestDoorAndClientTogetherAreAHandler(t *testing.T) {
	tooltest.Run(t, tooltest.Subject{New: func(t testing.TB) tool.Handler {
		return open(t, setup{}).client(t)
	}})
}

func TestEveryCodeHasItsStatusAndComesBackAsItWas(t *testing.T) {
	tooltest.NoLeaks(t)
	want := map[tool.Code]int{
		tool.CodeAccessDenied: 403, tool.CodeNotFound: 404, tool.CodeInvalidInput: 400, tool.CodeConflict: 409,
		tool.CodeTimeout: 504, tool.CodeCancelled: 499, tool.CodeQuotaExceeded: 429, tool.CodeLeaseRequired: 403,
		tool.CodeLeaseRejected: 403, tool.CodeBreakerOpen: 503, tool.CodeUnavailable: 503, tool.CodeCrash: 502,
		tool.CodeProtocol: 502, tool.CodeUnsupported: 501, tool.CodeInternal: 500, tool.CodeToolError: 500,
	}
	for _, code := range tool.Codes() {
		t.Run(string(code), func(t *testing.T) {
			given := &tool.Error{Code: code, Reason: "because", Message: "no: \xff", Details: json.RawMessage(`{"a":1.50}`)}
			h := open(t, setup{handler: fails(given)})
			a := h.call("echo", `{}`)
			a.refused(t, want[code], code)
			if a.document(t).Call == "" {
				t.Error("the answer does not name the call")
			}
			_, err := h.client(t).Invoke(kit.Context(t), &tool.Call{Tool: "echo"}, tool.Discard)
			var got *tool.Error
			if !errors.As(err, &got) || got.Code != code || got.Reason != "because" || got.Message != "no: \uFFFD" || string(got.Details) != `{"a":1.50}` {
				t.Errorf("the client gave %#v", err)
			}
		})
	}
}

func TestRefusalCarriesRetryAfter(t *testing.T) {
	tooltest.NoLeaks(t)
	for _, c := range []struct {
		code          tool.Code
		details, want string
	}{
		{tool.CodeQuotaExceeded, `{"retry_after_ms":1}`, "1"}, {tool.CodeQuotaExceeded, `{"retry_after_ms":1000}`, "1"},
		{tool.CodeQuotaExceeded, `{"rule":"r","retry_after_ms":1001}`, "2"},
		{tool.CodeQuotaExceeded, `{"retry_after_ms":9223372036854775807}`, "9223372037"},
		{tool.CodeQuotaExceeded, `{"retry_after_ms":-5}`, ""}, {tool.CodeQuotaExceeded, `{"retry_after_ms":"soon"}`, ""},
		{tool.CodeUnavailable, `{"retry_after_ms":1500}`, "2"}, {tool.CodeBreakerOpen, `{"retry_after_ms":30000}`, "30"}, {tool.CodeUnavailable, ``, ""},
		{tool.CodeQuotaExceeded, ``, ""}, {tool.CodeCrash, `{"retry_after_ms":1}`, ""},
	} {
		h := open(t, setup{handler: fails(&tool.Error{Code: c.code, Message: "no", Details: json.RawMessage(c.details)})})
		kit.Equal(t, h.call("echo", `{}`).header.Get("Retry-After"), c.want, c.code, c.details)
	}
}

func TestAToolsOwnFailureIsStatus200(t *testing.T) {
	tooltest.NoLeaks(t)
	a := open(t, setup{}).call("fail", `{"message":"no torch"}`)
	d := a.document(t)
	if a.status != 200 || d.OK || d.Error == nil || d.Error.Code != tool.CodeToolError || d.Error.Message != "no torch" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if d.Call == "" || a.header.Get("Toolpost-Call") != d.Call {
		t.Errorf("the call is %q in the body and %q in the header", d.Call, a.header.Get("Toolpost-Call"))
	}
}

func TestAnythingThatIsJSONIsAnOutput(t *testing.T) {
	tooltest.NoLeaks(t)
	for _, output := range []string{`{}`, `[]`, `""`, `null`, `0`, `1.50`, `{"a":1e400}`} {
		h := open(t, setup{handler: tool.HandlerFunc(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
			return &tool.Result{OK: true, Output: json.RawMessage(output)}, nil
		})})
		if d := h.call("x", `{}`).document(t); !d.OK || !bytes.Contains(h.call("x", ``).body, []byte(`"output":`+output)) {
			t.Errorf("%s came as %+v", output, d)
		}
		r, err := h.client(t).Invoke(kit.Context(t), &tool.Call{Tool: "x"}, tool.Discard)
		if err != nil || string(r.Output) != output {
			t.Errorf("%s came to the client as %+v, %v", output, r, err)
		}
	}
}

func TestAHandlerThatBreaksItsContractIsAnswered(t *testing.T) {
	tooltest.NoLeaks(t)
	for name, c := range map[string]struct {
		handler tool.HandlerFunc
		status  int
		code    tool.Code
	}{
		"a panic": {func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) { panic("at the disco") }, 500, tool.CodeInternal},
		"neither": {func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) { return nil, nil }, 500, tool.CodeInternal},
		"an output that is not JSON": {func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
			return &tool.Result{OK: true, Output: json.RawMessage(`{"a":`)}, nil
		}, 502, tool.CodeProtocol},
		"a plain error": {func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) { return nil, io.ErrClosedPipe }, 500, tool.CodeInternal},
		"details that are not JSON": {func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
			return nil, &tool.Error{Code: tool.CodeCrash, Message: "m", Details: json.RawMessage(`{`)}
		}, 502, tool.CodeCrash},
	} {
		t.Run(name, func(t *testing.T) {
			h := open(t, setup{handler: c.handler})
			h.call("x", `{}`).refused(t, c.status, c.code)
			_, err := h.client(t).Invoke(kit.Context(t), &tool.Call{Tool: "x"}, tool.Discard)
			kit.Refused(t, err, c.code, "", "the stream ended with")
			kit.Equal(t, h.do(h.request("GET", "/healthz", "")).status, 200, "the door did not survive it")
		})
	}
}
