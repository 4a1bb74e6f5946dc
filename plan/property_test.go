package plan_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"toolpost/internal/kit"
	"toolpost/internal/rounds"
	"toolpost/plan"
)

// A modelTool is a tool of a random plan, as the model sees it.
type modelTool struct {
	needs    []int // tools at any index; the generator avoids cycles
	fails    int   // attempts
	retries  int
	optional bool
	async    bool
	take     int
}

// randomPlan draws a graph whose edges go from tools to those before them in some order, which is not that of the list.
func randomPlan(t *rapid.T) []modelTool {
	n := rapid.IntRange(1, 12).Draw(t, "tools")
	order := rapid.Permutation(slices.Collect(func(yield func(int) bool) {
		for i := range n {
			if !yield(i) {
				return
			}
		}
	})).Draw(t, "order")
	tools := make([]modelTool, n)
	for rank, i := range order {
		m := &tools[i]
		for _, j := range order[:rank] {
			if rapid.IntRange(0, 3).Draw(t, "edge") == 0 {
				m.needs = append(m.needs, j)
			}
		}
		m.fails, m.retries = rapid.IntRange(0, 3).Draw(t, "fails"), rapid.IntRange(0, 2).Draw(t, "retries")
		m.optional, m.async = rapid.Bool().Draw(t, "optional"), rapid.Bool().Draw(t, "async")
		m.take = rapid.IntRange(0, 2).Draw(t, "take")
	}
	return tools
}

// simulate returns the expected outcome of a plan, by the rules, one tool after the other and without regard for speed.
func simulate(tools []modelTool) (order []int, states map[int]string, success bool) {
	states, success = map[int]string{}, true
	for len(order) < len(tools) {
		for i, m := range tools { // the first that can run
			ready := states[i] == "" && !slices.ContainsFunc(m.needs, func(j int) bool { return states[j] == "" })
			if !ready {
				continue
			}
			stops := func(j int) bool {
				return states[j] == plan.Skipped || states[j] == plan.Failed && !tools[j].optional
			}
			switch {
			case slices.ContainsFunc(m.needs, stops):
				states[i] = plan.Skipped
			case m.fails > m.retries:
				states[i] = plan.Failed
				success = success && m.optional
			default:
				states[i] = plan.Success
			}
			order = append(order, i)
			break
		}
	}
	return order, states, success
}

func document(tools []modelTool, parallel bool) string {
	var all []string
	for i, m := range tools {
		var needs []string
		for _, j := range m.needs {
			needs = append(needs, fmt.Sprintf("'t%d'", j))
		}
		all = append(all, fmt.Sprintf(`{'toolId':'t%d','tool':'do','required':%v,'async':%v,'dependencies':[%s],`+
			`'retryPolicy':{'maxRetries':%d,'backoffMs':1},'input':{'as':'t%d','fails':%d,'take':%d,'patch':{'last':'t%d','t%d':1}}}`,
			i, !m.optional, m.async, strings.Join(needs, ","), m.retries, i, m.fails, m.take, i, i))
	}
	return fmt.Sprintf(`{'requestId':'r','parallel':%v,'tools':[%s]}`, parallel, strings.Join(all, ","))
}

func TestRandomPlansAgreeWithTheModel(t *testing.T) {
	for range rounds.Of(1, 20) {
		rapid.Check(t, checkAgainstModel)
	}
}

func checkAgainstModel(t *rapid.T) {
	tools, parallel := randomPlan(t), rapid.Bool().Draw(t, "parallel")
	order, want, success := simulate(tools)
	w := rapidWorld(t)
	defer func() { _ = w.Close(w.ctx) }()
	p := kit.Must(plan.Read([]byte(strings.ReplaceAll(document(tools, parallel), "'", `"`))))(t)
	x := plan.Executor{Handler: w, Catalog: w}
	r, err := x.Run(w.ctx, plan.Run{Call: outer(), Plan: p}, &recorder{})
	if err != nil || r.Success != success {
		t.Fatalf("%+v, %v, want success %v", r, err, success)
	}
	var ids, last []string
	for _, i := range order {
		ids = append(ids, fmt.Sprintf("t%d:%s", i, want[i]))
		if want[i] == plan.Success {
			last = append(last, fmt.Sprintf("t%d", i))
		}
	}
	kit.MustEqual(t, states(r), strings.Join(ids, " "))
	if len(last) > 0 && !strings.Contains(string(r.AggregatedState), `"last":"`+last[len(last)-1]+`"`) {
		t.Fatalf("%s, where the last to patch is %s", r.AggregatedState, last[len(last)-1])
	}
	checkCalls(t, w, tools, want, parallel, order)
}

// checkCalls checks that no tool began before those it needs, none more often than it may, and alone if it must.
func checkCalls(t *rapid.T, w *world, tools []modelTool, want map[int]string, parallel bool, order []int) {
	first := map[string]int{}
	for n, as := range slices.Backward(w.began) {
		first[as] = n
	}
	tries := map[string]int{}
	for i, m := range tools {
		id := fmt.Sprintf("t%d", i)
		if want[i] != plan.Skipped {
			tries[id] = min(m.fails, m.retries) + 1
		}
		for _, j := range m.needs {
			if at, ran := first[id]; ran && first[fmt.Sprintf("t%d", j)] > at {
				t.Fatalf("%s began before t%d: %v", id, j, w.began)
			}
		}
	}
	if !maps.Equal(tries, w.tries) {
		t.Fatalf("calls %v, want %v", w.tries, tries)
	}
	if parallel {
		return
	}
	var alone []string
	for _, i := range order {
		id := fmt.Sprintf("t%d", i)
		alone = append(alone, slices.Repeat([]string{id}, tries[id])...)
	}
	if w.most > 1 || !slices.Equal(alone, w.began) {
		t.Fatalf("one after the other: %v, want %v; %d at once", w.began, alone, w.most)
	}
}

func TestFiveHundredToolsInOnePlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := &plan.Plan{RequestID: "r", Parallel: true}
		for i := range 500 {
			one := plan.Tool{ID: fmt.Sprintf("t%d", i), Name: "do", Async: true}
			one.Input = fmt.Appendf(nil, `{"as":"t%d","take":%d,"patch":{"n":{"t%d":1}},"gives":{"sum":%d}}`, i, i%7, i, i)
			if i >= 10 {
				one.Dependencies = []string{fmt.Sprintf("t%d", i-10)}
				one.Input = fmt.Appendf(nil, `{"as":"t%d","patch":{"n":{"t%d":1}},"gives":"${t%d.output}"}`, i, i, i-10)
			}
			p.Tools = append(p.Tools, one)
		}
		x := plan.Executor{Handler: w, Catalog: w}
		r, err := x.Run(t.Context(), plan.Run{Call: outer(), Plan: p}, &recorder{})
		if err != nil || !r.Success || len(r.ToolResults) != 500 || string(resultOf(r, "t499").Output) != `{"sum":9}` || w.most < 2 {
			t.Fatalf("%v, %d at once, %d results", err, w.most, len(r.ToolResults))
		}
		kit.Equal(t, strings.Count(string(r.AggregatedState), `:1`), 500, "patches")
	})
}
