package web

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"toolpost/identity"
	"toolpost/identity/oauth"
	"toolpost/tool"
	"toolpost/wire/envelope"
)

func originNames(configured []string) map[string]bool {
	names := map[string]bool{}
	for _, origin := range configured {
		names[strings.ToLower(strings.TrimSuffix(origin, "/"))] = true
	}
	return names
}

// guarded keeps requests for other hosts and those of foreign pages from a route. It runs after the route is chosen, so
// that they are refused in the form of the route's protocol.
func (s *Server) guarded(form Refuser, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !s.hosts.have(r.Host):
			Refuse(w, r, form, http.StatusMisdirectedRequest, tool.Errorf(tool.CodeAccessDenied, "no service for the host "+
				"%.200q here: use the listen address or localhost, or add the name to `hosts` of the door in the config, such as "+
				"doors: {http: {hosts: [tools.example.org]}}", r.Host).Because("host"))
		case len(r.Header.Values("Origin")) == 0 || s.allowed(w, r, form):
			next(w, r)
		}
	}
}

// allowed refuses pages of other origins, and answers the preflight requests of browsers for allowed ones. It reports
// whether to serve the request.
func (s *Server) allowed(w http.ResponseWriter, r *http.Request, form Refuser) bool {
	w.Header().Set("Vary", "Origin")
	origins := r.Header.Values("Origin")
	origin := strings.ToLower(origins[0])
	own := origin == "http://"+strings.ToLower(r.Host) || origin == "https://"+strings.ToLower(r.Host)
	if len(origins) > 1 || !own && !s.origins[origin] {
		Refuse(w, r, form, http.StatusForbidden, tool.Errorf(tool.CodeAccessDenied, "pages of the origin %q may not call "+
			"this server: add it to the door's origins to allow it", origins[0]).Because("origin"))
		return false
	}
	list := func(usual, more []string) string { return strings.Join(append(usual, more...), ", ") }
	w.Header().Set("Access-Control-Allow-Origin", origins[0])
	w.Header().Set("Access-Control-Expose-Headers", list([]string{envelope.HeaderCall}, s.exposes))
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return true
	}
	w.Header().Set("Access-Control-Allow-Methods", "GET, POST, DELETE")
	w.Header().Set("Access-Control-Allow-Headers", list([]string{"Authorization", "Content-Type", "DPoP"}, s.accepts))
	w.Header().Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return false
}

// Forged is the reason of refusing a request with a cookie: a foreign page may have made a browser send it.
const Forged = "forged"

// admit serves callers that the gate knows, and passes the caller to the route.
func (s *Server) admit(d Door, route Route, w http.ResponseWriter, r *http.Request) {
	p, err := s.who(d, r)
	if route.Optional && err != nil && (route.Open || tool.CodeOf(err) == tool.CodeAccessDenied &&
		tool.AsError(err).Reason != Forged && len(r.Header.Values("Authorization")) == 0) {
		route.Serve(w, r, tool.Principal{})
		return
	}
	if err == nil {
		err = s.crowd.belongs(r.Context(), p)
	}
	if err == nil {
		if r.ContentLength != 0 {
			s.ration(r, p)
		}
		if r.Method == http.MethodGet || route.Lasts != nil && route.Lasts(r, p) {
			watched, end := s.recheck(d, r, p)
			defer end()
			r = watched
		}
		route.Serve(w, r, p)
		return
	}
	e := tool.AsError(err)
	status := StatusOf(e.Code)
	switch {
	case e.Code == tool.CodeQuotaExceeded: // of connections
		w.Header().Set("Connection", "close")
	case e.Reason == Forged: // the caller is known, but may not have meant to send it
	case slices.Contains([]tool.Code{tool.CodeUnavailable, tool.CodeTimeout, tool.CodeCancelled}, e.Code): // the gate could not decide
	default:
		w.Header().Set("WWW-Authenticate", d.challenge(r))
		status, e = http.StatusUnauthorized, e.Because("unauthenticated")
	}
	Refuse(w, r, d.Refusals, status, e)
}

// recheckEvery is how long a stream goes on for a caller that is no longer admitted.
const recheckEvery = time.Second

// recheck ends a request whose caller is no longer admitted. A stream may outlive its caller's credentials: a token is
// revoked, a caller is removed from the config. Calls, which come by POST, may outlive a token.
func (s *Server) recheck(d Door, r *http.Request, p tool.Principal) (watched *http.Request, end func()) {
	ctx, cancel := context.WithCancel(r.Context())
	shown := r.Clone(ctx)         // the route may change the headers
	shown.Method = http.MethodGet // that a foreign page did not send a change has been checked, and its header is gone
	again := func() error {
		_, err := s.who(d, shown)
		return err
	}
	if scheme(shown) == oauth.DPoP { // a proof is good for one request
		again = func() error {
			_, err := s.o.Gate(ctx, identity.Again(p))
			return err
		}
	}
	var work sync.WaitGroup
	work.Go(func() {
		for tick := time.NewTicker(recheckEvery); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
			}
			if err := again(); err != nil && tool.CodeOf(err) == tool.CodeAccessDenied {
				cancel()
			}
		}
	})
	return r.WithContext(ctx), func() { cancel(); work.Wait() }
}

func (d Door) challenge(r *http.Request) string {
	text, more := `Bearer realm="toolpost"`, ""
	if d.Challenge != nil {
		more = d.Challenge(r)
	}
	const failed = `, error="invalid_token"`
	shown := scheme(r)
	if len(r.Header.Values("Authorization")) > 0 && shown != oauth.DPoP {
		text += failed
	}
	text += more
	if more != "" || shown == oauth.DPoP {
		text += `, DPoP algs="` + strings.Join(identity.ProofAlgorithms(), " ") + `"` + more
		if shown == oauth.DPoP {
			text += failed
		}
	}
	if d.Basic {
		text += `, Basic realm="toolpost"`
	}
	return text
}

// who asks the gate, with everything that the peer shows: a token, a certificate, the user of its process.
func (s *Server) who(d Door, r *http.Request) (tool.Principal, error) {
	shown := identity.Credentials{Door: d.Name, Certificate: s.certs.client(r.TLS), Peer: peerOf(r.Context())}
	var ok bool
	if shown.Token, ok = d.token(r); !ok {
		return tool.Principal{}, d.errNoToken("")
	}
	if d.Session != nil && shown.Token == "" {
		var err error
		if shown.Proof, err = d.Session(r); err != nil {
			return tool.Principal{}, err
		}
	}
	if shown.Token != "" && scheme(r) == oauth.DPoP {
		shown.DPoP = identity.NewPossession(r.Header.Values("DPoP"), r.Method, r.Host, r.URL.EscapedPath(), r.TLS != nil, d.URL)
	}
	nothing := shown == identity.Credentials{Door: shown.Door}
	shown.Anonymous = d.Anonymous.Of(r)
	p, err := s.o.Gate(r.Context(), shown)
	if err != nil && nothing && shown.Anonymous == "" && tool.CodeOf(err) == tool.CodeAccessDenied {
		err = d.errNoToken(d.Anonymous.WhyNot(r.Header))
	}
	return p, err
}

func (d Door) errNoToken(why string) error {
	how := "Authorization: Bearer TOKEN"
	if d.Keys != "" {
		how += ", or " + d.Keys + ": TOKEN"
	}
	if d.Basic {
		how += ", or the token as the password of Basic"
	}
	return tool.Errorf(tool.CodeAccessDenied, "%ssend the header %s; %s", why, how, identity.TokenHint)
}

// token returns the token of a request, or "" if it has none. An invalid header does not count as none.
func (d Door) token(r *http.Request) (token string, ok bool) {
	values := r.Header.Values("Authorization")
	if d.Keys != "" && len(values) == 0 {
		if keys := r.Header.Values(d.Keys); len(keys) > 0 {
			return keys[0], len(keys) == 1 && keys[0] != ""
		}
	}
	if len(values) != 1 {
		return "", len(values) == 0
	}
	if _, password, basic := r.BasicAuth(); basic && d.Basic {
		return password, password != ""
	}
	_, token, _ = strings.Cut(values[0], " ")
	token = strings.TrimSpace(token)
	return token, token != "" && scheme(r) != ""
}

// scheme returns the scheme of a request's token, or "" if it has none that we know.
func scheme(r *http.Request) string {
	text, _, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	for _, known := range []string{oauth.Bearer, oauth.DPoP} {
		if strings.EqualFold(text, known) {
			return known
		}
	}
	return ""
}
