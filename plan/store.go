package plan

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"toolpost/engine/persist"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// The states of a stored plan, beside Running and Failed.
const (
	Done      = "done"
	Cancelled = "cancelled"
	Lost      = "lost" // its process ended while it ran, and it could not be resumed
)

// States lists the states of a stored plan.
func States() []string { return []string{Running, Done, Failed, Lost, Cancelled} }

// A Record is a stored plan. Its JSON is shown to its caller.
type Record struct {
	ID        string    `json:"planId"`
	State     string    `json:"state"`
	RequestID string    `json:"requestId,omitzero"` // the request that it answers, its title and its narrative
	Title     string    `json:"title,omitzero"`
	Narrative string    `json:"narrative,omitzero"`
	Caller    string    `json:"caller"`
	Session   string    `json:"session,omitzero"`
	Prompt    string    `json:"prompt,omitzero"`
	Planner   string    `json:"planner,omitzero"`
	Call      string    `json:"call"` // the call that it runs for, or ran for
	Made      time.Time `json:"made"`
	Ended     time.Time `json:"ended,omitzero"`
	Counts    Counts    `json:"counts"`

	Plan    json.RawMessage `json:"plan,omitzero"`
	Result  json.RawMessage `json:"result,omitzero"`
	Request []byte          `json:"-"` // the call that resumes it; empty if it is not resumed by itself
	Before  json.RawMessage `json:"-"` // the patches of the plans that it replaces, a list
}

// Counts are how far a plan has come.
type Counts struct {
	Tools   int `json:"tools"`
	Done    int `json:"done"`
	Failed  int `json:"failed"`
	Skipped int `json:"skipped"`
}

// Head parses what a list shows of a plan from the beginning of its document, which may be cut. The document was written
// from a Plan, so its request and, if any, its title and narrative come before its tools; and a quoted name after a comma is
// not inside a text.
func (r *Record) Head(document string) {
	for _, next := range []string{`,"tools":`, `,"narrative":`} {
		head, _, found := strings.Cut(document, next)
		var p Plan
		if found && strictjson.Unmarshal([]byte(head+"}"), &p) == nil {
			r.RequestID, r.Title, r.Narrative = p.RequestID, p.Title, p.Narrative
			return
		}
	}
}

// Count adds n tools that have a note in this state.
func (r *Record) Count(state string, n int) {
	switch state {
	case Success:
		r.Counts.Done += n
	case Failed, TimedOut:
		r.Counts.Failed += n
	case Skipped:
		r.Counts.Skipped += n
	}
}

// Counted ends the counting of notes. In a plan that ran to its end, tools without a note have succeeded.
func (r *Record) Counted() {
	if complete(r.State) {
		r.Counts.Done = r.Counts.Tools - r.Counts.Failed - r.Counts.Skipped
	}
}

// A Note is the stored state of a tool of a plan. A tool that is Running may have had an effect.
type Note struct {
	Place int // index in the plan's list
	State string
	Doc   []byte // JSON: a kept
}

// kept is what is needed of a tool to go on without running it.
type kept struct {
	Result  ToolResult        `json:"result"`
	Patches []json.RawMessage `json:"patches,omitzero"`
	Assets  []tool.Asset      `json:"assets,omitzero"`
}

// A Store keeps plans for one process. Plans that it began or adopted belong to it; changing any other plan fails with
// an error of code conflict.
type Store interface {
	Begin(ctx context.Context, r Record) error
	// Note stores the states of tools.
	Note(ctx context.Context, id string, notes []Note) error
	// End ends a plan, with the last notes; the state Running hands it back, to be resumed.
	End(ctx context.Context, id, state string, result []byte, notes []Note) error
	// Adopt returns an unfinished plan of a caller whose process is gone. From then on it belongs to this process, for
	// the given call.
	Adopt(ctx context.Context, caller, id, call string) (Record, []Note, error)
	// Of returns the last plan that a call ran, or not_found.
	Of(ctx context.Context, caller, call string) (Record, []Note, error)
	// Recover finds unfinished plans whose process is gone. Each gets the id of a call that resumes it, unless a job
	// still has it. A plan whose job has ended is lost, and so is one without a Request.
	Recover(ctx context.Context, next func() string) ([]Record, error)
}

// A notebook stores the progress of an attempt.
//
// A tool that must not run twice is noted before it runs, and its outcome before anything follows from it. The others
// can be run again if the process ends, so their outcomes are written in batches: a commit for each would be most of the
// work of a plan with many small tools.
type notebook struct {
	writing sync.Mutex // one goroutine writes what has gathered; the others find theirs written

	mu             sync.Mutex
	waiting        []remark
	added, written int
	flushed        time.Time
	timer          *time.Timer    // flushes what waits; nil if nothing does
	timing         sync.WaitGroup // of a timer that is set or fires
}

// A remark is the state of a tool that is to be noted. Most plans end before that, and then their result has it all.
type remark struct {
	of     *tooling
	result *ToolResult // no longer changed
	given
}

// note encodes the remark.
func (r *remark) note() (Note, error) {
	doc, err := strictjson.Marshal(kept{*r.result, r.patches, r.assets})
	if err != nil {
		return Note{}, tool.Errorf(tool.CodeInternal, "what %s gave cannot be kept: %w", r.of.ID, err)
	}
	return Note{r.of.place, r.result.State, doc}, nil
}

// told reports whether the result of the plan contains as much. For a tool that must not run twice, the store has that
// it runs, so its end is always noted.
func (r *remark) told() bool {
	return r.result.State == Success && len(r.patches)+len(r.assets) == 0 && r.of.spec.Effects.Repeatable()
}

func notesOf(remarks []remark) ([]Note, error) {
	notes := make([]Note, 0, len(remarks))
	for i := range remarks {
		n, err := remarks[i].note()
		if err != nil {
			return nil, err
		}
		notes = append(notes, n)
	}
	return notes, nil
}

// soon schedules a flush, unless one is scheduled already.
func (n *notebook) soon(flush func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.timer != nil {
		return
	}
	n.timing.Add(1)
	n.timer = time.AfterFunc(flushEvery, func() {
		defer n.timing.Done()
		n.mu.Lock()
		n.timer = nil
		n.mu.Unlock()
		flush()
	})
}

// stopTimer stops the timer: afterwards only explicit flushes write.
func (n *notebook) stopTimer() {
	n.mu.Lock()
	if n.timer != nil && n.timer.Stop() {
		n.timer = nil
		n.timing.Done()
	}
	n.mu.Unlock()
	n.timing.Wait()
}

// flushEvery is how long the notes of tools that may run twice can wait.
const flushEvery = 100 * time.Millisecond

// add queues a remark, and returns its number; due means that the queue has waited long enough.
func (n *notebook) add(one remark) (number int, due bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.waiting = append(n.waiting, one)
	n.added++
	return n.added, time.Since(n.flushed) >= flushEvery
}

// flush writes what waits, unless everything up to number is written already. What could not be written keeps waiting.
func (n *notebook) flush(number int, write func([]Note) error) error {
	n.writing.Lock()
	defer n.writing.Unlock()
	n.mu.Lock()
	remarks, last := n.waiting, n.added
	if n.written >= number {
		n.mu.Unlock()
		return nil
	}
	n.waiting, n.flushed = nil, time.Now()
	n.mu.Unlock()
	notes, err := notesOf(remarks)
	if err == nil {
		err = write(notes)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil {
		n.waiting = append(remarks, n.waiting...)
		return err
	}
	n.written = last
	return nil
}

// keepBegin stores that the plan begins.
func (a *attempt) keepBegin(ctx context.Context) error {
	a.notes.flushed = a.began
	if a.x.Store == nil || a.resumed {
		return nil
	}
	c := a.run.Call
	r := Record{
		ID: a.id, State: Running, Caller: c.Caller.ID, Session: c.Session, Prompt: a.run.Prompt, Planner: a.run.PlannerName,
		Call: c.ID, Made: a.began, Counts: Counts{Tools: len(a.plan.Tools)}, Plan: raw(a.plan), Before: raw(a.before),
	}
	if c.Parent == "" { // otherwise the maker of the call would not know of another call that resumes it
		var err error
		if r.Request, err = a.x.Again(c, a.id); err != nil {
			return err
		}
	}
	return a.x.Store.Begin(context.WithoutCancel(ctx), r)
}

// keepRunning stores that a tool is about to be called that must not be called twice.
func (w *work) keepRunning() error {
	if w.x.Store == nil || w.t.spec.Effects.Repeatable() {
		return nil
	}
	now := w.result
	return w.note(w.t, &now, given{}, func(write func() error) error { return write() })
}

// keepEnd stores the outcome of a tool that was called.
func (w *work) keepEnd(ctx context.Context) error {
	if w.x.Store == nil {
		return nil
	}
	return w.note(w.t, &w.result, w.given, func(write func() error) error {
		return persist.Write(ctx, w.run.Call, w.out, "what "+w.t.ID+" gave", write)
	})
}

// note stores the state of a tool: by insist if it must not run twice, otherwise soon.
func (a *attempt) note(t *tooling, r *ToolResult, g given, insist func(write func() error) error) error {
	number, due := a.notes.add(remark{t, r, g})
	flush := func() error {
		return a.notes.flush(number, func(notes []Note) error {
			return a.x.Store.Note(context.WithoutCancel(a.ctx), a.id, notes)
		})
	}
	switch {
	case insist != nil && !t.spec.Effects.Repeatable():
		return insist(flush)
	case !due:
		a.notes.soon(func() { _ = flush() }) // retried with the next note, and at the end
		return nil
	}
	err := flush()
	if tool.CodeOf(err) == tool.CodeConflict { // it belongs to another process
		return err
	}
	return nil // the store may be back for the next
}

// end stores the end of an attempt, and returns its result.
func (a *attempt) end(ctx context.Context, r *Result) (*Result, error) {
	state := Failed
	if r.Success {
		state = Done
	}
	return r, a.close(ctx, state, r)
}

func (a *attempt) close(ctx context.Context, state string, r *Result) error {
	if a.x.Store == nil || a.over || a.graph == nil && !a.resumed { // it has ended, or never begun
		return nil
	}
	a.notes.stopTimer()
	notes, err := a.lastNotes(state)
	if err == nil {
		r.document = raw(r)
		kept := context.WithoutCancel(ctx)
		err = persist.Write(ctx, a.run.Call, a.out, "the result of the plan", func() error {
			return a.x.Store.End(kept, a.id, state, r.document, notes)
		})
	}
	if err != nil {
		return tool.Errorf(tool.CodeOf(err), "the plan ran, but its end could not be kept: %w", err)
	}
	return nil
}

// lastNotes returns what is still to be noted at the end of the plan. If it ran to its end, everything in its result is
// left out: to write that of a thousand small tools twice takes as long as some of them.
func (a *attempt) lastNotes(state string) ([]Note, error) {
	left := a.notes.waiting
	if complete(state) {
		left = slices.DeleteFunc(left, func(r remark) bool { return r.told() })
	}
	return notesOf(left)
}

// complete reports whether a plan in this state has a result with every tool in it.
func complete(state string) bool { return state == Done || state == Failed }

// Shutdown is the reason of the error of a call that will be made again after a restart.
const Shutdown = "shutdown"

// cancelled stores that the plan was ended from outside, and returns the reason. A plan that will run again, in a job
// whose process is shut down, is left as it is.
func (a *attempt) cancelled(ctx context.Context) error {
	why := tool.Ended(ctx)
	state := Cancelled
	if why.Reason == Shutdown && a.run.Call.Background && a.run.Call.Parent == "" {
		state = Running
	}
	r := a.resultOf()
	r.Error = &Error{Code: string(why.Code), Message: why.Message, Category: ProcessError}
	return errors.Join(why, a.close(ctx, state, r))
}

// Recover finds plans whose process is gone, and has them resumed: later makes the call of a record's request, under its
// id, when there is time.
func (x *Executor) Recover(ctx context.Context, later func(context.Context, Record) error) (int, error) {
	found, err := x.Store.Recover(ctx, tool.NewID)
	for _, r := range found {
		if err == nil {
			err = later(ctx, r)
		}
	}
	return len(found), err
}

// Resume continues a plan of the run's caller whose process is gone. Tools that have ended are not run again. Those that
// were running are run again if that is safe; otherwise their outcome is unknown, and they failed. The planner is found
// by its name; if it no longer exists, a failed plan is not replaced.
func (x *Executor) Resume(
	ctx context.Context, r Run, id string, planner func(p tool.Principal, name string) (Planner, error),
	out tool.Sink,
) (*Result, error) {
	if x.Store == nil {
		return nil, tool.Errorf(tool.CodeNotFound, "there is no store, and so no plan to go on with")
	}
	record, notes, err := x.Store.Adopt(ctx, r.Call.Caller.ID, id, r.Call.ID)
	if err != nil {
		return nil, err
	}
	if record.Planner != "" && planner != nil {
		if found, err := planner(r.Call.Caller, record.Planner); err == nil {
			r.Planner = found
		}
	}
	return x.resume(ctx, r, record, notes, out)
}

// RunOnce runs the plan of a call, or resumes it if an earlier process began this very call.
func (x *Executor) RunOnce(ctx context.Context, r Run, out tool.Sink) (*Result, error) {
	if x.Store == nil || !r.Call.Background {
		return x.Run(ctx, r, out)
	}
	record, notes, err := x.Store.Of(ctx, r.Call.Caller.ID, r.Call.ID)
	if err == nil && record.State == Running {
		record, notes, err = x.Store.Adopt(ctx, r.Call.Caller.ID, record.ID, r.Call.ID)
	}
	switch {
	case tool.CodeOf(err) == tool.CodeNotFound:
		return x.Run(ctx, r, out)
	case err != nil:
		return nil, err
	}
	return x.resume(ctx, r, record, notes, out)
}

func (x *Executor) resume(ctx context.Context, r Run, record Record, notes []Note, out tool.Sink) (*Result, error) {
	p, err := Read(record.Plan)
	if err != nil {
		return nil, tool.Errorf(tool.CodeInternal, "plan %s cannot be read: %w", record.ID, err)
	}
	r.Plan, r.Prompt, r.PlannerName = p, record.Prompt, record.Planner
	one := x.first(r, out)
	one.id, one.resumed, one.over = record.ID, true, record.State != Running
	if err := strictjson.Unmarshal(record.Before, &one.before); err != nil {
		return nil, tool.Errorf(tool.CodeInternal, "plan %s cannot be read: %w", record.ID, err)
	}
	one.state = one.state.with(one.before)
	for _, patch := range one.before {
		if err := out.Emit(tool.Event{Kind: tool.KindStatePatch, Data: patch}); err != nil {
			return nil, err
		}
	}
	one.had, err = withResult(notes, p, record)
	if err != nil {
		return nil, err
	}
	return x.attempts(ctx, one)
}

// withResult adds to the notes of a plan those of tools that only its result contains.
func withResult(notes []Note, p *Plan, record Record) ([]Note, error) {
	if !complete(record.State) {
		return notes, nil
	}
	var r Result
	if err := strictjson.Unmarshal(record.Result, &r); err != nil {
		return nil, tool.Errorf(tool.CodeInternal, "the result of plan %s cannot be read: %w", record.ID, err)
	}
	places := map[string]int{}
	for i := range p.Tools {
		places[p.Tools[i].ID] = i
	}
	for _, n := range notes {
		delete(places, p.Tools[n.Place].ID)
	}
	for _, one := range r.ToolResults {
		if place, ok := places[one.ToolID]; ok {
			notes = append(notes, Note{place, one.State, raw(kept{Result: one})})
		}
	}
	return notes, nil
}

// Complete sets the result so far in the record of a plan that has no result yet.
func (r *Record) Complete(notes []Note) error {
	so := emptyResult(r.ID, 1)
	for _, n := range notes {
		var k kept
		if err := strictjson.Unmarshal(n.Doc, &k); err != nil {
			return tool.Errorf(tool.CodeInternal, "what became of a tool of plan %s cannot be read: %w", r.ID, err)
		}
		if n.State == Failed || n.State == TimedOut {
			so.FailedTools = append(so.FailedTools, k.Result.ToolID)
		}
		r.Count(n.State, 1)
		so.ToolResults, so.Assets = append(so.ToolResults, k.Result), append(so.Assets, k.Assets...)
	}
	r.Counted()
	var p Plan
	if err := strictjson.Unmarshal(r.Plan, &p); err == nil {
		so.DisabledSkills, so.AttemptNumber = union(p.DisabledSkills), max(1, p.Metadata.GenerationAttempt)
	}
	if r.Result == nil {
		so.ExecutionTimeMs = time.Since(r.Made).Milliseconds()
		r.Result = raw(so)
	}
	return nil
}

// restore restores the outcomes of tools from an earlier process, in the plan's order.
func (a *attempt) restore() error {
	byPlace := map[int]Note{}
	for _, n := range a.had {
		byPlace[n.Place] = n
	}
	for i := range a.tools {
		t := &a.tools[i]
		n, ok := byPlace[t.place]
		if !ok || t.over() {
			continue
		}
		var k kept
		if err := strictjson.Unmarshal(n.Doc, &k); err != nil {
			return tool.Errorf(tool.CodeInternal, "what became of %s cannot be read: %w", t.ID, err)
		}
		w := &work{attempt: a, t: t, result: k.Result, given: given{k.Patches, k.Assets}}
		if n.State == Running { // a tool that was safe to run twice when it began has no such note
			if t.spec.Effects.Repeatable() {
				continue
			}
			w.result.State, w.result.Error = Failed, &Error{
				Code: "lost", Category: ProcessError,
				Message: "the program that ran it ended meanwhile, and its outcome is unknown; look before you run it again",
			}
		}
		w.weigh()
		a.changed(t.step, &w.result, w.result.RetryCount+1)
		a.finish(w)
	}
	return nil
}
