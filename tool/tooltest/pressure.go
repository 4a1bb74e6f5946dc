package tooltest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"toolpost/tool"
)

const (
	maxAhead  = 8 << 20 // bytes that may lie in buffers of this process between a tool and its caller
	freeCount = 1000    // events, of 1 KiB each, that flow before the sink blocks
)

// backPressure lets some events flow, blocks the sink, and looks whether memory grows. How long it
// looks follows from the rate before: long enough for twice what may lie in buffers.
func backPressure(p *probe) error {
	v := &valve{blocked: make(chan struct{}), opened: make(chan struct{})}
	r := p.start(context.Background(), "flood", `{}`, v)
	open := sync.OnceFunc(func() { close(v.opened) })
	defer open()
	select {
	case <-v.blocked:
	case <-r.live.Done():
		return r.tooSoon(fmt.Sprintf("%d events had come", freeCount))
	}
	const rounds = 2 * maxAhead / (freeCount << 10)
	err := watchHeap(min(max(rounds*v.took, 200*time.Millisecond), 3*time.Second))
	r.end()
	open()
	return errors.Join(err, v.short, r.refuse(tool.CodeCancelled))
}

func watchHeap(d time.Duration) error {
	before := liveHeap()
	for start := time.Now(); time.Since(start) < d; time.Sleep(20 * time.Millisecond) {
		if now := liveHeap(); now > before+maxAhead {
			return fmt.Errorf("flood: the sink blocks, and yet %d MiB of events were taken from the tool",
				(now-before)>>20)
		}
	}
	return nil
}

func liveHeap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A valve is a sink that lets some events through and then blocks until it is opened.
type valve struct {
	mu    sync.Mutex
	count int
	first time.Time

	blocked, opened chan struct{}
	took            time.Duration // until it blocked; like short set before blocked is closed
	short           error         // events are so small that the check would see nothing
}

func (v *valve) Emit(e tool.Event) error {
	if !v.pass(e) {
		<-v.opened
	}
	return nil
}

func (v *valve) pass(e tool.Event) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch v.count++; v.count {
	case 1:
		v.first = time.Now()
	case freeCount:
		if v.took = time.Since(v.first); len(e.Data) < 1<<10 {
			v.short = fmt.Errorf("flood: an event has %d bytes of data; 1 KiB is the least", len(e.Data))
		}
		close(v.blocked)
	}
	return v.count < freeCount
}
