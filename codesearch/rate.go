package codesearch

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"toolpost/tool"
)

// rates bound how often a caller does what is expensive, on each codebase.
type rates struct {
	perMinute int // -1: any number

	mu       sync.Mutex
	limiters map[rateKey]*rate.Limiter
}

type rateKey struct{ caller, codebase string }

// maxLimiters is how many are kept before those are forgotten that would let anything through.
const maxLimiters = 4096

// charge counts one expensive operation, or refuses it and says when it is allowed.
func (r *rates) charge(caller, codebase string) error {
	if r.perMinute < 0 {
		return nil
	}
	now := time.Now()
	res := r.limiter(rateKey{caller, codebase}, now).ReserveN(now, 1)
	wait := res.DelayFrom(now)
	if wait == 0 {
		return nil
	}
	res.CancelAt(now)
	return tool.Errorf(tool.CodeQuotaExceeded,
		"more than %d searches of codebase %s in a minute; try again in %v, or let `rate` of the code tools allow more",
		r.perMinute, codebase, wait.Round(time.Millisecond)).Because("rate").RetryAfter(wait)
}

func (r *rates) limiter(key rateKey, now time.Time) *rate.Limiter {
	r.mu.Lock()
	defer r.mu.Unlock()
	l, ok := r.limiters[key]
	if !ok {
		if len(r.limiters) >= maxLimiters {
			r.forget(now)
		}
		l = rate.NewLimiter(rate.Limit(float64(r.perMinute)/60), r.perMinute)
		r.limiters[key] = l
	}
	return l
}

// forget drops the limiters that are full again.
func (r *rates) forget(now time.Time) {
	for k, l := range r.limiters {
		if l.TokensAt(now) >= float64(l.Burst()) {
			delete(r.limiters, k)
		}
	}
	for k := range r.limiters {
		if len(r.limiters) < maxLimiters {
			break
		}
		delete(r.limiters, k) // so many callers in a minute: memory comes first
	}
}
