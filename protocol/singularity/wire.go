// Package singularity runs and serves tools over NATS, following the NATS Tool Execution Protocol.
//
// Subjects. The seven of the contract (tools.file.read and so on) are answered by the tools in the table
// below; any other subject below tools.file, tools.shell and tools.code names a tool by its dotted name. Every tool
// is reachable at tools.execute.<token>, see EncodeName, with its bare arguments, and at tools.execute with
// {tool_name, arguments, correlation_id}.
//
// Styles. A request is answered in its own style: plain arguments with {data, error}; a tool call, or a raw OpenAI call,
// with {tool_call_id, role, name, content}; the object for tools.execute with {tool_name, result, success, correlation_id}.
// Toolpost nodes ask each other for the whole outcome, by the header Toolpost-Style: native.
//
// A NATS message does not identify its sender: the server authenticates connections, not messages. So the embedded server
// gives every caller an account of its own, and all messages from an external server belong to one caller, which the config
// names. Nodes that share a NATS server and a queue group substitute for each other, and so must offer the same tools.
package singularity

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"toolpost/tool"
	"toolpost/wire/envelope"
	"toolpost/wire/strictjson"
)

// The subjects of the door.
const (
	subjectExecute = "tools.execute"
	prefixExecute  = subjectExecute + "."
	prefixTools    = "tools."
	prefixToolpost = "toolpost."
	subjectCatalog = prefixToolpost + "catalog" // the tools, in pages; see catalog.go
	subjectCancel  = prefixToolpost + "cancel"  // the body is the Toolpost-Call of a running call
	// A node announces here that its tools may have changed. Callers may not subscribe below toolpost, where requests go.
	subjectChanged = "toolpost-catalog-changed"
)

// The contract's types of errors.
const (
	typeAccessDenied = "AccessDenied"
	typeNotFound     = "NotFound"
	typeInvalidInput = "InvalidInput"
	typeTimeout      = "Timeout"
	typeSystemError  = "SystemError"
)

// A contractSubject is a row of the contract's table of subjects.
type contractSubject struct {
	subject, tool string
	limit         time.Duration
}

func contractSubjects() [7]contractSubject {
	return [...]contractSubject{
		{"tools.file.read", "readFile", 30 * time.Second},
		{"tools.file.write", "writeFile", 30 * time.Second},
		{"tools.file.delete", "deleteFile", 30 * time.Second},
		{"tools.file.list", "listFiles", 30 * time.Second},
		{"tools.shell.exec", "execShell", 60 * time.Second},
		{"tools.code.search", "searchCode", 30 * time.Second},
		{"tools.code.grep", "grepCode", 30 * time.Second},
	}
}

// typeOf maps a code to this protocol's type of error.
func typeOf(code tool.Code) string {
	switch code {
	case tool.CodeAccessDenied, tool.CodeLeaseRequired, tool.CodeLeaseRejected:
		return typeAccessDenied
	case tool.CodeNotFound:
		return typeNotFound
	case tool.CodeInvalidInput, tool.CodeConflict:
		return typeInvalidInput
	case tool.CodeTimeout:
		return typeTimeout
	}
	return typeSystemError
}

// codes is the inverse, for servers that report no more than the type. A SystemError is the tool's own failure: it ran, and
// something went wrong.
func codes() map[string]tool.Code {
	return map[string]tool.Code{
		typeAccessDenied: tool.CodeAccessDenied, typeNotFound: tool.CodeNotFound,
		typeInvalidInput: tool.CodeInvalidInput, typeTimeout: tool.CodeTimeout, typeSystemError: tool.CodeToolError,
	}
}

// saidByLimit distinguishes a caller that calls too often from one without the right: the contract has no type for it.
const saidByLimit = "rate limit"

// reasonCommand marks the refusal that keeps the contract's own sentence: "Command 'rm' is not allowed by security policy",
// without a type before it. The end of that sentence is how we recognise it in a server's reply.
const (
	reasonCommand = "command_denied"
	saidByPolicy  = "not allowed by security policy"
)

// errorText writes an error as "Type: detail".
func errorText(e *tool.Error) string {
	message := strings.ToValidUTF8(e.Message, "\uFFFD")
	if e.Code == tool.CodeAccessDenied && e.Reason == reasonCommand {
		return message
	}
	if wait := e.Retry(); e.Code == tool.CodeQuotaExceeded && wait > 0 && !strings.HasPrefix(message, saidByLimit) {
		if message = saidByLimit + ": " + message; !strings.Contains(message, "try again") {
			message += "; try again in " + wait.String()
		}
	}
	if e.Code == tool.CodeToolError {
		if codes()[e.Reason] != "" {
			return e.Reason + ": " + message
		}
		if _, _, typed := cutType(message); typed {
			return message
		}
	}
	return typeOf(e.Code) + ": " + message
}

// cutType splits "Type: detail".
func cutType(text string) (errorType, detail string, ok bool) {
	errorType, detail, ok = strings.Cut(text, ": ")
	if !ok || codes()[errorType] == "" {
		return "", text, false
	}
	return errorType, detail, true
}

// A route is the information in a request's subject.
type route struct {
	tool     string        // empty at tools.execute, where the request names it
	contract bool          // below tools.file, tools.shell and tools.code
	limit    time.Duration // 0 means the tool's own
}

func routeOf(subject string) (route, error) {
	if subject == subjectExecute {
		return route{}, nil
	}
	if token, ok := strings.CutPrefix(subject, prefixExecute); ok {
		name, err := DecodeName(token)
		return route{tool: name}, err
	}
	for _, s := range contractSubjects() {
		if s.subject == subject {
			return route{s.tool, true, s.limit}, nil
		}
	}
	return route{tool: strings.TrimPrefix(subject, prefixTools), contract: true}, nil
}

// unreserved replaces the three characters in which a token of a subject differs from an escaped query.
var unreserved = strings.NewReplacer(".", "%2E", "~", "%7E", "+", "%20")

// EncodeName turns a tool's name into one token of a subject: ASCII letters, digits, "_" and "-" stay as they are, every
// other byte becomes "%" and two upper-case hex digits. So a name can neither add tokens nor be a wildcard. DecodeName is
// its exact inverse.
func EncodeName(name string) string { return unreserved.Replace(url.QueryEscape(name)) }

// DecodeName returns the name that a token encodes. It also accepts tokens that EncodeName would not write, such as the dots
// of tools.execute.file.read, but not a "%" without two hex digits.
func DecodeName(token string) (string, error) {
	name, err := url.PathUnescape(token)
	if err != nil {
		return "", fmt.Errorf("%.100q stands for no name: a %% is followed by two hex digits", token)
	}
	return name, nil
}

// names reports whether a request at a subject of the contract may use this name for its tool.
func (r route) names(name string) bool {
	return name == r.tool || r.tool == "execShell" && name == "shell"
}

// A style is the format of a request, and so of its answer.
type style int

const (
	stylePlain    style = iota // arguments -> {data, error}
	styleToolCall              // {tool_call_id, function} -> {tool_call_id, role, name, content}
	styleExecute               // {tool_name, arguments, correlation_id} -> {tool_name, result, success, correlation_id}
	styleNative                // {arguments, state, answers} -> {result} or {error}, between Toolpost nodes
)

// A request is the decoded content of a message.
type request struct {
	style   style
	name    string // the tool, if the message names it
	id      []byte // tool_call_id or correlation_id as JSON, returned verbatim
	args    json.RawMessage
	state   json.RawMessage // native only
	answers json.RawMessage // native only
	limit   time.Duration   // of its subject; 0 means the tool's own
}

// decodeRequest reads a request of one of the contract's styles. Even with an error the request has the style for the
// answer.
func decodeRequest(where route, body []byte) (request, error) {
	if len(bytes.TrimSpace(body)) == 0 {
		body = []byte(`{}`)
	}
	if where.tool != "" && !where.contract && !mayBeCall(body) {
		return request{args: body}, nil // the engine checks the arguments of every call
	}
	m, err := strictjson.ReadMembers(body,
		"tool_call_id", "id", "type", "function", "tool_name", "arguments", "correlation_id")
	if err != nil {
		return request{}, err
	}
	r, err := requestOf(m, where, body)
	if err == nil && where.contract {
		r.args, err = tidy(r.args)
	}
	return r, err
}

// mayBeCall quickly rules out bodies that are no tool call: every tool call has a member named function. A backslash may
// hide that name in an escape.
func mayBeCall(body []byte) bool {
	return bytes.Contains(body, []byte("function")) || bytes.IndexByte(body, '\\') >= 0
}

func requestOf(m *strictjson.Members, where route, body []byte) (request, error) {
	name, function := m.Get("tool_name"), m.Get("function")
	called := strictjson.KindOf(function) == "object"
	switch {
	case where.tool == "" && name != nil:
		return request{style: styleExecute, id: m.Get("correlation_id")}.of("tool_name", name, m.Get("arguments"))
	case called && isID(m.Get("tool_call_id")):
		return toolCall(m.Get("tool_call_id"), function)
	case called && isID(m.Get("id")) && string(m.Get("type")) == `"function"`:
		return toolCall(m.Get("id"), function)
	case where.tool == "":
		return request{}, fmt.Errorf("which tool? Send {tool_name, arguments} or a tool call, or name it in the "+
			"subject: %s<name>", prefixExecute)
	}
	return request{args: body}, nil
}

// isID reports whether a value can name a call: a string, as in the contract, or a number, as some clients count.
func isID(value []byte) bool {
	kind := strictjson.KindOf(value)
	return kind == "string" || kind == "number"
}

func toolCall(id, function []byte) (request, error) {
	r := request{style: styleToolCall, id: id}
	m, err := strictjson.ReadMembers(function, "name", "arguments")
	if err != nil {
		return r, err
	}
	return r.of("function.name", m.Get("name"), m.Get("arguments"))
}

// of completes a request with the name of its tool and the arguments. Errors name the member that holds the tool's name.
func (r request) of(member string, name, arguments []byte) (_ request, err error) {
	if err := strictjson.Unmarshal(name, &r.name); err != nil || r.name == "" {
		return r, fmt.Errorf("%s is not the name of a tool but %s", member, strictjson.KindOf(name))
	}
	r.args, err = argumentsOf(arguments)
	return r, err
}

// argumentsOf accepts arguments as an object, as JSON in a string, or not at all.
func argumentsOf(value []byte) (json.RawMessage, error) {
	kind := strictjson.KindOf(value)
	if kind == "string" {
		var text string
		if err := strictjson.Unmarshal(value, &text); err != nil {
			return nil, fmt.Errorf("arguments: %w", err)
		}
		value = bytes.TrimSpace([]byte(text))
		if kind = strictjson.KindOf(value); kind == "object" {
			if err := strictjson.Check(value); err != nil {
				return nil, fmt.Errorf("the JSON in arguments: %w", err)
			}
		}
	}
	switch kind {
	case "object":
		return value, nil
	case "nothing", "null":
		return json.RawMessage(`{}`), nil
	}
	return nil, fmt.Errorf("arguments must be an object, or a string that holds one, not %s", kind)
}

// tidy converts the arguments at a subject of the contract to the form that its tools know: null means absent, and two names
// that clients spell differently get the contract's spelling. Arguments with neither stay as they are.
func tidy(args json.RawMessage) (json.RawMessage, error) {
	w, changed := strictjson.NewWriter(len(args)), false
	err := strictjson.Object(args, func(name, value []byte) error {
		known := contractName(string(name))
		if value[0] == 'n' {
			changed = true
			return nil
		}
		changed = changed || known != string(name)
		w.Named(known, value)
		return nil
	})
	if err != nil || !changed {
		return args, err
	}
	tidied := w.Done()
	return tidied, strictjson.Check(tidied) // a name in both spellings is a duplicate now
}

func contractName(name string) string {
	switch name {
	case "codebaseId":
		return "codebase_id"
	case "ignoreCase":
		return "ignore_case"
	}
	return name
}

// encodeToolCall writes the contract's request of style tool_call.
func encodeToolCall(id, name string, args []byte) ([]byte, error) {
	type function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	}
	return strictjson.Marshal(struct {
		ToolCallID string   `json:"tool_call_id"`
		Function   function `json:"function"`
	}{id, function{name, string(args)}})
}

// The headers of a request that this protocol has in addition to those of every call; see package envelope.
const (
	headerStyle  = "Toolpost-Style"  // native: body and reply have the form used between Toolpost nodes
	headerStream = "Toolpost-Stream" // a subject for the events of the call
	headerAck    = "Toolpost-Ack"    // "true": the caller answers events that have a reply subject
)

const nativeStyle = "native"

// maxField bounds a name and a subject that come from a caller: a NATS server cuts off a connection whose lines are
// longer than 4 KiB.
const maxField = 1 << 10

// wishes are the settings in a request's headers, apart from the call itself.
type wishes struct {
	stream  string
	ack     bool
	timeout time.Duration
}

// readHeaders reads a call's headers.
func readHeaders(h nats.Header, c *tool.Call) (w wishes, err error) {
	if w.timeout, err = envelope.Read(h, c, headerStyle, headerStream, headerAck); err != nil {
		return w, err
	}
	ack, err := envelope.Single(h, headerAck)
	if err != nil {
		return w, err
	}
	w.ack = ack == "true"
	w.stream, err = envelope.Single(h, headerStream)
	if err == nil && w.stream != "" && !mayAnswer(w.stream) {
		err = envelope.BadHeader(headerStream,
			"is not a subject that events can go to: no wildcards, no spaces, not below tools, toolpost or $")
	}
	return w, err
}

// mayAnswer reports whether we may publish to a subject that a caller chose. Our own subjects are excluded: a message there
// would be a request that the caller itself might not be allowed to make.
func mayAnswer(subject string) bool {
	return plainSubject(subject) && !strings.HasPrefix(subject, "$") &&
		!strings.HasPrefix(subject, prefixTools) && !strings.HasPrefix(subject, prefixToolpost)
}

// plainSubject reports whether s is a single subject and not a pattern.
func plainSubject(s string) bool {
	return s != "" && len(s) <= maxField && !strings.ContainsAny(s, " \t\r\n*>") &&
		s[0] != '.' && s[len(s)-1] != '.' && !strings.Contains(s, "..")
}
