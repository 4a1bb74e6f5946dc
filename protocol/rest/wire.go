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
//	GET    /healthz, /readyz      for monitoring; the only two without a token
//
// Assets and jobs are tools: their routes are calls of them, through the same handler as every other call.
//
// The answer to a call is its Result, with status 200 also when the tool itself said no. Any other
// status means that there is no outcome; the body then says why. With "Accept: text/event-stream" the
// events come as they happen, and the last message of the stream is either "result" or "no_outcome",
// with the body that the plain answer would have had.
package rest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"toolpost/tool"
	"toolpost/web"
	"toolpost/wire/envelope"
	"toolpost/wire/strictjson"
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

// encodeOutcome returns the body of a call and its status.
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

// setRetryAfter tells a caller that was refused for now, by a quota, a full queue, an open breaker or because something
// is away, when to try again, in the header's whole seconds. The body has the milliseconds.
func setRetryAfter(h http.Header, err error) {
	var d struct {
		MS int64 `json:"retry_after_ms"`
	}
	refused := []tool.Code{tool.CodeQuotaExceeded, tool.CodeUnavailable, tool.CodeBreakerOpen}
	if !slices.Contains(refused, tool.CodeOf(err)) || strictjson.Unmarshal(tool.AsError(err).Details, &d) != nil ||
		d.MS <= 0 {
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

// readCall reads from the headers what belongs to a call beside its arguments. A call has a name from here on, by which
// it can be cancelled.
func readCall(h http.Header, c *tool.Call) (timeout time.Duration, err error) {
	timeout, err = envelope.Read(h, c)
	c.ID = cmp.Or(c.ID, tool.NewID())
	return timeout, err
}
