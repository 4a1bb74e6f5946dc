package identity

import (
	"context"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"

	"toolpost/config/offlimits"
	"toolpost/wire/strictjson"
)

// Limits on loading keys.
const (
	keysAge   = 5 * time.Minute  // after which they are loaded again
	keysPause = 10 * time.Second // between two loads
	keysTime  = 5 * time.Second  // for one load
	keysSize  = 1 << 20          // of a document
	maxKeys   = 64
	minRSA    = 2048 // bits
	redirects = 3
)

// A keyring has the public keys of an issuer. While the issuer does not answer, it keeps the last ones.
type keyring struct {
	load func(context.Context) ([]jose.JSONWebKey, error)
	log  *slog.Logger
	now  func() time.Time
	turn chan struct{} // held while loading

	mu    sync.Mutex
	keys  []jose.JSONWebKey
	tried time.Time // when the last load began
}

// find returns the keys that can have signed a token. If the keys are old, one goroutine loads new ones; the others go
// on with the old.
func (k *keyring) find(ctx context.Context, kid, algorithm string) (found []any) {
	if k.since() >= keysAge {
		select {
		case k.turn <- struct{}{}:
			k.look(ctx, keysAge)
			<-k.turn
		default:
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range k.keys {
		if (kid == "" || kid == key.KeyID) && (key.Algorithm == "" || key.Algorithm == algorithm) {
			found = append(found, key.Key)
		}
	}
	return found
}

// renew loads new keys, unless that was done a moment ago.
func (k *keyring) renew(ctx context.Context) error {
	select {
	case k.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	k.look(ctx, keysPause)
	<-k.turn
	return nil
}

func (k *keyring) since() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.now().Sub(k.tried)
}

// look loads the keys if the last load was at least pause ago. The caller holds the turn. Loading does not end with the
// request: otherwise clients that disconnect could keep all others from the keys.
func (k *keyring) look(ctx context.Context, pause time.Duration) {
	if k.since() < pause {
		return
	}
	began := k.now()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keysTime)
	defer cancel()
	keys, err := k.load(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.tried = began
	if err != nil {
		k.log.Warn("the keys of an issuer cannot be read; those of the last time are used", "keys", len(k.keys),
			"error", fmt.Sprintf("%.300s", err))
		return
	}
	k.keys = keys
}

// loader returns a function that reads the keys of an issuer: from a file, from a URL, or from the URL in its
// configuration.
func loader(o Issuer, dir string) func(context.Context) ([]jose.JSONWebKey, error) {
	client := &http.Client{
		// Connections are not kept: they are used once in minutes.
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10,
			ForceAttemptHTTP2: true,
		},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) > redirects {
				return errors.New("it leads from one address to another")
			}
			return safeURL(r.URL.String())
		},
	}
	return func(ctx context.Context) ([]jose.JSONWebKey, error) {
		where := o.JWKS
		if where == "" {
			var err error
			if where, err = discover(ctx, client, o.Issuer); err != nil {
				return nil, err
			}
		}
		b, err := readKeys(ctx, client, where, dir)
		if err != nil {
			return nil, err
		}
		return parseKeys(b)
	}
}

func readKeys(ctx context.Context, client *http.Client, where, dir string) ([]byte, error) {
	if strings.Contains(where, "://") {
		return get(ctx, client, where)
	}
	f, err := os.Open(offlimits.Under(dir, where))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return limited(f)
}

func get(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json")
	resp, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", url, resp.Status)
	}
	return limited(resp.Body)
}

func limited(r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, keysSize+1))
	if err == nil && len(b) > keysSize {
		err = fmt.Errorf("the document is longer than %d bytes", keysSize)
	}
	return b, err
}

// discover asks an issuer for the URL of its keys.
func discover(ctx context.Context, client *http.Client, issuer string) (string, error) {
	b, err := get(ctx, client, strings.TrimSuffix(issuer, "/")+"/.well-known/openid-configuration")
	if err != nil {
		return "", err
	}
	var doc struct {
		Issuer string `json:"issuer"`
		JWKS   string `json:"jwks_uri"`
	}
	if err := strictjson.Unmarshal(b, &doc); err != nil {
		return "", fmt.Errorf("the OpenID configuration: %w", err)
	}
	if doc.Issuer != issuer {
		return "", fmt.Errorf("the OpenID configuration is of another issuer, %.200q", doc.Issuer)
	}
	return doc.JWKS, safeURL(doc.JWKS)
}

// parseKeys parses a set of keys. It skips keys that are not for checking signatures, or of an unknown kind.
func parseKeys(b []byte) ([]jose.JSONWebKey, error) {
	var set struct {
		Keys *[]json.RawMessage `json:"keys"`
	}
	switch err := strictjson.Unmarshal(b, &set); {
	case err != nil:
		return nil, fmt.Errorf("the keys are not JSON: %w", err)
	case set.Keys == nil:
		return nil, errors.New("the document has no keys")
	case len(*set.Keys) > maxKeys:
		return nil, fmt.Errorf("there are more than %d keys", maxKeys)
	}
	keys := []jose.JSONWebKey{}
	for _, raw := range *set.Keys {
		var key jose.JSONWebKey
		if err := key.UnmarshalJSON(raw); err == nil && usable(key) {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// usable reports whether a key is public, for signatures, and strong. A secret key would let all its holders sign.
func usable(key jose.JSONWebKey) bool {
	if r, ok := key.Key.(*rsa.PublicKey); ok && r.N.BitLen() < minRSA {
		return false
	}
	return key.IsPublic() && key.Valid() && (key.Use == "" || key.Use == "sig")
}
