package running_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	tools "toolpost/builtin/running"
	"toolpost/engine/audit"
	"toolpost/engine/calls"
	"toolpost/engine/follow"
	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/wire/schema"
	"toolpost/wire/strictjson"
)

// A log has one row, as a store would return it.
type log struct{ row *tool.Record }

func (l log) Log(_ context.Context, f audit.Filter, _ bool, visit func(*tool.Record) error) error {
	if !f.Fits(l.row) {
		return nil
	}
	return visit(l.row)
}

// A world has the tools with calls around them.
type world struct {
	tools.Options
	chain tool.Handler
}

func newWorld(run tool.HandlerFunc) world {
	w := world{Options: tools.Options{
		Calls: calls.New(calls.Env{}), Followers: follow.New(),
		Log: log{&tool.Record{Seq: 7, Call: "old", Caller: "ada", Tool: "echo", Outcome: tool.OutcomeOK, Walls: "no_network,no_write"}},
	}}
	spec := &tool.Spec{Name: "echo", Source: "one", Protocol: "command", Walls: "no network", Room: &tool.Room{}}
	w.Calls.Limit(calls.Options{Calls: 100})
	w.chain = stage(w.Calls)(tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
		c.Spec = spec
		c.Watch.By.Found(spec)
		return run(ctx, c, out)
	}))
	return w
}

func (w world) call(t *testing.T, id string, who tool.Principal) {
	t.Helper()
	_, _ = w.chain.Invoke(t.Context(), &tool.Call{ID: id, Tool: "echo", Args: json.RawMessage(`{"a":1}`), Caller: who}, tool.Discard)
}

func (w world) ask(ctx context.Context, who tool.Principal, name, args string, out tool.Sink) (string, error) {
	set := tools.New(w.Options)
	r, err := set.Invoke(ctx, &tool.Call{ID: "asks", Tool: name, Args: json.RawMessage(args), Caller: who}, out)
	if err != nil {
		return "", err
	}
	return string(r.Output), fitting(ctx, set, name, r.Output)
}

// fitting validates an output against the tool's schema, as the engine does.
func fitting(ctx context.Context, of tool.Source, name string, output json.RawMessage) error {
	specs, err := of.Tools(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(specs, func(s *tool.Spec) bool { return s.Name == name })
	s, err := schema.Compile(specs[i].Output)
	if err != nil {
		return err
	}
	v, err := strictjson.Decode(output)
	if faults := s.Validate(v); err == nil && faults != nil {
		err = errors.New(schema.Words(faults))
	}
	return err
}

func talks(_ context.Context, _ *tool.Call, out tool.Sink) (*tool.Result, error) {
	ev := tool.LogEvent("warn", "hello")
	ev.Blocked = &tool.Blocked{Capability: "network", Target: "example.org:443", By: "engine"}
	return &tool.Result{OK: true, Output: json.RawMessage(`"done"`)}, out.Emit(ev)
}

// watch follows until it has seen a certain line, and returns what it saw: +began .told -ended.
func (w world) watch(t *testing.T, who tool.Principal, args, until string, each func()) (seen []string, last int64) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out := tool.SinkFunc(func(ev tool.Event) error {
		var data struct {
			Fields struct {
				calls.Line
				Missed int64
			}
		}
		if err := json.Unmarshal(ev.Data, &data); err != nil {
			return err
		}
		f := data.Fields
		switch {
		case f.Missed > 0:
			seen = append(seen, "missed")
		case f.Begin != nil:
			seen = append(seen, "+"+f.Begin.Call)
		case f.Event != nil:
			seen = append(seen, "."+f.Event.Call)
		case f.End != nil:
			seen = append(seen, "-"+f.End.Call)
		}
		if last = max(last, f.Seq); seen[len(seen)-1] == until {
			stop()
		}
		each()
		return nil
	})
	if _, err := w.ask(ctx, who, "watchCalls", args, out); err != nil { // the follower left, which ended it
		t.Error(err)
	}
	return seen, last
}

func TestFollowerSeesKeptCallsThenNewOnes(t *testing.T) {
	w := newWorld(talks)
	w.call(t, "c1", ada)
	w.call(t, "e1", tool.Principal{ID: "eve"})
	more := func() {
		if _, there := w.Calls.Find(ada, "", "c2"); !there {
			w.call(t, "c2", ada)
		}
	}
	seen, last := w.watch(t, ada, `{"events":true}`, "-c2", more)
	kit.Equal(t, strings.Join(seen, " "), "+c1 -c1 +c2 .c2 -c2")
	w.call(t, "c3", ada)
	seen, _ = w.watch(t, ada, fmt.Sprintf(`{"after":%d}`, last), "-c3", func() {})
	kit.Equal(t, strings.Join(seen, " "), "+c3 -c3")
	// A line number of an earlier program: it starts over.
	seen, _ = w.watch(t, operator, `{"after":17}`, "-c3", func() {})
	kit.Equal(t, strings.Join(seen, " "), "+c1 -c1 +e1 -e1 +c2 -c2 +c3 -c3")
}

// A follower that does not read delays no call, and learns how much it missed.
func TestSlowFollowerDoesNotBlockCalls(t *testing.T) {
	w := newWorld(talks)
	w.call(t, "first", ada)
	storm := func() {
		for i := range 1000 { // within the follower's Emit: none of these could end if they waited for it
			w.call(t, fmt.Sprint(i), ada)
		}
	}
	once := func() { storm(); storm = func() {} }
	seen, _ := w.watch(t, ada, `{"events":true}`, "-999", func() { once() })
	if len(seen) < 4 || seen[0] != "+first" || seen[2] != "missed" {
		t.Errorf("%.20v", seen)
	}
}

func TestFollowersAreBounded(t *testing.T) {
	w := newWorld(talks)
	for range follow.MostOfCaller {
		kit.OK(t, kit.Err(w.Followers.Begin(ada)))
	}
	kit.Refused(t, kit.Err(w.ask(t.Context(), ada, "watchCalls", `{}`, tool.Discard)), tool.CodeQuotaExceeded, "")
}

func TestCallerAndOperatorAreShownACall(t *testing.T) {
	w := newWorld(talks)
	w.call(t, "c1", ada)
	for _, who := range []tool.Principal{ada, operator} {
		out, err := w.ask(t.Context(), who, "showCall", `{"call":"c1"}`, tool.Discard)
		for _, want := range []string{
			`"args":{"a":1}`, `"output":"done"`, `"message":"hello"`, `"running":false`, `"kept":true`, `"stood":"no network"`,
			`"what":"network example.org:443"`, "`walls: {network: [example.org]}`", `"outcome":"ok"`, `"children":[]`,
		} {
			if err != nil || !strings.Contains(out, want) {
				t.Errorf("%s: no %s in %s, %v", who.ID, want, out, err)
			}
		}
	}
	for args, want := range map[string]tool.Code{
		`{"call":"c1"}`: tool.CodeNotFound, `{"call":"old"}`: tool.CodeNotFound, `{"call":"c1","caller":"ada"}`: tool.CodeAccessDenied,
	} {
		kit.Refused(t, kit.Err(w.ask(t.Context(), tool.Principal{ID: "eve"}, "showCall", args, tool.Discard)),
			want, "", args)
	}
}

// The log of calls still has calls that memory has dropped.
func TestDroppedCallIsShownFromTheLog(t *testing.T) {
	w := newWorld(talks)
	for _, who := range []tool.Principal{ada, operator} {
		out, err := w.ask(t.Context(), who, "showCall", `{"call":"old"}`, tool.Discard)
		if err != nil || !strings.Contains(out, `"seq":7`) || !strings.Contains(out, `"kept":false`) ||
			!strings.Contains(out, `["no_network","no_write"]`) {
			t.Errorf("%s, %v", out, err)
		}
	}
	w.Log = log{&tool.Record{
		Call: "old", Caller: "ada", Tool: "closed", Source: "one", Protocol: "p", Tier: 3, Decision: "deny", Rule: "no-closed",
		Outcome: tool.OutcomeRefused, Code: tool.CodeNotFound,
	}}
	for _, who := range []tool.Principal{ada, operator} { // the tool is hidden from ada
		out, err := w.ask(t.Context(), who, "showCall", `{"call":"old"}`, tool.Discard)
		if err != nil || strings.Contains(out, "no-closed") != who.Operates || strings.Contains(out, `"asked":"closed"`) == who.Operates ||
			strings.Contains(out, "refused") != who.Operates {
			t.Errorf("%s, %v", out, err)
		}
	}
	w.Log = nil
	kit.Refused(t, kit.Err(w.ask(t.Context(), operator, "showCall", `{"call":"old"}`, tool.Discard)),
		tool.CodeNotFound, "")
}

func TestAFailureOfTheLogIsTold(t *testing.T) {
	w := newWorld(talks)
	w.Log = broken{}
	if _, err := w.ask(t.Context(), ada, "showCall", `{"call":"x"}`, tool.Discard); err == nil || tool.CodeOf(err) == tool.CodeNotFound {
		t.Error(err)
	}
}

type broken struct{}

func (broken) Log(context.Context, audit.Filter, bool, func(*tool.Record) error) error {
	return errors.New("the disk is gone")
}
