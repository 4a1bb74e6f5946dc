package singularity

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/nats-io/nats.go"

	"toolpost/tool"
)

// The headers of a request. All are optional.
const (
	headerStyle   = "Toolpost-Style"   // native: the body and the reply are those between Toolpost nodes
	headerCall    = "Toolpost-Call"    // an id of the caller's choice, to cancel the call by
	headerStream  = "Toolpost-Stream"  // a subject for the events of the call
	headerAck     = "Toolpost-Ack"     // "true": the caller answers those events that have a reply subject
	headerSession = "Toolpost-Session" // Call.Session
	headerKey     = "Idempotency-Key"  // Call.Key
	headerLease   = "Toolpost-Lease"   // Call.Lease
	headerRun     = "Toolpost-Run"     // Call.Run
	headerResume  = "Toolpost-Resume"  // Call.Resume
	headerTimeout = "Toolpost-Timeout" // a duration such as 2s or 500ms; it can only shorten
	headerTrace   = "traceparent"      // W3C trace context; its trace id becomes Call.Trace
)

const nativeStyle = "native"

// maxField bounds a text in a header, and a subject that comes from a caller: a NATS server cuts off a
// connection whose lines are longer than 4 KiB.
const maxField = 1 << 10

// wishes is what the headers of a request say beside the call itself.
type wishes struct {
	id      string // the caller's name for the call; empty: none
	stream  string
	ack     bool
	timeout time.Duration
}

// A field is a text of a call that travels in a header.
type field struct {
	header string
	text   *string
}

func fieldsOf(c *tool.Call) [5]field {
	return [...]field{{headerSession, &c.Session}, {headerKey, &c.Key}, {headerLease, &c.Lease}, {headerResume, &c.Resume}, {headerRun, &c.Run}}
}

// readHeaders reads what belongs to a call beside its body.
func readHeaders(h nats.Header, c *tool.Call) (w wishes, err error) {
	if len(h) == 0 {
		return w, nil
	}
	for _, f := range fieldsOf(c) {
		if *f.text, err = single(h, f.header); err != nil {
			return w, err
		}
	}
	parent, err := single(h, headerTrace)
	if err != nil {
		return w, err
	}
	c.Trace, c.Span = tool.TraceOf(parent), tool.SpanOf(parent)
	if w.timeout, err = readTimeout(h); err != nil {
		return w, err
	}
	if w.id, err = readID(h); err != nil {
		return w, err
	}
	ack, err := single(h, headerAck)
	if err != nil {
		return w, err
	}
	w.ack = ack == "true"
	w.stream, err = readStream(h)
	return w, err
}

// writeHeaders is the inverse of readHeaders.
func writeHeaders(h nats.Header, c *tool.Call, w wishes) error {
	for _, f := range fieldsOf(c) {
		if err := set(h, f.header, *f.text); err != nil {
			return err
		}
	}
	if w.ack {
		h[headerAck] = []string{"true"}
	}
	if w.timeout > 0 {
		h[headerTimeout] = []string{w.timeout.String()}
	}
	h[headerCall], h[headerStream] = []string{w.id}, []string{w.stream}
	return set(h, headerTrace, tool.Traceparent(c.Trace, c.Span))
}

func set(h nats.Header, name, value string) error {
	if !plain(value) {
		return badHeader(name, "is longer than %d bytes or not plain text", maxField)
	}
	if value != "" {
		h[name] = []string{value}
	}
	return nil
}

// single gives the one value of a header, in whatever case its name was sent. One that is there twice is
// refused: two readers might each take another one.
func single(h nats.Header, name string) (string, error) {
	var values []string
	for key, list := range h {
		if len(key) == len(name) && strings.EqualFold(key, name) {
			values = append(values, list...)
		}
	}
	switch {
	case len(values) == 0:
		return "", nil
	case len(values) > 1:
		return "", badHeader(name, "is there %d times", len(values))
	case !plain(values[0]):
		return "", badHeader(name, "is longer than %d bytes or not plain text", maxField)
	}
	return values[0], nil
}

func badHeader(name, format string, args ...any) *tool.Error {
	return tool.Errorf(tool.CodeInvalidInput, "the header %s %s", name, fmt.Sprintf(format, args...))
}

// plain reports whether a text arrives as it was sent: spaces around a header's value may be lost.
func plain(s string) bool {
	return len(s) <= maxField && utf8.ValidString(s) && strings.TrimSpace(s) == s && strings.IndexFunc(s, unicode.IsControl) < 0
}

func readTimeout(h nats.Header) (time.Duration, error) {
	text, err := single(h, headerTimeout)
	if err != nil || text == "" {
		return 0, err
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, badHeader(headerTimeout, "is not a duration above zero, such as 2s or 500ms")
	}
	return d, nil
}

func readID(h nats.Header) (string, error) {
	id, err := single(h, headerCall)
	if err == nil && !validID(id) {
		err = badHeader(headerCall, "is not an id: 1 to 64 of the characters A-Z a-z 0-9 _ -")
	}
	return id, err
}

func validID(id string) bool {
	for i := range len(id) {
		if !plainByte(id[i]) {
			return false
		}
	}
	return len(id) <= 64
}

// readStream takes a subject that we may publish to on behalf of a caller. Our own subjects are none: an event
// there would be a request that the caller could perhaps not have made.
func readStream(h nats.Header) (string, error) {
	subject, err := single(h, headerStream)
	if err == nil && subject != "" && !mayAnswer(subject) {
		err = badHeader(headerStream, "is not a subject that events can go to: no wildcards, no spaces, not below tools, toolpost or $")
	}
	return subject, err
}

// mayAnswer reports whether a subject that a caller chose can be published to.
func mayAnswer(subject string) bool {
	if len(subject) > maxField || strings.ContainsAny(subject, " \t\r\n*>") || strings.Contains(subject, "..") {
		return false
	}
	for _, ours := range []string{".", "$", prefixTools, prefixToolpost} {
		if strings.HasPrefix(subject, ours) {
			return false
		}
	}
	return !strings.HasSuffix(subject, ".")
}
