package walls

import (
	"bufio"
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"toolpost/host/process"
	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

const hang = 60 * time.Second // bounds waits that only guard against a hang

// out returns an egress to some hosts that resolves nothing and has short timeouts.
func out(t testing.TB, hosts ...string) *egress {
	t.Helper()
	var list []host
	for _, text := range hosts {
		h := kit.Must(parseHost(text))(t)
		list = append(list, h)
	}
	e := newEgress(list)
	e.lookup = func(_ context.Context, _, name string) ([]netip.Addr, error) {
		t.Errorf("%s was resolved", name)
		return nil, errors.New("there are no names here")
	}
	e.limits.part, e.limits.half, e.limits.look = hang, hang, 5*time.Millisecond
	return e
}

// resolves makes an egress resolve names.
func (e *egress) resolves(names map[string]string) *egress {
	e.lookup = func(_ context.Context, _, name string) ([]netip.Addr, error) {
		if names[name] == "" {
			return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
		}
		var addrs []netip.Addr
		for text := range strings.SplitSeq(names[name], " ") {
			addrs = append(addrs, netip.MustParseAddr(text))
		}
		return addrs, nil
	}
	return e
}

// A room is the origin of the connections: here it is the test itself.
type room struct {
	address string
	t       testing.TB
	open    atomic.Int64 // connections being served
	ends    sync.Map     // the proxy's ends, by the address of the child's
}

func (e *egress) room(t testing.TB, w *Watch) *room {
	t.Helper()
	l := kit.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	r := &room{address: l.Addr().String(), t: t}
	serve := e.serve(w)
	var work sync.WaitGroup
	work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			r.open.Add(1)
			r.ends.Store(c.RemoteAddr().String(), c)
			work.Go(func() {
				defer r.open.Add(-1)
				serve(c)
			})
		}
	})
	t.Cleanup(func() { l.Close(); work.Wait() })
	return r
}

// dial connects as a child does, and waits to be served.
func (r *room) dial() *net.TCPConn {
	r.t.Helper()
	c := kit.Must(net.Dial("tcp", r.address))(r.t)
	kit.OK(r.t, c.SetDeadline(time.Now().Add(hang)))
	r.t.Cleanup(func() { c.Close() })
	kit.Eventually(r.t, "the proxy serves it", func() bool { return r.end(c) != nil })
	return c.(*net.TCPConn)
}

// end returns the proxy's end of a connection.
func (r *room) end(c net.Conn) net.Conn {
	end, _ := r.ends.Load(c.LocalAddr().String())
	theirs, _ := end.(net.Conn)
	return theirs
}

// ask sends a text, and returns everything that comes back.
func (r *room) ask(send string) string {
	r.t.Helper()
	c := r.dial()
	go func() { _, _ = io.WriteString(c, send) }() // ends with the connection
	back, err := io.ReadAll(c)
	kit.Check(r.t, err, "%.80q", send)
	c.Close()
	return string(back)
}

// quiet waits until no connection is being served.
func (r *room) quiet() {
	r.t.Helper()
	if !r.isQuiet() {
		r.t.Fatalf("%d connections are still served", r.open.Load())
	}
}

func (r *room) isQuiet() bool {
	for began := time.Now(); r.open.Load() > 0; time.Sleep(time.Millisecond) {
		if time.Since(began) > hang {
			return false
		}
	}
	return true
}

// client returns a client that uses the proxy for everything.
func (r *room) client(proxy string) *http.Client {
	way := &http.Transport{Proxy: func(*http.Request) (*url.URL, error) { return url.Parse(proxy + "://" + r.address) }, ExpectContinueTimeout: hang}
	r.t.Cleanup(way.CloseIdleConnections)
	return &http.Client{Transport: way, Timeout: hang}
}

// peer is a server that takes connections one by one.
func peer(t testing.TB, serve func(*net.TCPConn)) string {
	t.Helper()
	l := kit.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	var work sync.WaitGroup
	work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			work.Go(func() {
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(hang))
				serve(c.(*net.TCPConn))
			})
		}
	})
	t.Cleanup(func() { l.Close(); work.Wait() })
	return l.Addr().String()
}

func echo(c *net.TCPConn) { _, _ = io.Copy(c, c) }

// site is a web site that returns the request that it received.
func site(t testing.TB, start func(http.Handler) *httptest.Server) (address string, s *httptest.Server) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/hello", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %d %v", r.Method, r.URL, len(body), err)
	})
	mux.HandleFunc("/headers", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "%s %q", r.Host, r.Header) })
	mux.HandleFunc("/stream", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "first")
		_ = http.NewResponseController(w).Flush()
		if r.FormValue("break") != "" {
			panic(http.ErrAbortHandler)
		}
		if r.FormValue("wait") != "" {
			<-r.Context().Done()
		}
		fmt.Fprint(w, " last")
	})
	s = start(mux)
	t.Cleanup(s.Close)
	return s.Listener.Addr().String(), s
}

func get(t testing.TB, c *http.Client, address string) (int, string) {
	t.Helper()
	resp := kit.Must(c.Get(address))(t)
	defer resp.Body.Close()
	body := kit.Must(io.ReadAll(resp.Body))(t)
	return resp.StatusCode, string(body)
}

// confined runs a program in a room whose tools may reach some hosts, and returns its output and what was stopped.
func confined(t *testing.T, hosts Network, read string, argv ...string) (string, []Check) {
	t.Helper()
	return confinedBy(t, Options{Network: hosts, Read: []string{read}}, argv...)
}

func confinedBy(t *testing.T, o Options, argv ...string) (string, []Check) {
	t.Helper()
	env := []string{"PATH=/usr/bin:/bin", "LC_ALL=C.UTF-8"}
	argv, code, err := Find(t.Context(), argv, "/", os.Environ())
	kit.OK(t, err)
	w := kit.Must(o.Around(Needs{Dir: "/", Run: code}))(t)
	watch := &Watch{}
	walls := kit.Must(w.Confine("tool", tool.Guarantees{}, watch))(t)
	c := kit.Must(process.Start(process.Command{Argv: argv, Dir: "/", Env: w.Environment(env), Confine: walls}))(t)
	defer c.Close()
	c.CloseStdin()
	kit.OK(t, c.Stdout.SetReadDeadline(time.Now().Add(hang)))
	wrote := kit.Must(io.ReadAll(c.Stdout))(t)
	exit := c.Wait()
	if exit.Code < 0 {
		t.Errorf("%v ended with %v", argv, exit)
	}
	return string(wrote) + c.Tail(), watch.Checks()
}

// certificate writes the certificate of a server into a folder of its own.
func certificate(t *testing.T, s *httptest.Server) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ca.pem")
	kit.OK(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o644))
	return file
}

func TestConfinedCurlReachesTheNamedHostAlone(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("there is no curl")
	}
	tooltest.NoLeaks(t)
	plain, _ := site(t, httptest.NewServer)
	secure, s := site(t, httptest.NewTLSServer)
	other, _ := site(t, httptest.NewServer)
	ca := certificate(t, s)
	hosts := Network{plain, secure}
	for _, c := range []struct {
		args    string
		want    string
		stopped string
	}{
		{"http://" + plain + "/hello", "hello\n", ""},
		{"https://" + secure + "/hello", "hello\n", ""},
		{"--proxy socks5h://127.0.0.1:3128 http://" + plain + "/hello", "hello\n", ""},
		{"--proxy socks5://127.0.0.1:3128 https://" + secure + "/hello", "hello\n", ""},
		{"--proxytunnel http://" + plain + "/hello", "hello\n", ""},
		{"-d some=data http://" + plain + "/echo http://" + plain + "/echo", "POST /echo 9 <nil>POST /echo 9 <nil>", ""},
		{"-I http://" + plain + "/hello", "HTTP/1.1 200 OK", ""},
		{"-0 http://" + plain + "/stream", "first last", ""},
		{"http://" + other + "/hello", other + " may not be reached: to allow it add " + other + " to network:", other},
		{"https://" + other + "/hello", "curl: (56)", other},
		{"--proxy socks5h://127.0.0.1:3128 http://" + other + "/hello", "curl: (97)", other},
		{"http://0x7f.1:81/", "may not be reached", "127.0.0.1:81"},
		{"--noproxy * --max-time 20 http://" + plain + "/hello", "curl: (7)", ""},
		{"--noproxy * --max-time 20 http://" + other + "/hello", "curl: (7)", ""},
	} {
		got, stopped := confined(t, hosts, filepath.Dir(ca), append([]string{"curl", "-sS", "--cacert", ca}, strings.Fields(c.args)...)...)
		kit.Contains(t, got, c.want, "curl %s", c.args)
		var want []Check
		if c.stopped != "" {
			want = []Check{{"network", false, "engine", "guarantee_blocked", c.stopped}}
		}
		if !slices.Equal(stopped, want) {
			t.Errorf("curl %s: %v was seen", c.args, stopped)
		}
	}
}

func TestConfinedPythonReachesTheNamedHostAlone(t *testing.T) {
	tooltest.NoLeaks(t)
	plain, _ := site(t, httptest.NewServer)
	secure, s := site(t, httptest.NewTLSServer)
	other, _ := site(t, httptest.NewServer)
	ca := certificate(t, s)
	got, stopped := confined(t, Network{plain, secure}, filepath.Dir(ca), "python3", "-c", `
import socket, ssl, sys, urllib.request
plain, secure, other, ca = sys.argv[1:]
def get(url):
    try: return urllib.request.urlopen(url, timeout=50, context=ssl.create_default_context(cafile=ca)).read().decode().strip()
    except OSError as e: return str(e)
def connect(address):
    name, port = address.rsplit(":", 1)
    try: socket.create_connection((name, int(port)), 50); return "reached"
    except OSError as e: return "not reached"
print(get("http://"+plain+"/hello"))
print(get("https://"+secure+"/hello"))
print(get("http://"+other+"/hello"))
print(get("https://"+other+"/hello"))
for address in plain, secure, other, "127.0.0.2:3128", "192.0.2.1:80": print(connect(address))
print(connect("127.0.0.1:3128"))`, plain, secure, other, ca)
	want := []string{
		"hello", "hello", "HTTP Error 403: " + other + " may not be reached: ", "<urlopen error Tunnel connection failed: 403 " + other + " may not be reached: ",
		"not reached", "not reached", "not reached", "not reached", "not reached", "reached",
	}
	lines := strings.Split(strings.TrimSpace(got), "\n")
	if !slices.EqualFunc(lines, want, strings.HasPrefix) {
		t.Error(got)
	}
	if !slices.ContainsFunc(stopped, func(c Check) bool { return c.Capability == "network" && !c.Allowed && c.Target == other }) {
		t.Errorf("%v was seen", stopped)
	}
}

func TestConfinedCrowdLeavesNothingBehind(t *testing.T) {
	tooltest.NoLeaks(t)
	address := peer(t, echo)
	got, _ := confined(t, Network{address}, t.TempDir(), "python3", "-c", `
import socket, sys, threading
target = sys.argv[1]
answers = []
def talk():
    c = socket.create_connection(("127.0.0.1", 3128), 50)
    c.sendall(b"CONNECT %b HTTP/1.1\r\n\r\nhello" % target.encode())
    f = c.makefile("rb")
    answers.append(f.readline() + f.readline() + f.read(5))
    if len(answers) % 2: c.close()
crowd = [threading.Thread(target=talk) for _ in range(90)]
for t in crowd: t.start()
for t in crowd: t.join()
left = [socket.create_connection(("127.0.0.1", 3128), 50) for _ in range(20)]
print(len(answers), set(answers))`, address)
	kit.Equal(t, got, `90 {b'HTTP/1.1 200 Connection established\r\n\r\nhello'}`+"\n")
}

func TestEnvironmentNamesTheProxy(t *testing.T) {
	w, err := Options{Network: Network{"api.example.com"}}.Around(Needs{Dir: "/"})
	kit.OK(t, err)
	env := w.Environment([]string{"A=b"})
	want := []string{
		"A=b", "ALL_PROXY=http://127.0.0.1:3128", "HTTPS_PROXY=http://127.0.0.1:3128", "HTTP_PROXY=http://127.0.0.1:3128", "NODE_USE_ENV_PROXY=1", "NO_PROXY=",
		"all_proxy=http://127.0.0.1:3128", "http_proxy=http://127.0.0.1:3128", "https_proxy=http://127.0.0.1:3128", "no_proxy=",
	}
	kit.EqualSlices(t, env, want)
	w, err = Options{Network: Network{"all"}}.Around(Needs{Dir: "/"})
	kit.OK(t, err)
	kit.EqualSlices(t, w.Environment([]string{"A=b"}), []string{"A=b"})
}

// refusedAddresses are those that no name may lead to.
var refusedAddresses = strings.Fields(`
	127.0.0.1 127.255.255.254 0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 172.16.0.1 172.31.255.255 192.168.0.1 192.168.255.255
	100.64.0.1 100.127.255.255 100.100.100.200 169.254.0.1 169.254.169.254 169.254.170.2 168.63.129.16 192.0.0.192 192.0.2.1 192.88.99.1
	198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.1 224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255
	:: ::1 ::7f00:1 ::10.0.0.1 fc00::1 fd00::1 fd00:ec2::254 fe80::1 fe80::1%eth0 fec0::1 ff02::1 100::1 2001::1 2001:db8::1 3fff::1 5f00::1
	::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:169.254.169.254 ::ffff:0:127.0.0.1 64:ff9b::127.0.0.1 64:ff9b::10.0.0.1 64:ff9b::a9fe:a9fe 64:ff9b:1::8.8.8.8
	2002:7f00:1:: 2002:a00:1::1 2002:a9fe:a9fe::1 2002:c0a8:1::1 2606:4700::1%eth0`)

func TestANameMustNotLeadToAnInnerAddress(t *testing.T) {
	for _, text := range refusedAddresses {
		e := out(t, "www.example.com", "8.8.4.4", "192.168.7.7:9").resolves(map[string]string{"www.example.com": text})
		e.dial = func(_ context.Context, _, address string) (net.Conn, error) {
			t.Errorf("%s was dialled for %s", address, text)
			return nil, errors.New("no")
		}
		_, err := e.connect(t.Context(), newHost("www.example.com", 443))
		kit.Refused(t, err, tool.CodeAccessDenied, "not a public one", text)
	}
	for _, text := range strings.Fields("1.1.1.1 8.8.8.8 172.32.0.1 172.15.0.1 100.128.0.1 169.253.0.1 192.0.1.1 ::ffff:8.8.8.8 64:ff9b::8.8.8.8 2002:808:808::1 2606:4700::1111") {
		if !isPublic(netip.MustParseAddr(text)) {
			t.Errorf("%s is not public", text)
		}
	}
}

// dialled records the addresses that are dialled; every connection fails.
type dialled struct {
	mu  sync.Mutex
	all []string
}

func (d *dialled) dial(_ context.Context, _, address string) (net.Conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, address)
	return nil, errors.New("nobody is there")
}

func (d *dialled) want(t *testing.T, addresses ...string) {
	t.Helper()
	kit.EqualSlices(t, d.all, addresses, "dialled")
	d.all = nil
}

func TestANameKeepsItsFirstAddresses(t *testing.T) {
	names := map[string]string{}
	e, d := out(t, "www.example.com", "*.example.org", "10.0.0.7:443"), &dialled{}
	e.resolves(names).dial = d.dial
	try := func(name string) error {
		_, err := e.connect(t.Context(), newHost(name, 443))
		return err
	}
	if err := try("www.example.com"); tool.AsError(err).Message != "www.example.com:443 cannot be reached: its name does not resolve" {
		t.Error(err)
	}
	d.want(t)
	names["www.example.com"] = "8.8.8.8 10.0.0.1 10.0.0.7 2606:4700::1111"
	for range 3 {
		if err := try("WWW.example.com."); tool.AsError(err).Message != "www.example.com:443 cannot be reached" { // and no detail of our own network
			t.Error(err)
		}
		d.want(t, "8.8.8.8:443", "10.0.0.7:443", "[2606:4700::1111]:443")
		names["www.example.com"] = "127.0.0.1"
	}
	names["a.example.org"] = "127.0.0.1"
	for range 3 {
		kit.Refused(t, try("a.example.org"), tool.CodeAccessDenied, "")
		d.want(t)
		names["a.example.org"] = "8.8.8.8"
	}
}

func TestNamesBelowAStarAreBounded(t *testing.T) {
	e, d := out(t, "*.example.org"), &dialled{}
	e.lookup = func(context.Context, string, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("8.8.8.8")}, nil
	}
	e.dial = d.dial
	for i := range maxNames + 1 {
		_, err := e.connect(t.Context(), newHost(fmt.Sprintf("a%d.example.org", i), 443))
		kit.MustEqual(t, strings.Contains(err.Error(), "names already"), (i == maxNames), "name %d: %v", i, err)
	}
	if _, err := e.connect(t.Context(), newHost("a7.example.org", 443)); !strings.Contains(err.Error(), "cannot be reached") {
		t.Error(err)
	}
}

func TestNameMayResolveToAListedPrivateAddress(t *testing.T) {
	tooltest.NoLeaks(t)
	address, s := site(t, httptest.NewTLSServer)
	_, port, _ := net.SplitHostPort(address)
	names := map[string]string{"example.com": "127.0.0.1"}
	for _, scheme := range []string{"http", "socks5h"} {
		c := out(t, "example.com:"+port, address).resolves(names).room(t, nil).client(scheme)
		c.Transport.(*http.Transport).TLSClientConfig = s.Client().Transport.(*http.Transport).TLSClientConfig
		if code, body := get(t, c, "https://example.com:"+port+"/hello"); code != 200 || body != "hello\n" {
			t.Error(scheme, code, body)
		}
	}
	watch := &Watch{}
	r := out(t, "example.com:"+port, "127.0.0.1:1").resolves(names).room(t, watch)
	back := r.ask("CONNECT example.com:" + port + " HTTP/1.1\r\n\r\n")
	if !strings.HasPrefix(back, "HTTP/1.1 403 ") || !strings.Contains(back, "add 127.0.0.1:"+port+" as well") {
		t.Error(back)
	}
	if seen := watch.Checks(); len(seen) != 1 || seen[0].Target != "example.com:"+port {
		t.Error(seen)
	}
}

func TestUnlistedHostIsNotResolved(t *testing.T) {
	tooltest.NoLeaks(t)
	for _, name := range strings.Fields(`evil.example evil.www.example.com example.com www.example.com.evil.example 0x7f.1 2130706433 127.1 0177.0.0.1 127.0.0.01
		0x7f000001 127.0.0.1 [::1] [::ffff:127.0.0.1] 169.254.169.254 localhost 8.8.8.8 www.example.com%2f.evil www_example.com *.example.org .example.org a..example.org`) {
		watch := &Watch{}
		e, d := out(t, "www.example.com", "*.example.org"), &dialled{}
		e.dial = d.dial
		r := e.room(t, watch)
		requests := []string{"CONNECT " + name + ":443 HTTP/1.1\r\n\r\n", "GET http://" + name + ":443/ HTTP/1.1\r\n\r\n"}
		for _, request := range requests {
			if back := r.ask(request); !strings.HasPrefix(back, "HTTP/1.1 403 ") && !strings.HasPrefix(back, "HTTP/1.1 400 ") {
				t.Errorf("%s: %q", name, back)
			}
		}
		name = strings.Trim(name, "[]")
		kit.Equal(t, r.ask(socksAsk(socksName, name, 443)), "\x05\x00"+socksSays(socksDenied), name)
		d.want(t)
		if len(watch.Checks()) == 0 {
			t.Errorf("nobody saw that %s was refused", name)
		}
	}
}

// socksAsk returns the request of a SOCKS5 client.
func socksAsk(kind byte, address string, port int) string {
	if kind == socksName {
		address = string([]byte{byte(len(address))}) + address
	}
	return "\x05\x02\x01\x00" + "\x05\x01\x00" + string([]byte{kind}) + address + string([]byte{byte(port >> 8), byte(port)})
}

// socksSays returns the reply.
func socksSays(reply byte) string {
	return string([]byte{socksVersion, reply, 0, socksIPv4, 0, 0, 0, 0, 0, 0})
}

func TestInvalidProxyRequestIsRefused(t *testing.T) {
	tooltest.NoLeaks(t)
	address := peer(t, func(*net.TCPConn) { t.Error("the host was reached") })
	e := out(t, address, "www.example.com")
	r := e.room(t, nil)
	for _, c := range []struct{ send, want string }{
		{"GET /hello HTTP/1.1\r\nHost: " + address + "\r\n\r\n", "400"},
		{"BREW /coffee HTTP/1.1\r\n\r\n", "400"},
		{"B{}W http://" + address + "/ HTTP/1.1\r\n\r\n", "400"},
		{"GET http://user@" + address + "/ HTTP/1.1\r\n\r\n", "400"},
		{"GET http://user:secret@" + address + "/ HTTP/1.1\r\n\r\n", "400"},
		{"GET https://" + address + "/ HTTP/1.1\r\n\r\n", "400"},
		{"GET ftp://" + address + "/ HTTP/1.1\r\n\r\n", "400"},
		{"GET http:///hello HTTP/1.1\r\n\r\n", "400"},
		{"GET http:" + address + " HTTP/1.1\r\n\r\n", "400"},
		{"GET http://" + address + "/ HTTP/2.0\r\n\r\n", "400"},
		{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "400"},
		{"GET http://" + address + "/ HTTP/1.1\r\nHost: www.example.com\r\n\r\n", "400"},
		{"GET http://" + address + "/ HTTP/1.1\r\nHost: " + address + "\r\nHost: " + address + "\r\n\r\n", "400"},
		{"GET http://" + address + "/ HTTP/1.1\r\nHost: " + address + "/\r\n\r\n", "400"},
		{"GET http://" + address + "/ HTTP/1.1\r\nHost: a@" + address + "\r\n\r\n", "400"},
		{"GET http://" + address + "/ HTTP/1.1\r\nHost : " + address + "\r\n\r\n", "400"},
		{"GET http://www.example.com:0/ HTTP/1.1\r\n\r\n", "400"},
		{"GET http://www.example.com:65536/ HTTP/1.1\r\n\r\n", "400"},
		{"POST http://" + address + "/ HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "400"},
		{"POST http://" + address + "/ HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", "400"},
		{"POST http://" + address + "/ HTTP/1.1\r\nContent-Length: -1\r\n\r\n", "400"},
		{"POST http://" + address + "/ HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "400"},
		{"POST http://" + address + "/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n", "400"},
		{"CONNECT www.example.com HTTP/1.1\r\n\r\n", "400"},
		{"CONNECT www.example.com: HTTP/1.1\r\n\r\n", "400"},
		{"CONNECT :443 HTTP/1.1\r\n\r\n", "403"},
		{"CONNECT /www.example.com:443 HTTP/1.1\r\n\r\n", "400"},
		{"CONNECT www.example.com:443/ HTTP/1.1\r\n\r\n", "400"},
		{"CONNECT user@www.example.com:443 HTTP/1.1\r\n\r\n", "400"},
		{"CONNECT " + address + " HTTP/1.1\r\nHost: www.example.com:443\r\n\r\n", "400"},
		{"CONNECT " + address + " HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", "400"},
		{"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", "400"},
		{"\x04\x01\x00\x50\x7f\x00\x00\x01\x00\n", "400"},
		{strings.Repeat("\x00", 1000) + "\n", "400"},
		{"\r\n\r\n", "400"},
		{"GET http://" + address + "/ HTTP/1.1\r\nA: " + strings.Repeat("b", 1<<20) + "\r\n\r\n", "431"},
		{"GET http://" + address + "/ HTTP/1.1\r\n" + strings.Repeat("A: b\r\n", 1<<17) + "\r\n", "431"},
		{"GET http://" + address + "/" + strings.Repeat("b", 1<<20) + " HTTP/1.1\r\n\r\n", "431"},
		{strings.Repeat("garbage", 1<<17), "431"},
	} {
		back := r.ask(c.send)
		resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(back)), nil)
		if err != nil {
			t.Errorf("%.100q: %q: %v", c.send, back, err)
			continue
		}
		body, err := io.ReadAll(resp.Body)
		if fmt.Sprint(resp.StatusCode) != c.want || err != nil || bytes.Count(body, []byte("\n")) != 1 {
			t.Errorf("%.100q: %q: %v", c.send, back, err)
		}
	}
	r.quiet()
}

func TestRefusedClientMayKeepSending(t *testing.T) {
	tooltest.NoLeaks(t)
	r := out(t, "www.example.com").room(t, nil)
	for _, send := range []string{
		"CONNECT evil.example:443 HTTP/1.1\r\n\r\n",
		"PUT http://evil.example/ HTTP/1.1\r\nContent-Length: 3145728\r\n\r\n",
		"PUT http://www.example.com/ HTTP/1.1\r\nA: " + strings.Repeat("x", maxHead),
	} {
		c := r.dial()
		fmt.Fprint(c, send)
		readUntil(t, c, "\n\r\n")
		for range 20 { // a closed connection takes one of them, and no more
			kit.OK(t, kit.Err(c.Write(make([]byte, 1<<10))), "%.40q", send)
			time.Sleep(time.Millisecond)
		}
		c.Close()
	}
	r.quiet()
}

func TestHalfARequestAndThenNothing(t *testing.T) {
	for send, want := range map[string]string{
		"": "", "GET http://www.exa": "HTTP/1.1 408 ", "GET http://www.example.com/ HTTP/1.1\r\nHost: w": "HTTP/1.1 408 ", "\x05": "", "\x05\x01\x00\x05\x01": "\x05\x00",
	} {
		synctest.Test(t, func(t *testing.T) {
			ours, theirs := net.Pipe()
			go out(t, "www.example.com").serve(nil)(theirs)
			go func() { _, _ = io.WriteString(ours, send) }()
			began := time.Now()
			back, err := io.ReadAll(ours)
			if err != nil || !strings.HasPrefix(string(back), want) || want == "" && len(back) > 0 {
				t.Errorf("%q: %q: %v", send, back, err)
			}
			if took := time.Since(began); took < 15*time.Second || took > 15*time.Second+hang {
				t.Errorf("%q: it took %v", send, took)
			}
			ours.Close()
			synctest.Wait()
		})
	}
}

func TestHalfARequestAndThenTheEnd(t *testing.T) {
	tooltest.NoLeaks(t)
	r := out(t, "www.example.com").room(t, nil)
	for send, want := range map[string]string{"": "", "GET http://www.exa": "HTTP/1.1 400 ", "\x05": "", "\x05\x01\x00\x05\x01": "\x05\x00"} {
		c := r.dial()
		_, _ = io.WriteString(c, send)
		kit.OK(t, c.CloseWrite())
		if back, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(back), want) || want == "" && len(back) > 0 {
			t.Errorf("%q: %q: %v", send, back, err)
		}
		c.Close()
	}
}

// shut returns an address at which no server listens, or can.
func shut(t *testing.T) netip.AddrPort {
	t.Helper()
	fd := kit.Must(unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))(t)
	t.Cleanup(func() { unix.Close(fd) })
	kit.OK(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	name := kit.Must(unix.Getsockname(fd))(t)
	return netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(name.(*unix.SockaddrInet4).Port))
}

func TestSOCKSProtocol(t *testing.T) {
	tooltest.NoLeaks(t)
	address := peer(t, func(c *net.TCPConn) { fmt.Fprint(c, "hello"); echo(c) })
	to := netip.MustParseAddrPort(address)
	nobody := shut(t)
	r := out(t, address, nobody.String(), "gone.example.com").resolves(nil).room(t, nil)
	four, sixteen := to.Addr().As4(), netip.AddrFrom16(to.Addr().As16()).As16()
	for _, c := range []struct{ send, want string }{
		{socksAsk(socksIPv4, string(four[:]), int(to.Port())), "\x05\x00" + socksSays(socksOK) + "hello"},
		{socksAsk(socksIPv6, string(sixteen[:]), int(to.Port())), "\x05\x00" + socksSays(socksOK) + "hello"},
		{socksAsk(socksName, "127.0.0.1", int(to.Port())), "\x05\x00" + socksSays(socksOK) + "hello"},
		{socksAsk(socksName, "127.0.0.1", int(nobody.Port())), "\x05\x00" + socksSays(socksRefused)},
		{socksAsk(socksName, "gone.example.com", 80), "\x05\x00" + socksSays(socksNoHost)},
		{socksAsk(socksIPv4, string(four[:]), 0), "\x05\x00" + socksSays(socksDenied)},
		{socksAsk(socksName, "gone.example.com", 0), "\x05\x00" + socksSays(socksDenied)},
		{socksAsk(socksName, "evil\r\nexample\x00\xff", 80), "\x05\x00" + socksSays(socksDenied)},
		{socksAsk(socksName, "", 80), "\x05\x00" + socksSays(socksNoAddress)},
		{socksAsk(9, "1234", 80), "\x05\x00" + socksSays(socksNoAddress)},
		{"\x05\x01\x00\x05\x02\x00\x01\x7f\x00\x00\x01\x00\x50", "\x05\x00" + socksSays(socksNoCommand)},
		{"\x05\x01\x00\x05\x03\x00\x01\x7f\x00\x00\x01\x00\x50", "\x05\x00" + socksSays(socksNoCommand)},
		{"\x05\x01\x00\x04\x01\x00\x01\x7f\x00\x00\x01\x00\x50", "\x05\x00" + socksSays(socksNoCommand)},
		{"\x05\x01\x02", "\x05\xff"},
		{"\x05\x00", "\x05\xff"},
	} {
		conn := r.dial()
		_, _ = io.WriteString(conn, c.send)
		kit.OK(t, conn.CloseWrite())
		kit.Equal(t, string(kit.Must(io.ReadAll(conn))(t)), c.want, c.send)
		conn.Close()
	}
}

func TestPlainHTTPGoesThroughWhole(t *testing.T) {
	tooltest.NoLeaks(t)
	address, _ := site(t, httptest.NewServer)
	r := out(t, address).room(t, nil)
	c := r.client("http")
	for path, want := range map[string]string{
		"/hello": "hello\n", "/stream": "first last", "/echo?a=%2f&b": "GET /echo?a=%2f&b 0 <nil>", "/hello/../x%2fy": "404 page not found\n",
	} {
		if _, body := get(t, c, "http://"+address+path); body != want {
			t.Errorf("%s: %q", path, body)
		}
	}
	for _, size := range []int{0, 1, 1 << 20} {
		for _, expect := range []string{"", "100-continue"} {
			for _, length := range []int64{int64(size), -1} {
				req, err := http.NewRequest("PUT", "http://"+address+"/echo", io.MultiReader(bytes.NewReader(make([]byte, size))))
				kit.OK(t, err)
				req.ContentLength = length
				if expect != "" {
					req.Header.Set("Expect", expect)
				}
				resp := kit.Must(c.Do(req))(t)
				body, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if want := fmt.Sprintf("PUT /echo %d <nil>", size); string(body) != want || err != nil {
					t.Errorf("%d bytes, length %d, expect %q: %q: %v", size, length, expect, body, err)
				}
			}
		}
	}
	for send, want := range map[string]string{
		"HEAD http://" + address + "/hello HTTP/1.1\r\n\r\n":   "Content-Length: 6\r\n",
		"GET http://" + address + "/stream HTTP/1.0\r\n\r\n":   "\r\n\r\nfirst last",
		"GET http://" + address + "/stream HTTP/1.1\r\n\r\n":   " last\r\n0\r\n\r\n",
		"HEAD http://" + address + "1/hello HTTP/1.1\r\n\r\n":  "HTTP/1.1 40",
		"PATCH http://" + address + "/echo HTTP/1.1\r\n\r\n":   "PATCH /echo 0 <nil>",
		"REPORT http://" + address + "/echo HTTP/1.1\r\n\r\n":  "REPORT /echo 0 <nil>",
		"GET http://" + address + "/echo HTTP/1.1\nHost:\n\n":  "GET /echo 0 <nil>",
		"GET http://" + address + "?a HTTP/1.1\r\nHost:\r\n\n": "404",
	} {
		back := r.ask(send)
		if !strings.Contains(back, want) || !strings.Contains(back, "\r\nConnection: close\r\n") {
			t.Errorf("%q: %q", send, back)
		}
		if strings.Contains(send, "HTTP/1.0") && (strings.Contains(back, "chunked") || !strings.HasPrefix(back, "HTTP/1.0 ")) {
			t.Errorf("%q: %q", send, back)
		}
	}
}

func TestHopByHopHeadersAreNotForwarded(t *testing.T) {
	tooltest.NoLeaks(t)
	address, _ := site(t, httptest.NewServer)
	answers := peer(t, func(c *net.TCPConn) {
		_, _ = http.ReadRequest(bufio.NewReader(c))
		fmt.Fprint(c, "HTTP/1.1 200 OK\r\nConnection: X-Between\r\nX-Between: us\r\nX-End: to end\r\nKeep-Alive: 5\r\nProxy-Authenticate: Basic\r\nContent-Length: 2\r\n\r\nok")
	})
	r := out(t, address, answers).room(t, nil)
	back := r.ask("GET http://" + address + "/headers HTTP/1.1\r\nHost: " + strings.ToUpper(address) + "\r\nConnection: X-Mine, keep-alive\r\nX-Mine: 1\r\n" +
		"Proxy-Authorization: Basic c2VjcmV0\r\nProxy-Connection: keep-alive\r\nKeep-Alive: 5\r\nTE: trailers\r\nUpgrade: websocket\r\nX-Theirs: 2\r\n\r\n" +
		"GET http://" + address + "/hello HTTP/1.1\r\n\r\n")
	_, body, _ := strings.Cut(back, "\r\n\r\n")
	kit.Equal(t, body, address+` map["Connection":["close"] "X-Theirs":["2"]]`)
	kit.Equal(t, strings.Count(back, "HTTP/1.1"), 1, back)
	back = r.ask("GET http://" + answers + "/ HTTP/1.1\r\n\r\n")
	kit.Equal(t, back, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\nX-End: to end\r\n\r\nok")
}

func TestAnAnswerThatBreaksOffDoesNotLookWhole(t *testing.T) {
	tooltest.NoLeaks(t)
	address, _ := site(t, httptest.NewServer)
	short := peer(t, func(c *net.TCPConn) {
		_, _ = http.ReadRequest(bufio.NewReader(c))
		fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfirst")
	})
	garbage := peer(t, func(c *net.TCPConn) { fmt.Fprint(c, "garbage\n"); echo(c) })
	endless := peer(t, func(c *net.TCPConn) {
		_, _ = io.Copy(c, io.MultiReader(strings.NewReader("HTTP/1.1 200 OK\r\nA: "), &zeros{}))
	})
	upgrade := peer(t, func(c *net.TCPConn) {
		_, _ = http.ReadRequest(bufio.NewReader(c))
		fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n")
	})
	r := out(t, address, short, garbage, endless, upgrade).room(t, nil)
	c := r.client("http")
	for _, whole := range []string{address + "/stream?break=1", short + "/"} {
		resp := kit.Must(c.Get("http://" + whole))(t)
		if body, err := io.ReadAll(resp.Body); err == nil || !strings.HasPrefix("first", string(body)) {
			t.Errorf("%q: %v", body, err)
		}
		resp.Body.Close()
	}
	old := r.dial()
	fmt.Fprintf(old, "GET http://%s/stream?break=1 HTTP/1.0\r\n\r\n", address)
	kit.Fails(t, kit.Err(io.ReadAll(old)), "", "looks whole")
	for _, bad := range []string{garbage, endless, upgrade} {
		if code, body := get(t, c, "http://"+bad+"/"); code != 502 || !strings.Contains(body, "no answer") {
			t.Error(code, body)
		}
	}
}

// zeros is endless text.
type zeros struct{}

func (*zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '0'
	}
	return len(p), nil
}

// tunnel connects through the proxy to an address.
func (r *room) tunnel(address string) (*net.TCPConn, *bufio.Reader) {
	r.t.Helper()
	c := r.dial()
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", address, address)
	in := bufio.NewReader(c)
	resp := kit.Must(http.ReadResponse(in, &http.Request{Method: "CONNECT"}))(r.t)
	kit.MustEqual(r.t, resp.StatusCode, 200, resp.Status)
	return c, in
}

func TestEachDirectionEndsByItself(t *testing.T) {
	tooltest.NoLeaks(t)
	address := peer(t, func(c *net.TCPConn) {
		all, _ := io.ReadAll(c)
		fmt.Fprintf(c, "%d bytes", len(all))
	})
	first := peer(t, func(c *net.TCPConn) {
		fmt.Fprint(c, "mine")
		_ = c.CloseWrite()
		all, _ := io.ReadAll(c)
		kit.Equal(t, string(all), "yours", "the host got %q", all)
	})
	r := out(t, address, first).room(t, nil)
	c, in := r.tunnel(address)
	kit.Must(c.Write(make([]byte, 3<<20)))(t)
	kit.OK(t, c.CloseWrite())
	kit.Equal(t, string(kit.Must(io.ReadAll(in))(t)), "3145728 bytes")
	c, in = r.tunnel(first)
	kit.Equal(t, string(kit.Must(io.ReadAll(in))(t)), "mine")
	fmt.Fprint(c, "yours")
	c.Close()
	r.quiet()
}

func TestATunnelThatBreaksDoesNotLookWhole(t *testing.T) {
	tooltest.NoLeaks(t)
	seen := make(chan error, 1)
	breaks := peer(t, func(c *net.TCPConn) { fmt.Fprint(c, "first"); _, _ = c.Read(make([]byte, 1)); _ = c.SetLinger(0) })
	sees := peer(t, func(c *net.TCPConn) { _, err := io.Copy(c, c); seen <- err })
	r := out(t, breaks, sees).room(t, nil)
	c, in := r.tunnel(breaks)
	readUntil(t, in, "first")
	fmt.Fprint(c, "x")
	if _, err := in.ReadByte(); err == nil || err == io.EOF {
		t.Errorf("the child saw %v", err)
	}
	c, in = r.tunnel(sees)
	fmt.Fprint(c, "first")
	readUntil(t, in, "first")
	kit.OK(t, c.SetLinger(0))
	c.Close()
	kit.Fails(t, <-seen, "", "the host saw the end")
	r.quiet()
}

func TestEverythingEndsWithTheChild(t *testing.T) {
	tooltest.NoLeaks(t)
	address, _ := site(t, httptest.NewServer)
	over := make(chan struct{})
	silent := peer(t, func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c); <-over })
	deaf := peer(t, func(*net.TCPConn) { <-over })
	t.Cleanup(func() { close(over) })
	deafness := strings.Repeat("x", 16<<20)
	e := out(t, address, silent, deaf, "www.example.com", "8.8.8.8")
	e.limits.half = 20 * time.Millisecond
	asked := make(chan struct{}, 2)
	e.lookup = func(ctx context.Context, _, _ string) ([]netip.Addr, error) {
		asked <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	real := e.dial
	e.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if address != "8.8.8.8:80" {
			return real(ctx, network, address)
		}
		asked <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	r := e.room(t, nil)
	for name, talk := range map[string]func() *net.TCPConn{
		"a silent host": func() *net.TCPConn { c, _ := r.tunnel(silent); fmt.Fprint(c, "hello"); return c },
		"a deaf host":   func() *net.TCPConn { c, _ := r.tunnel(deaf); stuff(c, deafness); return c },
		"a name":        func() *net.TCPConn { c := r.say("CONNECT www.example.com:80 HTTP/1.1\r\n\r\n"); <-asked; return c },
		"a connection":  func() *net.TCPConn { c := r.say(socksAsk(socksName, "8.8.8.8", 80)); <-asked; return c },
		"an answer":     func() *net.TCPConn { return r.say("GET http://" + silent + "/ HTTP/1.1\r\n\r\n") },
		"a deaf site": func() *net.TCPConn {
			return r.say("PUT http://" + deaf + "/ HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n" + deafness)
		},
		"a stream": func() *net.TCPConn {
			c := r.say("GET http://" + address + "/stream?wait=1 HTTP/1.1\r\n\r\n")
			readUntil(t, c, "first")
			return c
		},
		"its own half word": func() *net.TCPConn { return r.say("GET http://") },
	} {
		for _, gone := range []bool{false, true} {
			c := talk()
			if gone || strings.Contains(name, "deaf") { // its unread data hides its end
				r.end(c).Close() // as the room does when no process is left in it
			} else {
				c.Close()
			}
			if !r.isQuiet() {
				t.Fatalf("a child that waits for %s is served after its end", name)
			}
			c.Close()
		}
	}
}

// say connects and sends a text, as much as is accepted.
func (r *room) say(s string) *net.TCPConn {
	c := r.dial()
	stuff(c, s)
	return c
}

// stuff sends until no more is accepted.
func stuff(c *net.TCPConn, s string) {
	for len(s) > 0 {
		_ = c.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
		n, err := io.WriteString(c, s)
		if s = s[n:]; err != nil {
			return
		}
	}
}

func readUntil(t *testing.T, r io.Reader, text string) {
	t.Helper()
	var all []byte
	for one := make([]byte, 1); !bytes.Contains(all, []byte(text)); all = append(all, one...) {
		kit.Must(io.ReadFull(r, one))(t)
	}
}

func TestIdleConnectionIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := out(t, "8.8.8.8")
		e.limits.look = time.Second
		e.dial = func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			go func() { defer theirs.Close(); _, _ = io.Copy(theirs, theirs) }()
			return ours, nil
		}
		ours, theirs := net.Pipe()
		go e.serve(nil)(theirs)
		fmt.Fprint(ours, socksAsk(socksIPv4, "\x08\x08\x08\x08", 80)[:4])
		readUntil(t, ours, "\x05\x00")
		fmt.Fprint(ours, socksAsk(socksIPv4, "\x08\x08\x08\x08", 80)[4:])
		readUntil(t, ours, socksSays(socksOK))
		for range 10 {
			time.Sleep(e.limits.idle - 2*time.Second)
			fmt.Fprint(ours, "x")
			readUntil(t, ours, "x")
		}
		began := time.Now()
		if n, err := ours.Read(make([]byte, 1)); n > 0 || err == nil {
			t.Errorf("%d bytes came out of nothing: %v", n, err)
		}
		if took := time.Since(began); took < e.limits.idle || took > e.limits.idle+3*time.Second {
			t.Errorf("it was ended after %v", took)
		}
		synctest.Wait()
	})
}

func TestTwoHundredAtOnceLeaveNothing(t *testing.T) {
	tooltest.NoLeaks(t)
	address := peer(t, echo)
	web, _ := site(t, httptest.NewServer)
	watch := &Watch{}
	r := out(t, address, web).room(t, watch)
	var crowd sync.WaitGroup
	for i := range 200 {
		crowd.Go(func() {
			send, want := fmt.Sprintf("GET http://%s/hello HTTP/1.1\r\n\r\n", web), "hello\n"
			switch i % 4 {
			case 1:
				send, want = fmt.Sprintf("CONNECT evil%d.example:443 HTTP/1.1\r\n\r\n", i), "to network: in the config of the source\n"
			case 2:
				send, want = fmt.Sprintf("CONNECT %s HTTP/1.1\r\n\r\nhello", address), "established\r\n\r\nhello"
			case 3:
				send, want = socksAsk(socksName, "127.0.0.1", int(netip.MustParseAddrPort(address).Port()))+"hello", "hello"
			}
			c := r.dial()
			fmt.Fprint(c, send)
			if i%4 > 1 {
				_ = c.CloseWrite()
			}
			if back, err := io.ReadAll(c); err != nil || !strings.HasSuffix(string(back), want) {
				t.Errorf("%q: %v", back, err)
			}
			c.Close()
		})
	}
	crowd.Wait()
	r.quiet()
	kit.Equal(t, len(watch.Checks()), 50, "attempts seen")
}

func TestReportsOfRefusedHostsAreBounded(t *testing.T) {
	tooltest.NoLeaks(t)
	watch := &Watch{}
	r := out(t, "www.example.com").room(t, watch)
	for call := range 2 { // of one child
		events := &tooltest.Collect{}
		watch.Follow(events, map[string]string{"no_network": "user"})
		for i := range mostChecks + 10 {
			if back := r.ask(fmt.Sprintf("CONNECT evil%d.example:443 HTTP/1.1\r\n\r\n", i)); !strings.HasPrefix(back, "HTTP/1.1 403 ") {
				t.Fatal(back)
			}
		}
		if got := events.Events(); len(got) != mostChecks || !strings.Contains(string(got[0].Data), `"target":"evil0.example:443"`) {
			t.Errorf("call %d: %d events, the first %s", call, len(got), got[0].Data)
		}
	}
}

func FuzzEgress(f *testing.F) {
	for _, seed := range []string{
		"CONNECT www.example.com:443 HTTP/1.1\r\nHost: www.example.com:443\r\n\r\nhello",
		"GET http://www.example.com/ HTTP/1.1\r\nHost: www.example.com\r\n\r\n",
		"POST http://a.example.org:80/x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
		"GET http://127.1/ HTTP/1.1\r\n\r\n", "CONNECT [::ffff:7f00:1]:443 HTTP/1.1\r\n\r\n",
		socksAsk(socksName, "www.example.com", 443) + "hello", socksAsk(socksIPv4, "\x7f\x00\x00\x01", 80), socksAsk(socksName, "0x7f.1", 80),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		e := out(t, "www.example.com", "*.example.org", "10.0.0.7")
		e.lookup = func(_ context.Context, _, name string) ([]netip.Addr, error) {
			if name != "www.example.com" && !strings.HasSuffix(name, ".example.org") || !isName(name) {
				t.Errorf("%q was resolved", name)
			}
			return []netip.Addr{netip.MustParseAddr("8.8.8.8"), netip.MustParseAddr("10.0.0.8")}, nil
		}
		e.dial = func(_ context.Context, _, address string) (net.Conn, error) {
			if !slices.Contains([]string{"8.8.8.8:80", "8.8.8.8:443", "10.0.0.7:80", "10.0.0.7:443"}, address) {
				t.Errorf("%s was dialled", address)
			}
			return nil, errors.New("nobody is there")
		}
		r := e.room(t, nil)
		c := r.dial()
		_, _ = c.Write(sent)
		_ = c.CloseWrite()
		_, _ = io.Copy(io.Discard, c)
		c.Close()
		r.quiet()
	})
}

func TestDeadChildDoesNotWaitForItsHosts(t *testing.T) {
	tooltest.NoLeaks(t)
	over := make(chan struct{})
	silent := peer(t, func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c); <-over })
	deaf := peer(t, func(*net.TCPConn) { <-over })
	t.Cleanup(func() { close(over) })
	began := time.Now()
	got, _ := confined(t, Network{silent, deaf}, t.TempDir(), "python3", "-c", `
import socket, sys
lines = []
for target in sys.argv[1:]:
    c = socket.create_connection(("127.0.0.1", 3128), 50)
    c.sendall(b"CONNECT %b HTTP/1.1\r\n\r\n" % target.encode())
    f = c.makefile("rb"); f.readline(); f.readline()
    c.settimeout(0.1 if target == sys.argv[-1] else 50)
    try: c.sendall(bytes(16 << 20))
    except TimeoutError: print("stuck")
    lines.append((c, f))`, silent, deaf)
	if got != "stuck\n" || time.Since(began) > hang/2 {
		t.Errorf("%q after %v", got, time.Since(began))
	}
}
