package journal

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"time"

	"toolpost/config"
	"toolpost/tool"
)

// Stage returns the stage for both of its places. In front of resolve it records how each call ends, refusals too, and
// also writes that to log at debug level. Behind resolve it records what tools log while they run. Toolpost's own tools
// are left out there: one of them returns these very lines.
func (j *Journal) Stage(log *slog.Logger) func(*tool.Spec) tool.Middleware {
	return func(s *tool.Spec) tool.Middleware {
		switch {
		case s == nil:
			return j.ends(log)
		case s.Source == config.OwnSource:
			return nil
		}
		return j.events
	}
}

func (j *Journal) ends(log *slog.Logger) tool.Middleware {
	return func(next tool.Handler) tool.Handler {
		return tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (r *tool.Result, err error) {
			start := c.Start()
			defer func() { // also on a panic, which leaves neither result nor error
				l := ended(c, r, err, start)
				j.add(&l, &tool.Event{})
				if log.Enabled(ctx, slog.LevelDebug) {
					log.LogAttrs(ctx, slog.LevelDebug, "call", l.attrs(cmp.Or(c.Record, &tool.Record{}).Touches)...)
				}
			}()
			return next.Invoke(ctx, c, out)
		})
	}
}

// ended returns the line for the end of a call.
func ended(c *tool.Call, r *tool.Result, err error, start time.Time) Line {
	l := of(c)
	took := time.Since(start)
	l.From, l.Time, l.Millis = Call, start.Add(took), float64(took.Microseconds())/1000
	l.Outcome, l.Code, _ = c.Record.OutcomeOf(r, err)
	l.Code = tool.Code(short(string(l.Code))) // a tool may choose it
	l.Level = l.Outcome.Level()
	switch {
	case err != nil:
		l.Message = short(tool.AsError(err).Message)
	case r != nil && r.Failure != nil:
		l.Message = short(r.Failure.Message)
	case r != nil:
		l.Tool = cmp.Or(r.Trace.Tool, l.Tool)
		if l.Message = short(r.Summary); c.DryRun {
			l.Message = "only judged"
		}
	}
	return l
}

// of returns a line about a call. The tool has its published name, if that is known.
func of(c *tool.Call) Line {
	name := c.Tool
	switch {
	case c.Spec != nil:
		name = c.Spec.Name
	case c.Record != nil:
		name = cmp.Or(c.Record.Tool, name)
	}
	return Line{
		Call: short(c.ID), Tool: short(name), Caller: short(c.Caller.ID), Session: short(c.Session), Run: short(c.Run),
		Door: c.Caller.Door,
	}
}

// attrs returns the line's attributes for the log of this process, with the files that the call touched.
func (l *Line) attrs(t tool.Touches) []slog.Attr {
	attrs := []slog.Attr{
		slog.String("tool", l.Tool), slog.String("caller", l.Caller), slog.String("door", l.Door),
		slog.String("outcome", string(l.Outcome)), slog.Float64("ms", l.Millis), slog.String("call", l.Call),
	}
	for _, more := range []slog.Attr{
		slog.String("code", string(l.Code)), slog.String("run", l.Run), slog.String("about", l.Message),
		slog.String("reads", strings.Join(t.Reads, " ")), slog.String("writes", strings.Join(t.Writes, " ")),
	} {
		if more.Value.String() != "" {
			attrs = append(attrs, more)
		}
	}
	return attrs
}

// events is the stage behind resolve.
func (j *Journal) events(next tool.Handler) tool.Handler {
	return tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
		return next.Invoke(ctx, c, &listener{j: j, call: c, out: out})
	})
}

// A listener records what a tool logs during one call.
type listener struct {
	j    *Journal
	call *tool.Call
	out  tool.Sink
}

// Emit implements tool.Sink.
func (l *listener) Emit(ev tool.Event) error {
	if ev.Kind == tool.KindLog || ev.Kind == tool.KindError {
		line, about := of(l.call), ev
		if line.From, line.Time = Tool, ev.Time; line.Time.IsZero() {
			line.Time = time.Now()
		}
		if len(ev.Data) > 2*maxText { // most of it would not be shown
			line.tell(ev.Kind, ev.Data)
			about = tool.Event{}
		}
		l.j.add(&line, &about)
	}
	return l.out.Emit(ev)
}

// Handler returns a handler that writes to another one, and keeps all lines above debug level. Secrets must have been
// removed from the lines before.
func (j *Journal) Handler(to slog.Handler) slog.Handler { return &handler{j: j, to: to} }

type handler struct {
	j    *Journal
	to   slog.Handler
	with []func(slog.Handler) slog.Handler // attributes and groups, in the order in which they were added
}

// Enabled implements slog.Handler.
func (h *handler) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelInfo || h.to.Enabled(ctx, l)
}

// Handle implements slog.Handler.
func (h *handler) Handle(ctx context.Context, rec slog.Record) error {
	if rec.Level >= slog.LevelInfo {
		h.j.add(&Line{
			Time: rec.Time, From: Server, Level: level(strings.ToLower(rec.Level.String())), Message: short(rec.Message),
			Fields: h.fields(ctx, rec),
		}, &tool.Event{})
	}
	if !h.to.Enabled(ctx, rec.Level) {
		return nil
	}
	return h.to.Handle(ctx, rec)
}

// fields encodes the attributes as JSON. It uses a handler of the standard library, made anew for each line, because
// such lines are few.
func (h *handler) fields(ctx context.Context, rec slog.Record) json.RawMessage {
	var text bytes.Buffer
	var to slog.Handler = slog.NewJSONHandler(&text, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && (a.Key == slog.LevelKey || a.Key == slog.MessageKey) {
				return slog.Attr{}
			}
			return a
		},
	})
	for _, with := range h.with {
		to = with(to)
	}
	rec.Time, rec.Message = time.Time{}, "" // left out
	if err := to.Handle(ctx, rec); err != nil {
		return nil
	}
	fields := bytes.TrimSpace(text.Bytes())
	if len(fields) > maxText || string(fields) == "{}" {
		return nil
	}
	return fields
}

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return h.adding(func(to slog.Handler) slog.Handler { return to.WithAttrs(attrs) })
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	return h.adding(func(to slog.Handler) slog.Handler { return to.WithGroup(name) })
}

func (h *handler) adding(with func(slog.Handler) slog.Handler) slog.Handler {
	all := slices.Concat(h.with, []func(slog.Handler) slog.Handler{with})
	return &handler{h.j, with(h.to), all}
}
