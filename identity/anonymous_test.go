package identity_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"testing"

	"toolpost/identity"
	"toolpost/internal/kit"
	"toolpost/tool"
)

// A connection that showed a certificate is not anonymous, even if the certificate is no longer accepted.
func TestClientWithACertificateIsNotAnonymous(t *testing.T) {
	a := identity.Anonymous{Name: "guest"}
	shown := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{}}}
	for state, want := range map[*tls.ConnectionState]string{nil: "guest", {}: "guest", shown: ""} {
		kit.Equal(t, a.Of(&http.Request{TLS: state, Header: http.Header{}}), want, state)
	}
	kit.Equal(t, (identity.Anonymous{}).Of(&http.Request{Header: http.Header{}}), "", "where nobody is anonymous")
}

// An operator with a proxy in front of a door learns that it is the reason why a token is required.
func TestReasonAgainstAnonymityIsNamed(t *testing.T) {
	guest, anywhere := identity.Anonymous{Name: "guest"}, identity.Anonymous{Name: "guest", Anywhere: true}
	for _, c := range []struct {
		a            identity.Anonymous
		header, want string
	}{
		{guest, "X-Forwarded-For", "a request with the header X-Forwarded-For is never anonymous; "},
		{guest, "Cookie", "a request with the header Cookie is never anonymous; "},
		{anywhere, "Cookie", "a request with the header Cookie is never anonymous; "},
		{anywhere, "X-Forwarded-For", ""},
		{guest, "Accept", ""},
		{identity.Anonymous{}, "X-Forwarded-For", ""},
	} {
		kit.Equal(t, c.a.WhyNot(http.Header{c.header: {""}}), c.want, c.a, c.header)
	}
}

// Credentials always come first: the gate never falls back to the anonymous caller.
func TestWrongCredentialsAreNeverAnonymous(t *testing.T) {
	callers := kit.Must(identity.New(identity.Options{
		List: map[string]identity.Caller{"guest": {Tools: []tool.Pattern{"*"}}},
	}, identity.Env{}))(t)
	for _, shown := range []identity.Credentials{
		{Token: "wrong"}, {Token: "a.b.c"}, {Token: "tp_0123456789012345678901234567890123456789012"}, {Certificate: &x509.Certificate{}},
	} {
		shown.Anonymous = "guest"
		if p, err := callers.Admit(t.Context(), shown); err == nil {
			t.Errorf("%+v came in as %s", shown, p.ID)
		}
	}
	for name, ok := range map[string]bool{"guest": true, "": false, "other": false, identity.Owner: false, identity.Local: false} {
		if p, err := callers.Admit(t.Context(), identity.Credentials{Anonymous: name}); (err == nil) != ok || ok && p.ID != name {
			t.Errorf("%q: %+v, %v", name, p, err)
		}
	}
}
