package namel3ss

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"time"

	"toolpost/host/secret"
	"toolpost/protocol/namel3ss/appfile"
	"toolpost/protocol/namel3ss/pack"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// The runners and the languages of the contract, and where the tools of an app come from in the words of the trace.
const (
	runnerLocal     = appfile.RunnerLocal
	runnerService   = appfile.RunnerService
	runnerContainer = appfile.RunnerContainer

	kindPython = appfile.KindPython
	kindNode   = appfile.KindNode

	sourceBinding = "binding" // for those of packs see package pack

	maxTimeout = appfile.MaxTimeout
)

// facts are what is known of a tool, whichever runner runs it.
type facts struct {
	spec    *tool.Spec
	root    string // the app's
	entry   string
	kind    string
	purity  string
	runner  string
	source  string          // resolved_source
	pack    *pack.Pack      // that brings it; nil: none
	asked   tool.Guarantees // by the user's config
	grant   secret.Grant    // likewise
	workers int             // calls at once, where we run it ourselves
	sandbox *bool
	unsafe  bool                                       // allow_unsafe_execution
	cover   func(name string, g tool.Guarantees) error // the coverage check
	problem error
	redact  *strings.Replacer
	log     *slog.Logger
}

// A way runs the code of one tool.
type way interface {
	// describe puts what is the runner's own into the trace.
	describe(tr *trace)
	// run runs one call. Its context ends with the tool's time.
	run(ctx context.Context, inv *invocation) (*reply, error)
	close(ctx context.Context) error
}

// A boundTool is a tool with the way to run it.
type boundTool struct {
	*facts
	way   way            // nil where there is a problem
	known map[string]any // what every trace says
}

func newBoundTool(f *facts, w way) *boundTool {
	t := &boundTool{facts: f, way: w}
	if w != nil {
		t.known = t.traced()
	}
	return t
}

// An invocation is one call on its way to the tool's code.
type invocation struct {
	call    *tool.Call
	args    json.RawMessage
	walls   tool.Guarantees   // that are asked for
	held    tool.Guarantees   // and of those, the ones that are enforced
	sources map[string]string // guarantee -> who asked for it
	logs    *logs             // nil for a service
	trace   *trace
}

// invoke runs one call within the tool's time.
func (t *boundTool) invoke(
	ctx context.Context, c *tool.Call, args json.RawMessage, out tool.Sink, tr *trace,
) (*reply, error) {
	if own, ok := ctx.Deadline(); !ok || time.Until(own) > t.spec.Timeout { // else the caller's comes first
		limit := tool.Errorf(tool.CodeTimeout, "%s ran longer than its %v and was ended", t.spec.Name, t.spec.Timeout)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, t.spec.Timeout, limit)
		defer cancel()
	}
	inv := &invocation{call: c, args: args, trace: tr}
	if t.runner != runnerService { // whose tools write their logs somewhere else
		var stop context.CancelCauseFunc
		ctx, stop = context.WithCancelCause(ctx)
		defer stop(nil)
		inv.logs = &logs{tool: t.spec.Name, ctx: ctx, stop: stop, out: out, redact: t.redact}
	}
	inv.walls, inv.sources = t.guarantees(c)
	inv.held = inv.walls
	if t.pack != nil {
		tr.checks = t.pack.Has[t.spec.Name].Needs.Checks(inv.walls, inv.sources)
	}
	rep, err := t.way.run(ctx, inv)
	if inv.logs != nil {
		inv.logs.close()
	}
	if ctx.Err() != nil {
		return nil, whyEnded(ctx, t.spec.Name)
	}
	return rep, err
}

// document is the request of the local protocol.
func (f *facts) document(inv *invocation) ([]byte, error) {
	doc, err := strictjson.Marshal(request{
		ProtocolVersion: protocolVersion, Tool: f.spec.Name, Entry: f.entry, Payload: inv.args,
		Sandbox: inv.walls.Sandbox || f.sandbox != nil && *f.sandbox, TraceID: inv.traceID(),
		Capabilities: &capabilityContext{
			ToolName: f.spec.Name, ResolvedSource: f.source, Runner: f.runner, ProtocolVersion: protocolVersion,
			Guarantees: guaranteeWords(inv.walls), Sources: inv.sources,
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
