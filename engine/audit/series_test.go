package audit_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"toolpost/engine/audit"
	"toolpost/internal/kit"
	"toolpost/tool"
)

func TestSeriesStepsAreRoundAndCoverTheSpan(t *testing.T) {
	day := time.Date(2026, 11, 15, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		since time.Time
		span  time.Duration
		most  int
		step  time.Duration
		n     int
	}{
		{day, time.Hour, 120, 30 * time.Second, 120},
		{day.Add(time.Second), time.Hour, 120, time.Minute, 61}, // it touches 121 steps of 30s
		{day, 0, 120, 10 * time.Millisecond, 1},
		{day, 24 * time.Hour, 24, time.Hour, 24},
		{day, 24 * time.Hour, 1, 24 * time.Hour, 1},
		{day, 365 * 24 * time.Hour, 500, 24 * time.Hour, 365},
		{day, time.Hour + time.Microsecond, 1, 2 * time.Hour, 1}, // a part of a millisecond counts
	} {
		_, step, n := audit.Divide(c.since, c.since.Add(c.span), c.most)
		if step != c.step || n != c.n {
			t.Errorf("%v + %v in %d: %d of %v, want %d of %v", c.since, c.span, c.most, n, step, c.n, c.step)
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		since := day.Add(time.Duration(rng.Int64N(int64(200*365*24*time.Hour))) - 100*365*24*time.Hour)
		until := since.Add(time.Duration(rng.Int64N(1 << uint(1+rng.IntN(61)))))
		most := 1 + rng.IntN(audit.MaxBuckets)
		from, step, n := audit.Divide(since, until, most)
		to := from.Add(time.Duration(n) * step)
		if n < 1 || n > most || since.Before(from) || until.After(to) || from.UnixMilli()%step.Milliseconds() != 0 ||
			since.Sub(from) >= step || to.Sub(until) > step {
			t.Fatalf("%v to %v in %d: %d of %v from %v", since, until, most, n, step, from)
		}
	}
}

func TestASeriesHasAnEndBehindItsStart(t *testing.T) {
	now := time.Now()
	for _, since := range []time.Time{now.Add(time.Second), {}, now.AddDate(-101, 0, 0)} {
		kit.Refused(t, audit.CheckSpan(since, now), tool.CodeInvalidInput, "", since)
	}
	kit.Check(t, audit.CheckSpan(now.AddDate(-99, 0, 0), now))
}
