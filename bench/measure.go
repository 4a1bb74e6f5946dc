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

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond)) }

func us(d time.Duration) string { return fmt.Sprintf("%.1f µs", float64(d)/float64(time.Microsecond)) }
