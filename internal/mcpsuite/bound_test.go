package mcpsuite

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"toolpost/internal/kit"
	"toolpost/protocol/mcp/runner"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// An issuer gives tokens to a client that signs its name, bound to the key of the client's proof.
type issuer struct {
	*httptest.Server
	key *ecdsa.PrivateKey
	typ jose.ContentType // of the tokens
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	s := &issuer{key: kit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t), typ: "at+jwt"}
	mux := http.NewServeMux()
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]string{"issuer": s.URL, "token_endpoint": s.URL + "/token", "jwks_uri": s.URL + "/keys"})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &s.key.PublicKey, KeyID: "k", Use: "sig"}}})
	})
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		claims := map[string]any{"iss": s.URL, "sub": "robot", "aud": []string{"toolpost", r.FormValue("resource")}, "exp": time.Now().Add(time.Hour).Unix()}
		kind := "Bearer"
		if proof := r.Header.Get("DPoP"); proof != "" {
			signed := kit.Must(jose.ParseSignedCompact(proof, []jose.SignatureAlgorithm{jose.ES256}))(t)
			sum := kit.Must(signed.Signatures[0].Header.JSONWebKey.Thumbprint(crypto.SHA256))(t)
			claims["cnf"], kind = map[string]string{"jkt": base64.RawURLEncoding.EncodeToString(sum)}, "DPoP"
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"access_token": s.sign(t, claims), "token_type": kind, "expires_in": 3600})
	})
	return s
}

func (s *issuer) sign(t *testing.T, claims any) string {
	signer := kit.Must(jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: s.key, KeyID: "k"}},
		(&jose.SignerOptions{}).WithType(s.typ)))(t)
	signed := kit.Must(signer.Sign(kit.Must(json.Marshal(claims))(t)))(t)
	return kit.Must(signed.CompactSerialize())(t)
}

// A machine that uses a Toolpost as a source gets its tokens from the issuer that the door names, bound to its key or not.
func TestSourceReachesADoorWithTokensOfAnIssuer(t *testing.T) {
	tooltest.NoLeaks(t)
	s := newIssuer(t)
	h := &house{dir: t.TempDir(), text: fmt.Sprintf(`
sources:
  - {name: files, protocol: builtin, roots: [{path: .}]}
callers:
  roles: {all: {}}
  jwt: [{issuer: %q, audience: toolpost, prefix: "idp:", roles: {always: all}}]
doors:
  http: {listen: "127.0.0.1:0"}
  mcp: {}
`, s.URL)}
	url := h.serve(t) + "/mcp"
	der := kit.Must(x509.MarshalPKCS8PrivateKey(s.key))(t)
	secrets := theirSecrets{"KEY": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))}
	for name, c := range map[string]struct {
		fields string
		typ    jose.ContentType
		says   string
	}{
		"bearer": {"", "at+jwt", ""}, "bound": {", dpop: true", "at+jwt", ""},
		"an assertion": {"", "oauth-id-jag+jwt", "refuses the tokens"}, "a proof": {"", "dpop+jwt", "refuses the tokens"},
	} {
		t.Run(name, func(t *testing.T) {
			s.typ = c.typ
			src := clientSource(t, fmt.Sprintf("url: %q, oauth: {client_id: robot, grant: client_credentials, key: {secret: KEY}%s}", url, c.fields), secrets)
			r := kit.Must(runner.Open(t.Context(), src, slog.New(slog.DiscardHandler)))(t)
			defer r.Close(t.Context())
			for range 3 {
				_, err := r.Invoke(t.Context(), &tool.Call{Tool: "listFiles", Args: json.RawMessage(`{}`)}, tool.Discard)
				if c.says != "" {
					kit.Fails(t, err, c.says)
					return
				}
				kit.OK(t, err)
			}
		})
	}
}
