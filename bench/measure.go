package main

import (
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"toolpost/bench/attempt"
)

// A timed does something once and says how long that took.
type timed func() (time.Duration, error)

// compare runs both by turns, so that whatever the machine does meanwhile meets both alike, and gives the
// medians. One run of each before that warms up and does not count.
func compare(rounds int, measured, reference timed) (m, r time.Duration) {
	var ms, rs []time.Duration
	for range rounds + 1 {
		ms = append(ms, attempt.Must(measured()))
		took, err := reference()
		if err != nil {
			attempt.Check(fmt.Errorf("the reference: %w", err))
		}
		rs = append(rs, took)
	}
	return median(ms[1:]), median(rs[1:])
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// clock times one run of do.
func clock(do func() error) timed { return batch(1, do) }

// batch times one of many runs of do, where a single one is too short for the clock.
func batch(size int, do func() error) timed {
	return func() (time.Duration, error) {
		began := time.Now()
		for range size {
			if err := do(); err != nil {
				return 0, err
			}
		}
		return time.Since(began) / time.Duration(size), nil
	}
}

// storm lets so many callers do something at the same time, each so many times.
func storm(callers, each int, do func() error) func() error {
	return func() error {
		var g errgroup.Group
		for range callers {
			g.Go(func() error { _, err := batch(each, do)(); return err })
		}
		return g.Wait()
	}
}

// asLong is a row whose target is less than so many times the time of the reference.
func asLong(m, r time.Duration, show func(time.Duration) string, limit float64) row {
	ratio := float64(m) / float64(r)
	return row{
		measured: show(m), reference: show(r), ratio: fmt.Sprintf("%.2fx as long", ratio),
		target: fmt.Sprintf("< %gx", limit), pass: ratio < limit,
	}
}

// ofTheRate is a row whose target is at least so much of the reference's rate, where both did n things.
func ofTheRate(n int, m, r time.Duration, least float64) row {
	ratio := float64(r) / float64(m)
	return row{
		measured: rate(n, m), reference: rate(n, r), ratio: fmt.Sprintf("%.2f of the rate", ratio),
		target: fmt.Sprintf(">= %g", least), pass: ratio >= least,
	}
}

// over is a row whose target is less than so much more time than the reference.
func over(m, r, limit time.Duration) row {
	return row{
		measured: us(m), reference: us(r), ratio: "+" + us(m-r), pass: m-r < limit,
		target: fmt.Sprintf("< %d µs", limit.Microseconds()),
	}
}

func rate(n int, d time.Duration) string {
	return fmt.Sprintf("%.0f k/s", float64(n)/d.Seconds()/1000)
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond)) }

func us(d time.Duration) string { return fmt.Sprintf("%.1f µs", float64(d)/float64(time.Microsecond)) }
