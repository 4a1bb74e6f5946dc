package calls

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"toolpost/config"
	"toolpost/host/secret"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// Stage returns the stage, which writes how each call ends to log too, at debug level. It is in front of resolve, outside
// redact: it keeps what callers see, with the numbers of events. The engine reports to call.Watch what happens inside.
func (l *Log) Stage(log *slog.Logger) func(*tool.Spec) tool.Middleware {
	stage := func(next tool.Handler) tool.Handler {
		return tool.HandlerFunc(func(ctx context.Context, call *tool.Call, out tool.Sink) (r *tool.Result, err error) {
			ctx, e := l.enter(ctx, call, out)
			defer func() { e.end(ctx, log, r, err) }() // also on a panic, which leaves neither result nor error
			return next.Invoke(ctx, call, e)
		})
	}
	return func(*tool.Spec) tool.Middleware { return stage }
}

// A key is the caller and the id of a call. Callers choose ids independently of each other.
type key struct{ caller, id string }

// An entry is one call that runs, in one allocation: it is the call's context, its sink and its Watch. It keeps nothing
// after the call has ended.
type entry struct {
	tool.LazyContext
	key
	of     *Log
	who    tool.Principal
	atDoor bool // its door registered it, and ends its context
	taken  bool // its id belongs to another call: it is refused, and is not on the list

	call  *tool.Call // nil while it waits at its door, where it can be cancelled already
	found *tool.Call // as resolve got it, which has the spec and the record
	start time.Time
	out   tool.Sink
	names names
	own   bool // it reached one of Toolpost's own tools
	tells bool // it reached another tool, whose events are in the journal
	looks bool // under the lock of Log; it reached one of Toolpost's own tools that only read

	slot *slot      // under the lock of Log; nil if the call is not kept or has ended
	last tool.Event // under the lock of Log; the last progress or log event
	node string     // under the lock of Log; the node of the fleet that it was sent to, if any
}

var _ tool.Watcher = (*entry)(nil)

// The names of a call are copies, which all views share.
type names struct {
	call, tool, caller, session, run string
	size                             int
}

// enter returns the entry of a call that its door registered, or makes one. A call whose id is in use gets an entry of its
// own; Admit refuses it, so that the refusal is on record.
func (l *Log) enter(ctx context.Context, call *tool.Call, out tool.Sink) (context.Context, *entry) {
	n := names{short(call.ID), short(call.Tool), short(call.Caller.ID), short(call.Session), short(call.Run), 0}
	r := tool.Record{Trace: cut(call.Trace, maxName), Parent: cut(call.Parent, maxName), Key: cut(call.Key, maxName)}
	n.size = copyTexts(&n.call, &n.tool, &n.caller, &n.session, &n.run, &r.Trace, &r.Parent, &r.Key)
	args := l.env.Redactor.JSON(call.Args)
	k := key{call.Caller.ID, call.ID}
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.running[k]
	switch {
	case e == nil:
		e = l.register(ctx, call.Caller, k)
		ctx = e
	case e.call != nil || ctx.Value(mine{}) != any(e):
		e = &entry{of: l, key: k, taken: true}
	}
	e.call, e.found, e.start, e.out, e.names = call, call, call.Start(), out, n
	if !l.o.Off {
		l.keep(e, r, args)
	}
	call.Watch = tool.Watch{By: e, Steps: e.slot != nil && l.watching.Load() > 0}
	return ctx, e
}

// keep takes a slot for the call, without a line for followers: it is not known yet whether the call is left out. The
// caller holds mu.
func (l *Log) keep(e *entry, r tool.Record, args []byte) {
	n := &e.names
	r.Time, r.Call, r.Asked, r.Caller = e.start, cut(n.call, maxName), cut(n.tool, maxName), cut(n.caller, maxName)
	r.Session, r.Run, r.Door, r.DryRun = cut(n.session, maxName), cut(n.run, maxName), e.call.Caller.Door, e.call.DryRun
	e.slot = &slot{l.take()}
	e.slot.record = r
	l.grow(e.slot, slotSize+n.size)
	l.put(e.slot, docArgs, args, maxDoc)
}

// Admit implements tool.Watcher.
func (e *entry) Admit(call *tool.Call) error {
	if e.found = call; e.taken {
		return Taken(call.ID)
	}
	return nil
}

// Found implements tool.Watcher. Toolpost's own tools that only read are left out. People look at calls with them: a
// watcher would see only its own watching, and each look at a call would be kept with everything that it showed. The events
// of all its own tools are left out of the journal: one of them returns these very lines.
func (e *entry) Found(spec *tool.Spec) {
	l := e.of
	e.own = spec.Source == config.OwnSource
	e.tells, e.names.tool = !e.own, short(spec.Name)
	l.mu.Lock()
	e.looks = spec.Looks()
	switch s := e.slot; {
	case s == nil:
	case e.looks:
		l.release(s)
		e.slot = nil
	default:
		s.spec = spec
		s.record.Tool, s.record.Source, s.record.Protocol = spec.Name, spec.Source, spec.Protocol
		if s.record.Asked == spec.Name {
			s.record.Asked = ""
		}
		s.seq[0] = l.tell(s, began)
	}
	l.mu.Unlock()
	l.Tell()
}

// Learned implements tool.Watcher.
func (e *entry) Learned() {
	l := e.of
	args := secret.Of(e.call).JSON(l.env.Redactor.JSON(e.call.Args))
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := e.slot; s != nil {
		d := &s.docs[docArgs]
		l.grow(s, -cap(d.text))
		d.text = d.text[:0]
		l.put(s, docArgs, args, maxDoc)
	}
}

// Sent implements tool.Watcher. Followers are told of the call again, with its node.
func (e *entry) Sent(node string) {
	l := e.of
	l.mu.Lock()
	e.node = node
	if s := e.slot; s != nil {
		s.record.Node = node
		l.tell(s, began)
	}
	l.mu.Unlock()
	l.Tell()
}

// Emit implements tool.Sink. The views share one copy of the event's data.
func (e *entry) Emit(ev tool.Event) error {
	l, copied := e.of, ev
	if copied.Data = slices.Clone(ev.Data[:min(len(ev.Data), maxEvent)]); copied.Time.IsZero() {
		copied.Time = time.Now()
	}
	var line JournalLine
	if e.tells && !ev.Ours && (ev.Kind == tool.KindLog || ev.Kind == tool.KindError) {
		line = e.said(ev, copied)
	}
	last := lastOf(ev, copied)
	l.mu.Lock()
	if last.Kind != "" {
		e.last = last
	}
	if e.slot != nil {
		if b := ev.Blocked; b != nil {
			stopped := *b
			stopped.Target = secret.Of(e.call).String(l.env.Redactor.String(b.Target)) // only the data went through redact
			l.block(e.slot, stopped)
		}
		l.say(e.slot, copied, len(ev.Data))
	}
	if line.From != "" {
		l.write(line, e.names.size)
	}
	l.mu.Unlock()
	l.Tell()
	return e.out.Emit(ev)
}

// Enter implements tool.Watcher.
func (e *entry) Enter(stage string) int {
	at := time.Since(e.start)
	e.of.mu.Lock()
	defer e.of.mu.Unlock()
	s := e.slot
	if s == nil || len(s.steps) == maxSteps {
		return -1
	}
	s.steps = append(s.steps, step{stage, at, -1})
	e.of.grow(s, stepSize)
	return len(s.steps) - 1
}

// Leave implements tool.Watcher.
func (e *entry) Leave(step int) {
	at := time.Since(e.start)
	e.of.mu.Lock()
	defer e.of.mu.Unlock()
	if s := e.slot; s != nil && step >= 0 {
		s.steps[step].took = at - s.steps[step].start
	}
}

// end keeps the outcome of the call. The stages that redact and answer are done by then. It frees the id before the door
// has answered: a caller may reuse it as soon as it has the answer. The context of a call that its door registered lives
// on, because the answer may be written under it.
func (e *entry) end(ctx context.Context, log *slog.Logger, r *tool.Result, err error) {
	l, took := e.of, r.Elapsed(e.start)
	line, summary := e.ended(r, err, took), ""
	outcome, _, reason := tool.OutcomeOf(r, err) // unlike the journal, it does not tell of a hidden tool
	failure := failureOf(r, err)
	var output []byte
	if r != nil {
		summary, output = strings.Clone(short(r.Summary)), r.Output
		if e.own { // before the lock, which every call waits for: an output can be large
			output = l.env.RedactByName(output)
		}
	}
	l.mu.Lock()
	if l.running[e.key] == e {
		delete(l.running, e.key)
	}
	if s := e.slot; s != nil {
		e.slot = nil
		s.summary, s.record.Duration, s.record.Outcome = summary, took, outcome
		s.record.Code, s.record.Reason = tool.Code(cut(string(line.Code), maxName)), strings.Clone(cut(reason, maxName))
		s.note(e.found.Record, r)
		l.grow(s, len(summary))
		l.put(s, docOutput, output, maxDoc)
		l.put(s, docError, failure, maxError)
		l.finish(s)
	}
	l.write(line, e.names.size)
	l.mu.Unlock()
	l.Tell()
	if !e.atDoor {
		e.End(nil)
	}
	if log.Enabled(ctx, slog.LevelDebug) {
		log.LogAttrs(ctx, slog.LevelDebug, "call", line.attrs(e.found.Record)...)
	}
}

// finish moves a call to those that have ended. The caller holds mu.
func (l *Log) finish(s *slot) {
	for i := range s.steps {
		if s.steps[i].took < 0 {
			s.steps[i].took = s.record.Duration - s.steps[i].start
		}
	}
	if s.seq[0] == 0 { // it never reached a tool
		s.seq[0] = l.tell(s, began)
	}
	s.seq[1] = l.tell(s, over)
	l.ended = append(l.ended, s)
	for len(l.ended) > l.o.Calls || l.bytes > l.o.Bytes && len(l.ended) > 0 {
		l.drop()
	}
}

// note copies what the audit stage knows, if the caller may know the tool. The chain has returned, so these fields are no
// longer written. The log may still set the record's place.
func (s *kept) note(of *tool.Record, r *tool.Result) {
	if s.spec != nil && of != nil {
		s.record.Decision, s.record.Rule, s.record.Walls, s.record.Tier = of.Decision, of.Rule, of.Walls, of.Tier
		s.record.Replay, s.record.Cached, s.record.Node = of.Replay, of.Cached, of.Node
	}
	s.record.Cached = s.record.Cached || r != nil && r.Trace.Cached
}

// failureOf returns the error of a call as JSON, whether it is the tool's own or another.
func failureOf(r *tool.Result, err error) []byte {
	var e *tool.Error
	switch {
	case err != nil:
		e = tool.AsError(err)
	case r == nil:
		e = tool.Errorf(tool.CodeInternal, "an internal error; the log has the details")
	default:
		e = r.Failure
	}
	if e == nil {
		return nil
	}
	doc, err := strictjson.Marshal(e)
	if err != nil { // details that are not JSON
		doc, _ = strictjson.Marshal(&tool.Error{Code: e.Code, Reason: e.Reason, Message: e.Message})
	}
	return doc
}
