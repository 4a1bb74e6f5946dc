package tool

import "slices"

// A Principal is who calls, through which door.
type Principal struct {
	ID     string  `json:"id"`
	Door   string  `json:"door"`
	Rights *Rights `json:"-"` // what it is kept to; nil: it may use what policy allows
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

// Operator reports whether it is who runs this program on its command line, or has started it as a child: both are the
// caller "local", and come through no network door.
func (p Principal) Operator() bool {
	return p.ID == "local" && !slices.Contains([]string{"http", "nats"}, p.Door)
}
