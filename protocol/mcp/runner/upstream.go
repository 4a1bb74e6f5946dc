package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"toolpost/protocol/mcp"
	"toolpost/tool"
	"toolpost/wire/jsonrpc"
	"toolpost/wire/strictjson"
)

// An upstream is a server of either era, over stdio or HTTP.
type upstream interface {
	// ask makes a request and returns its result. It connects first if needed. An error answer of the server is a
	// *jsonrpc.Error. When ctx ends, the server is told that the request is cancelled.
	ask(ctx context.Context, q *query) (json.RawMessage, error)
	// close disconnects from the server, within the time of ctx.
	close(ctx context.Context) error
}

// A query is one request of ours.
type query struct {
	method string
	name   string // its subject, for the HTTP headers
	// params writes the members of params. The server may be of either era, and may have been replaced after each try.
	params     func(info *serverInfo, w *strictjson.Writer)
	header     http.Header   // additional ones
	stream     bool          // it lasts as long as there is something to receive, and occupies no place of a program
	call       *tool.Call    // that it belongs to, or nil
	owner      *upstreamCall // gets the server's messages and questions, or nil
	server     *serverInfo   // of the server that got it; set by ask
	lastOutput string        // the last output of the program, for a request that belongs to no call; set by ask
}

// A serverInfo is a server's description of itself.
type serverInfo struct {
	modern       bool
	version      string
	capabilities serverCapabilities
	level        string // the least severe messages that a legacy server is to send; see Runner.setLevel
	instructions string // to models
	extra        json.RawMessage
}

// serverCapabilities are the capabilities of a server that matter to us. A member counts if it is present, whatever its
// value.
type serverCapabilities struct {
	Tools       *listCapability `json:"tools"`
	Prompts     *listCapability `json:"prompts"`
	Resources   *listCapability `json:"resources"`
	Completions json.RawMessage `json:"completions"`
	Logging     json.RawMessage `json:"logging"`
	Tasks       struct {
		Requests struct {
			Tools struct {
				Call json.RawMessage `json:"call"`
			} `json:"tools"`
		} `json:"requests"`
	} `json:"tasks"`
}

// A listCapability is to list something, and to report changes.
type listCapability struct {
	ListChanged bool `json:"listChanged"`
	Subscribe   bool `json:"subscribe"`
}

// modernCapabilities are our capabilities in the modern era. All questions of a server go to our caller, which knows
// better than we do whether it can answer them.
const modernCapabilities = `{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{},` +
	`"extensions":{"` + mcp.ExtensionTasks + `":{}}}`

// legacyCapabilities are the same for the legacy era. There a server may ask for roots at any time, mostly at its
// start, and such a question cannot be told from one about the call in progress: so only the config answers it.
func legacyCapabilities(roots bool) string {
	if roots {
		return `{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{}}`
	}
	return `{"elicitation":{"form":{},"url":{}},"sampling":{}}`
}

// clientInfo is ours, which a server may show to people.
const clientInfo = `{"name":"toolpost","version":"1"}`

// encode writes the params of a query for this server.
func (info *serverInfo) encode(q *query, id uint64) []byte {
	w := strictjson.NewWriter(300)
	if q.params != nil {
		q.params(info, w)
	}
	m := strictjson.NewWriter(300)
	some := info.modern
	if info.modern {
		m.Text(mcp.MetaVersion, info.version)
		m.Raw(mcp.MetaClient, []byte(clientInfo))
		m.Raw(mcp.MetaCapabilities, []byte(modernCapabilities))
	}
	if q.owner != nil {
		some = true
		m.Raw(mcp.MetaProgress, strconv.AppendUint(nil, id, 10))
		if info.modern {
			m.Text(mcp.MetaLogLevel, mcp.Levels()[q.owner.level])
		}
	}
	if q.call != nil {
		if parent := tool.Traceparent(q.call.Trace, q.call.Span); parent != "" {
			some = true
			m.Text("traceparent", parent)
		}
	}
	if some {
		w.Raw("_meta", m.Done())
	}
	return w.Done()
}

// progressOf returns the id of the request that a notification names.
func progressOf(in *jsonrpc.Incoming) uint64 {
	if in.Method != mcp.NoteProgress {
		return 0
	}
	var msg struct {
		Token json.RawMessage `json:"progressToken"`
	}
	if strictjson.Unmarshal(strictjson.OrEmpty(in.Params), &msg) != nil {
		return 0
	}
	n, err := strconv.ParseUint(string(msg.Token), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// answeredError returns the error that a server answered, or nil if it answered none or the error has been interpreted
// already.
func answeredError(err error) *jsonrpc.Error {
	if _, ours := errors.AsType[*tool.Error](err); ours {
		return nil
	}
	rpcErr, _ := errors.AsType[*jsonrpc.Error](err)
	return rpcErr
}

// errLegacy is the result of a probe that finds a legacy server.
var errLegacy = errors.New("the server is of the legacy era")

// readDiscovery reads the answer to server/discover. A modern server that does not speak our version may still speak a
// legacy one.
func readDiscovery(raw json.RawMessage, err error) (*serverInfo, error) {
	if err != nil {
		rpcErr := answeredError(err)
		if rpcErr == nil || !slices.Contains([]int{mcp.CodeHeaderMismatch, mcp.CodeMissingCapability, mcp.CodeBadVersion}, rpcErr.Code) {
			return nil, errLegacy
		}
		if rpcErr.Code != mcp.CodeBadVersion {
			return nil, tool.Errorf(tool.CodeProtocol, "the server does not take our requests: %w", rpcErr)
		}
		return nil, noCommonVersion(supported(rpcErr))
	}
	var msg struct {
		Versions []string `json:"supportedVersions"`
	}
	if err := strictjson.Unmarshal(raw, &msg); err != nil || msg.Versions == nil {
		return nil, errLegacy // some servers answer every method
	}
	if !slices.Contains(msg.Versions, mcp.ModernVersion) {
		return nil, noCommonVersion(msg.Versions)
	}
	info := &serverInfo{modern: true, version: mcp.ModernVersion}
	return info, info.read(raw)
}

// supported returns the versions that a server offers when it refuses one.
func supported(rpcErr *jsonrpc.Error) []string {
	var data struct {
		Supported []string `json:"supported"`
	}
	_ = strictjson.Unmarshal(strictjson.OrEmpty(rpcErr.Data), &data) // missing means none
	return data.Supported
}

// discover asks a server for its description. If it refuses our version and yet offers it, it is asked once more.
func discover(ask func() (json.RawMessage, error)) (json.RawMessage, error) {
	raw, err := ask()
	if rpcErr := answeredError(err); rpcErr != nil && rpcErr.Code == mcp.CodeBadVersion &&
		slices.Contains(supported(rpcErr), mcp.ModernVersion) {
		return ask()
	}
	return raw, err
}

// noCommonVersion returns the error for a modern server that does not speak our modern version.
func noCommonVersion(offered []string) error {
	if slices.ContainsFunc(offered, func(v string) bool { return slices.Contains(mcp.LegacyVersions(), v) }) {
		return errLegacy
	}
	return tool.Errorf(tool.CodeProtocol,
		"the server speaks %q and we speak %q: there is no common version", offered, mcp.Versions())
}

// read reads what both eras have in common.
func (info *serverInfo) read(raw json.RawMessage) error {
	var self struct {
		Capabilities *serverCapabilities `json:"capabilities"`
		Instructions json.RawMessage     `json:"instructions"`
	}
	self.Capabilities = &info.capabilities
	err := strictjson.Unmarshal(raw, &self)
	info.instructions, info.extra = jsonrpc.Text(self.Instructions), extraOf(raw, "capabilities", "serverInfo")
	if err != nil {
		return tool.Errorf(tool.CodeProtocol,
			"the server describes itself in a way that cannot be read: %s", jsonrpc.Misread(err))
	}
	return nil
}

// noteInitialized ends the handshake with a legacy server.
const noteInitialized = "notifications/initialized" //nolint:misspell // the word of the protocol

// initializeParams returns our params of initialize.
func initializeParams(roots bool) []byte {
	return fmt.Appendf(nil, `{"protocolVersion":%q,"capabilities":%s,"clientInfo":%s}`, mcp.LegacyVersions()[0],
		legacyCapabilities(roots), clientInfo)
}

// readInitialize reads the answer to initialize.
func readInitialize(raw json.RawMessage) (*serverInfo, error) {
	var result struct {
		Version string `json:"protocolVersion"`
	}
	if err := strictjson.Unmarshal(raw, &result); err != nil {
		return nil, tool.Errorf(tool.CodeProtocol, "the answer to initialize cannot be read: %s", jsonrpc.Misread(err))
	}
	if !slices.Contains(mcp.LegacyVersions(), result.Version) {
		return nil, tool.Errorf(tool.CodeProtocol, "the server answers initialize with version %q, and we speak %q",
			jsonrpc.Clip(result.Version), mcp.LegacyVersions())
	}
	info := &serverInfo{version: result.Version}
	return info, info.read(raw)
}
