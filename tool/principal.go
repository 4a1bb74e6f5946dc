package tool

import (
	"slices"
	"strings"
)

// A Principal is a caller and the door it came through.
type Principal struct {
	ID     string  `json:"id"`
	Door   string  `json:"door"`
	Rights *Rights `json:"-"` // the limits of its access; nil if only policy limits it
	// Operates is set if the caller is an operator of this program. Only package identity sets it, by the credential
	// shown: neither an id nor the name of a door makes an operator, so a new door trusts no caller by default. It is
	// not a role of Rights, since those are the config's: no issuer of tokens can hand it out.
	Operates bool `json:"-"`
	// Process identifies the process of an agent, which the agent does not choose: an approval for the session of an agent
	// without one ends with it.
	Process string `json:"-"`
	// Proof identifies how package identity admitted this caller, so that it can be asked later whether that is still
	// valid. It is not the credential, and admits no caller that shows it at a door. If it is empty, there is nothing to
	// ask.
	Proof string `json:"-"`
}

// Rights restrict a caller to some tools. They only ever take away: policy decides about what they leave. They are
// shared and never changed.
type Rights struct {
	Roles []string // the roles that policy rules can ask for
	Tools Patterns // nil means all, empty means none
}

// May reports whether the caller's rights leave it the tool, to see and to call.
func (p Principal) May(s *Spec) bool {
	return p.Rights == nil || p.Rights.Tools.Match(s.Ref())
}

// Roles lists the caller's roles.
func (p Principal) Roles() []string {
	if p.Rights == nil {
		return nil
	}
	return p.Rights.Roles
}

// OwnerRole is the role of the operators of this program, whatever the config says of callers.
const OwnerRole = "owner"

// AgentPrefix begins the names of agents, and SelfPrefix the names that agents gave themselves. Such a name identifies
// the agent to people, and gives it nothing: see Is and Concerns.
const (
	AgentPrefix = "agent/"
	SelfPrefix  = AgentPrefix + "~"
)

// SelfNamed reports whether a caller is an agent whose name is what its client calls itself.
func SelfNamed(caller string) bool { return strings.HasPrefix(caller, SelfPrefix) }

// Is reports whether a list of names and roles, as written in a config, includes the caller; nil includes every caller.
func (p Principal) Is(named Globs) bool {
	if p.Operator() && named.Match(OwnerRole) {
		return true
	}
	return named.Match(append([]string{p.given()}, p.Roles()...)...)
}

// given returns the name by which lists that give something know the caller. An agent that named itself has what every
// agent has, whatever the name is.
func (p Principal) given() string {
	if SelfNamed(p.ID) {
		return AgentPrefix
	}
	return p.ID
}

// Given reports whether a list of names that gives something, such as that of a rule that allows, includes the caller.
func (p Principal) Given(named Globs) bool { return named.Match(p.given()) }

// Concerns reports whether a list of names that takes something away, such as that of a rule that denies, includes the
// caller. An agent that named itself could have chosen any name, so a list that includes some agent includes it.
func (p Principal) Concerns(named Globs) bool {
	return named.Match(p.ID) || SelfNamed(p.ID) && slices.ContainsFunc(named, Glob.matchesAgent)
}

// matchesAgent reports whether the pattern matches the name of some agent.
func (g Glob) matchesAgent() bool {
	head, _, star := strings.Cut(string(g), "*")
	if star && len(head) < len(AgentPrefix) {
		return Glob(head).Match(AgentPrefix[:len(head)])
	}
	return len(head) >= len(AgentPrefix) && Glob(head[:len(AgentPrefix)]).Match(AgentPrefix)
}

// Operator reports whether the caller is an operator of this program: its owner, by any door, or the user whose process
// it is. Operators may do things that concern all callers: issue leases, see the sessions and the jobs of others.
func (p Principal) Operator() bool { return p.Operates }

// Reaches refuses a caller that asks for something of another caller, such as calls or jobs, unless it is an operator.
// An empty name means the caller's own.
func (p Principal) Reaches(whose, what string) error {
	if whose == "" || whose == p.ID || p.Operator() {
		return nil
	}
	return Errorf(CodeAccessDenied, "%q only has access to its own %s; leave out the caller", p.ID, what)
}
