// Package alphahuman speaks the protocol of AlphaHuman skills: programs that speak JSON-RPC 2.0 on stdin and stdout, one
// message per line.
//
// There are two generations. The first is the contract: initialize, tools/call with a string as content, lifecycle/* hooks,
// shutdown. The second has tools/list, content as a list of blocks, skill/* hooks, and calls from the skill back to its
// host. A skill that does not know initialize is of the second.
//
// Structured outputs survive a round trip: beside content our door sends structuredContent, the unchanged output, and our
// runner prefers it. Without it a string is a string, a single block of text is its text, and any other content is the
// output unchanged.
package alphahuman

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"toolpost/tool"
	"toolpost/wire/jsonrpc"
	"toolpost/wire/strictjson"
)

// The methods from host to skill: of both generations, of the contract, of the second.
const (
	methodToolsCall = "tools/call"

	methodInitialize     = "initialize"
	methodOnLoad         = "lifecycle/onLoad"
	methodOnSessionStart = "lifecycle/onSessionStart"
	methodOnSessionEnd   = "lifecycle/onSessionEnd"
	methodOnTick         = "lifecycle/onTick"
	methodShutdown       = "shutdown"

	methodToolsList     = "tools/list"
	methodLoad          = "skill/load"
	methodUnload        = "skill/unload"
	methodSessionStart  = "skill/sessionStart"
	methodSessionEnd    = "skill/sessionEnd"
	methodBeforeMessage = "skill/beforeMessage"
	methodAfterResponse = "skill/afterResponse"
	methodTick          = "skill/tick"
	methodStatus        = "skill/status"
	methodSkillShutdown = "skill/shutdown"

	// methodCancel asks a skill to end a call. It is our addition, and only sent to skills that announce it.
	methodCancel = "$/cancelRequest"
)

// The methods from skill to host, in the second generation.
const (
	methodStateGet  = "state/get"
	methodStateSet  = "state/set"
	methodDataRead  = "data/read"
	methodDataWrite = "data/write"
	methodEmitEvent = "intelligence/emitEvent"
	methodUpsert    = "entities/upsert"
	methodSearch    = "entities/search"
)

// defaultMaxLine bounds a message, in bytes: 1 MiB of output fits, however it is escaped.
const defaultMaxLine = 16 << 20

// callParams writes the params of tools/call. Only skills that announce sessions get one.
func callParams(name string, args json.RawMessage, session string) []byte {
	w := strictjson.NewWriter(len(args) + len(name) + len(session) + 64)
	w.Text("name", name)
	w.Raw("arguments", args)
	w.Text("sessionId", session)
	return w.Done()
}

// An offer is the definition of a tool: parameters in the contract, inputSchema in the second generation.
type offer struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitzero"`
	InputSchema json.RawMessage `json:"inputSchema,omitzero"`
}

// anyObject is the schema of undescribed arguments.
const anyObject = `{"type":"object"}`

// or returns said, or usual if it is absent or null.
func or(said json.RawMessage, usual string) json.RawMessage {
	if len(said) == 0 || string(said) == "null" {
		return json.RawMessage(usual)
	}
	return said
}

// schema returns the schema of the arguments.
func (o *offer) schema() (json.RawMessage, error) {
	raw := or(o.Parameters, string(or(o.InputSchema, anyObject)))
	if kind := strictjson.KindOf(raw); kind != "object" {
		return nil, fmt.Errorf("its parameters are not an object but %s", kind)
	}
	return withoutNulls(raw)
}

// withoutNulls drops members that are null: known skills write "required": null if nothing is required.
func withoutNulls(schema json.RawMessage) (json.RawMessage, error) {
	members, nulls := map[string]json.RawMessage{}, false
	err := strictjson.Object(schema, func(name, value []byte) error {
		if string(value) == "null" {
			nulls = true
			return nil
		}
		members[string(name)] = value
		return nil
	})
	if err != nil || !nulls {
		return schema, err
	}
	return strictjson.Marshal(members)
}

// An introduction is the answer to initialize, or to tools/list, which has only the tools.
type introduction struct {
	Name         string            `json:"name,omitempty"`
	Description  string            `json:"description,omitempty"`
	Version      string            `json:"version,omitempty"`
	Tools        []json.RawMessage `json:"tools"`
	Capabilities *capabilities     `json:"capabilities,omitzero"`
}

// capabilities are our door's additions to the contract, announced so that our runner may use them.
type capabilities struct {
	Cancel   bool `json:"cancel,omitzero"`   // it knows $/cancelRequest
	Sessions bool `json:"sessions,omitzero"` // it takes sessionId in tools/call
}

// A toolResult is the answer to tools/call. Content and isError are the contract's; the rest are our additions.
type toolResult struct {
	Content    json.RawMessage `json:"content,omitzero"`
	IsError    bool            `json:"isError,omitzero"`
	Structured json.RawMessage `json:"structuredContent,omitzero"`
	Summary    string          `json:"summary,omitempty"`
	Failure    *tool.Error     `json:"error,omitzero"`
}

// decodeResult reads the answer to tools/call.
func decodeResult(raw []byte) (*tool.Result, error) {
	if kind := strictjson.KindOf(raw); kind != "object" {
		return nil, fmt.Errorf("the result is not an object but %s", kind)
	}
	var r toolResult
	if err := strictjson.Object(raw, r.take); err != nil {
		return nil, fmt.Errorf("the result: %s", jsonrpc.Misread(err))
	}
	if len(r.Content) == 0 && len(r.Structured) == 0 {
		return nil, errors.New("the result has no content")
	}
	if r.IsError {
		return r.failed(), nil
	}
	return &tool.Result{OK: true, Output: r.output(), Summary: r.Summary}, nil
}

// take reads one member. Content and structuredContent remain slices of the answer.
func (r *toolResult) take(name, value []byte) (err error) {
	switch string(name) {
	case "content":
		r.Content = value
	case "structuredContent":
		r.Structured = value
	case "isError":
		err = strictjson.Unmarshal(value, &r.IsError)
	case "summary":
		err = strictjson.Unmarshal(value, &r.Summary)
	case "error":
		err = strictjson.Unmarshal(value, &r.Failure)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return err
}

func (r *toolResult) output() json.RawMessage {
	if len(r.Structured) > 0 && (string(r.Structured) != "null" || r.words() == "null") {
		return r.Structured
	}
	if blocks := textBlocks(r.Content); len(blocks) == 1 {
		return strictjson.Quote(blocks[0])
	}
	return r.Content
}

func (r *toolResult) failed() *tool.Result {
	failure := r.Failure
	if failure == nil {
		failure = &tool.Error{}
	}
	failure.Code = tool.CodeToolError
	if failure.Message == "" {
		failure.Message = r.words()
	}
	return &tool.Result{Failure: failure, Output: r.Structured, Summary: r.Summary}
}

// words returns the content as text for a person.
func (r *toolResult) words() string {
	switch blocks := textBlocks(r.Content); {
	case jsonrpc.Text(r.Content) != "":
		return jsonrpc.Text(r.Content)
	case len(blocks) > 0:
		return strings.Join(blocks, "\n")
	case len(r.Content) > 0 && strictjson.KindOf(r.Content) != "string":
		return string(r.Content)
	}
	return "the tool failed and did not say why"
}

// textBlocks returns the texts of a list of blocks, or nil if any block is not text.
func textBlocks(content []byte) []string {
	var blocks []struct {
		Type string  `json:"type"`
		Text *string `json:"text"`
	}
	if strictjson.KindOf(content) != "array" || strictjson.Unmarshal(content, &blocks) != nil {
		return nil
	}
	var texts []string
	for _, b := range blocks {
		if b.Type != "text" || b.Text == nil {
			return nil
		}
		texts = append(texts, *b.Text)
	}
	return texts
}

// encodeResult writes the answer to tools/call. Content is a string, or in the second generation a list.
func encodeResult(r *tool.Result, blocks bool) ([]byte, error) {
	words, structured := contentOf(r)
	out := toolResult{Content: strictjson.Quote(words), Structured: structured, Summary: r.Summary}
	if !r.OK {
		out.IsError, out.Failure = true, r.Failure
	}
	if blocks {
		out.Content = json.RawMessage(`[{"type":"text","text":` + string(out.Content) + `}]`)
	}
	return strictjson.Marshal(out)
}

// contentOf returns a result as text, and its output if the text does not hold all of it.
func contentOf(r *tool.Result) (words string, structured json.RawMessage) {
	switch {
	case !r.OK && r.Failure != nil:
		return r.Failure.Message, r.Output
	case len(r.Output) == 0:
		return r.Summary, nil
	case strictjson.KindOf(r.Output) == "string":
		return jsonrpc.Text(r.Output), nil
	}
	return string(r.Output), r.Output
}

// rpcCode returns the JSON-RPC code of a class of errors. The class itself is in data.
func rpcCode(code tool.Code) int {
	switch code {
	case tool.CodeInvalidInput, tool.CodeNotFound:
		return jsonrpc.CodeInvalidParams
	case tool.CodeInternal:
		return jsonrpc.CodeInternal
	}
	return jsonrpc.CodeServer - 1 - slices.Index([]tool.Code{ // one code each; all others are CodeServer itself
		tool.CodeAccessDenied, tool.CodeConflict, tool.CodeTimeout, tool.CodeCancelled, tool.CodeQuotaExceeded,
		tool.CodeLeaseRequired, tool.CodeLeaseRejected, tool.CodeBreakerOpen, tool.CodeUnavailable, tool.CodeCrash,
		tool.CodeProtocol, tool.CodeUnsupported,
	}, code)
}

// errorData is the data of our errors.
type errorData struct {
	Code    tool.Code       `json:"code"`
	Reason  string          `json:"reason,omitempty"`
	Details json.RawMessage `json:"details,omitzero"`
}

// kept returns error details that preserve a skill's error, without data that is too long for a record.
func kept(e jsonrpc.Error) json.RawMessage {
	if len(e.Data) > 64<<10 {
		e.Data = nil
	}
	details, _ := strictjson.Marshal(map[string]jsonrpc.Error{"jsonrpc": e}) // it came as JSON
	return details
}

// saidBySkill returns the skill's error that caused e, or nil if there is none.
func saidBySkill(e *tool.Error) *jsonrpc.Error {
	var details map[string]*jsonrpc.Error
	if e == nil || len(e.Details) == 0 || strictjson.Unmarshal(e.Details, &details) != nil {
		return nil
	}
	return details["jsonrpc"]
}

// toRPC encodes an error for the protocol, with the code of the skill that it came from.
func toRPC(e *tool.Error) *jsonrpc.Error {
	code := rpcCode(e.Code)
	if said := saidBySkill(e); said != nil {
		code = said.Code
	}
	data, err := strictjson.Marshal(errorData{e.Code, e.Reason, e.Details})
	if err != nil { // the details are not JSON
		data, _ = strictjson.Marshal(errorData{Code: e.Code})
	}
	return &jsonrpc.Error{Code: code, Message: e.Message, Data: data}
}

// toolError converts a skill's error reply to tools/call into an error without an outcome. Our own doors report its class,
// and the codes of JSON-RPC imply one. Any other code is a skill's own way to fail, for which toolError returns nil.
func toolError(e *jsonrpc.Error, name string) *tool.Error {
	var data errorData
	if strictjson.KindOf(e.Data) == "object" && strictjson.Unmarshal(e.Data, &data) == nil && known(data.Code) {
		return &tool.Error{Code: data.Code, Reason: data.Reason, Message: e.Message, Details: data.Details}
	}
	class, words := tool.CodeProtocol, "did not understand the call of"
	switch e.Code {
	case jsonrpc.CodeMethodNotFound:
		class, words = tool.CodeNotFound, "does not know"
	case jsonrpc.CodeInvalidParams:
		class, words = tool.CodeInvalidInput, "does not take the arguments of"
	case jsonrpc.CodeParse, jsonrpc.CodeInvalidRequest:
	default:
		return nil
	}
	return &tool.Error{Code: class, Reason: fmt.Sprint(e.Code), Details: kept(*e),
		Message: fmt.Sprintf("the skill %s %s: %s", words, name, jsonrpc.Clip(e.Message))}
}

// known reports whether a call without an outcome can end with this class.
func known(code tool.Code) bool {
	return code != tool.CodeToolError && slices.Contains(tool.Codes(), code)
}
