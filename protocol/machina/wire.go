// Package machina speaks the protocol of Machina's toolhost, on both sides: a Runner calls the tools of a toolhost (--run,
// --serve, --list), and a Door is a toolhost that offers any registered tools.
package machina

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// The constants of the contract.
const (
	maxStdin       = 10 << 20 // MAX_STDIN_BYTES: of a request
	maxReply       = 1 << 20  // _TOOLHOST_MAX_OUTPUT: of a reply
	timeoutEnv     = "MACHINA_TOOLHOST_TIMEOUT"
	timeoutSeconds = 30 // if the variable is not set
)

// The statuses of a call that was dispatched.
const (
	statusOK          = "OK"
	statusInvalidPick = "INVALID_PICK"
	statusToolError   = "TOOL_ERROR"
	statusBreakerTrip = "BREAKER_TRIP"
)

// The commands of a toolhost about leases.
const (
	aidLeaseIssue = "_lease.issue"
	aidLeaseGC    = "_lease.gc"
)

// A RunHeader identifies the run of a call. It consists of what every call and every record of one has: the trace and the
// call's own id.
type RunHeader struct {
	SpecVersion string `json:"spec_version"`
	ProfileID   string `json:"profile_id"`
	RunID       string `json:"run_id"`
	RequestID   string `json:"request_id,omitempty"`
}

// Header returns the RunHeader of a call.
func Header(c *tool.Call) RunHeader {
	h := RunHeader{SpecVersion: "1.4.2", ProfileID: "A", RunID: c.Trace, RequestID: c.ID}
	if h.RunID == "" {
		h.RunID = tool.NewID()
	}
	return h
}

// A request is a host's request to a toolhost.
type request struct {
	aid   string
	args  json.RawMessage // the input, as JSON
	state *change         // nil leaves the state unchanged
	key   string
	lease string
}

// A wireError is an invalid request: the error in the protocol's words, and the reason for the log.
type wireError struct{ said, why string }

func (e *wireError) Error() string { return e.said }

// A requestReader reads requests in sequence. It keeps nothing of them; it only reuses their memory.
type requestReader struct{ *strictjson.Members }

func newRequestReader() requestReader {
	return requestReader{strictjson.NewMembers("aid", "input_json", "inputs", "ds_state", "idempotency_key",
		"_lease_token")}
}

// read reads a request in a single pass; the engine checks the input itself.
func (r requestReader) read(line []byte) (req request, err error) {
	if err := r.Read(line); err != nil {
		return req, &wireError{"invalid JSON", err.Error()}
	}
	req.aid, _ = text(r.Get("aid"))
	if req.args, err = argsOf(r.Get("input_json"), r.Get("inputs")); err != nil {
		return req, err
	}
	var ok bool
	if req.key, ok = text(r.Get("idempotency_key")); !ok {
		return req, &wireError{"invalid idempotency_key", "expected a string"}
	}
	if req.lease, ok = text(r.Get("_lease_token")); !ok {
		return req, &wireError{"invalid _lease_token", "expected a string"}
	}
	if req.state, err = decodeChange(r.Get("ds_state")); err != nil {
		return req, &wireError{"invalid ds_state", err.Error()}
	}
	return req, nil
}

// argsOf returns the input, or else the inputs of the dispatch mode; without either the input is empty. A tool must not run
// with an empty input because its host sent one of another type.
func argsOf(input, inputs []byte) (json.RawMessage, error) {
	kind, kinds := strictjson.KindOf(input), strictjson.KindOf(inputs)
	switch {
	case kind != "string" && kind != "nothing":
		return nil, &wireError{"invalid input_json", "expected a string, got " + kind}
	case kinds != "object" && kinds != "nothing":
		return nil, &wireError{"invalid inputs", "expected an object, got " + kinds}
	case kind == "nothing" && kinds == "object":
		return bytes.Clone(inputs), nil
	case len(input) <= len(`""`):
		return json.RawMessage(`{}`), nil
	}
	return unquoted(input), nil
}

// text returns the value of a well-formed JSON string. A missing value and null are the empty string; for any other type ok
// is false.
func text(value []byte) (s string, ok bool) {
	switch strictjson.KindOf(value) {
	case "string":
		return strictjson.Text(value), true
	case "nothing", "null":
		return "", true
	}
	return "", false
}

// unquoted returns the value of a well-formed JSON string. The protocol carries JSON inside JSON strings, in every request
// and every reply.
func unquoted(value []byte) []byte {
	text, _ := strictjson.Unquote(value) // the strict reader accepts only strings that can be unquoted
	return text
}

// encodeRequest writes the line of a call. An empty aid is left out: in run mode it is an argument.
func encodeRequest(aid string, c *call, state *change) ([]byte, error) {
	args := c.Args
	if len(args) == 0 {
		args = json.RawMessage(`{}`)
	}
	b, err := strictjson.Marshal(struct {
		AID       string  `json:"aid,omitempty"`
		InputJSON string  `json:"input_json"`
		DSState   *change `json:"ds_state,omitzero"`
		Key       string  `json:"idempotency_key,omitempty"`
		Lease     string  `json:"_lease_token,omitempty"`
	}{AID: aid, InputJSON: string(args), DSState: state, Key: c.hostKey(), Lease: c.Lease})
	if err == nil && len(b) > maxStdin {
		err = fmt.Errorf("the request is %d bytes long, and a toolhost takes %d", len(b), maxStdin)
	}
	return append(b, '\n'), err
}

// A reply is the answer to a dispatched call.
type reply struct {
	ok     bool
	status string // one of the four: nothing in it has to be escaped
	output []byte
	err    string
	hit    bool
	state  string // JSON on one line
	died   bool   // the tool ended without an outcome
}

// append writes the reply. Nearly every request is answered by one, so it avoids reflection.
func (r *reply) append(b []byte) []byte {
	b = strconv.AppendBool(append(b, `{"ok":`...), r.ok)
	b = append(append(append(b, `,"status":"`...), r.status...), `","output_json":`...)
	b = append(strictjson.AppendString(b, r.output), `,"error":`...)
	b = strictjson.AppendString(b, r.err)
	if r.hit {
		b = append(b, `,"idempotent_hit":true`...)
	}
	b = append(append(b, `,"ds_state":`...), r.state...)
	return append(b, '}')
}

// A refusal is the answer to a request that was not dispatched.
type refusal struct {
	OK     bool   `json:"ok"` // false
	Error  string `json:"error"`
	Tier   *int   `json:"tier,omitempty"`
	AID    string `json:"aid,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// listing is the answer of --list.
type listing struct {
	OK    bool     `json:"ok"`
	Error string   `json:"error,omitempty"`
	Tools []listed `json:"tools"`
}

// listed is one tool of a listing.
type listed struct {
	AID           string   `json:"aid"`
	Name          string   `json:"name"`
	Deterministic bool     `json:"deterministic"`
	Tags          []string `json:"tags"`
	SideEffects   []string `json:"side_effects"`
	ReplayInputs  []string `json:"replay_inputs"`
}
