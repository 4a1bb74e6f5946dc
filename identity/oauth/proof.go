package oauth

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"toolpost/tool"
	"toolpost/wire/bounded"
	"toolpost/wire/strictjson"
)

// The two types of access tokens (RFC 6750, RFC 9449), which are also the schemes of the header that carries them.
const (
	Bearer = "Bearer"
	DPoP   = "DPoP"
)

// An Access is a token as requests carry it; the zero value is no token.
type Access struct {
	Token string
	Key   *ProofKey // that the token is bound to; nil for a bearer token
}

// Send sends a request with the token.
func (a Access) Send(c *http.Client, req *http.Request) (*http.Response, error) {
	switch {
	case a.Token == "":
		return c.Do(req)
	case a.Key == nil:
		req.Header.Set("Authorization", Bearer+" "+a.Token)
		return c.Do(req)
	}
	req.Header.Set("Authorization", DPoP+" "+a.Token)
	return a.Key.send(req, a.Token, c.Do)
}

// CheckType refuses a token that is not bound to our key although it has to be, or the reverse: a server that answers a proof
// with a bearer token would take the protection away.
func (k *ProofKey) CheckType(kind string) error {
	want := Bearer
	if k != nil {
		want = DPoP
	}
	if !strings.EqualFold(kind, want) {
		return tool.Errorf(tool.CodeAccessDenied, "the provider gave a token of type %q, not %s", clip(kind), want).Because("token_type")
	}
	return nil
}

// A ProofKey signs the proofs of possession (RFC 9449) that accompany the tokens bound to it: without the key a stolen token
// is of no use.
type ProofKey struct {
	private jose.JSONWebKey
	signer  jose.Signer

	mu     sync.Mutex
	nonces map[string]string // the last one of each server, by its origin
}

// NewProofKey makes a key.
func NewProofKey() (*ProofKey, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	k := &ProofKey{}
	return k, k.use(jose.JSONWebKey{Key: private})
}

func (k *ProofKey) use(private jose.JSONWebKey) (err error) {
	if _, ok := private.Key.(*ecdsa.PrivateKey); !ok || !private.Valid() {
		return errors.New("it is not a private key of an elliptic curve")
	}
	k.private, k.nonces = private, map[string]string{}
	k.signer, err = jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: private.Key},
		(&jose.SignerOptions{EmbedJWK: true}).WithType("dpop+jwt"))
	return err
}

// MarshalJSON implements json.Marshaler, for the file of the tokens.
func (k *ProofKey) MarshalJSON() ([]byte, error) { return k.private.MarshalJSON() }

// UnmarshalJSON implements json.Unmarshaler.
func (k *ProofKey) UnmarshalJSON(b []byte) error {
	var private jose.JSONWebKey
	if err := private.UnmarshalJSON(b); err != nil {
		return err
	}
	return k.use(private)
}

// Format keeps the key from being printed.
func (k *ProofKey) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "a private key") }

// Format keeps the token from being printed.
func (a Access) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "a token") }

// maxNonce bounds what a server may have us repeat.
const maxNonce = 1 << 10

// send sends a request with a proof, and once more if the server wants its nonce in the proof. The token is empty for a
// request to a token endpoint. A server that always wants another nonce gets no third request.
func (k *ProofKey) send(req *http.Request, token string, do func(*http.Request) (*http.Response, error)) (*http.Response, error) {
	origin := req.URL.Scheme + "://" + req.URL.Host
	for again := false; ; again = true {
		nonce := k.nonce(origin)
		proof, err := k.prove(req, token, nonce)
		if err != nil {
			return nil, err
		}
		next := req.Clone(req.Context())
		next.Header.Set("DPoP", proof)
		if req.GetBody != nil {
			if next.Body, err = req.GetBody(); err != nil {
				return nil, err
			}
		}
		resp, err := do(next)
		if err != nil {
			return nil, err
		}
		if now := k.keepNonce(origin, resp); again || now == nonce || !wantsNonce(resp) {
			return resp, nil
		}
		_ = resp.Body.Close()
	}
}

func (k *ProofKey) nonce(origin string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.nonces[origin]
}

// keepNonce keeps the nonce that an answer brings for the next request, and returns the current one.
func (k *ProofKey) keepNonce(origin string, resp *http.Response) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if fresh := resp.Header.Get("DPoP-Nonce"); fresh != "" && len(fresh) <= maxNonce {
		k.nonces[origin] = fresh
	}
	return k.nonces[origin]
}

// prove returns a proof for one request.
func (k *ProofKey) prove(req *http.Request, token, nonce string) (string, error) {
	at := *req.URL
	at.RawQuery, at.ForceQuery, at.Fragment, at.RawFragment, at.User = "", false, "", "", nil
	claims := map[string]any{"jti": rand.Text(), "htm": req.Method, "htu": at.String(), "iat": time.Now().Unix()}
	if token != "" {
		sum := sha256.Sum256([]byte(token))
		claims["ath"] = base64.RawURLEncoding.EncodeToString(sum[:])
	}
	if nonce != "" {
		claims["nonce"] = nonce
	}
	return Sign(k.signer, claims)
}

// Sign returns a JWT.
func Sign(signer jose.Signer, claims map[string]any) (string, error) {
	body, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	signed, err := signer.Sign(body)
	if err != nil {
		return "", err
	}
	return signed.CompactSerialize()
}

const errNonce = "use_dpop_nonce"

// wantsNonce reports whether a request failed only because its proof lacked the server's nonce: a resource says so in a
// header, an authorization server in the document, which can still be read afterwards.
func wantsNonce(resp *http.Response) bool {
	if resp.StatusCode != http.StatusUnauthorized && resp.StatusCode != http.StatusBadRequest {
		return false
	}
	challenges, _ := oauthex.ParseWWWAuthenticate(resp.Header.Values("Www-Authenticate"))
	for _, c := range challenges {
		if c.Scheme == strings.ToLower(DPoP) && c.Params["error"] == errNonce {
			return true
		}
	}
	body, err := bounded.ReadDocument(resp.Body, maxAnswer)
	_ = resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(body))
	var said struct {
		Error string `json:"error"`
	}
	return err == nil && strictjson.Unmarshal(body, &said) == nil && said.Error == errNonce
}

// Proving returns a client that proves possession of the key to token endpoints: of its requests only those are forms.
func (k *ProofKey) Proving(c *http.Client) *http.Client {
	next := *c
	next.Transport = roundTrip(func(req *http.Request) (*http.Response, error) {
		if req.Method != http.MethodPost || req.Header.Get("Content-Type") != typeForm {
			return c.Transport.RoundTrip(req)
		}
		return k.send(req, "", c.Transport.RoundTrip)
	})
	return &next
}

type roundTrip func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
