package quota

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"toolpost/internal/kit"
	"toolpost/tool"
)

// bad returns invalid configs, each with a part of its error.
func bad() map[string]string {
	many := make([]string, maxRules+1)
	for i := range many {
		many[i] = fmt.Sprintf("{name: r%d, rate: 1/s}", i)
	}
	return map[string]string{
		"{rate: 1/s}":                                     "a quota has no name; give it one, such as `name: per-caller`",
		"{name: a}":                                       `quota "a" limits nothing; give it a rate, units or a concurrency`,
		"{name: a, concurrency: 0}":                       `quota "a" limits nothing`,
		"{name: a, concurrency: -1}":                      `concurrency is -1; it must be 1 to 100000000`,
		"{name: a, concurrency: 1.5}":                     `expected a whole number`,
		"{name: a, rate: 100}":                            `expected a rate such as 10/s, 100/m, 1000/h or 5000/d, got "100"`,
		"{name: a, rate: m}":                              `expected a rate`,
		"{name: a, rate: 1/}":                             `expected a rate`,
		"{name: a, rate: 1/y}":                            `got "1/y"`,
		"{name: a, rate: 1/s/s}":                          `got "1/s/s"`,
		"{name: a, rate: -1/s}":                           `got "-1/s"`,
		"{name: a, rate: 1.5/s}":                          `got "1.5/s"`,
		"{name: a, rate: 1e3/s}":                          `got "1e3/s"`,
		"{name: a, rate: 99999999999999999999/s}":         `expected a rate`,
		"{name: a, rate: 0/s}":                            `0/s: it must be 1 to 100000000; to allow nothing, deny it in the policy`,
		"{name: a, rate: 100000001/s}":                    `it must be 1 to 100000000`,
		"{name: a, rate: [1/s]}":                          `expected a string, got a list`,
		"{name: a, burst: 5, concurrency: 1}":             `quota "a" has a burst and no rate`,
		"{name: a, rate: 1/s, burst: -5}":                 `burst is -5`,
		"{name: a, rate: 1/s, burst: 100000001}":          `burst is 100000001; it must be 1 to 100000000`,
		"{name: a, rate: 1/s, cost: {x: 2}}":              `quota "a" has costs and no units`,
		"{name: a, units: 9/s, cost: {x: 10}}":            `a call of x costs 10 units, and there are never more than 9`,
		"{name: a, units: 9/s, cost: {x: -1}}":            `a call of x cannot cost -1; 0 is free`,
		"{name: a, units: 9/s, cost: 5}":                  `expected a mapping`,
		"{name: a, rate: 1/s, per: [caller, caler]}":      `expected caller, tool, source, door, session or codebase, got "caler"`,
		"{name: a, rate: 1/s, per: [caller, caller]}":     `per names caller twice`,
		"{name: a, rate: 1/s, tools: []}":                 `tools is an empty list and would match nothing`,
		"{name: a, rate: 1/s, callers: ['']}":             `a pattern is empty; * matches everything`,
		"{name: a, rate: 1/s, doors: htp}":                `quota "a": there is no door "htp"; did you mean "http"?`,
		"{name: a, rate: 1/s, sources: [elsewhere]}":      `quota "a": there is no source "elsewhere"; known are s, files`,
		"{name: a, rate: 1/s, rat: 1/s}":                  `unknown field "rat"; did you mean "rate"?`,
		"{name: a, rate: 1/s}, {name: a, rate: 2/s}":      `two quotas are called "a"; give one of them another name`,
		"{name: a, rate: 1/s, tools: " + long() + "}":     `a pattern is longer than 1024 bytes`,
		"{name: a, rate: 1/s, rate: 1/s}":                 `rate`,
		strings.Join(many, ", "):                          `there are 101 quotas, and 100 are allowed`,
		"{name: a, rate: 1/s}, 5":                         `expected a mapping`,
		"{name: [a], rate: 1/s}":                          `expected a string`,
		"{name: a, units: 1/s, cost: {default: 2, x: 1}}": `a call of default costs 2 units`,
	}
}

func long() string { return strings.Repeat("a", 1024+1) }

func TestInvalidRulesAreExplained(t *testing.T) {
	for text, want := range bad() {
		_, err := read("quotas: [" + text + "]")
		kit.Refused(t, err, tool.CodeInvalidInput, want, text)
	}
}

func FuzzRules(f *testing.F) {
	f.Add("{name: per-caller, per: [caller], rate: 100/m, burst: 20, concurrency: 8, tools: [a, 's.*'], sources: [s], callers: ['a?a', '*'], doors: [http], cost: {a: 5, default: 1}, units: 1000/h, reason: why}", "ada", []byte(`{"codebase_id":"x"}`))
	f.Add("{name: a, per: [codebase, session, door, source, tool], rate: 1/d}, {name: b, units: 100000000/s}", "", []byte(`{"codebaseId":5}`))
	for text := range bad() {
		if len(text) < 200 {
			f.Add(text, "x", []byte(`[]`))
		}
	}
	f.Fuzz(func(t *testing.T, text, caller string, args []byte) {
		list, err := read("quotas: [" + text + "]")
		if err != nil {
			kit.Refused(t, err, tool.CodeInvalidInput, "")
			return
		}
		clk := newClock()
		q := New(Options{Now: clk.read})
		q.Replace(list)
		stage := q.For(spec("a"))
		if stage == nil {
			return
		}
		call := &tool.Call{Tool: "a", Caller: tool.Principal{ID: caller, Door: "http"}, Args: args}
		for range 20 {
			_, err := stage(done).Invoke(context.Background(), call, tool.Discard)
			if err == nil {
				continue
			}
			e := tool.AsError(err)
			if _, wait := retryAfter(t, e); e.Code != tool.CodeQuotaExceeded || wait > 24*time.Hour {
				t.Fatal(e)
			} else {
				clk.move(wait)
			}
			if _, err := stage(done).Invoke(context.Background(), call, tool.Discard); err != nil {
				t.Fatalf("after it waited as it was told: %v", err)
			}
		}
	})
}

// A call of a known key allocates nothing.
func TestAKnownCallerCostsNoMemory(t *testing.T) {
	q := New(Options{})
	q.Replace(rules(t, "{name: r, per: [caller, tool], rate: 100000000/s, concurrency: 9}", "{name: u, per: session, units: 100000000/s}"))
	c := by("ada")
	result := &tool.Result{}
	h := q.For(spec("a"))(tool.HandlerFunc(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) { return result, nil }))
	if n := testing.AllocsPerRun(1000, func() { _, _ = h.Invoke(context.Background(), &c, tool.Discard) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkStage(b *testing.B) {
	result := &tool.Result{}
	next := tool.HandlerFunc(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) { return result, nil })
	for name, texts := range map[string][]string{
		"one rule":             {"{name: r, per: caller, rate: 100000000/s}"},
		"three":                {"{name: r, per: caller, rate: 100000000/s}", "{name: t, per: tool, concurrency: 1000}", "{name: u, units: 100000000/s}"},
		"a pattern for caller": {"{name: r, per: caller, rate: 100000000/s, callers: [b, 'a*']}"},
		"per codebase":         {"{name: r, per: codebase, rate: 100000000/s}"},
	} {
		q := New(Options{})
		q.Replace(rules(b, texts...))
		h := q.For(spec("a"))(next)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				c := by("ada")
				c.Args = []byte(`{"query":"x","codebase_id":"main"}`)
				for pb.Next() {
					_, _ = h.Invoke(context.Background(), &c, tool.Discard)
				}
			})
		})
	}
}
