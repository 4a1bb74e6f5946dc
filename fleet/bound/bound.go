// Package bound bounds what other nodes can make a node hold, and how often they can make it work.
package bound

import (
	"sync/atomic"
	"time"
)

// A Budget bounds what arrived for all streams of a node and has not been used. A nil Budget bounds nothing.
type Budget struct {
	Most int64
	Full error // what a stream ends with that has no room
	Held atomic.Int64
	Of   *Budget // what this is a part of, or nil
}

// Take counts bytes, or returns why there is no room for them.
func (b *Budget) Take(bytes int) error {
	if b == nil {
		return nil
	}
	err := b.Full
	if b.Held.Add(int64(bytes)) <= b.Most {
		err = b.Of.Take(bytes)
	}
	if err != nil {
		b.Held.Add(-int64(bytes))
	}
	return err
}

// Give gives bytes back.
func (b *Budget) Give(bytes int) {
	for ; b != nil; b = b.Of {
		b.Held.Add(-int64(bytes))
	}
}

// A Pace lets something happen a few times at once, and then after pauses that double.
type Pace struct {
	count int // the last times, less those that are long ago
	last  time.Time
}

// The pace of lists of tools: a node whose sources open one after the other has a few at once. A list is large, and read as a whole.
const (
	Free   = 8
	First  = time.Second
	double = 6               // times
	Rests  = 5 * time.Second // after which one time is forgotten
)

// Due reports whether it may happen now, and counts it then.
func (p *Pace) Due(now time.Time) bool {
	rested := now.Sub(p.last)
	count := max(0, p.count-int(rested/Rests))
	if over := count - Free; over >= 0 && rested < First<<min(over, double) {
		return false
	}
	p.count, p.last = count+1, now
	return true
}
