package alphahuman

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
	"toolpost/wire/strictjson"
)

// shelf is a catalogue and a handler of the tests' own tools.
type shelf map[string]tool.HandlerFunc

func (s shelf) Invoke(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	h := s[c.Tool]
	if h == nil {
		return nil, tool.Errorf(tool.CodeNotFound, "no tool named %q", c.Tool)
	}
	return h(ctx, c, out)
}

func (s shelf) Lookup(_ context.Context, _ tool.Principal, name string) (*tool.Spec, error) {
	return &tool.Spec{Name: name}, nil
}

func (s shelf) Specs(context.Context, tool.Principal) iter.Seq2[*tool.Spec, error] {
	return func(yield func(*tool.Spec, error) bool) {
		var names []string
		for name := range s {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			if !yield(&tool.Spec{Name: name, Source: "src", Description: "does " + name}, nil) {
				return
			}
		}
		if !yield(&tool.Spec{Name: "dead"}, tool.Errorf(tool.CodeUnavailable, "not now")) {
			return
		}
		yield(&tool.Spec{Source: "gone"}, tool.Errorf(tool.CodeUnavailable, "no list"))
	}
}

func echo(_ context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
	return &tool.Result{OK: true, Output: bytes.Clone(c.Args)}, nil
}

// serve returns a door's answers to these lines, in the order of the lines it answers.
func serve(t *testing.T, s shelf, lines ...string) []string {
	t.Helper()
	var out bytes.Buffer
	d := &Door{In: strings.NewReader(strings.Join(lines, "\n") + "\n"), Out: &out, Caller: tool.Principal{ID: "me", Door: "alphahuman"}}
	kit.OK(t, d.Serve(t.Context(), s, s))
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

// contract(alphahuman): {"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}
// contract(alphahuman): {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"my_tool","arguments":{"input":"test"}}}
// contract(alphahuman): {"jsonrpc":"2.0","id":3,"method":"shutdown","params":{}}
// contract(alphahuman): Test manually by running the skill and pasting JSON-RPC requests:
// contract(alphahuman): All messages are single-line JSON objects following JSON-RPC 2.0.
func TestTheManualSessionWorksAsPrinted(t *testing.T) {
	session := kit.Must(os.ReadFile("testdata/contract/session.txt"))(t)
	template := exec.Command("python3", "skill.py")
	template.Dir, template.Stdin = "testdata/contract", bytes.NewReader(session)
	printed := kit.Must(template.Output())(t)
	mine := serve(t, shelf{"my_tool": func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
		return &tool.Result{OK: true, Output: json.RawMessage(`"ok"`)}, nil
	}}, strings.TrimSpace(string(session)))
	theirs := strings.Split(strings.TrimSpace(string(printed)), "\n")
	if len(mine) != 3 || len(theirs) != 3 {
		t.Fatalf("the door answers %q, the template %q", mine, theirs)
	}
	for i := range mine {
		var a, b map[string]any
		kit.OK(t, json.Unmarshal([]byte(mine[i]), &a))
		kit.OK(t, json.Unmarshal([]byte(theirs[i]), &b))
		if i == 0 { // the metadata differ; the members do not
			for _, m := range []map[string]any{a, b} {
				for _, name := range []string{"name", "description", "version", "tools"} {
					if m["result"].(map[string]any)[name] == nil {
						t.Errorf("%s is missing in %v", name, m)
					}
				}
				m["result"] = nil
			}
		}
		kit.Equal(t, cmp.Diff(b, a), "")
	}
}

// contract(alphahuman): All lifecycle methods should return `{"ok": true}`.
// contract(alphahuman): Bad input to us -> -32700 with id null, and we go on.
func TestTheDoorOnTheWire(t *testing.T) {
	tools := shelf{
		"echo": echo,
		"fail": func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
			return tool.Failed("ValueError", "no such torch"), nil
		},
		"refuse": func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
			return nil, tool.Errorf(tool.CodeLeaseRequired, "a lease is needed").Because("tier_too_low")
		},
		"ask": func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
			return &tool.Result{Ask: &tool.Ask{Message: "which one?"}}, nil
		},
	}
	for _, c := range []struct{ name, in, out string }{
		{"lifecycle/onLoad", `{"jsonrpc":"2.0","id":1,"method":"lifecycle/onLoad","params":{}}`, `{"jsonrpc":"2.0","id":1,"result":{"ok":true}}`},
		{"lifecycle/onSessionStart", `{"jsonrpc":"2.0","id":1,"method":"lifecycle/onSessionStart","params":{"sessionId":"s"}}`, `{"jsonrpc":"2.0","id":1,"result":{"ok":true}}`},
		{"lifecycle/onSessionEnd", `{"jsonrpc":"2.0","id":1,"method":"lifecycle/onSessionEnd","params":{"sessionId":"s"}}`, `{"jsonrpc":"2.0","id":1,"result":{"ok":true}}`},
		{"lifecycle/onTick", `{"jsonrpc":"2.0","id":1,"method":"lifecycle/onTick"}`, `{"jsonrpc":"2.0","id":1,"result":{"ok":true}}`},
		{"shutdown", `{"jsonrpc":"2.0","id":"bye","method":"shutdown","params":{}}`, `{"jsonrpc":"2.0","id":"bye","result":{"ok":true}}`},
		{"tools/call", `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{"n":1.50}}}`, `{"jsonrpc":"2.0","id":2,"result":{"content":"{\"n\":1.50}","structuredContent":{"n":1.50}}}`},
		{"no arguments", `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo"}}`, `{"jsonrpc":"2.0","id":2,"result":{"content":"{}","structuredContent":{}}}`},
		{"isError", `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"fail"}}`, `{"jsonrpc":"2.0","id":2,"result":{"content":"no such torch","isError":true,"error":{"code":"tool_error","reason":"ValueError","message":"no such torch"}}}`},
		{"a refusal", `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"refuse"}}`, `{"jsonrpc":"2.0","id":2,"error":{"code":-32006,"message":"a lease is needed","data":{"code":"lease_required","reason":"tier_too_low"}}}`},
		{"a question", `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"ask"}}`, `{"jsonrpc":"2.0","id":2,"error":{"code":-32012,"message":"the tool asks a question, which this protocol cannot carry: which one?","data":{"code":"unsupported"}}}`},
		{"an unknown tool", `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"nobody"}}`, `{"jsonrpc":"2.0","id":2,"error":{"code":-32602,"message":"no tool named \"nobody\"","data":{"code":"not_found"}}}`},
		{"an unknown method", `{"jsonrpc":"2.0","id":2,"method":"nobody/knows"}`, `{"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"Method not found: nobody/knows"}}`},
		{"params are a list", `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":[]}`, `{"jsonrpc":"2.0","id":2,"error":{"code":-32602,"message":"Invalid params: params must be an object, not array"}}`},
		{"no name", `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{}}`, `{"jsonrpc":"2.0","id":2,"error":{"code":-32602,"message":"Invalid params: name must be a string that is not empty"}}`},
		{"a name that is a number", `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":7}}`, `{"jsonrpc":"2.0","id":2,"error":{"code":-32602,"message":"Invalid params: /name: expected a string, got a number"}}`},
		{"arguments are a list", `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":[]}}`, `{"jsonrpc":"2.0","id":2,"error":{"code":-32602,"message":"Invalid params: arguments must be an object, not array"}}`},
		{"sessionId is a number", `{"jsonrpc":"2.0","id":2,"method":"lifecycle/onSessionStart","params":{"sessionId":7}}`, `{"jsonrpc":"2.0","id":2,"error":{"code":-32602,"message":"Invalid params: sessionId must be a string"}}`},
		{"another version", `{"jsonrpc":"1.0","id":2,"method":"shutdown"}`, `{"jsonrpc":"2.0","id":2,"error":{"code":-32600,"message":"Invalid Request: jsonrpc must be \"2.0\""}}`},
		{"no method", `{"jsonrpc":"2.0","id":2}`, `{"jsonrpc":"2.0","id":2,"error":{"code":-32600,"message":"Invalid Request: method must be a string that is not empty"}}`},
		{"an id that is a list", `{"jsonrpc":"2.0","id":[],"method":"shutdown"}`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid Request: id must be a string or a number"}}`},
		{"half a message", `{"jsonrpc":"2.0",`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error: the JSON ends too early"}}`},
		{"a batch", `[{"jsonrpc":"2.0","id":1,"method":"shutdown"}]`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid Request: batches are not taken; send one message a line"}}`},
		{"a number", `7`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid Request: expected a JSON object, got number"}}`},
		{"notifications", `{"jsonrpc":"2.0","method":"tools/call","params":{"name":"echo"}}` + "\n" + `{"jsonrpc":"2.0","method":"nobody/knows"}` + "\n" + `{"jsonrpc":"2.0","method":"lifecycle/onTick"}`, ``},
		{"answers to nothing", `{"jsonrpc":"2.0","id":7,"result":{}}` + "\n" + `{"jsonrpc":"2.0","id":8,"error":{"code":1,"message":"x"}}`, ``},
		{"blank lines", "\n  \n", ``},
	} {
		t.Run(c.name, func(t *testing.T) {
			kit.Equal(t, strings.Join(serve(t, tools, c.in), "\n"), c.out)
		})
	}
}

// contract(alphahuman): `tools/call` with a content array
func TestAHostOfTheSecondGenerationIsAnsweredInItsWords(t *testing.T) {
	got := serve(t, shelf{"a.b": echo},
		`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`,
		`{"jsonrpc":"2.0","id":2,"method":"skill/load","params":{"manifest":{},"dataDir":"x"}}`,
		`{"jsonrpc":"2.0","id":3,"method":"skill/sessionStart","params":{"sessionId":"s"}}`,
		`{"jsonrpc":"2.0","id":4,"method":"skill/beforeMessage","params":{"message":"m"}}`,
		`{"jsonrpc":"2.0","id":5,"method":"skill/afterResponse","params":{"response":"r"}}`,
		`{"jsonrpc":"2.0","id":6,"method":"skill/tick","params":{}}`,
		`{"jsonrpc":"2.0","id":7,"method":"skill/status","params":{}}`,
		`{"jsonrpc":"2.0","id":8,"method":"skill/sessionEnd","params":{"sessionId":"s"}}`,
		`{"jsonrpc":"2.0","id":9,"method":"skill/unload","params":{}}`,
		`{"jsonrpc":"2.0","id":10,"method":"tools/call","params":{"name":"a_b","arguments":{}}}`,
		`{"jsonrpc":"2.0","id":11,"method":"skill/shutdown","params":{}}`,
	)
	want := []string{
		`{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"a_b","description":"does a.b","inputSchema":{"type":"object"}}],"capabilities":{"cancel":true,"sessions":true}}}`,
		`{"jsonrpc":"2.0","id":2,"result":{"ok":true}}`,
		`{"jsonrpc":"2.0","id":3,"result":{"ok":true}}`,
		`{"jsonrpc":"2.0","id":4,"result":{"message":null}}`,
		`{"jsonrpc":"2.0","id":5,"result":{"response":null}}`,
		`{"jsonrpc":"2.0","id":6,"result":{"ok":true}}`,
		`{"jsonrpc":"2.0","id":7,"result":{"name":"toolpost","ok":true,"tools":1}}`,
		`{"jsonrpc":"2.0","id":8,"result":{"ok":true}}`,
		`{"jsonrpc":"2.0","id":9,"result":{"ok":true}}`,
		`{"jsonrpc":"2.0","id":10,"result":{"content":[{"type":"text","text":"{}"}],"structuredContent":{}}}`,
		`{"jsonrpc":"2.0","id":11,"result":{"ok":true}}`,
	}
	kit.Equal(t, cmp.Diff(want, got), "")
}

// A peer is a host at the other end of two pipes.
type peer struct {
	t     *testing.T
	in    io.WriteCloser
	lines *bufio.Scanner
	ended chan error
}

func connect(t *testing.T, h tool.Handler, c tool.Catalog) *peer {
	t.Helper()
	tooltest.NoLeaks(t)
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	p := &peer{t: t, in: inW, lines: bufio.NewScanner(outR), ended: make(chan error, 1)}
	p.lines.Buffer(nil, 32<<20)
	go func() {
		d := &Door{In: inR, Out: outW, drainTime: 100 * time.Millisecond}
		p.ended <- d.Serve(context.Background(), h, c)
		_ = outW.Close()
	}()
	t.Cleanup(func() {
		_ = inW.Close()
		_ = outR.Close()
	})
	return p
}

func (p *peer) send(format string, args ...any) {
	p.t.Helper()
	kit.Must(fmt.Fprintf(p.in, format+"\n", args...))(p.t)
}

func (p *peer) receive() map[string]any {
	p.t.Helper()
	if !p.lines.Scan() {
		p.t.Fatalf("the door ended: %v", p.lines.Err())
	}
	v, err := strictjson.Decode(p.lines.Bytes())
	if err != nil {
		p.t.Fatalf("%v: %s", err, p.lines.Bytes())
	}
	return v.(map[string]any)
}

func TestCallsAreAnsweredAsTheyFinish(t *testing.T) {
	hold := make(chan struct{})
	p := connect(t, shelf{"echo": echo, "slow": func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
		<-hold
		return &tool.Result{OK: true, Output: json.RawMessage(`"slow"`)}, nil
	}}, shelf{"echo": nil, "slow": nil})
	p.send(`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"slow"}}`)
	p.send(`{"jsonrpc":"2.0","id":"b","method":"tools/call","params":{"name":"echo"}}`)
	kit.Equal(t, p.receive()["id"], "b", "the first answer is to")
	p.send(`{"jsonrpc":"2.0","id":"c","method":"shutdown"}`)
	close(hold)
	kit.Equal(t, p.receive()["id"], "a", "the second answer is to")
	kit.Equal(t, p.receive()["id"], "c", "the last answer is to")
	kit.Check(t, <-p.ended)
}

func TestEventsGoToAHostOfTheSecondGeneration(t *testing.T) {
	s := shelf{"work": func(_ context.Context, _ *tool.Call, out tool.Sink) (*tool.Result, error) {
		for _, e := range []tool.Event{
			tool.LogEvent("info", "begun"),
			{Kind: tool.KindStatePatch, Data: json.RawMessage(`{"a":[1]}`)},
			tool.NewEvent(tool.KindUIEvent, tool.UIEvent{Event: "alert", Payload: json.RawMessage(`[1]`)}),
		} {
			if err := out.Emit(e); err != nil {
				return nil, err
			}
		}
		return &tool.Result{OK: true}, nil
	}}
	p := connect(t, s, s)
	p.send(`{"jsonrpc":"2.0","id":1,"method":"skill/load","params":{}}`)
	p.receive()
	p.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"work"}}`)
	for n, want := range []string{
		`{"id":1,"jsonrpc":"2.0","method":"intelligence/emitEvent","params":{"callId":2,"data":{"level":"info","message":"begun"},"eventType":"log"}}`,
		`{"id":2,"jsonrpc":"2.0","method":"state/set","params":{"callId":2,"partial":{"a":[1]}}}`,
		`{"id":3,"jsonrpc":"2.0","method":"intelligence/emitEvent","params":{"callId":2,"data":[1],"eventType":"alert"}}`,
	} {
		if got, _ := strictjson.Marshal(p.receive()); string(got) != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if n == 1 { // the host's answer changes nothing
			p.send(`{"jsonrpc":"2.0","id":%d,"error":{"code":-32601,"message":"no"}}`, n+1)
		} else {
			p.send(`{"jsonrpc":"2.0","id":%d,"result":{"ok":true}}`, n+1)
		}
	}
	if got := p.receive(); got["id"] != json.Number("2") || got["result"] == nil {
		t.Errorf("got %v", got)
	}
}

// A host merges one level deep. A tool's deeper changes nevertheless leave the rest unchanged.
func TestPatchesReachAHostThatMergesOneLevelDeep(t *testing.T) {
	tooltest.NoLeaks(t)
	program := kit.Must(os.Executable())(t)
	host := exec.Command("python3", "testdata/host.py", program)
	host.Env = append(os.Environ(), doorEnv+"=patches")
	host.Stdin = strings.NewReader(`[{"torch":{"lit":true}}, {"torch":{"place":null,"fuel":{"oil":1}}}, {"torch":{"fuel":{"tar":2}}}, {"steps":2,"new":{"a":null}}]`)
	out, err := host.Output()
	if want := `{"new": {}, "steps": 2, "torch": {"fuel": {"oil": 1, "tar": 2}, "lit": true}}`; err != nil || strings.TrimSpace(string(out)) != want {
		t.Errorf("the host has %s, %v", out, err)
	}
}

// A host that does not return its state gets patches unchanged.
func TestPatchesReachAHostThatDoesNotTellItsState(t *testing.T) {
	s := shelf{"patch": patches}
	p := connect(t, s, s)
	p.send(`{"jsonrpc":"2.0","id":1,"method":"skill/load","params":{}}`)
	p.receive()
	p.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"patch","arguments":{"a":{"b":1}}}}`)
	if got := p.receive(); got["method"] != "state/get" {
		t.Errorf("got %v", got)
	}
	p.send(`{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}`)
	if got, _ := strictjson.Marshal(p.receive()); string(got) != `{"id":2,"jsonrpc":"2.0","method":"state/set","params":{"callId":2,"partial":{"a":{"b":1}}}}` {
		t.Errorf("got %s", got)
	}
	p.send(`{"jsonrpc":"2.0","id":2,"result":{"ok":true}}`)
	p.receive()
}

// At the end of its input the door answers or cancels the running calls, and ends.
func TestTheEndOfInputEndsTheDoor(t *testing.T) {
	began := make(chan struct{})
	s := shelf{"hang": func(ctx context.Context, _ *tool.Call, out tool.Sink) (*tool.Result, error) {
		close(began)
		if err := out.Emit(tool.LogEvent("info", "x")); err == nil { // the host does not answer: Emit must not wait for ever
			<-ctx.Done()
		}
		return nil, tool.AsError(ctx.Err())
	}}
	p := connect(t, s, s)
	p.send(`{"jsonrpc":"2.0","id":1,"method":"skill/load"}`)
	p.receive()
	p.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"hang"}}`)
	<-began
	_ = p.in.Close()
	for p.lines.Scan() {
	}
	kit.Check(t, <-p.ended)
}

func TestACallCanBeCancelled(t *testing.T) {
	s := shelf{"hang": func(ctx context.Context, _ *tool.Call, _ tool.Sink) (*tool.Result, error) {
		<-ctx.Done()
		return nil, tool.AsError(ctx.Err())
	}}
	p := connect(t, s, s)
	p.send(`{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"hang"}}`)
	p.send(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":"other"}}`)
	p.send(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":"x"}}`)
	got := p.receive()
	if e, _ := got["error"].(map[string]any); got["id"] != "x" || e["code"] != json.Number("-32004") {
		t.Errorf("got %v", got)
	}
}

func TestOverlongLineEndsTheDoor(t *testing.T) {
	got := serve(t, shelf{}, `{"jsonrpc":"2.0","id":1,"method":"lifecycle/onTick"}`, `{"x":"`+strings.Repeat("x", defaultMaxLine)+`"}`)
	if len(got) != 2 || !strings.Contains(got[1], "-32700") || !strings.Contains(got[1], "longer than") {
		t.Errorf("got %d lines, the last is %.200s", len(got), got[len(got)-1])
	}
}

func TestTheSessionOfTheHostIsTheSessionOfItsCalls(t *testing.T) {
	var mu sync.Mutex
	sessions := map[string]string{}
	s := shelf{"note": func(_ context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
		mu.Lock()
		defer mu.Unlock()
		sessions[string(c.Args)] = c.Session
		return &tool.Result{OK: true}, nil
	}}
	note := func(n int, more string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"note","arguments":{"n":%d}%s}}`, n, n, more)
	}
	serve(t, s, note(0, ``),
		`{"jsonrpc":"2.0","method":"lifecycle/onSessionStart","params":{"sessionId":"a"}}`, note(1, ``),
		`{"jsonrpc":"2.0","method":"lifecycle/onSessionStart","params":{"sessionId":"b"}}`, note(2, ``), note(3, `,"sessionId":"b"`),
		`{"jsonrpc":"2.0","method":"lifecycle/onSessionEnd","params":{"sessionId":"a"}}`, note(4, ``))
	want := map[string]string{`{"n":0}`: "", `{"n":1}`: "a", `{"n":2}`: "", `{"n":3}`: "b", `{"n":4}`: "b"}
	kit.Equal(t, cmp.Diff(want, sessions), "")
}

// failing is a host that is gone.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestAHostThatWentAwayEndsTheDoor(t *testing.T) {
	d := &Door{In: strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"lifecycle/onTick"}` + "\n"), Out: failing{}}
	kit.Fails(t, d.Serve(t.Context(), shelf{}, shelf{}), "went away")
}
