package policy

import (
	"slices"

	"toolpost/tool"
)

// A Scope is what the rules leave to one call of the files that it comes to.
type Scope struct {
	call *tool.Call
	dir  string // of the config
	deny []*Rule
	// For each command of the call the rules that allow it, of which one has to allow a file too: two rules,
	// one for the command and another for the file, do not add up to one that allows both. A call without
	// commands has one list, of all rules that allow. Nil: what is not denied is allowed.
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
	onFile := func(r *Rule) bool { return r.onFile(abs, write) }
	if i := slices.IndexFunc(s.deny, onFile); i >= 0 {
		return Decision{Rule: s.deny[i].Name, Reason: s.deny[i].why("denies it"), Path: abs}
	}
	return s.granted(abs, onFile)
}

// granted looks in each list for a rule that allows something.
func (s *Scope) granted(path string, allows func(*Rule) bool) Decision {
	d := Decision{Allowed: true, Rule: byDefault, Reason: undenied}
	for _, rules := range s.allow {
		i := slices.IndexFunc(rules, allows)
		if i < 0 {
			return unlisted(path, nil)
		}
		d.Rule, d.Reason = rules[i].Name, rules[i].why("allows it")
	}
	return d
}

// allowed looks for rules that allow everything that a call touches, and keeps them for what it comes to.
func (s *Scope) allowed(rules []*Rule, t tool.Touches) (d Decision) {
	for _, argv := range t.Commands {
		able := those(rules, func(r *Rule) bool { return r.onCommand(argv) })
		if able == nil {
			return unlisted("", argv)
		}
		s.allow = append(s.allow, able)
	}
	if s.allow == nil {
		s.allow = [][]*Rule{those(rules, func(r *Rule) bool { return r.Commands == nil })}
	}
	if len(t.Reads)+len(t.Writes) == 0 { // a rule about files does not speak of a call that names none
		return s.granted("", func(r *Rule) bool { return !r.aboutPaths() })
	}
	for i, list := range [][]string{t.Writes, t.Reads} {
		for _, path := range list {
			if d = s.path(path, i == 0); !d.Allowed {
				return d
			}
		}
	}
	return d
}

// undenied is why a call is allowed that no rule speaks of.
const undenied = "no rule denies it"

func unlisted(path string, command []string) Decision {
	return Decision{Rule: byDefault, Reason: "no rule of the policy allows it", Path: path, Command: command}
}
