package secret

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"toolpost/tool"
)

// A Redactor replaces the values of secrets in texts by their names: [secret NAME]. It also recognises a value in base64
// (anywhere in a longer text), in hexadecimal digits, URL-encoded, and with the escapes of JSON and HTML; a value of
// several lines also by each line of 16 bytes and more; and in a text that was cut, by the remainder if that is half of
// the value or 8 bytes. It does not recognise values that were encrypted, compressed, reversed or cut into small pieces
// on purpose: a tool that wants to reveal its secrets can.
//
// A text without secrets is returned unchanged, not copied. A nil Redactor knows no secrets, and neither does the zero
// value before it learns some. All methods may be called from several goroutines.
type Redactor struct {
	matcher atomic.Pointer[matcher] // nil if there are no secrets

	learning sync.Mutex
	vault    []known // the secrets of the last vault
	former   []known // those of earlier vaults, and added ones, the newest first
}

// Of returns what is secret in one call alone, or nil.
func Of(c *tool.Call) *Redactor {
	if c.Memo == nil {
		return nil
	}
	r, _ := c.Memo.Secrets.(*Redactor)
	return r
}

// maxFormer is how many values are remembered that no vault has, or no longer: a running process may still print them.
const maxFormer = 1024

// Learn adds the values of a vault. Values learnt before stay known.
func (r *Redactor) Learn(v *Vault) {
	r.learning.Lock()
	defer r.learning.Unlock()
	var all []known
	for _, name := range v.Names() {
		if value, err := v.Secret(name); err == nil {
			all = append(all, known{name: name, value: value})
		}
	}
	former := slices.DeleteFunc(slices.Concat(r.vault, r.former), func(k known) bool { return slices.Contains(all, k) })
	r.knows(all, former)
}

// Add adds a value that no vault has, such as a token that is valid for an hour.
func (r *Redactor) Add(name, value string) { _ = r.add(known{name: name, value: value}) }

// AddAs adds a value that another text replaces. The error says why the value cannot be recognised.
func (r *Redactor) AddAs(label, value string) error { return r.add(known{label: label, value: value}) }

func (r *Redactor) add(one known) error {
	r.learning.Lock()
	defer r.learning.Unlock()
	err := check(one.value)
	switch i := slices.Index(r.former, one); {
	case err != nil || i < 0 && slices.Contains(r.vault, one):
	case i < 0:
		r.knows(r.vault, slices.Concat([]known{one}, r.former))
	default: // those that are not used any more are forgotten first
		copy(r.former[1:i+1], r.former[:i])
		r.former[0] = one
	}
	return err
}

func (r *Redactor) knows(vault, former []known) {
	r.vault, r.former = vault, former[:min(len(former), maxFormer)]
	if len(r.vault)+len(r.former) > 0 {
		r.matcher.Store(newMatcher(slices.Concat(r.vault, r.former)))
	}
}

// Idle reports whether there is nothing to redact.
func (r *Redactor) Idle() bool { return r.current() == nil }

func (r *Redactor) current() *matcher {
	if r == nil {
		return nil
	}
	return r.matcher.Load()
}

// String redacts a text.
func (r *Redactor) String(text string) string {
	if m := r.current(); m != nil {
		return m.redact(text, cutAll)
	}
	return text
}

// Bytes redacts a text. It returns the text itself if it has no secret.
func (r *Redactor) Bytes(text []byte) []byte {
	m := r.current()
	if m == nil {
		return text
	}
	if hits := m.everywhere(asString(text), nil, depth, cutAll); len(hits) > 0 {
		return []byte(m.redact(string(text), cutAll))
	}
	return text
}

// asString returns text as a string that must not outlive it.
func asString(text []byte) string { return unsafe.String(unsafe.SliceData(text), len(text)) }

// Format prevents the values from being printed.
func (r *Redactor) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("redactor")) }

const (
	depth  = 2 // levels of escapes that are decoded: JSON in a text of JSON, a URL in JSON
	rounds = 4 // how often a text is searched again
)

// redact replaces secrets by their names. A name beside other text may form another secret, so the result is searched
// again.
func (m *matcher) redact(text string, which cuts) string {
	for range rounds {
		hits := m.everywhere(text, nil, depth, which)
		if len(hits) == 0 {
			return text
		}
		text = m.replace(text, merge(hits))
	}
	if hits := m.everywhere(text, nil, depth, which); len(hits) > 0 {
		return m.labels[hits[0].secret]
	}
	return text
}

func (m *matcher) replace(text string, hits []hit) string {
	var b strings.Builder
	b.Grow(len(text))
	from := 0
	for _, h := range hits {
		b.WriteString(text[from:h.from])
		b.WriteString(m.labels[h.secret])
		from = h.to
	}
	b.WriteString(text[from:])
	return b.String()
}

// everywhere adds the secrets of a text, as it is written and with its escapes decoded, up to deep levels.
func (m *matcher) everywhere(text string, hits []hit, deep int, which cuts) []hit {
	hits = append(hits, m.find(text)...)
	hits = m.atCuts(text, which, hits)
	if deep == 0 {
		return hits
	}
	for _, e := range escapesOf(text) {
		if strings.IndexByte(text, e.mark) >= 0 {
			hits = m.through(text, e, hits, deep-1, which)
		}
	}
	return hits
}

// through adds the secrets of a text with escapes of one kind decoded.
func (m *matcher) through(text string, e escape, hits []hit, deep int, which cuts) []hit {
	v := views.Get().(*view)
	defer v.close()
	if !v.open(text, e) {
		return hits
	}
	before := len(hits)
	hits = m.everywhere(asString(v.plain), hits, deep, which)
	for i := before; i < len(hits); i++ {
		hits[i].from, hits[i].to = v.from(hits[i].from), v.to(hits[i].to)
	}
	return hits
}

// Error redacts the message of an error and of those that it wraps. An error without secrets is returned unchanged.
// errors.Is finds the same as before; errors.As finds the redacted *tool.Error, and no error that had a secret.
func (r *Redactor) Error(err error) error {
	if err == nil || r.Idle() || !r.inError(err) {
		return err
	}
	if was, ok := err.(*tool.Error); ok {
		return r.Failure(was)
	}
	if within, ok := errors.AsType[*tool.Error](err); ok {
		clean := *r.Failure(within)
		clean.Err = quiet{r.String(err.Error()), err}
		return &clean
	}
	return quiet{r.String(err.Error()), err}
}

// Failure redacts an error of a tool.
func (r *Redactor) Failure(e *tool.Error) *tool.Error {
	if e == nil || r.Idle() || !r.inError(e) {
		return e
	}
	clean := *e
	clean.Reason, clean.Message = r.String(e.Reason), r.String(e.Message)
	clean.Code, clean.Details = tool.Code(r.String(string(e.Code))), r.JSON(e.Details)
	clean.Err = r.Error(e.Err)
	return &clean
}

// inError reports whether the message of an error, or of one that it wraps, contains a secret.
func (r *Redactor) inError(err error) bool {
	if err == nil {
		return false
	}
	if e, ok := err.(*tool.Error); ok &&
		(r.in(e.Reason) || r.in(e.Message) || r.in(asString(e.Details))) {
		return true
	}
	if r.in(err.Error()) {
		return true
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		return r.inError(e.Unwrap())
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), r.inError)
	}
	return false
}

// in reports whether a text has a secret.
func (r *Redactor) in(text string) bool {
	m := r.current()
	return m != nil && len(m.everywhere(text, nil, depth, cutAll)) > 0
}

// A quiet error has the message of another one, without its secrets.
type quiet struct {
	text string
	was  error
}

// Error implements error.
func (q quiet) Error() string { return q.text }

// Is is for errors.Is alone: an error with a secret in it cannot be unwrapped.
func (q quiet) Is(target error) bool { return errors.Is(q.was, target) }

// Format prevents the original error from being printed.
func (q quiet) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(q.text)) }

// Handler returns a log handler that removes secrets and writes to another one.
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

// WithAttrs implements slog.Handler. Secrets that are learnt later are not removed from attributes added before.
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

// any redacts a value of any type, in every way that it may be written.
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
