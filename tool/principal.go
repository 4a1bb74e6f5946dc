package tool

// A Principal is who calls, through which door.
type Principal struct {
	ID     string  `json:"id"`
	Door   string  `json:"door"`
	Rights *Rights `json:"-"` // what it is kept to; nil: it may use what policy allows
	// Operates says that this is one of those who run the program. Package identity alone sets it, by what somebody has
	// shown: neither an id nor the name of a door makes an operator, so a new door trusts nobody by default. It is not
	// a role of Rights, since those are the config's: no issuer of tokens can hand it out.
	Operates bool `json:"-"`
	// Proof says by what package identity has admitted this caller, so that it can be asked later whether that still lets
	// in. It is not the credential, and lets nobody in who shows it at a door. Empty: nobody can be asked.
	Proof string `json:"-"`
}

// Rights keep a caller to some tools. They only ever take away: policy decides about what they leave. They are
// shared, and nobody changes them.
type Rights struct {
	Roles []string // that policy rules can ask for
	Tools Patterns // nil: all, empty: none
}

// May reports whether the caller's rights leave it the tool, to see and to call.
func (p Principal) May(s *Spec) bool {
	return p.Rights == nil || p.Rights.Tools.Match(s.Ref())
}

// Roles lists what the caller is.
func (p Principal) Roles() []string {
	if p.Rights == nil {
		return nil
	}
	return p.Rights.Roles
}

// OwnerRole is the role of those who run this program, whatever the config says of callers.
const OwnerRole = "owner"

// Is reports whether a list of names and roles, as a config has it, names the caller; nil stands for everybody.
func (p Principal) Is(named Globs) bool {
	if p.Operator() && named.Match(OwnerRole) {
		return true
	}
	return named.Match(append([]string{p.ID}, p.Roles()...)...)
}

// Operator reports whether the caller is one of those who run this program: its owner, by whichever door, and the user
// whose process it is. They may do what is about all callers: issue leases, see the sessions and the jobs of others.
func (p Principal) Operator() bool { return p.Operates }

// Reaches refuses a caller who asks for what belongs to somebody else, such as calls or jobs, and is no operator. An
// empty name is the caller's own.
func (p Principal) Reaches(whose, what string) error {
	if whose == "" || whose == p.ID || p.Operator() {
		return nil
	}
	return Errorf(CodeAccessDenied, "%q only has access to its own %s; leave out the caller", p.ID, what)
}
