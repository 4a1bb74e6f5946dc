package quota

import (
	"cmp"
	"container/list"
	"time"
)

// A limit is a rate in whole numbers. A bucket that is full holds burst tokens; what is missing from it is counted
// in small parts, of which a token has as many as its rate's time has microseconds, and of which every microsecond
// brings back as many as the rate has tokens. So nothing is ever rounded.
type limit struct {
	gain  int64 // parts that a microsecond brings back
	token int64 // parts of a token
	full  int64 // parts of a full bucket
}

func newLimit(r Rate, burst int64) limit {
	token := units()[r.unit].time.Microseconds()
	return limit{r.amount, token, burst * token}
}

// A bucket is what is missing at a time. The zero value is full.
type bucket struct{ missing, at int64 }

// missing returns what is missing now.
func (l limit) missing(b bucket, now int64) int64 {
	if l.gain == 0 || now-b.at > b.missing/l.gain {
		return 0
	}
	return b.missing - (now-b.at)*l.gain
}

// wait returns the microseconds until the bucket has n tokens, which are at the most a full bucket.
func (l limit) wait(b bucket, n, now int64) int64 {
	over := l.missing(b, now) - (l.full - n*l.token)
	if l.gain == 0 || over <= 0 {
		return 0
	}
	return (over-1)/l.gain + 1
}

// take takes n tokens, which must be there.
func (l limit) take(b *bucket, n, now int64) {
	if l.gain > 0 {
		*b = bucket{l.missing(*b, now) + n*l.token, now}
	}
}

// A key stands for whom a rule counts.
type key [2]uint64

// An entry is what a rule counts for one key.
type entry struct {
	key         key
	who         string // for operators
	rate, units bucket
	running     int64
	place       *list.Element
}

// A limiter is a rule with its counts.
type limiter struct {
	Rule
	rate, units limit

	most    int // entries
	entries map[key]*entry
	used    list.List // of entries, the one that was used last in front
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

// entry finds the counts of a key, or begins them.
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

// steps is how many entries are looked at for each call, which brings one at the most: so they become fewer.
const steps = 4

// forget drops entries that nobody used for long: where nothing is missing, because a new one would say the same, and
// where there are too many. Entries of calls that run stay, so that there are never more than the most and the calls
// that run.
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
	return l.rate.missing(e.rate, now) == 0 && l.units.missing(e.units, now) == 0
}

// The reasons of a refusal.
const (
	reasonRate        = "rate"
	reasonUnits       = "units"
	reasonConcurrency = "concurrency"
)

// soon is when to try again where too many calls run: nobody knows when one of them ends.
const soon = time.Second

// judge says how long a call that costs so much has to wait, and why; 0: it may run.
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

// charge counts a call that runs.
func (l *limiter) charge(e *entry, cost, now int64) {
	l.rate.take(&e.rate, 1, now)
	l.units.take(&e.units, cost, now)
	e.running++
}
