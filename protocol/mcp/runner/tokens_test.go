package runner

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"toolpost/identity/oauth"
	"toolpost/internal/kit"
)

// A rotating server accepts each refresh token once. Another use of one ends the login.
type rotating struct {
	*httptest.Server
	mu     sync.Mutex
	given  int
	reused int
	during func() // called before it answers
}

func newRotating(t *testing.T) *rotating {
	g := &rotating{}
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(20 * time.Millisecond) // time for another program to ask, too
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.during != nil {
			g.during()
		}
		if r.FormValue("refresh_token") != fmt.Sprint("refresh-", g.given) {
			g.reused++
			w.WriteHeader(http.StatusBadRequest)
			_, _ = fmt.Fprint(w, `{"error": "invalid_grant"}`)
			return
		}
		g.given++
		_, _ = fmt.Fprintf(w, `{"access_token": "access-%d", "refresh_token": "refresh-%[1]d", "token_type": "Bearer", "expires_in": 3600}`, g.given)
	}))
	t.Cleanup(g.Close)
	return g
}

// program returns the tokens as one of several programs has them.
func (g *rotating) program(path string) *tokenStore {
	return &tokenStore{path: path, server: g.URL, client: oauth.HTTPClient(g.URL)}
}

// due returns tokens that have to be renewed.
func (g *rotating) due() *storedTokens {
	return &storedTokens{Server: g.URL, TokenURL: g.URL, Access: "access-0", Refresh: "refresh-0", Expiry: time.Now()}
}

func (g *rotating) refusal(t *testing.T, access string) *http.Response {
	req := kit.Must(http.NewRequestWithContext(t.Context(), http.MethodPost, g.URL, nil))(t)
	req.Header.Set("Authorization", "Bearer "+access)
	return &http.Response{StatusCode: http.StatusUnauthorized, Request: req}
}

func TestProgramsThatShareALoginRenewItOnce(t *testing.T) {
	g := newRotating(t)
	path := filepath.Join(t.TempDir(), "tokens.json")
	kit.OK(t, g.program(path).save(t.Context(), g.due()))
	var work sync.WaitGroup
	for n := range 8 {
		one := g.program(path)
		work.Go(func() {
			renew := one.Token
			if n%2 == 0 { // the server has refused it already
				renew = func(ctx context.Context) (oauth.Access, error) {
					return one.Replace(ctx, oauth.Access{Token: "access-0"}, g.refusal(t, "access-0"))
				}
			}
			got, err := renew(t.Context())
			kit.Check(t, err)
			kit.Equal(t, got.Token, "access-1")
		})
	}
	work.Wait()
	kit.Equal(t, g.given, 1, "tokens")
	kit.Equal(t, g.reused, 0, "refresh tokens that were used again")
}

func TestTokenOfACancelledCallIsKept(t *testing.T) {
	g := newRotating(t)
	path := filepath.Join(t.TempDir(), "tokens.json")
	one := g.program(path)
	kit.OK(t, one.save(t.Context(), g.due()))
	ctx, cancel := context.WithCancel(t.Context())
	g.during = cancel
	_, _ = one.Token(ctx)
	kit.Equal(t, g.program(path).read().Refresh, "refresh-1")
}

func TestRefusalOfAnOldTokenKeepsItsSuccessor(t *testing.T) {
	g := newRotating(t)
	path := filepath.Join(t.TempDir(), "tokens.json")
	one, other := g.program(path), g.program(path)
	kit.OK(t, one.save(t.Context(), &storedTokens{Server: g.URL, Access: "old", Refresh: "r"}))
	kit.Equal(t, one.read().Access, "old")
	before := kit.Must(os.Stat(path))(t).ModTime()
	kit.OK(t, other.save(t.Context(), &storedTokens{Server: g.URL, Access: "new", Refresh: "r2"}))
	kit.OK(t, os.Chtimes(path, before, before)) // two writes can have the same time
	kit.OK(t, one.storeRefusal(g.refusal(t, "old")))
	now := one.read()
	kit.Equal(t, now.Access+" "+now.Refresh, "new r2")
	kit.Equal(t, now.Status, http.StatusUnauthorized)
	kit.OK(t, one.storeRefusal(g.refusal(t, "new")))
	now = other.read()
	kit.Equal(t, now.Access+now.Refresh, "")
}
