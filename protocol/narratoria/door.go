package narratoria

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"toolpost/host/process"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// maxRequest bounds the document that a door reads.
const maxRequest = 8 << 20

// A Door lets one tool be run as a Narratoria tool: one request in, events and one done out.
//
// Whatever happens, the stream is intact: a refusal, a crash and a request that makes no sense are an
// error event and a done that is not ok. The output of a tool becomes the output of done, which the
// contract wants to be an object: anything else is put into one, as {"value": ...}. What the contract
// has no event for becomes a log event: output with the stream in its fields, progress with progress
// and total. A question of the tool's becomes the ui_event "ask". What an event has told already, a
// failure or progress, is not told again.
type Door struct {
	Tool   string    // the tool that is served
	In     io.Reader // the request; nil: none
	Out    io.Writer // the events, a Write for each
	Caller tool.Principal
}

var _ tool.Door = Door{}

// Serve answers the one request. Its error means that nobody could be told.
func (d Door) Serve(ctx context.Context, h tool.Handler, _ tool.Catalog) error {
	w := &writer{out: d.Out}
	req, err := d.request(ctx)
	w.requestID = req.id
	if err != nil {
		return w.refuse(tool.AsError(err))
	}
	r, err := h.Invoke(ctx, &tool.Call{Tool: d.Tool, Args: req.args, Caller: d.Caller}, w)
	if err != nil {
		return w.refuse(tool.AsError(err))
	}
	return w.answer(r)
}

// request reads the request. A reader cannot be interrupted: where ctx ends first, the one that waits
// for the rest of the request is left to the end of the program, which is near.
func (d Door) request(ctx context.Context) (request, error) {
	if d.In == nil {
		return decodeRequest(nil)
	}
	type document struct {
		bytes []byte
		err   error
	}
	read := make(chan document, 1)
	go func() {
		b, err := process.ReadDocument(d.In, maxRequest)
		read <- document{b, err}
	}()
	select {
	case <-ctx.Done():
		return request{}, tool.AsError(ctx.Err())
	case doc := <-read:
		if doc.err != nil {
			return request{}, tool.Errorf(tool.CodeInvalidInput, "the request on stdin cannot be read: %w", doc.err)
		}
		req, err := decodeRequest(doc.bytes)
		if err != nil {
			err = tool.Errorf(tool.CodeInvalidInput, "the request on stdin is not understood: %s",
				clip(err.Error(), 200))
		}
		return req, err
	}
}

// A writer writes the lines of one call. As a tool.Sink it may be used by several goroutines.
type writer struct {
	requestID json.RawMessage

	mu  sync.Mutex
	out io.Writer
	err error // of the first line that could not be written

	told     tool.ErrorEvent // by the last error event
	progress string          // that the last event told, a log event
}

// line writes one event.
func (w *writer) line(at time.Time, typ string, body ...member) error {
	if at.IsZero() {
		at = time.Now()
	}
	head := []member{
		{"version", jsonString(protocolVersion)}, {"type", jsonString(typ)},
		{"requestId", w.requestID}, {"timestamp", jsonString(at.UTC().Format(time.RFC3339Nano))},
	}
	b := oneLine(object(append(head, body...)...))
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		if _, err := w.out.Write(b); err != nil {
			w.err = fmt.Errorf("the caller went away: %w", err)
		}
	}
	return w.err
}

// Emit implements tool.Sink.
func (w *writer) Emit(e tool.Event) error {
	if w.repeats(e) {
		return nil
	}
	typ, body, err := wireForm(e)
	if err != nil {
		warning := fmt.Sprintf("an event of kind %s is left out: %v", e.Kind, err)
		return w.line(e.Time, typeLog, logBody("warn", warning, nil)...)
	}
	return w.line(e.Time, typ, body...)
}

// repeats takes note of what an event tells, and reports whether the one before it has told that.
func (w *writer) repeats(e tool.Event) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.progress
	w.progress = ""
	switch e.Kind {
	case tool.KindProgress:
		return before != "" && before == string(e.Data)
	case tool.KindLog:
		d := newDecoder(false)
		if bytes.Contains(e.Data, []byte("progress")) && d.scan.Object(e.Data, d.each) == nil {
			w.progress = string(d.progressData())
		}
	case tool.KindError:
		w.told = tool.ErrorEvent{}
		_ = strictjson.Unmarshal(e.Data, &w.told) // one that cannot be read is left out, and tells nothing
	default:
	}
	return false
}

// hasTold reports whether the last error event has told of a failure: in the same words, or in other ones where the
// failure's are those of the summary, which done has.
func (w *writer) hasTold(code, message, summary string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.told.Code == code && (w.told.Message == message || summary != "" && message == summary)
}

// wireForm returns an event in the contract's words. What it gives keeps the contract's rules: an event
// that would break them is an error.
func wireForm(e tool.Event) (typ string, body []member, err error) {
	switch e.Kind {
	case tool.KindStatePatch:
		return typeStatePatch, []member{{"patch", e.Data}}, strictjson.CheckObject(e.Data)
	case tool.KindOutput:
		return outputForm(e.Data)
	case tool.KindProgress:
		return progressForm(e.Data)
	}
	d := newDecoder(false)
	if err := d.scan.Object(e.Data, d.each); err != nil {
		return "", nil, err
	}
	switch e.Kind {
	case tool.KindLog:
		return typeLog, []member{{"level", d.level}, {"message", d.message}, {"fields", d.fields}}, d.check(typeLog)
	case tool.KindUIEvent:
		return typeUIEvent, []member{{"event", d.event}, {"payload", d.payload}}, d.check(typeUIEvent)
	case tool.KindError:
		return typeError, []member{{"errorCode", d.errorCode}, {"errorMessage", d.errorMessage},
			{"details", d.details}}, d.check(typeError)
	case tool.KindAsset:
		return assetForm(&d.members)
	}
	return "", nil, fmt.Errorf("the protocol has no event of kind %s", e.Kind)
}

func assetForm(m *members) (string, []member, error) {
	if m.kind == nil {
		m.kind = jsonString("file") // the contract has no asset without a kind
	}
	_, err := m.asset()
	return typeAsset, []member{
		{"assetId", m.assetID}, {"kind", m.kind}, {"mediaType", m.mediaType}, {"path", m.path},
		{"metadata", m.metadata},
	}, err
}

func outputForm(data json.RawMessage) (string, []member, error) {
	var o tool.Output
	err := strictjson.Unmarshal(data, &o)
	if o.Stream == "" {
		o.Stream = "output"
	}
	return typeLog, logBody("info", o.Text, object(member{"stream", jsonString(o.Stream)})), err
}

func progressForm(data json.RawMessage) (string, []member, error) {
	var p struct {
		Progress json.RawMessage `json:"progress"`
		Total    json.RawMessage `json:"total"`
		Message  string          `json:"message"`
	}
	err := strictjson.Unmarshal(data, &p)
	return typeLog, logBody("info", p.Message, object(member{"progress", p.Progress}, member{"total", p.Total})), err
}

func logBody(level, message string, fields json.RawMessage) []member {
	return []member{{"level", jsonString(level)}, {"message", jsonString(message)}, {"fields", fields}}
}

// refuse ends a call that has no outcome.
func (w *writer) refuse(e *tool.Error) error {
	details := asObject(e.Details)
	if details == nil && e.Reason != "" {
		details = object(member{"reason", jsonString(e.Reason)})
	}
	return w.fail(string(e.Code), e.Message, details, member{"summary", jsonString(e.Message)})
}

// fail writes the error and the done of a call that did not work.
func (w *writer) fail(code, message string, details json.RawMessage, rest ...member) error {
	err := w.line(time.Time{}, typeError,
		member{"errorCode", jsonString(code)}, member{"errorMessage", jsonString(message)}, member{"details", details})
	if err != nil {
		return err
	}
	return w.failed(rest...)
}

// failed writes the done of a call that did not work.
func (w *writer) failed(rest ...member) error {
	return w.line(time.Time{}, typeDone, append([]member{{"ok", []byte("false")}}, rest...)...)
}

// answer ends a call that has an outcome.
func (w *writer) answer(r *tool.Result) error {
	rest := []member{{"summary", jsonString(r.Summary)}, {"output", asObject(r.Output)}}
	if r.Summary == "" {
		rest = rest[1:]
	}
	switch {
	case r.Ask != nil:
		return w.ask(r.Ask)
	case r.OK:
		return w.line(time.Time{}, typeDone, append([]member{{"ok", []byte("true")}}, rest...)...)
	case r.Failure == nil:
		return w.fail(string(tool.CodeToolError), "the tool failed and did not say why", nil, rest...)
	}
	code := r.Failure.Reason
	if code == "" {
		code = string(r.Failure.Code)
	}
	if w.hasTold(code, r.Failure.Message, r.Summary) {
		return w.failed(rest...)
	}
	return w.fail(code, r.Failure.Message, asObject(r.Failure.Details), rest...)
}

// ask shows the question and ends the call: the contract has no way to bring the answer back.
func (w *writer) ask(a *tool.Ask) error {
	question := object(member{"id", jsonString(a.ID)}, member{"message", jsonString(a.Message)}, member{
		"schema", a.Schema,
	})
	if err := w.line(time.Time{}, typeUIEvent, member{"event", jsonString("ask")},
		member{"payload", question}); err != nil {
		return err
	}
	return w.fail(string(tool.CodeUnsupported), "the tool asks: "+a.Message, nil)
}

// asObject returns JSON as the contract wants it in places where only objects go.
func asObject(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 || strictjson.KindOf(raw) == "object" {
		return raw
	}
	return object(member{"value", raw})
}

// jsonString writes a string; bytes that are not UTF-8 are replaced, since the stream must be.
func jsonString(s string) json.RawMessage {
	b, _ := strictjson.Marshal(strings.ToValidUTF8(s, "\uFFFD"))
	return b
}
