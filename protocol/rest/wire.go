// Package rest speaks Toolpost's own HTTP: a door that serves it, and the door's exact inverse, a
// client that is a handler, a source and a catalogue.
//
//	GET    /v1/tools              every tool, with "available" and, where it is not, the "reason"
//	GET    /v1/tools/{name}       one of them
//	POST   /v1/tools/{name}/call  the body is the arguments; what else belongs to a call is in headers
//	DELETE /v1/calls/{id}         cancels a running call of the same caller
//	GET    /v1/assets/{sha256}    a file that a call of the same caller brought
//	GET    /v1/jobs               the caller's jobs; /{id} one of them, /{id}/events what happens in it
//	DELETE /v1/jobs/{id}          cancels it
//	GET    /metrics               what is counted, as Prometheus reads it
//	GET    /healthz, /readyz      for whoever watches the process; the only two without a token
//
// Assets and jobs are tools: their routes are calls of them, through the same handler as every other call.
//
// The answer to a call is its Result, with status 200 also when the tool itself said no. Any other
// status means that there is no outcome; the body then says why. With "Accept: text/event-stream" the
// events come as they happen, and the last message of the stream is either "result" or "no_outcome",
// with the body that the plain answer would have had.
package rest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"toolpost/tool"
	"toolpost/web"
	"toolpost/wire/strictjson"
)

// The headers of a call.
const (
	headerCall    = web.HeaderCall     // the id, to cancel it by; the caller may choose it
	headerSession = "Toolpost-Session" // Call.Session
	headerKey     = "Idempotency-Key"  // Call.Key
	headerLease   = "Toolpost-Lease"   // Call.Lease
	headerRun     = "Toolpost-Run"     // Call.Run
	headerResume  = "Toolpost-Resume"  // Call.Resume
	headerAnswers = "Toolpost-Answers" // Call.Answers, JSON on one line
	headerDryRun  = "Toolpost-Dry-Run" // Call.DryRun: true, or false as if it were not there
	headerTimeout = "Toolpost-Timeout" // a duration such as 2s or 500ms; it can only shorten
	headerTrace   = "Traceparent"      // W3C trace context; its trace id becomes Call.Trace
)

const (
	typeJSON   = "application/json"
	typeStream = "text/event-stream"
)

// The last message of a stream is one of these; all others are named after the kind of their event.
const (
	eventResult    = "result"
	eventNoOutcome = "no_outcome"
)

// An answer is the body of a call that has an outcome.
type answer struct {
	*tool.Result
	Call string `json:"call"`
}

// encodeOutcome gives the body of a call and its status.
func encodeOutcome(r *tool.Result, err error, call string) (status int, body []byte) {
	if err == nil && r == nil {
		err = tool.Errorf(tool.CodeInternal, "the call ended with neither a result nor an error")
	}
	if err == nil {
		if body, err = strictjson.Marshal(answer{r, call}); err == nil {
			return http.StatusOK, body
		}
		err = tool.Errorf(tool.CodeProtocol, "the result cannot be written as JSON: %w", err)
	}
	e := tool.AsError(err)
	return web.StatusOf(e.Code), web.Problem(e, call)
}

// setRetryAfter tells whoever was refused for now, by a quota, by a full queue or because something is away, when to try
// again, in the header's whole seconds. The body has the milliseconds.
func setRetryAfter(h http.Header, err error) {
	var d struct {
		MS int64 `json:"retry_after_ms"`
	}
	if code := tool.CodeOf(err); code != tool.CodeQuotaExceeded && code != tool.CodeUnavailable || strictjson.Unmarshal(tool.AsError(err).Details, &d) != nil || d.MS <= 0 {
		return
	}
	h.Set("Retry-After", strconv.FormatInt((d.MS-1)/1000+1, 10))
}

// A listing is the body of GET /v1/tools. Sources that could not even say which tools they have are
// kept apart, so that everything in Tools has a name.
type listing struct {
	Tools  []json.RawMessage `json:"tools"`
	Failed []json.RawMessage `json:"failed_sources,omitempty"`
}

// availability is what an entry of the listing says beside the Spec.
type availability struct {
	Available bool   `json:"available"`
	Reason    string `json:"reason,omitempty"`
}

// encodeEntry never fails: a spec that cannot be written must not hide the others.
func encodeEntry(s *tool.Spec, why error) json.RawMessage {
	b, err := strictjson.Marshal(s)
	if err != nil {
		why = fmt.Errorf("its description cannot be written as JSON: %w", err)
		b, _ = strictjson.Marshal(&tool.Spec{Name: s.Name, Source: s.Source, Protocol: s.Protocol})
	}
	state := availability{Available: why == nil}
	if why != nil {
		state.Reason = strings.ToValidUTF8(tool.AsError(why).Message, "\uFFFD")
	}
	more, _ := strictjson.Marshal(state)
	return slices.Concat(b[:len(b)-1], []byte(","), more[1:]) // a spec always has members
}

func decodeEntry(b []byte) (s *tool.Spec, why error, err error) {
	s = new(tool.Spec)
	var state availability
	if err := strictjson.Unmarshal(b, s); err != nil {
		return nil, nil, err
	}
	if err := strictjson.Unmarshal(b, &state); err != nil {
		return nil, nil, err
	}
	if !state.Available {
		why = &tool.Error{Code: tool.CodeUnavailable, Message: state.Reason}
	}
	return s, why, nil
}

// A field is a text of a call that travels in a header.
type field struct {
	header string
	text   *string
}

func fieldsOf(c *tool.Call) []field {
	return []field{{headerSession, &c.Session}, {headerKey, &c.Key}, {headerLease, &c.Lease}, {headerResume, &c.Resume}, {headerRun, &c.Run}}
}

// ourHeaders lists the headers of a call that are our own.
func ourHeaders() []string {
	return []string{headerCall, headerSession, headerLease, headerRun, headerResume, headerAnswers, headerTimeout, headerDryRun}
}

// checkHeaders refuses a header that is nearly one of ours: a call that was to be a dry run must not run.
func checkHeaders(h http.Header) error {
	for name := range h {
		if strings.HasPrefix(name, "Toolpost-") && !slices.Contains(ourHeaders(), name) {
			return badHeader(name, "is not known; known are %s", strings.Join(ourHeaders(), ", "))
		}
	}
	return nil
}

// readCall reads from the headers what belongs to a call beside its arguments.
func readCall(h http.Header, c *tool.Call) error {
	if err := checkHeaders(h); err != nil {
		return err
	}
	for _, f := range fieldsOf(c) {
		value, err := single(h, f.header)
		if err != nil {
			return err
		}
		if *f.text = value; !plain(value, maxField) {
			return badHeader(f.header, "is longer than %d bytes or not plain text", maxField)
		}
	}
	answers, err := single(h, headerAnswers)
	if err != nil {
		return err
	}
	if answers != "" {
		if err := strictjson.Check([]byte(answers)); err != nil {
			return badHeader(headerAnswers, "is not JSON: %v", err)
		}
		c.Answers = json.RawMessage(answers)
	}
	c.Trace, c.Span = tool.TraceOf(h.Get(headerTrace)), tool.SpanOf(h.Get(headerTrace))
	dry, err := single(h, headerDryRun)
	if err != nil {
		return err
	}
	if c.DryRun = dry == "true"; !c.DryRun && dry != "" && dry != "false" {
		return badHeader(headerDryRun, "is neither true nor false")
	}
	return readID(h, c)
}

func readID(h http.Header, c *tool.Call) error {
	id, err := single(h, headerCall)
	switch {
	case err != nil:
		return err
	case id == "":
		id = tool.NewID()
	case !validID(id):
		return badHeader(headerCall, "is not an id: 1 to 64 of the characters A-Z a-z 0-9 _ -")
	}
	c.ID = id
	return nil
}

// readTimeout gives 0 where the caller leaves it to us.
func readTimeout(h http.Header) (time.Duration, error) {
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

// writeCall is the inverse of readCall and readTimeout.
func writeCall(h http.Header, c *tool.Call, timeout time.Duration) error {
	h.Set(headerCall, c.ID)
	for _, f := range fieldsOf(c) {
		if !plain(*f.text, maxField) {
			return badHeader(f.header, "is longer than %d bytes or not plain text", maxField)
		}
		set(h, f.header, *f.text)
	}
	if len(c.Answers) > 0 {
		answers, err := strictjson.Marshal(c.Answers) // on one line
		if err != nil || len(answers) > maxAnswers {
			return badHeader(headerAnswers, "is not JSON or longer than %d bytes", maxAnswers)
		}
		h.Set(headerAnswers, string(answers))
	}
	if timeout > 0 {
		h.Set(headerTimeout, timeout.String())
	}
	if c.DryRun {
		h.Set(headerDryRun, "true")
	}
	set(h, headerTrace, tool.Traceparent(c.Trace, c.Span))
	return nil
}

const (
	maxField   = 1 << 10
	maxAnswers = 32 << 10 // the door takes 64 KiB of headers
)

func set(h http.Header, name, value string) {
	if value != "" {
		h.Set(name, value)
	}
}

// single refuses a header that is there twice: two readers might each take another one.
func single(h http.Header, name string) (string, error) {
	values := h.Values(name)
	switch len(values) {
	case 0:
		return "", nil
	case 1:
		return values[0], nil
	}
	return "", badHeader(name, "is there %d times", len(values))
}

func badHeader(name, format string, args ...any) *tool.Error {
	return tool.Errorf(tool.CodeInvalidInput, "the header %s %s", name, fmt.Sprintf(format, args...))
}

// plain reports whether a text arrives as it was sent: HTTP takes spaces off both ends.
func plain(s string, most int) bool {
	return len(s) <= most && utf8.ValidString(s) && strings.TrimSpace(s) == s && strings.IndexFunc(s, unicode.IsControl) < 0
}

func validID(id string) bool {
	return 0 < len(id) && len(id) <= 64 && !strings.ContainsFunc(id, func(r rune) bool {
		return r != '_' && r != '-' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	})
}
