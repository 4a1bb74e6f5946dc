package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"
)

// A Code is the class of an error. Each protocol maps the codes to its own words in one table.
type Code string

// The codes.
const (
	CodeAccessDenied  Code = "access_denied"
	CodeNotFound      Code = "not_found"
	CodeInvalidInput  Code = "invalid_input"
	CodeConflict      Code = "conflict"
	CodeTimeout       Code = "timeout"
	CodeCancelled     Code = "cancelled"
	CodeQuotaExceeded Code = "quota_exceeded"
	CodeLeaseRequired Code = "lease_required"
	CodeLeaseRejected Code = "lease_rejected"
	CodeBreakerOpen   Code = "breaker_open"
	CodeUnavailable   Code = "unavailable"
	CodeCrash         Code = "crash"
	CodeProtocol      Code = "protocol"
	CodeUnsupported   Code = "unsupported"
	CodeInternal      Code = "internal"
	// CodeToolError is the class of a Result's Failure: the tool ran and said no.
	CodeToolError Code = "tool_error"
)

// ReasonExit is the reason of a protocol error that is only a process with a bad exit status. Narratoria counts that as
// a failure of the protocol; others want to distinguish it from a line that cannot be read.
const ReasonExit = "exit_status"

// ReasonLink is the reason of errors of the link between the machines of a fleet, and ReasonGone that of errors of calls whose node
// is gone, or takes no calls.
const (
	ReasonLink = "fleet_link"
	ReasonGone = "worker_gone"
)

// Codes lists every code, for tables that must be complete.
func Codes() []Code {
	return []Code{
		CodeAccessDenied, CodeNotFound, CodeInvalidInput, CodeConflict, CodeTimeout, CodeCancelled,
		CodeQuotaExceeded, CodeLeaseRequired, CodeLeaseRejected, CodeBreakerOpen, CodeUnavailable,
		CodeCrash, CodeProtocol, CodeUnsupported, CodeInternal, CodeToolError,
	}
}

// An Error is an error with a class. Message is for people: lower case, it names the thing, says why
// and what to do next.
type Error struct {
	Code    Code            `json:"code"`
	Reason  string          `json:"reason,omitempty"` // a protocol's own more specific code: guarantee_blocked, expired, ValueError ...
	Message string          `json:"message"`
	Details json.RawMessage `json:"details,omitzero"`
	Err     error           `json:"-"`
}

// Errorf makes an Error. Like fmt.Errorf it wraps the operands of %w. Its message has at most MaxMessage bytes.
func Errorf(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	cause := errors.Unwrap(err)
	if _, several := err.(interface{ Unwrap() []error }); several {
		cause = err
	}
	return &Error{Code: code, Message: Brief(err.Error(), MaxMessage), Err: cause}
}

// Error implements error.
func (e *Error) Error() string {
	text := string(e.Code)
	if e.Message != "" {
		text += ": " + e.Message
	}
	return text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Because returns a copy of e with a Reason.
func (e *Error) Because(reason string) *Error {
	c := *e
	c.Reason = reason
	return &c
}

// RetryAfter returns a copy of e whose details give the wait before a retry, in milliseconds, rounded up.
func (e *Error) RetryAfter(wait time.Duration) *Error {
	c := *e
	ms := (wait + time.Millisecond - 1) / time.Millisecond
	c.Details = json.RawMessage(`{"retry_after_ms":` + strconv.FormatInt(int64(ms), 10) + `}`)
	return &c
}

// AsError maps any error to an Error: an Error is returned as it is, the two context errors become timeout and
// cancelled, and every other error is internal.
func AsError(err error) *Error {
	if err == nil { // the case for nearly every call
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return &Error{Code: CodeTimeout, Message: "the call ran out of time", Err: err}
	case errors.Is(err, context.Canceled):
		return &Error{Code: CodeCancelled, Message: "the call was cancelled", Err: err}
	}
	return &Error{Code: CodeInternal, Message: err.Error(), Err: err}
}

// Ended returns the error of a call whose context ended. If the cause has no class, ctx.Err decides between timeout and
// cancelled.
func Ended(ctx context.Context) *Error {
	e := *AsError(context.Cause(ctx))
	if e.Code == CodeInternal {
		e.Code = AsError(ctx.Err()).Code
	}
	e.Err = context.Cause(ctx)
	return &e
}

// CodeOf returns the class of any error.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	return AsError(err).Code
}

// Failed makes the Result of a tool that failed. Reason is the tool's own word for the kind of failure, such as the
// name of an exception; it may be empty.
func Failed(reason, message string) *Result {
	return &Result{Failure: &Error{Code: CodeToolError, Reason: reason, Message: message}}
}

// BeforeRun marks an error of a stage that is in front of the tool and has not let the call through: whatever the
// reason, the tool has done nothing. The reason alone would not show that, since a tool may be on another machine with
// a store of its own.
func BeforeRun(err error) error {
	if err == nil {
		return nil
	}
	return mark(err, beforeRun)
}

// NotRun reports whether an error is marked by BeforeRun.
func NotRun(err error) bool { return errors.Is(err, marked{as: beforeRun}) }

// Doubt marks an error that does not show what the tool has done: it may have run to its end, or run still.
func Doubt(err error) error {
	if err == nil || NotRun(err) {
		return err
	}
	return mark(err, inDoubt)
}

// InDoubt reports whether an error is marked by Doubt.
func InDoubt(err error) bool { return errors.Is(err, marked{as: inDoubt}) }

// The marks of errors.
const (
	beforeRun = "before run"
	inDoubt   = "in doubt"
)

// A marked is what an error with a mark wraps.
type marked struct {
	error
	as string
}

func mark(err error, as string) error {
	e := *AsError(err)
	e.Err = marked{err, as}
	return &e
}

// Unwrap returns the error.
func (m marked) Unwrap() error { return m.error }

// Is finds the mark in a redacted error too, which cannot be unwrapped.
func (m marked) Is(target error) bool {
	t, ok := target.(marked)
	return ok && t.as == m.as
}

// MaxMessage is the maximum length in bytes of one of our error messages. A message may quote a caller's input, such as
// a name of several megabytes.
const MaxMessage = 16 << 10

// Brief shortens text to at most the given number of bytes. It keeps the beginning and the end, since a message begins
// with its subject and ends with what to do.
func Brief(text string, most int) string {
	const gap = " [...] "
	if len(text) <= most {
		return text
	}
	room := max(0, most-len(gap))
	head, tail := text[:room-room/4], text[len(text)-room/4:]
	return strings.ToValidUTF8(head, "") + gap + strings.ToValidUTF8(tail, "") // a cut may split a rune
}

// WithoutPath returns the cause of an error about a path, for messages that already name the path.
func WithoutPath(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	return err
}
