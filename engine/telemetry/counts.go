package telemetry

import (
	"maps"
	"time"
)

// Counts are what was measured of the calls that have ended, by tool, to compare two moments.
type Counts map[Of]Count

// Of identifies the tool of calls.
type Of struct {
	Tool   string `json:"tool"`
	Source string `json:"source"`
}

// A Count is the measurements of some calls.
type Count struct {
	Calls  int64         `json:"calls"`
	Bad    int64         `json:"bad"` // that ended neither well nor with a question
	Took   time.Duration `json:"took_ns"`
	Within [limits]int64 `json:"within"` // calls that took no longer than each of the bounds
}

// Counts returns the measurements since the start of the process, without calls of the kind tool.OperatorCall, and without
// those that hubs sent here.
func (t *Telemetry) Counts() Counts {
	sums := Counts{}
	for l, s := range t.calls.all() {
		if l.operator || l.door == doorFleet {
			continue
		}
		one := s.count()
		if l.bad() {
			one.Bad = one.Calls
		}
		of := Of{l.tool, l.source}
		sums[of] = sums[of].plus(one, 1)
	}
	return sums
}

func (s *series) count() (c Count) {
	for i := range s.classes {
		if c.Calls += s.classes[i].Load(); i < limits {
			c.Within[i] = c.Calls
		}
	}
	c.Took = time.Duration(s.nanos.Load())
	return c
}

func (c Count) plus(o Count, times int64) Count {
	c.Calls, c.Bad, c.Took = c.Calls+times*o.Calls, c.Bad+times*o.Bad, c.Took+time.Duration(times)*o.Took
	for i := range c.Within {
		c.Within[i] += times * o.Within[i]
	}
	return c
}

// Since returns the calls that have ended since an earlier moment; tools that had none are left out.
func (c Counts) Since(before Counts) Counts {
	between := Counts{}
	for of, now := range c {
		if d := now.plus(before[of], -1); d.Calls > 0 {
			between[of] = d
		}
	}
	return between
}

// Add returns the sum of two measurements.
func (c Counts) Add(o Counts) Counts {
	sums := maps.Clone(c)
	for of, n := range o {
		sums[of] = sums[of].plus(n, 1)
	}
	return sums
}

// A Counted is the measurements of one tool, for another program.
type Counted struct {
	Of
	Count
}

// List writes measurements for another program.
func (c Counts) List() (all []Counted) {
	for of, n := range c {
		all = append(all, Counted{of, n})
	}
	return all
}

// CountsOf is the inverse of List.
func CountsOf(list []Counted) Counts {
	all := Counts{}
	for _, one := range list {
		all[one.Of] = one.Count
	}
	return all
}

// All adds up the calls of all tools.
func (c Counts) All() (sum Count) {
	for _, one := range c {
		sum = sum.plus(one, 1)
	}
	return sum
}

// Quantile says which duration a share of the calls does not exceed, as far as the bounds tell: between two of them,
// calls are taken to be spread evenly. A duration above all bounds is told as the last of them.
func (c Count) Quantile(share float64) time.Duration {
	want, below, from := share*float64(c.Calls), 0.0, time.Duration(0)
	if c.Calls == 0 {
		return 0
	}
	for i, end := range bounds() {
		n := float64(c.Within[i])
		if n > below && n >= want {
			return from + time.Duration((want-below)/(n-below)*float64(end-from))
		}
		below, from = n, end
	}
	return from
}
