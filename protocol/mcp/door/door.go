// Package door is the MCP server for clients of both eras, at one URL and on stdio.
//
// The official SDK for Go is not the server here: it decodes a body several times, reads a tool's schema at each call,
// builds a session for each request, and does not support a catalogue that differs from caller to caller.
package door

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"toolpost/codesearch/toolfind"
	"toolpost/host/secret"
	"toolpost/protocol/mcp"
	"toolpost/tool"
	"toolpost/wire/jsonrpc"
	"toolpost/wire/strictjson"
)

// Options of a door, on either transport. All of them have useful zero values.
type Options struct {
	Offers
	toolfind.Search
	Source       string          // the one source that is offered, under its own names and in place of all; "" means all
	URL          string          // the URL of the door over HTTP; "" means the one that the client uses
	Issuers      func() []string // of tokens that callers may present; nil means none
	Keys         *secret.Keyed   // seals state that clients send back; the same for programs that share a store; nil means a new key
	Jobs         bool            // whether this program runs jobs, and so tasks
	Version      string          // of this program; default dev
	Instructions string          // what a model is told about the tools as a whole; "" means a sentence about Toolpost
	Page         int             // entries on a page of a list; default 1,000
	Fresh        time.Duration   // how long a client may cache a list; default 5 s
	Beat         time.Duration   // between two keep-alives on a stream; default 15 s
	Patience     time.Duration   // how long a legacy client has to answer a question; default 10 min
	Log          *slog.Logger    // nil means no log
}

func (o Options) withDefaults() Options {
	o.Version, o.Keys = cmp.Or(o.Version, "dev"), cmp.Or(o.Keys, secret.NewKeyed(nil))
	o.Page = cmp.Or(o.Page, 1_000)
	o.Fresh = cmp.Or(o.Fresh, 5*time.Second)
	o.Beat = cmp.Or(o.Beat, 15*time.Second)
	o.Patience = cmp.Or(o.Patience, 10*time.Minute)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	return o
}

// A server answers requests, on either transport.
type server struct {
	Options
	handler       tool.Handler
	catalog       tool.Catalog
	seal          seal
	methods       map[string]method
	subscriptions subscriptions
	finder        toolfind.Finder
	templates     []resourceTemplate
	serverInfo    json.RawMessage // our serverInfo, which every modern result repeats
}

func newServer(o Options, h tool.Handler, c tool.Catalog) *server {
	if o.Source != "" {
		one := single{o.Source, h, c}
		h, c, o.Offers, o.Search = one, one, Offers{}, toolfind.Search{Above: -1}
	}
	o = o.withDefaults()
	s := &server{
		Options: o, handler: h, catalog: c, seal: newSeal(o.Keys, "states of requests"), methods: methods(), templates: o.templates(),
	}
	s.serverInfo = s.info()
	return s
}

// A peer is the client, for one of its requests.
type peer interface {
	// notify sends a notification that belongs to the request.
	notify(method string, params []byte) error
	// ask sends a legacy client a request of ours, and waits for the answer.
	ask(ctx context.Context, method string, params []byte) (json.RawMessage, error)
	// begin admits a call, or returns why not.
	begin(ctx context.Context, c *tool.Call) (_ context.Context, end func(), _ *tool.Error)
}

// A method answers one kind of request with the members of its result; the writer is open so that the era can add its
// own.
type method struct {
	serve          func(*server, context.Context, *request, peer) (*strictjson.Writer, *jsonrpc.Error)
	modern, legacy bool
}

// methods returns all methods of a server except those of a transport, such as initialize.
func methods() map[string]method {
	return map[string]method{
		mcp.MethodDiscover:  {(*server).discover, true, false},
		mcp.MethodPing:      {(*server).ping, false, true},
		mcp.MethodSetLevel:  {(*server).setLevel, false, true},
		mcp.MethodListen:    {(*server).subscribe, true, false},
		mcp.MethodListTools: {(*server).listTools, true, true},
		mcp.MethodCallTool:  {(*server).callTool, true, true},

		mcp.MethodTaskGet:    {(*server).getTask, true, true},
		mcp.MethodTaskUpdate: {(*server).updateTask, true, false},
		mcp.MethodTaskResult: {(*server).taskResult, false, true},
		mcp.MethodTaskCancel: {(*server).cancelTask, true, true},

		"prompts/list":             {(*server).listPrompts, true, true},
		mcp.MethodGetPrompt:        {(*server).getPrompt, true, true},
		mcp.MethodComplete:         {(*server).complete, true, true},
		"resources/list":           {(*server).listResources, true, true},
		"resources/templates/list": {(*server).listTemplates, true, true},
		mcp.MethodReadResource:     {(*server).readResource, true, true},
		mcp.MethodSubscribe:        {(*server).subscribeResource, false, true},
		mcp.MethodUnsubscribe:      {(*server).unsubscribeResource, false, true},
	}
}

// answer returns the complete reply to a request. After a panic the client still gets an answer.
func (s *server) answer(ctx context.Context, r *request, to peer) (reply []byte, failed *jsonrpc.Error) {
	defer tool.Recover(s.Log, "a request panicked", func() []any {
		failed = jsonrpc.Errorf(jsonrpc.CodeInternal, "Internal error; the server's log has the details")
		reply = jsonrpc.EncodeReply(r.id, nil, failed)
		return []any{"method", r.method}
	})
	w, failed := s.serve(ctx, r, to)
	if failed != nil {
		return jsonrpc.EncodeReply(r.id, nil, failed), failed
	}
	if r.modern || r.failed != nil || r.given != nil || r.method == mcp.MethodTaskResult {
		w.Raw("_meta", s.resultMeta(r))
	}
	return jsonrpc.EncodeReply(r.id, w.Done(), nil), nil
}

func (s *server) serve(ctx context.Context, r *request, to peer) (*strictjson.Writer, *jsonrpc.Error) {
	m, ok := s.methods[r.method]
	if !ok || r.modern && !m.modern || !r.modern && !m.legacy {
		return nil, unknownMethod(r)
	}
	return m.serve(s, ctx, r, to)
}

func unknownMethod(r *request) *jsonrpc.Error {
	return jsonrpc.Errorf(jsonrpc.CodeMethodNotFound, "Method not found: %s", jsonrpc.Clip(r.method))
}

// newResult starts a complete result.
func newResult(r *request, size int) *strictjson.Writer {
	w := strictjson.NewWriter(size + 200)
	if r.modern {
		w.Text("resultType", mcp.ResultComplete)
	}
	return w
}

// writeCacheHints writes how long a client may cache a result, and for whom: lists depend on the caller.
func (s *server) writeCacheHints(r *request, w *strictjson.Writer) {
	if r.modern {
		w.Raw("ttlMs", fmt.Append(nil, s.Fresh.Milliseconds()))
		w.Text("cacheScope", "private")
	}
}

// resultMeta returns the _meta of every modern result. That of a subscription names the one that ended, and that of a
// call, in both eras, why it failed. What an MCP server wrote there stays, except for these.
func (s *server) resultMeta(r *request) json.RawMessage {
	w := strictjson.NewWriter(100 + len(r.given))
	if r.given != nil {
		_ = strictjson.Walk(r.given, func(name, value []byte) error {
			if key := string(name); key != metaServer && key != metaTask && key != metaError {
				w.Named(key, value)
			}
			return nil
		})
	}
	if r.modern {
		w.Raw(metaServer, s.serverInfo)
	}
	if r.method == mcp.MethodListen {
		w.Raw(metaSubscription, r.id)
	}
	if r.method == mcp.MethodTaskResult {
		w.Raw(metaTask, r.relatedTask())
	}
	if r.failed != nil {
		w.Raw(metaError, errorMeta(r.failed))
	}
	return w.Done()
}

func (s *server) info() json.RawMessage {
	w := strictjson.NewWriter(60)
	w.Text("name", "toolpost")
	w.Text("version", s.Version)
	return w.Done()
}

func (s *server) instructions() string {
	return cmp.Or(s.Instructions, "The tools of a Toolpost. A call that is refused says why, and what to do.")
}

func (s *server) discover(ctx context.Context, r *request, _ peer) (*strictjson.Writer, *jsonrpc.Error) {
	w := newResult(r, 600)
	list, _ := strictjson.Marshal(mcp.Versions()) // strings
	w.Raw("supportedVersions", list)
	own := s.introduce(ctx, r.caller, true, s.runsTasks(ctx, r.caller))
	w.Raw("capabilities", own.Capabilities)
	w.Text("instructions", own.instructions)
	s.writeCacheHints(r, w)
	return w, nil
}

// capabilities returns what the server declares to clients of an era.
func (s *server) capabilities(modern, tasks bool) json.RawMessage {
	const both = `"completions":{},"prompts":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},` +
		`"tools":{"listChanged":true}}`
	switch {
	case modern && tasks:
		return json.RawMessage(`{"extensions":{"` + mcp.ExtensionTasks + `":{}},` + both)
	case modern:
		return json.RawMessage(`{` + both)
	case tasks:
		return json.RawMessage(`{"logging":{},"tasks":{"cancel":{},"requests":{"tools":{"call":{}}}},` + both)
	}
	return json.RawMessage(`{"logging":{},` + both)
}

func (s *server) ping(context.Context, *request, peer) (*strictjson.Writer, *jsonrpc.Error) {
	return strictjson.NewWriter(0), nil
}
