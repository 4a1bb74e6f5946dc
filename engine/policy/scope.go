package policy

import (
	"encoding/json"
	"slices"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// A Scope is the part of the files that the rules leave to one call.
type Scope struct {
	call *tool.Call
	dir  string // of the config
	deny []*Rule
	// For each command of the call, the rules that allow it; one of them has to allow a file too. Two rules, one for the
	// command and another for the file, do not add up to one that allows both. A call without commands has one list, of
	// all rules that allow. Nil means that everything is allowed that is not denied.
	allow [][]*Rule
}

var _ tool.Scope = (*Scope)(nil)

// Path implements tool.Scope.
func (s *Scope) Path(abs string, write bool) error {
	if d := s.path(abs, write); !d.Allowed {
		return d.Refusal(s.call, s.dir)
	}
	return nil
}

func (s *Scope) path(abs string, write bool) Decision {
	onFile := func(r *Rule) bool { return r.onFile(abs, write) }
	if i := slices.IndexFunc(s.deny, onFile); i >= 0 {
		return Decision{Rule: s.deny[i].Name, Reason: s.deny[i].why(denying[s.deny[i].Effect]), Path: abs}
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

// allowed finds rules that allow everything that a call touches, and keeps them for the files that it opens later.
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
	if len(t.Reads)+len(t.Writes) == 0 { // a rule about files does not match a call that names none
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

// undenied is why a call is allowed that no rule matches.
const undenied = "no rule denies it"

func unlisted(path string, command []string) Decision {
	return Decision{Rule: byDefault, Reason: "no rule of the policy allows it", Path: path, Command: command}
}

// both returns the files that two scopes leave. The first is nil, or that of a hub whose call runs here.
func both(given, own tool.Scope) tool.Scope {
	if given == nil {
		return own
	}
	return scopes{given, own}
}

// scopes leave the files that each of them leaves.
type scopes []tool.Scope

// Path implements tool.Scope.
func (s scopes) Path(abs string, write bool) error {
	for _, one := range s {
		if err := one.Path(abs, write); err != nil {
			return err
		}
	}
	return nil
}

// A sentRule is the part of a rule that a scope needs, on its way to the machine that opens the files.
type sentRule struct {
	Name   string   `json:"name"`
	Effect Effect   `json:"effect"`
	Reason string   `json:"reason,omitempty"`
	Access Access   `json:"access,omitempty"`
	Paths  []string `json:"paths,omitzero"`
}

func send(rules []*Rule) []sentRule {
	sent := make([]sentRule, 0, len(rules))
	for _, r := range rules {
		one := sentRule{Name: r.Name, Effect: r.Effect, Reason: r.Reason, Access: r.Access}
		for _, g := range r.Paths {
			one.Paths = append(one.Paths, g.text)
		}
		sent = append(sent, one)
	}
	return sent
}

func received(sent []sentRule) (rules []*Rule, err error) {
	rules = make([]*Rule, 0, len(sent))
	for _, one := range sent {
		r := &Rule{Name: one.Name, Effect: one.Effect, Reason: one.Reason, Access: one.Access}
		for _, text := range one.Paths {
			var g PathGlob
			if err := g.UnmarshalText([]byte(text)); err != nil {
				return nil, err
			}
			r.Paths = append(r.Paths, g)
		}
		rules = append(rules, r)
	}
	return rules, nil
}

// A sentScope is a scope on its way to the machine that opens the files.
type sentScope struct {
	Deny  []sentRule   `json:"deny"`
	Allow [][]sentRule `json:"allow,omitzero"` // absent: everything that is not denied
}

// MarshalJSON implements json.Marshaler.
func (s *Scope) MarshalJSON() ([]byte, error) {
	out := sentScope{Deny: send(s.deny)}
	for _, rules := range s.allow {
		out.Allow = append(out.Allow, send(rules))
	}
	return json.Marshal(out)
}

// ReceiveScope reads the scope of a call, as another machine wrote it.
func ReceiveScope(b []byte, c *tool.Call) (*Scope, error) {
	var in sentScope
	err := strictjson.UnmarshalClosed(b, &in)
	s := &Scope{call: c}
	if err == nil {
		s.deny, err = received(in.Deny)
	}
	for _, rules := range in.Allow {
		list, bad := received(rules)
		if err == nil {
			err = bad
		}
		s.allow = append(s.allow, list)
	}
	return s, err
}
