package engine_test

import (
	"context"
	"slices"
	"testing"

	"toolpost/engine"
	"toolpost/engine/audit"
	"toolpost/internal/kit"
	"toolpost/tool"
)

// A call that a hub has forwarded passes the stages about tools and machines, and not again those about its caller.
func TestForwardedCallsSkipWhatTheyPassedAtTheirHub(t *testing.T) {
	var passed []string
	stage := func(name string) engine.Stage {
		return func(*tool.Spec) tool.Middleware {
			return func(next tool.Handler) tool.Handler {
				return tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
					passed = append(passed, name)
					return next.Invoke(ctx, c, out)
				})
			}
		}
	}
	log := new(records)
	o := under(rules(t, `rules: [{name: held, effect: ask, tools: held}]`))
	o.Stages, o.Audit = map[string]engine.Stage{}, audit.New(audit.Options{Log: log})
	caller := []string{"calls", "answers", "approval", "idempotency", "quota", "ask", "lease", "cache", "session"}
	for _, name := range append(caller, "telemetry", "breaker", "redact") {
		o.Stages[name] = stage(name)
	}
	e := start(t, o, bind("std", source(echo, "echo", "held")))
	pass := func(name string, fromHub bool) ([]string, error) {
		passed, log.last = nil, tool.Record{}
		_, err := e.Invoke(t.Context(), &tool.Call{Tool: name, Args: []byte(`{}`), FromHub: fromHub}, tool.Discard)
		return slices.Clone(passed), err
	}
	all := kit.Must(pass("echo", false))(t)
	kit.Equal(t, log.last.Tool, "echo")
	left := kit.Must(pass("echo", true))(t)
	kit.Equal(t, log.last.Tool, "", "a call of a hub is in the hub's record, and not here")
	kit.EqualSlices(t, left, []string{"redact", "telemetry", "breaker", "redact"})
	kit.Equal(t, len(all), len(left)+len(caller))
	_, err := pass("held", true)
	kit.Refused(t, err, tool.CodeAccessDenied, "only hubs have approvers")
}

// The walls of a forwarded call are noted for its receipt: those that its hub asked for, and those of the policy here.
func TestForwardedCallsNoteTheirWalls(t *testing.T) {
	o := under(rules(t, `rules: [{name: alone, effect: confine, tools: echo, guarantees: {no_network: true}}]`))
	e := start(t, o, bind("std", source(echo, "echo")))
	c := &tool.Call{Tool: "echo", Args: []byte(`{}`), FromHub: true, Guarantees: tool.Guarantees{NoSubprocess: true}}
	c.Record = &tool.Record{}
	kit.Must(e.Invoke(t.Context(), c, tool.Discard))(t)
	kit.Equal(t, c.Record.Walls, "no_network,no_subprocess")
}
