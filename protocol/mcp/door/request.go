package door

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"toolpost/protocol/mcp"
	"toolpost/tool"
	"toolpost/wire/jsonrpc"
	"toolpost/wire/strictjson"
)

// A request is a decoded request or notification of a client.
type request struct {
	id     []byte // raw, as an answer repeats it; nil for a notification, which has no answer
	method string
	params json.RawMessage // an object, or absent
	modern bool
	caller tool.Principal

	// The members of params that most methods have.
	name, uri, cursor    string
	arguments, responses json.RawMessage
	task                 string          // by its id
	asTask               json.RawMessage // of a legacy client that wants a task of its call; nil if it does not
	state                string          // opaque state of an earlier answer, which the client sent back
	meta                 meta
	client               json.RawMessage     // the clientInfo, as the client wrote it; nil if absent
	header               map[string][]string // the headers over HTTP, or nil

	// The called tool, under its name in the engine, once resolve has run. spec is nil if there is no such tool.
	tool string
	spec *tool.Spec
	// source is the source of spec, if it is an MCP server with resources that the caller may read.
	source string

	failed *tool.Error     // why the call failed, for programs; nil if it succeeded
	given  json.RawMessage // the _meta of the result of an MCP server, or nil

	file *file // takes the file of a call that hands one out; nil if files are content of the result

	// session is that of a legacy client; nil if the client is modern, or has not introduced itself.
	session *session
}

// detach copies the parts of a long-lived request that are still needed, so that its body can be freed.
func (r *request) detach() {
	r.id = slices.Clone(r.id)
	r.params, r.arguments, r.responses, r.client, r.meta.client = nil, nil, nil, nil, nil
	r.meta.capabilities, r.meta.progress = slices.Clone(r.meta.capabilities), slices.Clone(r.meta.progress)
}

// meta is the decoded _meta.
type meta struct {
	version      string
	capabilities json.RawMessage // nil if absent
	logLevel     string
	progress     json.RawMessage // a string or a number; nil if the client wants no progress
	client       json.RawMessage // as in a request; nil if absent
	envelope     map[string][]string
}

// maxID bounds the id of a client's request, in bytes: every message about the request repeats it.
const maxID = 1 << 10

// decode reads a message. Together with an error it returns the parts of the request that could be read, for the
// answer.
func decode(body []byte) (*request, *jsonrpc.Error) {
	r := &request{}
	var scan strictjson.Scanner
	m, err := jsonrpc.Decode(&scan, body)
	switch {
	case err == nil:
	case strictjson.Check(body) != nil:
		if mended, bad := strictjson.Mend(body); bad == nil {
			lenient, wrong := decode(mended)
			if wrong == nil && lenient.method == "" {
				return lenient, nil // an answer: its sender would not repeat it
			}
			r.id = lenient.id // without an answer to it, the client would wait
		}
		return r, jsonrpc.Errorf(jsonrpc.CodeParse, "Parse error: %s", jsonrpc.Clip(err.Error()))
	case strictjson.KindOf(body) == "array":
		return r, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "Invalid Request: batches are not taken; send one message")
	default:
		return r, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "Invalid Request: %s", jsonrpc.Clip(err.Error()))
	}
	r.id, r.method = m.ReplyID(), jsonrpc.Text(m.Method)
	if m.Method == nil && (m.Result != nil || m.Err != nil) {
		return r, nil // an answer: it is handled by the session
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
		if err := r.readParams(); err != nil {
			return r, mcp.Invalid("%s", jsonrpc.Misread(err))
		}
	}
	return r, nil
}

// readParams reads the members that most methods have. Decode has checked the whole message.
func (r *request) readParams() error {
	var raw json.RawMessage
	err := strictjson.Walk(r.params, func(name, value []byte) error {
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
		case "task":
			r.asTask = value
		case "inputResponses":
			r.responses = value
		case "clientInfo":
			r.client = value
		case "_meta":
			raw = value
		}
		return nil
	})
	if err != nil || raw == nil {
		return err
	}
	if err = r.meta.read(raw); r.meta.client != nil {
		r.client = r.meta.client
	}
	return err
}

// read decodes _meta. Its members about the call (session, key, lease and so on) have the names of our headers.
func (m *meta) read(raw []byte) error {
	return strictjson.Walk(raw, func(name, value []byte) error {
		switch key := string(name); key {
		case mcp.MetaVersion:
			return readText(name, value, &m.version)
		case mcp.MetaLogLevel:
			return readText(name, value, &m.logLevel)
		case mcp.MetaCapabilities:
			if strictjson.KindOf(value) != "object" {
				return errors.New(key + " must be an object")
			}
			m.capabilities = value
		case mcp.MetaClient:
			m.client = value
		case mcp.MetaProgress:
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

// The members of _meta that only a server writes: three of the protocol's, the prefix of our own names, and why a call
// failed.
const (
	metaSubscription = "io.modelcontextprotocol/subscriptionId"
	metaServer       = "io.modelcontextprotocol/serverInfo"
	metaTask         = "io.modelcontextprotocol/related-task"
	ourMeta          = "toolpost/"
	metaError        = ourMeta + "error"
)

// headerOf returns the header of package envelope for a name in _meta, or "" if there is none.
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
	*into = strictjson.Text(value)
	return nil
}

// read reads the method's own params.
func (r *request) read(into any) *jsonrpc.Error {
	if err := strictjson.Unmarshal(strictjson.OrEmpty(r.params), into); err != nil {
		return mcp.Invalid("%s", jsonrpc.Misread(err))
	}
	return nil
}

// mismatch returns the error for a header that contradicts the body.
func mismatch(format string, args ...any) *jsonrpc.Error {
	return jsonrpc.Errorf(mcp.CodeHeaderMismatch, "Header mismatch: the header "+format, args...)
}

func knownVersion(version string) bool { return slices.Contains(mcp.Versions(), version) }
