package rest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"toolpost/identity"
	"toolpost/internal/kit"
	"toolpost/protocol/rest"
	"toolpost/tool"
	"toolpost/tool/tooltest"
	"toolpost/web"
)

func TestHeadersBecomeTheCall(t *testing.T) {
	tooltest.NoLeaks(t)
	p := newProbe()
	close(p.let)
	h := open(t, setup{handler: p})
	req := h.request("POST", "/v1/tools/a%2Fb%20c/call", `{ "n": 1.50 }`)
	for name, value := range map[string]string{
		"Toolpost-Call": "my-call_1", "Toolpost-Session": "größe", "Idempotency-Key": "k 1", "Toolpost-Lease": "l",
		"Toolpost-Resume": "ask-1", "Toolpost-Answers": `{"name":"Ada"}`, "Toolpost-Timeout": "20s",
		"Toolpost-Dry-Run": "true", "Traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	} {
		req.Header.Set(name, value)
	}
	a := h.do(req)
	if a.status != 200 || a.header.Get("Toolpost-Call") != "my-call_1" {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
	want := &tool.Call{
		ID: "my-call_1", Tool: "a/b c", Session: "größe", Args: json.RawMessage(`{ "n": 1.50 }`), Key: "k 1", Lease: "l",
		Trace: "0af76519-16cd-43dd-8448-eb211c80319c", Span: "b7ad6b7169203331", Caller: tool.Principal{ID: "owner", Door: "http", Operates: true},
		Answers: json.RawMessage(`{"name":"Ada"}`), Resume: "ask-1", DryRun: true,
	}
	kit.Equal(t, cmp.Diff(want, kit.Receive(t, "the call", p.began)), "")

	again := *want
	again.Caller = tool.Principal{} // there the token decides
	again.Answers = json.RawMessage("{\n\"name\": \"Ada\"}")
	kit.Must(h.client(t).Invoke(kit.Context(t), &again, tool.Discard))(t)
	kit.Equal(t, cmp.Diff(want, kit.Receive(t, "the client's call", p.began)), "", "the client does not say the same")
}

func TestInvalidHeadersAreRefused(t *testing.T) {
	tooltest.NoLeaks(t)
	h := open(t, setup{})
	for name, header := range map[string]http.Header{
		"an id with a slash":       {"Toolpost-Call": {"a/b"}},
		"an id that is too long":   {"Toolpost-Call": {strings.Repeat("x", 65)}},
		"two ids":                  {"Toolpost-Call": {"a", "b"}},
		"two sessions":             {"Toolpost-Session": {"a", "b"}},
		"a long session":           {"Toolpost-Session": {strings.Repeat("x", 2000)}},
		"a session without UTF-8":  {"Toolpost-Session": {"\xff"}},
		"a timeout without a unit": {"Toolpost-Timeout": {"5"}},
		"no time":                  {"Toolpost-Timeout": {"0s"}},
		"negative time":            {"Toolpost-Timeout": {"-1s"}},
		"answers that are no JSON": {"Toolpost-Answers": {"yes"}},
		"answers given twice":      {"Toolpost-Answers": {"1", "2"}},
		"a dry run, perhaps":       {"Toolpost-Dry-Run": {"1"}},
		"two minds":                {"Toolpost-Dry-Run": {"true", "false"}},
		"nearly a dry run":         {"Toolpost-Dryrun": {"true"}},
	} {
		t.Run(name, func(t *testing.T) {
			req := h.request("POST", "/v1/tools/echo/call", `{}`)
			for name, values := range header {
				req.Header[name] = values
			}
			h.do(req).refused(t, 400, tool.CodeInvalidInput)
		})
	}
}

func TestClientRefusesUnsendableCalls(t *testing.T) {
	tooltest.NoLeaks(t)
	c := open(t, setup{}).client(t)
	for _, call := range []tool.Call{
		{Session: "a\r\nToolpost-Lease: stolen"}, {Session: " a"}, {Key: "\xff"}, {Lease: strings.Repeat("x", 2000)},
		{Answers: json.RawMessage(`{`)}, {Answers: json.RawMessage(`"` + strings.Repeat("x", 40<<10) + `"`)},
	} {
		call.Tool = "echo"
		kit.Refused(t, kit.Err(c.Invoke(kit.Context(t), &call, tool.Discard)), tool.CodeInvalidInput, "", call)
	}
	for _, name := range []string{"", ".", "..", "../healthz", "echo/call", "%", "?", "#", "a\nb"} {
		if _, err := c.Invoke(kit.Context(t), &tool.Call{Tool: name, Args: json.RawMessage(`{}`)}, tool.Discard); tool.CodeOf(err) != tool.CodeNotFound {
			t.Errorf("the tool %q: %v", name, err)
		}
		kit.Refused(t, kit.Err(c.Lookup(kit.Context(t), tool.Principal{}, name)),
			tool.CodeNotFound, "", "looking up %q", name)
	}
}

func TestATimeoutOnlyShortens(t *testing.T) {
	tooltest.NoLeaks(t)
	p := newProbe()
	h := open(t, setup{handler: tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
		ctx, cancel := context.WithTimeoutCause(ctx, 100*time.Millisecond, tool.Errorf(tool.CodeTimeout, "the tool's own"))
		defer cancel()
		return p.Invoke(ctx, c, out)
	})})
	for given, want := range map[string]string{"1h": "the tool's own", "10ms": "its caller gave it"} {
		req := h.request("POST", "/v1/tools/echo/call", `{}`)
		req.Header.Set("Toolpost-Timeout", given)
		a := h.do(req)
		a.refused(t, 504, tool.CodeTimeout)
		kit.Contains(t, string(a.body), want, given)
	}
}

func TestEventsStreamInOrderAndTheResultIsLast(t *testing.T) {
	tooltest.NoLeaks(t)
	when := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	h := open(t, setup{handler: tool.HandlerFunc(func(_ context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
		for i := range 3 {
			e := tool.NewEvent(tool.KindProgress, tool.Progress{Progress: float64(i), Message: "a\nb"})
			e.Seq, e.Time = uint64(i+1), when
			if err := out.Emit(e); err != nil {
				return nil, err
			}
		}
		if c.Tool == "no" {
			return nil, tool.Errorf(tool.CodeCrash, "gone")
		}
		return &tool.Result{OK: true, Output: json.RawMessage(`{"a": 1}`)}, nil
	})})
	var want []string
	for i := range 3 {
		want = append(want, fmt.Sprintf("id: %d\nevent: progress\ndata: "+
			`{"seq":%d,"time":"2026-01-02T03:04:05Z","kind":"progress","data":{"progress":%d,"message":"a\nb"}}`, i+1, i+1, i))
	}
	for name, last := range map[string]string{"yes": "event: result\ndata: ", "no": "event: no_outcome\ndata: "} {
		req := h.request("POST", "/v1/tools/"+name+"/call", `{}`)
		req.Header.Set("Accept", "application/json;q=0.5, text/event-stream")
		req.Header.Set("Toolpost-Call", "c1")
		a := h.do(req)
		if a.status != 200 || a.header.Get("Content-Type") != "text/event-stream" || a.header.Get("Toolpost-Call") != "c1" {
			t.Errorf("%s: %d %v", name, a.status, a.header)
		}
		got := strings.Split(string(a.body), "\n\n")
		if len(got) != 6 || got[0] != ": started" || got[5] != "" {
			t.Fatalf("%s: the stream is %s", name, a.body)
		}
		kit.Equal(t, cmp.Diff(want, got[1:4]), "", name)
		body, ok := strings.CutPrefix(got[4], last)
		d := answer{body: []byte(body)}.document(t)
		if !ok || d.Call != "c1" || d.OK != (name == "yes") || d.OK == (d.Error != nil) {
			t.Errorf("%s: the last message is %s", name, got[4])
		}
	}
}

func TestAnEventThatCannotBeSentStopsTheCall(t *testing.T) {
	tooltest.NoLeaks(t)
	for want, e := range map[string]tool.Event{
		"as JSON":  {Kind: tool.KindLog, Data: json.RawMessage(`{`)},
		"the kind": {Kind: "log\nevent: result", Data: json.RawMessage(`{}`)},
	} {
		h := open(t, setup{handler: tool.HandlerFunc(func(_ context.Context, _ *tool.Call, out tool.Sink) (*tool.Result, error) {
			if err := out.Emit(e); err != nil {
				return nil, err
			}
			return &tool.Result{OK: true}, nil
		})})
		_, err := h.client(t).Invoke(kit.Context(t), &tool.Call{Tool: "x"}, tool.Discard)
		kit.Refused(t, err, tool.CodeProtocol, want, e)
	}
}

func TestEventsAreSentAtOnce(t *testing.T) {
	tooltest.NoLeaks(t)
	p := newProbe()
	h := open(t, setup{handler: p})
	var got tooltest.Collect
	done := make(chan error, 1)
	go func() {
		_, err := h.client(t).Invoke(kit.Context(t), &tool.Call{Tool: "x"}, &got)
		done <- err
	}()
	kit.Check(t, got.WaitLog(kit.Context(t), "began"), "the event did not come while the call was running")
	close(p.let)
	kit.Check(t, kit.Receive(t, "the call", done))
}

func TestAStreamWithoutEventsGivesSignsOfLife(t *testing.T) {
	tooltest.NoLeaks(t)
	s := setup{handler: newProbe()}
	s.door.Beat = 10 * time.Millisecond
	h := open(t, s)
	req := h.request("POST", "/v1/tools/x/call", `{}`)
	req.Header.Set("Accept", "text/event-stream")
	resp := kit.Must(h.web.Do(req))(t)
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for beats := 0; beats < 3 && lines.Scan(); {
		if lines.Text() == ": running" {
			beats++
		}
	}
	if lines.Err() != nil {
		t.Error(lines.Err())
	}
}

func TestACallerThatGoesAwayCancelsItsCall(t *testing.T) {
	tooltest.NoLeaks(t)
	for _, accept := range []string{"application/json", "text/event-stream"} {
		p := newProbe()
		h := open(t, setup{handler: p})
		conn, _ := h.raw(t, h.head("POST", "/v1/tools/x/call", "Content-Length: 2", "Accept: "+accept)+`{}`)
		kit.Receive(t, "the call", p.began)
		conn.Close()
		if err := kit.Receive(t, "the end of the call", p.ended); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: it ended with %v", accept, err)
		}
	}
}

func TestACallerThatReadsNothingIsTakenForDead(t *testing.T) {
	tooltest.NoLeaks(t)
	ended := make(chan error, 1)
	s := setup{handler: tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
		r, err := tooltest.Reference{}.Invoke(ctx, c, out)
		ended <- err
		return r, err
	})}
	s.Times.Write = 200 * time.Millisecond
	h := open(t, s)
	h.raw(t, h.head("POST", "/v1/tools/flood/call", "Content-Length: 2", "Accept: text/event-stream")+`{}`)
	kit.Fails(t, kit.Receive(t, "the end of the call", ended), "", "the call has an outcome")
}

// people accepts several callers, each with a token of their own.
func people(_ context.Context, shown identity.Credentials) (tool.Principal, error) {
	id, ok := strings.CutPrefix(shown.Token, "token-of-")
	if !ok {
		return tool.Principal{}, tool.Errorf(tool.CodeAccessDenied, "nobody")
	}
	return tool.Principal{ID: id, Door: shown.Door}, nil
}

func TestOnlyTheCallerCancelsACallByItsID(t *testing.T) {
	tooltest.NoLeaks(t)
	p := newProbe()
	s := setup{handler: p}
	s.Gate = people
	h := open(t, s)
	as := func(who string, req *http.Request) *http.Request {
		req.Header.Set("Authorization", "Bearer token-of-"+who)
		return req
	}
	done := make(chan answer, 1)
	req := as("ada", h.request("POST", "/v1/tools/x/call", `{}`))
	req.Header.Set("Toolpost-Call", "mine")
	go func() { done <- h.do(req) }()
	if c := kit.Receive(t, "the call", p.began); c.Caller != (tool.Principal{ID: "ada", Door: "http"}) {
		t.Errorf("the caller is %+v", c.Caller)
	}

	same := as("ada", h.request("POST", "/v1/tools/x/call", `{}`))
	same.Header.Set("Toolpost-Call", "mine")
	h.do(same).refused(t, 409, tool.CodeConflict)

	stranger := h.do(as("eve", h.request("DELETE", "/v1/calls/mine", "")))
	stranger.refused(t, 404, tool.CodeNotFound)
	unknown := h.do(as("eve", h.request("DELETE", "/v1/calls/none", "")))
	if string(stranger.body) != strings.ReplaceAll(string(unknown.body), "none", "mine") {
		t.Errorf("a stranger can tell a call from none: %s %s", stranger.body, unknown.body)
	}
	if len(p.ended) > 0 {
		t.Fatal("a stranger cancelled the call")
	}
	kit.Equal(t, h.do(as("ada", h.request("DELETE", "/v1/calls/mine", ""))).status, 204)
	kit.Receive(t, "the end of the call", p.ended)
	a := kit.Receive(t, "the answer", done)
	a.refused(t, 499, tool.CodeCancelled)
	kit.Contains(t, string(a.body), "by its caller", "the answer does not say who cancelled: %s", a.body)
	h.do(as("ada", h.request("DELETE", "/v1/calls/mine", ""))).refused(t, 404, tool.CodeNotFound)
}

func TestTwoCallersMayGiveTheirCallsTheSameID(t *testing.T) {
	tooltest.NoLeaks(t)
	p := newProbe()
	s := setup{handler: p}
	s.Gate = people
	h := open(t, s)
	ask := func(who, method, path string) *http.Request {
		req := h.request(method, path, `{}`)
		req.Header.Set("Authorization", "Bearer token-of-"+who)
		if method == "POST" {
			req.Header.Set("Toolpost-Call", "mine")
		}
		return req
	}
	done := map[string]chan answer{"ada": make(chan answer, 1), "eve": make(chan answer, 1)}
	for _, who := range []string{"ada", "eve"} {
		go func() { done[who] <- h.do(ask(who, "POST", "/v1/tools/x/call")) }()
		if c := kit.Receive(t, "the call of "+who, p.began); c.Caller.ID != who || c.ID != "mine" {
			t.Errorf("%+v", c)
		}
	}
	for _, who := range []string{"eve", "ada"} { // each ends their own call
		kit.Equal(t, h.do(ask(who, "DELETE", "/v1/calls/mine")).status, 204, who)
		a := kit.Receive(t, "the answer for "+who, done[who])
		a.refused(t, 499, tool.CodeCancelled)
		kit.Receive(t, "the end of the call of "+who, p.ended)
		if who == "eve" && len(done["ada"])+len(p.ended) > 0 {
			t.Error("eve's end was the end of ada's call")
		}
	}
}

func TestACallInFlightIsAnsweredAfterTheEnd(t *testing.T) {
	tooltest.NoLeaks(t)
	p := newProbe()
	s := setup{handler: p, door: rest.Options{Running: func() string { return "a digest" }}}
	s.Drain = limit
	h := open(t, s)
	kept, r := h.raw(t, h.head("GET", "/v1/running"))
	kit.MustEqual(t, readRaw(t, r).status, 200, "ready")
	done := make(chan answer, 1)
	go func() { done <- h.call("x", `{}`) }()
	kit.Receive(t, "the call", p.began)
	h.stop()
	ask := func(head string) answer { // on a new connection
		_, r := h.raw(t, head)
		return readRaw(t, r)
	}
	kit.Eventually(t, "the door takes no more calls", func() bool { return ask(h.head("GET", "/readyz")).status == 503 })
	refused := func(a answer) {
		t.Helper()
		a.refused(t, 503, tool.CodeUnavailable)
		kit.Equal(t, a.header.Get("Retry-After"), "1", "when to try again")
	}
	again := h.head("POST", "/v1/tools/x/call", "Content-Length: 0")
	refused(ask(h.head("GET", "/readyz")))
	refused(ask(h.head("GET", "/v1/running"))) // commands do without a server that ends
	refused(ask(again))
	_, _ = kept.Write([]byte(again))
	refused(readRaw(t, r))
	if _, err := r.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("the connection goes on after its last answer: %v", err)
	}
	kit.Equal(t, ask(h.head("GET", "/healthz")).status, 200, "alive")
	if len(h.ended) > 0 {
		t.Error("Serve returned before the call had ended")
	}
	close(p.let)
	if a := kit.Receive(t, "the answer", done); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	kit.Check(t, kit.Receive(t, "Serve", h.ended))
	if conn, err := net.Dial("tcp", h.addr); err == nil {
		conn.Close()
		t.Error("a door that has ended takes connections")
	}
}

func TestOverdueCallIsCancelledAndAnswered(t *testing.T) {
	tooltest.NoLeaks(t)
	p := newProbe()
	s := setup{handler: p}
	s.Drain = 50 * time.Millisecond
	h := open(t, s)
	plain, streamed := make(chan answer, 1), make(chan error, 1)
	c := h.client(t)
	go func() { plain <- h.call("x", `{}`) }()
	go func() {
		_, err := c.Invoke(kit.Context(t), &tool.Call{Tool: "x"}, tool.Discard)
		streamed <- err
	}()
	kit.Receive(t, "a call", p.began)
	kit.Receive(t, "the other call", p.began)
	h.stop()
	a := kit.Receive(t, "the answer", plain)
	a.refused(t, 499, tool.CodeCancelled)
	err := kit.Receive(t, "the stream", streamed)
	if !strings.Contains(string(a.body), "shut down") || tool.CodeOf(err) != tool.CodeCancelled || !strings.Contains(err.Error(), "shut down") {
		t.Errorf("the answers do not say why: %s, %v", a.body, err)
	}
	kit.Check(t, kit.Receive(t, "Serve", h.ended))
}

func TestStuckCallDoesNotHoldTheDoorOpen(t *testing.T) {
	tooltest.NoLeaks(t)
	stuck, began := make(chan struct{}), make(chan struct{})
	s := setup{handler: tool.HandlerFunc(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
		close(began)
		<-stuck
		return &tool.Result{OK: true}, nil
	})}
	s.Drain, s.Times.Grace = 10*time.Millisecond, 50*time.Millisecond
	h := open(t, s)
	h.raw(t, h.head("POST", "/v1/tools/x/call", "Content-Length: 0"))
	kit.Receive(t, "the call", began)
	h.stop()
	kit.Check(t, kit.Receive(t, "Serve", h.ended))
	close(stuck)
}

func TestADoorThatCannotOpenSaysWhy(t *testing.T) {
	tooltest.NoLeaks(t)
	h := open(t, setup{})
	auth, _ := identity.StaticToken(token)
	err := newDoor(web.Options{Listen: h.addr, Gate: auth}).Serve(kit.Context(t), strict, tooltest.Reference{})
	kit.Refused(t, err, tool.CodeUnavailable, h.addr)
	kit.Fails(t, newDoor(web.Options{}).Serve(kit.Context(t), strict, tooltest.Reference{}),
		"", "a door that lets everybody in was opened")
}

func TestServeWithACancelledContextEndsCleanly(t *testing.T) {
	tooltest.NoLeaks(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	auth, _ := identity.StaticToken(token)
	for _, listen := range []string{"127.0.0.1:0", "localhost:0"} {
		kit.Check(t, newDoor(web.Options{Listen: listen, Gate: auth}).Serve(ctx, strict, tooltest.Reference{}), listen)
	}
}
