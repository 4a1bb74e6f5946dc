package door

import (
	"context"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"strings"
	"sync"
	"time"

	"toolpost/protocol/mcp"
	"toolpost/tool"
	"toolpost/web"
	"toolpost/wire/envelope"
	"toolpost/wire/jsonrpc"
	"toolpost/wire/strictjson"
)

// Path is the path of the door on its front.
const Path = "/mcp"

// NewDoor returns the door over HTTP, to be mounted.
func NewDoor(o Options) web.Door {
	guard := protection{o.URL, o.Issuers}
	return web.Door{
		Name:      "mcp",
		Hint:      "MCP is at " + Path,
		Offers:    []web.Offer{{Path: Path, What: "the Model Context Protocol, for agents"}},
		Refusals:  refuse,
		Accepts:   append([]string{mcp.HeaderVersion, mcp.HeaderMethod, mcp.HeaderName, mcp.HeaderSession}, envelope.Headers()...),
		Exposes:   []string{mcp.HeaderSession},
		URL:       o.URL,
		Challenge: guard.challenge,
		Routes: func(on *web.Server, h tool.Handler, c tool.Catalog) []web.Route {
			d := &httpDoor{on, newServer(o, h, c), nil}
			d.sessions = newSessions(newSeal(d.Keys, "ids of sessions"))
			return []web.Route{
				{Method: http.MethodPost, Path: Path, Lasts: isListen, Serve: d.post},
				{Method: http.MethodGet, Path: Path, Serve: d.listen},
				{Method: http.MethodDelete, Path: Path, Serve: d.deleteSession},
				{Method: http.MethodGet, Path: wellKnown, Open: true, Serve: guard.serve},
				{Method: http.MethodGet, Path: wellKnown + Path, Open: true, Serve: guard.serve},
			}
		},
	}
}

// isListen reports whether a request subscribes to changes. Its body must agree with its headers.
func isListen(r *http.Request, _ tool.Principal) bool {
	method, _ := mcp.PlainHeader(r.Header.Get(mcp.HeaderMethod))
	return method == mcp.MethodListen
}

// refuse encodes a refusal of a request that was not read, as a JSON-RPC error without an id.
func refuse(e *tool.Error) []byte {
	code := jsonrpc.CodeInvalidRequest
	if e.Code == tool.CodeInternal {
		code = jsonrpc.CodeInternal
	}
	return withoutID(jsonrpc.Errorf(code, "%s", e.Message))
}

// withoutID encodes an error for a message without a usable id. The protocol does not allow an id of null.
func withoutID(e *jsonrpc.Error) []byte {
	b, _ := strictjson.Marshal(e) // a number and a text
	return append(append([]byte(`{"jsonrpc":"2.0","error":`), b...), '}')
}

// An httpDoor is an open door.
type httpDoor struct {
	*web.Server
	*server
	sessions *sessions
}

// post takes one message of a client.
func (d *httpDoor) post(w http.ResponseWriter, r *http.Request, p tool.Principal) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		web.Refuse(w, r, refuse, http.StatusUnsupportedMediaType, tool.Errorf(tool.CodeUnsupported,
			"the content type %q is not read here: send application/json", r.Header.Get("Content-Type")))
		return
	}
	body, status, refused := d.ReadBody(w, r)
	if refused != nil {
		web.Refuse(w, r, refuse, status, refused)
		return
	}
	req, bad := decode(body)
	req.caller, req.header = p, r.Header
	req.modern = isModern(r.Header, req)
	if bad != nil {
		d.reply(w, http.StatusBadRequest, refusal(req, bad))
		return
	}
	if req.modern {
		d.postModern(w, r, req)
		return
	}
	d.postLegacy(w, r, req, body)
}

// isModern decides which era a message belongs to.
func isModern(h http.Header, r *request) bool {
	version := h.Get(mcp.HeaderVersion)
	switch {
	case version >= mcp.ModernVersion || r.meta.version != "" || r.method == mcp.MethodDiscover:
		return true
	case h.Get(mcp.HeaderSession) != "" || r.method == mcp.MethodInitialize || version != "":
		return false
	}
	return true
}

func refusal(r *request, e *jsonrpc.Error) []byte {
	if r.id == nil {
		return withoutID(e)
	}
	return jsonrpc.EncodeReply(r.id, nil, e)
}

func (d *httpDoor) reply(w http.ResponseWriter, status int, body []byte) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(d.Server.Patience()))
	web.Reply(w, status, body)
}

// postModern answers a self-contained request. Notifications are ignored: on HTTP a client cancels by disconnecting.
func (d *httpDoor) postModern(w http.ResponseWriter, r *http.Request, req *request) {
	if req.id == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	bad := checkModern(req)
	if e := checkHeaders(r.Header, req); e != nil {
		bad = e
	}
	if bad == nil && req.method == mcp.MethodCallTool {
		bad = d.checkParams(r.Context(), r.Header, req)
	}
	if bad != nil {
		d.reply(w, http.StatusBadRequest, refusal(req, bad))
		return
	}
	d.serveHTTP(w, r, req)
}

// checkModern checks the members that every modern request must have.
func checkModern(r *request) *jsonrpc.Error {
	switch {
	case r.meta.version == "" || r.meta.capabilities == nil:
		return mcp.Invalid("_meta must have %s and %s", mcp.MetaVersion, mcp.MetaCapabilities)
	case len(r.meta.capabilities) > maxCapabilities:
		return mcp.Invalid("%s has at most %d bytes", mcp.MetaCapabilities, maxCapabilities)
	case r.meta.version != mcp.ModernVersion:
		e := jsonrpc.Errorf(mcp.CodeBadVersion, "Unsupported protocol version")
		e.Data, _ = strictjson.Marshal(map[string]any{"supported": mcp.Versions(), "requested": r.meta.version}) // strings
		return e
	}
	return nil
}

// checkHeaders refuses a request whose headers contradict its body: a proxy goes by the headers, we go by the body.
func checkHeaders(h http.Header, r *request) *jsonrpc.Error {
	wants := []struct{ header, want string }{{mcp.HeaderVersion, r.meta.version}, {mcp.HeaderMethod, r.method}}
	switch r.method {
	case mcp.MethodCallTool, mcp.MethodGetPrompt:
		wants = append(wants, struct{ header, want string }{mcp.HeaderName, r.name})
	case mcp.MethodReadResource:
		wants = append(wants, struct{ header, want string }{mcp.HeaderName, r.uri})
	case mcp.MethodTaskGet, mcp.MethodTaskUpdate, mcp.MethodTaskCancel:
		wants = append(wants, struct{ header, want string }{mcp.HeaderName, r.task})
	}
	for _, w := range wants {
		values := h.Values(w.header)
		if len(values) != 1 {
			return mismatch("%s must be there once, not %d times", w.header, len(values))
		}
		got, err := mcp.PlainHeader(values[0])
		if err != nil || got != w.want && !(w.header == mcp.HeaderVersion && w.want == "") {
			return mismatch("%s says %q, and the body %q", w.header, jsonrpc.Clip(values[0]), jsonrpc.Clip(w.want))
		}
	}
	return nil
}

// serveHTTP answers a request with one document, or with a stream if messages precede the answer.
func (d *httpDoor) serveHTTP(w http.ResponseWriter, r *http.Request, req *request) {
	to := &httpPeer{door: d, w: w, r: r, session: req.session}
	ctx := r.Context()
	if req.method == mcp.MethodListen {
		var stop func()
		ctx, stop = d.untilClosing(ctx)
		defer stop()
		d.ForgetBody(r) // the request is long-lived, and detach copies what it needs
	}
	reply, failed := d.answer(ctx, req, to)
	status := http.StatusOK
	if failed != nil && req.modern {
		status = statusOf(failed.Code)
	}
	to.finish(status, reply)
}

// untilClosing returns a context that also ends when the front closes, for requests that would never end by themselves.
func (d *httpDoor) untilClosing(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(d.Leaving(), cancel)
	return ctx, func() { stop(); cancel() }
}

// statusOf returns the status of an error. Legacy clients look at the body only.
func statusOf(code int) int {
	switch code {
	case jsonrpc.CodeMethodNotFound:
		return http.StatusNotFound
	case mcp.CodeMissingCapability, mcp.CodeBadVersion, mcp.CodeHeaderMismatch, jsonrpc.CodeInvalidRequest, jsonrpc.CodeParse:
		return http.StatusBadRequest
	}
	return http.StatusOK
}

// An httpPeer is one request over HTTP and its answer. It becomes a stream when there is a message to send first.
type httpPeer struct {
	door    *httpDoor
	w       http.ResponseWriter
	r       *http.Request
	session *session

	mu   sync.Mutex
	out  *web.Stream
	stop func()
}

var _ peer = (*httpPeer)(nil)

// stream opens the stream, or returns nil if the client does not accept one.
func (p *httpPeer) stream() *web.Stream {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.out == nil && accepts(p.r.Header, web.TypeStream) {
		p.out = p.door.NewStream(p.w)
		p.stop = p.out.KeepAlive(p.door.Beat)
	}
	return p.out
}

func accepts(h http.Header, kind string) bool {
	for _, value := range h.Values("Accept") {
		for one := range strings.SplitSeq(value, ",") {
			if got, _, err := mime.ParseMediaType(one); err == nil && (got == kind || got == "*/*") {
				return true
			}
		}
	}
	return false
}

func (p *httpPeer) notify(method string, params []byte) error {
	out := p.stream()
	if out == nil {
		return nil
	}
	return sendMessage(out, jsonrpc.EncodeNotification(method, params))
}

// sendMessage sends a message on a stream.
func sendMessage(out *web.Stream, line []byte) error { return out.Send("", "message", trimmed(line)) }

// trimmed removes the line break, which an event of a stream cannot contain.
func trimmed(line []byte) []byte { return line[:len(line)-1] }

var errNoStream = errors.New("the client takes no stream, on which it could be asked")

func (p *httpPeer) ask(ctx context.Context, method string, params []byte) (json.RawMessage, error) {
	out := p.stream()
	if out == nil || p.session == nil {
		return nil, errNoStream
	}
	return p.session.ask(ctx, method, params, func(line []byte) error { return sendMessage(out, line) })
}

func (p *httpPeer) begin(_ context.Context, c *tool.Call) (context.Context, func(), *tool.Error) {
	return p.door.Begin(p.w, p.r, c)
}

// finish sends the answer, as one document or as the end of the stream.
func (p *httpPeer) finish(status int, reply []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.out == nil {
		p.door.reply(p.w, status, reply)
		return
	}
	p.stop()
	p.out.Finish("message", trimmed(reply))
}

// postLegacy takes a message of a client that introduced itself, or does so now.
func (d *httpDoor) postLegacy(w http.ResponseWriter, r *http.Request, req *request, body []byte) {
	if req.method == mcp.MethodInitialize {
		d.initializeHTTP(r.Context(), w, req)
		return
	}
	if version := r.Header.Get(mcp.HeaderVersion); version != "" && !knownVersion(version) {
		d.reply(w, http.StatusBadRequest, refusal(req, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest,
			"Bad Request: the version %s is not spoken here; there are %s", jsonrpc.Clip(version),
			strings.Join(mcp.Versions(), ", "))))
		return
	}
	one, ok := d.sessionOf(w, r, req)
	if !ok {
		return
	}
	req.session = one
	switch {
	case req.method == "": // an answer to a question of ours
		one.take(body)
		w.WriteHeader(http.StatusAccepted)
	case req.id == nil:
		one.inFlight.HandleCancel(req.method, req.params)
		w.WriteHeader(http.StatusAccepted)
	default:
		ctx, leave, ok := one.inFlight.Enter(r.Context(), req.id)
		if !ok {
			d.reply(w, http.StatusBadRequest, refusal(req, mcp.DuplicateID()))
			return
		}
		defer leave()
		d.serveHTTP(w, r.WithContext(ctx), req)
	}
}

// sessionOf finds the session that a request belongs to, or refuses it.
func (d *httpDoor) sessionOf(w http.ResponseWriter, r *http.Request, req *request) (*session, bool) {
	id := r.Header.Get(mcp.HeaderSession)
	if id == "" {
		d.reply(w, http.StatusBadRequest, refusal(req, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest,
			"Bad Request: the header %s is missing: begin with initialize", mcp.HeaderSession)))
		return nil, false
	}
	one := d.sessions.find(req.caller, id)
	if one == nil {
		d.reply(w, http.StatusNotFound, refusal(req, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest,
			"Session not found: begin again with initialize")))
		return nil, false
	}
	return one, true
}

func (d *httpDoor) initializeHTTP(ctx context.Context, w http.ResponseWriter, req *request) {
	one, result, bad := d.initialize(ctx, req)
	if bad == nil && req.id == nil {
		bad = jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "Invalid Request: initialize must have an id")
	}
	if bad != nil {
		d.reply(w, http.StatusBadRequest, refusal(req, bad))
		return
	}
	if err := d.sessions.add(one); err != nil {
		d.reply(w, http.StatusServiceUnavailable, refusal(req, jsonrpc.Errorf(jsonrpc.CodeInternal, "%v", err)))
		return
	}
	w.Header().Set(mcp.HeaderSession, one.id)
	d.reply(w, http.StatusOK, jsonrpc.EncodeReply(req.id, result.Done(), nil))
}

// listen serves the stream for messages to a legacy client that belong to none of its requests.
func (d *httpDoor) listen(w http.ResponseWriter, r *http.Request, p tool.Principal) {
	one, ok := d.sessionOf(w, r, &request{caller: p})
	if !ok {
		return
	}
	if !accepts(r.Header, web.TypeStream) {
		web.Refuse(w, r, refuse, http.StatusNotAcceptable,
			tool.Errorf(tool.CodeUnsupported, "a stream is all that GET gives here: accept %s", web.TypeStream))
		return
	}
	ctx, end := d.untilClosing(r.Context())
	defer end()
	changes := d.watch(ctx, p, one.subscription)
	defer d.subscriptions.leave(p.ID, one.subscription)
	out := d.NewStream(w)
	stop := out.KeepAlive(d.Beat)
	defer stop()
	changes.run(ctx, allChanges(), func(method string, params *strictjson.Writer) error {
		return sendMessage(out, jsonrpc.EncodeNotification(method, params.Done()))
	})
}

// deleteSession ends a session.
func (d *httpDoor) deleteSession(w http.ResponseWriter, r *http.Request, p tool.Principal) {
	one, ok := d.sessionOf(w, r, &request{caller: p})
	if !ok {
		return
	}
	d.sessions.remove(one)
	w.WriteHeader(http.StatusNoContent)
}
