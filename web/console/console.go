// Package console serves the console: a page for people, at / of the HTTP door. The page is static and reveals nothing
// of this server; it loads its data through the same routes as every program. So beside the files there is only signing
// in: a browser gets a cookie in place of a token, for a link that is valid once, for a token, or for a person who has signed in
// with an OpenID provider.
package console

import (
	"cmp"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"toolpost/engine/ask"
	"toolpost/host/secret"
	"toolpost/identity"
	"toolpost/tool"
	"toolpost/web"
)

// Options of a console. Only Gate is required.
type Options struct {
	Gate identity.Gate // decides whether a signed-in caller is still admitted
	// Callers returns the present callers, whose providers people sign in with; nil means that there are no providers.
	Callers func() *identity.Callers
	Version string // of this program
	// Keys seals the codes of links, with the same key in all programs that share Marks; nil means a key that ends with
	// this program.
	Keys  *secret.Keyed
	Marks ask.Marks    // remembers which codes were used; nil means in memory
	Log   *slog.Logger // nil disables logging

	now func() time.Time // nil means time.Now
}

// A Console serves the page and keeps the sessions of signed-in callers.
type Console struct {
	o     Options
	links links
	files func() map[string]file // of the bundle, read when a door is first opened

	mu       sync.Mutex
	sessions map[digest]*session
	failures map[string]*failures // by peer address
}

// New makes a console. On puts it on a door.
func New(o Options) *Console {
	o.Keys = cmp.Or(o.Keys, secret.NewKeyed(nil))
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Marks == nil {
		o.Marks = ask.NewMemory()
	}
	if o.Callers == nil {
		o.Callers = func() *identity.Callers { return &identity.Callers{} }
	}
	if o.now == nil {
		o.now = time.Now
	}
	return &Console{
		o: o, links: links{o.Keys, o.Marks}, files: sync.OnceValue(bundle), sessions: map[digest]*session{},
		failures: map[string]*failures{},
	}
}

// On adds the page, the routes for signing in, and sign-in by cookie to a door.
func (c *Console) On(d web.Door) web.Door {
	routes := d.Routes
	d.Session = c.proofOf
	d.Routes = func(s *web.Server, h tool.Handler, l tool.Catalog) []web.Route {
		own := []web.Route{
			{Method: "GET", Path: "/{$}", Open: true, Serve: c.page(s)},
			{Method: "GET", Path: "/v1/session", Serve: c.show},
			{Method: "POST", Path: "/v1/session", Open: true, Serve: c.signIn(s, d.Name)},
			{Method: "GET", Path: "/v1/connections/callback/{name}", Open: true, Serve: c.connected},
			{Method: "DELETE", Path: "/v1/session", Open: true, Serve: c.signOut},
			{Method: "GET", Path: "/v1/signin", Open: true, Serve: c.providers},
			{Method: "POST", Path: "/v1/signin/{provider}", Open: true, Serve: c.beginSignIn(s)},
			{Method: "GET", Path: "/v1/signin/{provider}/callback", Open: true, Serve: c.finishSignIn(d.Name)},
			{Method: "POST", Path: "/v1/signin/{provider}/logout", Open: true, Serve: c.backChannel(s)},
		}
		for path, f := range c.files() {
			if path != index {
				own = append(own, web.Route{Method: "GET", Path: "/" + path, Open: true, Serve: f.serve()})
			}
		}
		return append(own, routes(s, h, l)...)
	}
	return d
}

// Open returns the path, below the address of a door, at which a browser signs in with a code. The code is in the
// fragment, which browsers do not send: no server, proxy or log sees it in a URL.
func Open(code string) string { return "/#/signin?code=" + code }

// page serves the page itself to browsers. Programs that request / get an answer that they can read.
func (c *Console) page(s *web.Server) func(http.ResponseWriter, *http.Request, tool.Principal) {
	serve := c.files()[index].serve()
	return func(w http.ResponseWriter, r *http.Request, p tool.Principal) {
		if !web.IsVisit(r) {
			s.NotFound(w, r)
			return
		}
		w.Header().Add("Vary", "Accept")
		serve(w, r, p)
	}
}
