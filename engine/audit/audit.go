// Package audit is the stage that keeps a record of every call, whatever becomes of it: of those that were
// refused and of those that failed too. A call that may change something is answered only when its record is
// on disk, and is not run at all where nothing can be recorded.
package audit

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"slices"
	"strings"
	"time"

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
}

// Options of the stage.
type Options struct {
	Log Log
	// Values names the tools whose arguments are kept with their values; "*": all. Of others the shape and a
	// digest are kept.
	Values []string
	// Redact names further arguments whose values are never kept, beside those whose names speak of secrets.
	Redact  []string
	Logger  *slog.Logger // nil: silence
	Waiting int          // records that wait in memory while the log cannot take them; 0: 4,096
}

// A Trail makes the records of one engine. A nil Trail makes none.
type Trail struct {
	o       Options
	waiting waiting
}

// New makes a trail.
func New(o Options) *Trail {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Trail{o: o, waiting: waiting{most: cmp.Or(o.Waiting, 4096)}}
}

// Stage is the tool.Middleware. It stands outside everything that may refuse a call.
func (t *Trail) Stage(next tool.Handler) tool.Handler {
	if t == nil {
		return next
	}
	return tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (r *tool.Result, err error) {
		rec := &tool.Record{
			Time: time.Now(), Call: c.ID, Trace: c.Trace, Asked: c.Tool, Door: c.Caller.Door, Caller: c.Caller.ID, Session: c.Session,
			Run: c.Run, Key: c.Key, DryRun: c.DryRun, In: int64(len(c.Args)), Shape: shapeOf(c.Args), Digest: digestOf(c.Args),
		}
		if c.Lease != "" {
			rec.Lease = digestOf([]byte(c.Lease))[:leaseID]
		}
		watched := *c
		watched.Record = rec
		ended := false
		defer func() {
			if !ended { // a panic, on its way to somebody who turns it into an error
				_ = t.end(ctx, rec, nil, tool.Errorf(tool.CodeInternal, "panic"))
			}
		}()
		r, err = next.Invoke(ctx, &watched, out)
		ended = true
		if lost := t.end(ctx, rec, r, err); lost != nil {
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
	return func(next tool.Handler) tool.Handler {
		return tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
			if c.Record != nil && c.Spec != nil {
				t.name(c.Record, c)
			}
			return next.Invoke(ctx, c, out)
		})
	}
}

// Touching is the stage behind the one that checks the arguments: it notes what the call is going to touch.
// toucher is nil where nobody can tell.
func (t *Trail) Touching(toucher tool.Toucher) tool.Middleware {
	if t == nil || toucher == nil {
		return nil
	}
	return func(next tool.Handler) tool.Handler {
		return tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
			if c.Record != nil {
				c.Record.Touches, _ = toucher.Touches(c) // an error refuses the call where others are told about it
			}
			return next.Invoke(ctx, c, out)
		})
	}
}

func (t *Trail) name(r *tool.Record, c *tool.Call) {
	r.Tool, r.Source, r.Protocol = c.Spec.Name, c.Spec.Source, c.Spec.Protocol
	if r.Asked == r.Tool {
		r.Asked = ""
	}
	r.Walls = strings.Join(c.Tightened(tool.Guarantees{}).Asked(), ",")
	if slices.Contains(t.o.Values, "*") || slices.Contains(t.o.Values, c.Spec.Name) {
		if r.Args = Redacted(c.Args, t.o.Redact); len(r.Args) > maxArgs {
			r.Args = nil
		}
	}
}

// Begun is the stage in front of what has an effect. A call that may change something is noted before it runs:
// where that is not possible, it does not run.
func (t *Trail) Begun() tool.Middleware {
	if t == nil {
		return nil
	}
	return func(next tool.Handler) tool.Handler {
		return tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
			r := c.Record
			if r == nil || c.Spec != nil && c.Spec.Effects.ReadOnly() {
				return next.Invoke(ctx, c, out)
			}
			if err := t.o.Log.Begin(context.WithoutCancel(ctx), r); err != nil {
				return nil, tool.Errorf(tool.CodeUnavailable, "%s was not run, because it may change something and that could not be recorded: %w",
					c.Tool, err).Because("audit_unavailable")
			}
			r.Begun = true
			return next.Invoke(ctx, c, out)
		})
	}
}

// end completes the record of a call and adds it to the log. The error is that of a call which has changed
// something and whose record is not on disk.
func (t *Trail) end(ctx context.Context, rec *tool.Record, r *tool.Result, err error) error {
	rec.Duration = time.Since(rec.Time)
	rec.Outcome, rec.Code, rec.Reason = tool.OutcomeOf(r, err)
	if r != nil {
		rec.Out = int64(len(r.Output))
		rec.Replay, _ = r.Trace.Details[hit].(bool)
		rec.Cached = r.Trace.Cached
	}
	ctx = context.WithoutCancel(ctx) // the record of a call that was cancelled is a record
	t.waiting.flush(ctx, t.o.Log)
	failed := t.o.Log.Append(ctx, rec, rec.Begun)
	if failed == nil {
		return nil
	}
	t.waiting.add(rec)
	t.o.Logger.Error("a call could not be recorded; its record waits in memory", "tool", rec.Tool, "call", rec.Call, "error", failed)
	if !rec.Begun || err != nil {
		return nil
	}
	return tool.Errorf(tool.CodeUnavailable, "%s ran, but its record is not on disk: %w", rec.Tool, failed).Because("audit_unavailable")
}

// hit is the detail of a trace that tells a replay from a run.
const hit = "idempotent_hit"

// leaseID is how much of the digest of its token names a lease.
const leaseID = 16

func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
