package audit

import (
	"time"

	"toolpost/tool"
)

// A Series is how calls went over time: in steps of one length, the oldest first, including steps without calls.
type Series struct {
	From    time.Time `json:"from"` // start of the first step
	To      time.Time `json:"to"`   // end of the last step
	Step    int64     `json:"step_ms"`
	Buckets []Bucket  `json:"buckets"`
	Totals  Counts    `json:"totals"`
}

// A Bucket is one step of a series.
type Bucket struct {
	Start time.Time `json:"t"`
	Counts
}

// Counts is how many calls there were, how they ended, how long they took, in milliseconds, and how much went in and
// out. The quantiles are accurate to within an eighth, or 0 if there are no calls.
type Counts struct {
	OK       int64   `json:"ok"`
	Failed   int64   `json:"failed"`
	Refused  int64   `json:"refused"`
	Error    int64   `json:"error"`
	Other    int64   `json:"other"` // asked and lost
	P50      float64 `json:"p50"`
	P95      float64 `json:"p95"`
	P99      float64 `json:"p99"`
	BytesIn  int64   `json:"bytes_in"`
	BytesOut int64   `json:"bytes_out"`
}

// Add counts some calls that ended in one way.
func (c *Counts) Add(o tool.Outcome, calls, in, out int64) {
	switch o {
	case tool.OutcomeOK:
		c.OK += calls
	case tool.OutcomeFailed:
		c.Failed += calls
	case tool.OutcomeRefused:
		c.Refused += calls
	case tool.OutcomeError:
		c.Error += calls
	default:
		c.Other += calls
	}
	c.BytesIn, c.BytesOut = c.BytesIn+in, c.BytesOut+out
}

// Calls returns the number of calls.
func (c *Counts) Calls() int64 { return c.OK + c.Failed + c.Refused + c.Error + c.Other }

// The limits of a series: a screen has few more columns than that, and a step must fit into a duration.
const (
	MaxBuckets = 500
	MaxYears   = 100
)

// CheckSpan refuses a span that ends before it begins, or that is longer than a series can be.
func CheckSpan(since, until time.Time) error {
	switch {
	case since.After(until):
		return tool.Errorf(tool.CodeInvalidInput, "a series cannot begin at %s and end before that, at %s",
			since.Format(time.RFC3339), until.Format(time.RFC3339))
	case since.AddDate(MaxYears, 0, 0).Before(until):
		return tool.Errorf(tool.CodeInvalidInput, "a series covers at most %d years; give since", MaxYears)
	}
	return nil
}

// steps returns the possible lengths of a step. They divide a day, so that the steps of a series begin at round times
// and stay in place as time goes on; a longer step is a number of days.
func steps() []time.Duration {
	const ms, s, m, h = time.Millisecond, time.Second, time.Minute, time.Hour
	return []time.Duration{
		10 * ms, 20 * ms, 50 * ms, 100 * ms, 200 * ms, 500 * ms, s, 2 * s, 5 * s, 10 * s, 15 * s, 30 * s,
		m, 2 * m, 5 * m, 10 * m, 15 * m, 30 * m, h, 2 * h, 3 * h, 6 * h, 12 * h,
	}
}

// Day is the step from which a series is computed from the sums of days.
const Day = 24 * time.Hour

// Divide divides a span into at most most steps, which cover all of it. It returns the start of the first, the length of
// each, and their number.
func Divide(since, until time.Time, most int) (from time.Time, step time.Duration, n int) {
	// in milliseconds: a duration cannot hold all times that a filter may name
	first, last := since.UnixMilli(), max(until.UnixMilli(), since.UnixMilli()+1)
	if until.After(time.UnixMilli(last)) { // it does not end on a millisecond
		last++
	}
	fits := func(step int64) bool {
		n = int(floor(last-1, step) - floor(first, step) + 1)
		return n <= most
	}
	for _, step = range steps() {
		if fits(step.Milliseconds()) {
			break
		}
	}
	days := Day.Milliseconds()
	for k := int64(1); n > most; k = max(k+1, (last-first)/(int64(most)*days)) {
		step = time.Duration(k) * Day
		fits(step.Milliseconds())
	}
	return time.UnixMilli(floor(first, step.Milliseconds()) * step.Milliseconds()).UTC(), step, n
}

// floor divides, and rounds towards the past.
func floor(a, b int64) int64 {
	if a%b < 0 {
		return a/b - 1
	}
	return a / b
}
