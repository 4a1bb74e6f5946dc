package tool

// A Watch notes how a call goes through the chain, for those who look at it while it runs or soon after. It hangs on
// the Call, as the Record does; the zero value notes nothing. What is noted is nobody's decision: no stage reads it.
type Watch struct {
	By    Watcher
	Steps bool // note the time at every stage; else where a call can be for long, which costs next to nothing
}

// A Watcher is told when a call enters a stage and when it comes out of it again. It may be told by several goroutines.
type Watcher interface {
	// Enter gives the number by which Leave knows the step.
	Enter(stage string) (step int)
	Leave(step int)
}
