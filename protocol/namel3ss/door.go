package namel3ss

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"toolpost/host/walls"
	"toolpost/tool"
	"toolpost/wire/bounded"
	"toolpost/wire/strictjson"
)

// A Door answers one request of the local protocol, for any registered tool. A namel3ss host starts it in place of a Python
// tool.
type Door struct {
	In     io.Reader      // the request
	Out    io.Writer      // the reply, and nothing else
	Log    io.Writer      // events, one a line, because the protocol has no place for them; nil drops them
	Tool   string         // the tool to call regardless of the request; if empty, the request names it
	Caller tool.Principal // the caller of every request
}

var _ tool.Door = (*Door)(nil)

// Serve reads one request, runs it and writes one reply. An invalid request and a failed call get replies too; Serve returns
// an error only if the reply could not be written.
func (d *Door) Serve(ctx context.Context, h tool.Handler, _ tool.Catalog) error {
	b := encodeReply(d.answer(ctx, h), protocolVersion)
	if _, err := d.Out.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("namel3ss: the reply could not be written: %w", err)
	}
	return nil
}

func (d *Door) answer(ctx context.Context, h tool.Handler) *reply {
	doc, err := d.read(ctx)
	if err != nil {
		return refusal(tool.AsError(err))
	}
	o, err := parseRequest(doc, false)
	if err != nil {
		return refusal(malformed(err))
	}
	call := &tool.Call{
		Tool: cmp.Or(d.Tool, o.tool), Args: o.payload, Trace: o.traceID, Caller: d.Caller,
		Guarantees: o.wishes.guarantees,
	}
	result, err := h.Invoke(ctx, call, d.noted())
	return o.wishes.reply(result, err)
}

// malformed classifies what is wrong with a request; usually it is the form.
func malformed(err error) *tool.Error {
	if known, ok := errors.AsType[*tool.Error](err); ok {
		return known
	}
	return tool.Errorf(tool.CodeInvalidInput, "%w", err)
}

// reply encodes an outcome for the protocol, with the checks of the walls.
func (w wishes) reply(result *tool.Result, err error) *reply {
	r := replyOf(result, err)
	checks := w.checksOf(result, err)
	if len(checks) == 0 {
		return r
	}
	r.Checks, _ = strictjson.Marshal(checks)
	stopped := slices.ContainsFunc(checks, blocks(walls.GuaranteeBlocked))
	if own := r.Error.ReasonCode; !r.OK && stopped && (own == "" || own == wordsOf(tool.CodeCrash).reason) {
		r.Error.ReasonCode = walls.GuaranteeBlocked
	}
	return r
}

// replyOf encodes an outcome for the protocol.
func replyOf(result *tool.Result, err error) *reply {
	switch {
	case err != nil:
		return refusal(tool.AsError(err))
	case result.Ask != nil:
		return refusal(tool.Errorf(tool.CodeUnsupported,
			"the tool asks a question, which this protocol cannot carry: %s", result.Ask.Message))
	case !result.OK:
		return refusal(cmp.Or(result.Failure, &tool.Error{Code: tool.CodeToolError}))
	case len(result.Output) == 0:
		return &reply{OK: true, Result: json.RawMessage("null")}
	}
	return &reply{OK: true, Result: result.Output}
}

// read reads the request, and gives up when ctx ends.
func (d *Door) read(ctx context.Context) ([]byte, error) {
	doc, err := bounded.ReadWithin(ctx, d.In, maxDocument)
	var limit *bounded.LimitError
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.As(err, &limit):
		return nil, tool.Errorf(tool.CodeInvalidInput, "the request is longer than %d MiB", maxDocument>>20)
	case err != nil:
		return nil, tool.Errorf(tool.CodeProtocol, "the request could not be read: %w", err)
	case len(doc) == 0:
		return nil, tool.Errorf(tool.CodeInvalidInput, "the request is empty; expected one JSON document on stdin")
	}
	return doc, nil
}

// words are the protocol's terms for a class of errors: a Python class name and a reason.
type words struct{ typ, reason string }

// wordsFor is the protocol's table. A reason in the error itself takes precedence.
var wordsFor = map[tool.Code]words{
	tool.CodeAccessDenied:  {"PermissionError", "policy_denied"},
	tool.CodeNotFound:      {"LookupError", "unknown_tool"},
	tool.CodeInvalidInput:  {"ValueError", "invalid_input"},
	tool.CodeConflict:      {"ConflictError", "conflict"},
	tool.CodeTimeout:       {"TimeoutError", "timeout"},
	tool.CodeCancelled:     {"CancelledError", "cancelled"},
	tool.CodeQuotaExceeded: {"QuotaError", "quota_exceeded"},
	tool.CodeLeaseRequired: {"LeaseError", "lease_required"},
	tool.CodeLeaseRejected: {"LeaseError", "lease_rejected"},
	tool.CodeBreakerOpen:   {"BreakerError", "breaker_open"},
	tool.CodeUnavailable:   {"ConnectionError", "unavailable"},
	tool.CodeCrash:         {"ChildProcessError", "crash"},
	tool.CodeProtocol:      {"ProtocolError", "protocol"},
	tool.CodeUnsupported:   {"NotImplementedError", "unsupported"},
	tool.CodeToolError:     {"ToolError", ""},
}

func wordsOf(code tool.Code) words { return cmp.Or(wordsFor[code], words{"RuntimeError", "internal"}) }

// errorReply encodes an error for the protocol. A tool's own failure keeps its own message.
func errorReply(e *tool.Error) replyError {
	w := wordsOf(e.Code)
	if e.Code != tool.CodeToolError {
		return replyError{Type: w.typ, Message: e.Message, ReasonCode: cmp.Or(e.Reason, w.reason)}
	}
	var own struct {
		ReasonCode string `json:"reason_code"`
	}
	_ = strictjson.Unmarshal(e.Details, &own) // details of another form have no reason for us
	return replyError{Type: cmp.Or(e.Reason, w.typ), Message: e.Message, ReasonCode: own.ReasonCode}
}

// noted writes events as lines: the protocol has no place for them, and none may be lost silently.
func (d *Door) noted() tool.Sink {
	if d.Log == nil {
		return tool.Discard
	}
	var mu sync.Mutex
	return tool.SinkFunc(func(e tool.Event) error {
		mu.Lock()
		defer mu.Unlock()
		_, err := fmt.Fprintln(d.Log, inWords(e))
		return err
	})
}

// inWords formats an event as one line.
func inWords(e tool.Event) string {
	var l tool.Log
	if e.Kind == tool.KindLog && strictjson.Unmarshal(e.Data, &l) == nil {
		return l.Level + ": " + l.Message
	}
	return string(e.Kind) + ": " + string(e.Data)
}
