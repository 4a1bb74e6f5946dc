package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// An Explanation is the policy's decision about a call, and how each of its rules applies to it.
type Explanation struct {
	Tool    string `json:"tool"`
	Caller  string `json:"caller"`
	Door    string `json:"door"`
	Visible bool   `json:"visible"`           // whether the caller may know of the tool; if not, it is not found
	Depends bool   `json:"depends,omitempty"` // on the arguments, and none were given
	Decision
	Rules []Finding `json:"rules"` // in the order of the config
}

// A Finding is how one rule applies to a call.
type Finding struct {
	Rule    string `json:"rule"`
	Effect  Effect `json:"effect"`
	Matched bool   `json:"matched"`
	Why     string `json:"why"` // which field does not match, or that all do
}

// Explain judges a call as it would be judged at a time, and explains the result. The call must have been checked as the
// engine does, so that the explanation is what would happen. Without arguments it reports only what is certain.
func (j *Judge) Explain(c *tool.Call, at time.Time) Explanation {
	in := &input{call: c, spec: j.spec, now: at}
	hidden := j.Hidden(c.Caller)
	x := Explanation{
		Tool: j.spec.Name, Caller: c.Caller.ID, Door: c.Caller.Door, Visible: hidden == nil, Rules: []Finding{},
	}
	if hidden != nil && hidden.Rule == ByRights {
		x.Decision = *hidden
		return x
	}
	unfit := j.touch(in, c.Args != nil)
	if unfit != nil && in.touches.None() {
		x.Decision = byTool(unfit)
		return x
	}
	x.find(j, in)
	if c.Args == nil {
		j = j.certain()
	}
	if x.Depends = x.Depends && x.Visible; x.Depends {
		x.Decision = Decision{Rule: byDefault, Reason: onArguments}
		return x
	}
	x.Decision, _ = j.decide(in)
	if x.Allowed && unfit != nil {
		x.Decision = byTool(unfit)
		return x
	}
	x.Touches = in.touches
	return x
}

// certain returns a judge with only the rules that do not depend on arguments.
func (j *Judge) certain() *Judge {
	sure := *j
	certain := func(r *Rule) bool { return !r.onArguments() }
	sure.deny, sure.ask, sure.allow = those(j.deny, certain), those(j.ask, certain), those(j.allow, certain)
	return &sure
}

// onArguments reports whether a match of the rule depends on the arguments of a call.
func (r *Rule) onArguments() bool { return r.When.run != nil || r.Commands != nil || r.aboutPaths() }

// find collects the finding of each rule.
func (x *Explanation) find(j *Judge, in *input) {
	for _, r := range j.policy.rules {
		f := r.find(j, in)
		x.Depends = x.Depends || f.Why == onArguments
		x.Rules = append(x.Rules, f)
	}
	if j.policy.guards(j.spec, j.toucher) { // of interest only if it decides
		if f := j.policy.guard.find(j, in); f.Matched {
			x.Rules = append(x.Rules, f)
		}
	}
}

const onArguments = "it depends on the arguments"

func (r *Rule) find(j *Judge, in *input) Finding {
	f := Finding{Rule: r.Name, Effect: r.Effect, Why: r.missCall(j, in)}
	switch {
	case f.Why != "":
	case in.call.Args == nil && r.onArguments():
		f.Why = onArguments
	default:
		f.Why = r.missTouches(in)
	}
	if f.Matched = f.Why == ""; f.Matched {
		f.Why = r.why("matches")
	}
	return f
}

// missCall returns which field that does not depend on arguments fails to match, or "".
func (r *Rule) missCall(j *Judge, in *input) string {
	p := in.call.Caller
	switch {
	case !r.Sources.Match(j.spec.Source):
		return fmt.Sprintf("source %q is not one of %s", j.spec.Source, r.Sources)
	case !r.onTier(j.spec.Tier):
		return fmt.Sprintf("tier %d is not one of its tiers", j.spec.Tier)
	case !r.speaksOf(j.spec):
		return fmt.Sprintf("tool %q is not one of %s", j.spec.Name, r.Tools)
	case !r.names(p):
		return fmt.Sprintf("caller %q is not one of %s", p.ID, r.Callers)
	case !r.Roles.Match(p.Roles()...):
		return fmt.Sprintf("caller %q has none of the roles %s", p.ID, r.Roles)
	case !r.Doors.Match(p.Door):
		return fmt.Sprintf("door %q is not one of %s", p.Door, r.Doors)
	case r.Time != nil && !r.Time.holds(in.now):
		return "it is not the time"
	}
	return ""
}

// missTouches returns which of the other fields fails to match, or "".
func (r *Rule) missTouches(in *input) string {
	if r.When.run != nil {
		switch holds, err := r.When.holds(in); {
		case err != nil:
			return fmt.Sprintf("its condition cannot be decided, which refuses the call: %v", err)
		case !holds:
			return "its condition does not hold: " + r.When.text
		}
	}
	if r.Effect == Deny || r.Effect == Ask {
		if _, hit := r.denies(in.touches); hit {
			return ""
		}
		return "the call touches none of its files and commands"
	}
	if r.Effect == Confine {
		return ""
	}
	if d := new(Scope).allowed([]*Rule{r}, in.touches); !d.Allowed {
		return "the call touches something else than its files and commands"
	}
	return ""
}

// MaxRecord limits a line of the record, in bytes; arguments that would make it longer are left out.
const MaxRecord = 64 << 10

// A Record is a line of the file that policy.record names: a call and the decision about it. The arguments are those of
// the call, without the values of secrets: a replay judges them.
type Record struct {
	Time     time.Time       `json:"time"`
	Caller   string          `json:"caller"`
	Door     string          `json:"door"`
	Session  string          `json:"session,omitempty"`
	Tool     string          `json:"tool"`
	Args     json.RawMessage `json:"args,omitzero"` // absent if they were too long
	Decision Effect          `json:"decision"`
	Rule     string          `json:"rule"`
}

// record adds a line. A failure to write it harms a later replay, but is no reason to refuse the call. The file is
// opened for each line, so that it can be moved away at any time.
func (p *Policy) record(in *input, d Decision) {
	r := Record{
		Time: in.now.UTC(), Caller: in.call.Caller.ID, Door: in.call.Caller.Door, Session: in.call.Session,
		Tool: in.spec.Name, Args: in.call.Args, Decision: d.Effect(), Rule: d.Rule,
	}
	if p.env.Redact != nil {
		r.Args = p.env.Redact(r.Args)
	}
	if err := appendLine(p.o.Record, r); err != nil {
		p.env.Log.Error("a judged call was not recorded", "tool", in.spec.Name, "error", err)
	}
}

func appendLine(path string, r Record) error {
	if len(r.Args) > MaxRecord-4096 {
		r.Args = nil
	}
	line, err := strictjson.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n')) // in one write: several processes may add lines
	return errors.Join(err, f.Close())
}

// ParseRecord parses a line of a record.
func ParseRecord(line []byte) (Record, error) {
	var r Record
	if err := strictjson.Unmarshal(line, &r); err != nil {
		return Record{}, tool.Errorf(tool.CodeInvalidInput, "not a record: %w", err)
	}
	if r.Tool == "" || r.Decision != Allow && r.Decision != Ask && r.Decision != Deny {
		return Record{}, tool.Errorf(tool.CodeInvalidInput,
			"not a record: it has no tool, or no decision that is allow, ask or deny")
	}
	return r, nil
}
