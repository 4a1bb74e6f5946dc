package quota

import (
	"fmt"
	"math/big"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"toolpost/tool"
)

// A model does what the quotas do, in fractions and without regard for time and memory: it keeps every call that ever
// passed, and goes through them all for each new one.
type model struct {
	rules []Rule
	past  []passed
}

type passed struct {
	at      time.Duration
	rule    string // and when it was made: a changed rule starts anew
	key     string
	cost    int64
	running bool
}

func (m *model) key(r Rule, caller, toolName string) string {
	var k string
	for _, p := range r.Per {
		switch p {
		case PerCaller:
			k += "caller " + caller
		case PerTool:
			k += "tool " + toolName
		}
	}
	return k
}

// missing returns how many tokens are missing from a bucket after all calls that passed.
func (m *model) missing(r Rule, key string, rate Rate, cost func(passed) int64, now time.Duration) *big.Rat {
	missing, last := new(big.Rat), time.Duration(0)
	back := func(to time.Duration) {
		gained := new(big.Rat).Mul(big.NewRat(int64(to-last), int64(units()[rate.unit].time)), big.NewRat(rate.amount, 1))
		if missing.Sub(missing, gained); missing.Sign() < 0 {
			missing.SetInt64(0)
		}
		last = to
	}
	for _, p := range m.past {
		if p.rule == r.Reason && p.key == key {
			back(p.at)
			missing.Add(missing, big.NewRat(cost(p), 1))
		}
	}
	back(now)
	return missing
}

// wait returns how long it takes until there are n tokens, in microseconds, rounded up.
func wait(missing *big.Rat, capacity, n int64, rate Rate) time.Duration {
	over := new(big.Rat).Sub(missing, big.NewRat(capacity-n, 1))
	if over.Sign() <= 0 {
		return 0
	}
	micros := over.Mul(over, big.NewRat(units()[rate.unit].time.Microseconds(), rate.amount))
	up := new(big.Int).Div(new(big.Int).Add(micros.Num(), new(big.Int).Sub(micros.Denom(), big.NewInt(1))), micros.Denom())
	return time.Duration(up.Int64()) * time.Microsecond
}

func (m *model) enter(caller, toolName string, now time.Duration) (longest time.Duration, reason string, ids []int) {
	var taken []passed
	for _, r := range m.rules {
		key := m.key(r, caller, toolName)
		p := passed{now, r.Reason, key, 1, true}
		if c, ok := r.Cost[toolName]; ok {
			p.cost = int64(c)
		}
		worse := func(w time.Duration, why string) {
			if w > longest {
				longest, reason = w, why
			}
		}
		if r.Rate.given() {
			burst := r.Burst
			if burst == 0 {
				burst = r.Rate.amount
			}
			worse(wait(m.missing(r, key, r.Rate, func(passed) int64 { return 1 }, now), burst, 1, r.Rate), "rate")
		}
		if r.Units.given() {
			worse(wait(m.missing(r, key, r.Units, func(p passed) int64 { return p.cost }, now), r.Units.amount, p.cost, r.Units), "units")
		}
		running := int64(0)
		for _, q := range m.past {
			if q.running && q.rule == r.Reason && q.key == key {
				running++
			}
		}
		if r.Concurrency > 0 && running >= r.Concurrency {
			worse(soon, "concurrency")
		}
		taken = append(taken, p)
	}
	if longest > 0 {
		return longest, reason, nil
	}
	for _, p := range taken {
		ids = append(ids, len(m.past))
		m.past = append(m.past, p)
	}
	return 0, "", ids
}

func drawRule(t *rapid.T, i, version int) Rule {
	unit := rapid.SampledFrom([]string{"s", "m", "h", "d"})
	r := Rule{
		Name: fmt.Sprint("rule", i), Reason: fmt.Sprint(i, "-", version),
		Per: rapid.SampledFrom([]Parts{nil, {PerCaller}, {PerTool}, {PerTool, PerCaller}}).Draw(t, "per"),
	}
	kinds := rapid.IntRange(1, 7).Draw(t, "kinds")
	if kinds&1 > 0 {
		r.Rate = Rate{rapid.Int64Range(1, 9).Draw(t, "rate"), unit.Draw(t, "unit")}
		r.Burst = rapid.Int64Range(0, 4).Draw(t, "burst")
	}
	if kinds&2 > 0 {
		r.Units = Rate{rapid.Int64Range(3, 20).Draw(t, "units"), unit.Draw(t, "unit")}
		r.Cost = map[string]int{"x": rapid.IntRange(0, 3).Draw(t, "cost")}
	}
	if kinds&4 > 0 {
		r.Concurrency = rapid.Int64Range(1, 3).Draw(t, "concurrency")
	}
	return r
}

type running struct {
	claims []claim
	ids    []int
}

func TestQuotasAgreeWithTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		clk := newClock()
		start := clk.now
		m := &model{}
		for i := range rapid.IntRange(1, 3).Draw(t, "rules") {
			m.rules = append(m.rules, drawRule(t, i, 0))
		}
		q := New(Options{Now: clk.read})
		q.Replace(slices.Clone(m.rules))
		var calls []running
		version, hint := 0, time.Duration(0)
		t.Repeat(map[string]func(*rapid.T){
			"call": func(t *rapid.T) {
				caller, name := rapid.SampledFrom([]string{"ada", "bob"}).Draw(t, "caller"), rapid.SampledFrom([]string{"x", "y"}).Draw(t, "tool")
				claims := q.of(spec(name)).claims(&tool.Call{Caller: tool.Principal{ID: caller}}, nil)
				_, got, why := q.enter(claims)
				want, reason, ids := m.enter(caller, name, clk.now.Sub(start))
				if got != want || got > 0 && why != reason {
					t.Fatalf("%s calls %s: %v %s, the model says %v %s", caller, name, got, why, want, reason)
				}
				if hint = got; got == 0 {
					calls = append(calls, running{claims, ids})
				}
			},
			"end": func(t *rapid.T) {
				if len(calls) == 0 {
					t.Skip("none runs")
				}
				i := rapid.IntRange(0, len(calls)-1).Draw(t, "which")
				q.leave(calls[i].claims)
				for _, id := range calls[i].ids {
					m.past[id].running = false
				}
				calls = slices.Delete(calls, i, i+1)
			},
			"time": func(t *rapid.T) {
				some := rapid.SampledFrom([]time.Duration{hint, hint - time.Microsecond, time.Microsecond, 7 * time.Millisecond, time.Second / 3 / time.Microsecond * time.Microsecond, time.Minute, 5 * time.Hour})
				clk.move(max(0, some.Draw(t, "by")))
			},
			"reload": func(t *rapid.T) {
				if i := rapid.IntRange(-1, len(m.rules)-1).Draw(t, "changed"); i >= 0 {
					version++
					m.rules[i] = drawRule(t, i, version)
				}
				next := slices.Clone(m.rules)
				slices.Reverse(next)
				q.Replace(next)
				slices.Reverse(m.rules)
			},
		})
	})
}
