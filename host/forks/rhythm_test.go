package forks

import (
	"testing"
	"time"
)

// A child waits if calls have followed each other, for as long as another is likely.
func TestRhythm(t *testing.T) {
	for _, c := range []struct {
		name string
		gaps []time.Duration // between the end of a call and the next
		soon bool
		wait time.Duration
	}{
		{"one call", nil, false, 0},
		{"two calls", []time.Duration{time.Millisecond}, false, 0},
		{"three calls in a row", []time.Duration{time.Millisecond, time.Millisecond}, true, leastWait},
		{"a call now and then", []time.Duration{time.Minute, time.Minute, time.Minute}, false, 0},
		{"every second", []time.Duration{time.Second, time.Second, time.Second}, true, 8 * time.Second},
		{"every five seconds", []time.Duration{5 * time.Second, 5 * time.Second}, true, mostWait},
		{"a row after a pause", []time.Duration{time.Second, time.Second, time.Minute, time.Second}, false, 0},
	} {
		var r rhythm
		now := time.Unix(1000, 0)
		r.begins(now)
		for _, gap := range c.gaps {
			r.ends(now)
			now = now.Add(gap)
			r.begins(now)
		}
		if wait, soon := r.ends(now); soon != c.soon || soon && wait != c.wait {
			t.Errorf("%s: %v, %v", c.name, wait, soon)
		}
	}
}
