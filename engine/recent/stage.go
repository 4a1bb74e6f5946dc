package recent

import (
	"context"
	"slices"
	"time"

	"toolpost/config"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// For returns the stage for both of its places. The outer one, outside redact, keeps what callers see: numbered events,
// and the outcome. The one behind resolve records the tool.
//
// Toolpost's own tools that only read are left out. People look at calls with them: a watcher would see only its own
// watching, and each look at a call would be kept with everything that it showed.
func (c *Calls) For(spec *tool.Spec) tool.Middleware {
	switch {
	case spec == nil:
		return c.keep
	case spec.Source == config.OwnSource && spec.Effects.ReadOnly():
		return tool.First(leftOut)
	}
	return tool.First(found)
}

func (c *Calls) keep(next tool.Handler) tool.Handler {
	return tool.HandlerFunc(func(ctx context.Context, call *tool.Call, out tool.Sink) (r *tool.Result, err error) {
		f := &frame{of: c, call: call, out: out, start: call.Start()}
		if !f.begin() {
			return next.Invoke(ctx, call, out)
		}
		call.Watch = tool.Watch{By: f, Steps: c.watching.Load() > 0}
		defer func() { f.end(r, err) }() // also on a panic, which leaves neither result nor error
		return next.Invoke(ctx, call, f)
	})
}

// A frame is the memory that one call needs, in one allocation. It is the call's Watch and its sink. It ignores
// everything after the call has ended.
type frame struct {
	of    *Calls
	out   tool.Sink
	start time.Time
	slot  *slot // under the lock of Calls; nil if the call is not kept or has ended
	own   bool  // the call reached one of Toolpost's own tools
	call  *tool.Call
}

func leftOut(_ context.Context, call *tool.Call) error {
	if f, ok := call.Watch.By.(*frame); ok {
		f.of.mu.Lock()
		defer f.of.mu.Unlock()
		f.leave()
	}
	return nil
}

func found(_ context.Context, call *tool.Call) error {
	f, ok := call.Watch.By.(*frame)
	if !ok {
		return nil
	}
	c := f.of
	c.mu.Lock()
	if f.slot != nil {
		f.own = call.Spec.Source == config.OwnSource
		f.slot.spec, f.slot.record = call.Spec, call.Record
		f.slot.seq[0] = c.tell(f.slot, began, 0)
	}
	c.mu.Unlock()
	c.Tell()
	return nil
}

// begin takes a slot for the call, without a line for followers: it is not known yet whether the call is left out.
func (f *frame) begin() bool {
	c := f.of
	args := c.env.Redactor.JSON(f.call.Args)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.o.Off {
		return false
	}
	s := c.take()
	c.made++
	f.slot, s.call = s, c.made
	s.began, s.door, s.known.dry = f.start, f.call.Caller.Door, f.call.DryRun
	for which, name := range [...]string{
		partCall: f.call.ID, partTrace: f.call.Trace, partTool: f.call.Tool, partCaller: f.call.Caller.ID,
		partSession: f.call.Session, partRun: f.call.Run, partParent: f.call.Parent, partKey: f.call.Key,
	} {
		put(s, which, name, maxName)
	}
	most := maxArgs
	if !c.room(slotSize + len(s.head) + min(len(args), maxArgs)) {
		most = 0
	}
	put(s, partArgs, args, most)
	c.bytes += s.measure()
	c.start(s)
	return true
}

// take returns an empty slot. The caller holds mu.
func (c *Calls) take() *slot {
	if n := len(c.free); n > 0 {
		s := c.free[n-1]
		c.free = c.free[:n-1]
		return s
	}
	return new(slot)
}

// leave forgets the call. The caller holds mu.
func (f *frame) leave() {
	if f.slot != nil {
		f.of.stop(f.slot)
		f.of.release(f.slot)
		f.slot = nil
	}
}

// Emit implements tool.Sink.
func (f *frame) Emit(ev tool.Event) error {
	c := f.of
	var stopped tool.Blocked
	if ev.Blocked != nil {
		stopped = *ev.Blocked
		stopped.Target = c.env.Redactor.String(stopped.Target) // only the data went through redact
	}
	c.mu.Lock()
	if s := f.slot; s != nil {
		s.tell(ev, c.room(min(len(ev.Data), maxEvent)))
		if ev.Blocked != nil && len(s.blocked) < maxBlock && !slices.Contains(s.blocked, stopped) {
			s.blocked = append(s.blocked, stopped)
		}
		c.bytes += s.measure()
		c.tell(s, told, s.omitted+uint64(len(s.events))-1)
	}
	c.mu.Unlock()
	c.Tell()
	return f.out.Emit(ev)
}

// Enter implements tool.Watcher.
func (f *frame) Enter(stage string) int {
	at := time.Since(f.start)
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	s := f.slot
	if s == nil || len(s.steps) == maxSteps {
		return -1
	}
	s.steps = append(s.steps, step{stage, at, -1})
	return len(s.steps) - 1
}

// Leave implements tool.Watcher.
func (f *frame) Leave(step int) {
	at := time.Since(f.start)
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	if s := f.slot; s != nil && step >= 0 {
		s.steps[step].took = at - s.steps[step].start
	}
}

// end keeps the outcome of the call. The stages that redact and answer are done by then.
func (f *frame) end(r *tool.Result, err error) {
	took := r.Elapsed(f.start)
	failure := f.of.failure(r, err)
	outcome, code, reason := tool.OutcomeOf(r, err)
	c := f.of
	if r != nil && f.own { // before the lock, which every call waits for: an output can be large
		r = &tool.Result{OK: r.OK, Output: c.env.RedactByName(r.Output), Summary: r.Summary, Trace: r.Trace}
	}
	c.mu.Lock()
	s := f.slot
	if s == nil {
		c.mu.Unlock()
		return
	}
	f.slot = nil
	s.took, s.outcome = took, outcome
	put(s, partCode, string(code), maxName)
	put(s, partReason, reason, maxName)
	s.note(r)
	if r != nil {
		put(s, partSummary, r.Summary, 4*maxName)
		s.keepJSON(c, partOutput, r.Output, maxOutput)
		s.ok = r.OK
	}
	s.keepJSON(c, partError, failure, maxError)
	for i := range s.steps {
		if s.steps[i].took < 0 {
			s.steps[i].took = took - s.steps[i].start
		}
	}
	c.finish(s)
	c.mu.Unlock()
	c.Tell()
}

func (s *slot) keepJSON(c *Calls, which int, doc []byte, most int) {
	if !c.room(min(len(doc), most)) {
		most = 0
	}
	put(s, which, doc, most)
}

// finish moves a call to those that have ended. The caller holds mu.
func (c *Calls) finish(s *slot) {
	c.bytes += s.measure()
	if s.seq[0] == 0 { // it never reached a tool
		s.seq[0] = c.tell(s, began, 0)
	}
	s.seq[1] = c.tell(s, over, 0)
	c.stop(s)
	c.ended = append(c.ended, s)
	for len(c.ended) > c.o.Calls || c.bytes > c.o.Bytes && len(c.ended) > 0 {
		c.drop()
	}
}

// note copies what it needs of the record. The chain has returned, so these fields are no longer written. The log may
// still set the record's place.
func (s *slot) note(r *tool.Result) {
	if rec := s.record; rec != nil {
		s.known = known{
			decision: rec.Decision, rule: rec.Rule, walls: rec.Walls, tier: rec.Tier,
			replay: rec.Replay, cached: rec.Cached, dry: rec.DryRun,
		}
		s.record = nil
	}
	if r != nil {
		s.known.cached = s.known.cached || r.Trace.Cached
	}
}

// failure returns the error of a call as JSON, whether it is the tool's own or another.
func (c *Calls) failure(r *tool.Result, err error) []byte {
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
