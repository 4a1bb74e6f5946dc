package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"toolpost/tool"
	"toolpost/wire/jsonrpc"
	"toolpost/wire/strictjson"
)

// An upstream is a server, over stdio or HTTP, whichever era it is of.
type upstream interface {
	// ask makes a request and gives its result. It connects first where that is needed. An error that the server
	// answers is a *jsonrpc.Error. When ctx ends the server is told to leave the request.
	ask(ctx context.Context, q *query) (json.RawMessage, error)
	// listen makes a request that lasts, for as long as there is something to hear.
	listen(ctx context.Context, q *query) error
	// close lets the server go, within the time of ctx.
	close(ctx context.Context) error
}

// A query is one request of ours.
type query struct {
	method string
	name   string // of what it is about, for the headers of HTTP
	// params writes the members of params. The server may be of either era, and another one after each try.
	params func(g *greeting, w *strictjson.Writer)
	header http.Header // more of them
	call   *tool.Call  // whose it is; nil: nobody's
	from   *errand     // hears what the server says, and is asked what it asks; nil: nobody
	met    *greeting   // of the server that got it; set by ask
	words  string      // that a program wrote last, for what belongs to no call; set by ask
}

// A greeting is what a server said of itself.
type greeting struct {
	modern  bool
	version string
	can     abilities
	level   string // of messages that it is to send
}

// abilities are what of a server's capabilities we care about. What is there, whatever its value, counts.
type abilities struct {
	Tools       *ability        `json:"tools"`
	Prompts     *ability        `json:"prompts"`
	Resources   *ability        `json:"resources"`
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

// An ability is to list something, and to tell of changes.
type ability struct {
	ListChanged bool `json:"listChanged"`
	Subscribe   bool `json:"subscribe"`
}

// modernAbilities are what we say that we can do in the modern era. All that a server may ask goes to our caller, who
// knows better than we do whether it can be answered.
const modernAbilities = `{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{},` +
	`"extensions":{"` + extensionTasks + `":{}}}`

// legacyAbilities are the same for the legacy era. There servers ask for roots at any time, mostly when they begin, and
// nothing tells that from a question about the call that happens to be on its way: so only the config answers it.
func legacyAbilities(roots bool) string {
	if roots {
		return `{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{}}`
	}
	return `{"elicitation":{"form":{},"url":{}},"sampling":{}}`
}

// ourselves is what a server may show to people.
const ourselves = `{"name":"toolpost","version":"1"}`

// encode writes the params of a query for this server.
func (g *greeting) encode(q *query, id uint64) []byte {
	w := strictjson.NewWriter(300)
	if q.params != nil {
		q.params(g, w)
	}
	m := strictjson.NewWriter(300)
	some := g.modern
	if g.modern {
		m.Text(metaVersion, g.version)
		m.Raw(metaClient, []byte(ourselves))
		m.Raw(metaCapabilities, []byte(modernAbilities))
	}
	if q.from != nil {
		some = true
		m.Raw(metaProgress, strconv.AppendUint(nil, id, 10))
		if g.modern {
			m.Text(metaLogLevel, g.level)
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

// progressOf gives the id of the request that a notification names.
func progressOf(in *jsonrpc.Incoming) uint64 {
	if in.Method != noteProgress {
		return 0
	}
	var said struct {
		Token json.RawMessage `json:"progressToken"`
	}
	if strictjson.Unmarshal(orEmpty(in.Params), &said) != nil {
		return 0
	}
	n, err := strconv.ParseUint(string(said.Token), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// answeredError is the error that a server answered; nil: it answered none, or one that was made sense of already.
func answeredError(err error) *jsonrpc.Error {
	if _, ours := errors.AsType[*tool.Error](err); ours {
		return nil
	}
	said, _ := errors.AsType[*jsonrpc.Error](err)
	return said
}

// errEra is the end of a probe that shows a server of the legacy era.
var errEra = errors.New("the server is of the legacy era")

// readDiscovery reads the answer to server/discover. A server that is modern and does not speak our version may still
// have one of the legacy era.
func readDiscovery(raw json.RawMessage, err error) (*greeting, error) {
	if err != nil {
		said := answeredError(err)
		if said == nil || !slices.Contains([]int{codeHeaderMismatch, codeMissingCapability, codeBadVersion}, said.Code) {
			return nil, errEra
		}
		if said.Code != codeBadVersion {
			return nil, tool.Errorf(tool.CodeProtocol, "the server does not take our requests: %w", said)
		}
		return nil, noCommon(supported(said))
	}
	var said struct {
		Versions     []string        `json:"supportedVersions"`
		Capabilities json.RawMessage `json:"capabilities"`
	}
	if err := strictjson.Unmarshal(raw, &said); err != nil || said.Versions == nil {
		return nil, errEra // some answer everything with something
	}
	if !slices.Contains(said.Versions, modernVersion) {
		return nil, noCommon(said.Versions)
	}
	g := &greeting{modern: true, version: modernVersion}
	return g, g.read(said.Capabilities)
}

// supported are the versions that a server says it has when it refuses one.
func supported(said *jsonrpc.Error) []string {
	var data struct {
		Supported []string `json:"supported"`
	}
	_ = strictjson.Unmarshal(orEmpty(said.Data), &data) // what it does not say it has not
	return data.Supported
}

// discover asks a server what it is. One that refuses the version of the request and names the same is asked once more.
func discover(ask func() (json.RawMessage, error)) (json.RawMessage, error) {
	raw, err := ask()
	if said := answeredError(err); said != nil && said.Code == codeBadVersion &&
		slices.Contains(supported(said), modernVersion) {
		return ask()
	}
	return raw, err
}

// noCommon is for a modern server that does not speak our version of that era.
func noCommon(offered []string) error {
	if slices.ContainsFunc(offered, func(v string) bool { return slices.Contains(legacyVersions(), v) }) {
		return errEra
	}
	return tool.Errorf(tool.CodeProtocol,
		"the server speaks %q and we speak %q: there is no common version", offered, versions())
}

func (g *greeting) read(capabilities json.RawMessage) error {
	if err := strictjson.Unmarshal(orEmpty(capabilities), &g.can); err != nil {
		return tool.Errorf(tool.CodeProtocol,
			"the server describes itself in a way that cannot be read: %s", jsonrpc.Misread(err))
	}
	return nil
}

// initializeParams are what we say first to a server of the legacy era.
func initializeParams(roots bool) []byte {
	return fmt.Appendf(nil, `{"protocolVersion":%q,"capabilities":%s,"clientInfo":%s}`, legacyVersions()[0],
		legacyAbilities(roots), ourselves)
}

// readInitialize reads the answer to initialize.
func readInitialize(raw json.RawMessage) (*greeting, error) {
	var said struct {
		Version      string          `json:"protocolVersion"`
		Capabilities json.RawMessage `json:"capabilities"`
	}
	if err := strictjson.Unmarshal(raw, &said); err != nil {
		return nil, tool.Errorf(tool.CodeProtocol, "the answer to initialize cannot be read: %s", jsonrpc.Misread(err))
	}
	if !slices.Contains(legacyVersions(), said.Version) {
		return nil, tool.Errorf(tool.CodeProtocol, "the server answers initialize with version %q, and we speak %q",
			jsonrpc.Clip(said.Version), legacyVersions())
	}
	g := &greeting{version: said.Version}
	return g, g.read(said.Capabilities)
}
