package main

import (
	"context"
	"fmt"
	"path/filepath"

	"toolpost/bench/attempt"
	"toolpost/node"
	"toolpost/plan"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

const planConfig = "sources: [{name: echo, protocol: echo}]\nlimits: {plans: {overlap: 20}}\nstore: {}\n"

// planned compares a plan of a thousand tools that only return their input and may overlap, which is stored as it runs,
// with the same calls made directly, as many of them at once. Both are recorded: a plan is answered once the calls of its
// tools are on record. So a refused call follows the direct ones, because its answer waits for its record and for those
// before it.
func planned(
	open func(context.Context, *lab) (tool.Handler, tool.Principal), least float64,
) func(context.Context, *lab) row {
	return func(ctx context.Context, l *lab) row {
		const callers, each = 20, 50
		h, who := open(ctx, l)
		p := plan.Plan{RequestID: "bench", Parallel: true}
		for i := range callers * each {
			p.Tools = append(p.Tools, plan.Tool{ID: fmt.Sprint("t", i), Name: "look", Async: true})
		}
		args := attempt.Must(strictjson.Marshal(map[string]any{"plan": p}))
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
		direct := storm(callers, each, func() error {
			_, err := invoke(ctx, h, &tool.Call{Tool: "look", Caller: who})
			return err
		})
		recorded := func() error {
			if err := direct(); err != nil {
				return err
			}
			if _, err := invoke(ctx, h, &tool.Call{Tool: "nobody", Caller: who}); tool.CodeOf(err) != tool.CodeNotFound {
				return fmt.Errorf("a tool that is not there: %w", err)
			}
			return nil
		}
		m, r := compare(11, clock(whole), clock(recorded))
		return ofTheRate(callers*each, m, r, least)
	}
}

// plansInside calls the engine itself, in this process.
func plansInside(ctx context.Context, l *lab) (tool.Handler, tool.Principal) {
	h := l.open(ctx, filepath.Join(l.dir, "plan"), map[string]string{"toolpost.yaml": planConfig})
	return h, tool.Principal{ID: "local", Door: "cli"}
}

// plansOverHTTP calls as clients do.
func plansOverHTTP(ctx context.Context, l *lab) (tool.Handler, tool.Principal) {
	dir := filepath.Join(l.dir, "plan-http")
	_, url := l.serveNode(ctx, dir, planConfig)
	return attempt.Must(node.Dial(url, benchToken, "")), tool.Principal{}
}
