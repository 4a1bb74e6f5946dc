package narratoria

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"toolpost/tool"
	"toolpost/wire/bounded"
	"toolpost/wire/strictjson"
)

// maxRequest bounds the document that a door reads.
const maxRequest = 8 << 20

// A Door lets one tool be run as a Narratoria tool: one request in, events and one done out.
//
// The stream is always intact: a refusal, a crash and an invalid request are an error event and a done that is not ok. The
// output of a tool becomes the output of done, which must be an object in the contract: any other output is wrapped as
// {"value": ...}. Events that the contract does not have become log events: output with the stream in its fields, progress
// with progress and total. A tool's question becomes the ui_event "ask". A failure or progress that an event has already
// reported is not repeated.
type Door struct {
	Tool   string    // the tool that is served
	In     io.Reader // the request; nil if there is none
	Out    io.Writer // the events, one Write for each
	Caller tool.Principal
}

var _ tool.Door = Door{}

// Serve answers the one request. It returns an error if the answer could not be written.
func (d Door) Serve(ctx context.Context, h tool.Handler, _ tool.Catalog) error {
	w := &writer{out: d.Out, decoder: newDecoder(false)}
	req, err := d.request(ctx)
	w.requestID = req.id
	if err != nil {
		return w.refuse(tool.AsError(err))
	}
	r, err := h.Invoke(ctx, &tool.Call{
		Tool: d.Tool, Args: req.args, Caller: d.Caller, Answers: req.answers, Resume: req.resume,
	}, w)
	if err != nil {
		return w.refuse(tool.AsError(err))
	}
	return w.answer(r)
}

// request reads the request.
func (d Door) request(ctx context.Context) (request, error) {
	if d.In == nil {
		return decodeRequest(nil)
	}
	doc, err := bounded.ReadWithin(ctx, d.In, maxRequest)
	switch {
	case ctx.Err() != nil:
		return request{}, ctx.Err()
	case err != nil:
		return request{}, tool.Errorf(tool.CodeInvalidInput, "the request on stdin cannot be read: %w", err)
	}
	req, err := decodeRequest(doc)
	if err != nil {
		err = tool.Errorf(tool.CodeInvalidInput, "the request on stdin is not understood: %.200s", err.Error())
	}
	return req, err
}

// A writer writes the lines of one call. As a tool.Sink it may be used by several goroutines.
type writer struct {
	requestID json.RawMessage

	mu      sync.Mutex // of Emit; the end of a call comes after all events
	decoder *decoder
	out     io.Writer
	err     error // of the first failed write

	told     tool.ErrorEvent // by the last error event
	progress string          // in the last event, if that was a log event
}

// line writes one event with the members of body.
func (w *writer) line(at time.Time, typ string, body json.RawMessage) error {
	if at.IsZero() {
		at = time.Now()
	}
	head := object(member{"version", strictjson.Quote(protocolVersion)}, member{"type", strictjson.Quote(typ)},
		member{"requestId", w.requestID}, member{"timestamp", strictjson.Quote(at.UTC().Format(time.RFC3339Nano))})
	if w.err == nil {
		b := oneLine(slices.Concat(bytes.TrimSuffix(head, []byte("}")), []byte(","), bytes.TrimPrefix(body, []byte("{"))))
		if _, err := w.out.Write(b); err != nil {
			w.err = fmt.Errorf("the caller went away: %w", err)
		}
	}
	return w.err
}

// Emit implements tool.Sink.
func (w *writer) Emit(e tool.Event) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.repeats(e) {
		return nil
	}
	typ, body, err := w.wireForm(e)
	if err != nil {
		typ, body = typeLog, logBody("warn", fmt.Sprintf("an event of kind %s is left out: %v", e.Kind, err), nil)
	}
	return w.line(e.Time, typ, body)
}

// repeats records the content of an event, and reports whether the event before it had the same content.
func (w *writer) repeats(e tool.Event) bool {
	before := w.progress
	w.progress = ""
	switch e.Kind {
	case tool.KindProgress:
		return before != "" && before == string(e.Data)
	case tool.KindLog:
		if bytes.Contains(e.Data, []byte("progress")) && w.decoder.Read(e.Data) == nil {
			w.progress = string(w.decoder.progress())
		}
	case tool.KindError:
		w.told = tool.ErrorEvent{}
		_ = strictjson.Unmarshal(e.Data, &w.told) // an unreadable event is left out, and reports nothing
	default:
	}
	return false
}

// wireForm returns an event in the contract's form. An event that would break the contract's rules is an error.
func (w *writer) wireForm(e tool.Event) (typ string, body json.RawMessage, err error) {
	switch e.Kind {
	case tool.KindStatePatch:
		return typeStatePatch, object(member{"patch", e.Data}), strictjson.CheckObject(e.Data)
	case tool.KindOutput:
		return outputForm(e.Data)
	case tool.KindProgress:
		return progressForm(e.Data)
	}
	d, f := w.decoder, formOf(string(e.Kind))
	if f == nil || f.typ == typeDone {
		return "", nil, fmt.Errorf("the protocol has no event of kind %s", e.Kind)
	}
	if err := d.Read(e.Data); err != nil {
		return "", nil, err
	}
	body = d.data(f)
	if f.typ != typeAsset {
		return f.typ, body, d.conforms(f)
	}
	if d.get("kind") == nil { // the contract requires a kind
		body = append(bytes.TrimSuffix(body, []byte("}")), `,"kind":"file"}`...)
	}
	_, err = d.asset()
	return f.typ, body, err
}

func outputForm(data json.RawMessage) (string, json.RawMessage, error) {
	var o tool.Output
	err := strictjson.Unmarshal(data, &o)
	stream := strictjson.Quote(cmp.Or(o.Stream, "output"))
	return typeLog, logBody("info", o.Text, object(member{"stream", stream})), err
}

func progressForm(data json.RawMessage) (string, json.RawMessage, error) {
	var p struct {
		Progress json.RawMessage `json:"progress"`
		Total    json.RawMessage `json:"total"`
		Message  string          `json:"message"`
	}
	err := strictjson.Unmarshal(data, &p)
	return typeLog, logBody("info", p.Message, object(member{"progress", p.Progress}, member{"total", p.Total})), err
}

func logBody(level, message string, fields json.RawMessage) json.RawMessage {
	return object(member{"level", strictjson.Quote(level)}, member{"message", strictjson.Quote(message)},
		member{"fields", fields})
}

// refuse ends a call that has no outcome.
func (w *writer) refuse(e *tool.Error) error {
	details := asObject(e.Details)
	if details == nil && e.Reason != "" {
		details = object(member{"reason", strictjson.Quote(e.Reason)})
	}
	return w.fail(string(e.Code), e.Message, details, member{"summary", strictjson.Quote(e.Message)})
}

// fail writes the error and the done of a failed call.
func (w *writer) fail(code, message string, details json.RawMessage, rest ...member) error {
	err := w.line(time.Time{}, typeError, object(member{"errorCode", strictjson.Quote(code)},
		member{"errorMessage", strictjson.Quote(message)}, member{"details", details}))
	if err != nil {
		return err
	}
	return w.done("false", rest...)
}

func (w *writer) done(ok string, rest ...member) error {
	return w.line(time.Time{}, typeDone, object(append([]member{{"ok", []byte(ok)}}, rest...)...))
}

// answer ends a call that has an outcome.
func (w *writer) answer(r *tool.Result) error {
	rest := []member{{"summary", strictjson.Quote(r.Summary)}, {"output", asObject(r.Output)}}
	if r.Summary == "" {
		rest = rest[1:]
	}
	switch {
	case r.Ask != nil:
		return w.ask(r.Ask)
	case r.OK:
		return w.done("true", rest...)
	case r.Failure == nil:
		return w.fail(string(tool.CodeToolError), "the tool failed and did not say why", nil, rest...)
	}
	code, message := cmp.Or(r.Failure.Reason, string(r.Failure.Code)), r.Failure.Message
	// The last error event has already reported the failure, with the same message, or with another one if this message is
	// done's summary.
	if w.told.Code == code && (w.told.Message == message || r.Summary != "" && message == r.Summary) {
		return w.done("false", rest...)
	}
	return w.fail(code, message, asObject(r.Failure.Details), rest...)
}

// ask sends the question and ends the call successfully: a host that can answer calls again with the answers. The contract
// does not have this event; a host that does not know it shows it as it is.
func (w *writer) ask(a *tool.Ask) error {
	question, err := strictjson.Marshal(a)
	if err != nil {
		return w.refuse(tool.Errorf(tool.CodeProtocol, "the tool asks a question that is not JSON: %w", err))
	}
	body := object(member{"event", strictjson.Quote(eventAsk)}, member{"payload", question})
	if err := w.line(time.Time{}, typeUIEvent, body); err != nil {
		return err
	}
	return w.done("true", member{"summary", strictjson.Quote("it asks: " + a.Message)})
}

// asObject wraps JSON that is not an object, for members that must be objects.
func asObject(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 || strictjson.KindOf(raw) == "object" {
		return raw
	}
	return object(member{"value", raw})
}
