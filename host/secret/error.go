package secret

import (
	"errors"
	"fmt"
	"slices"

	"toolpost/tool"
)

// Error redacts an error: what it says, and what those say that it wraps. One without secrets comes back as it is.
// errors.Is finds the same as before; errors.As finds the redacted *tool.Error, and nothing of what had a secret.
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
	clean.Op, clean.Reason, clean.Message = r.String(e.Op), r.String(e.Reason), r.String(e.Message)
	clean.Code, clean.Details = tool.Code(r.String(string(e.Code))), r.JSON(e.Details)
	clean.Err = r.Error(e.Err)
	return &clean
}

// inError reports whether an error, or one that it wraps, says a secret.
func (r *Redactor) inError(err error) bool {
	if err == nil {
		return false
	}
	if e, ok := err.(*tool.Error); ok &&
		(r.in(e.Op) || r.in(e.Reason) || r.in(e.Message) || r.in(asString(e.Details))) {
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

// A quiet error says what another one says, without its secrets.
type quiet struct {
	text string
	was  error
}

// Error implements error.
func (q quiet) Error() string { return q.text }

// Is is for errors.Is alone: an error with a secret in it cannot be unwrapped.
func (q quiet) Is(target error) bool { return errors.Is(q.was, target) }

// Format keeps what it was out of whatever is printed.
func (q quiet) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(q.text)) }
