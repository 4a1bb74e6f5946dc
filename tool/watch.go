package tool

// A Watch notes how a call goes through the chain, for observers while it runs or soon after. It is attached to the
// Call, like the Record; the zero value notes nothing.
type Watch struct {
	By    Watcher
	Steps bool // note the time at every stage; else only at those where a call can stay for a long time, which costs next to nothing
}

// A Watcher is notified of what happens to a call inside the chain. It must be safe for concurrent use.
type Watcher interface {
	// Admit is called before the tool is looked up, inside the stages that record refusals; its error refuses the call.
	Admit(*Call) error
	// Found is called when the tool is known.
	Found(*Spec)
	// Enter is called when the call enters a stage. It returns the number that Leave takes.
	Enter(stage string) (step int)
	Leave(step int)
}
