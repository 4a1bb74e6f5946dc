package singularity

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

func TestConnectionNeedsAToken(t *testing.T) {
	tooltest.NoLeaks(t)
	s := startServer(t, "127.0.0.1:0")
	for name, option := range map[string]nats.Option{
		"none": nats.Name("x"), "wrong": nats.Token("wrong"), "empty": nats.Token(""), "wrong password": nats.UserInfo("tester", "wrong"),
		"another's name": nats.UserInfo("owner", testToken), "no password": nats.UserInfo("tester", ""),
	} {
		if nc, err := nats.Connect(s.ClientURL(), option, nats.Timeout(patience)); err == nil {
			nc.Close()
			t.Errorf("%s: connected", name)
		}
	}
	for name, option := range map[string]nats.Option{"token": nats.Token(testToken), "password": nats.UserInfo("tester", testToken)} {
		nc, err := nats.Connect(s.ClientURL(), option, nats.Timeout(patience))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		nc.Close()
	}
}

func TestListeningServerNeedsAGate(t *testing.T) {
	_, err := StartServer(ServerOptions{Listen: "127.0.0.1:0"})
	wantCode(t, err, tool.CodeInternal, "Gate")
	_, err = StartServer(ServerOptions{Listen: "nowhere", Gate: auth})
	wantCode(t, err, tool.CodeInvalidInput, "127.0.0.1:4222")
}

func TestAddressInUseIsAnError(t *testing.T) {
	tooltest.NoLeaks(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	kit.OK(t, err)
	defer ln.Close()
	_, err = StartServer(ServerOptions{Listen: ln.Addr().String(), Gate: auth})
	wantCode(t, err, tool.CodeUnavailable, ln.Addr().String())
}

func TestAServerWithoutAnAddressServesThisProcessAlone(t *testing.T) {
	tooltest.NoLeaks(t)
	s := startServer(t, "")
	kit.Equal(t, s.ClientURL(), "", "it listens at")
	serve(t, DoorOptions{Server: s}, tooltest.Reference{}, tooltest.Reference{})
	same(t, "echo", ask(t, connectTo(t, s, ""), "tools.execute.echo", `{"a":1}`), `{"data":{"a":1},"error":null}`)
}

func TestCallersCanNeitherReadRequestsNorAnswerThem(t *testing.T) {
	s := startServer(t, "127.0.0.1:0")
	serve(t, DoorOptions{Server: s}, tooltest.Reference{}, tooltest.Reference{})
	refused := make(chan error, 16)
	spy := connect(t, s, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
	seen := make(chan string, 16)
	for _, subject := range []string{"tools.>", "tools.execute.*", ">", "toolpost.cancel", "$SRV.PING"} {
		kit.Must(spy.Subscribe(subject, func(m *nats.Msg) {
			if !strings.HasPrefix(m.Subject, "_INBOX.") {
				seen <- m.Subject
			}
		}))(t)
	}
	kit.Must(spy.QueueSubscribe("tools.execute.>", "toolpost", func(m *nats.Msg) { _ = m.Respond([]byte("stolen")) }))(t)
	kit.OK(t, spy.Flush())
	nc := connect(t, s)
	for range 50 {
		same(t, "echo", ask(t, nc, "tools.execute.echo", `{"secret":1}`), `{"data":{"secret":1},"error":null}`)
	}
	kit.OK(t, spy.Flush())
	select {
	case subject := <-seen:
		t.Errorf("a caller saw a message on %s", subject)
	default:
	}
	if err := <-refused; !strings.Contains(strings.ToLower(err.Error()), "permissions violation") {
		t.Errorf("got %v", err)
	}
}

// outsideAt starts a server that is not ours at an address, and returns a function that stops it.
func outsideAt(t *testing.T, listen string) (stop func()) {
	t.Helper()
	host, port, _ := net.SplitHostPort(listen)
	n, _ := strconv.Atoi(port)
	s := kit.Must(server.NewServer(&server.Options{Host: host, Port: n, NoSigs: true, NoLog: true}))(t)
	s.Start()
	if !s.ReadyForConnections(patience) {
		t.Fatal("the server does not start")
	}
	return func() { s.Shutdown(); s.WaitForShutdown() }
}

// outside starts a NATS server that is not ours, with a usual configuration.
func outside(t *testing.T, o server.Options) string {
	t.Helper()
	o.Host, o.Port, o.NoSigs, o.NoLog = "127.0.0.1", server.RANDOM_PORT, true, true
	s := kit.Must(server.NewServer(&o))(t)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(patience) {
		t.Fatal("the server does not start")
	}
	return s.ClientURL()
}

func TestAnExternalServerIsReachedWithEveryKindOfCredential(t *testing.T) {
	dir := t.TempDir()
	user := kit.Must(nkeys.CreateUser())(t)
	seed, _ := user.Seed()
	public, _ := user.PublicKey()
	write(t, filepath.Join(dir, "seed"), seed)
	certs := certificates(t, dir)
	t.Setenv("SINGULARITY_TEST_PASSWORD", "pw")
	t.Setenv("SINGULARITY_TEST_OTHER", "tok")
	for name, c := range map[string]struct {
		server  server.Options
		connect Connect
	}{
		"user and password":         {server.Options{Username: "u", Password: "pw"}, Connect{User: "u", Password: "pw"}},
		"user and password_env":     {server.Options{Username: "u", Password: "pw"}, Connect{User: "u", PasswordEnv: "SINGULARITY_TEST_PASSWORD"}},
		"token":                     {server.Options{Authorization: "tok"}, Connect{TokenEnv: "SINGULARITY_TEST_OTHER"}},
		"nkey":                      {server.Options{Nkeys: []*server.NkeyUser{{Nkey: public}}}, Connect{NKey: "seed"}},
		"TLS":                       {server.Options{TLSConfig: certs, TLS: true}, Connect{CA: "ca.pem"}},
		"TLS with our own":          {server.Options{TLSConfig: mutual(certs), TLS: true, TLSVerify: true}, Connect{CA: "ca.pem", Cert: "cert.pem", Key: "key.pem"}},
		"user and password in TLS":  {server.Options{TLSConfig: certs, TLS: true, Username: "u", Password: "pw"}, Connect{CA: "ca.pem", User: "u", Password: "pw"}},
		"nothing, where none asked": {server.Options{}, Connect{}},
	} {
		t.Run(name, func(t *testing.T) {
			url := outside(t, c.server)
			connect := c.connect.Resolve(dir)
			connect.URL = url
			serve(t, DoorOptions{Connect: connect}, tooltest.Reference{}, tooltest.Reference{})
			r := kit.Must(New(context.Background(), Options{Connect: connect}, nil))(t)
			defer func() { _ = r.Close(context.Background()) }()
			res, err := r.Invoke(context.Background(), &tool.Call{Tool: "echo", Args: []byte(`{"a":1}`)}, tool.Discard)
			if err != nil || string(res.Output) != `{"a":1}` {
				t.Errorf("got %v, %v", res, err)
			}
		})
	}
}

func TestACredentialsFileIsRead(t *testing.T) {
	dir := t.TempDir()
	operator, _ := nkeys.CreateOperator()
	account, _ := nkeys.CreateAccount()
	user, _ := nkeys.CreateUser()
	trusted, jwts := jwtServer(t, operator, account, user)
	seed, _ := user.Seed()
	write(t, filepath.Join(dir, "user.creds"), credsFile(jwts, seed))
	connect := Connect{URL: outside(t, trusted), Creds: "user.creds"}.Resolve(dir)
	serve(t, DoorOptions{Connect: connect}, tooltest.Reference{}, tooltest.Reference{})
	r := kit.Must(New(context.Background(), Options{Connect: connect}, nil))(t)
	defer func() { _ = r.Close(context.Background()) }()
	kit.Check(t, kit.Err(r.Invoke(context.Background(), &tool.Call{Tool: "echo", Args: []byte(`{}`)}, tool.Discard)))
}

func TestTheEmbeddedServerSpeaksTLS(t *testing.T) {
	dir := t.TempDir()
	s := kit.Must(StartServer(ServerOptions{Listen: "127.0.0.1:0", Gate: auth, TLS: certificates(t, dir)}))(t)
	t.Cleanup(s.Close)
	serve(t, DoorOptions{Server: s}, tooltest.Reference{}, tooltest.Reference{})
	nc := connect(t, s, nats.RootCAs(filepath.Join(dir, "ca.pem")))
	same(t, "echo", ask(t, nc, "tools.execute.echo", `{}`), `{"data":{},"error":null}`)
	if nc, err := nats.Connect(strings.Replace(s.ClientURL(), "tls://", "nats://", 1), nats.Token(testToken),
		nats.Timeout(patience)); err == nil {
		nc.Close()
		t.Error("a client that does not know the certificate connected")
	}
}

func TestConnectOptionsThatCannotWorkAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		connect Connect
		code    tool.Code
		says    string
	}{
		"no url":                 {Connect{}, tool.CodeInvalidInput, "url"},
		"another scheme":         {Connect{URL: "http://x:1"}, tool.CodeInvalidInput, "nats://"},
		"no host":                {Connect{URL: "nats://"}, tool.CodeInvalidInput, "nats://"},
		"one of two is bad":      {Connect{URL: "nats://a:1,b"}, tool.CodeInvalidInput, "nats://"},
		"two passwords":          {Connect{URL: "nats://a:1", User: "u", Password: "p", PasswordEnv: "P"}, tool.CodeInvalidInput, "one of them"},
		"a password alone":       {Connect{URL: "nats://a:1", Password: "p"}, tool.CodeInvalidInput, "user"},
		"a certificate alone":    {Connect{URL: "nats://a:1", Cert: "c"}, tool.CodeInvalidInput, "tls_key"},
		"no such variable":       {Connect{URL: "nats://a:1", TokenEnv: "SINGULARITY_NOT_SET"}, tool.CodeUnavailable, "SINGULARITY_NOT_SET"},
		"no such password":       {Connect{URL: "nats://a:1", User: "u", PasswordEnv: "SINGULARITY_NOT_SET"}, tool.CodeUnavailable, "SINGULARITY_NOT_SET"},
		"no such file":           {Connect{URL: "nats://a:1", Creds: "/nowhere/creds"}, tool.CodeUnavailable, "/nowhere/creds"},
		"a file that is no seed": {Connect{URL: "nats://a:1", NKey: "server_test.go"}, tool.CodeInvalidInput, "nkey seed"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.connect.options()
			wantCode(t, err, c.code, c.says)
			wantCode(t, NewDoor(DoorOptions{Connect: c.connect}).Serve(context.Background(), nil, nil), c.code, c.says)
		})
	}
	kit.Equal(t, (Connect{URL: "nats://user:secret@host:4222, tls://other@b"}).shown(),
		"nats://host:4222,tls://b", "shown as")
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	kit.OK(t, os.WriteFile(path, content, 0o600))
}

// certificates makes a certificate for this machine, and writes it to dir with its key and as its own authority.
func certificates(t *testing.T, dir string) *tls.Config {
	t.Helper()
	key := kit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der := kit.Must(x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key))(t)
	keyDER := kit.Must(x509.MarshalPKCS8PrivateKey(key))(t)
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	private := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
	write(t, filepath.Join(dir, "ca.pem"), cert)
	write(t, filepath.Join(dir, "cert.pem"), cert)
	write(t, filepath.Join(dir, "key.pem"), private)
	pair := kit.Must(tls.X509KeyPair(cert, private))(t)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(cert)
	return &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, MinVersion: tls.VersionTLS12}
}

func mutual(c *tls.Config) *tls.Config {
	m := c.Clone()
	m.ClientAuth = tls.RequireAndVerifyClientCert
	return m
}
