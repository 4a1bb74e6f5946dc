package singularity

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

func TestANodeIsAskedForItsTools(t *testing.T) {
	s := startServer(t, "127.0.0.1:0")
	serve(t, DoorOptions{Server: s}, tooltest.Reference{}, tooltest.Reference{})
	specs := kit.Must(mustOpen(t, withToken(t, s.ClientURL(), ", timeout: 7s")).Tools(context.Background()))(t)
	for i, want := range tooltest.Specs() {
		if s := specs[i]; s.Name != want.Name || s.Description != want.Description || string(s.Input) != string(want.Input) || s.Timeout != 7*time.Second {
			t.Errorf("got %+v, want %+v", s, want)
		}
	}
}

// A wide catalogue has more tools than fit into one message, one that fits into none, and one that is broken.
type wide struct{ toolbox }

func (wide) Specs(context.Context, tool.Principal) iter.Seq2[*tool.Spec, error] {
	return func(yield func(*tool.Spec, error) bool) {
		ok := yield(&tool.Spec{Source: "dead"}, tool.Errorf(tool.CodeUnavailable, "it did not start"))
		for n := 0; ok && n < 1200; n++ {
			s := &tool.Spec{Name: fmt.Sprintf("tool %04d", n), Description: strings.Repeat("d", 1000), Timeout: time.Second}
			var err error
			switch n {
			case 400:
				s.Input = json.RawMessage(`"` + strings.Repeat("x", 2*maxPage) + `"`)
			case 800:
				s.Input = json.RawMessage(`{`)
			case 801:
				err = tool.Errorf(tool.CodeUnavailable, "not now")
			}
			ok = yield(s, err)
		}
	}
}

func TestACatalogueThatNeedsManyMessagesComesWhole(t *testing.T) {
	s := startServer(t, "127.0.0.1:0")
	serve(t, DoorOptions{Server: s}, wide{}, wide{})
	specs, err := mustOpen(t, withToken(t, s.ClientURL(), "")).Tools(context.Background())
	if err != nil || len(specs) != 1200 {
		t.Fatalf("%d tools, %v", len(specs), err)
	}
	for n, s := range specs {
		kit.MustEqual(t, s.Name, fmt.Sprintf("tool %04d", n), "tool %d is", n)
	}
	nc := connect(t, s)
	page := ask(t, nc, "toolpost.catalog", `{"after":"tool 0800"}`)
	if !strings.Contains(page, `"available":false,"reason":"not now"`) || len(page) > maxPage+1000 {
		t.Errorf("a page of %d bytes: %.300s", len(page), page)
	}
	kit.Contains(t, ask(t, nc, "toolpost.catalog", ``), `"next":"tool `, "the first page is the last")
	kit.Contains(t, ask(t, nc, "toolpost.catalog", `{"after":7}`), "invalid_input")
}

func TestServerWithoutNodesIsUnavailableAtOnce(t *testing.T) {
	tooltest.NoLeaks(t)
	s := startServer(t, "127.0.0.1:0")
	_, err := open(t, withToken(t, s.ClientURL(), ""))
	wantCode(t, err, tool.CodeUnavailable, "no Toolpost node answers")
	r := mustOpenDeclared(t, s, "readFile")
	_, err = r.Invoke(context.Background(), &tool.Call{Tool: "readFile"}, tool.Discard)
	wantCode(t, err, tool.CodeUnavailable, "no program answers tools.file.read")
	_, err = r.Invoke(context.Background(), &tool.Call{Tool: "other"}, tool.Discard)
	wantCode(t, err, tool.CodeNotFound)
	_, err = open(t, `url: "nats://127.0.0.1:1"`)
	wantCode(t, err, tool.CodeUnavailable, "nats://127.0.0.1:1")
}

// freePort finds a port on which a server can be started twice.
func freePort(t *testing.T) string {
	t.Helper()
	ln := kit.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer ln.Close()
	return ln.Addr().String()
}

func TestAServerThatGoesAwayAndComesBack(t *testing.T) {
	tooltest.NoLeaks(t)
	listen := freePort(t)
	start := func() *Server {
		return kit.Must(StartServer(ServerOptions{Listen: listen, Gate: auth}))(t)
	}
	withToken(t, "", "")
	connect := Connect{URL: "nats://" + listen, TokenEnv: "SINGULARITY_TEST_TOKEN"}
	s := start()
	inside := make(chan struct{}, 1)
	box := toolbox{"echo": echo, "hang": func(ctx context.Context, _ *tool.Call, _ tool.Sink) (*tool.Result, error) {
		inside <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	// The door has the rights of this process: over the wire it could not subscribe.
	serve(t, DoorOptions{Server: s, Drain: 100 * time.Millisecond}, box, box)
	r := mustOpen(t, withToken(t, connect.URL, ""))
	call := func() error {
		_, err := r.Invoke(context.Background(), &tool.Call{Tool: "echo", Args: []byte(`{}`)}, tool.Discard)
		return err
	}
	kit.OK(t, call())
	lost := make(chan error, 1)
	go func() {
		_, err := r.Invoke(context.Background(), &tool.Call{Tool: "hang"}, tool.Discard)
		lost <- err
	}()
	<-inside
	s.Close()
	wantCode(t, <-lost, tool.CodeCrash, "may have run")
	kit.Eventually(t, "calls fail at once", func() bool { return tool.CodeOf(call()) == tool.CodeUnavailable })
	wantCode(t, call(), tool.CodeUnavailable, "is not there", "tried again in the background")

	s = start()
	t.Cleanup(s.Close)
	stop := serve(t, DoorOptions{Server: s}, box, box)
	kit.Eventually(t, "calls work again", func() bool { return call() == nil })
	stop()
}

func TestADoorFindsItsServerAgain(t *testing.T) {
	listen := freePort(t)
	url := "nats://" + listen
	first := outsideAt(t, listen)
	serve(t, DoorOptions{Connect: Connect{URL: url}}, tooltest.Reference{}, tooltest.Reference{})
	r := kit.Must(New(context.Background(), Options{Connect: Connect{URL: url}}, nil))(t)
	t.Cleanup(func() { _ = r.Close(context.Background()) })
	call := func() error {
		_, err := r.Invoke(context.Background(), &tool.Call{Tool: "echo", Args: []byte(`{}`)}, tool.Discard)
		return err
	}
	kit.OK(t, call())
	first()
	kit.Eventually(t, "calls fail", func() bool { return call() != nil })
	t.Cleanup(outsideAt(t, listen))
	kit.Eventually(t, "calls work again", func() bool { return call() == nil })
}

func TestADoorWaitsForAServerThatIsNotThereYet(t *testing.T) {
	tooltest.NoLeaks(t)
	listen := freePort(t)
	ready := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	door := NewDoor(DoorOptions{Connect: Connect{URL: "nats://" + listen}, Ready: func(string) { close(ready) }})
	go func() { ended <- door.Serve(ctx, tooltest.Reference{}, tooltest.Reference{}) }()
	r, err := New(context.Background(), Options{Connect: Connect{URL: "nats://" + listen}, Tools: []Declared{{Name: "echo"}}}, nil)
	kit.OK(t, err)
	_, err = r.Invoke(context.Background(), &tool.Call{Tool: "echo"}, tool.Discard)
	wantCode(t, err, tool.CodeUnavailable)
	stop := outsideAt(t, listen)
	<-ready
	kit.Eventually(t, "calls work", func() bool {
		_, err := r.Invoke(context.Background(), &tool.Call{Tool: "echo", Args: []byte(`{}`)}, tool.Discard)
		return err == nil
	})
	_ = r.Close(context.Background())
	cancel()
	kit.Check(t, <-ended)
	stop()

	cancelled, cancel := context.WithCancel(context.Background())
	go func() {
		ended <- NewDoor(DoorOptions{Connect: Connect{URL: "nats://" + listen}}).Serve(cancelled, nil, nil)
	}()
	cancel()
	kit.Check(t, <-ended, "a door that waits for its server is closed")
}

func TestCallPropertiesReachTheOtherNode(t *testing.T) {
	s := startServer(t, "127.0.0.1:0")
	received := make(chan *tool.Call, 1)
	left := make(chan time.Duration, 1)
	box := toolbox{"x": func(ctx context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
		deadline, _ := ctx.Deadline()
		received <- c
		left <- time.Until(deadline)
		return &tool.Result{OK: true, Output: []byte(`{}`), Summary: "fine", Trace: tool.Trace{Details: map[string]any{"a": "b"}}}, nil
	}}
	serve(t, DoorOptions{Server: s}, box, box)
	r := mustOpen(t, withToken(t, s.ClientURL(), ""))
	ctx := kit.Context(t)
	// It looks like a tool call but is not one: arguments stay unchanged.
	args := `{"tool_call_id":"1","function":{"name":"y","arguments":"{}"},"n":1.50}`
	sent := &tool.Call{Tool: "x", Session: "s", Key: "k", Lease: "l", Resume: "r", Trace: tool.NewID(), Args: []byte(args),
		State: []byte(`{"state":1}`), Answers: []byte(`[true]`)}
	res, err := r.Invoke(ctx, sent, tool.Discard)
	if err != nil || string(res.Output) != `{}` || res.Summary != "fine" || res.Trace.Details["a"] != "b" {
		t.Fatalf("got %+v, %v", res, err)
	}
	got := <-received
	if on := sent.Forwarded(); got.Session != on.Session || got.Key != on.Key || got.Lease != "l" || got.Resume != "r" || got.Trace != sent.Trace ||
		string(got.Args) != args || string(got.State) != `{"state":1}` || string(got.Answers) != `[true]` {
		t.Errorf("got %+v", got)
	}
	if d := <-left; d <= 0 || d > kit.Hang {
		t.Errorf("%v were left", d)
	}
	sent.Lease = "two\nlines"
	_, err = r.Invoke(ctx, sent, tool.Discard)
	wantCode(t, err, tool.CodeInvalidInput, "Toolpost-Lease")
}

func TestEveryErrorArrivesAsItWas(t *testing.T) {
	s := startServer(t, "127.0.0.1:0")
	box := toolbox{}
	for _, code := range tool.Codes() {
		box[string(code)] = refuses(&tool.Error{Code: code, Reason: "why", Message: "so \U0001F527", Details: []byte(`{"a":1}`)})
	}
	box["asks"] = func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
		return &tool.Result{Ask: &tool.Ask{ID: "7", Message: "sure?", Schema: []byte(`{"type":"boolean"}`)}}, nil
	}
	serve(t, DoorOptions{Server: s}, box, box)
	r := mustOpen(t, withToken(t, s.ClientURL(), ""))
	for _, code := range tool.Codes() {
		_, err := r.Invoke(context.Background(), &tool.Call{Tool: string(code)}, tool.Discard)
		if e := tool.AsError(err); e == nil || e.Code != code || e.Reason != "why" || e.Message != "so \U0001F527" || string(e.Details) != `{"a":1}` {
			t.Errorf("%s: %+v", code, e)
		}
	}
	res, err := r.Invoke(context.Background(), &tool.Call{Tool: "asks"}, tool.Discard)
	if err != nil || res.OK || res.Ask == nil || res.Ask.ID != "7" || string(res.Ask.Schema) != `{"type":"boolean"}` {
		t.Errorf("got %+v, %v", res, err)
	}
	for _, name := range []string{"", strings.Repeat("%", 500)} {
		_, err := r.Invoke(context.Background(), &tool.Call{Tool: name}, tool.Discard)
		wantCode(t, err, tool.CodeNotFound)
	}
}

// badNode returns a runner of a node that answers requests with reply.
func badNode(t *testing.T, reply func(nc *nats.Conn, m *nats.Msg)) *Runner {
	t.Helper()
	s := startServer(t, "127.0.0.1:0")
	own := connectOwn(t, s)
	kit.Must(own.Subscribe("toolpost.catalog", func(m *nats.Msg) { _ = m.Respond([]byte(`{"tools":[{"name":"x"}]}`)) }))(t)
	var last atomic.Pointer[nats.Msg]
	kit.Must(own.Subscribe("tools.>", func(m *nats.Msg) { last.Store(m); reply(own, m) }))(t)
	kit.Must(own.Subscribe("toolpost.cancel", func(*nats.Msg) { _ = last.Load().Respond([]byte(`{}`)) }))(t)
	kit.OK(t, own.Flush())
	return mustOpen(t, withToken(t, s.ClientURL(), ""))
}

func TestABadReplyIsAProtocolError(t *testing.T) {
	for name, body := range map[string]string{
		"no JSON": `oops`, "nothing": ``, "neither": `{}`, "an error without a code": `{"error":{"message":"x"}}`, "a list": `[]`,
		"not ok and no reason": `{"result":{"ok":false}}`, "ok and failed": `{"result":{"ok":true,"error":{"code":"tool_error","message":"x"}}}`,
		"duplicate keys": `{"result":{"ok":true},"result":{"ok":true}}`,
	} {
		_, err := decodeNative([]byte(body))
		wantCode(t, err, tool.CodeProtocol)
		t.Log(name, err)
	}
	for name, body := range map[string]string{
		"no JSON": `oops`, "nothing": ``, "neither": `{}`, "half": `{"data":1`, "a list": `[]`,
	} {
		_, err := decodePlain([]byte(body))
		wantCode(t, err, tool.CodeProtocol)
		t.Log(name, err)
	}
	for name, body := range map[string]string{
		"no JSON": `oops`, "no content": `{"tool_call_id":"1","role":"tool"}`, "another's": `{"tool_call_id":"2","role":"tool","content":""}`,
		"another role": `{"tool_call_id":"1","role":"user","content":""}`, "content is no text": `{"content":{}}`,
	} {
		_, err := decodeToolReply("1", []byte(body))
		wantCode(t, err, tool.CodeProtocol)
		t.Log(name, err)
	}
	r := badNode(t, func(_ *nats.Conn, m *nats.Msg) { _ = m.Respond([]byte("oops")) })
	_, err := r.Invoke(context.Background(), &tool.Call{Tool: "x"}, tool.Discard)
	wantCode(t, err, tool.CodeProtocol)
}

func TestAForeignErrorMayBeAnyJSON(t *testing.T) {
	for body, message := range map[string]string{
		`{"data":null,"error":{"reason":"x"}}`: `{"reason":"x"}`, `{"error":"Access denied"}`: "Access denied", `{"data":1,"error":"both"}`: "both",
	} {
		res, err := decodePlain([]byte(body))
		if err != nil || res.OK || res.Failure.Message != message {
			t.Errorf("%s: %+v, %v", body, res, err)
		}
	}
	for content, output := range map[string]string{
		`plain text`: `"plain text"`, `{"a":1.50}`: `{"a":1.50}`, `[1]`: `[1]`, `{half`: `"{half"`, `12`: `"12"`, ``: `""`,
	} {
		quoted, _ := json.Marshal(content)
		res, err := decodeToolReply("1", []byte(`{"tool_call_id":"1","role":"tool","name":"x","content":`+string(quoted)+`}`))
		if err != nil || !res.OK || string(res.Output) != output {
			t.Errorf("%s: %+v, %v", content, res, err)
		}
	}
}

func TestANodeThatSendsBadOrTooManyEventsIsStopped(t *testing.T) {
	tooltest.NoLeaks(t)
	const good = `{"seq":1,"kind":"log","data":{}}`
	for name, c := range map[string]struct {
		event string
		count int
		says  string
	}{
		"no JSON":      {`oops`, 1, "an event that cannot be read"},
		"no data":      {`{"seq":1,"kind":"log","data":1}`, 1, "an event whose data cannot be read"},
		"a flood":      {good, 2*maxHeld + 2, "faster than they were acknowledged"},
		"large events": {`{"seq":1,"kind":"log","data":{"s":"` + strings.Repeat("x", 4<<20) + `"}}`, 10, "faster than they were acknowledged"},
	} {
		t.Run(name, func(t *testing.T) {
			r := badNode(t, func(nc *nats.Conn, m *nats.Msg) {
				for range c.count {
					_ = nc.Publish(m.Header.Get("Toolpost-Stream"), []byte(c.event))
				}
			})
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			sink := tool.SinkFunc(func(tool.Event) error { // blocks until it is too late
				kit.Eventually(t, "the flood is noticed", func() bool { return r.broken() || ctx.Err() != nil })
				return nil
			})
			_, err := r.Invoke(ctx, &tool.Call{Tool: "x"}, sink)
			wantCode(t, err, tool.CodeProtocol, c.says)
		})
	}
}

// broken reports whether a call has been told to end.
func (r *Runner) broken() bool {
	r.mux.mu.Lock()
	defer r.mux.mu.Unlock()
	for _, p := range r.mux.calls {
		p.mu.Lock()
		broken := p.broken != nil
		p.mu.Unlock()
		if broken {
			return true
		}
	}
	return false
}

func TestWallsThatTheOtherSideHasNotPromisedAreRefused(t *testing.T) {
	r := &Runner{walls: map[string]tool.Guarantees{"x": {NoNetwork: true}}}
	for name, c := range map[string]struct {
		asked tool.Guarantees
		ok    bool
	}{
		"none":     {tool.Guarantees{}, true},
		"promised": {tool.Guarantees{NoNetwork: true}, true},
		"more":     {tool.Guarantees{NoNetwork: true, NoFilesystemRead: true}, false},
		"secrets":  {tool.Guarantees{NoNetwork: true, SecretsAllowed: []string{}}, false},
	} {
		err := r.covered(&tool.Call{Tool: "x", Spec: &tool.Spec{Name: "x", Guarantees: c.asked}})
		kit.Equal(t, (err == nil), c.ok, name, err)
		if err != nil {
			wantCode(t, err, tool.CodeUnsupported)
		}
	}
	r.foreign = map[string]Declared{"x": {Name: "x"}}
	kit.Fails(t, r.covered(&tool.Call{Tool: "x", Spec: &tool.Spec{Guarantees: tool.Guarantees{NoNetwork: true}}}),
		"", "a foreign server promises nothing")
}

func TestSourcesThatCannotWorkAreRefused(t *testing.T) {
	for fields, says := range map[string]string{
		`style: loud, url: "nats://a:1"`:                         "loud",
		`url: "nats://a:1", tools: [{name: ""}]`:                 "no name",
		`url: "nats://a:1", tools: [{name: a}, {name: a}]`:       "two declared tools",
		`url: "nats://a:1", tools: [{name: a, subject: "a b"}]`:  "subject",
		`url: "nats://a:1", tools: [{name: a, subject: "a.*"}]`:  "subject",
		`url: "nats://a:1", tools: [{name: a, subject: "a..b"}]`: "subject",
		`url: "nats://a:1", nonsense: 1`:                         "nonsense",
		`tools: [{name: a}]`:                                     "url",
		`url: "nats://user:secret@127.0.0.1:1"`:                  "cannot connect to NATS at nats://127.0.0.1:1",
	} {
		_, err := open(t, fields)
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", fields, err)
		}
	}
}

func TestDeclaredToolIsCalledOnItsSubject(t *testing.T) {
	o := kit.Must(Options{Connect: Connect{URL: "nats://a:1"}, Timeout: 5_000_000_000, Tools: []Declared{
		{Name: "readFile"}, {Name: "my tool"}, {Name: "x", Subject: "elsewhere.x", Timeout: 1_000_000_000},
	}}.withDefaults())(t)
	for i, want := range []struct {
		subject string
		limit   time.Duration
	}{{"tools.file.read", 5 * time.Second}, {"tools.execute.my%20tool", 5 * time.Second}, {"elsewhere.x", time.Second}} {
		if d := o.Tools[i]; d.Subject != want.subject || time.Duration(d.Timeout) != want.limit {
			t.Errorf("got %+v, want %+v", d, want)
		}
	}
}

// The literal answers of an independent server, and their meaning here.
func TestAnswersOfAnIndependentServerAreUnderstood(t *testing.T) {
	tooltest.NoLeaks(t)
	url := outside(t, server.Options{})
	host, port, _ := net.SplitHostPort(strings.TrimPrefix(url, "nats://"))
	cmd := exec.Command("python3", "testdata/server.py", host, port)
	out := kit.Must(cmd.StdoutPipe())(t)
	kit.OK(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("%q, %v", line, err)
	}
	toolReply := func(content string) string {
		return `{"tool_call_id":"ID","role":"tool","name":"readFile","content":"` + content + `"}`
	}
	for _, c := range []struct{ tool, answer, code, reason, says string }{
		{"execShell", `{"data":{"a":1},"error":""}`, "", "", `{"a":1}`},
		{"execShell", `{"data":{"a":1},"error":null}`, "", "", `{"a":1}`},
		{"execShell", `{"data":{"a":1}}`, "", "", `{"a":1}`},
		{"execShell", `{"error":""}`, "", "", ``},
		{"execShell", `{"data":null,"error":" "}`, "tool_error", "", " "},
		{"execShell", `{"data":null,"error":"Command 'rm' is not allowed by security policy"}`, "access_denied", "command_denied", "Command 'rm' is not allowed by security policy"},
		{"execShell", `{"data":null,"error":"/etc is Not Allowed by Security Policy."}`, "access_denied", "command_denied", "/etc is Not Allowed by Security Policy."},
		{"execShell", `{"data":null,"error":"SystemError: rm is not allowed by security policy"}`, "access_denied", "command_denied", "rm is not allowed by security policy"},
		{"execShell", `{"data":null,"error":"AccessDenied: rm is not allowed by security policy"}`, "access_denied", "AccessDenied", "rm is not allowed by security policy"},
		{"execShell", `{"data":null,"error":"SystemError: disk full"}`, "tool_error", "SystemError", "disk full"},
		{"execShell", `{"data":null,"error":"it is not allowed"}`, "tool_error", "", "it is not allowed"},
		{"readFile", toolReply("Error: Command 'rm' is not allowed by security policy"), "access_denied", "command_denied", "Command 'rm' is not allowed by security policy"},
		{"readFile", toolReply("Command 'rm' is not allowed by security policy"), "", "", `"Command 'rm' is not allowed by security policy"`}, // a file may contain these words
	} {
		style := "plain"
		if c.tool == "readFile" {
			style = "tool_call"
		}
		r := mustOpen(t, `url: "`+url+`", style: `+style+`, tools: [{name: `+c.tool+`}]`)
		args, _ := json.Marshal(map[string]string{"answer": c.answer})
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		res, err := r.Invoke(ctx, &tool.Call{Tool: c.tool, Args: args}, tool.Discard)
		cancel()
		var code, reason, says string
		switch {
		case err != nil:
			e := tool.AsError(err)
			code, reason, says = string(e.Code), e.Reason, e.Message
		case res.Failure != nil:
			code, reason, says = string(res.Failure.Code), res.Failure.Reason, res.Failure.Message
		default:
			says = string(res.Output)
		}
		if code != c.code || reason != c.reason || says != c.says || (err == nil) != (c.code == "" || c.code == "tool_error") {
			t.Errorf("%s: %q, %q, %q (%v)", c.answer, code, reason, says, err)
		}
	}
}

// A fitting is a toolbox that announces changes of its tools.
type fitting struct {
	tool.Changes
	mu sync.Mutex
	toolbox
}

func (f *fitting) Specs(ctx context.Context, p tool.Principal) iter.Seq2[*tool.Spec, error] {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.toolbox.Specs(ctx, p)
}

func (f *fitting) become(b toolbox) {
	f.mu.Lock()
	f.toolbox = b
	f.mu.Unlock()
	f.Tell()
}

func TestARunnerHearsThatTheToolsOfANodeChanged(t *testing.T) {
	s := startServer(t, "127.0.0.1:0")
	box := &fitting{toolbox: toolbox{"a": gives(`1`)}}
	serve(t, DoorOptions{Server: s}, box, box)
	r := mustOpen(t, withToken(t, s.ClientURL(), ""))
	names := func() (list []string) {
		specs := kit.Must(r.Tools(t.Context()))(t)
		for _, spec := range specs {
			list = append(list, spec.Name)
		}
		return list
	}
	if got := names(); !slices.Equal(got, []string{"a"}) {
		t.Fatalf("at first %v", got)
	}
	changed := r.Changed()
	box.become(toolbox{"a": gives(`1`), "b": gives(`2`)})
	kit.Receive(t, "the tools changed", changed)
	kit.EqualSlices(t, names(), []string{"a", "b"})
}
