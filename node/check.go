package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"toolpost/builtin"
	"toolpost/config"
	"toolpost/engine/policy"
	"toolpost/host/offlimits"
	"toolpost/host/spawn"
	"toolpost/identity"
	"toolpost/protocol/all"
	"toolpost/tool"
	"toolpost/wire/nearest"
	"toolpost/wire/schema"
)

// A Problem is a part of a config that will not work, or not as intended.
type Problem struct {
	About string `json:"about"` // such as door http, source files, secret KEY, rule no-deletes
	Err   error  `json:"-"`
}

// Problems finds, without starting a program or asking a server, parts of a config that will fail later, when a door is
// opened or a tool is called. Parts that cannot be read were reported when the node was opened, and problems of an open
// source are in its Status.
func (n *Node) Problems() []Problem {
	var found []Problem
	doors := all.Problems(n.cfg, n.callers.Load().Lists)
	for _, name := range slices.Sorted(maps.Keys(doors)) {
		found = append(found, Problem{"door " + name, n.redactor.Error(doors[name])})
	}
	if err := n.unreadableKey(); err != nil {
		found = append(found, Problem{"store", n.redactor.Error(err)})
	}
	return append(found, n.mistakes(n.cfg)...)
}

// mistakes finds the problems that a server can have while it serves.
func (n *Node) mistakes(cfg *config.Config) []Problem {
	var found []Problem
	note := func(about string, err error) {
		if err != nil {
			found = append(found, Problem{about, n.redactor.Error(err)})
		}
	}
	for _, s := range n.Secrets() {
		note("secret "+s.Name, cmp.Or(s.Err, n.secrets[s.Name].Links(cfg.Dir)))
	}
	for _, src := range cfg.Sources {
		about := "source " + src.Name
		note(about, n.undefinedSecrets(src))
		if !n.isOpen(src.Name) {
			note(about, n.unreadable(src))
		}
		note(about, spawn.Missing(src))
		note(about, n.checker.Now().Guard(n.claim(src)))
	}
	for _, m := range n.models.Models() {
		note("model "+m.Name, m.Problem())
	}
	for _, p := range n.planners.Problems() {
		note(p.About, p.Err)
	}
	strays, _ := n.strayNames(cfg)
	return append(found, strays...)
}

// Warnings finds parts of a config that work but are not safe: a source whose programs can replace their own code; rules
// about files that scripts evade, because they judge what a command names and not what it opens; arguments that are not
// checked as the tool's schema asks; and callers that the config does not list.
func (n *Node) Warnings(ctx context.Context, p tool.Principal) (found []Problem) {
	_, found = n.strayNames(n.cfg)
	for _, src := range n.cfg.Sources {
		if home := n.claim(src).Own(); home != "" {
			found = append(found, Problem{"source " + src.Name, fmt.Errorf("walls.write names %s, which its program lies in or "+
				"runs in: what a call writes there, the next one may run; name a folder in it, such as ./data", home)})
		}
	}
	n.mu.Lock()
	for _, s := range n.sources {
		if _, lists := s.runner.(tool.Source); lists && !s.waits && len(s.specs) == 0 {
			found = append(found, Problem{"source " + s.Name, errors.New("it has no tools: is the folder or the server that it names the right one?")})
		}
	}
	n.mu.Unlock()
	for spec, err := range n.Catalog().Specs(ctx, p) {
		if err == nil {
			for _, one := range schema.Unchecked(spec) {
				found = append(found, Problem{"tool " + spec.Name, errors.New(one)})
			}
		}
	}
	var o policy.Options
	scripts := func(src config.Source) bool {
		var o builtin.Options
		return src.Protocol == "builtin" && src.Decode(&o) == nil && o.Shell != nil && o.Shell.RunsCode()
	}
	if !slices.ContainsFunc(n.cfg.Sources, scripts) || n.cfg.Section(policy.Section().Name).Decode(&o) != nil {
		return found
	}
	for _, rule := range o.Rules {
		limits := rule.Effect != policy.Allow || o.Default == policy.Fallback(policy.Deny) // an exception from a denial limits files, too
		if limits && (rule.Paths != nil || rule.Access != "") {
			found = append(found, Problem{"rule " + rule.Name, errors.New("it holds for files that a command names, and not " +
				"for those that a script opens which execShell starts: offer them in another source, or let `shell` run no code")})
		}
	}
	return found
}

// connects reports whether opening a source starts a program or sends a request to a server.
func (n *Node) connects(src config.Source) bool {
	p, err := n.protocol(src.Protocol)
	return err == nil && p.Connects && !local(p, src)
}

// Unopened lists the sources that were not opened, see Options.Offline.
func (n *Node) Unopened() (left []Status) {
	for _, src := range n.cfg.Sources {
		if !n.isOpen(src.Name) {
			left = append(left, Status{Name: src.Name, Protocol: src.Protocol})
		}
	}
	return left
}

func (n *Node) isOpen(name string) bool {
	return slices.ContainsFunc(n.Sources(), func(s Status) bool { return s.Name == name })
}

// unreadable returns why the entry of an unopened source cannot be read.
func (n *Node) unreadable(src config.Source) error {
	p, err := n.protocol(src.Protocol)
	if err != nil || p.Claim == nil {
		return err
	}
	_, err = p.Claim(src)
	return err
}

// unreadableKey returns an error if the config names a key for the audit log that exists but cannot be used.
func (n *Node) unreadableKey() error {
	if n.store == nil || n.storing.Audit.Key == "" {
		return nil
	}
	if _, err := os.Lstat(offlimits.Under(n.cfg.Dir, n.storing.Audit.Key)); errors.Is(err, fs.ErrNotExist) {
		return nil // it is created on first use
	}
	_, err := auditKey(n.cfg, n.storing.Audit.Key)
	return err
}

// undefinedSecrets returns an error if the programs of a source should get a secret that the config does not have.
func (n *Node) undefinedSecrets(src config.Source) error {
	var o struct {
		Secrets     []string `yaml:"secrets"`
		SecretFiles []string `yaml:"secret_files"`
	}
	if err := src.Peek(&o); err != nil {
		return nil // opening the source reports it
	}
	n.mu.Lock()
	known := slices.Sorted(maps.Keys(n.secrets))
	n.mu.Unlock()
	for _, text := range slices.Concat(o.Secrets, o.SecretFiles) {
		_, name, renamed := strings.Cut(text, "=")
		if !renamed {
			name = text
		}
		if !slices.Contains(known, name) {
			return fmt.Errorf("it gets the secret %q, which the section secrets does not have%s", name, nearest.Hint(name, known))
		}
	}
	return nil
}

// strayNames finds roles, callers and tools in rules that do not exist: such a rule has no effect, which is dangerous if it
// denies, and a call that only unknown callers may approve never runs. Patterns may match nothing. A tool may belong to a
// source that is not open, so its name is reported only if it looks like a typo. A caller may be known by a token alone, so
// a name that does not look like a typo is unsure.
func (n *Node) strayNames(cfg *config.Config) (found, unsure []Problem) {
	var callers identity.Options
	var rules policy.Options
	_ = cfg.Callers.Decode(&callers) // the node was opened with both
	_ = cfg.Section(policy.Section().Name).Decode(&rules)
	roles, people, tools := slices.Sorted(maps.Keys(callers.Roles)), n.CallerNames(), n.toolNames()
	complete := len(n.Unopened()) == 0 && !slices.ContainsFunc(n.Sources(), func(s Status) bool { return s.Err != nil })
	stray := func(about, what, name string, known []string, all bool) {
		hint := nearest.Hint(name, known)
		if !slices.Contains(known, name) && (all || hint != "") {
			found = append(found, Problem{about, tool.Errorf(tool.CodeInvalidInput, "there is no %s %q%s", what, name, hint)})
		}
	}
	strayCallers := func(about, what string, names tool.Globs, known ...string) {
		known = append(known, people...)
		for _, g := range names {
			if name := string(g); g.Plain() && !slices.Contains(known, name) && nearest.Hint(name, known) == "" {
				unsure = append(unsure, Problem{about, fmt.Errorf("the config has no %s %q; only a token can give a caller "+
					"that name", what, name)})
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
	for spec := range n.engine.Specs(n.life, tool.Principal{ID: identity.Local}) {
		if spec != nil && spec.Name != "" {
			names = append(append(names, spec.Name, spec.Ref().String()), spec.Aliases...)
		}
	}
	return names
}
