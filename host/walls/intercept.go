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
	"toolpost/tool"
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
	host   *hostConn // nil before the first request
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
	for i.next() {
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
	_ = i.conn.SetReadDeadline(time.Time{}) // a body may take longer than its head
	i.head.over = true
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
	return i.forward(x, req, keep)
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

// forward sends a request to the host with the credential of the running call, and the answer without it.
func (i *intercepted) forward(x *connPair, req *http.Request, keep bool) (again bool) {
	if to := req.Header.Get("Upgrade"); to != "" && !strings.EqualFold(to, "h2c") { // a client goes on without h2c
		x.refuse(req, http.StatusNotImplemented, "an upgrade is refused at the host of a connection: what follows could not be read")
		return false
	}
	sent, err := x.inject.inject(x.ctx, request{i.to, i.secure, req.Method, req.URL}, req.Header)
	if status(err) == http.StatusForbidden {
		x.report(capCredential, message(err))
	}
	if err == nil {
		err = i.reach()
	}
	if err != nil {
		x.refuse(req, status(err), message(err))
		return false
	}
	again, whole := i.exchange(x, req, keep, sent)
	if whole && !again {
		x.part()
	}
	return again && whole && i.host.in.Buffered() == 0 // what comes after an answer belongs to none
}

// exchange passes a request on, and its answer. It reports whether another request can follow, and whether the child has the
// whole answer. What was asked with a key ends with the calls, however long the host goes on.
func (i *intercepted) exchange(x *connPair, req *http.Request, keep, withKey bool) (again, whole bool) {
	if withKey {
		stop := x.inject.withCalls(i.pair.abort)
		defer stop()
	}
	up := x.outgoing(req)
	req.Header.Set("Accept-Encoding", "identity")
	resp, err := i.host.roundTrip(i.pair, req, up)
	if err != nil {
		x.refuse(req, http.StatusBadGateway, silent)
		return false, false
	}
	defer resp.Body.Close()
	if err := x.inject.clean(resp); err != nil {
		x.refuse(req, http.StatusBadGateway, "the answer of the host cannot be searched for the key: "+err.Error())
		return false, false
	}
	again = keep && !resp.Close && i.host.wrote(i.pair, req, up)
	return again, x.answer(req, resp, again) == nil
}

// A hostConn is the proxy's connection to a host, which serves the requests of one connection of a child. net/http would log what
// comes after an answer, which may have the key.
type hostConn struct {
	*side
	conn net.Conn // with TLS, if the child speaks it
	head *head    // of an answer
	in   *bufio.Reader
	sent chan struct{} // closed when the last request was sent
}

// wrote reports whether all of a request was sent, so that another can follow.
func (h *hostConn) wrote(c *connPair, req *http.Request, up *upload) bool {
	if req.Body != http.NoBody && !up.ended.Load() {
		return false
	}
	select {
	case <-h.sent:
		return true
	case <-c.ctx.Done():
		return false
	}
}

// reach connects to the host, unless the connection of the request before is still open.
func (i *intercepted) reach() error {
	if i.host != nil {
		if half, _ := i.host.ended(); !half {
			return nil
		}
		_ = i.host.Close()
	}
	c := i.pair
	peer, err := c.connect(i.to)
	if err != nil {
		return err
	}
	i.host = &hostConn{side: peer, conn: peer}
	if i.secure {
		conn := tls.Client(peer, &tls.Config{ServerName: i.to.bare(), ClientSessionCache: c.inject.sessions, MinVersion: tls.VersionTLS12})
		ctx, cancel := context.WithTimeout(c.ctx, c.limits.connect)
		defer cancel()
		if err := conn.HandshakeContext(ctx); err != nil {
			_ = peer.Close()
			i.host = nil
			return untrusted(i.to, err)
		}
		i.host.conn = conn
	}
	i.host.head = &head{from: i.host.conn}
	i.host.in = bufio.NewReader(i.host.head)
	return nil
}

// untrusted explains why a host has no TLS.
func untrusted(t host, err error) error {
	if bad, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return tool.Errorf(tool.CodeUnavailable, "the certificate of %s is not trusted: %w", t, bad.Err)
	}
	return tool.Errorf(tool.CodeUnavailable, "there is no TLS connection to %s", t)
}

// roundTrip sends a request, and returns the answer without its body, which is read from the connection. The host may answer
// before it has the whole request.
func (h *hostConn) roundTrip(c *connPair, req *http.Request, up *upload) (*http.Response, error) {
	defer up.answered()
	req.Trailer = nil
	req.Header.Del("Expect")
	h.sent = make(chan struct{})
	send := func() {
		defer close(h.sent)
		if err := req.Write(h.conn); err != nil && up.bad.Load() {
			_ = h.Close()
		}
	}
	if req.Body == http.NoBody {
		send()
	} else {
		c.work.Go(send)
	}
	h.head.begin(nil)
	const most = 8 // interim answers, which no child has asked for
	for range most {
		resp, err := http.ReadResponse(h.in, req)
		if err != nil || resp.StatusCode/100 != 1 {
			h.head.over = true
			return resp, err
		}
		if resp.StatusCode == http.StatusSwitchingProtocols {
			break
		}
	}
	return nil, errors.New("the host does not answer the request")
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
	if resp.Body == http.NoBody || resp.Request.Method == http.MethodHead {
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
