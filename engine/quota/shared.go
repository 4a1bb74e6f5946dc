package quota

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	"toolpost/tool"
)

// Shared counts for all programs that share a store. A program draws a share of a bucket, which is then its own: it spends
// the share in memory, and reports that with the next draw. What it holds is not restored, and counts as spent if it
// does not report in time: so all programs together never exceed a limit.
type Shared interface {
	Draw(ctx context.Context, d Draw) (Share, error)
}

// A Draw ends the share that this program has in a bucket, and asks for another. Amounts are in parts of tokens.
type Draw struct {
	Bucket [32]byte
	// What a microsecond restores, and a full bucket has. Without a gain, a share lasts until it is given back, or its
	// program is gone.
	Gain, Full int64
	Used       int64 // of the share that ends
	Need, Want int64 // the least and the most that it asks for
	For        time.Duration
}

// A Share is what a program may use. If it is nothing, Wait is how long the bucket takes to restore what was needed.
type Share struct {
	Held int64
	Wait time.Duration
}

// How long a share is used, and how long it is valid: meanwhile Settle reports it. Callers over their limit make a program
// ask no more often than this.
const (
	askAgain = 100 * time.Millisecond
	spendFor = time.Second
	validFor = 4 * time.Second
	parts    = 8 // a share is at most one of so many parts of a bucket
)

// A share is what this program has of a bucket.
type share struct {
	limit
	bucket  [32]byte
	reason  string
	need    func(cost int64) int64
	drawing sync.Mutex
	// what is left, what was used, until when the rest may be used, and how much is asked for
	held, used, until, size int64
	// what was refused last, until when that is not asked for again, and when there will be as much
	lacked, shut, opens int64
}

// sharesOf makes the shares of an entry.
func (l *limiter) sharesOf(who string) (all []*share) {
	add := func(reason string, of limit, need func(int64) int64) {
		if of.full > 0 {
			all = append(all, &share{limit: of, reason: reason, need: need,
				bucket: sha256.Sum256(fmt.Appendf(nil, "%q %s %d %s", l.Name, reason, of, who))})
		}
	}
	add(reasonRate, l.rate, func(int64) int64 { return l.rate.token })
	add(reasonUnits, l.units, func(cost int64) int64 { return cost * l.units.token })
	add(reasonConcurrency, limit{0, 1, l.Concurrency}, func(int64) int64 { return 1 })
	return all
}

// has reports whether the share is enough for a call.
func (s *share) has(e *entry, need, now int64) bool {
	if s.gain == 0 { // if the store was away, another program may have taken this one for gone, and its share
		return e.running < s.held && now < s.until+validFor.Microseconds()
	}
	return need == 0 || s.held >= need && now < s.until
}

// enterShared is enter for programs that share a store.
func (q *Quotas) enterShared(ctx context.Context, claims []claim) (at int, wait time.Duration, reason string, err error) {
	for ctx.Err() == nil {
		at, lacks := q.spend(claims)
		if lacks == nil {
			return 0, 0, "", nil
		}
		c := claims[at]
		wait, err = q.draw(ctx, c.entry, lacks, lacks.need(c.cost))
		if wait > 0 || err != nil {
			return at, wait, lacks.reason, err
		}
	}
	return 0, 0, "", tool.AsError(context.Cause(ctx))
}

// spend takes a call from all shares, or returns one that does not have enough.
func (q *Quotas) spend(claims []claim) (at int, lacks *share) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	for i := range claims {
		c := &claims[i]
		if c.entry = c.limiter.entry(c.key); c.entry.who == "" {
			c.entry.who, c.entry.shares = c.who.words(c.Per), c.sharesOf(fmt.Sprintf("%#v", c.who))
		}
		for _, s := range c.entry.shares {
			if !s.has(c.entry, s.need(c.cost), now) {
				return i, s
			}
		}
	}
	for _, c := range claims {
		for _, s := range c.entry.shares {
			if s.gain > 0 {
				s.held, s.used = s.held-s.need(c.cost), s.used+s.need(c.cost)
			}
		}
		c.charge(c.entry, c.cost, now)
		c.forget(now)
	}
	return 0, nil
}

// draw gets a share that has what a call needs, or says how long that takes. It asks for as much as was used of the last
// one, and for twice as much if that was not enough. If nothing is needed, it only gives back.
func (q *Quotas) draw(ctx context.Context, e *entry, s *share, need int64) (time.Duration, error) {
	s.drawing.Lock()
	defer s.drawing.Unlock()
	q.mu.Lock()
	now := q.now()
	switch {
	case need > 0 && s.has(e, need, now): // another call was faster
		q.mu.Unlock()
		return 0, nil
	case need > 0 && now < s.shut && need >= s.lacked:
		q.mu.Unlock()
		return time.Duration(s.opens-now) * time.Microsecond, nil
	}
	if s.size = max(s.size, s.used); s.gain > 0 && now >= s.until {
		s.size = s.used
	} else {
		s.size *= 2
	}
	d := Draw{Bucket: s.bucket, Gain: s.gain, Full: s.full, Used: s.used, Need: need, For: validFor}
	switch {
	case s.gain == 0:
		d.Need += e.running
		d.Want = d.Need + min(need*e.running, s.full/parts)
	case need > 0:
		d.Want = max(need, min(s.size, s.full/parts))
	}
	switch { // what is given back cannot be spent any more
	case s.gain > 0:
		s.held = 0
	case need == 0:
		s.held = e.running
	}
	q.mu.Unlock()
	got, err := q.o.Shared.Draw(context.WithoutCancel(ctx), d)
	q.mu.Lock()
	defer q.mu.Unlock()
	if err != nil {
		return 0, err
	}
	s.used, s.held, s.until = s.used-d.Used, got.Held, now+spendFor.Microseconds()
	if got.Held >= d.Need {
		return 0, nil
	}
	got.Wait = max(got.Wait, time.Millisecond)
	s.lacked, s.opens = need, now+got.Wait.Microseconds()
	s.shut = min(s.opens, now+askAgain.Microseconds())
	return got.Wait, nil
}

// Settle reports what was used of the shares whose time is over, and gives back what is left. It is called about every
// second, and at the end.
func (q *Quotas) Settle(ctx context.Context, end bool) {
	if q.o.Shared == nil {
		return
	}
	type due struct {
		e *entry
		s *share
	}
	var all []due
	q.mu.Lock()
	now := q.now()
	for _, l := range q.limiters {
		for _, e := range l.entries {
			for _, s := range e.shares {
				if (end || now >= s.until) && (s.gain > 0 && s.held+s.used > 0 || s.gain == 0 && s.held > e.running) {
					all = append(all, due{e, s})
				}
			}
		}
	}
	q.mu.Unlock()
	for _, one := range all {
		if _, err := q.draw(ctx, one.e, one.s, 0); err != nil {
			return // what is not reported counts as used
		}
	}
}
