package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"toolpost/host/kernel"
)

const (
	// usualGrowth is how much a heap grows before garbage is looked for, in percent of what lives; firstGrowth is that of
	// the start. Most commands are over by then, and would have looked through their memory two or three times for nothing.
	usualGrowth = 100
	firstGrowth = 400

	// settleAfter is how long after its start a server gives back what only its start needed.
	settleAfter = 2 * time.Second
)

// hurry leaves garbage alone until the heap has grown for the first time, from where on all is as usual. Whoever says
// something about that in the environment has their way.
func hurry() {
	if os.Getenv("GOGC") != "" {
		return
	}
	debug.SetGCPercent(firstGrowth)
	first := new([16]byte)
	runtime.AddCleanup(first, func(percent int) { debug.SetGCPercent(percent) }, usualGrowth)
}

// settle gives back the memory that the start of a server needed, once it has started; stop: it ends before.
func settle() (stop func() bool) {
	return time.AfterFunc(settleAfter, func() {
		debug.FreeOSMemory()
		_ = kernel.ReleaseProgram() // without it the program takes more, and is none the worse
	}).Stop
}
