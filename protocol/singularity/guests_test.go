package singularity

import (
	"bufio"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"toolpost/engine"
	"toolpost/identity"
	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// callersList is a gate whose callers change while it is open. They show a token, or the name in a certificate.
type callersList struct {
	mu    sync.Mutex
	known map[string]tool.Principal
	down  bool // it cannot decide
	asked atomic.Int64
}

// list makes a gate that admits these names; each has the token "token-of-" and its name, and no limits.
func list(names ...string) *callersList {
	l := &callersList{known: map[string]tool.Principal{}}
	for _, name := range names {
		l.set("token-of-"+name, name, nil)
	}
	return l
}

func (l *callersList) set(shown, name string, rights *tool.Rights) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known[shown] = tool.Principal{ID: name, Door: "nats", Rights: rights}
}

func (l *callersList) revoke(shown string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.known, shown)
}

func (l *callersList) setDown(down bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = down
}

func (l *callersList) gate(_ context.Context, shown identity.Credentials) (tool.Principal, error) {
	l.asked.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	key := shown.Token
	if key == "" && shown.Certificate != nil {
		key = shown.Certificate.Subject.CommonName
	}
	p, ok := l.known[key]
	switch {
	case l.down:
		return p, tool.Errorf(tool.CodeUnavailable, "the list of callers cannot be read")
	case !ok || shown.Door != "nats":
		return p, tool.Errorf(tool.CodeAccessDenied, "unknown token")
	}
	return p, nil
}

// rounds waits until all callers have been checked a few more times.
func (l *callersList) rounds(t *testing.T) {
	t.Helper()
	before := l.asked.Load()
	kit.Eventually(t, "the gate is asked again", func() bool { return l.asked.Load() >= before+6 })
}

func startWith(t *testing.T, o ServerOptions) *Server {
	t.Helper()
	o.Listen, o.Log = "127.0.0.1:0", testLog(t)
	o.again = cmp.Or(o.again, 20*time.Millisecond)
	s := kit.Must(StartServer(o))(t)
	t.Cleanup(s.Close)
	return s
}

func connectAs(t *testing.T, s *Server, name string, more ...nats.Option) *nats.Conn {
	t.Helper()
	return connect(t, s, append([]nats.Option{nats.Token(""), nats.UserInfo(name, "token-of-"+name)}, more...)...)
}

// tells is a tool that returns its caller.
func tells(_ context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
	return &tool.Result{OK: true, Output: fmt.Appendf(nil, `{"id":%q,"door":%q,"roles":%q}`, c.Caller.ID, c.Caller.Door, strings.Join(c.Caller.Roles(), " "))}, nil
}

func TestCallBelongsToTheCallerOfItsConnection(t *testing.T) {
	tooltest.NoLeaks(t)
	l := list("ada", "bob")
	l.set("another-of-ada", "ada", &tool.Rights{Roles: []string{"reader"}})
	s := startWith(t, ServerOptions{Gate: l.gate})
	box := toolbox{"who": tells}
	early := connectAs(t, s, "ada") // before the door opens
	serve(t, DoorOptions{Server: s}, box, box)
	ada := `{"data":{"id":"ada","door":"nats","roles":""},"error":null}`
	for range 3 {
		same(t, "ada", ask(t, early, "tools.execute.who", `{}`), ada)
		same(t, "ada too", ask(t, connectAs(t, s, "ada"), "tools.execute.who", `{}`), ada)
		same(t, "bob", ask(t, connectAs(t, s, "bob"), "tools.execute.who", `{}`), `{"data":{"id":"bob","door":"nats","roles":""},"error":null}`)
		same(t, "ada with a lesser token", ask(t, connect(t, s, nats.Token("another-of-ada")), "tools.execute.who", `{}`),
			`{"data":{"id":"ada","door":"nats","roles":"reader"},"error":null}`)
	}
}

func TestCallersSeeNothingOfEachOther(t *testing.T) {
	tooltest.NoLeaks(t)
	l := list("ada", "bob")
	s := startWith(t, ServerOptions{Gate: l.gate})
	serve(t, DoorOptions{Server: s}, tooltest.Reference{}, tooltest.Reference{})
	ada, bob := connectAs(t, s, "ada"), connectAs(t, s, "bob")
	var seen [2]atomic.Int64 // messages seen by ada's second connection, and by bob
	spies := []*nats.Conn{connectAs(t, s, "ada"), bob}
	for i, spy := range spies {
		for _, subject := range []string{">", "_INBOX.>", "my.>", "*", "*.*"} {
			kit.Must(spy.Subscribe(subject, func(*nats.Msg) { seen[i].Add(1) }))(t)
		}
		kit.OK(t, spy.Flush())
	}
	box := kit.Must(ada.SubscribeSync("my.box"))(t)
	for range 50 {
		m := nats.NewMsg("tools.execute.events")
		m.Data, m.Header = []byte(`{"count":3}`), nats.Header{"Toolpost-Stream": {"my.events"}}
		askMsg(t, ada, m)
		ask(t, ada, "toolpost.catalog", "")
		kit.OK(t, bob.Publish("my.box", []byte("forged")))
	}
	for _, nc := range append(spies, ada) {
		kit.OK(t, nc.Flush())
	}
	if n, _, _ := box.Pending(); n > 0 {
		t.Errorf("%d messages of bob came to ada", n)
	}
	own := seen[1].Load() // bob sees his own messages, on three of his five subscriptions
	if seen[0].Load() == 0 || own > 150 {
		t.Errorf("ada's other connection saw %d messages and bob %d", seen[0].Load(), own)
	}
}

func TestACallerCancelsNoCallButItsOwn(t *testing.T) {
	tooltest.NoLeaks(t)
	l := list("ada", "bob")
	s := startWith(t, ServerOptions{Gate: l.gate})
	inside, ended := make(chan context.Context), make(chan string, 3)
	box := toolbox{"hang": func(ctx context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
		inside <- ctx
		<-ctx.Done()
		ended <- c.Caller.ID + " " + c.ID
		return nil, ctx.Err()
	}}
	serve(t, DoorOptions{Server: s}, box, box)
	ada, bob := connectAs(t, s, "ada"), connectAs(t, s, "bob")
	call := func(nc *nats.Conn, id string) context.Context {
		t.Helper()
		m := nats.NewMsg("tools.execute.hang")
		m.Header = nats.Header{"Toolpost-Call": {id}}
		kit.OK(t, nc.PublishMsg(m))
		return kit.Receive(t, "inside", inside)
	}
	cancel := func(nc *nats.Conn, id string) {
		t.Helper()
		kit.OK(t, nc.Publish("toolpost.cancel", []byte(id)))
	}
	adas := call(ada, "one")
	call(bob, "one") // ada uses this name too
	cancel(bob, "one")
	kit.MustEqual(t, kit.Receive(t, "ended", ended), "bob one", "ended when bob cancelled")
	call(bob, "two")
	cancel(bob, "one") // he no longer has a call of that name
	cancel(bob, "two")
	if who := kit.Receive(t, "ended", ended); who != "bob two" { // his earlier messages have been processed too
		t.Fatalf("%s ended when bob cancelled", who)
	}
	if adas.Err() != nil {
		t.Fatal("bob cancelled the call of ada")
	}
	cancel(ada, "one")
	kit.MustEqual(t, kit.Receive(t, "ended", ended), "ada one", "ended when ada cancelled")
}

func TestCallerSeesAndCallsOnlyPermittedTools(t *testing.T) {
	tooltest.NoLeaks(t)
	l := list("bob")
	l.set("token-of-ada", "ada", &tool.Rights{Tools: tool.Patterns{"e*"}})
	s := startWith(t, ServerOptions{Gate: l.gate})
	e := engine.New(engine.Options{})
	e.Replace(t.Context(), []engine.Binding{{Name: "std", Protocol: "go", Runner: inProcess{}}})
	t.Cleanup(func() { _ = e.Close(context.Background()) })
	serve(t, DoorOptions{Server: s}, e, e)
	var bobs []string
	for _, spec := range tooltest.Specs() {
		bobs = append(bobs, spec.Name)
	}
	slices.Sort(bobs)
	ada := connectAs(t, s, "ada")
	for nc, want := range map[*nats.Conn][]string{ada: {"echo", "events"}, connectAs(t, s, "bob"): bobs} {
		kit.EqualSlices(t, toolsOf(t, nc), want)
	}
	same(t, "echo", ask(t, ada, "tools.execute.echo", `{}`), `{"data":{},"error":null}`)
	kit.Contains(t, ask(t, ada, "tools.execute.fail", `{}`), "NotFound: ", "fail")
}

// toolsOf lists the tools that a caller sees.
func toolsOf(t *testing.T, nc *nats.Conn) []string {
	t.Helper()
	specs := kit.Must(discover(t.Context(), nc, "here"))(t)
	var names []string
	for _, s := range specs {
		names = append(names, s.Name)
	}
	return names
}

func TestStatisticsAreSeparatePerCaller(t *testing.T) {
	l := list("ada", "bob")
	s := startWith(t, ServerOptions{Gate: l.gate})
	serve(t, DoorOptions{Server: s}, tooltest.Reference{}, tooltest.Reference{})
	ask(t, connectAs(t, s, "ada"), "tools.execute.fail", `{"message":"a secret"}`)
	var stats micro.Stats
	decode(t, ask(t, connectAs(t, s, "bob"), "$SRV.STATS.toolpost", ""), &stats)
	for _, e := range stats.Endpoints {
		if e.NumRequests != 0 || e.LastError != "" {
			t.Errorf("bob reads %+v", e)
		}
	}
}

func TestRevokedCallerIsCutOffAndItsCallsEnd(t *testing.T) {
	tooltest.NoLeaks(t)
	l := list("ada", "bob")
	s := startWith(t, ServerOptions{Gate: l.gate, again: recheckEvery})
	inside, why := make(chan struct{}), make(chan error, 1)
	box := toolbox{"who": tells, "hang": func(ctx context.Context, _ *tool.Call, _ tool.Sink) (*tool.Result, error) {
		close(inside)
		<-ctx.Done()
		why <- context.Cause(ctx)
		return nil, ctx.Err()
	}}
	serve(t, DoorOptions{Server: s}, box, box)
	closed := make(chan struct{})
	ada, bob := connectAs(t, s, "ada", nats.NoReconnect(), nats.ClosedHandler(func(*nats.Conn) { close(closed) })), connectAs(t, s, "bob")
	kit.OK(t, ada.Publish("tools.execute.hang", nil))
	kit.Receive(t, "inside", inside)
	l.revoke("token-of-ada")
	kit.Receive(t, "closed", closed)
	wantCode(t, kit.Receive(t, "why", why), tool.CodeAccessDenied, "ada")
	kit.Fails(t, kit.Err(nats.Connect(s.ClientURL(), nats.UserInfo("ada", "token-of-ada"), nats.Timeout(patience))),
		"", "a token that was revoked opened the door")
	if !bob.IsConnected() || bob.Stats().Reconnects > 0 {
		t.Error("bob was cut off too")
	}
	ask(t, bob, "tools.execute.who", `{}`)
}

func TestOnlyTheRevokedTokenIsCutOff(t *testing.T) {
	l := list("ada")
	l.set("another-of-ada", "ada", nil)
	s := startWith(t, ServerOptions{Gate: l.gate})
	box := toolbox{"who": tells}
	serve(t, DoorOptions{Server: s}, box, box)
	closed := make(chan struct{})
	connectAs(t, s, "ada", nats.NoReconnect(), nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
	other := connect(t, s, nats.Token("another-of-ada"))
	l.revoke("token-of-ada")
	kit.Receive(t, "closed", closed)
	ask(t, other, "tools.execute.who", `{}`)
	if other.Stats().Reconnects > 0 {
		t.Error("the other token was cut off too")
	}
}

func TestChangedRightsApplyToOpenConnections(t *testing.T) {
	tooltest.NoLeaks(t)
	l := list("ada")
	s := startWith(t, ServerOptions{Gate: l.gate})
	box := toolbox{"who": tells}
	serve(t, DoorOptions{Server: s}, box, box)
	ada := connectAs(t, s, "ada", nats.ReconnectWait(10*time.Millisecond), nats.ReconnectJitter(0, 0), nats.MaxReconnects(-1))
	for _, role := range []string{"reader", "writer", ""} {
		rights := &tool.Rights{Roles: []string{role}}
		if role == "" {
			rights = nil
		}
		l.set("token-of-ada", "ada", rights)
		kit.Eventually(t, "ada is "+role, func() bool {
			m, err := ada.Request("tools.execute.who", nil, time.Second) // lost if the connection is being replaced
			return err == nil && strings.Contains(string(m.Data), `"roles":"`+role+`"`)
		})
	}
}

func TestBriefGateFailureKeepsConnections(t *testing.T) {
	l := list("ada")
	s := startWith(t, ServerOptions{Gate: l.gate})
	ada := connectAs(t, s, "ada", nats.NoReconnect())
	l.setDown(true)
	before := l.asked.Load()
	kit.Eventually(t, "the gate is asked twice", func() bool { return l.asked.Load() >= before+2 })
	l.setDown(false)
	l.rounds(t)
	kit.Check(t, ada.Flush())
}

func TestLongGateFailureCutsConnectionsOff(t *testing.T) {
	k := newDoorkeeper(ServerOptions{Bounds: identity.Bounds{All: 2, Strangers: 1, Each: 1}, Callers: 1, Log: testLog(t)})
	s := startWith(t, ServerOptions{Gate: list().gate})
	k.srv = s.srv
	g := &guest{id: 1 << 40}
	kit.Must(k.enter(g, tool.Principal{ID: "ada"}))(t)
	unknown := tool.Errorf(tool.CodeUnavailable, "no answer")
	k.judge(g, tool.Principal{}, unknown)
	if len(k.guests) != 1 || g.unsure.IsZero() {
		t.Fatal("cut off at once")
	}
	k.judge(g, tool.Principal{ID: "ada"}, nil)
	if !g.unsure.IsZero() {
		t.Error("the doubt stays")
	}
	g.unsure = time.Now().Add(-unsureWithin)
	k.judge(g, tool.Principal{}, unknown)
	if len(k.guests) != 0 || len(k.accounts) != 0 {
		t.Error("not cut off")
	}
}

func TestATokenMayBeLong(t *testing.T) {
	l := list()
	l.set(strings.Repeat("x", 8<<10), "ada", nil)
	connect(t, startWith(t, ServerOptions{Gate: l.gate}), nats.Token(strings.Repeat("x", 8<<10)))
}

func TestConnectionsAndCallersAreBounded(t *testing.T) {
	tooltest.NoLeaks(t)
	l := list("ada", "bob", "cyd")
	s := startWith(t, ServerOptions{Gate: l.gate, Callers: 2, Bounds: identity.Bounds{All: 4, Strangers: 1, Each: 3}, idle: time.Millisecond, rest: time.Millisecond})
	box := toolbox{"who": tells}
	serve(t, DoorOptions{Server: s}, box, box)
	ada, bob := connectAs(t, s, "ada"), connectAs(t, s, "bob")
	refused := func(name string) {
		t.Helper()
		if nc, err := nats.Connect(s.ClientURL(), nats.UserInfo(name, "token-of-"+name), nats.Timeout(patience)); err == nil {
			nc.Close()
			t.Errorf("%s was let in", name)
		}
	}
	refused("cyd") // a third caller
	connectAs(t, s, "ada")
	refused("bob") // a fourth connection
	bob.Close()
	var cyd *nats.Conn
	kit.Eventually(t, "cyd gets the room of bob", func() bool {
		var err error
		cyd, err = nats.Connect(s.ClientURL(), nats.UserInfo("cyd", "token-of-cyd"), nats.Timeout(patience))
		return err == nil
	})
	t.Cleanup(cyd.Close)
	same(t, "cyd", ask(t, cyd, "tools.execute.who", `{}`), `{"data":{"id":"cyd","door":"nats","roles":""},"error":null}`)
	same(t, "ada", ask(t, ada, "tools.execute.who", `{}`), `{"data":{"id":"ada","door":"nats","roles":""},"error":null}`)
	s.mu.Lock()
	defer s.mu.Unlock()
	kit.Equal(t, s.made, 2, "rooms made")
}

func TestConnectionsAreBoundedPerCaller(t *testing.T) {
	tooltest.NoLeaks(t)
	s := startWith(t, ServerOptions{Gate: list("ada", "bob").gate, Bounds: identity.Bounds{All: 8, Strangers: 2, Each: 2}})
	first := connectAs(t, s, "ada")
	connectAs(t, s, "ada")
	_, err := nats.Connect(s.ClientURL(), nats.UserInfo("ada", "token-of-ada"), nats.Timeout(patience))
	kit.Fails(t, err, "maximum account active connections exceeded", "one more of ada's")
	connectAs(t, s, "bob")
	first.Close()
	kit.Eventually(t, "a place that has become free", func() bool {
		nc, err := nats.Connect(s.ClientURL(), nats.UserInfo("ada", "token-of-ada"), nats.Timeout(patience))
		if err == nil {
			nc.Close()
		}
		return err == nil
	})
}

// Connections that show no credentials keep no client out.
func TestIdleStrangersDoNotBlockCallers(t *testing.T) {
	tooltest.NoLeaks(t)
	s := startWith(t, ServerOptions{Gate: list("ada").gate, Bounds: identity.Bounds{All: 8, Strangers: 2, Each: 2}, Callers: 2})
	ada := connectAs(t, s, "ada")
	address := strings.TrimPrefix(s.ClientURL(), "nats://")
	var silent []net.Conn
	for range 10 {
		conn := kit.Must(net.Dial("tcp", address))(t)
		defer conn.Close()
		silent = append(silent, conn)
	}
	open := func() (n int) {
		for _, conn := range silent {
			_ = conn.SetReadDeadline(time.Now().Add(time.Millisecond))
			_, err := io.Copy(io.Discard, conn)
			if e, ok := err.(net.Error); ok && e.Timeout() {
				n++
			}
		}
		return n
	}
	left := len(silent)
	kit.Eventually(t, "few of those who say nothing are left", func() bool { left = open(); return left <= 2 })
	if left == 0 {
		t.Error("those within the bounds were cut off, too")
	}
	connectAs(t, s, "ada")
	kit.Check(t, ada.Flush(), "who was there before")
}

func TestCallOutlivesTheConnectionOfItsCaller(t *testing.T) {
	tooltest.NoLeaks(t)
	l := list("ada", "bob")
	s := startWith(t, ServerOptions{Gate: l.gate, idle: time.Millisecond})
	inside, leave, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	box := toolbox{"long": func(ctx context.Context, _ *tool.Call, _ tool.Sink) (*tool.Result, error) {
		close(inside)
		select {
		case <-leave:
		case <-ctx.Done():
		}
		ended <- context.Cause(ctx)
		return &tool.Result{OK: true}, nil
	}}
	serve(t, DoorOptions{Server: s}, box, box)
	connectAs(t, s, "bob")
	ada := connectAs(t, s, "ada")
	kit.OK(t, ada.Publish("tools.execute.long", nil))
	kit.Receive(t, "inside", inside)
	ada.Close()
	accounts := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.accounts)
	}
	kit.Eventually(t, "the account of ada is left", func() bool { return accounts() == 1 })
	l.rounds(t)
	close(leave)
	kit.Check(t, kit.Receive(t, "ended", ended), "the call was ended")
	kit.Eventually(t, "the room of ada is free", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.free) == 1
	})
}

func TestConnectionAuthenticatesOnce(t *testing.T) {
	l := list("ada", "bob")
	s := startWith(t, ServerOptions{Gate: l.gate})
	c, err := net.Dial("tcp", strings.TrimPrefix(s.ClientURL(), "nats://"))
	kit.OK(t, err)
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	in := bufio.NewReader(c)
	say := func(text string) {
		kit.Must(io.WriteString(c, text))(t)
	}
	say(`CONNECT {"auth_token":"token-of-ada"}` + "\r\nPING\r\n")
	for line := ""; line != "PONG\r\n"; {
		if line, err = in.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	say(`CONNECT {"auth_token":"token-of-bob","user":""}` + "\r\nPING\r\n")
	rest, _ := io.ReadAll(in)
	if !strings.Contains(string(rest), "Authorization Violation") || strings.Contains(string(rest), "PONG") {
		t.Errorf("the server said %q", rest)
	}
}

func TestACertificateStandsForACaller(t *testing.T) {
	tooltest.NoLeaks(t)
	dir := t.TempDir()
	certificates(t, dir)
	ours, others := newAuthority(t), newAuthority(t)
	write(t, filepath.Join(dir, "clients.pem"), ours.pem)
	l := list("bob")
	l.set("ada", "ada", nil) // by the name in the certificate
	config := kit.Must(ServerTLS{Cert: "cert.pem", Key: "key.pem", ClientCA: "clients.pem"}.Load(dir))(t)
	s := startWith(t, ServerOptions{Gate: l.gate, TLS: config})
	box := toolbox{"who": tells}
	serve(t, DoorOptions{Server: s}, box, box)
	with := func(a *authority, name string, more ...nats.Option) (*nats.Conn, error) {
		file := filepath.Join(dir, name)
		a.issue(t, name, file)
		return nats.Connect(s.ClientURL(), append(more, nats.Timeout(patience), nats.RootCAs(filepath.Join(dir, "ca.pem")),
			nats.ClientCert(file+".pem", file+".key"))...)
	}
	closed := make(chan struct{})
	ada := kit.Must(with(ours, "ada", nats.NoReconnect(), nats.ClosedHandler(func(*nats.Conn) { close(closed) })))(t)
	defer ada.Close()
	same(t, "ada", ask(t, ada, "tools.execute.who", `{}`), `{"data":{"id":"ada","door":"nats","roles":""},"error":null}`)
	bob := connectAs(t, s, "bob", nats.RootCAs(filepath.Join(dir, "ca.pem")))
	same(t, "bob, by his token", ask(t, bob, "tools.execute.who", `{}`), `{"data":{"id":"bob","door":"nats","roles":""},"error":null}`)
	for name, try := range map[string]func() (*nats.Conn, error){
		"a certificate of nobody we know":    func() (*nats.Conn, error) { return with(ours, "eve") },
		"a certificate of another authority": func() (*nats.Conn, error) { return with(others, "ada") },
		"a certificate with another's name":  func() (*nats.Conn, error) { return with(ours, "ada", nats.UserInfo("bob", "")) },
		"neither a certificate nor a token": func() (*nats.Conn, error) {
			return nats.Connect(s.ClientURL(), nats.RootCAs(filepath.Join(dir, "ca.pem")), nats.Timeout(patience))
		},
		"a certificate and a token of nobody's": func() (*nats.Conn, error) { return with(ours, "ada", nats.Token("wrong")) },
	} {
		if nc, err := try(); err == nil {
			nc.Close()
			t.Errorf("%s: let in", name)
		}
	}
	l.revoke("ada")
	kit.Receive(t, "closed", closed)
}

func TestExpiredCertificateIsRefused(t *testing.T) {
	l := list()
	l.set("ada", "ada", nil)
	k := newDoorkeeper(ServerOptions{Gate: l.gate})
	cert := &x509.Certificate{Subject: pkix.Name{CommonName: "ada"}, NotAfter: time.Now().Add(time.Hour)}
	kit.Check(t, kit.Err(k.ask(t.Context(), askWithin, identity.Credentials{Door: "nats", Certificate: cert})))
	cert.NotAfter = time.Now().Add(-time.Hour)
	_, err := k.ask(t.Context(), askWithin, identity.Credentials{Door: "nats", Certificate: cert})
	wantCode(t, err, tool.CodeAccessDenied, "expired")
}

// An authority issues certificates to callers.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key := kit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der := kit.Must(x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key))(t)
	cert := kit.Must(x509.ParseCertificate(der))(t)
	return &authority{cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// issue writes a certificate and its key to files.
func (a *authority) issue(t *testing.T, name, file string) {
	t.Helper()
	key := kit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der := kit.Must(x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key))(t)
	private := kit.Must(x509.MarshalPKCS8PrivateKey(key))(t)
	write(t, file+".pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	write(t, file+".key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))
}

func TestADoorConfigThatCannotWorkIsRefused(t *testing.T) {
	dir := t.TempDir()
	certificates(t, dir)
	write(t, filepath.Join(dir, "empty.pem"), nil)
	for name, c := range map[string]struct {
		config DoorConfig
		code   tool.Code
		says   string
	}{
		"nothing":                   {},
		"a url and a caller":        {config: DoorConfig{Connect: Connect{URL: "nats://a:1"}, Caller: "ci"}},
		"TLS":                       {config: DoorConfig{TLS: ServerTLS{Cert: "cert.pem", Key: "key.pem", ClientCA: "ca.pem"}}},
		"a url and embedded":        {DoorConfig{Embedded: true, Connect: Connect{URL: "nats://a:1"}}, tool.CodeInvalidInput, "embedded"},
		"a url and TLS":             {DoorConfig{TLS: ServerTLS{Cert: "c", Key: "k"}, Connect: Connect{URL: "nats://a:1"}}, tool.CodeInvalidInput, "tls_cert"},
		"embedded and a caller":     {DoorConfig{Caller: "ci"}, tool.CodeInvalidInput, "url"},
		"a certificate without key": {DoorConfig{TLS: ServerTLS{Cert: "cert.pem"}}, tool.CodeInvalidInput, "key"},
		"authorities alone":         {DoorConfig{TLS: ServerTLS{ClientCA: "ca.pem"}}, tool.CodeInvalidInput, "cert and key"},
		"no such certificate":       {DoorConfig{TLS: ServerTLS{Cert: "none.pem", Key: "key.pem"}}, tool.CodeUnavailable, "none.pem"},
		"no such authorities":       {DoorConfig{TLS: ServerTLS{Cert: "cert.pem", Key: "key.pem", ClientCA: "none.pem"}}, tool.CodeUnavailable, "none.pem"},
		"authorities without any":   {DoorConfig{TLS: ServerTLS{Cert: "cert.pem", Key: "key.pem", ClientCA: "empty.pem"}}, tool.CodeInvalidInput, "empty.pem"},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.config.Check()
			if err == nil {
				_, err = c.config.TLS.Load(dir)
			}
			if c.code != "" {
				wantCode(t, err, c.code, c.says)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestExternalServerHasOneConfiguredCaller(t *testing.T) {
	tooltest.NoLeaks(t)
	url := outside(t, server.Options{})
	box := toolbox{"who": tells}
	var role atomic.Value
	role.Store("reader")
	named := func(id string) tool.Principal {
		return tool.Principal{ID: id, Rights: &tool.Rights{Roles: []string{role.Load().(string)}}}
	}
	nc := kit.Must(nats.Connect(url, nats.Timeout(patience)))(t)
	defer nc.Close()
	stop := serve(t, DoorOptions{Connect: Connect{URL: url}}, box, box)
	same(t, "without a name", ask(t, nc, "tools.execute.who", `{}`), `{"data":{"id":"nats","door":"nats","roles":""},"error":null}`)
	stop()
	stop = serve(t, DoorOptions{Connect: Connect{URL: url}, Caller: "ci", Named: named}, box, box)
	defer stop()
	same(t, "with one", ask(t, nc, "tools.execute.who", `{}`), `{"data":{"id":"ci","door":"nats","roles":"reader"},"error":null}`)
	role.Store("writer")
	kit.Eventually(t, "the rights are those of now", func() bool {
		return strings.Contains(ask(t, nc, "tools.execute.who", `{}`), `"roles":"writer"`)
	})
}

func TestEquivalentRightsShareAnAccount(t *testing.T) {
	key := func(r *tool.Rights) accountKey { return keyOf(tool.Principal{ID: "ada", Door: "nats", Rights: r}) }
	same := key(&tool.Rights{Roles: []string{"a", "b"}, Tools: tool.Patterns{"x", "y"}})
	kit.Equal(t, same,
		key(&tool.Rights{Roles: []string{"b", "a"}, Tools: tool.Patterns{"y", "x"}}), "the order of rights matters")
	different := []accountKey{same, key(nil)}
	for _, r := range []*tool.Rights{
		{}, {Tools: tool.Patterns{}}, {Roles: []string{"a b"}}, {Roles: []string{"a", "b"}}, {Roles: []string{`a" "b`}},
		{Tools: tool.Patterns{"a", "b"}}, {Tools: tool.Patterns{"ab"}},
	} {
		if k := key(r); slices.Contains(different, k) {
			t.Errorf("%+v is in the account of other rights", r)
		} else {
			different = append(different, k)
		}
	}
	if keyOf(tool.Principal{ID: "ada"}) == keyOf(tool.Principal{ID: "bob"}) {
		t.Error("two callers share an account")
	}
}
