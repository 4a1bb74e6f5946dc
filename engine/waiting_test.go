package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"toolpost/engine"
	"toolpost/engine/pin"
	"toolpost/internal/kit"
	"toolpost/store"
	"toolpost/tool"
)

// A lazy engine has sources that wait, and records which of them were opened.
type lazy struct {
	*engine.Engine
	all    []engine.Binding
	opened []string
}

func startLazy(t *testing.T, registry *pin.Registry, all []engine.Binding) *lazy {
	l := &lazy{all: all}
	l.Engine = start(t, engine.Options{Pins: registry, Open: l.open})
	l.Replace(t.Context(), l.bindings())
	return l
}

func (l *lazy) open(ctx context.Context, names []string) error {
	l.opened = append(l.opened, names...)
	l.Replace(ctx, l.bindings())
	return nil
}

// bindings returns all sources; those that were not needed yet wait.
func (l *lazy) bindings() []engine.Binding {
	list := slices.Clone(l.all)
	for i, b := range list {
		if !b.Overall && !slices.Contains(l.opened, b.Name) {
			list[i].Runner, list[i].Err, list[i].Waits = nil, nil, true
		}
	}
	return list
}

// found returns what a name means: the source and name of the tool, or why there is none.
func found(t *testing.T, e *engine.Engine, name string) string {
	t.Helper()
	spec, err := e.Lookup(t.Context(), tool.Principal{}, name)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(spec.Source, " has ", spec.Name, ": ", ran(t, e, name))
}

// manySources makes random sources that claim the same names.
func manySources(r *rand.Rand) []engine.Binding {
	own := whoRan("toolpost", &tool.Spec{Name: "listSources"})
	own.Overall = true
	all := []engine.Binding{own}
	for n := range 1 + r.IntN(5) {
		var specs []*tool.Spec
		for _, name := range []string{"x", "y", "z", "s1.x"} {
			if r.IntN(2) == 0 {
				continue
			}
			s := &tool.Spec{Name: name}
			if r.IntN(3) == 0 {
				s.Aliases = []string{[]string{"x", "al", "AL", "s2.y", "dotted.name"}[r.IntN(5)]}
			}
			specs = append(specs, s)
		}
		b := whoRan(fmt.Sprint("s", n), specs...)
		b.Upstream, b.Connects = r.IntN(2) == 0, r.IntN(2) == 0
		if r.IntN(6) == 0 {
			b.Runner, b.Err = nil, errors.New("it is dead")
		}
		all = append(all, b)
	}
	return all
}

// Whatever sources there are, and whether or not their tools were seen before: a name means the same tool, by the same
// name, as with all of them open.
func TestNameResolvesAlikeWhicheverSourcesAreOpen(t *testing.T) {
	names := []string{
		"x", "y", "z", "al", "AL", "dotted.name", "nobodys", "listSources", "toolpost.listSources", "toolpost.nobodys",
		"s0.x", "s1.x", "s1.s1.x", "s2.y", "s3.z", "s4.x", "s9.x",
	}
	spared := 0
	for seed := range uint64(60) {
		all := manySources(rand.New(rand.NewPCG(seed, 16)))
		registry := &pin.Registry{Pins: new(store.Pins)}
		eager := start(t, engine.Options{Pins: registry}, all...)
		for _, name := range names {
			want := found(t, eager, name)
			for when, pins := range map[string]*pin.Registry{"seen": registry, "new": {Pins: new(store.Pins)}} {
				l := startLazy(t, pins, all)
				if got := found(t, l.Engine, name); got != want {
					t.Errorf("seed %d, %s, %s: %s, and with all open %s; opened %v", seed, name, when, got, want, l.opened)
				}
				if len(l.opened) < len(all)-1 {
					spared++
				}
			}
		}
	}
	if spared < 500 { // otherwise it would prove nothing
		t.Errorf("sources were left alone %d times", spared)
	}
}

func TestOnlyTheSourcesThatANameNeedsAreOpened(t *testing.T) {
	ours := func(name string, connects bool, tools ...string) engine.Binding {
		var specs []*tool.Spec
		for _, one := range tools {
			specs = append(specs, &tool.Spec{Name: one})
		}
		b := whoRan(name, specs...)
		b.Connects = connects
		return b
	}
	theirs := func(name string, tools ...string) engine.Binding {
		b := ours(name, true, tools...)
		b.Upstream = true
		return b
	}
	own := ours("toolpost", false, "listSources")
	own.Overall = true
	all := []engine.Binding{
		own, theirs("up", "look", "readFile"), ours("files", false, "readFile"), ours("skills", true, "greet"),
		ours("late", false, "greet", "wave"), theirs("far", "look", "find"),
	}
	registry := &pin.Registry{Pins: new(store.Pins)}
	start(t, engine.Options{Pins: registry}, all...) // so that they have been seen
	for name, want := range map[string][]string{
		"readFile":       {"files"},
		"files.readFile": {"files"},
		"files.nothing":  {"files"},
		"skills.greet":   {"files", "skills"}, // files may have greet, too
		"greet":          {"files", "late", "skills"},
		"late.greet":     {"files", "skills", "late"},
		"far.look":       {"files", "skills", "late", "far"},
		"find":           {"files", "late", "skills", "far"},
		"listSources":    {"up", "files", "skills", "late", "far"},
		"nobodys":        {"files", "late", "skills", "up", "far"},
	} {
		l := startLazy(t, registry, all)
		found(t, l.Engine, name)
		kit.EqualSlices(t, l.opened, want, "%s: opened", name)
	}
	l := startLazy(t, registry, all)
	if got := listing(l.Engine); len(l.opened) != len(all)-1 || got["up.look"]+got["look"] == "" {
		t.Errorf("a list has %v; opened %v", got, l.opened)
	}
}

func TestFailedOpenIsReportedToTheCaller(t *testing.T) {
	var e *engine.Engine
	over := tool.Errorf(tool.CodeTimeout, "time is over")
	e = start(t, engine.Options{Open: func(context.Context, []string) error { return over }},
		engine.Binding{Name: "files", Waits: true})
	if _, err := e.Lookup(t.Context(), tool.Principal{}, "readFile"); !errors.Is(err, over) {
		t.Errorf("looked up: %v", err)
	}
	kit.Refused(t, kit.Err(e.Invoke(t.Context(), &tool.Call{Tool: "readFile"}, tool.Discard)),
		tool.CodeTimeout, "", "called")
	if got := listing(e); len(got) != 0 {
		t.Errorf("listed: %v", got)
	}
}

// A caller does not wait for a source that it may not see, and does not learn that there is one.
func TestCallersDoNotWaitForSourcesThatTheyMayNotSee(t *testing.T) {
	only := func(patterns ...tool.Pattern) tool.Principal {
		return tool.Principal{ID: "ada", Rights: &tool.Rights{Tools: patterns}}
	}
	all := tool.Principal{ID: "ada"}
	for _, c := range []struct {
		rules string
		who   tool.Principal
		waits bool
	}{
		{`{}`, all, true},
		{`{}`, only("open.*"), false},
		{`{}`, only("open.*", "read*"), true}, // any source can have a tool of such a name
		{`{}`, only("slow.x"), true},
		{`{rules: [{name: no, effect: deny, sources: slow, callers: ada}]}`, all, false},
		{`{rules: [{name: no, effect: deny, tools: slow.*}]}`, all, false},
		{`{rules: [{name: no, effect: deny, tools: slow.x}]}`, all, true},
		{`{rules: [{name: no, effect: deny, sources: slow, callers: bob}]}`, all, true},
		{`{rules: [{name: no, effect: deny, sources: slow, tiers: 2}]}`, all, true},
		{`{default: deny, rules: [{name: some, effect: allow, sources: open}]}`, all, false},
		{`{default: deny, rules: [{name: some, effect: allow, tools: "*.x"}]}`, all, true},
	} {
		slow, waited := tool.Errorf(tool.CodeUnavailable, "still opening"), false
		o := under(rules(t, c.rules))
		o.Open = func(context.Context, []string) error {
			waited = true
			return slow
		}
		e := start(t, o, whoRan("open", &tool.Spec{Name: "y"}), engine.Binding{Name: "slow", Waits: true, Comes: true})
		for _, name := range []string{"x", "slow.x"} {
			waited = false
			_, err := e.Lookup(t.Context(), c.who, name)
			if waited != c.waits || !c.waits && tool.CodeOf(err) != tool.CodeNotFound {
				t.Errorf("%s for %v: %s: waited %v, %v", c.rules, c.who.Rights, name, waited, err)
			}
		}
	}
}

// While an upstream source is slow to come, no other source gets its pinned names. A list and a call of an available
// tool do not wait for it; a call of one of its tools does.
func TestOpeningSourceKeepsItsPinnedNames(t *testing.T) {
	slow, quick := whoRan("slow", &tool.Spec{Name: "x"}), whoRan("quick", &tool.Spec{Name: "x"}, &tool.Spec{Name: "y"})
	slow.Upstream, quick.Upstream = true, true
	registry := &pin.Registry{Pins: new(store.Pins)}
	start(t, engine.Options{Pins: registry}, slow)
	start(t, engine.Options{Pins: registry}, slow, quick)

	coming, waited := slow, 0
	coming.Runner, coming.Waits, coming.Comes = nil, true, true
	var e *engine.Engine
	e = start(t, engine.Options{Pins: registry, Open: func(ctx context.Context, names []string) error {
		if waited++; !slices.Equal(names, []string{"slow"}) {
			t.Errorf("waited for %v", names)
		}
		e.Replace(ctx, []engine.Binding{slow, quick})
		return nil
	}}, coming, quick)
	var names []string
	for spec := range e.Specs(t.Context(), tool.Principal{}) {
		names = append(names, spec.Name)
	}
	if got := found(t, e, "y"); got != "quick has y: quick:y" || waited != 0 || !slices.Equal(names, []string{"quick.x", "y"}) {
		t.Errorf("%s, %v; waited %d times", got, names, waited)
	}
	if got := found(t, e, "x"); got != "slow has x: slow:x" || waited != 1 {
		t.Errorf("%s; waited %d times", got, waited)
	}
}
