package policy

import "toolpost/tool"

// A Scope is what the rules leave to one call of the files that it comes to.
type Scope struct {
	call   *tool.Call
	dir    string // of the config
	deny   []*Rule
	strict bool
	// For each command of the call the rules that allow it, of which one has to allow a file too: two rules,
	// one for the command and another for the file, do not add up to one that allows both. A call without
	// commands has one list, of all rules that allow.
	allow [][]*Rule
}

var _ tool.Scope = (*Scope)(nil)

// Path implements tool.Scope.
func (s *Scope) Path(abs string, write bool) error {
	if d := s.path(abs, write); !d.Allowed {
		return d.refusal(s.call, s.dir)
	}
	return nil
}

func (s *Scope) path(abs string, write bool) Decision {
	for _, r := range s.deny {
		if r.hits(abs, write) {
			return Decision{Rule: r.Name, Reason: r.why("denies it"), Path: abs}
		}
	}
	d := Decision{Allowed: true, Rule: byDefault, Reason: undenied}
	if !s.strict {
		return d
	}
	for _, rules := range s.allow {
		r := covering(rules, abs, write)
		if r == nil {
			return unlisted(abs, nil)
		}
		d.Rule, d.Reason = r.Name, r.why("allows it")
	}
	return d
}

func covering(rules []*Rule, abs string, write bool) *Rule {
	for _, r := range rules {
		if r.covers(abs, write) {
			return r
		}
	}
	return nil
}

// allowed looks for rules that allow everything that a call touches, and keeps them for what it comes to.
func (s *Scope) allowed(rules []*Rule, t tool.Touches) Decision {
	d := Decision{Allowed: true, Rule: byDefault, Reason: undenied}
	if !s.strict {
		return d
	}
	for _, argv := range t.Commands {
		var able []*Rule
		for _, r := range rules {
			if r.Commands == nil || r.Commands.match(argv, false) {
				able = append(able, r)
			}
		}
		if able == nil {
			return unlisted("", argv)
		}
		s.allow = append(s.allow, able)
	}
	if s.allow == nil {
		s.allow = [][]*Rule{withoutCommands(rules)}
	}
	for i, list := range [][]string{t.Writes, t.Reads} {
		for _, path := range list {
			if d = s.path(path, i == 0); !d.Allowed {
				return d
			}
		}
	}
	if len(t.Reads)+len(t.Writes) > 0 {
		return d
	}
	return s.touchless()
}

// touchless decides about a call that names no file: a rule about files does not speak of it.
func (s *Scope) touchless() (d Decision) {
	for _, rules := range s.allow {
		d = unlisted("", nil)
		for _, r := range rules {
			if !r.aboutPaths() {
				d = Decision{Allowed: true, Rule: r.Name, Reason: r.why("allows it")}
				break
			}
		}
		if !d.Allowed {
			return d
		}
	}
	return d
}

// withoutCommands leaves out the rules that speak of commands, for a call that names none.
func withoutCommands(rules []*Rule) (out []*Rule) {
	for _, r := range rules {
		if r.Commands == nil {
			out = append(out, r)
		}
	}
	return out
}

// undenied is why a call is allowed that no rule speaks of.
const undenied = "no rule denies it"

func unlisted(path string, command []string) Decision {
	return Decision{Rule: byDefault, Reason: "no rule of the policy allows it", Path: path, Command: command}
}
