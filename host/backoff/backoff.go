// Package backoff decides when something that keeps failing is tried again: after a pause that doubles with every
// failure and, once there were too many of them in a row, after a long one. Until then its breaker is open, and
// whoever asks is told at once instead of being kept waiting.
//
// Everything that is tried again stands on it: a pool's workers, a supervised program, the calls of a tool.
package backoff

import (
	"cmp"
	"fmt"
	"time"

	"toolpost/tool"
)

// What holds where nothing else is said.
const (
	Failures  = 5                      // in a row open the breaker
	First     = 100 * time.Millisecond // pause after the first failure
	Open      = 30 * time.Second       // how long the breaker stays open, and the longest pause
	FastCrash = 10 * time.Second       // a program that lived for longer did not fail at its start
)

// Soon is when to come back while somebody else is trying already.
const Soon = time.Second

// A Breaker counts failures in a row. Its zero value has the limits above. It has no lock of its own: whoever owns it
// guards it together with what it decides about.
type Breaker struct {
	Failures int           // that open it; 0: 5
	First    time.Duration // pause after the first failure; 0: 100 ms; negative: none until it opens
	Open     time.Duration // how long it stays open; 0: 30 s

	fails int
	why   string    // what the last one was
	retry time.Time // no try before this
}

// Failed counts a failure and sets when the next try may be.
func (b *Breaker) Failed(why string) {
	b.fails++
	b.why = why
	pause := b.Pause()
	if !b.Tripped() {
		pause = min(pause, max(0, cmp.Or(b.First, First))<<min(b.fails-1, 30))
	}
	b.retry = time.Now().Add(pause)
}

// Tried notes that a try went well as far as it got. The breaker closes, and the next failure opens it again: a
// program that starts and then crashes at its first call fails no less than one that does not start.
func (b *Breaker) Tried() { b.fails = min(b.fails, b.limit()-1) }

// Worked notes that all is well.
func (b *Breaker) Worked() { b.fails = 0 }

// Fails is how many failures there were in a row.
func (b *Breaker) Fails() int { return b.fails }

// Why is what the last failure was.
func (b *Breaker) Why() string { return b.why }

// Tripped reports whether there were too many failures: the breaker is open, or the one try after it is due.
func (b *Breaker) Tripped() bool { return b.fails >= b.limit() }

// Wait is how long it is until the next try may be made; not positive: it may be made now.
func (b *Breaker) Wait() time.Duration {
	if b.fails == 0 {
		return 0
	}
	return time.Until(b.retry)
}

// Pause is how long the breaker stays open.
func (b *Breaker) Pause() time.Duration { return cmp.Or(b.Open, Open) }

// Refusal is the error of code breaker_open of somebody who comes while the breaker is open. Name is what failed; try
// is what will be tried next: a start, a call.
func (b *Breaker) Refusal(name, try string) error {
	wait, next := Soon, fmt.Sprintf("a %s is being tried now", try)
	if left := b.Wait(); left > 0 {
		wait, next = left, fmt.Sprintf("the next %s is tried in %v, at %s", try, left.Round(time.Second),
			b.retry.Format(time.RFC3339))
	}
	return tool.Errorf(tool.CodeBreakerOpen, "%s failed %d times in a row (last: %s); %s", name, b.fails, b.why, next).
		RetryAfter(wait)
}

func (b *Breaker) limit() int { return cmp.Or(b.Failures, Failures) }
