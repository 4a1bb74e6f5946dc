package tool

// A Room is what stands around the programs of a tool, as far as it takes to say which line of the config would allow
// more. Specs have it beside Walls, which is for people.
type Room struct {
	Base     string   // the folder of the config, where its relative paths start
	Key      string   // where the config has the walls; empty: walls
	Roots    []string // offered folders that are written where the config says so of them, not of the walls
	Read     []string // as the config has them, likewise those below
	Write    []string
	Network  []string          // none, loopback, all, or hosts; empty: none
	Reads    []string          // all that can be read, as absolute paths
	Withheld map[string]string // modules that a Python program would find without the walls: names, and where they are
	Memory   int64             // bytes; 0: no limit
	Tasks    int               // processes and threads; 0: no limit
	// Box says that a container is around the programs, whose options bound memory, processes and, where an engine runs
	// it, the network.
	Box    bool
	Engine bool // the container is an engine's: what is stopped in it is not seen
	Fixed  bool // no setting gives the programs more: there is nothing to advise
}

// A Blocked is something that a tool tried and a wall stopped. It comes with the event that tells of it, and only from
// the walls: a tool can write an event that reads the same, and nobody advises people to open a wall by the word of a
// tool.
type Blocked struct {
	Capability string // network, filesystem_write, subprocess; or memory, processes: limits that were reached
	Target     string // the path or the address
	By         string // who asked for the wall: engine (the source's walls), user (its guarantees), policy
	Never      bool   // no setting allows it: it is off limits
}
