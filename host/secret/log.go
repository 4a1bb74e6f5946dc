package secret

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
)

// Handler returns a handler of logs that writes to another one, without secrets.
func Handler(to slog.Handler, r *Redactor) slog.Handler { return &handler{to, r} }

type handler struct {
	to slog.Handler
	r  *Redactor
}

// Enabled implements slog.Handler.
func (h *handler) Enabled(ctx context.Context, l slog.Level) bool { return h.to.Enabled(ctx, l) }

// Handle implements slog.Handler.
func (h *handler) Handle(ctx context.Context, rec slog.Record) error {
	if h.r.Idle() {
		return h.to.Handle(ctx, rec)
	}
	clean := slog.NewRecord(rec.Time, rec.Level, h.r.String(rec.Message), rec.PC)
	rec.Attrs(func(a slog.Attr) bool {
		clean.AddAttrs(h.attr(a))
		return true
	})
	return h.to.Handle(ctx, clean)
}

// WithAttrs implements slog.Handler. Secrets that are learnt later stay in what was added before.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{h.to.WithAttrs(h.attrs(attrs)), h.r}
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{h.to.WithGroup(h.r.String(name)), h.r}
}

func (h *handler) attrs(attrs []slog.Attr) []slog.Attr {
	clean := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		clean[i] = h.attr(a)
	}
	return clean
}

func (h *handler) attr(a slog.Attr) slog.Attr {
	if h.r.Idle() {
		return a
	}
	return slog.Attr{Key: h.r.String(a.Key), Value: h.value(a.Value.Resolve())}
}

func (h *handler) value(v slog.Value) slog.Value {
	switch v.Kind() {
	case slog.KindString:
		return slog.StringValue(h.r.String(v.String()))
	case slog.KindGroup:
		return slog.GroupValue(h.attrs(v.Group())...)
	case slog.KindAny:
		return slog.AnyValue(h.any(v.Any()))
	}
	if text := v.String(); h.r.in(text) { // a number
		return slog.StringValue(h.r.String(text))
	}
	return v
}

// any redacts a value of any type, in whatever way it may be written.
func (h *handler) any(v any) any {
	switch v := v.(type) {
	case error:
		return h.r.Error(v)
	case []byte:
		return h.r.Bytes(v)
	case json.RawMessage:
		return h.r.JSON(v)
	}
	if text := fmt.Sprintf("%+v", v); h.r.in(text) {
		return h.r.String(text)
	}
	return h.r.Value(v)
}
