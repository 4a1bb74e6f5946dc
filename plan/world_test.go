package plan_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"toolpost/engine"
	"toolpost/engine/session"
	"toolpost/internal/kit"
	"toolpost/plan"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A world is an engine with a source of tools that do as their arguments say, and what happened to them.
type world struct {
	*engine.Engine
	ctx   context.Context
	mu    sync.Mutex
	began []string // the "as" of the arguments, in the order in which calls began
	now   int      // running calls
	most  int      // that ran at once
	tries map[string]int
	calls []tool.Call
	nest  func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) // what the tool nest does
}

// script is what a call of a tool does.
type script struct {
	As    string          `json:"as"`    // its name in began
	Take  int             `json:"take"`  // ms
	Fails int             `json:"fails"` // this many attempts fail
	Code  tool.Code       `json:"code"`  // with this error, instead of a failure result
	Why   string          `json:"why"`   // its reason
	Says  string          `json:"says"`  // the tool's own word for a failure result
	Patch json.RawMessage `json:"patch"`
	Asset string          `json:"asset"`
	Gives json.RawMessage `json:"gives"`
	Ask   bool            `json:"ask"`
	Say   int             `json:"say"`  // log events
	Size  int             `json:"size"` // of each, in bytes
	Much  int             `json:"much"` // assets, each with 256 KiB of metadata
	Event json.RawMessage `json:"event"`
}

// A source has the tools do, get (which only reads) and strict (whose arguments have a schema).
type source struct{ w *world }

func (s source) Tools(context.Context) ([]*tool.Spec, error) {
	return []*tool.Spec{
		{Name: "do", Aliases: []string{"do.it"}},
		{Name: "get", Effects: tool.Effects{Reads: true}},
		{Name: "strict", Input: json.RawMessage(`{"type":"object","required":["as","n"],"additionalProperties":false,
			"properties":{"as":{"type":"string"},"n":{"type":"integer","minimum":1},"o":{"type":"object","required":["k"],
			"properties":{"k":{"type":"string"}}},"l":{"type":"array","items":{"type":"string"}}}}`)},
		{Name: "either", Input: json.RawMessage(`{"oneOf":[{"properties":{"a":{"const":1},"b":{"type":"string"}}},
			{"properties":{"a":{"const":2},"b":{"type":"integer"}}}]}`)},
		{Name: "torch.py"}, {Name: "dice"}, {Name: "nest"},
	}, nil
}

func (s source) Close(context.Context) error { return nil }

func (s source) Invoke(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	if c.Spec.Name == "nest" {
		return s.w.nest(ctx, c, out)
	}
	var do script
	if err := strictjson.Unmarshal(c.Args, &do); err != nil {
		return nil, err
	}
	w := s.w
	w.mu.Lock()
	w.began = append(w.began, do.As)
	w.calls = append(w.calls, *c)
	w.now++
	w.most = max(w.most, w.now)
	w.tries[do.As]++
	try := w.tries[do.As]
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		w.now--
		w.mu.Unlock()
	}()
	return do.run(ctx, c, try, out)
}

func (do script) run(ctx context.Context, c *tool.Call, try int, out tool.Sink) (*tool.Result, error) {
	if do.Patch != nil {
		_ = out.Emit(tool.Event{Kind: tool.KindStatePatch, Data: do.Patch})
	}
	if do.Asset != "" {
		_ = out.Emit(tool.NewEvent(tool.KindAsset, tool.Asset{AssetID: do.Asset, MediaType: "text/plain", Path: "/x"}))
	}
	if do.Event != nil {
		_ = out.Emit(tool.Event{Kind: tool.KindUIEvent, Data: do.Event})
	}
	for i := range do.Say {
		_ = out.Emit(tool.NewEvent(tool.KindLog, tool.Log{Level: "info", Message: fmt.Sprint(i, strings.Repeat("x", do.Size)), Fields: json.RawMessage(`{"a":1}`)}))
	}
	for i := range do.Much {
		asset := tool.Asset{AssetID: fmt.Sprint(i), MediaType: "text/plain", Path: "/x", Metadata: strictjson.Quote(strings.Repeat("x", 1<<18))}
		if err := out.Emit(tool.NewEvent(tool.KindAsset, asset)); err != nil {
			return nil, err
		}
	}
	if do.Take > 0 {
		select {
		case <-time.After(time.Duration(do.Take) * time.Millisecond):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	switch {
	case try <= do.Fails && do.Code != "":
		return nil, tool.Errorf(do.Code, "no luck").Because(do.Why)
	case try <= do.Fails:
		return tool.Failed(cmp.Or(do.Says, "bad_luck"), "no luck"+strings.Repeat("!", do.Size)), nil
	case do.Ask:
		return &tool.Result{Ask: &tool.Ask{ID: "q", Message: "sure?"}}, nil
	}
	output := do.Gives
	if output == nil {
		output, _ = strictjson.Marshal(map[string]any{"as": do.As, "args": c.Args, "state": c.State})
	}
	return &tool.Result{OK: true, Output: output}, nil
}

// rapidWorld is a world that its user closes.
func rapidWorld(t interface{ Context() context.Context }) *world {
	w := &world{tries: map[string]int{}, ctx: t.Context()}
	w.Engine = engine.New(engine.Options{Stages: map[string]engine.Stage{"session": session.Stage(noStates{}, noAssets{})}})
	w.Replace(t.Context(), []engine.Binding{{Name: "s", Protocol: "fake", Runner: source{w}}})
	return w
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := rapidWorld(t)
	t.Cleanup(func() {
		kit.Check(t, w.Close(context.Background()))
	})
	return w
}

// No call of a plan has a session, so these are never called.
type noStates struct{}

func (noStates) Patch(context.Context, string, string, []map[string]any) error {
	panic("a call of a plan patched a session")
}

func (noStates) State(context.Context, string, string) (json.RawMessage, error) {
	panic("a call of a plan asked for a session")
}

type noAssets struct{}

func (noAssets) Add(_ context.Context, _ string, a tool.Asset, _ *os.File) (tool.Asset, error) {
	return a, nil
}

// outer is the call that plans run for.
func outer() *tool.Call {
	return &tool.Call{ID: "outer", Trace: tool.NewID(), Run: "run-1", Session: "s", Caller: tool.Principal{ID: "ada", Door: "test"}}
}

// A recorder keeps events.
type recorder struct {
	mu     sync.Mutex
	events []tool.Event
}

func (r *recorder) Emit(ev tool.Event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, ev)
	return nil
}

// steps returns the reported steps, without those that a tool reported.
func (r *recorder) steps(t *testing.T) (steps []plan.Step) {
	t.Helper()
	for _, ev := range r.events {
		if ev.Kind != tool.KindLog {
			continue
		}
		var l struct {
			Fields struct {
				Step   *plan.Step `json:"step"`
				ToolID string     `json:"toolId"`
			} `json:"fields"`
		}
		kit.OK(t, strictjson.Unmarshal(ev.Data, &l))
		if l.Fields.Step != nil && l.Fields.ToolID == "" {
			steps = append(steps, *l.Fields.Step)
		}
	}
	return steps
}

// of lists the events of a kind by their data.
func (r *recorder) of(kind tool.Kind) (list []string) {
	for _, ev := range r.events {
		if ev.Kind == kind {
			list = append(list, string(ev.Data))
		}
	}
	return list
}

// parse parses a valid plan. Single quotes stand for double ones.
func parse(t *testing.T, text string) *plan.Plan {
	t.Helper()
	p, err := plan.Read([]byte(strings.ReplaceAll(text, "'", `"`)))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return p
}

// states returns how each tool ended, in the order in which they run.
func states(r *plan.Result) string {
	var all []string
	for _, t := range r.ToolResults {
		all = append(all, t.ToolID+":"+t.State)
	}
	return strings.Join(all, " ")
}
