package run_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"toolpost/config"
	"toolpost/host/sandbox"
	"toolpost/internal/kit"
	"toolpost/node"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

func TestMain(m *testing.M) {
	if sandbox.Main() {
		return
	}
	os.Exit(m.Run())
}

// hang bounds waits that only guard against a hang.
const hang = 4 * time.Minute

// A world is a whole Toolpost: the built-in tools over a folder, and the source probe beside them.
type world struct {
	*node.Node
	t       testing.TB
	dir     string
	outside string // a folder that no tool is given
	probe   *probe
}

// settings are those of a world; RUN is the test's setting for programs.
const settings = `
sources:
  - {name: files, protocol: builtin, roots: [{path: work, write: true}], code: {run: RUN}}
  - {name: probe, protocol: probe}
policy: {rules: [{name: no, effect: deny, tools: forbidden, when: has(args.no), reason: not for anybody}]}
store: {}
state: state
`

func newWorld(t testing.TB, run string) *world {
	t.Helper()
	tooltest.NoLeaks(t)
	dir := kit.Must(filepath.EvalSymlinks(t.TempDir()))(t)
	w := &world{t: t, dir: dir, outside: filepath.Join(dir, "outside"), probe: &probe{release: make(chan struct{})}}
	w.write("work/a.txt", "hello\n")
	w.write("outside/secret.txt", secret)
	w.write("outside/evil.py", "ESCAPED = '"+secret+"'\n")
	w.write("outside/evil.cjs", "module.exports = '"+secret+"'\n")
	cfg, err := config.Parse(filepath.Join(dir, "toolpost.yaml"), []byte(strings.ReplaceAll(settings, "RUN", run)))
	kit.OK(t, err)
	open := func(context.Context, config.Source, *slog.Logger) (tool.Runner, error) { return w.probe, nil }
	w.Node, err = node.Open(t.Context(), cfg, node.Options{
		Protocols: append(node.Protocols(), node.Protocol{Name: "probe", Open: open}),
	})
	kit.OK(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), hang)
		defer cancel()
		kit.Check(t, w.Close(ctx))
	})
	return w
}

// secret must never be seen by a program.
const secret = "canary-7d1f4c0b9a"

func (w *world) write(name, text string) {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	kit.Write(w.t, path, text)
}

// ada is a caller that does not see the tool hidden.
func ada() tool.Principal {
	var tools tool.Patterns
	for _, name := range []string{"files.*", "probe.who", "probe.wait", "probe.fail", "probe.asks", "probe.forbidden", "probe.odd-name.v1", "toolpost.*"} {
		tools = append(tools, pattern(name))
	}
	return tool.Principal{ID: "ada", Door: "test", Rights: &tool.Rights{Tools: tools}}
}

func pattern(text string) (p tool.Pattern) {
	if err := p.UnmarshalText([]byte(text)); err != nil {
		panic(err)
	}
	return p
}

// result is the output of runCode.
type result struct {
	Result    any    `json:"result"`
	Stdout    string `json:"stdout"`
	Stderr    string `json:"stderr"`
	Truncated bool   `json:"truncated"`
	Calls     int    `json:"calls"`
}

// An outcome is the result of a call, and its id.
type outcome struct {
	result
	err     *tool.Error // of any kind
	id      string
	summary string
}

// all is everything that a caller could see of it.
func (o outcome) all() string {
	b, _ := json.Marshal(o.result)
	text := string(b)
	if o.err != nil {
		text += o.err.Error() + string(o.err.Details)
	}
	return text
}

// run runs a program as ada, with a timeout in seconds if one is given.
func (w *world) run(language, code string, timeout ...float64) outcome {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	return w.runAs(ctx, tool.Call{Caller: ada()}, language, code, timeout...)
}

func (w *world) runAs(ctx context.Context, c tool.Call, language, code string, timeout ...float64) (o outcome) {
	w.t.Helper()
	said := map[string]any{"language": language, "code": code}
	if len(timeout) > 0 && timeout[0] > 0 {
		said["timeout"] = timeout[0]
	}
	args, _ := json.Marshal(said)
	if c.ID == "" {
		c.ID = tool.NewID()
	}
	c.Tool, c.Args = "runCode", args
	o.id = c.ID
	r, err := w.Handler().Invoke(ctx, &c, tool.Discard)
	if err != nil {
		o.err = tool.AsError(err)
		return o
	}
	o.err, o.summary = r.Failure, r.Summary
	kit.OK(w.t, json.Unmarshal(r.Output, &o.result))
	return o
}

// want runs a program and checks what it returns.
func (w *world) want(language, code string, want any) {
	w.t.Helper()
	o := w.run(language, code)
	got, _ := json.Marshal(o.Result)
	wanted, _ := json.Marshal(want)
	if o.err != nil || string(got) != string(wanted) {
		w.t.Errorf("%s: got %s and %v, want %s\n%s", language, got, o.err, wanted, code)
	}
}

// A row is the audit log's record of a call.
type row struct {
	Call, Caller, Parent, Tool, Asked, Outcome, Code, Session, Walls string
}

// rows returns the records of the calls that a call made.
func (w *world) rows(parent string) []row {
	w.t.Helper()
	var all struct{ Calls []row }
	args, _ := json.Marshal(map[string]any{"parent": parent, "limit": 1000})
	r := kit.Must(w.Handler().Invoke(w.t.Context(), &tool.Call{
		Tool: "audit.log", Args: args, Caller: tool.Principal{ID: "local", Door: "cli", Operates: true},
	}, tool.Discard))(w.t)
	kit.OK(w.t, json.Unmarshal(r.Output, &all))
	return all.Calls
}

// A probe is a source of small tools that know their caller.
type probe struct {
	running  atomic.Int32 // calls of wait
	begun    atomic.Int32
	release  chan struct{} // a value ends one call of wait
	mu       sync.Mutex
	sessions []string
}

func (*probe) Tools(context.Context) ([]*tool.Spec, error) {
	reads := tool.Effects{Reads: true}
	var all []*tool.Spec
	for _, name := range []string{"who", "wait", "fail", "asks", "forbidden", "hidden", "odd-name.v1"} {
		all = append(all, &tool.Spec{Name: name, Effects: reads, Input: []byte(`{"type":"object"}`), Description: "probe " + name})
	}
	return all, nil
}

func (*probe) Close(context.Context) error { return nil }

func (p *probe) Invoke(ctx context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
	switch c.Spec.Name {
	case "fail":
		return tool.Failed("no_luck", "it did not work"), nil
	case "wait":
		p.begun.Add(1)
		p.running.Add(1)
		defer p.running.Add(-1)
		select {
		case <-ctx.Done():
			return nil, tool.Ended(ctx)
		case <-p.release:
			return ok("released"), nil
		}
	case "asks":
		return &tool.Result{Ask: &tool.Ask{ID: "q1", Message: "what colour?"}}, nil
	}
	p.mu.Lock()
	p.sessions = append(p.sessions, c.Session)
	p.mu.Unlock()
	return ok(map[string]any{"caller": c.Caller.ID, "parent": c.Parent, "depth": c.Depth, "args": c.Args}), nil
}

func ok(v any) *tool.Result {
	b, _ := json.MarshalIndent(v, "", "  ") // several lines, as some tools return them
	return &tool.Result{OK: true, Output: b}
}

func languages() []string { return []string{"python", "javascript"} }
