package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"toolpost/builtin"
	"toolpost/config"
	"toolpost/engine/policy"
	"toolpost/identity"
	"toolpost/node/catalogue"
	"toolpost/tool"
	"toolpost/wire/nearest"
	"toolpost/wire/schema"
)

// Problems finds, without starting a program or asking a server, parts of a config that will fail later, when a door is
// opened or a tool is called. Parts that cannot be read were reported when the node was opened, and problems of an open
// source are in its catalogue.Status.
func (n *Node) Problems() []config.Problem {
	found := n.DoorProblems()
	if err := n.storage.Problem(); err != nil {
		found = append(found, config.Problem{About: "store", Err: n.redactor.Error(err)})
	}
	return append(found, n.mistakes(n.cfg)...)
}

// mistakes finds the problems that a server can have while it serves.
func (n *Node) mistakes(cfg *config.Config) []config.Problem {
	found := n.SourceProblems(cfg)
	note := func(about string, err error) {
		if err != nil {
			found = append(found, config.Problem{About: about, Err: n.redactor.Error(err)})
		}
	}
	for _, m := range n.models.Models() {
		note("model "+m.Name, m.Problem())
	}
	for _, p := range slices.Concat(n.planners.Problems(), n.notify.Problems(), n.connections.Problems()) {
		note(p.About, p.Err)
	}
	var people identity.SignIn
	_ = cfg.Section(identity.Section().Name).Decode(&people) // a mistake was reported when it was read
	for _, p := range people.OIDC {
		if p.ClientSecret != "" {
			_, err := n.Secret(p.ClientSecret)
			note("provider "+p.Name, err)
		}
	}
	strays, _ := n.strayNames(cfg)
	return append(found, strays...)
}

// Warnings finds parts of a config that work but are not safe: doors without TLS, secrets in the file, a source whose programs
// can replace their own code; rules about files that scripts and programs evade, because they judge what a call names and not
// what it opens; arguments that are not
// checked as the tool's schema asks; and callers that the config does not list.
func (n *Node) Warnings(ctx context.Context, p tool.Principal) (found []config.Problem) {
	_, found = n.strayNames(n.cfg)
	found = slices.Concat(found, n.DoorWarnings(), n.SourceWarnings())
	for spec, err := range n.Catalog().Specs(ctx, p) {
		if err == nil {
			for _, one := range schema.Unchecked(spec) {
				found = append(found, config.Problem{About: "tool " + spec.Name, Err: errors.New(one)})
			}
		}
	}
	return append(found, n.evaded()...)
}

// evaded finds the rules about files that scripts or programs evade.
func (n *Node) evaded() (found []config.Problem) {
	var o policy.Options
	scripts := slices.ContainsFunc(n.cfg.Sources, func(src config.Source) bool {
		var o builtin.Options
		return src.Protocol == "builtin" && src.Decode(&o) == nil && o.Shell != nil && o.Shell.RunsCode()
	})
	_ = n.cfg.Section(policy.Section().Name).Decode(&o) // the node was opened with it
	for _, rule := range o.Rules {
		if rule.Paths == nil && rule.Access == "" {
			continue
		}
		warn := func(why string) {
			found = append(found, config.Problem{About: "rule " + rule.Name, Err: errors.New(why)})
		}
		limits := rule.Effect != policy.Allow
		if scripts && (limits || o.Default == policy.Fallback(policy.Deny)) { // an exception from a denial limits files, too
			warn("it holds for files that a command names, and not for those that a script opens which execShell starts: offer " +
				"them in another source, or let `shell` run no code")
		}
		var others []string
		for _, src := range n.cfg.Sources {
			if src.Protocol != "builtin" && rule.Sources.Match(src.Name) {
				others = append(others, src.Name)
			}
		}
		if limits && rule.Tools == nil && others != nil {
			warn("it holds for files that built-in tools touch or that a call names to a command, and not for those that " +
				strings.Join(others, ", ") + " may open: a rule with `when: effects.writes` instead is about every tool that may write")
		}
	}
	return found
}

// strayNames finds roles, callers and tools in rules that do not exist: such a rule has no effect, which is dangerous if it
// denies, and a call that only unknown callers may approve never runs. Patterns may match nothing. A tool may belong to a
// source that is not open, so its name is reported only if it looks like a typo. A caller may be known by a token alone, so
// a name that does not look like a typo is unsure.
func (n *Node) strayNames(cfg *config.Config) (found, unsure []config.Problem) {
	var callers identity.Options
	var rules policy.Options
	_ = cfg.Callers.Decode(&callers) // the node was opened with both
	_ = cfg.Section(policy.Section().Name).Decode(&rules)
	roles, people, tools := slices.Sorted(maps.Keys(callers.Roles)), n.CallerNames(), n.toolNames()
	complete := len(n.Unopened()) == 0 && !slices.ContainsFunc(n.Sources(), func(s catalogue.Status) bool { return s.Err != nil })
	stray := func(about, what, name string, known []string, all bool) {
		hint := nearest.Hint(name, known)
		if !slices.Contains(known, name) && (all || hint != "") {
			err := tool.Errorf(tool.CodeInvalidInput, "there is no %s %q%s", what, name, hint)
			found = append(found, config.Problem{About: about, Err: err})
		}
	}
	strayCallers := func(about, what string, names tool.Globs, known ...string) {
		known = append(known, people...)
		for _, g := range names {
			if name := string(g); g.Plain() && !slices.Contains(known, name) && nearest.Hint(name, known) == "" {
				unsure = append(unsure, config.Problem{About: about, Err: fmt.Errorf("the config has no %s %q; only a token can "+
					"give a caller that name", what, name)})
			} else if g.Plain() {
				stray(about, what, name, known, false)
			}
		}
	}
	strayTools := func(about string, patterns tool.Patterns) {
		for _, p := range patterns {
			if _, err := n.engine.Spec(string(p)); tool.Glob(p).Plain() && err != nil {
				stray(about, "tool", string(p), tools, complete)
			}
		}
	}
	for _, r := range rules.Rules {
		about := "rule " + r.Name
		for _, g := range r.Roles {
			if g.Plain() {
				stray(about, "role", string(g), roles, true)
			}
		}
		strayCallers(about, "caller", r.Callers)
		strayCallers(about, "approver", r.Approvers, roles...)
		strayTools(about, r.Tools)
	}
	for _, m := range n.models.Models() {
		strayCallers("model "+m.Name, "caller", m.Callers, roles...)
	}
	for _, name := range roles {
		strayTools("role "+name, callers.Roles[name].Tools)
	}
	for _, name := range slices.Sorted(maps.Keys(callers.List)) {
		strayTools("caller "+name, callers.List[name].Tools)
	}
	return found, unsure
}

// toolNames lists the names of tools, for hints.
func (n *Node) toolNames() (names []string) {
	for spec := range n.engine.Specs(context.Background(), tool.Principal{ID: identity.Local}) {
		if spec != nil && spec.Name != "" {
			names = append(append(names, spec.Name, spec.Ref().String()), spec.Aliases...)
		}
	}
	return names
}
