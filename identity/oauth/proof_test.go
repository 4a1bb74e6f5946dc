package oauth

import (
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"toolpost/internal/kit"
)

// A proof is what a server reads of a proof whose signature it has checked with the key in its header.
type proof struct {
	JTI   string `json:"jti"`
	HTM   string `json:"htm"`
	HTU   string `json:"htu"`
	ATH   string `json:"ath"`
	Nonce string `json:"nonce"`
	IAT   int64  `json:"iat"`
}

func readProof(t *testing.T, text string) (p proof) {
	t.Helper()
	signed := kit.Must(jose.ParseSignedCompact(text, []jose.SignatureAlgorithm{jose.ES256}))(t)
	head := signed.Signatures[0].Header
	if head.JSONWebKey == nil || !head.JSONWebKey.IsPublic() || head.ExtraHeaders[jose.HeaderType] != "dpop+jwt" {
		t.Fatalf("the header of a proof is %+v", head)
	}
	kit.OK(t, json.Unmarshal(kit.Must(signed.Verify(head.JSONWebKey))(t), &p))
	return p
}

// A bound token is sent with a proof for its request alone, whatever secrets the address has.
func TestProofIsForOneRequest(t *testing.T) {
	var proofs []proof
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		kit.Equal(t, r.Header.Get("Authorization"), "DPoP bound")
		proofs = append(proofs, readProof(t, r.Header.Get("DPoP")))
	}))
	defer server.Close()
	access := Access{"bound", kit.Must(NewProofKey())(t)}
	for range 2 {
		req := kit.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/mcp?key=hush#part", nil))(t)
		resp := kit.Must(access.Send(server.Client(), req))(t)
		_ = resp.Body.Close()
	}
	sum := sha256.Sum256([]byte("bound"))
	for _, p := range proofs {
		kit.Equal(t, p.HTM+" "+p.HTU, "GET "+server.URL+"/mcp")
		kit.Equal(t, p.ATH, base64.RawURLEncoding.EncodeToString(sum[:]))
		kit.Equal(t, p.IAT > 0 && p.JTI != "", true)
	}
	kit.Equal(t, len(proofs) == 2 && proofs[0].JTI != proofs[1].JTI, true, "each proof has its own jti")
}

// A server that wants its nonce gets it in one further request, with the same body, and in every proof from then on.
func TestNonceOfAServerIsUsed(t *testing.T) {
	for name, refuse := range map[string]func(w http.ResponseWriter){
		"resource": func(w http.ResponseWriter) {
			w.Header().Set("WWW-Authenticate", `Bearer, DPoP error="use_dpop_nonce"`)
			w.WriteHeader(http.StatusUnauthorized)
		},
		"issuer": func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"error":"use_dpop_nonce"}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			requests, current := 0, "n1"
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				requests++
				w.Header().Set("DPoP-Nonce", current)
				if body, _ := io.ReadAll(r.Body); string(body) != "a=b" {
					t.Errorf("the body is %q", body)
				}
				if readProof(t, r.Header.Get("DPoP")).Nonce != current {
					refuse(w)
				}
			}))
			defer server.Close()
			key := kit.Must(NewProofKey())(t)
			for i, want := range []int{2, 3, 5} {
				if i == 2 {
					current = "n2"
				}
				resp := kit.Must(postForm(t.Context(), key.Proving(server.Client()), server.URL))(t)
				_ = resp.Body.Close()
				kit.Equal(t, resp.StatusCode, http.StatusOK)
				kit.Equal(t, requests, want, "requests")
			}
		})
	}
}

func postForm(ctx context.Context, c *http.Client, to string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, strings.NewReader(url.Values{"a": {"b"}}.Encode()))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", typeForm)
	return c.Do(req)
}

// A server that always wants another nonce, or the one that it got, gets no more requests.
func TestEndlessNoncesEndARequest(t *testing.T) {
	for name, nonce := range map[string]func(n int) string{
		"another each time": func(n int) string { return fmt.Sprint("n", n) },
		"the same":          func(int) string { return "n" },
		"none":              func(int) string { return "" },
		"too long":          func(int) string { return strings.Repeat("n", maxNonce+1) },
	} {
		requests := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			requests++
			w.Header().Set("DPoP-Nonce", nonce(requests))
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"error":"use_dpop_nonce","more":"text"}`)
		}))
		c := &Client{Server: Server{Token: server.URL}, HTTP: kit.Must(NewProofKey())(t).Proving(HTTPClient(server.URL))}
		_, err := c.Grant(t.Context(), url.Values{})
		kit.Fails(t, err, "use_dpop_nonce", name)
		if want := map[bool]int{true: 2, false: 1}[strings.HasPrefix(nonce(1), "n") && len(nonce(1)) < maxNonce]; requests != want {
			t.Errorf("%s: %d requests, want %d", name, requests, want)
		}
		server.Close()
	}
}

// Another refusal is not repeated, even if it brings a nonce: a code for a token is good for one request.
func TestOnlyTheLackOfANonceIsMadeGood(t *testing.T) {
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests++
		w.Header().Set("DPoP-Nonce", "n")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"error":"invalid_grant"}`)
	}))
	defer server.Close()
	c := &Client{Server: Server{Token: server.URL}, HTTP: kit.Must(NewProofKey())(t).Proving(HTTPClient(server.URL))}
	kit.Fails(t, kit.Err(c.Grant(t.Context(), url.Values{})), "invalid_grant")
	kit.Equal(t, requests, 1)
}

func TestProofKeyIsKeptAndNotShown(t *testing.T) {
	key := kit.Must(NewProofKey())(t)
	text := kit.Must(json.Marshal(key))(t)
	var again ProofKey
	kit.OK(t, json.Unmarshal(text, &again))
	kit.Equal(t, again.private.Key.(*ecdsa.PrivateKey).Equal(key.private.Key.(*ecdsa.PrivateKey)), true)
	secret := new(big.Int).SetBytes(kit.Must(key.private.Key.(*ecdsa.PrivateKey).Bytes())(t))
	for _, shown := range []string{fmt.Sprint(key), fmt.Sprintf("%+v %v", key, Access{"bound", key}), fmt.Sprintf("%#v", key)} {
		if strings.Contains(shown, secret.String()) || strings.Contains(shown, "bound") {
			t.Errorf("it is printed as %s", shown)
		}
	}
	for _, bad := range []string{`{"kty":"oct","k":"AAAA"}`, `{}`, `{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}`} {
		if err := json.Unmarshal([]byte(bad), &again); err == nil {
			t.Errorf("%s is taken for a key", bad)
		}
	}
}
