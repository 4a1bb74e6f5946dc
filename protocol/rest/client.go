package rest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"io"
	"iter"
	"mime"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"toolpost/identity"
	"toolpost/tool"
	"toolpost/web"
	"toolpost/wire/bounded"
	"toolpost/wire/envelope"
	"toolpost/wire/listing"
	"toolpost/wire/sse"
	"toolpost/wire/strictjson"
)

// A Client is the tools of another Toolpost, over HTTP. The token determines the caller there, not the Principal of a
// call here.
type Client struct {
	name    string // the address, for messages
	base    string // without a slash at the end
	token   string
	http    *http.Client
	silence time.Duration // a stream without a message or keep-alive for so long has ended
}

var (
	_ tool.Runner  = (*Client)(nil)
	_ tool.Source  = (*Client)(nil)
	_ tool.Catalog = (*Client)(nil)
)

const (
	maxListing   = 64 << 20
	maxProblem   = 1 << 20
	cancelWithin = 2 * time.Second // how long a cancelled call may delay its caller
	drainWithin  = time.Second     // how long we wait for a stream to end after its last message
)

// Dial returns a client of the server at an address such as http://127.0.0.1:8700, https://tools.example.org or
// unix:/run/toolpost.sock. The authorities in the file ca vouch for its certificate; by default those of this machine
// do. Nothing is sent yet.
func Dial(address, token, ca string) (*Client, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	believed, err := SourceOptions{URL: address, CA: ca}.tls(dir)
	if err != nil {
		return nil, err
	}
	return dial(address, token, believed)
}

// dial is Dial with a TLS config, or nil for the machine's authorities and no client certificate.
func dial(address, token string, believed *tls.Config) (*Client, error) {
	if err := envelope.CheckText(token); err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the token for %s cannot be sent: it %w", address, err)
	}
	transport := newTransport(believed)
	base := "http://localhost"
	if path, ok := strings.CutPrefix(address, web.UnixPrefix); ok {
		transport.Proxy, transport.DialContext = nil, dialSocket(path)
	} else {
		u, err := parseAddress(address)
		if err != nil {
			return nil, err
		}
		base = strings.TrimSuffix(u.String(), "/")
		address = base
	}
	return &Client{
		name: address, base: base, token: token, silence: time.Minute,
		http: &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// Running returns the digest of the config that the server runs, if the address is its socket for commands.
func (c *Client) Running(ctx context.Context) (config string, err error) {
	body, err := c.get(ctx, runningPath)
	if err == nil {
		err = strictjson.Unmarshal(body, &config)
	}
	return config, err
}

// SignIn returns the providers with which people sign in at the server.
func (c *Client) SignIn(ctx context.Context) (offers identity.Offers, err error) {
	body, err := c.get(ctx, "/v1/signin")
	if err == nil {
		err = strictjson.Unmarshal(body, &offers)
	}
	return offers, err
}

// maxAsset bounds the assets that are read into memory; a store keeps none that are larger.
const maxAsset = 256 << 20

// Asset returns an asset that a call of this caller has produced, whose digest it checks, and a name for its file, which is
// safe whatever the tool has chosen.
func (c *Client) Asset(ctx context.Context, a tool.Asset) (name string, content []byte, err error) {
	if !isDigest(a.SHA256) {
		return "", nil, tool.Errorf(tool.CodeProtocol, "the asset %.100q has no digest", a.AssetID)
	}
	if a.Size > maxAsset { // the server chooses it
		return "", nil, tool.Errorf(tool.CodeUnsupported, "the asset %.100q has %d bytes, and at most %d are copied; fetch it with curl from "+
			"%s/v1/assets/%s", a.AssetID, a.Size, maxAsset, c.name, a.SHA256)
	}
	resp, err := c.ask(ctx, http.MethodGet, "/v1/assets/"+a.SHA256, http.Header{}, nil)
	if err != nil {
		return "", nil, err
	}
	defer resp.Body.Close()
	content, err = io.ReadAll(io.LimitReader(resp.Body, a.Size))
	if sum := sha256.Sum256(content); err == nil && hex.EncodeToString(sum[:]) != a.SHA256 {
		err = tool.Errorf(tool.CodeProtocol, "the content of the asset %.100q has another digest than its event", a.AssetID)
	}
	_, ext, _ := shownAs(a.MediaType)
	return fileName(a, ext), content, err
}

func parseAddress(address string) (*url.URL, error) {
	if !strings.Contains(address, "://") { // as people type addresses, and as `serve --listen` takes them
		return parseBare(address)
	}
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return nil, tool.Errorf(tool.CodeInvalidInput, "the server's address cannot be read: %w", err)
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, tool.Errorf(tool.CodeInvalidInput,
			"%q is not the address of a server: write it like http://127.0.0.1:8700, or unix:PATH", address)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, tool.Errorf(tool.CodeInvalidInput,
			"the server's address may have a host and a path, and nothing else; the token goes elsewhere")
	}
	return u, nil
}

// parseBare reads HOST:PORT. On this machine that means http. Anywhere else we do not guess, since a token could go
// over an unsafe connection.
func parseBare(address string) (*url.URL, error) {
	host, port, err := net.SplitHostPort(address)
	if _, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || strings.ContainsAny(host, "/?#@ ") {
		return nil, tool.Errorf(tool.CodeInvalidInput,
			"%.200q is not the address of a server: write it like http://127.0.0.1:8700, or unix:PATH", address)
	}
	if host != "localhost" && !net.ParseIP(host).IsLoopback() {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%q does not say how to speak to the server: write https://%s, or "+
			"http://%s if the network between is trusted", address, address, address)
	}
	return &url.URL{Scheme: "http", Host: address}, nil
}

// dialSocket connects to a Unix socket and ignores the requested host.
func dialSocket(path string) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		path, err := filepath.Abs(path) // a name that begins with @ would not be a file's
		if err != nil {
			return nil, err
		}
		path, release, err := web.ShortPath(path)
		if err != nil {
			return nil, err
		}
		defer release()
		return (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, "unix", path)
	}
}

func newTransport(believed *tls.Config) *http.Transport {
	return &http.Transport{
		TLSClientConfig:       believed,
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: 30 * time.Second, // the door sends headers before the tool begins
		IdleConnTimeout:       30 * time.Second, // before the door's, so that we never write to a connection that it is closing
		MaxIdleConnsPerHost:   64,
		DisableCompression:    true,
	}
}

// Close closes idle connections.
func (c *Client) Close(context.Context) error {
	c.http.CloseIdleConnections()
	return nil
}

// Invoke runs a call there. Its events come as they happen; when ctx ends the call is cancelled there too.
func (c *Client) Invoke(ctx context.Context, call *tool.Call, out tool.Sink) (*tool.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, tool.AsError(err)
	}
	named := *call
	if !envelope.ValidID(named.ID) {
		named.ID = tool.NewID()
	}
	reading, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	resp, err := c.post(reading, &named)
	if err != nil {
		if ctx.Err() != nil {
			c.cancel(ctx, named.ID)
		}
		return nil, err
	}
	defer resp.Body.Close()
	f := &following{out: out, body: c.watch(resp.Body, stop)}
	r, err := f.run(resp.Header)
	if f.ended {
		return r, err
	}
	stop(nil) // the door notices; a proxy in between may not pass it on, so we also send a request
	c.cancel(ctx, named.ID)
	if ctx.Err() != nil && !f.refused {
		err = tool.AsError(ctx.Err())
	}
	return nil, err
}

func (c *Client) post(ctx context.Context, call *tool.Call) (*http.Response, error) {
	path, err := toolPath(call.Tool)
	if err != nil {
		return nil, err
	}
	h := http.Header{"Content-Type": {typeJSON}, "Accept": {web.TypeStream}}
	if err := envelope.Write(h, call, envelope.Left(ctx)); err != nil {
		return nil, err
	}
	return c.ask(ctx, http.MethodPost, path+"/call", h, call.Args)
}

// A following reads the stream of one call.
type following struct {
	body    *watched
	out     tool.Sink
	ended   bool // the last message has arrived
	refused bool // the sink wants no more events
}

func (f *following) run(h http.Header) (*tool.Result, error) {
	if kind, _, _ := mime.ParseMediaType(h.Get("Content-Type")); kind != web.TypeStream {
		return nil, tool.Errorf(tool.CodeProtocol,
			"the server answered with %q and not with a stream of events: is it a toolpost server?", kind)
	}
	messages := sse.New(f.body, maxMessage)
	for {
		m, err := messages.Next()
		if err != nil {
			return nil, brokenStream(err)
		}
		switch m.Name {
		case eventResult, eventNoOutcome:
			f.ended = true
			f.drain()
			return outcome(m)
		}
		e, err := decodeEvent(m)
		if err != nil {
			return nil, tool.Errorf(tool.CodeProtocol, "the server sent an event that cannot be read: %w", err)
		}
		if err := f.out.Emit(e); err != nil {
			f.refused = true
			return nil, err
		}
	}
}

// drain reads the end of the stream, so that the connection can be reused.
func (f *following) drain() {
	f.body.patience = drainWithin
	_, _ = io.CopyN(io.Discard, f.body, 4<<10)
}

func outcome(m sse.Event) (*tool.Result, error) {
	if m.Name == eventResult {
		r, err := decodeResult(m.Data)
		if err != nil {
			return nil, tool.Errorf(tool.CodeProtocol, "the server sent a result that cannot be read: %w", err)
		}
		return r, nil
	}
	e, err := decodeProblem(m.Data)
	if err != nil {
		return nil, tool.Errorf(tool.CodeProtocol, "the server sent an error that cannot be read: %w", err)
	}
	return nil, e
}

func brokenStream(err error) error {
	var limit *bounded.LimitError
	if errors.As(err, &limit) {
		return tool.Errorf(tool.CodeProtocol, "the server's stream is out of bounds: %w", err)
	}
	return tool.Errorf(tool.CodeCrash,
		"the connection to the server broke before the call had an outcome; it may have run: %w", err)
}

// A watched body ends the request when nothing arrives for a while. The time between two reads does not count.
type watched struct {
	io.Reader
	timer    *time.Timer
	patience time.Duration
}

func (c *Client) watch(body io.Reader, stop context.CancelCauseFunc) *watched {
	timer := time.AfterFunc(c.silence, func() { stop(errSilent) })
	timer.Stop()
	return &watched{body, timer, c.silence}
}

var errSilent = errors.New("it gave no sign of life")

func (w *watched) Read(p []byte) (int, error) {
	w.timer.Reset(w.patience)
	defer w.timer.Stop()
	return w.Reader.Read(p)
}

// cancel tells the server to end a call. It is a courtesy: the server also sees the connection close.
func (c *Client) cancel(ctx context.Context, id string) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), cancelWithin)
	defer stop()
	if resp, err := c.ask(ctx, http.MethodDelete, "/v1/calls/"+id, http.Header{}, nil); err == nil {
		_ = resp.Body.Close()
	}
}

// Tools implements tool.Source: every tool there, also those that cannot be called at the moment. The server gives the
// reason when they are called.
func (c *Client) Tools(ctx context.Context) ([]*tool.Spec, error) {
	l, err := c.list(ctx)
	if err != nil {
		return nil, err
	}
	var specs []*tool.Spec
	for _, e := range l.Tools {
		s, _, err := listing.Decode(e)
		if err != nil {
			return nil, c.unreadable(err)
		}
		specs = append(specs, s)
	}
	return specs, nil
}

// Lookup implements tool.Catalog.
func (c *Client) Lookup(ctx context.Context, _ tool.Principal, name string) (*tool.Spec, error) {
	s, _, err := c.entry(ctx, name)
	return s, err
}

// WhyNot implements tool.Reasoner.
func (c *Client) WhyNot(ctx context.Context, _ tool.Principal, name string) error {
	_, why, err := c.entry(ctx, name)
	if err != nil && tool.CodeOf(err) != tool.CodeNotFound {
		return err
	}
	return why
}

// entry asks for one tool.
func (c *Client) entry(ctx context.Context, name string) (s *tool.Spec, why, err error) {
	path, err := toolPath(name)
	if err != nil {
		return nil, nil, err
	}
	body, err := c.get(ctx, path)
	if err != nil {
		return nil, nil, err
	}
	if s, why, err = listing.Decode(body); err != nil {
		return nil, nil, c.unreadable(err)
	}
	return s, why, nil
}

// Specs implements tool.Catalog. A server that cannot be reached is yielded as a source without tools.
func (c *Client) Specs(ctx context.Context, _ tool.Principal) iter.Seq2[*tool.Spec, error] {
	return func(yield func(*tool.Spec, error) bool) {
		l, err := c.list(ctx)
		if err != nil {
			yield(&tool.Spec{Source: c.name, Protocol: "rest"}, err)
			return
		}
		for _, e := range append(l.Failed, l.Tools...) {
			s, why, err := listing.Decode(e)
			if err != nil {
				s, why = &tool.Spec{Source: c.name, Protocol: "rest"}, c.unreadable(err)
			}
			if !yield(s, why) {
				return
			}
		}
	}
}

func (c *Client) list(ctx context.Context) (*toolList, error) {
	body, err := c.get(ctx, "/v1/tools")
	if err != nil {
		return nil, err
	}
	var l toolList
	if err := strictjson.Unmarshal(body, &l); err != nil {
		return nil, c.unreadable(err)
	}
	return &l, nil
}

func (c *Client) unreadable(err error) error {
	return tool.Errorf(tool.CodeProtocol, "%s describes its tools in a way that cannot be read: %w", c.name, err)
}

func (c *Client) get(ctx context.Context, path string) ([]byte, error) {
	ctx, stop := context.WithTimeout(ctx, c.silence)
	defer stop()
	resp, err := c.ask(ctx, http.MethodGet, path, http.Header{}, nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := bounded.ReadDocument(resp.Body, maxListing)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, tool.AsError(ctx.Err())
	case err != nil:
		return nil, c.unreadable(err)
	}
	return body, nil
}

// toolPath refuses names that a path cannot carry; no tool has one.
func toolPath(name string) (string, error) {
	if name == "" || name == "." || name == ".." {
		return "", tool.Errorf(tool.CodeNotFound, "no tool named %q", name)
	}
	return "/v1/tools/" + url.PathEscape(name), nil
}

// ask sends a request, and returns an error for people if there is no answer or it is not a success.
func (c *Client) ask(ctx context.Context, method, path string, h http.Header, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "cannot ask %s: %w", c.name, err)
	}
	req.Header = h
	if c.token != "" {
		h.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	switch {
	case err == nil && resp.StatusCode/100 == 2:
		return resp, nil
	case err == nil:
		return nil, c.failure(resp)
	case ctx.Err() != nil:
		return nil, tool.AsError(ctx.Err())
	}
	var asked *url.Error
	if errors.As(err, &asked) {
		err = asked.Err
	}
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return nil, tool.Errorf(tool.CodeUnavailable, "nothing answers at %s (%w): is `toolpost serve` running there?",
			c.name, dial.Err)
	}
	if unknown, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return nil, tool.Errorf(tool.CodeUnavailable, "the certificate of %s cannot be trusted: %w; name the file with its "+
			"authority, on the command line with --ca, in a source with `ca`", c.name, unknown)
	}
	return nil, tool.Errorf(tool.CodeUnavailable, "%s did not answer: %w", c.name, err)
}

// failure reads the body of an answer that is not a success.
func (c *Client) failure(resp *http.Response) error {
	defer resp.Body.Close()
	body, _ := bounded.ReadDocument(resp.Body, maxProblem)
	e, err := decodeProblem(body)
	if err != nil {
		return tool.Errorf(tool.CodeProtocol, "%s answered %s and not in our words: is it a toolpost server?", c.name,
			resp.Status)
	}
	return e
}
