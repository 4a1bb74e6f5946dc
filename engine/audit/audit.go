// Package audit is the stage that keeps a record of every call, including those that were refused or failed. A call that
// may change something is answered only when its record is on disk, and does not run at all if nothing can be recorded.
// The record of a call that ran and changed nothing is written a moment after its answer, with others: a read does not
// wait for a disk.
package audit

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"toolpost/engine/persist"
	"toolpost/host/secret"
	"toolpost/tool"
	"toolpost/wire/receipt"
)

// A Log keeps records.
type Log interface {
	// Begin records that a call is about to run that may change something. Append with the same record completes it.
	Begin(ctx context.Context, r *tool.Record) error
	// Append adds a record. When it returns nil, the record survives the end of this process, and, if durable, of the
	// machine.
	Append(ctx context.Context, r *tool.Record, durable bool) error
	// Later adds the record of a call that changed nothing, soon and in order, without delaying its caller. From then on
	// the log owns the record; it bounds it before Later returns and sets its place. If it could not be added, missed
	// gets it back.
	Later(r *tool.Record, missed func(*tool.Record, error))
}

// Settings is the section store.audit of a config.
type Settings struct {
	Values tool.Patterns `yaml:"values" doc:"tools, by name or as source.name, whose argument values are recorded, or * for all; for others only the shape and a digest are"`
	Redact []string      `yaml:"redact" doc:"further argument names whose values are never recorded"`
	Key    string        `yaml:"key" kind:"path" schema:"default=.toolpost/audit.key" doc:"file with the key that signs the log; created if it is missing"`
}

// Options are the options of the stage.
type Options struct {
	Log Log
	// Values names the tools whose arguments are kept with their values; "*" means all. Of others the shape and a digest
	// are kept.
	Values tool.Patterns
	// Redact names further arguments whose values are never kept, beside those whose names suggest secrets.
	Redact   []string
	Redactor *secret.Redactor // knows the secrets that no record may have; nil means none
	// Digests makes the digests of arguments; nil means a key that lasts as long as this process.
	Digests *secret.Keyed
	Logger  *slog.Logger    // nil means no log
	Faults  *persist.Faults // logs that the store cannot be used; may be nil
	Waiting int             // records that wait in memory while the log cannot take them; 0 means 4,096
}

// A Trail makes the records of one engine. A nil Trail makes none.
type Trail struct {
	o       Options
	waiting waiting
	missed  func(*tool.Record, error) // the method value miss, made once because every call passes it
	node    func() string             // may be nil
	columns Table
}

// New makes a trail.
func New(o Options) *Trail {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.Digests = cmp.Or(o.Digests, secret.NewKeyed(nil))
	t := &Trail{o: o, waiting: waiting{most: cmp.Or(o.Waiting, 4096)}, columns: Columns()}
	t.o.Log = redacted{o.Log, t}
	t.missed = t.miss
	return t
}

// Name gives the records the name of this node of a fleet, or "". It is called before the first call.
func (t *Trail) Name(node func() string) {
	if t != nil {
		t.node = node
	}
}

// Stage is the tool.Middleware. It runs outside every stage that may refuse a call.
func (t *Trail) Stage(next tool.Handler) tool.Handler {
	if t == nil {
		return next
	}
	return tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (r *tool.Result, err error) {
		rec := &tool.Record{
			Time: c.Start(), Call: c.ID, Trace: c.Trace, Asked: c.Tool, Door: c.Caller.Door, Caller: c.Caller.ID,
			Session: c.Session, Run: c.Run, Parent: c.Parent, Key: c.Key, DryRun: c.DryRun, In: int64(len(c.Args)),
			Shape: shapeOf(c.Args), Digest: t.digestOf(c.Args),
		}
		if t.node != nil {
			rec.Node = t.node()
		}
		if c.Lease != "" {
			sum := sha256.Sum256([]byte(c.Lease))
			rec.Lease = hex.EncodeToString(sum[:])[:leaseID]
		}
		c.Record = rec
		ended := false
		defer func() {
			if !ended { // a panic, which an outer stage turns into an error
				_ = t.end(ctx, c, out, nil, tool.Errorf(tool.CodeInternal, "panic"))
			}
		}()
		r, err = next.Invoke(ctx, c, out)
		ended = true
		if lost := t.end(ctx, c, out, r, err); lost != nil {
			return nil, lost
		}
		return r, err
	})
}

// Named is the stage inside resolve: it records the tool.
func (t *Trail) Named() tool.Middleware {
	if t == nil {
		return nil
	}
	return tool.First(t.name)
}

// Refused records that a call was refused because the tool is hidden from its caller. Its outcome is refused then, even
// if the caller is told that there is no such tool.
func (t *Trail) Refused(c *tool.Call, hidden *tool.Spec, rule string) {
	if t != nil && c.Record != nil {
		known := *c
		known.Spec = hidden
		_ = t.name(context.Background(), &known)
		c.Record.Judged("deny", rule)
	}
}

func (t *Trail) name(_ context.Context, c *tool.Call) error {
	r := c.Record
	if r == nil || c.Spec == nil {
		return nil
	}
	r.Tool, r.Source, r.Protocol, r.Tier = c.Spec.Name, c.Spec.Source, c.Spec.Protocol, c.Spec.Tier
	if len(c.Spec.Versions) > 0 {
		r.Definition = c.Spec.Digest
	}
	if r.ReadOnly = c.Spec.Effects.ChangesNothing(); c.Spec.Looks() {
		r.Kind = tool.OperatorCall
	}
	if r.Asked == r.Tool {
		r.Asked = ""
	}
	r.Walls = strings.Join(c.Tightened(tool.Guarantees{}).Asked(), ",")
	if t.o.Values != nil && t.o.Values.Match(c.Spec.Ref()) {
		if r.Args = Redacted(c.Args, t.o.Redact); len(r.Args) > maxArgs {
			r.Args = nil
		}
	}
	return nil
}

// Touching is the stage behind the check of arguments: it records what the call is going to touch. toucher is nil if the
// runner cannot predict that.
func (t *Trail) Touching(toucher tool.Toucher) tool.Middleware {
	if t == nil || toucher == nil {
		return nil
	}
	return tool.First(func(_ context.Context, c *tool.Call) error {
		if c.Record != nil {
			if t, err := toucher.Touches(c); err == nil { // an error refuses the call later, in a stage that reports it
				c.Record.Touches = tool.Touches{Reads: t.Reads, Writes: t.Writes, Commands: t.Commands}
			}
		}
		return nil
	})
}

// Begun is the stage in front of everything that has an effect. A call that may change something is recorded before it
// runs; if that fails, it does not run.
func (t *Trail) Begun() tool.Middleware {
	if t == nil {
		return nil
	}
	return tool.First(func(ctx context.Context, c *tool.Call) error {
		r := c.Record
		if r == nil || r.Begun || c.Spec != nil && c.Spec.Effects.ChangesNothing() {
			return nil
		}
		if err := t.o.Log.Begin(context.WithoutCancel(ctx), t.clean(r, secret.Of(c))); err != nil {
			return tool.BeforeRun(notBegun(c.Tool, err))
		}
		r.Begun = true
		return nil
	})
}

// notBegun returns the error of a call that may change something and could not be recorded. If the store gives a time to
// try again, so does this error.
func notBegun(name string, err error) *tool.Error {
	e := tool.Errorf(tool.CodeUnavailable,
		"%s was not run, because it may change something and that could not be recorded: %w", name, err)
	e.Details = tool.AsError(err).Details
	return e.Because("audit_unavailable")
}

// end completes the record of a call and adds it to the log, or leaves that to the caller with a Handover. It returns an error
// if the call changed something and its record is not on disk.
func (t *Trail) end(ctx context.Context, c *tool.Call, out tool.Sink, r *tool.Result, err error) error {
	rec := c.Record
	if c.Background && tool.NotRun(err) && persist.Away(err) {
		return nil // it is made again once the store is available, and recorded then
	}
	rec.Duration = time.Since(rec.Time)
	noted := rec.Reason
	rec.Outcome, rec.Code, rec.Reason = rec.OutcomeOf(r, err)
	rec.Reason = cmp.Or(rec.Reason, noted)
	if tool.Attempted(rec.Outcome, rec.Code) {
		rec.Kind = ""
	}
	if r != nil {
		rec.Out = int64(len(r.Output))
		rec.Replay, _ = r.Trace.Details[hit].(bool)
		rec.Cached = r.Trace.Cached
	}
	rec = t.clean(rec, secret.Of(c))
	t.Flush(ctx)
	switch h := c.Handover; {
	case err == nil && (rec.ReadOnly || c.DryRun):
		t.o.Log.Later(rec, t.missed)
		return nil
	case err == nil && rec.Begun && h != nil && c.Parent == "":
		h.Record, h.Missed = t.clean(rec, t.o.Redactor), func(failed error) error {
			t.miss(rec, failed)
			return notKept(rec, failed)
		}
		return nil
	}
	kept := context.WithoutCancel(ctx) // a cancelled call is recorded too
	add := func() error { return t.o.Log.Append(kept, rec, rec.Begun) }
	var failed error
	if rec.Begun && err == nil { // its end is not reported before it is on disk
		failed = persist.Write(ctx, c, out, "its record", add)
	} else {
		failed = add()
	}
	if failed == nil {
		return nil
	}
	t.miss(rec, failed)
	if !rec.Begun || err != nil {
		return nil
	}
	return notKept(rec, failed)
}

// notKept returns the error of a call that ran, and whose record is not on disk.
func notKept(rec *tool.Record, failed error) error {
	return tool.Errorf(tool.CodeUnavailable, "%s ran, but its record is not on disk: %w", rec.Tool,
		failed).Because("audit_unavailable")
}

// miss keeps a record that the log did not take.
func (t *Trail) miss(rec *tool.Record, failed error) {
	message := "a call could not be recorded; its record waits in memory"
	if tool.CodeOf(failed) == tool.CodeConflict { // it is in the log as lost, and must not be there twice
		message = "a call was recorded as lost while it ran"
	} else if t.waiting.add(rec); t.o.Faults.Report(failed) {
		return
	}
	t.o.Logger.Error(message, "tool", rec.Tool, "call", rec.Call, "error", t.o.Redactor.Error(failed))
}

// Flush writes the records that wait in memory, as far as the log takes them, even if ctx has ended, unless another goroutine does it.
func (t *Trail) Flush(ctx context.Context) {
	if t != nil && t.waiting.any.Load() && t.waiting.flushing.TryLock() {
		t.flush(ctx)
	}
}

// Settle is the last Flush: it waits for another goroutine that does it, which may have stopped at a record that the log takes now.
func (t *Trail) Settle(ctx context.Context) {
	t.waiting.flushing.Lock()
	t.flush(ctx)
}

// flush has the lock, and gives it back.
func (t *Trail) flush(ctx context.Context) {
	defer t.waiting.flushing.Unlock()
	if n := t.waiting.flush(context.WithoutCancel(ctx), t.o.Log); n > 0 {
		t.o.Logger.Info("calls whose records waited in memory are recorded now", "calls", n)
	}
}

// Waits reports whether records wait in memory: the log did not take them.
func (t *Trail) Waits() bool { return t.waiting.any.Load() }

// Left returns how many records wait in memory, or were dropped from there.
func (t *Trail) Left() int {
	t.waiting.mu.Lock()
	defer t.waiting.mu.Unlock()
	return len(t.waiting.records) + t.waiting.lost
}

// hit is the detail of a trace that marks a replay.
const hit = "idempotent_hit"

// leaseID is how much of the digest of its token names a lease.
const leaseID = 16

// digestOf returns "" if there is no key: a log without one takes no record either.
func (t *Trail) digestOf(args []byte) string {
	sum, err := t.o.Digests.Sum("arguments", args)
	if err != nil {
		return ""
	}
	var text [2 * len(sum)]byte
	hex.Encode(text[:], sum[:])
	return string(text[:])
}

// A redacted log never stores a secret.
type redacted struct {
	Log
	of *Trail
}

// Begin implements Log.
func (l redacted) Begin(ctx context.Context, r *tool.Record) error {
	return l.of.o.Redactor.Error(l.Log.Begin(ctx, l.of.clean(r, l.of.o.Redactor)))
}

// Append implements Log.
func (l redacted) Append(ctx context.Context, r *tool.Record, durable bool) error {
	return l.of.o.Redactor.Error(l.Log.Append(ctx, l.of.clean(r, l.of.o.Redactor), durable))
}

// Later implements Log.
func (l redacted) Later(r *tool.Record, missed func(*tool.Record, error)) {
	l.Log.Later(l.of.clean(r, l.of.o.Redactor), missed)
}

// clean returns a record without secrets. Digests stay as they are: a value cannot be read from them.
func (t *Trail) clean(was *tool.Record, redactor *secret.Redactor) *tool.Record {
	if redactor.Idle() {
		return was
	}
	r := *was
	for i := range t.columns {
		if c := &t.columns[i]; !c.Ours {
			redactValue(redactor, c.Value(&r))
		}
	}
	if !bytes.Equal(r.Receipt, was.Receipt) { // it proves nothing any more
		r.Receipt = nil
	}
	if !bytes.Equal(r.Args, was.Args) && len(r.Receipt) > 0 { // what was replaced must not be found by its digest
		r.Receipt = receipt.Unsalted(r.Receipt)
	}
	return &r
}

// redactValue replaces a value, without changing memory that it shares with another record.
func redactValue(redactor *secret.Redactor, value any) {
	switch v := value.(type) {
	case *string:
		*v = redactor.String(*v)
	case *json.RawMessage:
		*v = redactor.JSON(*v)
	case *[]string:
		*v = redactedTexts(redactor, *v)
	case *[][]string:
		var lists [][]string
		for _, list := range *v {
			lists = append(lists, redactedTexts(redactor, list))
		}
		*v = lists
	}
}

func redactedTexts(redactor *secret.Redactor, was []string) (texts []string) {
	for _, text := range was {
		texts = append(texts, redactor.String(text))
	}
	return texts
}

// waiting holds the records that the log could not take: reads continue while a disk is full. They are written when
// there is room again. Records beyond the limit are dropped, and the log gets their number.
type waiting struct {
	most int
	any  atomic.Bool // whether there are any, for a quick check

	flushing sync.Mutex // held while they are written

	mu      sync.Mutex
	records []*tool.Record
	lost    int
}

func (w *waiting) add(r *tool.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.any.Store(true)
	if len(w.records) >= w.most {
		w.lost++
		return
	}
	w.records = append(w.records, r)
}

// flush writes the waiting records until one cannot be written, and returns how many it wrote. The caller holds flushing, and not
// mu: the log may first report other records that it cannot take, and those are added here.
func (w *waiting) flush(ctx context.Context, log Log) (written int) {
	for r := w.first(); r != nil; r = w.first() {
		if err := log.Append(ctx, r, r.Begun); err != nil && tool.CodeOf(err) != tool.CodeConflict {
			break
		}
		w.drop()
		written++
	}
	return written
}

// first returns the record that has waited longest, or nil.
func (w *waiting) first() *tool.Record {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.records) == 0 {
		w.any.Store(false)
		return nil
	}
	r := w.records[0]
	if w.lost > 0 && r.Lost == 0 {
		r.Lost, w.lost = w.lost, 0
	}
	return r
}

// drop removes the first record, which has been written.
func (w *waiting) drop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.records = w.records[1:]
}
