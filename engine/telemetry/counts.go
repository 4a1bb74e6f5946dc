package telemetry

import (
	"time"

	"toolpost/tool"
)

// Counts are the measurements of the calls that have ended, by tool, for comparing two moments.
type Counts map[Of]Count

// Of identifies the tool of calls.
type Of struct{ Tool, Source string }

// A Count is the measurements of some calls.
type Count struct {
	Calls   int64
	Bad     int64 // that ended neither well nor with a question
	Took    time.Duration
	classes [limits + 1]int64
}

// Counts returns the measurements since the start of the process.
func (t *Telemetry) Counts() Counts {
	sums := Counts{}
	for l, s := range t.calls.all() {
		of := Of{l.tool, l.source}
		c := sums[of]
		bad := l.outcome != tool.OutcomeOK && l.outcome != tool.OutcomeAsked
		for i := range s.classes {
			n := s.classes[i].Load()
			c.classes[i] += n
			if c.Calls += n; bad {
				c.Bad += n
			}
		}
		c.Took += time.Duration(s.nanos.Load())
		sums[of] = c
	}
	return sums
}

// Since returns the calls that have ended since an earlier moment, without tools that had none.
func (c Counts) Since(before Counts) Counts {
	between := Counts{}
	for of, now := range c {
		was := before[of]
		d := Count{Calls: now.Calls - was.Calls, Bad: now.Bad - was.Bad, Took: now.Took - was.Took}
		for i := range d.classes {
			d.classes[i] = now.classes[i] - was.classes[i]
		}
		if d.Calls > 0 {
			between[of] = d
		}
	}
	return between
}

// All adds up the calls of all tools.
func (c Counts) All() (sum Count) {
	for _, one := range c {
		sum.Calls, sum.Bad, sum.Took = sum.Calls+one.Calls, sum.Bad+one.Bad, sum.Took+one.Took
		for i := range sum.classes {
			sum.classes[i] += one.classes[i]
		}
	}
	return sum
}

// Quantile returns the duration that a share of the calls does not exceed. It is interpolated: within a class, calls are
// assumed to be spread evenly. Calls beyond the last class count as its upper end.
func (c Count) Quantile(share float64) time.Duration {
	ends, below := bounds(), float64(0)
	want := share * float64(c.Calls)
	if c.Calls == 0 {
		return 0
	}
	from := time.Duration(0)
	for i, end := range ends {
		n := float64(c.classes[i])
		if n > 0 && below+n >= want {
			return from + time.Duration((want-below)/n*float64(end-from))
		}
		below, from = below+n, end
	}
	return from
}
