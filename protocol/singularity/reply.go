package singularity

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

const (
	errorPrefix = "Error: " // prefix of a tool call's content if it is an error
	roleTool    = "tool"
)

// A nativeReply has either a result or an error.
type nativeReply struct {
	Result *nativeResult `json:"result,omitzero"`
	Error  *tool.Error   `json:"error,omitzero"` // the call has no outcome
}

type nativeResult struct {
	*tool.Result
	Output json.RawMessage `json:"output,omitzero"` // in place of Result's: an empty object is an output too
}

// encodeReply answers a request in its style. Exactly one of res and e is not nil.
func encodeReply(r request, name string, res *tool.Result, e *tool.Error) ([]byte, error) {
	if r.style == styleNative {
		if e != nil {
			return strictjson.Marshal(nativeReply{Error: readable(e)})
		}
		return strictjson.Marshal(nativeReply{Result: &nativeResult{res, res.Output}})
	}
	var data json.RawMessage
	if e == nil {
		data, e = outcomeOf(name, res)
	}
	if e != nil {
		data = strictjson.Quote(errorText(e))
	} else if err := strictjson.Check(data); err != nil {
		return nil, err
	}
	switch r.style {
	case styleToolCall:
		return encodeToolReply(r.id, name, data, e != nil)
	case styleExecute: // without success the result is the text of the error
		return strictjson.Marshal(struct {
			ToolName      string          `json:"tool_name"`
			Result        json.RawMessage `json:"result"`
			Success       bool            `json:"success"`
			CorrelationID json.RawMessage `json:"correlation_id"`
		}{name, data, e == nil, r.id})
	}
	// The reply is assembled by hand, because that is most of the door's work for a call.
	if e != nil {
		return join(`{"data":null,"error":`, data, `}`), nil
	}
	return join(`{"data":`, data, `,"error":null}`), nil
}

// encodeToolReply writes the contract's tool response.
func encodeToolReply(id []byte, name string, data json.RawMessage, failed bool) ([]byte, error) {
	content, err := contentOf(data)
	if err != nil {
		return nil, err
	}
	if failed {
		content = errorPrefix + content
	}
	return strictjson.Marshal(struct {
		ToolCallID json.RawMessage `json:"tool_call_id"`
		Role       string          `json:"role"`
		Name       string          `json:"name"`
		Content    string          `json:"content"`
	}{id, roleTool, name, content})
}

func join(before string, middle []byte, after string) []byte {
	b := make([]byte, 0, len(before)+len(middle)+len(after))
	return append(append(append(b, before...), middle...), after...)
}

// outcomeOf reduces a result to data or an error, for styles that have nothing else.
func outcomeOf(name string, res *tool.Result) (json.RawMessage, *tool.Error) {
	switch {
	case res.Failure != nil:
		return nil, res.Failure
	case res.Ask != nil:
		return nil, tool.Errorf(tool.CodeUnsupported,
			"%s needs an answer first, and questions cannot be asked in this style: %s", name, res.Ask.Message)
	case len(res.Output) > 0:
		return res.Output, nil
	case res.Summary != "":
		return strictjson.Quote(res.Summary), nil
	}
	return json.RawMessage(`{}`), nil
}

// contractRows gives the results of a code tool the contract's form: a row of searchCode has the contract's four members,
// and a path relative to the codebase begins with a slash, unless the caller gave a path and so chose the form.
func contractRows(name string, args json.RawMessage, res *tool.Result) *tool.Result {
	search := name == "searchCode" || name == "code.search"
	if !search && !slices.Contains([]string{"grepCode", "code.grep", "listCodeFiles", "code.list"}, name) {
		return res
	}
	var rows []json.RawMessage
	asked, err := strictjson.ReadMembers(args, "path")
	if err != nil || strictjson.Unmarshal(res.Output, &rows) != nil {
		return res
	}
	for i, row := range rows {
		w := strictjson.NewWriter(len(row) + 1)
		if err := strictjson.Object(row, func(name, value []byte) error {
			if search && !slices.Contains([]string{"path", "line", "snippet", "similarity"}, string(name)) {
				return nil
			}
			if string(name) == "path" && asked.Get("path") == nil && strictjson.KindOf(value) == "string" && value[1] != '/' {
				value = join(`"/`, value[1:], "")
			}
			w.Named(string(name), value)
			return nil
		}); err != nil {
			return res
		}
		rows[i] = w.Done()
	}
	shaped := *res // others may keep the original, as the cache does
	shaped.Output = strictjson.AppendList(nil, rows, func(b []byte, row json.RawMessage) []byte { return append(b, row...) })
	return &shaped
}

// contentOf writes JSON as text: a string verbatim, everything else as JSON.
func contentOf(data json.RawMessage) (string, error) {
	if strictjson.KindOf(data) != "string" {
		return string(data), nil
	}
	var text string
	err := strictjson.Unmarshal(data, &text)
	return text, err
}

// readable repairs text that is not UTF-8 and drops details that are not JSON.
func readable(e *tool.Error) *tool.Error {
	said := *e
	said.Message = strings.ToValidUTF8(said.Message, "\uFFFD")
	said.Reason = strings.ToValidUTF8(said.Reason, "\uFFFD")
	if strictjson.Check(said.Details) != nil {
		said.Details = nil
	}
	return &said
}

// decodePlain reads {data, error}.
func decodePlain(body []byte) (*tool.Result, error) {
	m, err := strictjson.ReadMembers(body, "data", "error")
	data, failure := m.Get("data"), m.Get("error")
	switch {
	case err != nil:
		return nil, badReply(err)
	case data == nil && failure == nil:
		return nil, badReply(errors.New("it has neither data nor error"))
	case failure == nil || failure[0] == 'n' || string(failure) == `""`:
		return &tool.Result{OK: true, Output: bytes.Clone(data)}, nil
	}
	text, err := contentOf(failure)
	if err != nil {
		return nil, badReply(err)
	}
	return failed(text)
}

// decodeToolReply reads {tool_call_id, role, name, content}. Content that is a JSON object or array is the output itself,
// because structured results are written like that. All other content is text.
func decodeToolReply(id string, body []byte) (*tool.Result, error) {
	var r struct {
		ToolCallID *string `json:"tool_call_id"`
		Role       string  `json:"role"`
		Content    *string `json:"content"`
	}
	if err := strictjson.Unmarshal(body, &r); err != nil {
		return nil, badReply(err)
	}
	switch {
	case r.Content == nil:
		return nil, badReply(errors.New("it has no content"))
	case r.Role != "" && r.Role != roleTool:
		return nil, badReply(fmt.Errorf("its role is %.40q and not %q", r.Role, roleTool))
	case r.ToolCallID != nil && *r.ToolCallID != id:
		return nil, badReply(fmt.Errorf("it answers the call %.80q and not ours, %q", *r.ToolCallID, id))
	}
	if text, ok := strings.CutPrefix(*r.Content, errorPrefix); ok {
		return failed(text)
	}
	content := []byte(*r.Content)
	if kind := strictjson.KindOf(content); (kind == "object" || kind == "array") && strictjson.Check(content) == nil {
		return &tool.Result{OK: true, Output: content}, nil
	}
	return &tool.Result{OK: true, Output: strictjson.Quote(*r.Content)}, nil
}

// failed interprets an error of the contract. Text without one of the five types is the tool's own, except for a refusal by
// the server's policy, which the contract prints without a type.
func failed(text string) (*tool.Result, error) {
	errorType, detail, ok := cutType(text)
	code := codes()[errorType]
	switch {
	case ok && code != tool.CodeToolError:
		return nil, &tool.Error{Code: code, Reason: errorType, Message: detail}
	case errorType == typeSystemError && strings.HasPrefix(detail, saidByLimit):
		return nil, &tool.Error{Code: tool.CodeQuotaExceeded, Reason: "rate", Message: detail}
	case strings.Contains(strings.ToLower(detail), saidByPolicy):
		return nil, &tool.Error{Code: tool.CodeAccessDenied, Reason: reasonCommand, Message: detail}
	}
	return tool.Failed(errorType, detail), nil
}

// decodeNative reads the reply of another Toolpost.
func decodeNative(body []byte) (*tool.Result, error) {
	var r struct {
		Result *tool.Result `json:"result"`
		Error  *tool.Error  `json:"error"`
	}
	if err := strictjson.Unmarshal(body, &r); err != nil {
		return nil, badReply(err)
	}
	switch {
	case r.Error != nil && r.Error.Code != "":
		return nil, r.Error
	case r.Result == nil:
		return nil, badReply(errors.New("it has neither a result nor an error with a code"))
	case !r.Result.OK && r.Result.Failure == nil && r.Result.Ask == nil:
		return nil, badReply(errors.New("the result is not ok and does not say why"))
	case r.Result.OK && (r.Result.Failure != nil || r.Result.Ask != nil):
		return nil, badReply(errors.New("the result is ok and has a failure or a question too"))
	}
	return r.Result, nil
}

func badReply(err error) error {
	return tool.Errorf(tool.CodeProtocol, "the reply cannot be read: %w", err)
}

// nativeRequest is the body of a call between Toolpost nodes.
type nativeRequest struct {
	Arguments json.RawMessage `json:"arguments"`
	State     json.RawMessage `json:"state,omitzero"`
	Answers   json.RawMessage `json:"answers,omitzero"`
}

func encodeNative(c *tool.Call) ([]byte, error) {
	args := c.Args
	if len(bytes.TrimSpace(args)) == 0 {
		args = json.RawMessage(`{}`)
	}
	return strictjson.Marshal(nativeRequest{args, c.State, c.Answers})
}

func decodeNativeRequest(body []byte) (request, error) {
	m, err := strictjson.ReadMembers(body, "arguments", "state", "answers")
	r := request{style: styleNative, args: m.Get("arguments"), state: m.Get("state"), answers: m.Get("answers")}
	if err == nil && r.args == nil {
		err = errors.New("it has no arguments")
	}
	return r, err
}
