package machina

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"time"

	"toolpost/host/process"
	"toolpost/host/spawn"
	"toolpost/host/walls"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// A Runner calls the tools of one toolhost and plugin.
type Runner struct {
	o     Options
	host  *spawn.Program
	log   *slog.Logger
	specs []*tool.Spec
	aids  map[string]string // by the tool's name
	held  tool.Guarantees   // what holds around a session

	sessions *process.Pool[*session]
}

var (
	_ tool.Runner = (*Runner)(nil)
	_ tool.Source = (*Runner)(nil)
)

// Tools implements tool.Source.
func (r *Runner) Tools(context.Context) ([]*tool.Spec, error) { return r.specs, nil }

// Places returns how many calls run at once: each has a session to itself.
func (r *Runner) Places(string) (pool string, calls int) {
	if r.o.Mode == "run" {
		return "", 0
	}
	return "sessions", r.o.Sessions
}

// Workers implements tool.Staffed.
func (r *Runner) Workers() tool.Workers { return r.sessions.Workers() }

// Close implements tool.Runner: it ends the warm sessions.
func (r *Runner) Close(ctx context.Context) error { return r.sessions.Close(ctx) }

// Invoke implements tool.Handler.
func (r *Runner) Invoke(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	aid, ok := r.aids[c.Tool]
	if !ok {
		return nil, tool.Errorf(tool.CodeNotFound, "the toolhost has no tool named %q", c.Tool)
	}
	state, err := decodeState(c.State)
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the state of the session cannot be sent: %w", err)
	}
	if own, ok := ctx.Deadline(); !ok || time.Until(own) > time.Duration(r.o.Timeout) { // otherwise the caller's deadline comes first
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, time.Duration(r.o.Timeout), r.outOfTime(aid))
		defer cancel()
	}
	if ctx.Err() != nil {
		return nil, interrupted(ctx, aid)
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	events := tool.NewRelay(out, stop)
	defer events.Close()
	call := &call{Call: c, aid: aid, state: state, events: events, guarantees: c.Tightened(r.o.Guarantees)}
	answer, err := r.ask(ctx, call)
	if failed := events.Err(); failed != nil {
		return nil, failed
	}
	if err != nil {
		return nil, err
	}
	return r.conclude(call, answer)
}

func (r *Runner) outOfTime(aid string) error {
	return tool.Errorf(tool.CodeTimeout, "%s ran longer than the toolhost's %v; `timeout` of its source gives it more", aid,
		time.Duration(r.o.Timeout))
}

// A call is one call on its way to the toolhost.
type call struct {
	*tool.Call
	aid      string
	state    slots // of its session
	after    slots // after the tool's changes
	attempts int
	events   *tool.Relay

	guarantees tool.Guarantees
	layers     []string      // the walls around it
	checks     []walls.Check // attempts that they stopped
}

// safeToRepeat reports whether the call may safely run twice.
func (c *call) safeToRepeat() bool { return c.Key != "" || c.Spec != nil && c.Spec.Effects.ReadOnly() }

// hostKey returns the call's idempotency key for the toolhost. A toolhost remembers keys for its whole process and knows
// neither callers nor sessions. So the key includes them, and no caller gets the outcome of another. It is the same in every
// process, for toolhosts that remember longer than we live.
func (c *call) hostKey() string {
	if c.Key == "" {
		return ""
	}
	return tool.NameFor("key", c.Caller.ID, c.Session, c.aid, c.Key)
}

// ask gets the toolhost's answer in the configured mode. A warm session has the walls that it was started with, so a call
// that needs more gets a toolhost of its own.
func (r *Runner) ask(ctx context.Context, c *call) (*answer, error) {
	if r.o.Mode == "run" || !r.held.Covers(c.guarantees) {
		return r.askOnce(ctx, c)
	}
	for {
		c.attempts++
		a, broken, err := r.askSession(ctx, c)
		if !broken || c.attempts > 1 || !c.safeToRepeat() || ctx.Err() != nil {
			return a, err
		}
		_ = c.events.Emit(tool.LogEvent("warn",
			"the toolhost's session broke, and the call is repeated: "+tool.AsError(err).Message))
	}
}

// askOnce starts a toolhost for this one call. It receives the whole state, and returns it.
func (r *Runner) askOnce(ctx context.Context, c *call) (*answer, error) {
	c.attempts = 1
	var told *change
	if len(c.state) > 0 {
		told = &change{Slots: c.state}
	}
	request, err := encodeRequest("", c, told)
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s: %w", c.aid, err)
	}
	doc, err := r.once(ctx, c, []string{"--run", r.o.Plugin, c.aid}, request)
	if err != nil {
		return nil, err
	}
	return c.decode(doc)
}

// decode reads an answer and takes the state from it.
func (c *call) decode(doc []byte) (*answer, error) {
	a, err := decodeAnswer(doc)
	if err != nil {
		return nil, structured(typeParseError, c.aid, "the toolhost's reply to %s: %w", c.aid, err)
	}
	c.after = a.changed(c.state)
	return a, nil
}

// once runs a toolhost to its end and returns what it printed.
func (r *Runner) once(ctx context.Context, c *call, args []string, stdin []byte) ([]byte, error) {
	var watch walls.Watch
	watch.Follow(c.events, walls.Sources(r.o.Guarantees, c.guarantees))
	p, err := process.Printed(ctx, stdin, r.o.MaxReply, func() (*process.Child, error) {
		return r.host.Start(ctx, spawn.Run{
			Name: c.aid, Args: args, Call: c.Call, Guarantees: c.guarantees, Watch: &watch,
			Stderr: c.events.Stderr,
		})
	})
	switch {
	case ctx.Err() != nil:
		return nil, interrupted(ctx, c.aid)
	case err != nil:
		return nil, missing(c.aid, err)
	}
	c.layers, c.checks = p.Layers, watch.Checks()
	return p.Doc, judge(p, c.aid)
}

// missing returns the error of a toolhost that could not be started, or nil. An error with a reason of its own, such as a
// wall that cannot be built, is kept.
func missing(aid string, err error) error {
	if known := tool.AsError(err); known == nil || known.Code != tool.CodeUnavailable || known.Reason != "" {
		return err
	}
	typ := typeNotFound
	if errors.Is(err, fs.ErrPermission) { // it exists
		typ = typeException
	}
	e := structured(typ, aid, "%s", tool.AsError(err).Message)
	e.Code, e.Err = tool.CodeUnavailable, err
	return e
}

// judge examines what a toolhost printed and how it ended. Its exit codes carry what a document cannot.
func judge(p *process.Printout, aid string) error {
	switch {
	case p.TooLong():
		return structured(typeParseError, aid, "the reply to %s: %w", aid, p.Err)
	case p.Exit.Code == 3 && said(p) != "":
		return structured(typeNotFound, aid, "the toolhost has no such plugin: %s", said(p))
	case p.Exit.Code == 4 && said(p) != "":
		return &tool.Error{Code: tool.CodeNotFound, Reason: typeNotFound, Message: said(p)}
	case p.Exit.Code != 0 && said(p) != "":
		return structured(typeCrash, aid, "the toolhost crashed in %s: %s (%s)", aid, said(p), p.Exit)
	case p.Exit.Code != 0:
		return structured(typeCrash, aid, "the toolhost crashed in %s: %s", aid, p.Last)
	case p.Err != nil:
		return structured(typeException, aid, "the reply to %s could not be read: %w", aid, p.Err)
	case len(bytes.TrimSpace(p.Doc)) == 0:
		return structured(typeEmptyOutput, aid, "the toolhost ended without a reply to %s", aid)
	}
	return nil
}

// said returns the error in the toolhost's document, or "" if it has none.
func said(p *process.Printout) string {
	var r refusal
	_ = strictjson.Unmarshal(p.Doc, &r) // the output may not be a document
	return clip(r.Error)
}

// conclude passes on the tool's changes to the state, even if the tool failed, and returns the outcome.
func (r *Runner) conclude(c *call, a *answer) (*tool.Result, error) {
	result, err := a.outcome(c.aid)
	if err != nil {
		return nil, err
	}
	if err := c.emitPatch(); err != nil {
		return nil, err
	}
	details := map[string]any{
		"run_header": Header(c.Call), "aid": c.aid, "mode": r.o.Mode, "status": a.Status, "attempts": c.attempts,
	}
	if a.Hit {
		details["idempotent_hit"] = true
	}
	walls.Enforced(c.Call, details, c.guarantees, c.layers, c.checks)
	result.Trace.Details = details
	return result, nil
}

// emitPatch emits the tool's changes as a patch of the state document.
func (c *call) emitPatch() error {
	if c.state.delta(c.after).empty() {
		return nil
	}
	before, err := c.state.document()
	if err != nil {
		return structured(typeException, c.aid, "the state before %s: %w", c.aid, err)
	}
	after, err := c.after.document()
	if err != nil {
		return structured(typeParseError, c.aid, "the state after %s: %w", c.aid, err)
	}
	data, err := strictjson.Marshal(strictjson.Diff(before, after))
	if err != nil {
		return structured(typeException, c.aid, "the state after %s: %w", c.aid, err)
	}
	return c.events.Emit(tool.Event{Kind: tool.KindStatePatch, Data: data})
}
