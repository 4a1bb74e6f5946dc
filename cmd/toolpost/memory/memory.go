// Package memory sets when this program collects garbage, and returns memory that a server no longer needs.
package memory

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"

	"toolpost/kernel"
	"toolpost/tool"
)

const (
	// usualGrowth is how much a heap grows before garbage is collected, in percent of the live heap; firstGrowth applies at
	// the start. Most commands end before that, and would have collected two or three times for nothing.
	usualGrowth = 100
	firstGrowth = 400

	// settleAfter is how long after its start a server returns the memory that only the start needed, and how often it then
	// checks whether it has more by over spare; lastSettle is how often if all of that is in use.
	settleAfter = 2 * time.Second
	lastSettle  = time.Minute
	spare       = 32 << 20
)

// DelayCollection delays the first garbage collection; the usual setting applies after it. GOGC in the environment takes precedence.
func DelayCollection() {
	if os.Getenv("GOGC") != "" {
		return
	}
	debug.SetGCPercent(firstGrowth)
	first := new([16]byte)
	runtime.AddCleanup(first, func(percent int) { debug.SetGCPercent(percent) }, usualGrowth)
}

// Settle returns the memory that the start of a server needed, once it has started, and the memory of large requests soon
// after them: the runtime alone would take minutes. The function stop ends it.
func Settle() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var settling sync.WaitGroup
	settling.Go(func() {
		for idle, pause := uint64(0), settleAfter; tool.Sleep(ctx, pause); {
			before := resident()
			if idle > 0 && before < idle+spare {
				pause = settleAfter
				continue
			}
			debug.FreeOSMemory()
			if after := resident(); idle == 0 {
				_ = kernel.ReleaseProgram() // if it fails, the program only takes more memory
				idle = min(after, spare)    // it may serve large requests already
			} else if after+spare/2 > before { // it is in use
				pause = min(2*pause, lastSettle)
			}
		}
	})
	return func() { cancel(); settling.Wait() }
}

// resident returns how much memory the runtime holds from the kernel.
func resident() uint64 {
	has := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(has)
	return has[0].Value.Uint64() - has[1].Value.Uint64()
}
