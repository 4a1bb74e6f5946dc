package main

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"

	"toolpost/host/kernel"
)

const (
	// usualGrowth is how much a heap grows before garbage is looked for, in percent of what lives; firstGrowth is that of
	// the start. Most commands are over by then, and would have looked through their memory two or three times for nothing.
	usualGrowth = 100
	firstGrowth = 400

	// settleAfter is how long after its start a server gives back what only its start needed, and how often it looks
	// whether it has more than it had then, by more than spare; lastSettle is how often if all of that is in use.
	settleAfter = 2 * time.Second
	lastSettle  = time.Minute
	spare       = 32 << 20
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

// settle gives back the memory that the start of a server needed, once it has started, and what large requests needed,
// soon after them: the runtime alone would take minutes. It ends with stop.
func settle() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var settling sync.WaitGroup
	settling.Go(func() {
		for idle, pause := uint64(0), settleAfter; ; {
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
			before := resident()
			if idle > 0 && before < idle+spare {
				pause = settleAfter
				continue
			}
			debug.FreeOSMemory()
			if after := resident(); idle == 0 {
				_ = kernel.ReleaseProgram() // without it the program takes more, and is none the worse
				idle = after
			} else if after+spare/2 > before { // it is in use
				pause = min(2*pause, lastSettle)
			}
		}
	})
	return func() { cancel(); settling.Wait() }
}

// resident is how much memory the runtime has from the kernel.
func resident() uint64 {
	has := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(has)
	return has[0].Value.Uint64() - has[1].Value.Uint64()
}
