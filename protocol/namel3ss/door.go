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

	"toolpost/host/process"
	"toolpost/host/walls"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// A Door answers one request of the local protocol for whatever tool is registered: it is what a
// namel3ss host starts in place of a Python tool.
type Door struct {
	In     io.Reader      // the request
	Out    io.Writer      // the reply, and nothing else
	Log    io.Writer      // events, one a line; nil: dropped. The protocol has no place for them
	Tool   string         // the tool to call whatever the request says; empty: the request's
	Caller tool.Principal // who calls
}

var _ tool.Door = (*Door)(nil)

// Serve reads one request, runs it and writes one reply. A request that is wrong, and a call that
// fails, are replies too: the error is for a reply that could not be written.
func (d *Door) Serve(ctx context.Context, h tool.Handler, _ tool.Catalog) error {
	b, err := encodeReply(d.answer(ctx, h))
	if err != nil {
		b, err = encodeReply(&reply{
			Error: errorReply(tool.Errorf(tool.CodeInternal, "the result is not JSON: %w", err)),
		})
	}
	if err == nil {
		_, err = d.Out.Write(append(b, '\n'))
	}
	if err != nil {
		return fmt.Errorf("namel3ss: the reply could not be written: %w", err)
	}
	return nil
}

func (d *Door) answer(ctx context.Context, h tool.Handler) *reply {
	doc, err := d.read(ctx)
	if err != nil {
		return &reply{Error: errorReply(tool.AsError(err))}
	}
	req, err := parseRequest(doc)
	if err != nil {
		return &reply{Error: errorReply(malformed(err))}
	}
	call := &tool.Call{
		Tool: cmp.Or(d.Tool, req.Tool), Args: req.Payload, Trace: req.TraceID, Caller: d.Caller,
		Guarantees: req.wishes.guarantees,
	}
	result, err := h.Invoke(ctx, call, &logSink{to: d.Log})
	return req.wishes.reply(result, err)
}

// malformed is what is wrong with a request; mostly its form is.
func malformed(err error) *tool.Error {
	var known *tool.Error
	if errors.As(err, &known) {
		return known
	}
	return tool.Errorf(tool.CodeInvalidInput, "%w", err)
}

// reply says an outcome in the words of the protocol, and what the walls had to do with it.
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

// replyOf says an outcome in the words of the protocol.
func replyOf(result *tool.Result, err error) *reply {
	switch {
	case err != nil:
		return &reply{Error: errorReply(tool.AsError(err))}
	case result.Ask != nil:
		return &reply{
			Error: errorReply(tool.Errorf(tool.CodeUnsupported,
				"the tool asks a question, which this protocol cannot carry: %s", result.Ask.Message)),
		}
	case !result.OK:
		return &reply{Error: errorReply(cmp.Or(result.Failure, &tool.Error{Code: tool.CodeToolError}))}
	case len(result.Output) == 0:
		return &reply{OK: true, Result: json.RawMessage("null")}
	}
	return &reply{OK: true, Result: result.Output}
}

// read reads the request, and gives up when ctx ends. A reader that cannot be interrupted then stays
// behind until its peer goes away: a terminal, or a pipe that was inherited.
func (d *Door) read(ctx context.Context) ([]byte, error) {
	type document struct {
		data []byte
		err  error
	}
	read := make(chan document, 1)
	go func() {
		data, err := process.ReadDocument(d.In, maxDocument)
		read <- document{data, err}
	}()
	select {
	case doc := <-read:
		var limit *process.LimitError
		switch {
		case errors.As(doc.err, &limit):
			return nil, tool.Errorf(tool.CodeInvalidInput, "the request is longer than %d MiB", maxDocument>>20)
		case doc.err != nil:
			return nil, tool.Errorf(tool.CodeProtocol, "the request could not be read: %w", doc.err)
		case len(doc.data) == 0:
			return nil, tool.Errorf(tool.CodeInvalidInput, "the request is empty; expected one JSON document on stdin")
		}
		return doc.data, nil
	case <-ctx.Done():
		if c, ok := d.In.(io.Closer); ok {
			_ = c.Close()
		}
		return nil, context.Cause(ctx)
	}
}

// words are how this protocol says a class of errors: a class name as Python has them, and a reason.
type words struct{ typ, reason string }

// wordsOf is the table of the protocol. A reason of the error's own goes before the table's.
func wordsOf(code tool.Code) words {
	switch code {
	case tool.CodeAccessDenied:
		return words{"PermissionError", "policy_denied"}
	case tool.CodeNotFound:
		return words{"LookupError", "unknown_tool"}
	case tool.CodeInvalidInput:
		return words{"ValueError", "invalid_input"}
	case tool.CodeConflict:
		return words{"ConflictError", "conflict"}
	case tool.CodeTimeout:
		return words{"TimeoutError", "timeout"}
	case tool.CodeCancelled:
		return words{"CancelledError", "cancelled"}
	case tool.CodeQuotaExceeded:
		return words{"QuotaError", "quota_exceeded"}
	case tool.CodeLeaseRequired:
		return words{"LeaseError", "lease_required"}
	case tool.CodeLeaseRejected:
		return words{"LeaseError", "lease_rejected"}
	case tool.CodeBreakerOpen:
		return words{"BreakerError", "breaker_open"}
	case tool.CodeUnavailable:
		return words{"ConnectionError", "unavailable"}
	case tool.CodeCrash:
		return words{"ChildProcessError", "crash"}
	case tool.CodeProtocol:
		return words{"ProtocolError", "protocol"}
	case tool.CodeUnsupported:
		return words{"NotImplementedError", "unsupported"}
	case tool.CodeToolError:
		return words{"ToolError", ""}
	}
	return words{"RuntimeError", "internal"}
}

// errorReply says an error in the words of the protocol. A tool's own failure keeps its own words.
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

// A logSink writes events as lines: the protocol has no place for them, and none is lost silently.
type logSink struct {
	mu sync.Mutex
	to io.Writer
}

func (s *logSink) Emit(e tool.Event) error {
	if s.to == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := fmt.Fprintln(s.to, inWords(e))
	return err
}

// inWords says an event on a line of its own.
func inWords(e tool.Event) string {
	var l tool.Log
	if e.Kind == tool.KindLog && strictjson.Unmarshal(e.Data, &l) == nil {
		return l.Level + ": " + l.Message
	}
	return string(e.Kind) + ": " + string(e.Data)
}
