package rest

import (
	"net"
	"net/http"
	"strings"

	"toolpost/identity"
	"toolpost/tool"
	"toolpost/wire/envelope"
)

// hostNames lists the Host headers that are ours. A page in a browser can make its own name point to
// this machine (DNS rebinding) and would then be of our origin; but it cannot send another Host.
func hostNames(addr net.Addr, listen string, configured []string) map[string]bool {
	names := map[string]bool{addr.String(): true, strings.ToLower(listen): true}
	_, port, _ := net.SplitHostPort(addr.String())
	for _, host := range []string{"localhost", "127.0.0.1", "[::1]"} {
		names[host+":"+port] = true
		names[host] = port == "80" // where clients leave it out
	}
	for _, host := range configured {
		host = strings.ToLower(host)
		names[host] = true // without a port: as a proxy in front of us passes it on
		if _, _, err := net.SplitHostPort(host); err != nil {
			names[host+":"+port] = true
		}
	}
	return names
}

func originNames(configured []string) map[string]bool {
	names := map[string]bool{}
	for _, origin := range configured {
		names[strings.ToLower(strings.TrimSuffix(origin, "/"))] = true
	}
	return names
}

// crossOrigin refuses pages of other origins and answers the questions of browsers about those that
// are allowed. It reports whether the request is done with.
func (s *server) crossOrigin(w http.ResponseWriter, r *http.Request) (done bool) {
	origins := r.Header.Values("Origin")
	if len(origins) == 0 {
		return false
	}
	w.Header().Set("Vary", "Origin")
	origin := strings.ToLower(origins[0])
	own := origin == "http://"+strings.ToLower(r.Host) || origin == "https://"+strings.ToLower(r.Host)
	if len(origins) > 1 || !own && !s.origins[origin] {
		refuse(w, r, http.StatusForbidden, tool.Errorf(tool.CodeAccessDenied,
			"pages of the origin %q may not call this server: add it to the door's origins to allow it", origins[0]).Because("origin"))
		return true
	}
	w.Header().Set("Access-Control-Allow-Origin", origins[0])
	w.Header().Set("Access-Control-Expose-Headers", strings.Join([]string{envelope.HeaderCall, "Location", headerApplied, "ETag", "Retry-After"}, ", "))
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	w.Header().Set("Access-Control-Allow-Methods", "GET, POST, DELETE")
	w.Header().Set("Access-Control-Allow-Headers", strings.Join(append([]string{
		"Authorization", "Content-Type", headerPrefer, headerLast, "Range", "If-None-Match",
	}, envelope.Headers()...), ", "))
	w.Header().Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true
}

// known lets only those in whom the gate knows, and says who it is.
func (s *server) known(next func(http.ResponseWriter, *http.Request, tool.Principal)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		p, err := s.who(r)
		if err == nil {
			err = s.crowd.Belongs(r.Context(), p)
		}
		switch tool.CodeOf(err) {
		case "":
			next(w, r, p)
		case tool.CodeQuotaExceeded: // of connections
			w.Header().Set("Connection", "close")
			w.Header().Set("Retry-After", "1")
			e := tool.AsError(err)
			refuse(w, r, statusOf(e.Code), e)
		case tool.CodeUnavailable, tool.CodeTimeout, tool.CodeCancelled: // nobody could be asked
			e := tool.AsError(err)
			refuse(w, r, statusOf(e.Code), e)
		default:
			challenge := `Bearer realm="toolpost"`
			if len(r.Header.Values("Authorization")) > 0 {
				challenge += `, error="invalid_token"`
			}
			w.Header().Set("WWW-Authenticate", challenge)
			refuse(w, r, http.StatusUnauthorized, tool.AsError(err).Because("unauthenticated"))
		}
	}
}

// who asks the gate, with all that the peer shows: a token, a certificate, the user of its process.
func (s *server) who(r *http.Request) (tool.Principal, error) {
	shown := identity.Credentials{Door: "http", Certificate: s.certs.client(r.TLS), Peer: peerOf(r.Context())}
	var ok bool
	if shown.Token, ok = bearer(r.Header); !ok {
		return tool.Principal{}, errNoToken("")
	}
	nothing := shown == identity.Credentials{Door: shown.Door}
	shown.Anonymous = s.Anonymous.Of(r)
	p, err := s.Gate(r.Context(), shown)
	if err != nil && nothing && shown.Anonymous == "" && tool.CodeOf(err) == tool.CodeAccessDenied {
		err = errNoToken(s.Anonymous.WhyNot(r.Header))
	}
	return p, err
}

func errNoToken(why string) error {
	return tool.Errorf(tool.CodeAccessDenied, "%ssend the header Authorization: Bearer TOKEN; %s", why, identity.TokenHint)
}

// bearer gives the token of a request, empty where it has none. A header that cannot be meant is not taken for none.
func bearer(h http.Header) (token string, ok bool) {
	values := h.Values("Authorization")
	switch len(values) {
	case 0:
		return "", true
	case 1:
	default:
		return "", false
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	token = strings.TrimSpace(token)
	return token, ok && token != "" && strings.EqualFold(scheme, "Bearer")
}
