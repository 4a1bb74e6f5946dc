// Package mcp speaks the Model Context Protocol, in both of its eras. In the modern one (2026-07-28) every request says
// all there is to know about itself; in the legacy one (2025-11-25 and before) a client says it once, with initialize,
// and the server may ask the client in the middle of a call. Clients of both are served at one URL, and on stdio.
//
// The official SDK for Go is not the server here: it decodes a body several times, reads a tool's schema at each call
// and builds a session for each request, and it knows nothing of a catalogue that differs from caller to caller.
//
// Files whose names begin with door are the server that clients come to; those that begin with runner are our way to
// other people's servers, whose two transports are runner_http.go and runner_program.go. What both use is in the
// others.
package mcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"toolpost/tool"
	"toolpost/wire/jsonrpc"
	"toolpost/wire/strictjson"
)

// The revisions that are spoken, the newest first.
const modernVersion = "2026-07-28"

func legacyVersions() []string {
	return []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}
}

func versions() []string { return append([]string{modernVersion}, legacyVersions()...) }

// The codes that the modern era adds to those of JSON-RPC, and those that the legacy era had: for a resource that is
// not there, and for a person who has to go somewhere first.
const (
	codeHeaderMismatch    = -32020
	codeMissingCapability = -32021
	codeBadVersion        = -32022
	codeNoResource        = -32002
	codeLinkRequired      = -32042
)

// What a message says about itself.
const (
	metaVersion      = "io.modelcontextprotocol/protocolVersion"
	metaCapabilities = "io.modelcontextprotocol/clientCapabilities"
	metaLogLevel     = "io.modelcontextprotocol/logLevel"
	metaSubscription = "io.modelcontextprotocol/subscriptionId"
	metaServer       = "io.modelcontextprotocol/serverInfo"
	metaClient       = "io.modelcontextprotocol/clientInfo"
	metaProgress     = "progressToken"
)

// The methods and notifications that both sides know, or that are named in several places.
const (
	methodDiscover     = "server/discover"
	methodInitialize   = "initialize"
	methodPing         = "ping"
	methodListTools    = "tools/list"
	methodCallTool     = "tools/call"
	methodReadResource = "resources/read"
	methodGetPrompt    = "prompts/get"
	methodComplete     = "completion/complete"
	methodSubscribe    = "resources/subscribe"
	methodUnsubscribe  = "resources/unsubscribe"
	methodListen       = "subscriptions/listen"
	methodSetLevel     = "logging/setLevel"
	methodTaskGet      = "tasks/get"
	methodTaskUpdate   = "tasks/update"
	methodTaskCancel   = "tasks/cancel"
	methodTaskResult   = "tasks/result"
	methodElicit       = "elicitation/create"
	methodSample       = "sampling/createMessage"
	methodRoots        = "roots/list"
	noteInitialized    = "notifications/initialized" //nolint:misspell // the word of the protocol
	noteCancelled      = "notifications/cancelled"
	noteProgress       = "notifications/progress"
	noteMessage        = "notifications/message"
	noteToolsChanged   = "notifications/tools/list_changed"
	notePromptsChanged = "notifications/prompts/list_changed"
	noteListChanged    = "notifications/resources/list_changed"
	noteUpdated        = "notifications/resources/updated"
	noteAcknowledged   = "notifications/subscriptions/acknowledged"
)

// extensionTasks lets a call be answered with a task, which the client looks after until it has an outcome. Here a task
// is a job: who has one finds it with listJobs too.
const extensionTasks = "io.modelcontextprotocol/tasks"

// The kinds of results that the modern era has.
const (
	resultComplete = "complete"
	resultAsks     = "input_required"
	resultTask     = "task"
)

// The states of a task.
const (
	taskWorking   = "working"
	taskAsks      = "input_required"
	taskCompleted = "completed"
	taskFailed    = "failed"
	taskCancelled = "cancelled"
)

// taskOver reports whether a state is the end of a task.
func taskOver(state string) bool {
	return slices.Contains([]string{taskCompleted, taskFailed, taskCancelled}, state)
}

// A request is a request or a notification of a client, read.
type request struct {
	id     []byte // raw, as an answer repeats it; nil: a notification, which has no answer
	method string
	params json.RawMessage // an object, or absent
	modern bool
	caller tool.Principal

	// The members of params that most methods have.
	name, uri, cursor    string
	arguments, responses json.RawMessage
	task                 string // by its id
	state                string // what an earlier answer gave the client to bring back
	meta                 meta
	header               map[string][]string // of HTTP; nil: there is none

	// The tool that a call means: as the engine knows it, once resolve has looked; without a spec there is none.
	tool string
	spec *tool.Spec
	// source is that of spec, if it is an MCP server with resources that the caller may read.
	source string

	failed *tool.Error // why the call has no good outcome, for programs; nil: it has one

	file *file // takes the file of a call that hands one out; nil: files are content of the result

	// session is that of a legacy client; nil: it is modern, or has not introduced itself.
	session *session
}

// settle copies what is still needed of a request that lasts, so that the body it came in does not last with it.
func (r *request) settle() {
	r.id = slices.Clone(r.id)
	r.params, r.arguments, r.responses = nil, nil, nil
	r.meta.capabilities, r.meta.progress = slices.Clone(r.meta.capabilities), slices.Clone(r.meta.progress)
}

// meta is what _meta says.
type meta struct {
	version      string
	capabilities json.RawMessage // nil: not said
	logLevel     string
	progress     json.RawMessage // a string or a number; nil: nobody wants to know
	envelope     map[string][]string
}

// maxID bounds what a client calls its request by, in bytes: everything that is said about it repeats that.
const maxID = 1 << 10

// decode reads a message. With an error the request has what could be read of it, so that it can be answered.
func decode(body []byte) (*request, *jsonrpc.Error) {
	r := &request{}
	var scan strictjson.Scanner
	m, err := jsonrpc.Decode(&scan, body)
	switch {
	case err == nil:
	case strictjson.Check(body) != nil:
		return r, jsonrpc.Errorf(jsonrpc.CodeParse, "Parse error: %s", jsonrpc.Clip(err.Error()))
	case strictjson.KindOf(body) == "array":
		return r, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "Invalid Request: batches are not taken; send one message")
	default:
		return r, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "Invalid Request: %s", jsonrpc.Clip(err.Error()))
	}
	r.id, r.method = m.ReplyID(), jsonrpc.Text(m.Method)
	if m.Method == nil && (m.Result != nil || m.Err != nil) {
		return r, nil // an answer: those who wait for it know what to do with it
	}
	if bad := m.Check(); bad != nil {
		return r, bad
	}
	if len(r.id) > maxID {
		r.id = nil
		return r, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "Invalid Request: an id has at most %d bytes", maxID)
	}
	if m.Version == nil || m.ID != nil && r.id == nil {
		return r, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest,
			`Invalid Request: jsonrpc must be "2.0", and the id a string or a number`)
	}
	if m.Params != nil && string(m.Params) != "null" {
		r.params = m.Params
		if err := r.readParams(&scan); err != nil {
			return r, invalid("%s", jsonrpc.Misread(err))
		}
	}
	return r, nil
}

func (r *request) readParams(scan *strictjson.Scanner) error {
	var raw json.RawMessage
	err := scan.Object(r.params, func(name, value []byte) error {
		switch string(name) {
		case "name":
			return readText(name, value, &r.name)
		case "uri":
			return readText(name, value, &r.uri)
		case "cursor":
			return readText(name, value, &r.cursor)
		case "taskId":
			return readText(name, value, &r.task)
		case "requestState":
			return readText(name, value, &r.state)
		case "arguments":
			r.arguments = value
		case "inputResponses":
			r.responses = value
		case "_meta":
			raw = value
		}
		return nil
	})
	if err != nil || raw == nil {
		return err
	}
	return r.meta.read(scan, raw)
}

// read takes what _meta says. What it says of the call, session, key, lease and so on, has the names of our headers.
func (m *meta) read(scan *strictjson.Scanner, raw []byte) error {
	return scan.Object(raw, func(name, value []byte) error {
		switch key := string(name); key {
		case metaVersion:
			return readText(name, value, &m.version)
		case metaLogLevel:
			return readText(name, value, &m.logLevel)
		case metaCapabilities:
			if strictjson.KindOf(value) != "object" {
				return errors.New(key + " must be an object")
			}
			m.capabilities = value
		case metaProgress:
			if kind := strictjson.KindOf(value); kind != "string" && kind != "number" {
				return errors.New("progressToken must be a string or a number")
			}
			if len(value) > maxID {
				return fmt.Errorf("progressToken has at most %d bytes", maxID)
			}
			m.progress = value
		default:
			if header := headerOf(key); header != "" {
				var text string
				if err := readText(name, value, &text); err != nil {
					return err
				}
				if m.envelope == nil {
					m.envelope = map[string][]string{}
				}
				m.envelope[header] = append(m.envelope[header], text)
			}
		}
		return nil
	})
}

// ourMeta begins the names in _meta that are ours, and metaError is the one in results.
const (
	ourMeta   = "toolpost/"
	metaError = ourMeta + "error"
)

// headerOf gives the header of package envelope that a name in _meta stands for; "": none.
func headerOf(key string) string {
	switch {
	case key == "traceparent":
		return key
	case key == ourMeta+"key":
		return "Idempotency-Key"
	case len(key) > len(ourMeta) && key[:len(ourMeta)] == ourMeta:
		return "Toolpost-" + key[len(ourMeta):]
	}
	return ""
}

func readText(name, value []byte, into *string) error {
	if strictjson.KindOf(value) != "string" {
		return errors.New(string(name) + " must be a string, not " + strictjson.KindOf(value))
	}
	text, err := strictjson.Unquote(value)
	*into = string(text)
	return err
}

// read reads the params that a method has for itself.
func (r *request) read(into any) *jsonrpc.Error {
	if err := strictjson.Unmarshal(orEmpty(r.params), into); err != nil {
		return invalid("%s", jsonrpc.Misread(err))
	}
	return nil
}

func orEmpty(params json.RawMessage) json.RawMessage {
	if len(params) == 0 {
		return json.RawMessage("{}")
	}
	return params
}

// invalid says what is wrong with what a request asks for.
func invalid(format string, args ...any) *jsonrpc.Error {
	return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "Invalid params: "+format, args...)
}

// mismatch says that a header says something else than the body.
func mismatch(format string, args ...any) *jsonrpc.Error {
	return jsonrpc.Errorf(codeHeaderMismatch, "Header mismatch: the header "+format, args...)
}

func known(version string) bool { return slices.Contains(versions(), version) }
