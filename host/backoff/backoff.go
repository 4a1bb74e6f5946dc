// Package backoff decides when a failing operation is retried: after a pause that doubles with every failure and, after
// too many failures in a row, after a long one. During the long pause its breaker is open, and callers are refused at
// once instead of being kept waiting.
//
// All retries use it: a pool's workers, a supervised program, the calls of a tool.
package backoff

import (
	"cmp"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"toolpost/tool"
)

// The defaults.
const (
	Failures  = 5                      // in a row open the breaker
	First     = 100 * time.Millisecond // pause after the first failure
	Open      = 30 * time.Second       // how long the breaker stays open, and the longest pause
	FastCrash = 10 * time.Second       // a program that lived for longer did not fail at its start
)

// Soon is when to retry while another caller is already trying.
const Soon = time.Second

// RetryAfter reads the header of this name: seconds, or a date. It returns at most a day, and 0 if there is no wait in it.
func RetryAfter(text string) time.Duration {
	const maxWait = 24 * time.Hour
	if n, err := strconv.Atoi(text); err == nil && n > 0 {
		return min(time.Duration(min(n, 1<<20))*time.Second, maxWait)
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, min(time.Until(at), maxWait))
	}
	return 0
}

// A Breaker counts failures in a row. Its zero value has the limits above. It has no lock of its own: its owner guards it
// together with the state that it controls.
type Breaker struct {
	Failures int           // failures that open it; default 5
	First    time.Duration // pause after the first failure; default 100 ms; negative means none until it opens
	Open     time.Duration // how long it stays open; default 30 s

	fails int
	why   string    // the last failure
	retry time.Time // no try before this
}

// Failed counts a failure and sets the time of the next try.
func (b *Breaker) Failed(why string) {
	b.fails++
	b.why = why
	pause := b.Pause()
	if !b.Tripped() {
		pause = min(pause, max(0, cmp.Or(b.First, First))<<min(b.fails-1, 30))
	}
	b.retry = time.Now().Add(pause)
}

// Tried records a try that has succeeded so far. The breaker closes, and the next failure opens it again: a program that
// starts and then crashes at its first call is as bad as one that does not start.
func (b *Breaker) Tried() { b.fails = min(b.fails, b.limit()-1) }

// Worked records a success.
func (b *Breaker) Worked() { b.fails = 0 }

// Fails returns the number of failures in a row.
func (b *Breaker) Fails() int { return b.fails }

// Why returns the last failure.
func (b *Breaker) Why() string { return b.why }

// Tripped reports whether there were too many failures: the breaker is open, or the one try after it is due.
func (b *Breaker) Tripped() bool { return b.fails >= b.limit() }

// Wait returns the time until the next try; zero or less means that it may be made now.
func (b *Breaker) Wait() time.Duration {
	if b.fails == 0 {
		return 0
	}
	return time.Until(b.retry)
}

// Pause returns how long the breaker stays open.
func (b *Breaker) Pause() time.Duration { return cmp.Or(b.Open, Open) }

// Refusal returns the error of code breaker_open for a caller while the breaker is open. Name is what failed; try is what
// will be tried next: a start, a call.
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
