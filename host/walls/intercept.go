package walls

import (
	"bufio"
	"compress/gzip"
	"compress/zlib"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"toolpost/host/secret"
)

// intercepted is a connection of a child to a host of a connection of its source. The proxy reads its requests, one after
// the other, each of which must be for this host.
type intercepted struct {
	pair   *connPair
	to     host
	conn   net.Conn
	secure bool   // TLS ends here
	sni    string // the host that the child named in TLS
	head   *head
	in     *bufio.Reader
}

// intercept serves a child that asked for a host of a connection.
func (c *connPair) intercept(t host) {
	_ = c.child.SetReadDeadline(time.Now().Add(c.limits.head))
	c.head.over = true
	first, err := c.in.Peek(1)
	if err != nil {
		return
	}
	const handshake = 22 // the type of the first record of TLS
	i := &intercepted{pair: c, to: t, conn: &unread{c.child, c.in}, secure: first[0] == handshake}
	if i.secure && !i.endTLS() {
		return
	}
	i.head = &head{from: i.conn, over: true}
	i.in = bufio.NewReader(i.head)
	for i.next() { //nolint:revive // each request is served there
	}
}

// unread is a connection of which a part has been read.
type unread struct {
	*side
	in *bufio.Reader
}

func (u *unread) Read(p []byte) (int, error) { return u.in.Read(p) }

// CloseWrite ends the output to the child.
func (u *unread) CloseWrite() error {
	u.side.CloseWrite()
	return nil
}

// endTLS shakes hands with the child. A child that pins certificates ends the connection here.
func (i *intercepted) endTLS() bool {
	c := i.pair
	ca, err := c.inject.authority()
	if err != nil {
		return false
	}
	config, err := ca.config(i.to)
	if err != nil {
		return false
	}
	conn := tls.Server(i.conn, config)
	ctx, cancel := context.WithTimeout(c.ctx, c.limits.head)
	defer cancel()
	if err := conn.HandshakeContext(ctx); err != nil {
		if alert, ok := errors.AsType[*net.OpError](err); ok && alert.Op == "remote error" {
			c.report(capCredential, fmt.Sprintf("the program does not trust the certificate of its room for %s (%s): if it pins "+
				"certificates, set expose: true in the connection", i.to, alert.Err))
		}
		return false
	}
	i.conn, i.sni = conn, conn.ConnectionState().ServerName
	return true
}

// next serves the next request. It returns false after the last one.
func (i *intercepted) next() bool {
	c := i.pair
	_ = i.conn.SetReadDeadline(time.Now().Add(c.limits.next))
	if _, err := i.in.Peek(1); err != nil {
		return false
	}
	early, _ := i.in.Peek(i.in.Buffered())
	i.head.begin(early)
	_ = i.conn.SetReadDeadline(time.Now().Add(c.limits.head))
	x := &connPair{egress: c.egress, report: c.report, head: i.head, in: i.in, began: c.began}
	x.ctx, x.cancel = context.WithCancel(c.ctx)
	x.child = &side{Conn: i.conn, pair: x}
	again := i.serve(x)
	x.cancel()
	x.work.Wait()
	if x.broken.Load() {
		c.abort()
		return false
	}
	return again
}

// serve answers one request, which has a pair of its own.
func (i *intercepted) serve(x *connPair) (again bool) {
	req, err := http.ReadRequest(x.in)
	if err != nil {
		x.refuseHead()
		return false
	}
	if status, err := i.check(x, req); err != nil {
		if status == http.StatusMisdirectedRequest {
			x.report(capCredential, err.Error())
		}
		x.refuse(req, status, err.Error())
		return false
	}
	keep := !req.Close && req.ProtoAtLeast(1, 1)
	req.URL.Scheme, req.URL.Host = "http", strings.TrimSuffix(i.to.String(), ":80")
	if i.secure {
		req.URL.Scheme, req.URL.Host = "https", strings.TrimSuffix(i.to.String(), ":443")
	}
	return x.forwardWith(req, i.to, keep)
}

// check refuses a request that is ambiguous, or for another host than the connection.
func (i *intercepted) check(x *connPair, req *http.Request) (status int, err error) {
	sent, err := x.unambiguous(req)
	switch host := req.Host; {
	case err != nil:
		return http.StatusBadRequest, err
	case !strings.HasPrefix(req.RequestURI, "/") && (req.RequestURI != "*" || req.Method != http.MethodOptions):
		return http.StatusBadRequest, errors.New("inside a connection a request has a path, not an address")
	case len(sent["Host"]) > 1, host == "" && req.ProtoAtLeast(1, 1):
		return http.StatusBadRequest, errors.New("a request has one header Host")
	case host != "" && !i.to.isAlso(host):
		return http.StatusMisdirectedRequest, fmt.Errorf("the connection is to %s, and the header Host names another host", i.to)
	case i.sni != "" && newHost(i.sni, i.to.port) != i.to:
		return http.StatusMisdirectedRequest, fmt.Errorf("the connection is to %s, and the name in TLS (SNI) is another", i.to)
	}
	return 0, nil
}

// forwardWith sends a request to a host of a connection with the credential of the running call, and the answer without it.
func (c *connPair) forwardWith(req *http.Request, t host, keep bool) (again bool) {
	secure := req.URL.Scheme == "https"
	if to := req.Header.Get("Upgrade"); to != "" && !strings.EqualFold(to, "h2c") { // a client goes on without h2c
		c.refuse(req, http.StatusNotImplemented, "an upgrade is refused at the host of a connection: what follows could not be read")
		return false
	}
	err := c.inject.inject(c.ctx, request{t, secure, req.Method, req.URL}, req.Header)
	if err == nil {
		var peer *side
		if peer, err = c.connect(t); err == nil {
			req.Header.Set("Accept-Encoding", "identity")
			return c.forward(req, peer, forwarding{clean: c.inject.clean, secure: c.inject.toward(secure), keep: keep})
		}
	} else if status(err) == http.StatusForbidden {
		c.report(capCredential, message(err))
	}
	c.refuse(req, status(err), message(err))
	return false
}

// toward returns how the proxy speaks TLS to hosts; nil without TLS.
func (in *Injector) toward(secure bool) *tls.Config {
	if !secure {
		return nil
	}
	return &tls.Config{ClientSessionCache: in.sessions, MinVersion: tls.VersionTLS12}
}

// clean takes the values out of a response, and puts the placeholders there. A body in an encoding that cannot be read is
// an error.
func (in *Injector) clean(resp *http.Response) error {
	if in.redactor.Idle() {
		return nil
	}
	for name, values := range resp.Header {
		if in.redactor.String(name) != name {
			delete(resp.Header, name)
			continue
		}
		for i, text := range values {
			values[i] = in.redactor.String(text)
		}
	}
	if resp.Body == nil || resp.Body == http.NoBody || resp.Request.Method == http.MethodHead {
		return nil
	}
	from, err := decoded(resp)
	if err != nil {
		return err
	}
	resp.Header.Del("Content-Length")
	resp.Header.Del("Content-Encoding")
	resp.ContentLength = -1
	resp.Body = &cleaned{Closer: resp.Body, from: from, stream: secret.Stream{Redactor: &in.redactor}}
	return nil
}

// decoded returns the body of a response as it was before it was compressed.
func decoded(resp *http.Response) (io.Reader, error) {
	switch coding := strings.ToLower(strings.Join(resp.Header.Values("Content-Encoding"), ",")); coding {
	case "", "identity":
		return resp.Body, nil
	case "gzip", "x-gzip":
		return gzip.NewReader(resp.Body)
	case "deflate":
		return zlib.NewReader(resp.Body)
	default:
		return nil, fmt.Errorf("it is encoded as %.40q although that was not asked for", coding)
	}
}

// cleaned is a body without the values that were sent. A value may be spread over several reads.
type cleaned struct {
	io.Closer
	from   io.Reader
	stream secret.Stream
	piece  [16 << 10]byte
	ready  string
	err    error
}

func (c *cleaned) Read(p []byte) (int, error) {
	for c.ready == "" {
		if c.err != nil {
			return 0, c.err
		}
		n, err := c.from.Read(c.piece[:])
		c.ready = c.stream.Write(string(c.piece[:n]))
		if c.err = err; err != nil {
			c.ready += c.stream.Pause()
		}
	}
	n := copy(p, c.ready)
	c.ready = c.ready[n:]
	return n, nil
}
