package tool

import (
	"iter"
	"slices"
)

// Guarantees are walls around a tool: what it cannot do, whatever it tries. They are the six
// guarantees of the namel3ss contract and its allow-list of secrets. The zero value guarantees
// nothing.
type Guarantees struct {
	NoFilesystemRead  bool `json:"no_filesystem_read,omitempty" doc:"cannot read files other than its own code"`
	NoFilesystemWrite bool `json:"no_filesystem_write,omitempty" doc:"cannot write files"`
	NoNetwork         bool `json:"no_network,omitempty" doc:"has no network"`
	NoSubprocess      bool `json:"no_subprocess,omitempty" doc:"cannot start programs"`
	NoEnvRead         bool `json:"no_env_read,omitempty" doc:"cannot read environment variables"`
	NoEnvWrite        bool `json:"no_env_write,omitempty" doc:"cannot change environment variables"`
	// SecretsAllowed names the secrets that the tool may have. Nil says nothing about secrets; an empty
	// list allows none.
	SecretsAllowed []string `json:"secrets_allowed,omitzero" doc:"gets only these secrets; an empty list: none"`
	// Sandbox asks for the default walls even if the config of the tool's source turns them off. It is the contract's
	// `sandbox: true`, which requires walls without naming them.
	Sandbox bool `json:"sandbox,omitempty" doc:"has the default walls, even if its source turns walls off"`
}

// flags returns the boolean guarantees, in the contract's order, and Sandbox.
func (g Guarantees) flags() [7]bool {
	return [...]bool{
		g.NoFilesystemRead, g.NoFilesystemWrite, g.NoNetwork, g.NoSubprocess, g.NoEnvRead, g.NoEnvWrite, g.Sandbox,
	}
}

// All yields the six guarantees by their names, in the contract's order, with their values.
func (g Guarantees) All() iter.Seq2[string, bool] {
	return func(yield func(string, bool) bool) {
		flags := g.flags()
		for i, name := range [...]string{
			"no_filesystem_read", "no_filesystem_write", "no_network", "no_subprocess", "no_env_read", "no_env_write",
		} {
			if !yield(name, flags[i]) {
				return
			}
		}
	}
}

// Asked lists the names of the requested guarantees, including secrets_allowed and sandbox.
func (g Guarantees) Asked() []string {
	var names []string
	for name, on := range g.All() {
		if on {
			names = append(names, name)
		}
	}
	if g.SecretsAllowed != nil {
		names = append(names, "secrets_allowed")
	}
	if g.Sandbox {
		names = append(names, "sandbox")
	}
	return names
}

// Tighten returns the guarantees that hold if both g and o hold. It only ever adds walls: guarantees are joined, lists
// of secrets intersected.
func (g Guarantees) Tighten(o Guarantees) Guarantees {
	return Guarantees{
		NoFilesystemRead:  g.NoFilesystemRead || o.NoFilesystemRead,
		NoFilesystemWrite: g.NoFilesystemWrite || o.NoFilesystemWrite,
		NoNetwork:         g.NoNetwork || o.NoNetwork,
		NoSubprocess:      g.NoSubprocess || o.NoSubprocess,
		NoEnvRead:         g.NoEnvRead || o.NoEnvRead,
		NoEnvWrite:        g.NoEnvWrite || o.NoEnvWrite,
		SecretsAllowed:    intersect(g.SecretsAllowed, o.SecretsAllowed),
		Sandbox:           g.Sandbox || o.Sandbox,
	}
}

// Equal reports whether both guarantee the same things.
func (g Guarantees) Equal(o Guarantees) bool {
	return g.flags() == o.flags() && slices.Equal(g.SecretsAllowed, o.SecretsAllowed) &&
		(g.SecretsAllowed == nil) == (o.SecretsAllowed == nil)
}

// Covers reports whether g already includes everything that o asks for.
func (g Guarantees) Covers(o Guarantees) bool { return g.Tighten(o).Equal(g) }

// Tightened returns the guarantees that hold for the call of a tool that has its own: these, those of its spec, and
// those that its caller and the stages ask for.
func (c *Call) Tightened(own Guarantees) Guarantees {
	if c.Spec != nil {
		own = own.Tighten(c.Spec.Guarantees)
	}
	return own.Tighten(c.Guarantees)
}

func intersect(a, b []string) []string {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return slices.DeleteFunc(slices.Clone(a), func(name string) bool { return !slices.Contains(b, name) })
}

// A Room describes the confinement of a tool's programs, as far as it takes to say which line of the config would allow
// more. Specs have it beside Walls, which is for people.
type Room struct {
	Base     string   // the folder of the config, the base of its relative paths
	Key      string   // the config key of the walls; empty means walls
	Roots    []string // offered folders whose write access is set in the config on the folder, not on the walls
	Read     []string // as written in the config, like Write and Network
	Write    []string
	Network  []string          // none, loopback, all, or hosts; empty means none
	Reads    []string          // everything that can be read, as absolute paths
	Withheld map[string]string // modules that a Python program would find without the walls, with their paths
	Memory   int64             // bytes; 0 means no limit
	Tasks    int               // processes and threads; 0 means no limit
	// Box is set if the programs run in a container, whose options bound memory, processes and, if a container engine
	// runs it, the network.
	Box    bool
	Engine bool // a container engine runs it: what it blocks is not visible to us
	Fixed  bool // no setting gives the programs more, so there is nothing to advise
}

// A Blocked is an attempt of a tool that a wall stopped. It is attached to the event that reports it, and only by the
// walls: a tool can write an event that reads the same, and its word alone must not lead to advice to open a wall.
type Blocked struct {
	Capability string // network, filesystem_write, subprocess; or memory, processes if a limit was reached
	Target     string // the path or the address
	By         string // the origin of the wall: engine (the source's walls), user (its guarantees), policy
	Never      bool   // no setting allows it: it is off limits
}
