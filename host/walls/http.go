package walls

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"toolpost/tool"
)

// serveHTTP answers one request. A request that is invalid to net/http or ambiguous is refused.
func (c *connPair) serveHTTP() {
	req, err := http.ReadRequest(c.in)
	if err != nil {
		c.refuseHead()
		return
	}
	t, err := c.target(req)
	if err != nil {
		c.refuse(req, http.StatusBadRequest, err.Error())
		return
	}
	connect := req.Method == http.MethodConnect
	if c.inject.covers(t) {
		if !connect {
			(&intercepted{pair: c, to: t}).forward(c, req, false)
			return
		}
		fmt.Fprint(c.child, established)
		c.intercept(t)
		return
	}
	if name := c.inject.mentioned(req.URL, req.Header); name != "" {
		why := fmt.Sprintf("the placeholder of connection %s was sent to %s, which is not one of its hosts", name, t)
		c.report(capCredential, why)
		c.refuse(req, http.StatusForbidden, why)
		return
	}
	peer, err := c.connect(t)
	switch {
	case err != nil:
		c.refuse(req, status(err), message(err))
	case connect:
		fmt.Fprint(c.child, established)
		c.tunnel(peer)
	default:
		c.forward(req, peer)
	}
}

const established = "HTTP/1.1 200 Connection established\r\n\r\n"

// message returns the text of an error for the program.
func message(err error) string { return tool.AsError(err).Message }

// status returns the HTTP status for a host that was not reached.
func status(err error) int {
	switch tool.CodeOf(err) {
	case tool.CodeAccessDenied:
		return http.StatusForbidden
	case tool.CodeTimeout:
		return http.StatusGatewayTimeout
	}
	return http.StatusBadGateway
}

// refuseHead answers input that is not a request.
func (c *connPair) refuseHead() {
	switch wait, ok := errors.AsType[net.Error](c.head.err); {
	case c.head.err == errHead:
		c.refuse(nil, http.StatusRequestHeaderFieldsTooLarge,
			fmt.Sprintf("the request has more than %d KiB before its body", maxHead>>10))
	case ok && wait.Timeout():
		c.refuse(nil, http.StatusRequestTimeout, "the request did not come in time")
	default:
		c.refuse(nil, http.StatusBadRequest, "this is no HTTP request, nor SOCKS5")
	}
}

// refuse answers with one line of text. The text is also the reason phrase, which is all that some clients show of the
// answer to CONNECT.
func (c *connPair) refuse(req *http.Request, status int, text string) {
	body := text + "\n"
	if req != nil && req.Method == http.MethodHead {
		body = ""
	}
	fmt.Fprintf(c.child, "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: "+
		"%d\r\nConnection: close\r\n\r\n%s",
		status, text, len(text)+1, body)
	c.part()
}

// unambiguous returns the headers of a request as the child sent them, and refuses what another program could read in
// another way.
func (c *connPair) unambiguous(req *http.Request) (textproto.MIMEHeader, error) {
	sent, err := c.sent()
	switch {
	case err != nil || req.ProtoMajor != 1:
		return nil, errors.New("only HTTP/1.0 and HTTP/1.1 are spoken here")
	case slices.ContainsFunc(slices.Collect(maps.Keys(sent)),
		func(name string) bool { return strings.Contains(name, " ") }):
		return nil, errors.New("the name of a header has a space in it")
	case sent.Get("Content-Length") != "" && sent.Get("Transfer-Encoding") != "":
		return nil, errors.New("the body has two lengths")
	}
	return sent, nil
}

// target returns the host of a request.
func (c *connPair) target(req *http.Request) (host, error) {
	connect, u := req.Method == http.MethodConnect, req.URL
	sent, err := c.unambiguous(req)
	switch {
	case err != nil:
		return host{}, err
	case u.User != nil:
		return host{}, errors.New("an address with a user in it is refused")
	case connect && (req.RequestURI != u.Host || u.Port() == ""):
		return host{}, errors.New("CONNECT takes host:port")
	case !connect && (u.Scheme != "http" || u.Hostname() == ""):
		return host{}, errors.New("this is a proxy: it takes a whole address, such as http://api.example.com/, and " +
			"CONNECT for https")
	case connect && (sent.Get("Content-Length") != "" || sent.Get("Transfer-Encoding") != ""):
		return host{}, errors.New("CONNECT takes no body")
	}
	port, err := parsePort(cmp.Or(u.Port(), "80"))
	if err != nil {
		return host{}, errors.New("the port is none")
	}
	t := newHost(u.Hostname(), port)
	if also := sent.Get("Host"); also != "" && !t.isAlso(also) {
		return host{}, errors.New("the header Host names another host than the address")
	}
	return t, nil
}

// sent returns the headers as the child sent them: net/http removes some.
func (c *connPair) sent() (textproto.MIMEHeader, error) {
	r := textproto.NewReader(bufio.NewReader(&c.head.kept))
	if _, err := r.ReadLine(); err != nil {
		return nil, err
	}
	return r.ReadMIMEHeader()
}

// isAlso reports whether the header Host names the same host. The port may be left out.
func (h host) isAlso(text string) bool {
	u, err := url.Parse("http://" + text)
	if err != nil || u.Host != text {
		return false
	}
	port, err := parsePort(cmp.Or(u.Port(), strconv.Itoa(int(h.port))))
	return err == nil && newHost(u.Hostname(), port) == h
}

// forward sends a request to its host, and the answer to the child.
func (c *connPair) forward(req *http.Request, peer *side) {
	conn := &asked{side: peer, spoken: make(chan struct{})}
	way := &http.Transport{
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return conn, nil },
		DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: maxHead,
		ExpectContinueTimeout: time.Second,
	}
	up := c.outgoing(req)
	resp, err := way.RoundTrip(req.WithContext(c.ctx))
	up.answered()
	if err != nil || resp.StatusCode == http.StatusSwitchingProtocols {
		c.refuse(req, http.StatusBadGateway, silent)
		return
	}
	defer resp.Body.Close()
	if c.answer(req, resp, false) == nil {
		c.part()
	}
}

const silent = "the host gave no answer that is HTTP"

// outgoing makes a request that the child sent one of ours, and returns its body.
func (c *connPair) outgoing(req *http.Request) *upload {
	up := &upload{Reader: req.Body, pair: c}
	if !req.ProtoAtLeast(1, 1) || !strings.EqualFold(req.Header.Get("Expect"), "100-continue") {
		up.answered()
	}
	if req.Body != http.NoBody {
		req.Body = up
	}
	dropHops(req.Header)
	if _, ok := req.Header["User-Agent"]; !ok {
		req.Header.Set("User-Agent", "") // otherwise net/http adds its own
	}
	req.RequestURI, req.Close, req.Host = "", false, req.URL.Host
	return up
}

// An asked host is read from only after something was written to it: net/http would log earlier data in the program's
// log.
type asked struct {
	*side
	once   sync.Once
	spoken chan struct{}
}

func (a *asked) Write(p []byte) (int, error) {
	a.once.Do(func() { close(a.spoken) })
	return a.side.Write(p)
}

func (a *asked) Read(p []byte) (int, error) {
	select {
	case <-a.spoken:
	case <-a.pair.ctx.Done():
	}
	return a.side.Read(p)
}

// An upload is the body of a request. If the child waits for 100 Continue, it gets it when the host wants the body.
type upload struct {
	io.Reader
	pair  *connPair
	ask   sync.Once   // done once the child must not get it any more
	ended atomic.Bool // all of it was read
	bad   atomic.Bool // it could not be read
}

func (u *upload) Read(p []byte) (int, error) {
	u.ask.Do(func() { fmt.Fprint(u.pair.child, "HTTP/1.1 100 Continue\r\n\r\n") })
	n, err := u.Reader.Read(p)
	if err != nil {
		u.ended.Store(err == io.EOF)
		u.bad.Store(err != io.EOF)
	}
	return n, err
}

// Close does nothing: net/http would read the rest, which never ends if the child does not end it.
func (*upload) Close() error { return nil }

// answered records that the child gets an answer now, or expects none.
func (u *upload) answered() { u.ask.Do(func() {}) }

// dropHops removes the hop-by-hop headers.
func dropHops(h http.Header) {
	for _, line := range h["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range []string{
		"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade",
	} {
		h.Del(name)
	}
}

// answer sends an answer to the child, each piece as soon as it comes. A truncated answer must not look complete.
func (c *connPair) answer(req *http.Request, resp *http.Response, keep bool) error {
	dropHops(resp.Header)
	minor := min(req.ProtoMinor, 1)
	length := resp.ContentLength
	switch {
	case req.Method == http.MethodHead, resp.StatusCode == http.StatusNoContent,
		resp.StatusCode == http.StatusNotModified:
		length = 0
	case length >= 0:
		resp.Header.Set("Content-Length", strconv.FormatInt(length, 10))
	case minor > 0:
		resp.Header.Set("Transfer-Encoding", "chunked")
	}
	if !keep {
		resp.Header.Set("Connection", "close")
	}
	var start bytes.Buffer
	fmt.Fprintf(&start, "HTTP/1.%d %03d %s\r\n", minor, resp.StatusCode, http.StatusText(resp.StatusCode))
	_ = resp.Header.Write(&start)
	start.WriteString("\r\n")
	_, err := c.child.Write(start.Bytes())
	switch {
	case err != nil || length == 0:
	case length < 0 && minor > 0:
		chunks := httputil.NewChunkedWriter(c.child)
		if _, err = io.Copy(chunks, resp.Body); err == nil {
			_, err = io.WriteString(c.child, "0\r\n\r\n")
		}
	default:
		_, err = io.Copy(c.child, resp.Body)
	}
	if err != nil {
		c.abort()
	}
	return err
}
