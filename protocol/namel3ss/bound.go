package namel3ss

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"time"

	"toolpost/host/secret"
	"toolpost/host/walls"
	"toolpost/protocol/namel3ss/appfile"
	"toolpost/protocol/namel3ss/pack"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// facts describe a tool independently of the runner that runs it.
type facts struct {
	spec    *tool.Spec
	root    string // the app's
	entry   string
	kind    string
	purity  string
	runner  string
	source  string          // resolved_source
	pack    *pack.Pack      // that brings it, or nil
	asked   tool.Guarantees // by the user's config
	grant   secret.Grant    // likewise
	workers int             // calls at once, if we run it ourselves
	sandbox *bool
	unsafe  bool                                       // allow_unsafe_execution
	cover   func(name string, g tool.Guarantees) error // the coverage check
	problem error
	redact  *strings.Replacer
	log     *slog.Logger
}

// A way runs the code of one tool.
type way interface {
	// describe adds the runner's own fields to the trace.
	describe(tr *trace)
	// run runs one call. Its context ends with the tool's time.
	run(ctx context.Context, inv *invocation) (*reply, error)
	close(ctx context.Context) error
}

// A boundTool is a tool together with the way to run it.
type boundTool struct {
	*facts
	way   way            // nil if there is a problem
	known map[string]any // the fields of every trace
}

// An invocation is one call on its way to the tool's code.
type invocation struct {
	call    *tool.Call
	args    json.RawMessage
	walls   tool.Guarantees   // guarantees that are asked for
	held    tool.Guarantees   // those of them that are enforced
	sources map[string]string // guarantee -> its origin
	logs    *logs             // nil for a service
	trace   *trace
}

// invoke runs one call within the tool's time.
func (t *boundTool) invoke(
	ctx context.Context, c *tool.Call, args json.RawMessage, out tool.Sink,
) (*tool.Result, error) {
	tr, err := t.newTrace(args)
	if err != nil {
		return nil, tr.failed(err)
	}
	if own, ok := ctx.Deadline(); !ok || time.Until(own) > t.spec.Timeout { // otherwise the caller's deadline comes first
		limit := tool.Errorf(tool.CodeTimeout, "%s ran longer than its %v and was ended; `timeout` of its source gives it more",
			t.spec.Name, t.spec.Timeout)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, t.spec.Timeout, limit)
		defer cancel()
	}
	inv := &invocation{call: c, args: args, trace: tr}
	if t.runner != appfile.RunnerService { // a service's tools write their logs elsewhere
		var stop context.CancelCauseFunc
		ctx, stop = context.WithCancelCause(ctx)
		defer stop(nil)
		inv.logs = &logs{tool: t.spec.Name, ctx: ctx, stop: stop, events: tool.NewRelay(out, stop), redact: t.redact}
	}
	inv.walls, inv.sources = t.guarantees(c)
	inv.held = inv.walls
	if t.pack != nil {
		tr.checks = t.pack.Has[t.spec.Name].Needs.Checks(inv.walls, inv.sources)
	}
	rep, err := t.way.run(ctx, inv)
	if inv.logs != nil {
		inv.logs.close()
		if err := inv.logs.events.Err(); err != nil {
			return nil, err // the caller has stopped listening
		}
	}
	if ctx.Err() != nil {
		err = whyEnded(ctx, t.spec.Name)
	}
	if err != nil {
		return nil, tr.failed(err)
	}
	return tr.result(rep), nil
}

// A code runs the local protocol: a process gets the request, and its whole outcome is an ending.
type code interface {
	covered(inv *invocation) error
	execute(ctx context.Context, request []byte, inv *invocation) (ending, error)
}

// runCode runs a call, unless it asks for a guarantee that cannot be enforced.
func (f *facts) runCode(ctx context.Context, inv *invocation, c code) (*reply, error) {
	if err := c.covered(inv); err != nil {
		return nil, err
	}
	doc, err := f.document(inv)
	if err != nil {
		return nil, err
	}
	e, err := c.execute(ctx, doc, inv)
	if err != nil {
		return nil, about(f.spec.Name, err)
	}
	rep, err := e.outcome(f.spec.Name, inv.logs.last())
	// The checks that our host derives from a failure count only if the walls themselves saw nothing.
	if err == nil && f.runner == appfile.RunnerLocal &&
		slices.ContainsFunc(inv.trace.checks, blocks(walls.GuaranteeBlocked)) {
		rep.Checks = nil
	}
	return rep, err
}

// close is for ways that keep no state between calls.
func (f *facts) close(context.Context) error { return nil }

// document returns the request of the local protocol.
func (f *facts) document(inv *invocation) ([]byte, error) {
	doc, err := strictjson.Marshal(request{
		ProtocolVersion: protocolVersion, Tool: f.spec.Name, Entry: f.entry, Payload: inv.args,
		Sandbox: inv.walls.Sandbox || f.sandbox != nil && *f.sandbox, TraceID: inv.traceID(),
		Capabilities: &capabilityContext{
			ToolName: f.spec.Name, ResolvedSource: f.source, Runner: f.runner, ProtocolVersion: protocolVersion,
			Guarantees: guaranteeWords(inv.walls, true), Sources: inv.sources,
		},
	})
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s: the arguments: %w", f.spec.Name, err)
	}
	return doc, nil
}

func (inv *invocation) traceID() string {
	if inv.call.Trace != "" {
		return inv.call.Trace
	}
	return tool.NewID()
}
