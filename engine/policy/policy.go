// Package policy is the stage that decides which caller may call what: one set of rules for every tool and every door. A
// rule that denies wins over every other, and a rule that asks for an approval over those that allow, whatever their
// order; a call that cannot be decided is refused.
package policy

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"toolpost/config"
	"toolpost/tool"
	"toolpost/wire/nearest"
)

// Options is the policy section of a config. The zero value allows everything.
type Options struct {
	Default Fallback `yaml:"default" schema:"enum=allow|deny default=allow" doc:"what happens to a call that no rule decides"`
	Rules   []Rule   `yaml:"rules" doc:"deny wins over ask, and ask over allow; the order does not matter"`
	Limits  Limits   `yaml:"limits" doc:"limits that apply to every call"`
	Record  string   `yaml:"record" kind:"path" doc:"file to append every judged call to, as a line of JSON with its arguments, secrets redacted; for 'toolpost policy replay'"`
}

// A Rule applies to the calls that match all of its fields. An unset field matches everything.
type Rule struct {
	Name     string        `yaml:"name" doc:"name of the rule in messages; a rule that asks may have none"`
	Effect   Effect        `yaml:"effect" schema:"enum=allow|ask|deny|confine" doc:"allow the call, ask for an approval, deny it, or confine it: run it behind more walls"`
	Callers  tool.Globs    `yaml:"callers" doc:"who calls, such as owner, local or ci-*"`
	Roles    tool.Globs    `yaml:"roles" doc:"roles of the caller; one match is enough"`
	Doors    tool.Globs    `yaml:"doors" doc:"where the call came in: cli, http, nats, or a protocol's name"`
	Tools    tool.Patterns `yaml:"tools" doc:"tools by name or as source.name; a rule that asks, denies or confines also matches their aliases"`
	Sources  tool.Globs    `yaml:"sources" doc:"names of sources"`
	Tiers    Tiers         `yaml:"tiers" doc:"how dangerous the tool is, such as 2 or '>= 2'; in a list, one match is enough"`
	Paths    PathGlobs     `yaml:"paths" doc:"files that the call reads or writes; an allow rule must match all of them, one that asks or denies one of them or a folder above it"`
	Access   Access        `yaml:"access" schema:"enum=read|write" doc:"limit paths to files that are read, or to files that are written; default: both"`
	Commands Commands      `yaml:"commands" doc:"commands that the call runs: a pattern for each word, ** for the rest; an allow rule must match all commands, one that asks or denies one of them, whatever follows"`
	Time     *Window       `yaml:"time" doc:"when the call is made"`
	When     Condition     `yaml:"when" doc:"a CEL condition, such as size(args.content) > 1000; if it cannot be evaluated the call is refused"`
	Reason   string        `yaml:"reason" doc:"reason, shown to the refused caller"`

	Approvers tool.Globs      `yaml:"approvers" schema:"default=owner" doc:"with effect ask: who may approve the call, by role or name; owner and local have the role owner"`
	Self      bool            `yaml:"self" doc:"with effect ask: approvers may approve their own calls"`
	Timeout   config.Duration `yaml:"timeout" schema:"default=15m" doc:"with effect ask: how long they may take; no answer in time is a refusal"`
	Remember  Ways            `yaml:"remember" doc:"with effect ask: the ways in which an approval may be remembered: session, arguments, hour; an empty list: none; default: all"`

	Guarantees tool.Guarantees `yaml:"guarantees" doc:"with effect confine: what the call must not be able to do; if that cannot be enforced the call is refused"`
}

// Limits apply to every call.
type Limits struct {
	Arguments int64 `yaml:"arguments" kind:"bytes" doc:"bytes of a call's arguments; default: the door's own limit"`
}

// The names in a decision that no rule made.
const (
	byDefault = "default"
	byLimits  = "limits"
	byConfig  = "config"
	// ByTool: the tool itself refuses to touch what the call names.
	ByTool = "tool"
	// ByRights: the caller's rights exclude the tool, before any rule applies.
	ByRights = "callers"
)

// Validate implements config's validator.
func (r *Rule) Validate() error {
	switch {
	case r.Name == "" && r.Effect != Ask:
		return errors.New("a rule has no name; give it one, such as `name: no-secrets`")
	case slices.Contains([]string{byDefault, byLimits, byConfig, ByTool}, r.Name):
		return fmt.Errorf("a rule cannot be called %q: that is what decisions without a rule are called", r.Name)
	case r.Effect == "":
		return fmt.Errorf("rule %q does not say its effect: allow, ask, deny or confine", r.Name)
	case (r.Effect == Confine) != (len(r.Guarantees.Asked()) > 0):
		return fmt.Errorf("rule %q: effect confine and guarantees belong together, such as "+
			"`effect: confine, guarantees: {no_network: true}`", r.Name)
	case r.Effect == Confine && (r.Paths != nil || r.Access != "" || r.Commands != nil):
		return fmt.Errorf("rule %q: paths, access and commands cannot be confined; say who calls which tool, and when",
			r.Name)
	}
	if err := r.checkAsking(); err != nil {
		return err
	}
	if list := config.EmptyList(r, "remember"); list != "" {
		return fmt.Errorf("rule %q: %s is an empty list and would match nothing; leave it out to match everything",
			cmp.Or(r.Name, string(Ask)), list)
	}
	return nil
}

// Validate implements config's validator.
func (o *Options) Validate() error {
	o.nameRules()
	seen := map[string]bool{}
	for _, r := range o.Rules {
		switch {
		case seen[r.Name]:
			return fmt.Errorf("two rules are called %q; give one of them another name", r.Name)
		case r.Effect == Allow && Effect(o.Default) != Deny:
			return fmt.Errorf("rule %q allows what is allowed anyway; say `default: deny`, or leave the rule out",
				r.Name)
		}
		seen[r.Name] = true
	}
	if o.Limits.Arguments < 0 {
		return errors.New("limits: arguments cannot be negative")
	}
	return nil
}

// An Effect is what a rule does.
type Effect string

// The effects.
const (
	Allow   Effect = "allow"
	Ask     Effect = "ask"
	Deny    Effect = "deny"
	Confine Effect = "confine"
)

// UnmarshalText implements encoding.TextUnmarshaler.
func (e *Effect) UnmarshalText(b []byte) error {
	if *e = Effect(b); !slices.Contains([]Effect{Allow, Ask, Deny, Confine}, *e) {
		return fmt.Errorf("expected allow, ask, deny or confine, got %q", b)
	}
	return nil
}

// A Fallback is the effect on calls that no rule decides.
type Fallback Effect

// UnmarshalText implements encoding.TextUnmarshaler.
func (f *Fallback) UnmarshalText(b []byte) error {
	if *f = Fallback(b); Effect(*f) != Allow && Effect(*f) != Deny {
		return fmt.Errorf("expected allow or deny, got %q", b)
	}
	return nil
}

// An Access is what is done to a file; empty means anything.
type Access string

// The two kinds of access.
const (
	Read  Access = "read"
	Write Access = "write"
)

// UnmarshalText implements encoding.TextUnmarshaler.
func (a *Access) UnmarshalText(b []byte) error {
	if *a = Access(b); *a != Read && *a != Write {
		return fmt.Errorf("expected read or write, got %q", b)
	}
	return nil
}

// Env is the environment of the rules. Every field is optional.
type Env struct {
	Dir     string           // the base of relative paths
	Config  []string         // files that no call may write, whatever the rules say: those that contain the rules
	Doors   []string         // the doors that can exist; nil means any
	Sources []string         // the sources that exist; nil means any
	Now     func() time.Time // nil means time.Now
	Log     *slog.Logger     // nil means no log
	// Redact removes secrets from recorded arguments; nil means that there are none.
	Redact func(json.RawMessage) json.RawMessage
}

// A Policy decides about calls. It is immutable; a nil Policy allows everything.
type Policy struct {
	o     Options
	env   Env
	rules []*Rule
	guard *Rule // keeps the config from being written; nil if there is nothing to keep
}

// New makes a policy. It owns the rules that it is given.
func New(o Options, env Env) (*Policy, error) {
	if env.Now == nil {
		env.Now = time.Now
	}
	env.Log = cmp.Or(env.Log, slog.New(slog.DiscardHandler))
	if o.Record != "" && !filepath.IsAbs(o.Record) {
		o.Record = filepath.Join(env.Dir, o.Record)
	}
	p := &Policy{o: o, env: env}
	for _, r := range o.Rules {
		if err := env.check(&r); err != nil {
			return nil, err
		}
		r.Paths = slices.Clone(r.Paths)
		for i, g := range r.Paths {
			r.Paths[i] = g.anchor(env.Dir)
		}
		p.rules = append(p.rules, &r)
	}
	p.guard = guard(env.Config)
	return p, nil
}

// guard returns the rule that no caller may write the config: a caller that can change it can do anything.
func guard(files []string) *Rule {
	if len(files) == 0 {
		return nil
	}
	r := &Rule{
		Name: byConfig, Effect: Deny, Access: Write, Reason: "it says what tools may do, and no tool may change it",
	}
	for _, file := range files {
		r.Paths = append(r.Paths, PathGlob{text: file, variants: [][]string{quoted(file)}}.anchor("/"))
	}
	return r
}

// guards reports whether a tool might write the config. Tools that only read are skipped to keep them fast.
func (p *Policy) guards(s *tool.Spec, toucher tool.Toucher) bool {
	return p.guard != nil && toucher != nil && !s.Effects.ReadOnly()
}

// check refuses unknown names: a rule that denies something that does not exist denies nothing.
func (env Env) check(r *Rule) error {
	err := cmp.Or(nearest.Check("door", r.Doors, env.Doors), nearest.Check("source", r.Sources, env.Sources))
	if err == nil && r.Effect == Allow { // a rule that denies also knows names and aliases with a dot
		if err = r.Tools.Check(env.Sources); err != nil {
			err = fmt.Errorf("tools: %w", err)
		}
	}
	if err != nil {
		return tool.Errorf(tool.CodeInvalidInput, "policy: rule %q: %w", r.Name, err)
	}
	return nil
}

// speaksOf reports whether a rule can match calls of a tool. An alias is a name that a source gives its own tool: enough
// to be denied, not enough to be allowed.
func (r *Rule) speaksOf(s *tool.Spec) bool {
	named := r.Tools.Match(s.Ref())
	if r.Effect != Allow {
		named = r.Tools.Mentions(s)
	}
	if r.Effect == Ask && decides(s) {
		return false
	}
	return named && r.Sources.Match(s.Source) && r.onTier(s.Tier)
}

func (r *Rule) onTier(tier int) bool {
	return r.Tiers == nil || slices.ContainsFunc(r.Tiers, func(t Tier) bool { return t.has(tier) })
}

// from reports whether a rule can match calls of this caller.
func (r *Rule) from(p tool.Principal) bool {
	return r.names(p) && r.Doors.Match(p.Door) && r.Roles.Match(p.Roles()...)
}

// names reports whether a rule names this caller, or no caller.
func (r *Rule) names(p tool.Principal) bool {
	if r.Effect == Allow {
		return p.Given(r.Callers)
	}
	return p.Concerns(r.Callers)
}

// always reports whether the rule depends only on caller, door and tool.
func (r *Rule) always() bool { return !r.onArguments() && r.Time == nil }

func (r *Rule) aboutPaths() bool { return r.Paths != nil || r.Access != "" }

// onFile reports whether a rule matches a file. For a rule that asks or denies it is enough to match a folder that
// contains the file.
func (r *Rule) onFile(abs string, write bool) bool {
	access := Read
	if write {
		access = Write
	}
	return (r.Access == "" || r.Access == access) && (r.Paths == nil ||
		slices.ContainsFunc(r.Paths, func(g PathGlob) bool { return g.match(abs, r.Effect != Allow) }))
}

// onCommand reports whether a rule matches a command. For a rule that asks or denies, further words do not matter.
func (r *Rule) onCommand(argv []string) bool {
	return r.Commands == nil ||
		slices.ContainsFunc(r.Commands, func(c Command) bool { return c.match(argv, r.Effect != Allow) })
}

// Section is the part of the config that the stage reads.
func Section() config.Part {
	return config.Part{Name: "policy", Doc: "who may call what; default: everything is allowed", Options: Options{}}
}

// Current holds the policy of the current config. Until one is applied, everything is allowed.
type Current struct {
	env Env
	now atomic.Pointer[Policy]
}

// NewCurrent makes a Current for configs whose rules are about env. The folder, the files and the sources are taken from
// each config.
func NewCurrent(env Env) *Current { return &Current{env: env} }

// Load returns the policy.
func (c *Current) Load() *Policy { return c.now.Load() }

// Read reads the policy of a config; apply switches to it.
func (c *Current) Read(cfg *config.Config) (apply func(), err error) {
	var o Options
	if err := cfg.Section(Section().Name).Decode(&o); err != nil {
		return nil, err
	}
	env := c.env
	env.Dir, env.Config, env.Sources = cfg.Dir, configFiles(cfg), cfg.RuleSources()
	p, err := New(o, env)
	return func() { c.now.Store(p) }, err
}

// configFiles lists the files that decide what tools may do, now or at the next start in this folder.
func configFiles(cfg *config.Config) []string {
	files := []string{filepath.Join(cfg.Dir, config.FileName)}
	if cfg.Path != "" && cfg.Path != files[0] {
		files = append(files, cfg.Path)
	}
	return files
}
