// Package jsonrpc speaks JSON-RPC 2.0 in strict JSON. It has the messages, for use one by one as in HTTP bodies, and a
// Conn on which both sides send requests and answers, one message per line.
//
// It knows no methods: those belong to a protocol, and so do cancellation and progress. Batches are not supported. No
// protocol here needs them, and the protocols that had them have dropped them.
package jsonrpc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"toolpost/wire/regex"
	"toolpost/wire/strictjson"
)

// The codes of the specification.
const (
	CodeParse          = -32700
	CodeInvalidRequest = -32600
	CodeMethodNotFound = -32601
	CodeInvalidParams  = -32602
	CodeInternal       = -32603
	CodeServer         = -32000 // the first of the range for implementation-defined errors
)

// An Error is the error member of an answer.
type Error struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitzero"`
}

// Errorf makes an Error.
func Errorf(code int, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("%s (code %d)", Clip(e.Message), e.Code) }

// A Message is a request, a notification or an answer, in its parts: raw JSON, which aliases the bytes that were
// decoded. A nil part is absent. Names that are not in JSON-RPC are ignored.
type Message struct {
	Version, ID, Method, Params, Result, Err []byte
}

// Decode reads a message. It fails if line is not one strict JSON object; see Check for what a request must have.
func Decode(s *strictjson.Scanner, line []byte) (m Message, err error) {
	err = s.Object(line, func(name, value []byte) error {
		switch string(name) {
		case "jsonrpc":
			m.Version = value
		case "id":
			m.ID = value
		case "method":
			m.Method = value
		case "params":
			m.Params = value
		case "result":
			m.Result = value
		case "error":
			if string(value) != "null" { // some send both result and error, and mean the one that is not null
				m.Err = value
			}
		}
		return nil
	})
	return m, err
}

// Check validates a message as a request. A missing version is accepted: it means this one.
func (m *Message) Check() *Error {
	switch {
	case m.Version != nil && Text(m.Version) != "2.0":
		return Errorf(CodeInvalidRequest, `Invalid Request: jsonrpc must be "2.0"`)
	case Text(m.Method) == "":
		return Errorf(CodeInvalidRequest, "Invalid Request: method must be a string that is not empty")
	case m.ID != nil && m.ReplyID() == nil && string(m.ID) != "null":
		return Errorf(CodeInvalidRequest, "Invalid Request: id must be a string or a number")
	case m.Params != nil && strictjson.KindOf(m.Params) != "object" && string(m.Params) != "null":
		return Errorf(CodeInvalidParams, "Invalid params: params must be an object, not %s",
			strictjson.KindOf(m.Params))
	}
	return nil
}

// ReplyID returns the id as an answer repeats it, byte for byte, or nil if there is none that could be repeated.
func (m *Message) ReplyID() []byte {
	if kind := strictjson.KindOf(m.ID); kind == "string" || kind == "number" {
		return bytes.Clone(m.ID)
	}
	return nil
}

// number returns the id of an answer to us: ours are numbers, but some servers return them as strings.
func (m *Message) number() (uint64, bool) {
	n, err := strconv.ParseUint(strings.Trim(string(m.ID), `"`), 10, 64)
	return n, err == nil
}

// Failure reads the error member. If it is not understood it is shown as it is.
func (m *Message) Failure() *Error {
	e := &Error{}
	if err := strictjson.Unmarshal(m.Err, e); err != nil {
		return Errorf(CodeInternal, "%s", Clip(string(m.Err)))
	}
	return e
}

var brokenID = regex.Lazy(`"id"\s*:\s*"?([0-9]{1,18})\b`)

// brokenAnswer finds the request that an invalid line was meant to answer: without it, a caller would wait for an
// answer that was already sent.
func brokenAnswer(line []byte) (uint64, bool) {
	if !bytes.HasPrefix(line, []byte("{")) || !bytes.Contains(line, []byte(`"jsonrpc"`)) {
		return 0, false
	}
	found := brokenID().FindSubmatch(line[:min(len(line), 4<<10)])
	if found == nil {
		return 0, false
	}
	n, err := strconv.ParseUint(string(found[1]), 10, 64)
	return n, err == nil
}

// EncodeRequest writes a request, with its newline. Methods are constants of a protocol and are not escaped.
func EncodeRequest(id uint64, method string, params []byte) []byte {
	b := make([]byte, 0, len(params)+len(method)+64)
	b = append(b, `{"jsonrpc":"2.0","id":`...)
	b = strconv.AppendUint(b, id, 10)
	return appendCall(b, method, params)
}

// EncodeNotification writes a request that has no id and gets no answer.
func EncodeNotification(method string, params []byte) []byte {
	return appendCall([]byte(`{"jsonrpc":"2.0"`), method, params)
}

// appendCall always writes params, as an object: null crashes some known programs.
func appendCall(b []byte, method string, params []byte) []byte {
	b = append(append(b, `,"method":"`...), method...)
	b = append(b, `","params":`...)
	if len(params) == 0 {
		params = []byte("{}")
	}
	return closeLine(append(b, params...))
}

// EncodeReply writes an answer, with its newline: result, or err if it is not nil. A nil id becomes null, which is the
// rule for requests that cannot be read.
func EncodeReply(id, result []byte, err *Error) []byte {
	if id == nil {
		id = []byte("null")
	}
	b := append(make([]byte, 0, len(result)+len(id)+64), `{"jsonrpc":"2.0","id":`...)
	b = append(b, id...)
	if err == nil {
		return closeLine(append(append(b, `,"result":`...), result...))
	}
	safe := *err
	safe.Message = strings.ToValidUTF8(err.Message, "\uFFFD")
	body, bad := strictjson.Marshal(safe)
	if bad != nil { // only Data that is not JSON gets here
		safe.Data = nil
		body, _ = strictjson.Marshal(safe)
	}
	return closeLine(append(append(b, `,"error":`...), body...))
}

// closeLine ends a message. Line breaks inside can only be white space: JSON has none in its strings.
func closeLine(b []byte) []byte {
	for i, c := range b {
		if c == '\n' || c == '\r' {
			b[i] = ' '
		}
	}
	return append(b, '}', '\n')
}

// Text returns the value of a JSON string, or "" for anything else.
func Text(raw []byte) string {
	if strictjson.KindOf(raw) != "string" {
		return ""
	}
	text, err := strictjson.Unquote(raw)
	if err != nil {
		return ""
	}
	return string(text)
}

// Misread returns why JSON was not understood.
func Misread(err error) string { return Clip(err.Error()) }

// Clip shortens foreign text for messages, and makes it safe for any terminal.
func Clip(s string) string {
	const most = 300
	if len(s) > most {
		s = s[:most] + "..."
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(s, "\uFFFD"))
}
