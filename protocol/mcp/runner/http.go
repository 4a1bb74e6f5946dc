package runner

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"toolpost/config"
	"toolpost/host/backoff"
	"toolpost/host/walls"
	"toolpost/identity/machine"
	"toolpost/identity/oauth"
	"toolpost/protocol/mcp"
	"toolpost/tool"
	"toolpost/web"
	"toolpost/wire/bounded"
	"toolpost/wire/jsonrpc"
	"toolpost/wire/sse"
	"toolpost/wire/strictjson"
)

// A remote is a server over HTTP. Each request is a POST of its own, whose answer is a document or a stream. One
// JSON-RPC connection spans all of them, so that a message on one stream about another's request, a duplicate, or a
// message about no request is treated as it is on stdio.
type remote struct {
	r         *Runner
	name      string      // of the source
	headers   http.Header // of the config
	tokens    credentials // nil if the headers have them
	own       bool        // it belongs to one caller, whose key its requests have while a call runs, and no other
	client    *http.Client
	conn      *jsonrpc.Conn
	questions mcp.InFlight  // the server's questions without an answer yet
	unrelated chan struct{} // one for each message that is being served and belongs to no request

	life    context.Context
	end     context.CancelFunc
	running sync.WaitGroup

	connecting sync.Mutex // one at a time
	mu         sync.Mutex
	session    *upstreamSession // nil if there is none
	connected  bool             // there has been one
}

var _ upstream = (*remote)(nil)

// credentials have the tokens of a source: those of a login, or those of a grant.
type credentials interface {
	// Token returns a token that should be valid, or none.
	Token(ctx context.Context) (oauth.Access, error)
	// Replace returns another token after the server refused one, or none or the same if that is all there is.
	Replace(ctx context.Context, refused oauth.Access, resp *http.Response) (oauth.Access, error)
}

var (
	_ credentials = (*tokenStore)(nil)
	_ credentials = (*machine.Tokens)(nil)
)

// An upstreamSession is what we know of a server during one session (legacy), or after one discovery (modern).
type upstreamSession struct {
	*serverInfo
	id         string
	life       context.Context
	end        context.CancelFunc
	streamOpen chan struct{} // closed when the server's own stream is open, or will not be
}

// Bounds on HTTP.
const (
	dialTime     = 10 * time.Second
	maxRefusal   = 1 << 20         // bytes of an answer that is not a success
	drainTime    = time.Second     // for a stream to end after its answer
	maxDrained   = 4 << 10         // bytes of it
	openTime     = time.Second     // for the server's own stream to be open
	byeTime      = 2 * time.Second // for ending a session
	maxUnrelated = 64
	maxResumes   = 8 // consecutive attempts to resume a stream that brings nothing
)

func (r *Runner) openHTTP(src config.Source) error {
	headers, err := r.o.headers(src.Secrets)
	if err != nil {
		return err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = (&net.Dialer{Timeout: dialTime}).DialContext
	transport.MaxIdleConnsPerHost, transport.DisableCompression = 64, true
	h := &remote{
		r: r, name: src.Name, headers: headers, unrelated: make(chan struct{}, maxUnrelated),
		client: &http.Client{
			Transport: transport,
			// The headers are for this address only.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	o, in := r.o.OAuth, r.o.Walls.Injector
	to, person := r.o.URL, o.IDP.Connection != ""
	if person { // the key of its callers is for the identity provider
		to = o.IDP.Issuer
	}
	switch u, err := url.Parse(to); {
	case err != nil:
		return err
	case in == nil && person:
		return tool.Errorf(tool.CodeInvalidInput, "source %s: oauth.idp.connection is not one of its connections", src.Name)
	case in.Check(http.MethodPost, u) != nil:
		return in.Check(http.MethodPost, u)
	}
	own := in.Folder() != ""
	h.own = own && !person
	switch {
	case h.own:
		headers.Del("Authorization")
	case o.Grant != "" && own == person: // the instance that lists the tools has no person
		c := machine.Config{Options: o.Options, Client: o.client(), Source: src, Server: r.o.URL, Shown: r.o.shown()}
		if person {
			headers.Del("Authorization")
			c.Person = func(ctx context.Context) (string, error) { return in.Value(ctx, o.IDP.Connection, to) }
		}
		if h.tokens, err = machine.New(c); err != nil {
			return err
		}
	case headers.Get("Authorization") == "":
		h.tokens = &tokenStore{path: TokenFile(src), server: r.o.URL, client: oauth.HTTPClient(r.o.URL), bound: o.DPoP, redact: src.Redact}
	}
	h.life, h.end = context.WithCancel(context.Background())
	h.conn = jsonrpc.NewConn(jsonrpc.Options{
		Writer: replies{h}, Take: h.takeUnrelated, Unusable: h.logSkipped, Names: progressOf, Serve: h.serveFor, Early: h.early,
		Owns:      func(q *jsonrpc.Request) bool { u, _ := q.Tag.(*upstreamCall); return u != nil && !u.Paused() },
		Abandoned: h.abandoned, Forget: true, Lenient: true, Go: h.running.Go,
	})
	r.upstream = h
	return nil
}

// ask implements upstream. If the server has forgotten the session, a new one is begun: the request was not executed in
// the old one.
func (h *remote) ask(ctx context.Context, q *query) (json.RawMessage, error) {
	for try := 1; ; try++ {
		s, err := h.connect(ctx)
		if err != nil {
			return nil, h.explainRefusal(err)
		}
		if q.owner != nil {
			h.setLevel(ctx, s)
		}
		raw, err := h.roundTrip(ctx, s, q)
		if !errors.Is(err, errForgotten) || try == 3 {
			return raw, h.explainRefusal(err)
		}
		h.dropSession(s)
	}
}

var errForgotten = errors.New("the server has forgotten the session")

// connect returns the current session, or begins one.
func (h *remote) connect(ctx context.Context) (*upstreamSession, error) {
	h.connecting.Lock()
	defer h.connecting.Unlock()
	h.mu.Lock()
	s, again := h.session, h.connected
	h.mu.Unlock()
	if s != nil {
		return s, nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(h.r.o.StartTimeout))
	defer cancel()
	s, err := h.negotiate(ctx)
	if err != nil {
		return nil, err
	}
	s.life, s.end = context.WithCancel(h.life)
	h.mu.Lock()
	h.session, h.connected = s, true
	h.mu.Unlock()
	if again {
		h.r.changed()
	}
	if _, some := s.lists(); some || !s.modern {
		s.streamOpen = make(chan struct{})
		h.running.Go(func() { h.readServerStream(s) })
		select { // messages of a legacy server before its stream is open are lost, questions too
		case <-s.streamOpen:
		case <-time.After(openTime):
		case <-ctx.Done():
		}
	}
	return s, nil
}

// negotiate finds out the server's era: see program.negotiate.
func (h *remote) negotiate(ctx context.Context) (*upstreamSession, error) {
	if h.r.o.Era != eraLegacy {
		info, err := h.discover(ctx)
		switch {
		case err == nil:
			return &upstreamSession{serverInfo: info}, nil
		case !errors.Is(err, errLegacy):
			return nil, err
		case h.r.o.Era == eraModern:
			return nil, tool.Errorf(tool.CodeProtocol,
				"%s is of the legacy era, and the config says modern; leave `era` out", h.r.o.shown())
		}
	}
	return h.initialize(ctx)
}

func (h *remote) discover(ctx context.Context) (*serverInfo, error) {
	s := &upstreamSession{serverInfo: &serverInfo{modern: true, version: mcp.ModernVersion}}
	raw, err := discover(func() (json.RawMessage, error) { return h.roundTrip(ctx, s, &query{method: mcp.MethodDiscover}) })
	var refused *refusalError
	switch {
	case err == nil, answeredError(err) != nil:
		return readDiscovery(raw, err)
	case errors.As(err, &refused) && refused.legacy():
		return nil, errLegacy
	}
	return nil, h.explainError(err)
}

func (h *remote) initialize(ctx context.Context) (*upstreamSession, error) {
	s := &upstreamSession{serverInfo: &serverInfo{}}
	raw, err := h.roundTrip(ctx, s, &query{method: mcp.MethodInitialize})
	if err != nil {
		return nil, h.explainError(err)
	}
	info, err := readInitialize(raw)
	if err != nil {
		return nil, err
	}
	s.serverInfo = info
	err = h.post(ctx, s, jsonrpc.EncodeNotification(noteInitialized, nil))
	if err == nil {
		h.setLevel(ctx, s)
	}
	return s, h.explainError(err)
}

func (h *remote) setLevel(ctx context.Context, s *upstreamSession) {
	h.r.setLevel(ctx, s.serverInfo, func(ctx context.Context, level string) {
		_, _ = h.roundTrip(ctx, s, &query{method: mcp.MethodSetLevel, params: func(_ *serverInfo, w *strictjson.Writer) {
			w.Text("level", level)
		}})
	})
}

func (h *remote) current() *upstreamSession {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.session
}

// dropSession drops a session that has ended.
func (h *remote) dropSession(s *upstreamSession) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.session == s {
		h.session = nil
		s.end()
	}
}

// roundTrip makes one request. Its exchange ends with it, except for the rest of a stream that has brought the answer.
func (h *remote) roundTrip(ctx context.Context, s *upstreamSession, q *query) (json.RawMessage, error) {
	q.server = s.serverInfo
	life, cancel := context.WithCancel(h.life) // not of ctx: the server is told of a cancellation before the exchange ends
	raw, err := h.conn.Put(ctx, jsonrpc.Query{
		Method: q.method, Tag: q.owner,
		Params: func(id uint64) []byte {
			if q.method == mcp.MethodInitialize {
				return initializeParams(len(h.r.o.Roots) > 0)
			}
			return s.encode(q, id)
		},
		Send: func(_ context.Context, id uint64, line []byte) error {
			h.running.Go(func() {
				defer cancel()
				if err := h.exchange(life, s, q, id, line); err != nil {
					h.conn.Fail(id, err)
				}
				h.conn.Fail(id, errSilent) // no effect if it was answered
			})
			return nil
		},
	})
	if err != nil {
		cancel()
	}
	return raw, h.explainError(err)
}

var errSilent = errors.New("it ended its answer without one")

// exchange posts a request and reads the answer.
func (h *remote) exchange(ctx context.Context, s *upstreamSession, q *query, id uint64, line []byte) error {
	header := http.Header{}
	if s.modern {
		setModern(header, q.method, q.name)
		maps.Copy(header, q.header)
	}
	resp, err := h.send(ctx, s, http.MethodPost, header, line)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // resuming may have replaced the stream
	if q.method == mcp.MethodInitialize {
		s.id = resp.Header.Get(mcp.HeaderSession)
	}
	var scan strictjson.Scanner
	if mediaType(resp) == web.TypeStream {
		return h.readStream(ctx, s, resp, id)
	}
	body, err := bounded.ReadDocument(resp.Body, h.r.o.MaxMessage)
	if err != nil {
		return tooLarge(err)
	}
	if err := h.conn.Hear(&scan, body, id); err != nil || len(body) == 0 || !h.conn.Waits(id) {
		return err
	}
	return tool.Errorf(tool.CodeProtocol, "%s answered with %s that is not a message of MCP; check that the URL is the "+
		"server's MCP endpoint, which often ends in /mcp", h.r.o.shown(), cmp.Or(jsonrpc.Clip(mediaType(resp)), "something"))
}

// readStream reads a stream to its end. In the legacy era an interrupted stream may be resumed.
func (h *remote) readStream(ctx context.Context, s *upstreamSession, resp *http.Response, id uint64) error {
	var scan strictjson.Scanner
	last, wait, failed := "", time.Duration(0), 0
	for {
		events := sse.New(resp.Body, h.r.o.MaxMessage)
		events.Retry = wait
		err := h.readEvents(events, &scan, id)
		if err == nil { // drain the stream so that its connection can be reused
			late := time.AfterFunc(drainTime, func() { _ = resp.Body.Close() })
			_, _ = io.CopyN(io.Discard, resp.Body, maxDrained)
			late.Stop()
		}
		_ = resp.Body.Close()
		if events.LastID != "" && events.LastID != last {
			last, failed = events.LastID, 0
		}
		_, bad := errors.AsType[*bounded.LimitError](err)
		if err == nil || bad || last == "" || s.modern || ctx.Err() != nil {
			return tooLarge(err)
		}
		for wait = events.Retry; ; {
			if failed++; failed > maxResumes {
				return tooLarge(err)
			}
			if !tool.Sleep(ctx, max(wait, time.Duration(failed-1)*firstListen)) {
				return context.Cause(ctx)
			}
			resp, err = h.send(ctx, s, http.MethodGet, http.Header{"Last-Event-Id": {last}}, nil)
			if err == nil {
				break
			}
			if refused := (*refusalError)(nil); errors.As(err, &refused) && refused.status/100 == 4 {
				return fmt.Errorf("its stream broke off and cannot be taken up again: %w", err)
			}
		}
	}
}

// readEvents handles the messages of a stream, until it has brought the answer to its request.
func (h *remote) readEvents(events *sse.Reader, scan *strictjson.Scanner, id uint64) error {
	for {
		m, err := events.Next()
		if err != nil {
			return err
		}
		if len(m.Data) == 0 || m.Name != "" && m.Name != "message" {
			continue
		}
		if err := h.conn.Hear(scan, m.Data, id); err != nil || id != 0 && !h.conn.Waits(id) {
			return err
		}
	}
}

// tooLarge returns the error for an answer that exceeds a limit, and other errors as they are.
func tooLarge(err error) error {
	if _, ok := errors.AsType[*bounded.LimitError](err); ok {
		return tool.Errorf(tool.CodeProtocol, "the answer of the server is out of bounds: %w", err)
	}
	return err
}

// readServerStream reads the server's own messages, for as long as the session lasts.
func (h *remote) readServerStream(s *upstreamSession) {
	open := sync.OnceFunc(func() { close(s.streamOpen) })
	keepListening(s.life, func(first bool) error {
		if !first {
			h.r.changed() // changes may have been missed
		}
		if s.modern { // messages about a request come with the request
			open()
			lists, _ := s.lists()
			_, err := h.roundTrip(s.life, s, listenQuery(lists))
			return err
		}
		resp, err := h.send(s.life, s, http.MethodGet, http.Header{}, nil)
		open()
		switch refused := (*refusalError)(nil); {
		case errors.Is(err, errForgotten):
			h.dropSession(s)
			return nil
		case errors.As(err, &refused) && refused.status/100 == 4: // it has no such stream
			return &jsonrpc.Error{Message: refused.Error()}
		case err != nil:
			return nil //nolint:nilerr // it is tried again
		}
		defer resp.Body.Close()
		var scan strictjson.Scanner
		return h.readEvents(sse.New(resp.Body, h.r.o.MaxMessage), &scan, 0)
	})
}

// ownHeaders lists the headers that a config cannot set, since the protocol does.
func ownHeaders() []string {
	return []string{
		mcp.HeaderSession, mcp.HeaderVersion, mcp.HeaderMethod, mcp.HeaderName, "Content-Type", "Content-Length", "Accept", "Host",
		"Last-Event-Id",
	}
}

// send makes an HTTP request and returns its answer if that is a success. If the token is refused, it tries once more
// with a new one.
func (h *remote) send(
	ctx context.Context, s *upstreamSession, method string, header http.Header, body []byte,
) (*http.Response, error) {
	var token oauth.Access
	if h.tokens != nil {
		var err error
		if token, err = h.tokens.Token(ctx); err != nil {
			return nil, err
		}
	}
	resp, err := h.sendAs(ctx, s, method, header, body, token)
	if err == nil && resp.StatusCode == http.StatusUnauthorized && h.own { // the key may have been renewed since
		_ = resp.Body.Close()
		resp, err = h.sendAs(ctx, s, method, header, body, token)
	}
	if err == nil && h.tokens != nil && wantsToken(resp) {
		next, err := h.tokens.Replace(ctx, token, resp)
		if err == nil && (next.Token == "" || next.Token == token.Token) {
			return nil, h.readRefusal(resp, s)
		}
		_ = resp.Body.Close()
		if err != nil { // the authorization server cannot be reached: the login is still good
			return nil, err
		}
		resp, err = h.sendAs(ctx, s, method, header, body, next)
		if err != nil {
			return nil, err
		}
	}
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 != 2 {
		return nil, h.readRefusal(resp, s)
	}
	return resp, nil
}

func (h *remote) sendAs(
	ctx context.Context, s *upstreamSession, method string, header http.Header, body []byte, token oauth.Access,
) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, h.r.o.URL, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, h.headers)
	maps.Copy(req.Header, header)
	req.Header.Set("Accept", "application/json, "+web.TypeStream)
	switch method {
	case http.MethodPost:
		req.Header.Set("Content-Type", "application/json")
	case http.MethodGet:
		req.Header.Set("Accept", web.TypeStream)
	}
	if !s.modern && s.version != "" {
		req.Header.Set(mcp.HeaderVersion, s.version)
	}
	if s.id != "" {
		req.Header.Set(mcp.HeaderSession, s.id)
	}
	if h.own {
		if _, err := walls.Authorize(req, h.r.o.Walls.Injector.Credentials()); err != nil {
			return nil, err
		}
	}
	return token.Send(h.client, req)
}

// wantsToken reports whether a server refused a request because of its token, or the rights that it gives.
func wantsToken(resp *http.Response) bool {
	return resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden &&
		strings.Contains(strings.Join(resp.Header.Values("Www-Authenticate"), ", "), "insufficient_scope")
}

func mediaType(resp *http.Response) string {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return kind
}

// A refusalError is an answer that is neither a success nor a JSON-RPC message.
type refusalError struct {
	status int
	text   string
	wait   time.Duration // until the server may serve us; 0 if it does not say
}

func (e *refusalError) Error() string { return "it answered " + e.text }

// legacy reports whether the refusal may mean that the server does not know the modern era.
func (e *refusalError) legacy() bool {
	return e.status/100 == 4 && e.status != http.StatusRequestTimeout && e.status != http.StatusTooManyRequests
}

// readRefusal reads an answer that is not a success.
func (h *remote) readRefusal(resp *http.Response, s *upstreamSession) error {
	defer resp.Body.Close()
	body, _ := bounded.ReadDocument(resp.Body, maxRefusal)
	switch {
	case wantsToken(resp):
		return h.unauthorised(resp)
	case resp.StatusCode == http.StatusNotFound && s.id != "":
		return errForgotten
	case resp.StatusCode/100 == 3:
		return tool.Errorf(tool.CodeUnavailable, "%s has moved to %s: put that address into the config", h.r.o.shown(),
			jsonrpc.Clip(resp.Header.Get("Location")))
	}
	var scan strictjson.Scanner
	text := resp.Status
	if m, err := jsonrpc.Decode(&scan, body); err == nil && m.Err != nil && resp.StatusCode != http.StatusTooManyRequests {
		e := &jsonrpc.Error{}
		if bad := strictjson.Unmarshal(m.Err, e); m.Version != nil || bad == nil && e.Code != 0 {
			return m.Failure()
		}
		text += ": " + string(m.Err) // of another API, or a proxy
	}
	return &refusalError{resp.StatusCode, jsonrpc.Clip(text), backoff.RetryAfter(resp.Header.Get("Retry-After"))}
}

// unauthorised returns the error for a request that the server refused for its credentials or their rights.
func (h *remote) unauthorised(resp *http.Response) error {
	if links := h.r.o.Walls.Injector.Credentials(); h.own && len(links) > 0 {
		return tool.Errorf(tool.CodeAccessDenied, "%s refuses the key of the connection %s (%s): connect it again%s",
			h.r.o.shown(), links[0].Connection, jsonrpc.Clip(resp.Status), links[0].Again).Because("connection_refused")
	}
	if h.tokens == nil {
		return tool.Errorf(tool.CodeAccessDenied, "%s refuses the credentials in `headers` (%s): set others with "+
			"`toolpost mcp add --replace --name %s --header ... URL`", h.r.o.shown(), jsonrpc.Clip(resp.Status), h.name).Because("credentials_refused")
	}
	tokens, ok := h.tokens.(*tokenStore)
	if !ok {
		return tool.Errorf(tool.CodeAccessDenied, "%s refuses the tokens that oauth.grant gets for it (%s): check the client's rights, and "+
			"oauth.scopes", h.r.o.shown(), jsonrpc.Clip(resp.Status)).Because(machine.Reason)
	}
	if err := tokens.storeRefusal(resp); err != nil {
		h.r.log.Warn("what the server asks for could not be kept for the next login", "error", err)
	}
	if resp.StatusCode == http.StatusForbidden {
		return tool.Errorf(tool.CodeAccessDenied,
			"%s wants more rights than the last login gave: run `toolpost mcp login %s`", h.r.o.shown(), h.name).
			Because(ReasonLogin)
	}
	why := "needs a login"
	if h.r.o.Walls.Injector != nil {
		why = "lists its tools only after a login, for which no caller's key is used"
	}
	return tool.Errorf(tool.CodeAccessDenied, "%s %s: run `toolpost mcp login %s`", h.r.o.shown(), why, h.name).Because(ReasonLogin)
}

// ReasonLogin is the reason of an error that requires a login.
const ReasonLogin = "login_required"

// explainError turns a transport error into one for people.
func (h *remote) explainError(err error) error {
	var known *tool.Error
	var refused *refusalError
	var dial *net.OpError
	switch {
	case err == nil, errors.As(err, &known), answeredError(err) != nil, errors.Is(err, errForgotten),
		errors.Is(err, errLegacy), errors.Is(err, jsonrpc.ErrAbandoned), errors.As(err, &refused):
		return err
	case errors.As(err, &dial) && dial.Op == "dial":
		return tool.Errorf(tool.CodeUnavailable, "nothing answers at %s (%w)", h.r.o.shown(), dial.Err)
	case untrusted(err): // nothing was sent
		return tool.Errorf(tool.CodeUnavailable, "there is no TLS connection to %s: %w", h.r.o.shown(), withoutURL(err))
	}
	if invalid := (*jsonrpc.InvalidError)(nil); errors.As(err, &invalid) {
		return tool.Errorf(tool.CodeProtocol,
			"the answer of %s is not valid: %s", h.r.o.shown(), jsonrpc.Misread(invalid.Err))
	}
	return tool.Errorf(tool.CodeCrash,
		"%s broke off before the request had an outcome; it may have been done: %w", h.r.o.shown(),
		withoutURL(err))
}

// untrusted reports whether a connection failed in TLS, before anything was sent on it.
func untrusted(err error) bool {
	_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
	_, record := errors.AsType[tls.RecordHeaderError](err)
	return certificate || record || errors.Is(err, http.ErrSchemeMismatch)
}

// explainRefusal turns a refusal that no code has handled into an error for people.
func (h *remote) explainRefusal(err error) error {
	refused := (*refusalError)(nil)
	switch {
	case errors.Is(err, errForgotten):
		return tool.Errorf(tool.CodeUnavailable, "%s forgets every session that it begins", h.r.o.shown())
	case !errors.As(err, &refused):
		return err
	case refused.status == http.StatusTooManyRequests || refused.status/100 == 5:
		e := tool.Errorf(tool.CodeUnavailable, "%s does not serve us now: %w", h.r.o.shown(), refused)
		if refused.wait > 0 {
			e = e.RetryAfter(refused.wait)
		}
		return e
	}
	return tool.Errorf(tool.CodeProtocol, "%s does not speak MCP over streamable HTTP there: %w; check the URL, which often "+
		"ends in /mcp, and what the server wants in its headers", h.r.o.shown(), refused)
}

// post posts a message without an answer.
func (h *remote) post(ctx context.Context, s *upstreamSession, line []byte) error {
	resp, err := h.send(ctx, s, http.MethodPost, nil, line)
	if err != nil {
		return err
	}
	_, _ = io.CopyN(io.Discard, resp.Body, maxRefusal)
	return resp.Body.Close()
}

// replies sends our answers to a legacy server. A modern server asks nothing.
type replies struct{ *remote }

// Send implements jsonrpc.Writer.
func (w replies) Send(ctx context.Context, _ <-chan struct{}, line []byte) error {
	s := w.current()
	if s == nil || s.modern {
		return jsonrpc.ErrUnsent
	}
	return w.post(ctx, s, line)
}

// abandoned tells a legacy server that a request is cancelled; a modern one sees its stream end.
func (h *remote) abandoned(q *jsonrpc.Request) {
	if q.Method != mcp.MethodInitialize && h.life.Err() == nil {
		h.conn.Tell(jsonrpc.EncodeNotification(mcp.NoteCancelled, fmt.Appendf(nil, `{"requestId":%d}`, q.ID)))
	}
}

func (h *remote) early(in *jsonrpc.Incoming) bool {
	return h.r.early(in, &h.questions, func(result []byte) { h.conn.Tell(jsonrpc.EncodeReply(in.ID, result, nil)) })
}

func (h *remote) serveFor(ctx context.Context, in *jsonrpc.Incoming, q *jsonrpc.Request) {
	u, _ := q.Tag.(*upstreamCall)
	h.serve(ctx, in, u)
}

// takeUnrelated serves a message that belongs to no request. It never blocks, since the reader has other messages to
// handle.
func (h *remote) takeUnrelated(in *jsonrpc.Incoming) error {
	select {
	case h.unrelated <- struct{}{}:
		h.running.Go(func() {
			defer func() { <-h.unrelated }()
			h.serve(h.life, in, nil)
		})
	default:
		h.conn.TooMany(in)
	}
	return nil
}

func (h *remote) serve(ctx context.Context, in *jsonrpc.Incoming, u *upstreamCall) {
	info := &serverInfo{}
	if s := h.current(); s != nil {
		info = s.serverInfo
	}
	if info.modern && in.ID != nil { // it cannot be answered, and the server may wait for that forever
		if u != nil {
			u.cancel(tool.Errorf(tool.CodeProtocol, "the server asks %s in the middle of a call, as it may not in %s",
				jsonrpc.Clip(in.Method), mcp.ModernVersion))
		}
		return
	}
	result, err := h.r.serve(in, u, info, &h.questions, nil)
	h.conn.Reply(ctx, in, result, err)
}

// logSkipped logs and skips an unusable message.
func (h *remote) logSkipped(_ *jsonrpc.Message, line []byte, why error) {
	h.r.log.Debug("a message of the server is skipped", "why", why, "line", jsonrpc.Clip(string(line)))
}

// close implements upstream.
func (h *remote) close(ctx context.Context) error {
	h.mu.Lock()
	s := h.session
	h.session = nil
	h.mu.Unlock()
	if s != nil && s.id != "" {
		ctx, cancel := context.WithTimeout(ctx, byeTime)
		if resp, err := h.send(ctx, s, http.MethodDelete, http.Header{}, nil); err == nil {
			_ = resp.Body.Close()
		}
		cancel()
	}
	h.end()
	h.conn.End(tool.Errorf(tool.CodeUnavailable, "%s is no longer used", h.r.o.shown()))
	h.running.Wait()
	h.client.CloseIdleConnections()
	return nil
}

// setModern sets the headers that repeat parts of a request.
func setModern(h http.Header, method, name string) {
	h.Set(mcp.HeaderVersion, mcp.ModernVersion)
	h.Set(mcp.HeaderMethod, method)
	if name != "" {
		h.Set(mcp.HeaderName, mcp.HeaderText(name))
	}
}
