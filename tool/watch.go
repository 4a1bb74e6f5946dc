package tool

// A Watch notes how a call goes through the chain, for observers while it runs or soon after. It is attached to the
// Call, like the Record; the zero value notes nothing. No stage reads it, so it decides nothing.
type Watch struct {
	By    Watcher
	Steps bool // note the time at every stage; else only at those where a call can stay for a long time, which costs next to nothing
}

// A Watcher is notified when a call enters a stage and when it leaves it again. It must be safe for concurrent use.
type Watcher interface {
	// Enter returns the number that Leave takes.
	Enter(stage string) (step int)
	Leave(step int)
}
