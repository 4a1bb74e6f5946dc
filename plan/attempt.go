package plan

import (
	"container/heap"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// An attempt is one plan that runs. Each running tool has a goroutine that calls it. When a goroutine is done, it
// decides what follows; only one decides at a time.
type attempt struct {
	x      *Executor
	run    Run
	plan   *Plan
	limits Limits
	number int

	id    string
	graph *Graph
	began time.Time
	late  error     // the error of a tool that timed out
	tools []tooling // in the order in which they run
	byID  map[string]*tooling

	deciding sync.Mutex // held while deciding what follows, including the events that are kept
	schedule
	patched

	remembers atomic.Int64 // bytes of events that are kept
	spent     atomic.Int64 // bytes of the tools' outputs

	out  *teller
	stop context.CancelCauseFunc

	before  []json.RawMessage // patches of the plans that this one replaces
	notes   notebook
	ctx     context.Context // of the call that it runs for
	resumed bool            // another process began it
	over    bool            // and ended it
	had     []Note          // and left these
}

// A schedule says which tools of a plan run, and which may begin.
type schedule struct {
	ready     places // tools that may begin, by their order
	running   int
	exclusive bool          // the running tool must run alone
	ended     chan struct{} // closed when nothing runs and nothing can begin
	left      int           // tools that have not ended
}

// patched is the state of a plan.
type patched struct {
	state   document // with the patches of the first settled tools
	settled int
	ahead   []*tooling // that have patched and ended, behind one that has not
	seen    *document  // state with the patches of ahead; nil if it is to be made
}

// A tooling is a tool of a running plan.
type tooling struct {
	*step
	missing int // how many tools it still waits for
	result  ToolResult
	output  any // as references see it; nil if it is not decoded yet
	given
}

// given is what an attempt to call a tool produced beside its output.
type given struct {
	patches []json.RawMessage
	assets  []tool.Asset
}

func (t *tooling) over() bool {
	switch t.result.State {
	case Success, Failed, Skipped, TimedOut:
		return true
	}
	return false
}

func (t *tooling) failed() bool { return t.result.State == Failed || t.result.State == TimedOut }

// The limits of one plan: of its outputs, patches and assets together, and of the events that are kept of it.
const (
	maxGiven      = 8 << 20
	maxEvents     = 1000 // of one tool
	maxRemembered = 4 << 20
)

var errPlanTime = errors.New("the time of the plan is over")

// do runs the plan to its end.
func (a *attempt) do(ctx context.Context) (*Result, error) {
	a.began, a.ctx = time.Now(), ctx
	a.late = tool.Errorf(tool.CodeTimeout, "it took longer than the %v that a tool of a plan has", a.limits.Tool)
	defer a.notes.stopTimer()
	if a.id == "" {
		a.id = tool.NewID()
	}
	if a.resumed {
		if a.x.settle(ctx, a.run.Call.Caller, a.plan); ctx.Err() != nil {
			return nil, a.cancelled(ctx)
		}
	}
	var failed *Error
	var err error
	if a.graph, err = Check(ctx, a.x.Catalog, a.run.Call.Caller, a.plan); errors.As(err, &failed) {
		return a.end(ctx, a.conclude(a.resultOf(), failed))
	}
	plan, cancel := context.WithTimeoutCause(ctx, a.limits.Plan, errPlanTime)
	defer cancel()
	inside, stop := context.WithCancelCause(plan)
	defer stop(nil)
	a.stop = stop
	if err := a.begin(ctx); err != nil {
		return nil, err
	}
	a.loop(inside)
	cause := context.Cause(inside)
	late := errors.Is(cause, errPlanTime)
	switch {
	case ctx.Err() != nil:
		return nil, a.cancelled(ctx)
	case cause != nil && !late: // the events cannot be delivered, or nothing can be stored
		return nil, a.cancelled(inside)
	case late && (a.left > 0 || a.broken()):
		a.skipRest("the time of the plan was over before it could begin")
		failed = a.planTime()
	}
	return a.end(ctx, a.conclude(a.resultOf(), failed))
}

// planTime returns the error of a plan that took too long.
func (a *attempt) planTime() *Error {
	return &Error{
		Code: CodePlanTimeout, Category: Timeout, Message: fmt.Sprintf("the plan took longer than its %v", a.limits.Plan),
	}
}

// broken reports whether a required tool failed, so that the plan fails.
func (a *attempt) broken() bool {
	for i := range a.tools {
		if t := &a.tools[i]; t.required && t.failed() {
			return true
		}
	}
	return false
}

// begin reports and stores that the plan begins.
func (a *attempt) begin(ctx context.Context) error {
	a.tools = make([]tooling, len(a.graph.steps))
	a.left, a.ended = len(a.tools), make(chan struct{})
	a.byID = make(map[string]*tooling, len(a.tools))
	for i, s := range a.graph.steps {
		t := &a.tools[i]
		a.byID[s.ID] = t
		t.step, t.missing = s, len(s.needs)
		t.result = ToolResult{ToolID: s.ID, State: Waiting, Events: []tool.Event{}}
		if t.missing == 0 {
			a.ready = append(a.ready, i) // ascending, which is a heap
		}
	}
	if err := a.keepBegin(ctx); err != nil {
		return err
	}
	err := a.emit(tell("info", fmt.Sprintf("plan %s: %d tools", a.plan.RequestID, len(a.tools)), "plan",
		func(b []byte) []byte { return a.graph.appendBegun(b, a.id, a.number) }))
	if err != nil {
		return err
	}
	return a.restore()
}

// loop runs tools as they become ready, until all have ended, or ctx has and nothing runs any more.
func (a *attempt) loop(ctx context.Context) {
	a.deciding.Lock()
	a.next(ctx, false)
	a.deciding.Unlock()
	<-a.ended
}

// next starts what may run now, and ends the loop if nothing runs. If wants is set, it returns one of the tools for the
// caller to run. The caller holds deciding.
func (a *attempt) next(ctx context.Context, wants bool) (own *work) {
	for {
		w := a.take(ctx)
		switch {
		case w == nil:
			if a.running == 0 {
				close(a.ended)
			}
			return own
		case wants && own == nil:
			own = w
		default:
			go a.serve(ctx, w)
		}
	}
}

// serve calls a tool, and then a tool that may begin because it has ended. One goroutine that decides and hands tools to
// others would be simpler to read; but each handover waits for a processor, and for many small tools that takes longer
// than the tools themselves.
func (a *attempt) serve(ctx context.Context, w *work) {
	for w != nil {
		w.do(ctx)
		w.weigh()
		if err := w.keepEnd(ctx); err != nil {
			a.stop(err)
		}
		a.changed(w.t.step, &w.result, w.result.RetryCount+1)
		a.deciding.Lock()
		a.running--
		a.exclusive = false
		a.finish(w)
		w = a.next(ctx, true)
		a.deciding.Unlock()
	}
}

// take returns a tool that may run now, or nil. The first ready tool goes first: if it must run alone, it waits for the
// running ones, and those behind it wait too.
func (a *attempt) take(ctx context.Context) *work {
	for len(a.ready) > 0 && a.tools[a.ready[0]].over() { // it was skipped meanwhile
		heap.Pop(&a.ready)
	}
	if len(a.ready) == 0 || ctx.Err() != nil || a.exclusive || a.running >= a.limits.Overlap {
		return nil
	}
	t := &a.tools[a.ready[0]]
	if !t.overlaps && a.running > 0 {
		return nil
	}
	heap.Pop(&a.ready)
	a.running++
	a.exclusive = !t.overlaps
	w := &work{attempt: a, t: t, result: t.result}
	w.call, w.broken = a.callOf(t)
	return w
}

// callOf makes the call of a tool, with its arguments and the present state.
func (a *attempt) callOf(t *tooling) (*tool.Call, error) {
	c := a.run.Call.Inner(t.spec.Name, t.Input)
	c.State = a.stateNow().seen()
	var err error
	if len(t.input.at) > 0 {
		c.Args, err = t.input.filled(a.outputOf)
	}
	return c, err
}

// outputOf returns the output of a tool, for references to it.
func (a *attempt) outputOf(id string) any {
	t := a.byID[id]
	if t.result.State != Success {
		return absent{}
	}
	if t.output == nil {
		t.output, _ = strictjson.Decode(t.result.Output) // a tool without output yields null
	}
	return t.output
}

// stateNow returns the state for a tool that begins now: with the patches of the tools that have ended, in the plan's
// order. It is cached, because many tools begin between two patches.
func (a *attempt) stateNow() *document {
	if a.seen == nil {
		d := a.state
		for _, t := range a.ahead {
			d = d.with(t.patches)
		}
		a.seen = &d
	}
	return a.seen
}

// weigh fails a tool that succeeded if its output exceeds the limit of the plan. For a tool that failed it shortens
// the error.
func (w *work) weigh() {
	size := int64(w.size())
	if w.spent.Add(size) <= maxGiven {
		return
	}
	w.spent.Add(-size)
	if w.result.State != Success {
		e := *w.result.Error
		e.Message, e.Details = fmt.Sprintf("%.300s", e.Message), nil
		w.result.Error = &e
		return
	}
	w.result.State, w.result.Output, w.given = Failed, nil, given{}
	w.result.Error = &Error{Code: "too_large", Category: ToolFailure, Message: fmt.Sprintf(
		"it ran, but the tools of a plan give at most %d bytes of output, patches and assets together", maxGiven)}
}

// size returns how much a tool produced, without events, which have a limit of their own.
func (w *work) size() int {
	size := len(w.result.Output)
	if e := w.result.Error; e != nil {
		size += len(e.Message) + len(e.Details)
	}
	for _, p := range w.patches {
		size += len(p)
	}
	for _, a := range w.assets {
		size += len(a.AssetID) + len(a.Kind) + len(a.MediaType) + len(a.Path) + len(a.Metadata)
	}
	return size
}

// finish records a tool that has ended, and what follows from it.
func (a *attempt) finish(w *work) {
	t := w.t
	t.result, t.given = w.result, w.given
	a.left--
	a.settle(t)
	skips := t.failed() && t.required
	for _, next := range t.wanted {
		n := &a.tools[next.order]
		if n.missing--; skips && !n.over() {
			a.skip(n, t.ID+" failed")
		} else if n.missing == 0 && !n.over() {
			heap.Push(&a.ready, n.order)
		}
	}
}

// remark stores soon what was decided about a tool.
func (a *attempt) remark(t *tooling) {
	if a.x.Store == nil {
		return
	}
	if err := a.note(t, &t.result, t.given, nil); err != nil {
		a.stop(err)
	}
}

// skip ends a tool that cannot run, and those that depend on it.
func (a *attempt) skip(t *tooling, why string) {
	for waiting := []*tooling{t}; len(waiting) > 0; waiting = waiting[1:] {
		t := waiting[0]
		if t.over() {
			continue
		}
		t.result.State = Skipped
		t.result.Error = &Error{Code: "skipped", Category: ToolFailure, Message: "it was skipped: " + why}
		a.left--
		a.remark(t)
		a.changed(t.step, &t.result, 0)
		a.settle(t)
		for _, next := range t.wanted {
			waiting = append(waiting, &a.tools[next.order])
		}
	}
}

// skipRest ends everything that has not begun.
func (a *attempt) skipRest(why string) {
	for i := range a.tools {
		if t := &a.tools[i]; !t.over() {
			a.skip(t, why)
		}
	}
}

// settle passes on the patches of tools that have succeeded, as soon as all tools before them have ended: so they come
// in the plan's order, whichever tool was quicker.
func (a *attempt) settle(t *tooling) {
	if len(t.patches) > 0 {
		a.seen = nil
		at, _ := slices.BinarySearchFunc(a.ahead, t, func(x, y *tooling) int { return x.order - y.order })
		a.ahead = slices.Insert(a.ahead, at, t)
	}
	for a.settled < len(a.tools) && a.tools[a.settled].over() {
		a.settled++
	}
	for len(a.ahead) > 0 && a.ahead[0].order < a.settled {
		first := a.ahead[0]
		a.ahead = a.ahead[1:]
		a.state = a.state.with(first.patches)
		for _, p := range first.patches {
			_ = a.emit(tool.Event{Kind: tool.KindStatePatch, Data: p}) // on an error the plan is stopped
		}
	}
}

// changed reports a change of a tool: its present state.
func (a *attempt) changed(of *step, now *ToolResult, try int) {
	s := Step{
		PlanID: a.id, ToolID: of.ID, Tool: of.spec.Name, State: now.State, Attempt: try, Call: now.Call,
		Error: now.Error, Millis: now.ExecutionTimeMs,
	}
	level, message := "info", of.ID+": "+now.State
	if now.Error != nil {
		level, message = "warn", message+": "+now.Error.Message
	}
	if try > 1 && now.State == Running {
		message += ", attempt " + strconv.Itoa(try)
	}
	_ = a.emit(tell(level, message, "step", s.append)) // on an error the plan is stopped
}

// emit passes an event on. If that fails, the client is gone and the plan is stopped.
func (a *attempt) emit(ev tool.Event) error {
	err := a.out.Emit(ev)
	if err != nil && a.stop != nil {
		a.stop(err)
	}
	return err
}

// remember reports whether there is room to keep an event.
func (a *attempt) remember(size int) bool {
	if a.remembers.Add(int64(size)) <= maxRemembered {
		return true
	}
	a.remembers.Add(-int64(size))
	return false
}
