package main

import (
	"fmt"
	"slices"
	"time"
)

// A timed does something once and says how long that took.
type timed func() (time.Duration, error)

// compare runs both by turns, so that whatever the machine does meanwhile meets both alike, and gives the
// medians. One run of each before that warms up and does not count.
func compare(rounds int, measured, reference timed) (m, r time.Duration, err error) {
	var ms, rs []time.Duration
	for i := range rounds + 1 {
		took, err := measured()
		if err != nil {
			return 0, 0, err
		}
		tookRef, err := reference()
		if err != nil {
			return 0, 0, fmt.Errorf("the reference: %w", err)
		}
		if i > 0 {
			ms, rs = append(ms, took), append(rs, tookRef)
		}
	}
	return median(ms), median(rs), nil
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// clock times one run of do.
func clock(do func() error) timed {
	return func() (time.Duration, error) {
		began := time.Now()
		err := do()
		return time.Since(began), err
	}
}

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

func rate(n int, d time.Duration) string {
	return fmt.Sprintf("%.0f k/s", float64(n)/d.Seconds()/1000)
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond)) }

func us(d time.Duration) string { return fmt.Sprintf("%.1f µs", float64(d)/float64(time.Microsecond)) }
