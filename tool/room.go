package tool

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
