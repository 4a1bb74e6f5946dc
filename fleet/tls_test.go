package fleet

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go"

	"toolpost/engine/member"
	"toolpost/fleet/certs"
	"toolpost/fleet/invite"
	"toolpost/fleet/membership"
	"toolpost/internal/kit"
	"toolpost/tool"
)

// issue writes a certificate of an authority for names, as an operator would get it, and returns its files.
func issue(t testing.TB, ca *certs.Authority, dir string, names ...string) certs.Files {
	t.Helper()
	key := kit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	leaf := kit.Must(certs.Certify(&x509.Certificate{
		DNSNames: names, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, ca.Certificate, &key.PublicKey, ca.Key))(t)
	f := certs.Files{Cert: filepath.Join(dir, "hub.pem"), Key: filepath.Join(dir, "hub.key"), CA: filepath.Join(dir, "ca.pem")}
	for path, b := range map[string]*pem.Block{
		f.Cert: {Type: "CERTIFICATE", Bytes: leaf.Raw}, f.CA: {Type: "CERTIFICATE", Bytes: ca.Certificate.Raw},
		f.Key: {Type: "EC PRIVATE KEY", Bytes: kit.Must(x509.MarshalECPrivateKey(key))(t)},
	} {
		kit.OK(t, os.WriteFile(path, pem.EncodeToMemory(b), 0o600))
	}
	return f
}

// shown is the certificate that a hub shows to a node that trusts an authority.
func shown(t testing.TB, hub *Node, p *membership.Pass) (*x509.Certificate, error) {
	t.Helper()
	nc, err := raw(t, hub, p)
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	state := kit.Must(nc.TLSConnectionState())(t)
	return state.PeerCertificates[0], nil
}

func TestAFleetHasTheCertificatesOfItsOperator(t *testing.T) {
	ca, dir := kit.Must(certs.New())(t), t.TempDir()
	files := issue(t, ca, dir, "localhost")
	f := openWith(t, files)
	kit.Equal(t, f.hub.address(), "localhost:"+f.hub.server.port)
	kit.Equal(t, f.hub.pass.CAKey, "", "the operator keeps the key of the authority")
	f.work("one", reference(t))
	second, _ := f.second()
	kit.Equal(t, second.pass.Named, true)
	p := f.join("bare", member.Worker)
	before := kit.Must(shown(t, f.hub, p))(t)

	issue(t, ca, dir, "localhost")
	kit.Equal(t, kit.Must(shown(t, f.hub, p))(t).Equal(before), false, "a renewed certificate is shown at once")
	renewed := kit.Must(shown(t, f.hub, p))(t)
	kit.OK(t, os.WriteFile(files.Key, []byte("half"), 0o600))
	kit.Equal(t, kit.Must(shown(t, f.hub, p))(t).Equal(renewed), true, "the last one stays while a file is being written")
	issue(t, ca, dir, "elsewhere")
	kit.Equal(t, kit.Must(shown(t, f.hub, p))(t).Equal(renewed), true, "and if the next one is for another host")

	// Another server, with a certificate of the same authority for another host, is not the hub.
	f.hub.server.srv.Shutdown()
	other := kit.Must(tls.LoadX509KeyPair(files.Cert, files.Key))(t)
	other.Certificate = append(other.Certificate, ca.Certificate.Raw)
	fake := kit.Must(startServer("127.0.0.1:0", always(&other),
		f.hub.roster.Known, f.log))(t)
	defer fake.srv.Shutdown()
	address := "localhost:" + fake.port
	_, err := nats.Connect("nats://"+address, nats.Secure(kit.Must(p.Trust())(t)), nats.TLSHandshakeFirst(), nats.Nkey(kit.Must(p.Public())(t), p.Sign))
	kit.Fails(t, err, "not localhost")
	i := invite.New([]string{address}, ca.Certificate.Raw)
	_, err = Join(t.Context(), i, "lured", member.Worker)
	kit.Refused(t, err, tool.CodeAccessDenied, "shows a certificate for other hosts")
}

func TestACertificateThatNodesWouldRefuse(t *testing.T) {
	ca, dir := kit.Must(certs.New())(t), t.TempDir()
	f := openWith(t, issue(t, ca, dir, "localhost"))
	p, state := f.join("hub2", member.Hub), t.TempDir()
	for what, c := range map[string]struct {
		o    Options
		says string
	}{
		"none":             {Options{}, "set fleet.tls and fleet.advertise"},
		"of another host":  {Options{TLS: issue(t, ca, t.TempDir(), "elsewhere"), Advertise: "localhost"}, "is not one that nodes would accept for localhost"},
		"of another fleet": {Options{TLS: issue(t, kit.Must(certs.New())(t), t.TempDir(), "localhost"), Advertise: "localhost"}, "unknown authority"},
		"no file":          {Options{TLS: certs.Files{Cert: "a", Key: "b", CA: "c"}, Advertise: "localhost"}, "a and its key cannot be used"},
	} {
		c.o.Listen = "127.0.0.1:0"
		_, err := Start(t.Context(), Env{Options: c.o, Pass: p, State: state, Log: f.log, Machine: reference(t), Register: f.store.Fleet(), Changed: func() {}})
		kit.Refused(t, err, tool.CodeInvalidInput, c.says, what)
	}
	for says, files := range map[string]certs.Files{
		"fleet.tls.ca cannot be read": {Cert: "a", Key: "b", CA: "/none"}, "is not one that nodes would accept for localhost": issue(t, ca, t.TempDir(), "elsewhere"),
	} {
		_, err := Found(t.Context(), f.store.Fleet(), "x", t.TempDir(), Options{TLS: files, Advertise: "localhost"})
		kit.Refused(t, err, tool.CodeInvalidInput, says)
	}
	own := open(t)
	_, err := Start(t.Context(), Env{
		Options: Options{TLS: issue(t, ca, t.TempDir(), "localhost"), Advertise: "localhost", Listen: "127.0.0.1:0"},
		Pass:    own.join("hub2", member.Hub), State: t.TempDir(), Log: f.log, Machine: reference(t), Register: own.store.Fleet(), Changed: func() {},
	})
	kit.Refused(t, err, tool.CodeInvalidInput, "this fleet makes its own certificates")
	for _, o := range []Options{{TLS: certs.Files{Cert: "a"}}, {TLS: certs.Files{Cert: "a", Key: "b", CA: "c"}}, {TLS: certs.Files{Cert: "a", Key: "b", CA: "c"}, Advertise: ":7422"}, {Listen: "7422"}, {Listen: "a:x"}} {
		kit.Refused(t, o.Check(), tool.CodeInvalidInput, "fleet.")
	}
}
