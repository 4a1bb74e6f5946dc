package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"toolpost/engine"
	"toolpost/engine/approval"
	"toolpost/engine/ask"
	"toolpost/engine/audit"
	"toolpost/engine/cache"
	"toolpost/engine/lease"
	"toolpost/internal/kit"
	"toolpost/store"
	"toolpost/tool"
)

// A tally counts the calls that ran, by the definition that ran them.
type tally struct {
	mu sync.Mutex
	by map[string]int
}

func (n *tally) run(_ context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.by == nil {
		n.by = map[string]int{}
	}
	n.by[c.Spec.Digest]++
	return &tool.Result{OK: true, Output: json.RawMessage(`"` + c.Spec.Digest + `"`)}, nil
}

// versions is a source with a tool that has two definitions: one reads a text, and the other one, which gets half of the calls, writes it.
func versions(run tool.HandlerFunc) *fake {
	f := source(run)
	newer := &tool.Spec{Name: "note", Effects: tool.Effects{Writes: true}, Input: only("text", "words"), Elsewhere: tool.Elsewhere{Digest: "new"}}
	f.specs = []*tool.Spec{{
		Name: "note", Effects: tool.Effects{Reads: true}, Input: only("text"),
		Elsewhere: tool.Elsewhere{Digest: "old", Versions: []tool.Version{{Percent: 50, Spec: newer}}},
	}}
	return f
}

// only is a schema of some texts.
func only(names ...string) json.RawMessage {
	return json.RawMessage(`{"type":"object","properties":{"` + strings.Join(names, `":{"type":"string"},"`) + `":{"type":"string"}},"additionalProperties":false}`)
}

// sample is how many calls show that each of two definitions gets half of them: one of them gets fewer than 56 less than once in 10^9.
const sample = 200

// A call is validated, judged and recorded by the definition that runs it.
func TestACallIsJudgedByTheDefinitionThatRunsIt(t *testing.T) {
	for _, rule := range []string{
		`{name: r, effect: deny, tools: files.*, tiers: [1]}`, `{name: r, effect: deny, tools: note, when: effects.writes}`,
		`{name: r, effect: ask, approvers: [ada], tools: note, tiers: [1]}`,
	} {
		ran, log, o := new(tally), &records{}, under(rules(t, "rules: ["+rule+"]"))
		approvals := approval.New(approval.Options{Store: new(store.Approvals)})
		o.Audit, o.Stages = audit.New(audit.Options{Log: log}), map[string]engine.Stage{"approval": approvals.For}
		e := start(t, o, bind("files", versions(ran.run)))
		stopped := 0
		for range sample {
			r, err := call(t, e, "note", `{}`)
			writes := log.last.Definition == "new"
			kit.Equal(t, log.last.Tier == 1, writes, rule, "tier", log.last.Tier)
			if !writes {
				kit.Equal(t, err == nil && string(r.Output) == `"old"`, true, rule, err)
				continue
			}
			kit.Equal(t, err != nil && err.Code == tool.CodeAccessDenied || r != nil && r.Ask != nil, true, rule, err)
			stopped++
		}
		kit.Equal(t, ran.by["new"], 0, rule)
		kit.Equal(t, stopped > 55 && ran.by["old"] > 55, true, rule, stopped, ran.by)
	}
	ran, log := new(tally), &records{}
	e := start(t, engine.Options{Audit: audit.New(audit.Options{Log: log})}, bind("files", versions(ran.run)))
	for range sample {
		_, err := call(t, e, "files.note", `{"words":"x"}`)
		kit.Equal(t, err != nil && err.Code == tool.CodeInvalidInput, log.last.Definition == "old", err)
	}
	kit.Equal(t, ran.by["old"] == 0 && ran.by["new"] > 55, true, ran.by)
	spec := kit.Must(e.Lookup(t.Context(), tool.Principal{}, "note"))(t)
	kit.Equal(t, spec.Digest, "old", "lists show the definition that counts")
}

// What an approver approved is one definition, also if its effects are those of the other one: neither its id, nor the same call without
// it, nor an approval for an hour lets the other one run.
func TestAnApprovalIsForOneDefinition(t *testing.T) {
	ran, o := new(tally), under(rules(t, "rules: [{name: r, effect: ask, approvers: [ada], tools: note, remember: [hour]}]"))
	approvals := approval.New(approval.Options{Store: new(store.Approvals)})
	o.Stages, o.Asked = map[string]engine.Stage{"approval": approvals.For}, approvals.Definition
	f := versions(ran.run)
	f.specs[0].Effects = f.specs[0].Versions[0].Spec.Effects
	e := start(t, o, bind("files", f))
	o.Asked = nil
	astray := start(t, o, bind("files", f))
	invoke := func(e *engine.Engine, text, resume string) (*tool.Result, error) {
		return e.Invoke(t.Context(), &tool.Call{Tool: "note", Args: []byte(`{"text":"` + text + `"}`), Resume: resume, Caller: tool.Principal{ID: "bob"}}, tool.Discard)
	}
	approved := func(text, way string) (id, definition string) {
		id = kit.Must(invoke(e, text, ""))(t).Ask.ID
		kit.Must(approvals.Decide(t.Context(), tool.Principal{ID: "ada"}, id, approval.Decision{Approve: true, For: way}))(t)
		return id, approvals.Definition(t.Context(), id)
	}
	picked := map[string]bool{}
	for i := range 99 {
		id, by := approved(fmt.Sprint("with ", i), approval.ForCall)
		if by == "new" {
			kit.Refused(t, kit.Err(invoke(astray, fmt.Sprint("with ", i), id)), tool.CodeInvalidInput, "has not asked you a question of this id")
		}
		kit.Equal(t, string(kit.Must(invoke(e, fmt.Sprint("with ", i), id))(t).Output), `"`+by+`"`)
		_, by = approved(fmt.Sprint("without ", i), approval.ForCall)
		again := kit.Must(invoke(e, fmt.Sprint("without ", i), ""))(t)
		kit.Equal(t, again.Ask != nil || string(again.Output) == `"`+by+`"`, true, "the approval of "+by, string(again.Output))
		picked[fmt.Sprint(by, again.Ask == nil)] = true
	}
	kit.Equal(t, len(picked), 4)
	_, by := approved("an hour", approval.ForHour)
	ran.by = nil
	for i := range sample {
		kit.Must(invoke(e, fmt.Sprint("later ", i), ""))(t)
	}
	kit.Equal(t, len(ran.by) == 1 && ran.by[by] > 55, true, by, ran.by)
}

// The calls of a session, of a key and of an id stay with one definition, at all hubs. Jobs and plans may run again what only reads.
func TestSessionsStayWithOneDefinition(t *testing.T) {
	ran := new(tally)
	hub := func(effects tool.Effects) *engine.Engine {
		f := versions(ran.run)
		f.specs[0].Versions[0].Spec.Effects = effects
		return start(t, engine.Options{}, bind("files", f))
	}
	writes, reads := tool.Effects{Writes: true}, tool.Effects{Reads: true}
	for _, c := range []struct {
		of          func(name string) tool.Call
		effects     tool.Effects
		definitions int
	}{
		{func(name string) tool.Call { return tool.Call{Session: name} }, writes, 2},
		{func(name string) tool.Call { return tool.Call{Key: name} }, writes, 2},
		{func(name string) tool.Call { return tool.Call{ID: name, Background: true} }, reads, 2},
		{func(name string) tool.Call { return tool.Call{ID: name, Background: true} }, writes, 1},
		{func(name string) tool.Call { return tool.Call{ID: name, Parent: "plan"} }, writes, 1},
		{func(name string) tool.Call { return tool.Call{ID: name, DryRun: true} }, writes, 1},
	} {
		one, other, used := hub(c.effects), hub(c.effects), map[string]bool{}
		for i := range 99 {
			call := c.of(fmt.Sprint(i))
			call.Tool = "note"
			first := kit.Must(one.Invoke(t.Context(), &call, tool.Discard))(t)
			used[string(first.Output)] = true
			kit.Equal(t, string(kit.Must(other.Invoke(t.Context(), &call, tool.Discard))(t).Output), string(first.Output))
		}
		kit.Equal(t, len(used), c.definitions, fmt.Sprintf("%+v", c.of("x")))
	}
}

// An answer goes to the definition that asked.
func TestAnAnswerGoesToTheDefinitionThatAsked(t *testing.T) {
	f := versions(func(_ context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
		if c.Resume == "" {
			return &tool.Result{Ask: &tool.Ask{ID: c.Spec.Digest, Message: "Which?"}}, nil
		}
		return &tool.Result{OK: true, Output: json.RawMessage(`"` + c.Resume + " " + c.Spec.Digest + `"`)}, nil
	})
	questions := ask.New(ask.Options{})
	o := engine.Options{
		Stages: map[string]engine.Stage{"answers": questions.Answers, "ask": questions.Carry},
		Asked:  func(_ context.Context, id string) string { return ask.Definition(id) },
	}
	e := start(t, o, bind("files", f))
	seen := map[string]bool{}
	for range 50 {
		first := kit.Must(e.Invoke(t.Context(), &tool.Call{Tool: "note"}, tool.Discard))(t)
		by := ask.Definition(first.Ask.ID)
		c := &tool.Call{Tool: "note", Resume: first.Ask.ID, Answers: []byte(`{}`)}
		kit.Equal(t, string(kit.Must(e.Invoke(t.Context(), c, tool.Discard))(t).Output), `"`+by+" "+by+`"`)
		seen[by] = true
		c.Resume = strings.TrimSuffix(first.Ask.ID, by) + map[string]string{"old": "new", "new": "old"}[by]
		kit.Refused(t, kit.Err(e.Invoke(t.Context(), c, tool.Discard)), tool.CodeInvalidInput, "has not asked you a question of this id")
	}
	kit.Equal(t, len(seen), 2)
}

// A share makes no call fail that would have run: if no node takes them, they run by the definition that counts, which judges them anew.
func TestCallsOfAVersionThatLeavesRunByTheOneThatCounts(t *testing.T) {
	ran := new(tally)
	gone := tool.Errorf(tool.CodeUnavailable, "the node is gone").Because(tool.ReasonGone)
	for what, c := range map[string]struct {
		err error
		run bool // by the other definition
	}{
		"not begun":    {tool.BeforeRun(gone), true},
		"breaker":      {tool.BeforeRun(tool.Errorf(tool.CodeBreakerOpen, "it failed")), true},
		"begun":        {gone, false},
		"another code": {tool.BeforeRun(tool.Errorf(tool.CodeAccessDenied, "no")), false},
	} {
		f := versions(func(ctx context.Context, call *tool.Call, out tool.Sink) (*tool.Result, error) {
			if call.Spec.Digest == "new" {
				return nil, c.err
			}
			return ran.run(ctx, call, out)
		})
		e := start(t, engine.Options{}, bind("files", f))
		failed := 0
		for range sample {
			if _, err := e.Invoke(t.Context(), &tool.Call{Tool: "note"}, tool.Discard); err != nil {
				failed++
			}
		}
		kit.Equal(t, failed == 0, c.run, what, failed)
	}
}

// A noting source asks each definition once what a call touches, as a fleet does.
type noting struct{ *fake }

func (s noting) Touches(c *tool.Call) (tool.Touches, error) {
	if c.Memo.View == nil {
		c.Memo.View = "/w/" + c.Spec.Digest
	}
	return tool.Touches{Writes: []string{c.Memo.View.(string)}}, nil
}

// What one definition said that it touches is not what the other one touches.
func TestTheOtherDefinitionIsAskedWhatItTouches(t *testing.T) {
	ran := new(tally)
	f := noting{versions(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
		if c.Spec.Digest == "new" {
			return nil, tool.BeforeRun(tool.Errorf(tool.CodeUnavailable, "the node is gone").Because(tool.ReasonGone))
		}
		return ran.run(ctx, c, out)
	})}
	e := start(t, under(rules(t, `rules: [{name: r, effect: deny, paths: old}]`)), bind("files", f))
	for range sample {
		kit.Refused(t, kit.Err(e.Invoke(t.Context(), &tool.Call{Tool: "note"}, tool.Discard)), tool.CodeAccessDenied, "not allowed")
	}
}

// A lease that was used for a definition whose nodes are gone is good for the one that runs in its place, unless that is more dangerous.
func TestALeaseIsUsedOnceForTwoDefinitions(t *testing.T) {
	for _, from := range []int{1, 2} { // the other definition has the tier 1, or needs a lease for a higher one
		ran, leases := new(tally), map[string]bool{}
		f := versions(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
			if c.Spec.Digest == "new" {
				return nil, tool.BeforeRun(tool.Errorf(tool.CodeUnavailable, "the node is gone").Because(tool.ReasonGone))
			}
			return ran.run(ctx, c, out)
		})
		f.specs[0].Tier, f.specs[0].TierFrom = from, tool.TierConfig
		f.specs[0].Versions[0].Spec.Tier, f.specs[0].Versions[0].Spec.TierFrom = 1, tool.TierConfig
		gate := lease.Stage{From: 1, Consume: once(leases)}
		e := start(t, engine.Options{Stages: map[string]engine.Stage{"lease": gate.For}}, bind("files", f))
		refused := 0
		for n := range sample {
			if err := kit.Err(e.Invoke(t.Context(), &tool.Call{Tool: "note", Lease: fmt.Sprint(n)}, tool.Discard)); err != nil {
				kit.Refused(t, err, tool.CodeLeaseRejected, "used up")
				refused++
			}
		}
		kit.Equal(t, len(leases), sample)
		kit.Equal(t, refused > 0, from == 2, "tier", from)
		kit.Equal(t, ran.by["old"]+refused, sample)
	}
}

// once is leases that each are good for one call.
type once map[string]bool

func (o once) Consume(_ context.Context, token, _, _ string, _ int) error {
	if o[token] {
		return tool.Errorf(tool.CodeLeaseRejected, "used up")
	}
	o[token] = true
	return nil
}

// A tool that a third party describes is pinned by one definition, and has no other one.
func TestAPinnedToolHasOneDefinition(t *testing.T) {
	ran := new(tally)
	o, _ := pinned()
	b := bind("files", versions(ran.run))
	b.Upstream = true
	e := start(t, o, b)
	for range sample {
		kit.OK(t, kit.Err(e.Invoke(t.Context(), &tool.Call{Tool: "note"}, tool.Discard)))
	}
	kit.Equal(t, ran.by["new"], 0)
}

// The results of two definitions are not mixed in a cache.
func TestACacheKeepsDefinitionsApart(t *testing.T) {
	ran, results := new(tally), cache.New(cache.Options{})
	results.Replace([]cache.Rule{{Tools: tool.Patterns{"note"}, TTL: 1 << 40}})
	f := versions(ran.run)
	f.specs[0].Versions[0].Spec.Effects = tool.Effects{Reads: true}
	e := start(t, engine.Options{Stages: map[string]engine.Stage{"cache": results.For}}, bind("files", f))
	got := map[string]int{}
	for range sample {
		got[string(kit.Must(e.Invoke(t.Context(), &tool.Call{Tool: "note"}, tool.Discard))(t).Output)]++
	}
	kit.Equal(t, got[`"old"`] > 55 && got[`"new"`] > 55, true, got)
	kit.Equal(t, ran.by["old"] == 1 && ran.by["new"] == 1, true, ran.by)
}
