package rest_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"toolpost/identity"
	"toolpost/internal/kit"
	"toolpost/protocol/rest"
	"toolpost/tool"
	"toolpost/tool/tooltest"
	"toolpost/web"
)

// An authority issues certificates for a test.
type authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB, name string) *authority {
	t.Helper()
	a := &authority{t: t, key: newKey(t)}
	template := &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	a.cert = a.sign(template, template, &a.key.PublicKey, a.key)
	return a
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	return kit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
}

func serial(t testing.TB) *big.Int {
	t.Helper()
	return kit.Must(rand.Int(rand.Reader, big.NewInt(1<<62)))(t)
}

func (a *authority) sign(template, parent *x509.Certificate, of *ecdsa.PublicKey, by *ecdsa.PrivateKey) *x509.Certificate {
	a.t.Helper()
	der := kit.Must(x509.CreateCertificate(rand.Reader, template, parent, of, by))(a.t)
	return kit.Must(x509.ParseCertificate(der))(a.t)
}

// issue makes a certificate; change, if given, modifies it.
func (a *authority) issue(name string, usage x509.ExtKeyUsage, change func(*x509.Certificate)) tls.Certificate {
	a.t.Helper()
	key := newKey(a.t)
	template := &x509.Certificate{
		SerialNumber: serial(a.t), Subject: pkix.Name{CommonName: name}, DNSNames: []string{"localhost"}, IPAddresses: []net.IP{{127, 0, 0, 1}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}
	if change != nil {
		change(template)
	}
	cert := a.sign(template, a.cert, &key.PublicKey, a.key)
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// write replaces a file atomically.
func write(t testing.TB, path, kind string, ders ...[]byte) {
	t.Helper()
	var text []byte
	for _, der := range ders {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})...)
	}
	kit.OK(t, os.WriteFile(path+".new", text, 0o600))
	kit.OK(t, os.Rename(path+".new", path))
}

func writePair(t testing.TB, certPath, keyPath string, pair tls.Certificate) {
	t.Helper()
	key := kit.Must(x509.MarshalPKCS8PrivateKey(pair.PrivateKey))(t)
	write(t, certPath, "CERTIFICATE", pair.Certificate...)
	write(t, keyPath, "PRIVATE KEY", key)
}

// A secured is a door with TLS that trusts the clients of one authority.
type secured struct {
	*house
	files web.TLSFiles
	ours  *authority
}

// secure opens one. A certificate identifies a caller by its name; the token is the owner's.
func secure(t testing.TB) *secured {
	t.Helper()
	dir := t.TempDir()
	s := &secured{ours: newAuthority(t, "ours"), files: web.TLSFiles{
		Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"), ClientCA: filepath.Join(dir, "ca.pem"),
	}}
	writePair(t, s.files.Cert, s.files.Key, s.ours.issue("server", x509.ExtKeyUsageServerAuth, nil))
	write(t, s.files.ClientCA, "CERTIFICATE", s.ours.cert.Raw)
	byToken := kit.Must(identity.StaticToken(token))(t)
	o := web.Options{TLS: s.files, Log: slog.New(slog.DiscardHandler), Gate: func(ctx context.Context, shown identity.Credentials) (tool.Principal, error) {
		if shown.Token == "" && shown.Certificate != nil {
			return tool.Principal{ID: shown.Certificate.Subject.CommonName, Door: shown.Door}, nil
		}
		return byToken(ctx, shown)
	}}
	s.house = open(t, setup{Options: o, handler: tool.HandlerFunc(func(_ context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
		return &tool.Result{OK: true, Output: []byte(`"` + c.Caller.ID + `"`)}, nil
	})})
	return s
}

// as returns a client that presents a certificate, or none.
func (s *secured) as(t testing.TB, shows ...tls.Certificate) *http.Client {
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: s.ours.pool(), Certificates: shows}}
	if len(shows) > 0 { // also if the server does not ask for one of its authority
		transport.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &shows[0], nil }
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: limit}
}

func (s *secured) whoAmI(c *http.Client, auth string) (answer, error) {
	req := s.request("POST", "/v1/tools/x/call", `{}`)
	req.Header.Set("Authorization", auth)
	if auth == "" {
		req.Header.Del("Authorization")
	}
	resp, err := c.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, body}, err
}

func TestAClientIsKnownByItsCertificate(t *testing.T) {
	tooltest.NoLeaks(t)
	s := secure(t)
	if !strings.HasPrefix(s.base, "https://127.0.0.1:") {
		t.Errorf("the door is at %s", s.base)
	}
	others := newAuthority(t, "ours") // it has the name of ours, but another key
	for name, c := range map[string]struct {
		shows []tls.Certificate
		auth  string
		who   string // "" if refused
		none  bool   // not even a connection is made
	}{
		"nothing":                        {},
		"the token":                      {auth: "Bearer " + token, who: "owner"},
		"a wrong token":                  {auth: "Bearer tp_not-the-token-at-all"},
		"a certificate":                  {shows: []tls.Certificate{s.ours.issue("ada", x509.ExtKeyUsageClientAuth, nil)}, who: "ada"},
		"a certificate, a wrong token":   {shows: []tls.Certificate{s.ours.issue("ada", x509.ExtKeyUsageClientAuth, nil)}, auth: "Bearer tp_not-the-token-at-all"},
		"a certificate, another scheme":  {shows: []tls.Certificate{s.ours.issue("ada", x509.ExtKeyUsageClientAuth, nil)}, auth: "Basic YTpi"},
		"of another authority":           {shows: []tls.Certificate{others.issue("ada", x509.ExtKeyUsageClientAuth, nil)}, none: true},
		"of another, and the token":      {shows: []tls.Certificate{others.issue("ada", x509.ExtKeyUsageClientAuth, nil)}, auth: "Bearer " + token, none: true},
		"one for servers":                {shows: []tls.Certificate{s.ours.issue("ada", x509.ExtKeyUsageServerAuth, nil)}, none: true},
		"one that is over":               {shows: []tls.Certificate{s.ours.issue("ada", x509.ExtKeyUsageClientAuth, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })}, none: true},
		"one that is not yet good":       {shows: []tls.Certificate{s.ours.issue("ada", x509.ExtKeyUsageClientAuth, func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Hour / 2) })}, none: true},
		"one that somebody signs itself": {shows: []tls.Certificate{selfSigned(t)}, none: true},
	} {
		a, err := s.whoAmI(s.as(t, c.shows...), c.auth)
		switch {
		case c.none:
			kit.Fails(t, err, "", name, a.status, a.body)
		case err != nil:
			t.Errorf("%s: %v", name, err)
		case c.who == "":
			a.refused(t, 401, tool.CodeAccessDenied)
		case a.status != 200 || string(a.document(t).Output) != `"`+c.who+`"`:
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
}

func selfSigned(t testing.TB) tls.Certificate {
	a := newAuthority(t, "ada")
	return tls.Certificate{Certificate: [][]byte{a.cert.Raw}, PrivateKey: a.key, Leaf: a.cert}
}

func TestOldTLSAndNoTLSAreRefused(t *testing.T) {
	tooltest.NoLeaks(t)
	s := secure(t)
	old := s.as(t)
	old.Transport.(*http.Transport).TLSClientConfig.MaxVersion = tls.VersionTLS11
	old.Transport.(*http.Transport).TLSClientConfig.MinVersion = tls.VersionTLS10
	if a, err := s.whoAmI(old, "Bearer "+token); err == nil {
		t.Errorf("TLS 1.1: %d", a.status)
	}
	_, r := s.raw(t, s.head("GET", "/v1/tools"))
	if a := readRaw(t, r); a.status != 400 {
		t.Errorf("without TLS: %d %s", a.status, a.body)
	}
}

func TestCertificatesAreReadAgainWhenTheyChange(t *testing.T) {
	tooltest.NoLeaks(t)
	s := secure(t)
	served := func() string {
		t.Helper()
		conn := kit.Must(tls.Dial("tcp", s.addr, &tls.Config{RootCAs: s.ours.pool()}))(t)
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	writePair(t, s.files.Cert, s.files.Key, s.ours.issue("the next one", x509.ExtKeyUsageServerAuth, nil))
	kit.Equal(t, served(), "the next one", "what is served")
	write(t, s.files.Cert, "CERTIFICATE", []byte("half of it"))
	kit.Equal(t, served(), "the next one", "served with a file that cannot be read")
	writePair(t, s.files.Cert, s.files.Key, s.ours.issue("the third", x509.ExtKeyUsageServerAuth, nil))
	kit.Equal(t, served(), "the third", "what is served")
}

func TestConnectionIsRefusedOnceItsCAIsReplaced(t *testing.T) {
	tooltest.NoLeaks(t)
	s := secure(t)
	ada := s.as(t, s.ours.issue("ada", x509.ExtKeyUsageClientAuth, nil))
	kit.MustEqual(t, kit.Must(s.whoAmI(ada, ""))(t).status, 200)
	write(t, s.files.ClientCA, "CERTIFICATE", newAuthority(t, "another").cert.Raw)
	a := kit.Must(s.whoAmI(ada, ""))(t) // the connection is still open
	a.refused(t, 401, tool.CodeAccessDenied)
	ada.CloseIdleConnections()
	if a, err := s.whoAmI(ada, ""); err == nil {
		t.Errorf("a new connection: %d", a.status)
	}
}

func TestASourceShowsItsCertificateAndChecksTheServers(t *testing.T) {
	tooltest.NoLeaks(t)
	s := secure(t)
	dir := filepath.Dir(s.files.Cert)
	writePair(t, filepath.Join(dir, "ada.pem"), filepath.Join(dir, "ada.key"), s.ours.issue("ada", x509.ExtKeyUsageClientAuth, nil))
	write(t, filepath.Join(dir, "other.pem"), "CERTIFICATE", newAuthority(t, "other").cert.Raw)
	at := `url: "` + s.base + `", `
	src := source(t, at+`ca: ca.pem, cert: ada.pem, key: ada.key`)
	src.Dir = dir
	r := kit.Must(rest.Open(kit.Context(t), src, nil))(t)
	defer r.Close(context.Background())
	kit.Equal(t, string(kit.Must(r.Invoke(kit.Context(t), &tool.Call{Tool: "x"}, tool.Discard))(t).Output), `"ada"`)
	for fields, want := range map[string]tool.Code{
		at + `ca: other.pem`:                        tool.CodeUnavailable,
		at + `cert: ada.pem, key: ada.key`:          tool.CodeUnavailable, // the machine's authorities do not include ours
		at + `ca: ca.pem`:                           tool.CodeAccessDenied,
		at + `ca: none.pem`:                         tool.CodeInvalidInput,
		at + `ca: ada.key`:                          tool.CodeInvalidInput,
		at + `ca: ca.pem, cert: ada.pem`:            tool.CodeInvalidInput,
		`url: "http://` + s.addr + `", ca: ca.pem`:  tool.CodeInvalidInput,
		`url: "unix:/no/such/socket"`:               tool.CodeUnavailable,
		`url: "unix:/no/such/socket", cert: ca.pem`: tool.CodeInvalidInput,
	} {
		src := source(t, fields)
		src.Dir = dir
		kit.Refused(t, kit.Err(rest.Open(kit.Context(t), src, nil)), want, "", fields)
	}
}

func TestADoorWithFilesThatCannotBeUsedDoesNotOpen(t *testing.T) {
	dir := t.TempDir()
	ours := newAuthority(t, "ours")
	cert, key, other := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "other.pem")
	writePair(t, cert, key, ours.issue("server", x509.ExtKeyUsageServerAuth, nil))
	writePair(t, filepath.Join(dir, "x.pem"), other, ours.issue("server", x509.ExtKeyUsageServerAuth, nil))
	gate := kit.Must(identity.StaticToken(token))(t)
	for name, o := range map[string]web.Options{
		"a certificate alone":        {TLS: web.TLSFiles{Cert: cert}},
		"a key alone":                {TLS: web.TLSFiles{Key: key}},
		"clients alone":              {TLS: web.TLSFiles{ClientCA: cert}},
		"no such file":               {TLS: web.TLSFiles{Cert: cert + "x", Key: key}},
		"another key":                {TLS: web.TLSFiles{Cert: cert, Key: other}},
		"no such authority":          {TLS: web.TLSFiles{Cert: cert, Key: key, ClientCA: cert + "x"}},
		"authorities that are a key": {TLS: web.TLSFiles{Cert: cert, Key: key, ClientCA: key}},
		"a Unix socket":              {TLS: web.TLSFiles{Cert: cert, Key: key}, Listen: "unix:" + filepath.Join(dir, "s")},
	} {
		o.Gate = gate
		o.Ready = func(string) { t.Errorf("%s: it opens", name) }
		if o.Listen == "" {
			o.Listen = "127.0.0.1:0"
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // a door that opens all the same ends at once
		kit.Refused(t, newDoor(o).Serve(ctx, tooltest.Reference{}, tooltest.Reference{}), tool.CodeInvalidInput, "", name)
	}
}
