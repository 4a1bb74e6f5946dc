package quota

import (
	"cmp"
	"slices"
	"strings"
)

// A Usage is a rule as operators see it: what it allows, for how many it counts now, and which are closest to its
// limits.
type Usage struct {
	Name    string `json:"name"`
	For     string `json:"for"`     // such as: for each caller
	Counted int    `json:"counted"` // for how many callers, tools ... it has counts that are not zero
	Reason  string `json:"reason,omitzero"`
	Fullest []Fill `json:"fullest"` // for each of its limits those that have used the most, the fullest first
}

// A Fill is how much of one limit a caller, tool ... has used.
type Fill struct {
	Limit string `json:"limit"` // rate, units or concurrency
	Words string `json:"words"` // such as: 100 calls a minute
	Who   string `json:"who,omitzero"`
	Used  int64  `json:"used"`
	Of    int64  `json:"of"`
}

// Usage returns how full the rules are, in the order of the config. For each limit it lists at most most entries; an
// unused limit is listed once, with nothing used.
func (q *Quotas) Usage(most int) []Usage {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	all := make([]Usage, len(q.limiters))
	for i, l := range q.limiters {
		all[i] = Usage{Name: l.Name, For: l.forWhom(), Reason: l.Reason, Fullest: []Fill{}}
		for _, e := range l.entries {
			if e.running > 0 || !l.idle(e, now) {
				all[i].Counted++
			}
		}
		for _, one := range l.limits() {
			all[i].Fullest = append(all[i].Fullest, l.fullest(one, now, most)...)
		}
	}
	return all
}

// A measure is one of the limits of a rule, and how much of it an entry has used.
type measure struct {
	Fill
	used func(e *entry, now int64) int64
}

func (l *limiter) limits() (all []measure) {
	bucketed := func(name, words string, b limit, of func(*entry) bucket) {
		if b.gain > 0 {
			all = append(all, measure{Fill{Limit: name, Words: words, Of: b.full / b.token}, func(e *entry, now int64) int64 {
				return (b.missing(of(e), now) + b.token - 1) / b.token
			}})
		}
	}
	bucketed(reasonRate, l.Rate.words("calls"), l.rate, func(e *entry) bucket { return e.rate })
	bucketed(reasonUnits, l.Units.words("units"), l.units, func(e *entry) bucket { return e.units })
	if l.Concurrency > 0 {
		all = append(all, measure{
			Fill{Limit: reasonConcurrency, Words: amount(l.Concurrency, "calls") + " at the same time", Of: l.Concurrency},
			func(e *entry, _ int64) int64 { return e.running },
		})
	}
	return all
}

// fullest lists the entries that have used the most of a limit.
func (l *limiter) fullest(one measure, now int64, most int) (list []Fill) {
	for _, e := range l.entries {
		f := one.Fill
		if f.Who, f.Used = e.who, one.used(e, now); f.Used > 0 {
			list = append(list, f)
		}
	}
	slices.SortFunc(list, func(a, b Fill) int {
		return cmp.Or(cmp.Compare(b.Used, a.Used), cmp.Compare(a.Who, b.Who))
	})
	if len(list) == 0 {
		return []Fill{one.Fill}
	}
	return list[:min(most, len(list))]
}

// maxWho limits the description of an entry, in bytes: callers choose some of it.
const maxWho = 96

// words describes what a call is counted for, to operators.
func (w *counted) words(per Parts) string {
	values := map[Part]string{
		PerCaller: w.caller, PerTool: w.tool.String(), PerSource: w.source, PerDoor: w.door, PerSession: w.session,
		PerCodebase: w.codebase,
	}
	var parts []string
	for _, p := range per {
		parts = append(parts, string(p)+" "+cmp.Or(values[p], "(none)"))
	}
	text := cmp.Or(strings.Join(parts, ", "), "all calls")
	return strings.Clone(strings.ToValidUTF8(text[:min(maxWho, len(text))], "")) // a copy, so that a long text is not kept alive
}
