package approval

import (
	"slices"

	"toolpost/config"
	"toolpost/tool"
)

// A Standing approval is an entry of the config: these calls run without an approver, although these rules ask. An operator
// who approves a call with `always` writes one.
type Standing struct {
	Caller string   `yaml:"caller" doc:"the caller, by its full name"`
	Tool   string   `yaml:"tool" doc:"the tool, as source.name"`
	Rules  []string `yaml:"rules" doc:"the rules that no longer ask, each as name@digest; an entry ends when the rule changes"`
}

// Section is the part of the config that the stage reads.
func Section() config.Part {
	return config.Part{
		Name: "approved", Doc: "calls that run although a rule asks; approving a call with `always` adds an entry", Options: []Standing{},
	}
}

// Read reads the entries of a config; apply switches to them.
func (s *Approvals) Read(cfg *config.Config) (apply func(), err error) {
	var list []Standing
	err = cfg.Section(Section().Name).Decode(&list)
	return func() { s.always.Store(&list) }, err
}

// ruleDigest is how much of a rule's digest an entry has: enough to notice that the rule has changed.
const ruleDigest = 12

// mark names a rule in an entry.
func mark(r tool.ConsentRule) string { return r.Name + "@" + r.About[:min(len(r.About), ruleDigest)] }

// standing returns the entry for calls as that of an approval.
func (e *Entry) standing() Standing {
	one := Standing{Caller: e.Caller, Tool: e.Ref}
	for _, r := range e.Rules {
		one.Rules = append(one.Rules, mark(r))
	}
	return one
}

// Fields are the entry as it is written.
func (s Standing) Fields() config.Fields {
	return config.Fields{{Name: "caller", Value: s.Caller}, {Name: "tool", Value: s.Tool}, {Name: "rules", Value: s.Rules}}
}

// stands returns an approval by the config that covers a call, or nil. A name that an agent gave itself is not enough.
func (s *Approvals) stands(c *tool.Call) *Entry {
	all := s.always.Load()
	if all == nil || tool.SelfNamed(c.Caller.ID) {
		return nil
	}
	for _, one := range *all {
		open := func(r tool.ConsentRule) bool {
			return !slices.Contains(r.Remember, ForAlways) || !slices.Contains(one.Rules, mark(r))
		}
		if one.Caller == c.Caller.ID && one.Tool == refOf(c).String() && !slices.ContainsFunc(c.Consent.Rules, open) {
			return &Entry{Approval: Approval{State: Approved, Ruling: Ruling{By: Section().Name, For: ForAlways}}}
		}
	}
	return nil
}

// Stands reports whether the config approves a call that these rules ask about.
func (s *Approvals) Stands(c tool.Call, rules []tool.ConsentRule) bool {
	c.Consent = &tool.Consent{Rules: rules}
	return s.stands(&c) != nil
}

// shownTo returns an approval as an approver sees it: with what it may decide.
func (s *Approvals) shownTo(p tool.Principal, e Entry) Approval {
	if e.State = e.At(s.o.Now()); e.State != Waiting {
		return e.Approval
	}
	e.Ways = append([]string{ForCall}, e.ways()...)
	if p.Operator() && s.o.Config != "" && slices.Contains(e.Ways, ForAlways) {
		e.Always, e.Config = "- "+e.standing().Fields().Flow(), s.o.Config
	} else {
		e.Ways = slices.DeleteFunc(e.Ways, func(way string) bool { return way == ForAlways })
	}
	return e.Approval
}
