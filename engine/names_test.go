package engine_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"toolpost/engine"
	"toolpost/engine/cache"
	"toolpost/engine/lease"
	"toolpost/engine/quota"
	"toolpost/internal/kit"
	"toolpost/tool"
)

// whoRan is a source whose tools return their own names, as the source writes them.
func whoRan(source string, specs ...*tool.Spec) engine.Binding {
	run := func(_ context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
		return &tool.Result{OK: true, Summary: source + ":" + c.Tool}, nil
	}
	return engine.Binding{Name: source, Protocol: "fake", Runner: &fake{specs: specs, run: run}}
}

// clashing returns sources that conflict as much as they can: x comes before files, and has a tool whose own name reads
// like one of files; two bring readFile; and one of them has an alias.
func clashing() []engine.Binding {
	return []engine.Binding{
		whoRan("x", &tool.Spec{Name: "files.readFile"}, &tool.Spec{Name: "files.gone", Aliases: []string{"files.writeFile", "docs"}}),
		whoRan("files", &tool.Spec{Name: "readFile", Aliases: []string{"file.read"}}, &tool.Spec{Name: "writeFile"}, &tool.Spec{Name: "files.odd"}),
		whoRan("more", &tool.Spec{Name: "readFile"}, &tool.Spec{Name: "docs.find"}),
	}
}

// reached calls every name that a tool could have, and lists the tools that ran.
func reached(t *testing.T, e *engine.Engine, p tool.Principal) (ran []string) {
	t.Helper()
	for _, name := range []string{
		"readFile", "files.readFile", "more.readFile", "x.files.readFile", "file.read", "writeFile", "files.writeFile",
		"files.gone", "x.files.gone", "docs", "files.odd", "files.files.odd", "docs.find", "more.docs.find", "x.readFile", "files.file.read",
	} {
		r, err := e.Invoke(t.Context(), &tool.Call{Tool: name, Caller: p, Lease: "l"}, tool.Discard)
		if err == nil && !slices.Contains(ran, r.Summary) {
			ran = append(ran, r.Summary)
		}
	}
	slices.Sort(ran)
	var listed []string
	for spec := range e.Specs(t.Context(), p) {
		ref := spec.Ref()
		listed = append(listed, ref.Source+":"+ref.Name)
	}
	slices.Sort(listed)
	kit.EqualSlices(t, ran, listed, "listed")
	return ran
}

const everyTool = "files:files.odd files:readFile files:writeFile more:docs.find more:readFile x:files.gone x:files.readFile"

func TestToolNamesOfTwoSourcesAreNotConfused(t *testing.T) {
	e := start(t, engine.Options{}, clashing()...)
	for name, want := range map[string]string{
		"readFile": "files:readFile", "files.readFile": "files:readFile", "more.readFile": "more:readFile",
		"x.files.readFile": "x:files.readFile", "file.read": "files:readFile", "files.writeFile": "files:writeFile",
		"files.gone": "", "x.files.gone": "x:files.gone", "docs": "x:files.gone", "docs.find": "more:docs.find",
		"files.odd": "files:files.odd", "files.files.odd": "files:files.odd", "x.readFile": "", "more.file.read": "",
	} {
		r, err := e.Invoke(t.Context(), &tool.Call{Tool: name}, tool.Discard)
		if want == "" && tool.CodeOf(err) != tool.CodeNotFound || want != "" && (err != nil || r.Summary != want) {
			t.Errorf("%s: %+v, %v; want %q", name, r, err, want)
		}
	}
	kit.Equal(t, strings.Join(reached(t, e, tool.Principal{}), " "), everyTool)
}

func TestRulesMatchTheSourceAndItsOwnNameForATool(t *testing.T) {
	all := strings.Fields(everyTool)
	but := func(gone ...string) []string {
		return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(gone, s) })
	}
	for text, left := range map[string][]string{
		// A denial applies to every tool that can be meant, under all of its names.
		"rules: [{name: r, effect: deny, tools: readFile}]":                      but("files:readFile", "more:readFile"),
		"rules: [{name: r, effect: deny, tools: file.read}]":                     but("files:readFile"),
		"rules: [{name: r, effect: deny, tools: more.readFile}]":                 but("more:readFile"),
		"rules: [{name: r, effect: deny, tools: files.readFile}]":                but("files:readFile", "x:files.readFile"),
		"rules: [{name: r, effect: deny, tools: x.files.readFile}]":              but("x:files.readFile"),
		"rules: [{name: r, effect: deny, tools: docs}]":                          but("x:files.gone"),
		"rules: [{name: r, effect: deny, sources: files}]":                       but("files:readFile", "files:writeFile", "files:files.odd"),
		"rules: [{name: r, effect: deny, tools: '*', when: tool == 'readFile'}]": but("files:readFile", "more:readFile"),
		// A permission applies only to what is meant beyond doubt.
		"default: deny\nrules: [{name: r, effect: allow, tools: readFile}]":           {"files:readFile", "more:readFile"},
		"default: deny\nrules: [{name: r, effect: allow, tools: files.readFile}]":     {"files:readFile"},
		"default: deny\nrules: [{name: r, effect: allow, tools: 'files.*'}]":          {"files:files.odd", "files:readFile", "files:writeFile"},
		"default: deny\nrules: [{name: r, effect: allow, tools: '*.files.readFile'}]": {"x:files.readFile"},
		"default: deny\nrules: [{name: r, effect: allow, tools: docs}]":               nil,
	} {
		e := start(t, under(rules(t, text)), clashing()...)
		var got []string
		if strings.Contains(text, "when:") { // a rule that depends on the call does not hide the tool
			for _, name := range []string{"readFile", "more.readFile", "x.files.readFile", "x.files.gone", "writeFile", "files.odd", "docs.find"} {
				if r, err := e.Invoke(t.Context(), &tool.Call{Tool: name}, tool.Discard); err == nil {
					got = append(got, r.Summary)
				}
			}
			slices.Sort(got)
		} else {
			got = reached(t, e, tool.Principal{})
		}
		kit.EqualSlices(t, got, left, "%s\nleaves", text)
	}
}

func TestRightsMatchTheSourceAndItsOwnNameForATool(t *testing.T) {
	e := start(t, engine.Options{}, clashing()...)
	for pattern, want := range map[tool.Pattern]string{
		"readFile": "files:readFile more:readFile", "files.readFile": "files:readFile", "more.*": "more:docs.find more:readFile",
		"files.gone": "", "x.*": "x:files.gone x:files.readFile", "docs": "", "*": everyTool, "docs.find": "", "*.docs.find": "more:docs.find",
	} {
		got := reached(t, e, tool.Principal{ID: "ada", Rights: &tool.Rights{Tools: tool.Patterns{pattern}}})
		kit.Equal(t, strings.Join(got, " "), want, pattern, got)
	}
}

type oneLease struct{ tool string }

func (l oneLease) Consume(_ context.Context, _, _, name string, _ int) error {
	if name != l.tool {
		return tool.Errorf(tool.CodeLeaseRejected, "it is for %s and not for %s", l.tool, name)
	}
	return nil
}

func TestQuotasCachesAndLeasesMatchSourceAndOwnName(t *testing.T) {
	q := quota.New(quota.Options{})
	q.Replace([]quota.Rule{{Name: "few", Concurrency: 1, Tools: tool.Patterns{"readFile"}}})
	limited := func(s *tool.Spec) tool.Middleware {
		if q.For(s) == nil {
			return nil
		}
		return func(tool.Handler) tool.Handler {
			return tool.HandlerFunc(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
				return nil, tool.Errorf(tool.CodeQuotaExceeded, "there is a quota")
			})
		}
	}
	e := start(t, engine.Options{Stages: map[string]engine.Stage{"quota": limited}}, clashing()...)
	for name, want := range map[string]tool.Code{
		"readFile": tool.CodeQuotaExceeded, "file.read": tool.CodeQuotaExceeded, "more.readFile": tool.CodeQuotaExceeded, "x.files.readFile": "", "writeFile": "",
	} {
		kit.Refused(t, kit.Err(e.Invoke(t.Context(), &tool.Call{Tool: name}, tool.Discard)), want, "", name)
	}
	c := cache.New(cache.Options{})
	c.Replace([]cache.Rule{{Tools: tool.Patterns{"files.readFile"}, TTL: time.Minute}})
	for _, spec := range []*tool.Spec{
		{Source: "files", Name: "readFile"}, {Source: "more", Name: "more.readFile", Own: "readFile"}, {Source: "x", Name: "x.files.readFile", Own: "files.readFile"},
	} {
		if spec.Effects.Reads = true; (c.For(spec) != nil) != (spec.Source == "files") {
			t.Errorf("the cache for files.readFile and %s of %s", spec.Name, spec.Source)
		}
	}
	gate := lease.Stage{From: 1, Consume: oneLease{"files.readFile"}}
	sources := clashing()
	for _, b := range sources {
		for _, s := range b.Runner.(*fake).specs {
			s.Tier = 1
		}
	}
	e = start(t, engine.Options{Stages: map[string]engine.Stage{"lease": gate.For}}, sources...)
	for name, want := range map[string]tool.Code{
		"readFile": "", "files.readFile": "", "x.files.readFile": tool.CodeLeaseRejected, "more.readFile": tool.CodeLeaseRejected,
	} {
		kit.Refused(t, kit.Err(e.Invoke(t.Context(), &tool.Call{Tool: name, Lease: "l"}, tool.Discard)),
			want, "", "with a lease for files.readFile, %s", name)
	}
}

// A name that a client has listed or called keeps its meaning while its source is open, whichever sources open later. A
// name that no client knows belongs to the first source of the config.
func TestNameKeepsItsMeaningWhenASourceOpensLate(t *testing.T) {
	waits := engine.Binding{Name: "late", Protocol: "fake", Waits: true, Comes: true}
	dead := engine.Binding{Name: "late", Protocol: "fake", Err: errors.New("not yet")}
	for what, learn := range map[string]func(*engine.Engine){
		"listed": func(e *engine.Engine) { listing(e) }, "called": func(e *engine.Engine) { _, _ = call(t, e, "same", ``) }, "": func(*engine.Engine) {},
	} {
		for _, first := range []engine.Binding{waits, dead} {
			late, fast := whoRan("late", &tool.Spec{Name: "same"}), whoRan("fast", &tool.Spec{Name: "same"})
			e := start(t, engine.Options{Open: func(context.Context, []string) error { return nil }}, first, fast)
			learn(e)
			e.Replace(t.Context(), []engine.Binding{late, fast})
			want := map[string]string{"same": "fast:same", "late.same": "late:same", "fast.same": "fast:same"}
			if what == "" {
				want["same"] = "late:same"
			}
			for name, ran := range want {
				if r, err := call(t, e, name, ``); err != nil || r.Summary != ran {
					t.Errorf("%q: %s ran %+v, %v", what, name, r, err)
				}
			}
			e.Replace(t.Context(), []engine.Binding{late}) // fast is closed, and its name is free
			if r, err := call(t, e, "same", ``); err != nil || r.Summary != "late:same" {
				t.Errorf("%q: %+v, %v", what, r, err)
			}
		}
	}
}

// A tool of another node takes no name of a tool of the hub's own sources, not even of an upstream one that it comes before.
func TestToolsOfOtherNodesComeLast(t *testing.T) {
	own, remote := whoRan("own", &tool.Spec{Name: "create"}), whoRan("a", &tool.Spec{Name: "create"})
	own.Upstream, remote.Remote = true, true
	e := start(t, engine.Options{}, remote, own)
	for name, want := range map[string]string{"create": "own:create", "a.create": "a:create"} {
		r, err := call(t, e, name, `{}`)
		kit.Equal(t, err, nil, name)
		kit.Equal(t, r.Summary, want, name)
	}
}
