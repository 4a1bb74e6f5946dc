package quota

import (
	"cmp"
	"container/list"
	"slices"
	"time"
)

// A limit is a rate in integers. A full bucket holds burst tokens. What is missing from it is counted in small parts: a
// token has as many parts as its rate's time has microseconds, and every microsecond restores as many parts as the rate
// has tokens. So nothing is ever rounded.
type limit struct {
	gain  int64 // parts that a microsecond restores
	token int64 // parts of a token
	full  int64 // parts of a full bucket
}

func newLimit(r Rate, burst int64) limit {
	token := units()[r.unit].time.Microseconds()
	return limit{r.amount, token, burst * token}
}

// A bucket is how much is missing at a time. The zero value is full.
type bucket struct{ missing, at int64 }

// missing returns how much is missing now.
func (l limit) missing(b bucket, now int64) int64 {
	if l.gain == 0 || now-b.at > b.missing/l.gain {
		return 0
	}
	return b.missing - (now-b.at)*l.gain
}

// wait returns the microseconds until the bucket has n tokens; n must not exceed a full bucket.
func (l limit) wait(b bucket, n, now int64) int64 {
	over := l.missing(b, now) - (l.full - n*l.token)
	if l.gain == 0 || over <= 0 {
		return 0
	}
	return (over-1)/l.gain + 1
}

// take takes n tokens, which the bucket must have.
func (l limit) take(b *bucket, n, now int64) {
	if l.gain > 0 {
		*b = bucket{l.missing(*b, now) + n*l.token, now}
	}
}

// A key identifies what a rule counts for.
type key [2]uint64

// An entry is the counts of a rule for one key.
type entry struct {
	key         key
	who         string // for operators
	rate, units bucket
	running     int64
	shares      []*share // of what programs have in common
	place       *list.Element
}

// A limiter is a rule with its counts.
type limiter struct {
	Rule
	rate, units limit

	most    int // limit of entries
	entries map[key]*entry
	used    list.List // of entries, the most recently used first
}

func newLimiter(r Rule) *limiter {
	l := &limiter{Rule: r, entries: map[key]*entry{}}
	if r.Rate.given() {
		l.rate = newLimit(r.Rate, cmp.Or(r.Burst, r.Rate.amount))
	}
	if r.Units.given() {
		l.units = newLimit(r.Units, r.Units.amount)
	}
	return l
}

// entry returns the counts of a key, and creates them if needed.
func (l *limiter) entry(k key) *entry {
	if e, ok := l.entries[k]; ok {
		l.used.MoveToFront(e.place)
		return e
	}
	e := &entry{key: k}
	e.place = l.used.PushFront(e)
	l.entries[k] = e
	return e
}

// steps is how many entries are examined for each call. A call adds at most one, so the number of entries shrinks.
const steps = 4

// forget drops the least recently used entries if nothing is missing from them, because a new one would be equal, or if
// there are too many. Entries of running calls stay, so there are never more entries than most plus the running calls.
func (l *limiter) forget(now int64) {
	for range steps {
		last := l.used.Back()
		if last == nil {
			return
		}
		e := last.Value.(*entry)
		switch {
		case e.running > 0:
			l.used.MoveToFront(last)
		case len(l.entries) > l.most || l.idle(e, now):
			l.used.Remove(last)
			delete(l.entries, e.key)
		default:
			return
		}
	}
}

func (l *limiter) idle(e *entry, now int64) bool {
	return l.rate.missing(e.rate, now) == 0 && l.units.missing(e.units, now) == 0 &&
		!slices.ContainsFunc(e.shares, func(s *share) bool { return s.held+s.used > 0 })
}

// The reasons of a refusal.
const (
	reasonRate        = "rate"
	reasonUnits       = "units"
	reasonConcurrency = "concurrency"
)

// soon is when to try again if too many calls run: it is unknown when one of them ends.
const soon = time.Second

// judge returns how long a call of this cost has to wait, and why; 0 means that it may run.
func (l *limiter) judge(e *entry, cost, now int64) (wait time.Duration, reason string) {
	if l.rate.gain > 0 {
		wait, reason = time.Duration(l.rate.wait(e.rate, 1, now))*time.Microsecond, reasonRate
	}
	if w := time.Duration(l.units.wait(e.units, cost, now)) * time.Microsecond; w > wait {
		wait, reason = w, reasonUnits
	}
	if l.Concurrency > 0 && e.running >= l.Concurrency && soon > wait {
		wait, reason = soon, reasonConcurrency
	}
	return wait, reason
}

// charge counts a call that will run.
func (l *limiter) charge(e *entry, cost, now int64) {
	l.rate.take(&e.rate, 1, now)
	l.units.take(&e.units, cost, now)
	e.running++
}
