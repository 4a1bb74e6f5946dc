package connect

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"net/url"
	"time"
)

// Unready says what to do before the client can call the address with its token, or "".
func Unready(ctx context.Context, at, token string) string {
	if at == "" {
		return ""
	}
	if !answers(ctx, at) {
		return "run `toolpost serve`: nothing answers at " + at + " yet"
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodHead, at, nil)
	if err != nil {
		return ""
	}
	r.Header.Set("Authorization", "Bearer "+token)
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil { // the client may trust other certificates than this program
		return ""
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusUnauthorized {
		return ""
	}
	return "run `toolpost serve` with this config, on a port of its own: the server at " + at + " refuses this token"
}

// answers reports whether a server listens at the address that the client will call.
func answers(ctx context.Context, at string) bool {
	u, err := url.Parse(at)
	if err != nil {
		return false
	}
	port := cmp.Or(u.Port(), map[string]string{"https": "443"}[u.Scheme], "80")
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return false
	}
	return conn.Close() == nil
}
