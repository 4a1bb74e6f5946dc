package web

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"toolpost/identity"
	"toolpost/internal/kit"
	"toolpost/tool"
)

// guarded returns a server with one path, which answers at once, or for a GET when its caller is no longer admitted.
func guarded(gate identity.Gate, challenge string) *Server {
	door := Door{
		Name: "api", URL: "https://tools.example.org/", Challenge: func(*http.Request) string { return challenge },
		Routes: func(*Server, tool.Handler, tool.Catalog) []Route {
			return []Route{{Path: "/", Serve: func(_ http.ResponseWriter, r *http.Request, _ tool.Principal) {
				if r.Method == http.MethodGet {
					<-r.Context().Done()
				}
			}}}
		},
	}
	return newServer(New(Options{Gate: gate}).o, []Door{door}, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}, nil, nil)
}

func request(t *testing.T, method string, headers ...string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, "/", nil)
	r.Host = "localhost:1"
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

func TestProofOfPossessionReachesTheGate(t *testing.T) {
	var got identity.Credentials
	s := guarded(func(_ context.Context, shown identity.Credentials) (tool.Principal, error) {
		got = shown
		return tool.Principal{ID: "bob"}, nil
	}, "")
	s.ServeHTTP(httptest.NewRecorder(), request(t, http.MethodPost, "Authorization", "dpop token", "DPoP", "proof"))
	kit.Equal(t, got.Token, "token")
	kit.DeepEqual(t, got.DPoP, &identity.Possession{
		Proof: "proof", Method: "POST", URLs: "https://localhost:1/ http://localhost:1/ https://tools.example.org/",
	})
	for _, none := range [][]string{{}, {"DPoP", "a", "DPoP", "b"}} {
		s.ServeHTTP(httptest.NewRecorder(), request(t, http.MethodPost, append([]string{"Authorization", "DPoP token"}, none...)...))
		kit.Equal(t, got.DPoP.Proof, "")
	}
	s.ServeHTTP(httptest.NewRecorder(), request(t, http.MethodPost, "Authorization", "Bearer token", "DPoP", "proof"))
	if got.DPoP != nil {
		t.Error("a bearer token is shown as bound to a key")
	}
}

// A proof is good for one request, so a stream is checked again by what its caller was admitted with.
func TestStreamOfABoundTokenLastsAsLongAsItsCallerIsAdmitted(t *testing.T) {
	shown := make(chan identity.Credentials, 8)
	s := guarded(func(_ context.Context, by identity.Credentials) (tool.Principal, error) {
		shown <- by
		if len(shown) == 1 {
			return tool.Principal{ID: "bob", Door: "api", Proof: "claims:{}"}, nil
		}
		return tool.Principal{}, identity.WrongToken()
	}, "")
	s.ServeHTTP(httptest.NewRecorder(), request(t, http.MethodGet, "Authorization", "DPoP token", "DPoP", "proof"))
	first, again := <-shown, <-shown
	kit.Equal(t, first.DPoP != nil, true)
	kit.Equal(t, again, identity.Credentials{Door: "api", Proof: "claims:{}", Anonymous: "bob"})
}

func TestChallengeNamesBothSchemes(t *testing.T) {
	refuse := func(context.Context, identity.Credentials) (tool.Principal, error) {
		return tool.Principal{}, identity.WrongToken()
	}
	const more = `, resource_metadata="https://tools.example.org/x"`
	dpop := `, DPoP algs="` + strings.Join(identity.ProofAlgorithms(), " ") + `"`
	for _, one := range []struct{ authorization, more, want string }{
		{"", "", `Bearer realm="toolpost"`},
		{"", more, `Bearer realm="toolpost"` + more + dpop + more},
		{"Bearer x", more, `Bearer realm="toolpost", error="invalid_token"` + more + dpop + more},
		{"DPoP x", more, `Bearer realm="toolpost"` + more + dpop + more + `, error="invalid_token"`},
		{"DPoP x", "", `Bearer realm="toolpost"` + dpop + `, error="invalid_token"`},
		{"Digest x", "", `Bearer realm="toolpost", error="invalid_token"`},
	} {
		r := request(t, http.MethodPost)
		if one.authorization != "" {
			r.Header.Set("Authorization", one.authorization)
		}
		w := httptest.NewRecorder()
		guarded(refuse, one.more).ServeHTTP(w, r)
		kit.Equal(t, w.Code, http.StatusUnauthorized)
		kit.Equal(t, w.Header().Get("WWW-Authenticate"), one.want, one.authorization)
	}
}
