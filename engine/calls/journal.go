package calls

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// KeepLines is how many lines the journal keeps; the others limit their bytes, and the text of one line.
const (
	KeepLines = 4096
	keepBytes = 4 << 20
	maxText   = 2000
)

// An Origin is the kind of source of a line.
type Origin string

// The origins.
const (
	Server   Origin = "server" // this process
	FromTool Origin = "tool"   // a tool, while a call of it ran
	FromCall Origin = "call"   // a call has ended
)

// A JournalLine is one event of the journal.
type JournalLine struct {
	Seq     int64           `json:"seq"`           // 1, 2, 3 ... since the start of the process
	Node    string          `json:"node,omitzero"` // of the fleet, whose line it is
	Time    time.Time       `json:"time"`
	From    Origin          `json:"from"`
	Level   string          `json:"level"` // debug, info, warn, error
	Message string          `json:"message,omitzero"`
	Fields  json.RawMessage `json:"fields,omitzero"` // what the process or the tool added to the message

	// Set for a call.
	Call    string `json:"call,omitzero"`
	Tool    string `json:"tool,omitzero"`
	Caller  string `json:"caller,omitzero"`
	Door    string `json:"door,omitzero"`
	Session string `json:"session,omitzero"`
	Run     string `json:"run,omitzero"`

	// Set for the end of a call.
	Outcome tool.Outcome `json:"outcome,omitzero"`
	Code    tool.Code    `json:"code,omitzero"`
	Millis  float64      `json:"duration_ms,omitzero"`

	event tool.Kind // of a tool's event, whose data is in Fields until the line is read; empty if it is not an event
}

// A written line is one in the journal, with the memory that it holds.
type written struct {
	JournalLine
	size int
}

// lineSize is roughly the size of the struct.
const lineSize = 280

// write keeps a line of the journal, and drops the oldest if there are too many. names is the memory of the names of its
// call. The caller holds mu.
func (l *Log) write(line JournalLine, names int) {
	j := &l.journal
	if j.full(KeepLines) {
		l.erase()
	}
	line.Seq, line.Time = j.last+1, line.Time.Local() // whatever zone a tool uses
	w := written{line, lineSize + names + len(line.Message) + len(line.Fields)}
	j.add(w, KeepLines)
	for l.size += w.size; l.size > keepBytes; {
		l.erase()
	}
}

// erase forgets the oldest line of the journal. The caller holds mu.
func (l *Log) erase() {
	l.journal.gone++
	oldest := l.journal.at(l.journal.gone)
	l.size -= oldest.size
	*oldest = written{}
}

// JournalEnd returns the number of the last line of the journal.
func (l *Log) JournalEnd() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.journal.last
}

// Journal returns at most most lines of the journal after the given number, the oldest first, and how many in between are
// no longer kept.
func (l *Log) Journal(after int64, most int) (lines []JournalLine, missed int64) {
	l.mu.Lock()
	first := max(after, l.journal.gone) + 1
	for seq := first; seq <= l.journal.last && len(lines) < most; seq++ {
		lines = append(lines, l.journal.at(seq).JournalLine)
	}
	l.mu.Unlock()
	for i := range lines {
		lines[i].tell(lines[i].event, lines[i].Fields)
	}
	if len(lines) > 0 {
		missed = first - after - 1
	}
	return lines, missed
}

// line returns a line about the call.
func (e *entry) line() JournalLine {
	n := &e.names
	return JournalLine{Call: n.call, Tool: n.tool, Caller: n.caller, Door: e.call.Caller.Door, Session: n.session, Run: n.run}
}

// ended returns the line for the end of a call. The tool has its published name, if that is known.
func (e *entry) ended(r *tool.Result, err error, took time.Duration) JournalLine {
	l, record := e.line(), e.found.Record
	l.From, l.Time, l.Millis = FromCall, e.start.Add(took), millis(took)
	l.Outcome, l.Code, _ = record.OutcomeOf(r, err)
	l.Code = tool.Code(strings.Clone(short(string(l.Code)))) // a tool may choose it
	l.Level = l.Outcome.Level()
	if record != nil && e.found.Spec == nil {
		l.Tool = short(cmp.Or(record.Tool, l.Tool))
	}
	switch {
	case err != nil:
		l.Message = tool.AsError(err).Message
	case r != nil && r.Failure != nil:
		l.Message = r.Failure.Message
	case r != nil:
		l.Tool = cmp.Or(r.Trace.Tool, l.Tool)
		if l.Message = r.Summary; e.call.DryRun {
			l.Message = "only judged"
		}
	}
	l.Message = strings.Clone(short(l.Message))
	return l
}

// attrs returns the line's attributes for the log of this process, with the files that the call touched.
func (l *JournalLine) attrs(of *tool.Record) []slog.Attr {
	t := cmp.Or(of, &tool.Record{}).Touches
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

// said returns the line for an event of a tool; copied has the part of its data that is kept. It is parsed when the line is
// read, unless most of it would not be shown.
func (e *entry) said(ev, copied tool.Event) JournalLine {
	l := e.line()
	l.From, l.Time, l.event, l.Fields = FromTool, copied.Time, ev.Kind, copied.Data
	if len(ev.Data) > 2*maxText {
		l.event = ""
		l.tell(ev.Kind, ev.Data)
	}
	return l
}

// tell adds the content of an event, or the fields if it is not an event.
func (l *JournalLine) tell(event tool.Kind, more json.RawMessage) {
	switch event {
	case "":
		l.Fields = more
	case tool.KindLog:
		var data tool.Log
		_ = strictjson.Unmarshal(more, &data) // fields that do not fit are dropped
		l.Level, l.Message, l.Fields = level(data.Level), short(data.Message), data.Fields
	case tool.KindError:
		var data tool.ErrorEvent
		_ = strictjson.Unmarshal(more, &data)
		l.Level, l.Message, l.Fields = "error", short(data.Code+": "+data.Message), data.Details
	}
	if len(l.Fields) > maxText {
		l.Fields = nil
	}
}

// Levels lists the levels, the least severe first.
func Levels() []string { return []string{"debug", "info", "warn", "error"} }

// level returns one of the four levels: tools choose their own words.
func level(text string) string {
	if slices.Contains(Levels(), text) {
		return text
	}
	return "info"
}

func short(text string) string { return cut(text, maxText) }

// Handler returns a handler that writes to another one, and keeps all lines above debug level. Secrets must have been
// removed from the lines before.
func (l *Log) Handler(to slog.Handler) slog.Handler {
	t := new(text)
	fields := slog.NewJSONHandler(t, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && (a.Key == slog.LevelKey || a.Key == slog.MessageKey) {
				return slog.Attr{}
			}
			return a
		},
	})
	return &handler{l, to, fields, t}
}

type handler struct {
	of     *Log
	to     slog.Handler
	fields slog.Handler // writes the attributes of a line to text, as JSON
	text   *text
}

// A text is a buffer that the handlers of one Log share.
type text struct {
	sync.Mutex
	bytes.Buffer
}

// Enabled implements slog.Handler.
func (h *handler) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelInfo || h.to.Enabled(ctx, l)
}

// Handle implements slog.Handler.
func (h *handler) Handle(ctx context.Context, rec slog.Record) error {
	if rec.Level >= slog.LevelInfo {
		line := JournalLine{
			Time: rec.Time, From: Server, Level: level(strings.ToLower(rec.Level.String())), Message: short(rec.Message),
			Fields: h.encoded(ctx, rec),
		}
		h.of.mu.Lock()
		h.of.write(line, 0)
		h.of.mu.Unlock()
		h.of.Tell()
	}
	if !h.to.Enabled(ctx, rec.Level) {
		return nil
	}
	return h.to.Handle(ctx, rec)
}

// encoded returns the attributes as JSON.
func (h *handler) encoded(ctx context.Context, rec slog.Record) json.RawMessage {
	h.text.Lock()
	defer h.text.Unlock()
	h.text.Reset()
	rec.Time, rec.Message = time.Time{}, "" // left out
	err := h.fields.Handle(ctx, rec)
	fields := bytes.TrimSpace(h.text.Bytes())
	if err != nil || len(fields) > maxText || string(fields) == "{}" {
		return nil
	}
	return bytes.Clone(fields)
}

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{h.of, h.to.WithAttrs(attrs), h.fields.WithAttrs(attrs), h.text}
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{h.of, h.to.WithGroup(name), h.fields.WithGroup(name), h.text}
}
