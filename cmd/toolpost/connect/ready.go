package connect

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// Unready says what to do before the client can call the address with its token, or "".
func Unready(ctx context.Context, at, token string) string {
	if at == "" {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodHead, at, nil)
	if err != nil {
		return ""
	}
	r.Header.Set("Authorization", "Bearer "+token)
	answer, err := http.DefaultTransport.RoundTrip(r)
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return "run `toolpost serve`: nothing answers at " + at + " yet"
	}
	if err != nil { // the client may trust other certificates than this program
		return ""
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusUnauthorized {
		return ""
	}
	return "run `toolpost serve` with this config, on a port of its own: the server at " + at + " refuses this token"
}
