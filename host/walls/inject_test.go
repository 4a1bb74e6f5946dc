package walls

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

const key = "canary-5f2b9c07e1d84a36"

// api is an HTTPS API that notes the Authorization of each request, and returns it in the ways that a test asks for.
type api struct {
	address string
	*httptest.Server
	mu  sync.Mutex
	got []string
}

func newAPI(t testing.TB, start func(http.Handler) *httptest.Server) *api {
	t.Helper()
	a := &api{}
	a.Server = start(a)
	t.Cleanup(a.Close)
	a.address = a.Listener.Addr().String()
	return a
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	got := r.Header.Get("Authorization")
	a.mu.Lock()
	a.got = append(a.got, got)
	a.mu.Unlock()
	switch r.URL.Path {
	case "/gzip":
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		fmt.Fprint(z, got)
		z.Close()
	case "/br":
		w.Header().Set("Content-Encoding", "br")
		fmt.Fprint(w, got)
	case "/split":
		for _, c := range got {
			fmt.Fprintf(w, "%c", c)
			_ = http.NewResponseController(w).Flush()
		}
	case "/header":
		w.Header().Set("X-Echo", got)
		http.SetCookie(w, &http.Cookie{Name: "key", Value: got})
	case "/error":
		http.Error(w, "bad key "+got, http.StatusUnauthorized)
	case "/redirect":
		http.Redirect(w, r, "https://elsewhere.example/?key="+url.QueryEscape(got), http.StatusFound)
	case "/base64":
		fmt.Fprint(w, base64.StdEncoding.EncodeToString([]byte("echo "+got)))
	case "/headers":
		fmt.Fprintf(w, "%s %q", r.Host, r.Header)
	default:
		fmt.Fprint(w, got)
	}
}

// arrived returns what the API got so far.
func (a *api) arrived() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.got)
}

// credential is one of the caller ada, whose value is key.
func credential(hosts ...string) *tool.Credential {
	return &tool.Credential{
		Connection: "api", Hosts: hosts, Env: "API_KEY",
		Value: func(context.Context) (string, error) { return key, nil },
	}
}

// instance is an injector with a room that uses it.
type instance struct {
	*Injector
	*room
	egress *egress
	watch  *Watch
	t      testing.TB
}

func newInstance(t testing.TB, c *tool.Credential, others ...string) *instance {
	t.Helper()
	return newInstanceOf(t, []*tool.Credential{c}, others...)
}

func newInstanceOf(t testing.TB, all []*tool.Credential, others ...string) *instance {
	t.Helper()
	in := kit.Must(NewInjector(all, "ada"))(t)
	t.Cleanup(in.Close)
	w := kit.Must(Options{Injector: in, Network: others}.Around(Needs{Dir: "/"}))(t)
	w.egress.resolves(map[string]string{"example.com": "127.0.0.1", "other.example": "127.0.0.1"})
	w.egress.limits.part = hang
	w.egress.limits.look = 5 * time.Millisecond
	i := &instance{Injector: in, egress: w.egress, watch: &Watch{}, t: t}
	i.room = w.egress.room(t, i.watch)
	return i
}

func (i *instance) placeholder() string { return i.links[0].placeholder }

// call makes credentials available until the returned function is called.
func (i *instance) call(all ...*tool.Credential) (done func()) {
	i.t.Helper()
	return kit.Must(i.Begin(&tool.Call{Tool: "ask", Caller: tool.Principal{ID: "ada"}, Notes: tool.Notes{Credentials: all}}))(i.t)
}

// trusts is the TLS of a program in the room.
func (i *instance) trusts(name string) *tls.Config {
	i.t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(kit.Must(os.ReadFile(i.ca.bundle))(i.t))
	return &tls.Config{RootCAs: pool, ServerName: name, MinVersion: tls.VersionTLS12}
}

// client is one of a program in the room; it sends the placeholder as its key.
func (i *instance) web(proxy string) *http.Client {
	c := i.room.client(proxy)
	way := c.Transport.(*http.Transport)
	way.TLSClientConfig = i.trusts("")
	way.DisableCompression = true
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return c
}

func (i *instance) get(c *http.Client, address string, header ...string) (*http.Response, string) {
	i.t.Helper()
	req := kit.Must(http.NewRequest(http.MethodGet, address, nil))(i.t)
	for at := 0; at+1 < len(header); at += 2 {
		req.Header.Set(header[at], header[at+1])
	}
	resp := kit.Must(c.Do(req))(i.t)
	defer resp.Body.Close()
	return resp, string(kit.Must(io.ReadAll(resp.Body))(i.t))
}

func TestKeyReachesTheHostInPlaceOfThePlaceholder(t *testing.T) {
	tooltest.NoLeaks(t)
	a := newAPI(t, httptest.NewTLSServer)
	used := ""
	cred := credential(a.address)
	cred.Used = func(host string) { used = host }
	i := newInstance(t, cred)
	defer i.call(cred)()
	for _, proxy := range []string{"http", "socks5"} {
		c := i.web(proxy)
		_, body := i.get(c, "https://"+a.address+"/", "Authorization", "Bearer "+i.placeholder())
		kit.Equal(t, body, "Bearer "+i.placeholder())
		basic := base64.StdEncoding.EncodeToString([]byte("x:" + i.placeholder()))
		i.get(c, "https://"+a.address+"/", "Authorization", "Basic "+basic)
		i.get(c, "https://"+a.address+"/")
	}
	basic := "Basic " + base64.StdEncoding.EncodeToString([]byte("x:"+key))
	kit.EqualSlices(t, a.arrived(), []string{"Bearer " + key, basic, "", "Bearer " + key, basic, ""})
	kit.Equal(t, used, a.address)
	if len(i.watch.Checks()) > 0 {
		t.Error(i.watch.Checks())
	}
}

// An instance that always has calls never ends, and its programs trust the certificate of their start.
func TestCertificateOutlivesABusyInstance(t *testing.T) {
	a := newAPI(t, httptest.NewTLSServer)
	cred := credential(a.address)
	i := newInstance(t, cred)
	defer i.call(cred)()
	c := i.web("http")
	c.Transport.(*http.Transport).TLSClientConfig.Time = func() time.Time { return time.Now().AddDate(2, 0, 0) }
	_, body := i.get(c, "https://"+a.address+"/", "Authorization", "Bearer "+i.placeholder())
	kit.Equal(t, body, "Bearer "+i.placeholder())
}

func TestHeaderOfAConnectionIsSetIfItIsMissing(t *testing.T) {
	a := newAPI(t, httptest.NewServer)
	cred := credential(a.address)
	cred.Header = "Authorization: token {key}"
	i := newInstance(t, cred)
	c := i.web("http")
	done := i.call(cred)
	i.get(c, "http://"+a.address+"/")
	i.get(c, "http://"+a.address+"/", "Authorization", "Bearer mine")
	done()
	i.get(c, "http://"+a.address+"/")
	kit.EqualSlices(t, a.arrived(), []string{"token " + key, "Bearer mine", ""})
}

func TestAnswersDoNotHaveTheKey(t *testing.T) {
	tooltest.NoLeaks(t)
	a := newAPI(t, httptest.NewTLSServer)
	cred := credential(a.address)
	i := newInstance(t, cred)
	defer i.call(cred)()
	c := i.web("http")
	coded := base64.StdEncoding.EncodeToString([]byte(key))[4:20]
	for _, path := range []string{"/", "/gzip", "/split", "/header", "/error", "/redirect", "/base64", "/br"} {
		resp, body := i.get(c, "https://"+a.address+path, "Authorization", "Bearer "+i.placeholder(), "Range", "bytes=0-3")
		all := fmt.Sprint(resp.Header, body)
		if strings.Contains(all, key[8:16]) || strings.Contains(all, coded) {
			t.Errorf("%s: %s", path, all)
		}
		if path == "/br" {
			kit.Equal(t, resp.StatusCode, http.StatusBadGateway)
		} else if !strings.Contains(all, i.placeholder()) {
			t.Errorf("%s: %s", path, all)
		}
	}
	kit.Equal(t, len(a.arrived()), 8)
	_, body := i.get(c, a.URL+"/headers", "Authorization", "Bearer "+i.placeholder(), "Range", "bytes=0-3", "If-Range", "x")
	kit.Contains(t, body, "identity")
	kit.Equal(t, strings.Contains(body, "Range"), false, body)
}

func TestPartsOfAnAnswerAreNotAskedFor(t *testing.T) {
	tooltest.NoLeaks(t)
	for name, start := range map[string]func(http.Handler) *httptest.Server{"TLS": httptest.NewTLSServer, "plain": httptest.NewServer} {
		t.Run(name, func(t *testing.T) {
			stored := "" // of an earlier request, as a log has it
			a := start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if auth := r.Header.Get("Authorization"); auth != "" {
					stored = auth
				}
				if r.Header.Get("If-Range")+r.Header.Get("Request-Range") != "" {
					t.Error(r.Header)
				}
				http.ServeContent(w, r, "log.txt", time.Time{}, strings.NewReader(stored))
			}))
			t.Cleanup(a.Close)
			cred := credential(a.Listener.Addr().String())
			i := newInstance(t, cred)
			done := i.call(cred)
			c := i.web("http")
			i.get(c, a.URL, "Authorization", "Bearer "+i.placeholder())
			part := func() {
				resp, body := i.get(c, a.URL, "Range", "bytes=0-14", "Request-Range", "bytes=0-14")
				kit.Equal(t, resp.StatusCode, http.StatusOK)
				kit.Equal(t, body, "Bearer "+i.placeholder())
				i.get(c, a.URL, "Range", "bytes=0-14", "If-Range", `"tag"`)
			}
			part()
			done()
			part() // after the call too
		})
	}
}

func TestHeadersThatOverrideMethodOrPathAreDropped(t *testing.T) {
	a := newAPI(t, httptest.NewTLSServer)
	for name, limit := range map[string]func(*tool.Credential){
		"methods": func(c *tool.Credential) { c.Methods = []string{"GET"} },
		"paths":   func(c *tool.Credential) { c.Paths = []string{"/headers"} },
		"neither": func(*tool.Credential) {},
	} {
		t.Run(name, func(t *testing.T) {
			cred := credential(a.address)
			limit(cred)
			i := newInstance(t, cred)
			defer i.call(cred)()
			c := i.web("http")
			for _, header := range []string{
				"X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override", "X-Original-URL", "X-Rewrite-URL",
				"X_HTTP_Method_Override",
			} {
				resp, body := i.get(c, a.URL+"/headers", "Authorization", i.placeholder(), header, "override")
				kit.Equal(t, resp.StatusCode, http.StatusOK)
				kit.Equal(t, strings.Contains(body, "override"), name == "neither", header)
			}
		})
	}
}

// raw sends a text after CONNECT, over TLS if a name is given, and returns what comes back.
func (i *instance) raw(target, sni, text string) string {
	i.t.Helper()
	conn := i.dial()
	fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target)
	in := bufio.NewReader(conn)
	answer, err := in.ReadString('\n')
	kit.OK(i.t, err)
	if !strings.Contains(answer, " 200 ") {
		rest, _ := io.ReadAll(in)
		return answer + string(rest)
	}
	_ = kit.Must(in.ReadString('\n'))(i.t)
	var c net.Conn = conn
	if sni != "" {
		config := i.trusts(sni)
		config.InsecureSkipVerify = true
		c = tls.Client(conn, config)
	}
	_, _ = io.WriteString(c, text)
	back, err := io.ReadAll(c)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		back = append(back, err.Error()...)
	}
	return string(back)
}

func TestPlaceholderIsOfNoUseElsewhere(t *testing.T) {
	tooltest.NoLeaks(t)
	a, plain, other := newAPI(t, httptest.NewTLSServer), newAPI(t, httptest.NewServer), newAPI(t, httptest.NewServer)
	port := kit.Must(url.Parse(a.URL))(t).Port()
	named := "example.com:" + port
	cred := credential(named, a.address)
	cred.Methods, cred.Paths = []string{"GET"}, []string{"/repos/*"}
	i := newInstance(t, cred, other.address, plain.address)
	foreign := newInstance(t, cred)
	defer foreign.call(cred)()
	p := i.placeholder()
	auth := "\r\nConnection: close\r\nAuthorization: Bearer " + p + "\r\n"
	get := "GET /repos/1 HTTP/1.1\r\nHost: " + named + auth
	for _, c := range []struct {
		what              string
		target, sni, text string
		idle              bool // no call runs
		says, reported    string
	}{
		{"allowed", named, "example.com", get + "\r\n", false, "200 OK", ""},
		{"allowed without SNI of a name", a.address, "127.0.0.1", strings.ReplaceAll(get, named, a.address) + "\r\n", false, "200 OK", ""},
		{"outside of a call", named, "example.com", get + "\r\n", true, "while no call was running", "while no call was running"},
		{
			"another host on the connection", named, "example.com",
			strings.ReplaceAll(get, "Host: "+named, "Host: evil.example") + "\r\n", false, "421 ", "names another host",
		},
		{"two hosts", named, "example.com", get + "Host: evil.example\r\n\r\n", false, "400 ", ""},
		{
			"an address in the request", named, "example.com",
			strings.Replace(get, "/repos/1", "https://evil.example/repos/1", 1) + "\r\n", false, "a path, not an address", "",
		},
		{"another SNI", named, "evil.example", get + "\r\n", false, "421 ", "SNI"},
		{"HTTP/2", named, "example.com", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", false, "only HTTP/1.0 and HTTP/1.1", ""},
		{"another method", named, "example.com", "POST" + get[3:] + "Content-Length: 0\r\n\r\n", false, "403 ", "with a method"},
		{"another path", named, "example.com", strings.Replace(get, "/repos", "/user", 1) + "\r\n", false, "403 ", "with a path"},
		{"a path that climbs", named, "example.com", strings.Replace(get, "/repos/1", "/repos/%2e%2e/user", 1) + "\r\n", false, "403 ", "with a path"},
		{"a URL", named, "example.com", "GET /repos/" + p + " HTTP/1.1\r\nHost: " + named + "\r\n\r\n", false, "403 ", "in a URL"},
		{"two lengths", named, "example.com", get + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /user", false, "400 ", ""},
		{"a space in a header", named, "example.com", get + "Transfer-Encoding : chunked\r\n\r\n", false, "has a space in it", ""},
		{"without TLS", named, "", get + "\r\n", false, "403 ", "without TLS"},
		{"a placeholder of another instance", named, "example.com", strings.ReplaceAll(get, p, foreign.placeholder()) + "\r\n", false, "403 ", "not the one of this program"},
		{"a second request for another host", named, "example.com", strings.Replace(get, "\r\nConnection: close", "", 1) + "\r\n" +
			strings.ReplaceAll(get, "Host: "+named, "Host: evil.example") + "\r\n", false, "421 ", "names another host"},
		{"CONNECT to the address of the name", "127.0.0.2:" + port, "example.com", get, false, "403 ", "127.0.0.2"},
		{"WebSocket", named, "example.com", get + "Upgrade: websocket\r\n\r\n", false, "501 ", ""},
		{"SSH", named, "", "SSH-2.0-x\r\n", false, "400 ", ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			i.t, i.room.t = t, t
			i.watch.Follow(nil, nil)
			before := len(a.arrived())
			if !c.idle {
				defer i.call(cred)()
			}
			back := i.raw(c.target, c.sni, c.text)
			kit.Contains(t, back, c.says)
			reported := fmt.Sprint(i.watch.Checks())
			if c.reported != "" {
				kit.Contains(t, reported, c.reported)
			} else {
				kit.Equal(t, reported, "[]")
			}
			for n, got := range a.arrived()[before:] {
				if n > 0 || got != "Bearer "+key || c.says != "200 OK" && !strings.HasPrefix(c.what, "a second") {
					t.Errorf("%q arrived", got)
				}
			}
			if strings.Contains(back, key) {
				t.Error(back)
			}
		})
	}
	i.t, i.room.t = t, t
	defer i.call(cred)()
	resp, body := i.get(i.web("http"), "http://"+other.address+"/", "Authorization", "Bearer "+p)
	kit.Equal(t, resp.StatusCode, http.StatusForbidden)
	kit.Contains(t, body, "is not one of its hosts")
	kit.Equal(t, len(other.arrived()), 0)
}

// The proxy cannot tell which of the calls that run in a program sends a request.
func TestUseIsNotedOnAllRunningCalls(t *testing.T) {
	a := newAPI(t, httptest.NewTLSServer)
	used := map[string]string{}
	of := func(call string) *tool.Credential {
		cred := credential(a.address)
		cred.Used = func(host string) { used[call] = host }
		return cred
	}
	i := newInstance(t, of("none"))
	ended := i.call(of("ended"))
	defer i.call(of("first"))()
	ended()
	defer i.call(of("second"))()
	i.get(i.web("http"), a.URL, "Authorization", i.placeholder())
	kit.Equal(t, fmt.Sprint(used), fmt.Sprintf("map[first:%s second:%[1]s]", a.address))
	clear(used)
	i.Credentials()[0].Used("x")
	kit.Equal(t, len(used), 2)
}

func TestTextThatIsLikeAPlaceholderIsSentUnchanged(t *testing.T) {
	a := newAPI(t, httptest.NewTLSServer)
	cred := credential(a.address)
	i := newInstance(t, cred)
	defer i.call(cred)()
	c := i.web("http")
	for _, text := range []string{"http-api-client/1.0", "tp-api-", i.placeholder()[:20]} {
		resp, _ := i.get(c, a.URL+"/repos/"+text, "Authorization", i.placeholder())
		kit.Equal(t, resp.StatusCode, http.StatusOK, text)
		_, body := i.get(c, a.URL+"/headers", "User-Agent", text, "Authorization", i.placeholder())
		kit.Contains(t, body, fmt.Sprintf("%q", text))
	}
}

func TestConnectionsWhoseNamesBeginAlike(t *testing.T) {
	a := newAPI(t, httptest.NewTLSServer)
	one, two := credential("elsewhere.example"), credential(a.address)
	one.Connection, two.Connection = "github", "github-work"
	i := newInstanceOf(t, []*tool.Credential{one, two})
	defer i.call(one, two)()
	c := i.web("http")
	resp, _ := i.get(c, a.URL, "Authorization", i.links[1].placeholder)
	kit.Equal(t, resp.StatusCode, http.StatusOK)
	resp, body := i.get(c, a.URL, "Authorization", i.links[0].placeholder)
	kit.Equal(t, resp.StatusCode, http.StatusForbidden)
	kit.Contains(t, body, "connection github was sent")
	kit.EqualSlices(t, a.arrived(), []string{key})
}

func TestKeyIsSentInTheClearOnlyNearby(t *testing.T) {
	cred := credential("example.com", "10.0.0.1:80", "localhost:90", "example.org:90", "127.0.0.1", "127.0.0.1:80", "localhost")
	at := func(text string) request {
		u := kit.Must(url.Parse(text))(t)
		return request{to: kit.Must(parseHost(Address(u)))(t), secure: u.Scheme == "https", method: "GET", url: u}
	}
	l := kit.Must(NewInjector([]*tool.Credential{cred}, ""))(t).links[0]
	for text, want := range map[string]string{
		"https://example.com/": "", "http://example.com/": "without TLS", "http://10.0.0.1/": "", "https://10.0.0.1/": "not one of its hosts",
		"http://localhost:90/": "", "https://example.org:90/": "", "http://example.org:90/": "without TLS",
		"http://127.0.0.1/": "", "https://127.0.0.1/": "", "http://localhost/": "without TLS",
	} {
		if got := l.refuses(at(text)); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%s: %q", text, got)
		}
		kit.Equal(t, Sends(cred, "GET", at(text).url), want == "", text)
	}
}

func TestProgramThatPinsIsToldSo(t *testing.T) {
	tooltest.NoLeaks(t)
	a := newAPI(t, httptest.NewTLSServer)
	cred := credential(a.address)
	i := newInstance(t, cred)
	defer i.call(cred)()
	c := i.web("http")
	c.Transport.(*http.Transport).TLSClientConfig.RootCAs = x509.NewCertPool()
	_, err := c.Get("https://" + a.address)
	kit.Fails(t, err, "unknown authority")
	kit.Eventually(t, "it is reported", func() bool { return len(i.watch.Checks()) > 0 })
	said := Hint(&tool.Spec{Source: "up"}, i.watch.Blocked(), "")
	kit.Contains(t, said, `; the proxy of source "up": the program does not trust the certificate of its room`)
	kit.Contains(t, said, "expose: true")
}

func TestServerWithoutATrustedCertificateGetsNoKey(t *testing.T) {
	a := newAPI(t, func(h http.Handler) *httptest.Server {
		s := httptest.NewUnstartedServer(h)
		in := kit.Must(NewInjector([]*tool.Credential{credential("127.0.0.1:1")}, ""))(t)
		t.Cleanup(in.Close)
		ca := kit.Must(in.authority())(t)
		s.TLS = kit.Must(ca.config(newHost("127.0.0.1", 1)))(t)
		s.Config.ErrorLog = nil
		s.StartTLS()
		return s
	})
	cred := credential(a.address)
	i := newInstance(t, cred)
	defer i.call(cred)()
	resp, body := i.get(i.web("http"), "https://"+a.address, "Authorization", i.placeholder())
	kit.Equal(t, resp.StatusCode, http.StatusBadGateway)
	kit.Contains(t, body, "is not trusted")
	kit.Equal(t, len(a.arrived()), 0)
}

func TestInstanceServesItsCallerOnly(t *testing.T) {
	cred := credential("127.0.0.1:1")
	call := func(caller string, with ...*tool.Credential) *tool.Call {
		return &tool.Call{Tool: "ask", Caller: tool.Principal{ID: caller}, Notes: tool.Notes{Credentials: with}}
	}
	in := kit.Must(NewInjector([]*tool.Credential{cred}, "ada"))(t)
	kit.Refused(t, kit.Err(in.Begin(call("bob", cred))), tool.CodeInternal, "another caller")
	kit.Refused(t, kit.Err(in.Begin(call("ada"))), tool.CodeAccessDenied, "toolpost connections add api")
	base := kit.Must(NewInjector([]*tool.Credential{cred}, ""))(t)
	kit.Refused(t, kit.Err(base.Begin(call("", cred))), tool.CodeInternal, "another caller")
	first, second := kit.Must(in.Begin(call("ada", cred)))(t), kit.Must(in.Begin(call("ada", cred)))(t)
	first()
	kit.Equal(t, in.Active("api") != nil, true)
	second()
	kit.Equal(t, in.Active("api") == nil, true)
}

func TestWallsThatGoAroundTheProxyAreRefused(t *testing.T) {
	cred := credential("api.example.com")
	in := kit.Must(NewInjector([]*tool.Credential{cred}, ""))(t)
	t.Cleanup(in.Close)
	for line, o := range map[string]Options{"{off: true}": {Off: true}, "{network: all}": {Network: Network{"all"}}} {
		o.Injector, o.Source = in, "up"
		_, err := o.Around(Needs{Dir: "/"})
		kit.Refused(t, err, tool.CodeInvalidInput, "`walls: "+line+"` goes around the proxy: write `walls: {network: [api.example.com]}`")
	}
	open := *cred
	open.Exposed = true
	exposed := kit.Must(NewInjector([]*tool.Credential{&open}, "ada"))(t)
	w := kit.Must(Options{Injector: exposed, Off: true}.Around(Needs{Dir: "/"}))(t)
	kit.Equal(t, len(w.Environment(nil)), 0)
	kit.EqualSlices(t, exposed.Exposes(), []string{"API_KEY=api"})
	w = kit.Must(Options{Injector: in, Network: Network{"loopback"}}.Around(Needs{Dir: "/"}))(t)
	kit.Equal(t, w.network.String(), "api.example.com")
}

func TestConfinedProgramsUseTheKeyWithoutHavingIt(t *testing.T) {
	tooltest.NoLeaks(t)
	a := newAPI(t, httptest.NewTLSServer)
	for _, argv := range [][]string{
		{"curl", "-sS", "-H", "Authorization: Bearer PLACEHOLDER", a.URL},
		{"curl", "-sS", "--http2", "-u", "x:PLACEHOLDER", a.URL},
		{"python3", "-c", "import os,sys,urllib.request as u; assert not os.access(os.environ['SSL_CERT_FILE'], os.W_OK); " +
			"print(u.urlopen(u.Request(sys.argv[1],headers={'Authorization':'Bearer '+os.environ['API_KEY']})).read().decode())", a.URL},
		{"node", "-e", `const host = process.argv[1]
require('http').request({port: 3128, method: 'CONNECT', path: host, headers: {host}}).on('connect', (_, socket) => require('https').get(
	{socket, agent: false, host: '127.0.0.1', headers: {host, authorization: 'Bearer ' + process.env.API_KEY}}, r => r.pipe(process.stdout))).end()`, a.address},
	} {
		cred := credential(a.address)
		in := kit.Must(NewInjector([]*tool.Credential{cred}, "ada"))(t)
		done := kit.Must(in.Begin(&tool.Call{Caller: tool.Principal{ID: "ada"}, Notes: tool.Notes{Credentials: []*tool.Credential{cred}}}))(t)
		for n, word := range argv {
			argv[n] = strings.ReplaceAll(word, "PLACEHOLDER", in.links[0].placeholder)
		}
		before := len(a.arrived())
		got, stopped := confinedBy(t, Options{Injector: in}, argv...)
		kit.Equal(t, len(stopped), 0, stopped)
		arrived := a.arrived()[before:]
		if len(arrived) != 1 || !strings.HasPrefix(arrived[0], "B") || strings.Contains(got, key) {
			t.Errorf("%s: %q arrived; it wrote %s", argv[0], arrived, got)
		}
		done()
		in.Close()
	}
}

func TestConnectionToTheHostStaysOpen(t *testing.T) {
	tooltest.NoLeaks(t)
	var opened, closed atomic.Int64
	a := newAPI(t, func(h http.Handler) *httptest.Server {
		s := httptest.NewUnstartedServer(h)
		s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				opened.Add(1)
			case http.StateClosed:
				closed.Add(1)
			}
		}
		s.StartTLS()
		return s
	})
	cred := credential(a.address)
	i := newInstance(t, cred)
	defer i.call(cred)()
	c := i.web("http")
	for n := range 50 {
		req := kit.Must(http.NewRequest(http.MethodPost, a.URL, strings.NewReader(strings.Repeat("x", 10_000*(n%2)))))(t)
		req.Header.Set("Authorization", i.placeholder())
		resp := kit.Must(c.Do(req))(t)
		kit.Equal(t, string(kit.Must(io.ReadAll(resp.Body))(t)), i.placeholder())
		resp.Body.Close()
	}
	kit.Equal(t, opened.Load(), 1)
	a.CloseClientConnections() // as a host does with idle ones
	kit.Eventually(t, "the host has closed it", func() bool { return closed.Load() == 1 })
	_, body := i.get(c, a.URL, "Authorization", i.placeholder())
	kit.Equal(t, body, i.placeholder())
	kit.Equal(t, len(a.arrived()), 51)
}

func TestBodiesMayBeSlowAndLarge(t *testing.T) {
	a := newAPI(t, httptest.NewTLSServer)
	cred := credential(a.address)
	i := newInstance(t, cred)
	i.egress.limits.head = 500 * time.Millisecond
	i.room = i.egress.room(t, i.watch)
	defer i.call(cred)()
	c := i.web("http")
	var opened atomic.Int64
	c.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		opened.Add(1)
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	for range 2 {
		body, w := io.Pipe()
		req := kit.Must(http.NewRequest(http.MethodPost, a.URL, body))(t)
		req.Header.Set("Authorization", i.placeholder())
		go func() {
			_, _ = io.WriteString(w, strings.Repeat("x", 2*maxHead))
			time.Sleep(2 * i.egress.limits.head)
			_, _ = io.WriteString(w, "end")
			_ = w.Close()
		}()
		resp := kit.Must(c.Do(req))(t)
		kit.Equal(t, resp.StatusCode, http.StatusOK)
		kit.Equal(t, string(kit.Must(io.ReadAll(resp.Body))(t)), i.placeholder())
		kit.OK(t, resp.Body.Close())
	}
	kit.Equal(t, opened.Load(), 1)
}

func TestAnswerEndsWithTheCalls(t *testing.T) {
	tooltest.NoLeaks(t)
	for name, start := range map[string]func(http.Handler) *httptest.Server{"TLS": httptest.NewTLSServer, "plain": httptest.NewServer} {
		t.Run(name, func(t *testing.T) {
			a := start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprint(w, "first")
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done() // until the proxy ends the connection
			}))
			t.Cleanup(a.Close)
			cred := credential(a.Listener.Addr().String())
			i := newInstance(t, cred)
			one, other := i.call(cred), i.call(cred)
			req := kit.Must(http.NewRequest(http.MethodGet, a.URL, nil))(t)
			req.Header.Set("Authorization", i.placeholder())
			resp := kit.Must(i.web("http").Do(req))(t)
			defer resp.Body.Close()
			kit.Must(io.ReadFull(resp.Body, make([]byte, len("first"))))(t)
			one()
			kit.Equal(t, i.calls.Err(), nil)
			other()
			rest, err := io.ReadAll(resp.Body)
			kit.Equal(t, err != nil, true, "it must not look complete")
			kit.Equal(t, len(rest), 0)
		})
	}
}

// A host that goes on after its answer, here with the body of an answer to HEAD, must not have that taken for the next answer.
func TestWhatComesAfterAnAnswerIsDropped(t *testing.T) {
	tooltest.NoLeaks(t)
	address := peer(t, func(c *net.TCPConn) {
		in := bufio.NewReader(c)
		for {
			req, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n%-40s", req.Method+req.Header.Get("Authorization"))
		}
	})
	cred := credential(address)
	i := newInstance(t, cred)
	defer i.call(cred)()
	c := i.web("http")
	for range 5 {
		req := kit.Must(http.NewRequest(http.MethodHead, "http://"+address, nil))(t)
		req.Header.Set("Authorization", i.placeholder())
		kit.Must(c.Do(req))(t).Body.Close()
		_, body := i.get(c, "http://"+address, "Authorization", i.placeholder())
		kit.Equal(t, strings.TrimSpace(body), "GET"+i.placeholder())
	}
}

func TestLargeAnswersPassUnchanged(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789abcdef\x00\xff\n"), 100_000)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(data) }))
	t.Cleanup(s.Close)
	cred := credential(s.Listener.Addr().String())
	i := newInstance(t, cred)
	defer i.call(cred)()
	_, body := i.get(i.web("http"), s.URL, "Authorization", i.placeholder())
	kit.Equal(t, body == string(data), true)
}
