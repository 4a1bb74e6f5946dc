// Package rest speaks Toolpost's own HTTP. It has a door that serves it, and the door's exact inverse: a client that is
// a handler, a source and a catalogue.
//
//	GET    /v1/tools              every tool, with "available" and, if that is false, the "reason"
//	GET    /v1/tools/{name}       one of them
//	POST   /v1/tools/{name}/call  the body is the arguments; the rest of the call is in headers
//	DELETE /v1/calls/{id}         cancels a running call of the same caller
//	GET    /v1/assets/{sha256}    a file that a call of the same caller produced
//	GET    /v1/jobs               the caller's jobs; /{id} one of them, /{id}/events what happens in it
//	DELETE /v1/jobs/{id}          cancels it
//	GET    /openapi.json          all of this as an OpenAPI document, and each tool that the caller may see
//	GET    /metrics               metrics in Prometheus format
//	GET    /healthz, /readyz      for monitoring; they need no token
//
// Assets and jobs are tools: their routes are calls of them, through the same handler as every other call.
//
// The answer to a call is its Result, with status 200 also if the tool itself failed. Any other status means that there
// is no outcome; the body then gives the reason, with "Accept: application/problem+json" in the form of RFC 9457. With
// "Accept: text/event-stream" the events come as they happen, and the last message of the stream is either "result" or
// "no_outcome", with the body that the plain answer would have had.
package rest

import (
	"cmp"
	"encoding/json"
	"net/http"
	"reflect"
	"strconv"
	"time"

	"toolpost/tool"
	"toolpost/web"
	"toolpost/wire/envelope"
	"toolpost/wire/strictjson"
)

const typeJSON = "application/json"

// The last message of a stream has one of these names; all others are named after the kind of their event.
const (
	eventResult    = "result"
	eventNoOutcome = "no_outcome"
)

// encodeAnswer writes the body of a call that has an outcome: the result, with the members of its type, and the call.
// It writes the common members by hand, since Marshal would take most of the door's time. behind is the offset after
// the output.
func encodeAnswer(r *tool.Result, call string) (body []byte, behind int, err error) {
	w := strictjson.NewWriter(len(r.Output) + len(r.Summary) + 384)
	w.Raw("ok", strconv.AppendBool(make([]byte, 0, 8), r.OK))
	if err := w.Whole("output", r.Output); err != nil {
		return nil, 0, err
	}
	behind = w.Len()
	w.Text("summary", r.Summary)
	if r.Failure != nil {
		if err := marshalled(w, "error", r.Failure); err != nil {
			return nil, 0, err
		}
	}
	if r.Ask != nil {
		if err := marshalled(w, "ask", r.Ask); err != nil {
			return nil, 0, err
		}
	}
	if err := addTrace(w, &r.Trace); err != nil {
		return nil, 0, err
	}
	w.Text("call", call)
	return w.Done(), behind, nil
}

// addTrace adds a trace with the members of its type, and nothing for an empty trace.
func addTrace(w *strictjson.Writer, t *tool.Trace) error {
	if t.Start.IsZero() { // the engine always sets it
		if reflect.ValueOf(t).Elem().IsZero() {
			return nil
		}
		return marshalled(w, "trace", t)
	}
	w.Open("trace")
	w.Text("id", t.ID)
	w.Text("call", t.Call)
	w.Text("tool", t.Tool)
	w.Text("source", t.Source)
	w.Text("protocol", t.Protocol)
	w.Raw("start", append(t.Start.AppendFormat(append(make([]byte, 0, 64), '"'), time.RFC3339Nano), '"'))
	if t.Cached {
		w.Raw("cached", []byte("true"))
	}
	if len(t.Details) > 0 {
		if err := marshalled(w, "details", t.Details); err != nil {
			return err
		}
	}
	ms := float64(t.Duration) / float64(time.Millisecond)
	w.Raw("duration_ms", strconv.AppendFloat(make([]byte, 0, 32), ms, 'f', -1, 64))
	w.Close()
	return nil
}

// marshalled adds a value that is rare in calls.
func marshalled(w *strictjson.Writer, name string, value any) error {
	b, err := strictjson.Marshal(value)
	w.Raw(name, b)
	return err
}

// encodeOutcome returns the body of a call and its status.
func encodeOutcome(r *tool.Result, err error, call string) (status int, body []byte) {
	if err == nil && r == nil {
		err = tool.Errorf(tool.CodeInternal, "the call ended with neither a result nor an error")
	}
	if err == nil {
		if body, _, err = encodeAnswer(r, call); err == nil {
			return http.StatusOK, body
		}
		err = tool.Errorf(tool.CodeProtocol, "the result cannot be written as JSON: %w", err)
	}
	e := tool.AsError(err)
	return web.StatusOf(e.Code), web.Problem(e, call)
}

// A toolList is the body of GET /v1/tools. Sources that could not list their tools are kept apart, so that everything
// in Tools has a name.
type toolList struct {
	Tools  []json.RawMessage `json:"tools"`
	Failed []json.RawMessage `json:"failed_sources,omitempty"`
}

// readCall reads the properties of a call from the headers. The call has an id from here on, by which it can be
// cancelled.
func readCall(h http.Header, c *tool.Call) (timeout time.Duration, err error) {
	timeout, err = envelope.Read(h, c)
	c.ID = cmp.Or(c.ID, tool.NewID())
	return timeout, err
}
