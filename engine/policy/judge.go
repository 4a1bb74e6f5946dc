package policy

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// maxTouches limits what one call may touch by name, so that judging it stays fast.
const maxTouches = 4096

// A Judge is the policy for one tool: the rules that can match it.
type Judge struct {
	policy  *Policy
	spec    *tool.Spec
	toucher tool.Toucher // nil if the tool's runner cannot predict what it touches
	deny    []*Rule
	ask     []*Rule
	allow   []*Rule // with default deny also the rules that ask: what is approved is allowed
	confine []*Rule
	strict  bool // what no rule allows is refused
	idle    bool // there is nothing to decide
	touches bool // a rule depends on what the call touches
	paths   bool // a rule is about files
}

// For returns the judge of a tool. toucher may be nil.
func (p *Policy) For(spec *tool.Spec, toucher tool.Toucher) *Judge {
	p = cmp.Or(p, &Policy{env: Env{Now: time.Now}})
	j := &Judge{policy: p, spec: spec, toucher: toucher, strict: Effect(p.o.Default) == Deny}
	for _, r := range p.rules {
		if r.speaksOf(spec) {
			j.add(r)
		}
	}
	if p.guards(spec, toucher) {
		j.add(p.guard)
	}
	j.idle = !j.strict && j.deny == nil && j.ask == nil && j.allow == nil && j.confine == nil && p.o.Limits.Arguments == 0 &&
		p.o.Record == ""
	return j
}

func (j *Judge) add(r *Rule) {
	switch r.Effect {
	case Deny:
		j.deny = append(j.deny, r)
	case Confine:
		j.confine = append(j.confine, r)
	case Ask:
		j.ask = append(j.ask, r)
		if granted := r.asAllow(); j.strict && granted.speaksOf(j.spec) {
			j.allow = append(j.allow, granted)
		}
	default:
		j.allow = append(j.allow, r)
	}
	j.paths = j.paths || r.aboutPaths()
	j.touches = j.touches || r.aboutPaths() || r.Commands != nil || r.When.touches
}

// Hidden returns why a caller may not know of the tool, or nil if it may. It is the part of the decision that depends
// only on caller, door and tool: a call of a tool that is not hidden may still be refused.
func (j *Judge) Hidden(p tool.Principal) *Decision {
	if !p.May(j.spec) {
		why := fmt.Sprintf("the roles and tools that the config gives %q leave it out", p.ID)
		return &Decision{Rule: ByRights, Reason: why}
	}
	if i := slices.IndexFunc(j.deny, func(r *Rule) bool { return r.always() && r.from(p) }); i >= 0 {
		d, _ := j.deny[i].denies(tool.Touches{})
		return &d
	}
	if j.strict && !slices.ContainsFunc(j.allow, func(r *Rule) bool { return r.from(p) }) {
		d := unlisted("", nil)
		return &d
	}
	return nil
}

// HidesAll reports whether a caller may know of no tool of a source, whatever tools it has.
func (p *Policy) HidesAll(who tool.Principal, source string) bool {
	if who.Rights != nil && !who.Rights.Tools.Reach(source) {
		return true
	}
	if p == nil {
		return false
	}
	every := func(r *Rule) bool {
		covers := func(t tool.Pattern) bool { return t.Covers(tool.Pattern(source + ".*")) }
		return r.Effect == Deny && r.always() && r.Tiers == nil && (r.Tools == nil || slices.ContainsFunc(r.Tools, covers))
	}
	some := func(r *Rule) bool { return (r.Effect == Allow || r.Effect == Ask) && r.Tools.Reach(source) }
	has := func(which func(*Rule) bool) bool {
		return slices.ContainsFunc(p.rules, func(r *Rule) bool { return which(r) && r.Sources.Match(source) && r.from(who) })
	}
	return has(every) || Effect(p.o.Default) == Deny && !has(some)
}

// A Decision is the policy's answer to a call.
type Decision struct {
	Allowed bool         `json:"allowed"`
	Rule    string       `json:"rule"` // the name of the rule that decided, or default, limits, config, tool or callers
	Reason  string       `json:"reason"`
	Path    string       `json:"path,omitempty"`    // the file that it is about
	Command []string     `json:"command,omitempty"` // the command that it is about
	Touches tool.Touches `json:"touches,omitzero"`  // as far as a rule needed it
	// Ask is the approval that the call needs before it runs, or nil. If it is set, Allowed means that the call may run
	// once it is approved.
	Ask *Asking `json:"ask,omitempty"`

	Guarantees tool.Guarantees `json:"guarantees,omitzero"` // that the call must keep, beside those of its tool
}

// An input is a call as it is judged.
type input struct {
	call    *tool.Call
	spec    *tool.Spec
	touches tool.Touches // including what it only may touch
	names   tool.Touches // what it certainly touches, to be reported
	now     time.Time
	args    any // decoded from the call when a condition uses them
}

// Stage is the tool.Middleware. It passes on exactly what it judged, byte for byte.
func (j *Judge) Stage(next tool.Handler) tool.Handler {
	return tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
		if j.idle && !c.DryRun && c.Consent == nil {
			c.Record.Judged(string(Allow), byDefault)
			return next.Invoke(ctx, c, out)
		}
		d, scope, err := j.judge(c)
		c.Record.Judged(string(d.Effect()), d.Rule)
		switch {
		case c.DryRun:
			return dryRun(d)
		case err != nil:
			return nil, err
		case scope != nil || len(d.Guarantees.Asked()) > 0 || d.Ask != nil || c.Consent != nil:
			c = j.kept(c, scope, d)
		}
		return next.Invoke(ctx, c, out)
	})
}

// kept returns a call within a scope and behind walls. They belong to the call: its spec stays the published one, which
// a later stage may restore.
func (j *Judge) kept(c *tool.Call, s *Scope, d Decision) *tool.Call {
	within := *c
	if s != nil {
		within.Scope = both(c.Scope, s)
	}
	within.Guarantees = c.Guarantees.Tighten(d.Guarantees)
	within.Consent = d.Ask.consent(d.Touches) // whatever the call came with: it may be a copy of another call
	if reads, ok := j.toucher.(tool.Previewer); ok && within.Consent != nil {
		within.Consent.Preview = func(path string, limit int64) ([]byte, error) { return reads.Preview(&within, path, limit) }
	}
	return &within
}

// dryRun returns the result of a call that was only judged.
func dryRun(d Decision) (*tool.Result, error) {
	out, err := strictjson.Marshal(struct {
		DryRun bool `json:"dry_run"`
		Decision
	}{true, d})
	if err != nil {
		return nil, tool.Errorf(tool.CodeInternal, "the decision cannot be written as JSON: %w", err)
	}
	return &tool.Result{OK: true, Output: out}, nil
}

// judge decides about a call, and returns an error if it is refused.
func (j *Judge) judge(c *tool.Call) (Decision, *Scope, error) {
	in := &input{call: c, spec: j.spec, now: j.policy.env.Now()}
	unfit := j.touch(in, j.touches || c.DryRun || j.ask != nil)
	if unfit != nil && in.touches.None() {
		return byTool(unfit), nil, unfit
	}
	d, scope := j.decide(in)
	if d.Allowed && unfit != nil {
		return byTool(unfit), nil, unfit
	}
	if d.Allowed {
		j.tighten(in, &d)
	}
	d.Touches = in.names
	if j.policy.o.Record != "" && !c.DryRun {
		j.policy.record(in, d)
	}
	if d.Allowed {
		return d, scope, nil
	}
	return d, nil, d.Refusal(c, j.policy.env.Dir)
}

// touch asks the runner what the call is going to touch. If that fails, the call is refused.
func (j *Judge) touch(in *input, wanted bool) error {
	if !wanted || j.toucher == nil {
		return nil
	}
	t, unfit := j.toucher.Touches(in.call)
	all := t.Judged()
	if n := len(all.Reads) + len(all.Writes) + len(all.Commands); n > maxTouches {
		return tool.Errorf(tool.CodeInvalidInput,
			"%s names %d files and commands at once; more than %d cannot be judged", in.call.Tool, n, maxTouches)
	}
	t.MayRead, t.MayWrite = nil, nil
	in.touches, in.names = all, t
	return unfit
}

// byTool is the decision of a tool that refuses a call itself.
func byTool(err error) Decision { return Decision{Rule: ByTool, Reason: tool.AsError(err).Message} }

// decide applies the policy. The scope is for the files that the call opens by itself.
func (j *Judge) decide(in *input) (Decision, *Scope) {
	if most := j.policy.o.Limits.Arguments; most > 0 && int64(len(in.call.Args)) > most {
		reason := fmt.Sprintf("its arguments are %d bytes long, and %d are allowed", len(in.call.Args), most)
		return Decision{Rule: byLimits, Reason: reason}, nil
	}
	deny, unclear := live(j.deny, in)
	for _, r := range deny {
		if d, hit := r.denies(in.touches); hit {
			return d, nil
		}
	}
	ask, unclearAsk := live(j.ask, in)
	allow, unclearToo := live(j.allow, in)
	if d := cmp.Or(unclear, unclearAsk, unclearToo); d != nil {
		return *d, nil
	}
	d := Decision{Allowed: true, Rule: byDefault, Reason: undenied}
	asking, silent := asked(ask, in.touches)
	if !j.strict && !j.paths {
		return asking.of(d), nil
	}
	s := &Scope{call: in.call, dir: j.policy.env.Dir}
	// A rule that asks about files, but does not match this call, denies those files: they have not been approved.
	s.deny = those(slices.Concat(deny, silent), func(r *Rule) bool {
		return r.aboutPaths() && (r.Commands == nil || r.anyCommand(in.touches) != nil)
	})
	if j.strict {
		d = s.allowed(allow, in.touches)
	}
	if d.Allowed {
		d = asking.of(d)
	}
	if !d.Allowed || !j.paths {
		return d, nil
	}
	return d, s
}

// tighten adds the guarantees of the rules that confine the call.
func (j *Judge) tighten(in *input, d *Decision) {
	rules, unclear := live(j.confine, in)
	if unclear != nil {
		*d = *unclear
		return
	}
	for _, r := range rules {
		d.Guarantees = d.Guarantees.Tighten(r.Guarantees)
	}
}

// live returns the rules that match everything but files and commands. A condition that cannot be decided refuses the
// call, whatever the effect of its rule.
func live(rules []*Rule, in *input) (out []*Rule, unclear *Decision) {
	for _, r := range rules {
		if !r.from(in.call.Caller) || r.Time != nil && !r.Time.holds(in.now) {
			continue
		}
		if r.When.run != nil {
			holds, err := r.When.holds(in)
			if err != nil && unclear == nil {
				unclear = &Decision{
					Rule: r.Name, Reason: fmt.Sprintf("the condition of rule %q cannot be decided: %v", r.Name, err),
				}
			}
			if err != nil || !holds {
				continue
			}
		}
		out = append(out, r)
	}
	return out, unclear
}

// denies reports whether a live rule refuses what the call touches, and because of which file or command.
func (r *Rule) denies(t tool.Touches) (Decision, bool) {
	d := Decision{Rule: r.Name, Reason: r.why("denies it")}
	if r.Commands != nil {
		if d.Command = r.anyCommand(t); d.Command == nil {
			return d, false
		}
	}
	if r.aboutPaths() {
		path, ok := r.anyPath(t)
		if d.Path = path; !ok {
			return d, false
		}
	}
	return d, true
}

func (r *Rule) anyCommand(t tool.Touches) []string {
	if i := slices.IndexFunc(t.Commands, r.onCommand); i >= 0 {
		return t.Commands[i]
	}
	return nil
}

func (r *Rule) anyPath(t tool.Touches) (string, bool) {
	for i, list := range [][]string{t.Writes, t.Reads} {
		for _, path := range list {
			if r.onFile(path, i == 0) {
				return path, true
			}
		}
	}
	return "", false
}

// those returns the rules for which holds returns true.
func those(rules []*Rule, holds func(*Rule) bool) (out []*Rule) {
	for _, r := range rules {
		if holds(r) {
			out = append(out, r)
		}
	}
	return out
}

// why returns the reason in the rule, or names the rule as the reason.
func (r *Rule) why(verb string) string {
	if r.Reason != "" {
		return fmt.Sprintf("%s (rule %q)", r.Reason, r.Name)
	}
	return fmt.Sprintf("rule %q %s", r.Name, verb)
}

// Refusal returns the error of a refused call. It names the refused thing as the caller wrote it; dir is the folder of
// the config.
func (d Decision) Refusal(c *tool.Call, dir string) *tool.Error {
	format, subject, reason := "%s is not allowed: %s", c.Tool, "policy"
	switch {
	case d.Path != "":
		subject = asWritten(d.Path, c, dir)
	case d.Command != nil: // the words of the Singularity contract, which its door passes on as they are
		format = "Command '%s' is not allowed by security policy: %s"
		subject, reason = filepath.Base(d.Command[0]), "command_denied"
	}
	e := tool.Errorf(tool.CodeAccessDenied, format, subject, d.Reason).Because(reason)
	e.Details, _ = strictjson.Marshal(map[string]any{"rule": d.Rule})
	return e
}

// asWritten returns the argument that a path comes from. A path that comes from none is shown relative to the folder of
// the config: the caller must not learn where that is on the machine.
func asWritten(abs string, c *tool.Call, dir string) string {
	best := ""
	if v, err := strictjson.Decode(c.Args); err == nil {
		eachText(v, func(s string) {
			named := filepath.Clean("/" + s)
			if len(s) > len(best) && (abs == named || strings.HasSuffix(abs, named)) {
				best = s
			}
		})
	}
	if below, ok := strings.CutPrefix(abs, strings.TrimSuffix(dir, "/")+"/"); ok && best == "" {
		return below
	}
	return cmp.Or(best, abs)
}

func eachText(v any, visit func(string)) {
	switch v := v.(type) {
	case string:
		visit(v)
	case []any:
		for _, e := range v {
			eachText(e, visit)
		}
	case map[string]any:
		for _, e := range v {
			eachText(e, visit)
		}
	}
}
