package main

import (
	"context"
	"fmt"
	"path/filepath"

	"toolpost/bench/attempt"
	"toolpost/plan"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

const planConfig = "sources: [{name: echo, protocol: echo}]\nlimits: {plans: {overlap: 20}}\nstore: {}\n"

// planned compares a plan of a thousand tools that only give back what they got and may overlap, which is kept as it
// runs, with the same calls made directly, as many of them at once. Both are recorded.
func planned(ctx context.Context, l *lab) row {
	const callers, each = 20, 50
	h := l.open(ctx, filepath.Join(l.dir, "plan"), map[string]string{"toolpost.yaml": planConfig})
	p := plan.Plan{RequestID: "bench", Parallel: true}
	for i := range callers * each {
		p.Tools = append(p.Tools, plan.Tool{ID: fmt.Sprint("t", i), Name: "look", Async: true})
	}
	args := attempt.Must(strictjson.Marshal(map[string]any{"plan": p}))
	who := tool.Principal{ID: "local", Door: "cli"}
	whole := func() error {
		output, err := invoke(ctx, h, &tool.Call{Tool: "plan.run", Args: args, Caller: who})
		if err != nil {
			return err
		}
		result, err := strictjson.ReadMembers(output, "success", "error")
		if err == nil && string(result.Get("success")) != "true" {
			err = fmt.Errorf("the plan failed: %s", result.Get("error"))
		}
		return err
	}
	single := func() error {
		_, err := invoke(ctx, h, &tool.Call{Tool: "look", Caller: who})
		return err
	}
	m, r := compare(11, clock(whole), clock(storm(callers, each, single)))
	return ofTheRate(callers*each, m, r, 0.8)
}
