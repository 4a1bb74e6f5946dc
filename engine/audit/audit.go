// Package audit is the stage that keeps a record of every call, whatever becomes of it: of those that were
// refused and of those that failed too. A call that may change something is answered only when its record is
// on disk, and is not run at all where nothing can be recorded. That of a call which ran and changed nothing is written
// a moment after its answer, with others: nobody waits for a disk in order to read.
package audit

import (
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

	"toolpost/host/secret"
	"toolpost/tool"
)

// A Log keeps records.
type Log interface {
	// Begin notes that a call is about to run which may change something. Append with the same record ends
	// what Begin began.
	Begin(ctx context.Context, r *tool.Record) error
	// Append adds a record. When it returns nil the record survives the end of this program, and where it is
	// durable that of the machine.
	Append(ctx context.Context, r *tool.Record, durable bool) error
	// Later adds the record of a call that changed nothing, soon and in order, without keeping its caller waiting. The
	// record is the log's from then on, which bounds it before Later returns and gives it its place; missed gets it back
	// when it could not be added.
	Later(r *tool.Record, missed func(*tool.Record, error))
}

// Settings is what a config says of the stage, under store.audit.
type Settings struct {
	Values tool.Patterns `yaml:"values" doc:"tools, by name or as source.name, whose argument values are recorded, or * for all; for others only the shape and a digest are"`
	Redact []string      `yaml:"redact" doc:"further argument names whose values are never recorded"`
	Key    string        `yaml:"key" schema:"default=.toolpost/audit.key" doc:"file with the key that signs the log; created if it is missing"`
}

// Options of the stage.
type Options struct {
	Log Log
	// Values names the tools whose arguments are kept with their values; "*": all. Of others the shape and a
	// digest are kept.
	Values tool.Patterns
	// Redact names further arguments whose values are never kept, beside those whose names speak of secrets.
	Redact   []string
	Redactor *secret.Redactor // knows the secrets that no record may have; nil: there are none
	// Digests makes the digests of arguments; nil: with a key that ends with this program.
	Digests *secret.Keyed
	Logger  *slog.Logger // nil: silence
	Waiting int          // records that wait in memory while the log cannot take them; 0: 4,096
}

// A Trail makes the records of one engine. A nil Trail makes none.
type Trail struct {
	o       Options
	waiting waiting
	missed  func(*tool.Record, error) // miss, made once: every call hands it over
}

// New makes a trail.
func New(o Options) *Trail {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.Digests = cmp.Or(o.Digests, secret.NewKeyed(nil))
	o.Log = redacted{o.Log, o.Redactor, Columns()}
	t := &Trail{o: o, waiting: waiting{most: cmp.Or(o.Waiting, 4096)}}
	t.missed = t.miss
	return t
}

// Stage is the tool.Middleware. It stands outside everything that may refuse a call.
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
		if c.Lease != "" {
			sum := sha256.Sum256([]byte(c.Lease))
			rec.Lease = hex.EncodeToString(sum[:])[:leaseID]
		}
		c.Record = rec
		ended := false
		defer func() {
			if !ended { // a panic, on its way to somebody who turns it into an error
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

// Named is the stage inside the one that finds the tool: it notes which one it is.
func (t *Trail) Named() tool.Middleware {
	if t == nil {
		return nil
	}
	return tool.First(t.name)
}

func (t *Trail) name(_ context.Context, c *tool.Call) error {
	r := c.Record
	if r == nil || c.Spec == nil {
		return nil
	}
	r.Tool, r.Source, r.Protocol, r.Tier = c.Spec.Name, c.Spec.Source, c.Spec.Protocol, c.Spec.Tier
	r.ReadOnly = c.Spec.Effects.ReadOnly()
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

// Touching is the stage behind the one that checks the arguments: it notes what the call is going to touch.
// toucher is nil where nobody can tell.
func (t *Trail) Touching(toucher tool.Toucher) tool.Middleware {
	if t == nil || toucher == nil {
		return nil
	}
	return tool.First(func(_ context.Context, c *tool.Call) error {
		if c.Record != nil {
			if t, err := toucher.Touches(c); err == nil { // an error refuses the call where others are told about it
				c.Record.Touches = tool.Touches{Reads: t.Reads, Writes: t.Writes, Commands: t.Commands}
			}
		}
		return nil
	})
}

// Begun is the stage in front of what has an effect. A call that may change something is noted before it runs:
// where that is not possible, it does not run.
func (t *Trail) Begun() tool.Middleware {
	if t == nil {
		return nil
	}
	return tool.First(func(ctx context.Context, c *tool.Call) error {
		r := c.Record
		if r == nil || c.Spec != nil && c.Spec.Effects.ReadOnly() {
			return nil
		}
		if err := t.o.Log.Begin(context.WithoutCancel(ctx), r); err != nil {
			return tool.BeforeRun(notBegun(c.Tool, err))
		}
		r.Begun = true
		return nil
	})
}

// notBegun is the error of a call that may change something and could not be noted. One that may be made again soon
// says when, as the store does.
func notBegun(name string, err error) *tool.Error {
	e := tool.Errorf(tool.CodeUnavailable,
		"%s was not run, because it may change something and that could not be recorded: %w", name, err)
	e.Details = tool.AsError(err).Details
	return e.Because("audit_unavailable")
}

// end completes the record of a call and adds it to the log. The error is that of a call which has changed
// something and whose record is not on disk.
func (t *Trail) end(ctx context.Context, c *tool.Call, out tool.Sink, r *tool.Result, err error) error {
	rec := c.Record
	if c.Patient && tool.NotRun(err) && tool.StoreAway(err) {
		return nil // it is made again when the store is there, and is in the log then
	}
	rec.Duration = time.Since(rec.Time)
	noted := rec.Reason
	rec.Outcome, rec.Code, rec.Reason = tool.OutcomeOf(r, err)
	rec.Reason = cmp.Or(rec.Reason, noted)
	if r != nil {
		rec.Out = int64(len(r.Output))
		rec.Replay, _ = r.Trace.Details[hit].(bool)
		rec.Cached = r.Trace.Cached
	}
	t.Flush(ctx)
	if err == nil && rec.ReadOnly {
		t.o.Log.Later(rec, t.missed)
		return nil
	}
	kept := context.WithoutCancel(ctx) // the record of a call that was cancelled is a record
	add := func() error { return t.o.Log.Append(kept, rec, rec.Begun) }
	var failed error
	if rec.Begun && err == nil { // its end is not told before it is on disk
		failed = tool.Persist(ctx, c, out, "its record", add)
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
	return tool.Errorf(tool.CodeUnavailable, "%s ran, but its record is not on disk: %w", rec.Tool,
		failed).Because("audit_unavailable")
}

// miss keeps a record that the log did not take.
func (t *Trail) miss(rec *tool.Record, failed error) {
	message := "a call could not be recorded; its record waits in memory"
	if tool.CodeOf(failed) == tool.CodeConflict { // it is in the log as lost, and will not be there twice
		message = "a call was recorded as lost while it ran"
	} else {
		t.waiting.add(rec)
	}
	t.o.Logger.Error(message, "tool", rec.Tool, "call", rec.Call, "error", t.o.Redactor.Error(failed))
}

// Flush writes the records that wait in memory, as far as the log takes them, also where ctx has ended.
func (t *Trail) Flush(ctx context.Context) {
	if t != nil && t.waiting.any.Load() {
		t.waiting.flush(context.WithoutCancel(ctx), t.o.Log)
	}
}

// Left is how many records wait in memory, or waited there in vain.
func (t *Trail) Left() int {
	t.waiting.mu.Lock()
	defer t.waiting.mu.Unlock()
	return len(t.waiting.records) + t.waiting.lost
}

// hit is the detail of a trace that tells a replay from a run.
const hit = "idempotent_hit"

// leaseID is how much of the digest of its token names a lease.
const leaseID = 16

// digestOf returns nothing where there is no key: a log that has none takes no record either.
func (t *Trail) digestOf(args []byte) string {
	sum, err := t.o.Digests.Sum("arguments", args)
	if err != nil {
		return ""
	}
	var text [2 * len(sum)]byte
	hex.Encode(text[:], sum[:])
	return string(text[:])
}

// A redacted log gets to keep no secret.
type redacted struct {
	of       Log
	redactor *secret.Redactor
	columns  Table
}

// Begin implements Log.
func (l redacted) Begin(ctx context.Context, r *tool.Record) error {
	return l.redactor.Error(l.of.Begin(ctx, l.clean(r)))
}

// Append implements Log.
func (l redacted) Append(ctx context.Context, r *tool.Record, durable bool) error {
	return l.redactor.Error(l.of.Append(ctx, l.clean(r), durable))
}

// Later implements Log.
func (l redacted) Later(r *tool.Record, missed func(*tool.Record, error)) {
	l.of.Later(l.clean(r), missed)
}

// clean returns a record without secrets. Digests stay as they are: nobody reads a value off them.
func (l redacted) clean(was *tool.Record) *tool.Record {
	if l.redactor.Idle() {
		return was
	}
	r := *was
	for i := range l.columns {
		if c := &l.columns[i]; !c.Ours {
			redactValue(l.redactor, c.Value(&r))
		}
	}
	return &r
}

// redactValue replaces a value. What it shares with another record stays as it is.
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

// waiting are the records that the log could not take: reading goes on while a disk is full. They are written
// when there is room again. Of those that are too many, the log learns the number.
type waiting struct {
	most int
	any  atomic.Bool // whether there are some, for a quick look

	flushing sync.Mutex // held by who writes them

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

// flush writes what waits, until one cannot be written. One caller at a time does it; others go on. The lock is not
// held meanwhile: the log may first have to say of other records that it cannot take them, and those are added here.
func (w *waiting) flush(ctx context.Context, log Log) {
	if !w.any.Load() || !w.flushing.TryLock() {
		return
	}
	defer w.flushing.Unlock()
	for r := w.first(); r != nil; r = w.first() {
		if err := log.Append(ctx, r, r.Begun); err != nil && tool.CodeOf(err) != tool.CodeConflict {
			return
		}
		w.drop()
	}
}

// first gives the record that has waited longest; nil: none waits.
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

// drop forgets the first record, which is written.
func (w *waiting) drop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.records = w.records[1:]
}
