package web

import (
	"context"
	"net"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"toolpost/identity"
	"toolpost/tool"
	"toolpost/wire/envelope"
)

// A Server is an open front, as its doors see it.
type Server struct {
	o       Options
	form    Refuser // of refusals outside any route; nil means problem documents
	hints   []string
	offers  []Offer
	hosts   *hosts // nil accepts any
	origins map[string]bool
	accepts []string // headers that pages may send
	exposes []string // headers that pages may read
	certs   *certificates
	crowd   *crowd
	mux     *http.ServeMux

	inFlight *inFlight
	closing  atomic.Bool // every answer is the last of its connection
	bodies   *bodies
	life     context.Context // of every request; ends when the time of the calls in flight is over
	end      context.CancelCauseFunc
}

func newServer(o Options, doors []Door, addr net.Addr, h tool.Handler, c tool.Catalog) *Server {
	s := &Server{
		o: o, inFlight: newInFlight(), mux: http.NewServeMux(),
		bodies: &bodies{all: bodiesAtOnce * o.MaxBody, each: ofEach * o.MaxBody, of: identity.PerCaller[int64]{}},
		hosts:  hostsOf(addr, o.Listen, o.Hosts), origins: originNames(o.Origins),
	}
	s.life, s.end = context.WithCancelCause(context.Background())
	if len(doors) == 1 { // a dedicated address speaks one protocol, whatever is requested
		s.form = doors[0].Refusals
	}
	s.crowd = newCrowd(o.Bounds, func(e *tool.Error) []byte { return refusal(s.form, e) })
	served := map[string]bool{}
	for _, d := range doors {
		s.hints, s.offers = append(s.hints, d.Hint), append(s.offers, d.Offers...)
		s.accepts, s.exposes = append(s.accepts, d.Accepts...), append(s.exposes, d.Exposes...)
		s.mount(d, d.Routes(s, h, c), served)
	}
	if !served["/"] {
		s.mux.HandleFunc("/", s.guarded(s.form, s.front))
	}
	return s
}

// mount adds the routes of a door, one pattern per path: ServeMux would see a conflict between "GET /" and "/v1/tools".
// It panics if two doors want the same path, which is a programming error.
func (s *Server) mount(d Door, routes []Route, served map[string]bool) {
	offered, methods := map[string][]Route{}, map[string][]string{}
	for _, route := range routes {
		offered[route.Path], served[route.Path] = append(offered[route.Path], route), true
		methods[route.Path] = append(methods[route.Path], route.Method)
	}
	for at, choice := range offered {
		s.mux.HandleFunc(at, s.guarded(d.Refusals, func(w http.ResponseWriter, r *http.Request) {
			i := slices.IndexFunc(choice, func(route Route) bool { return route.takes(r.Method) })
			switch {
			case i < 0:
				NotAllowed(w, r, d.Refusals, methods[at]...)
			case choice[i].Open && !choice[i].Optional:
				choice[i].Serve(w, r, tool.Principal{})
			default:
				s.admit(d, choice[i], w, r)
			}
		}))
	}
}

// takes reports whether a route accepts a method. HEAD is a GET whose body is not sent.
func (r Route) takes(method string) bool {
	return r.Method == "" || r.Method == method || r.Method == http.MethodGet && method == http.MethodHead
}

// Header values of every answer. Set would allocate a slice of each for every request; header slices are never changed
// in place.
var noSniff, noStore, asJSON = []string{"nosniff"}, []string{"no-store"}, []string{"application/json"}

// ServeHTTP does what applies to every request of every caller.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer forget(r, true)
	h := w.Header()
	h["X-Content-Type-Options"], h["Cache-Control"] = noSniff, noStore
	if s.closing.Load() {
		h.Set("Connection", "close")
	}
	rc := http.NewResponseController(w)
	_ = rc.SetWriteDeadline(time.Now().Add(s.o.Times.Write))
	if r.ContentLength != 0 {
		// This also holds if we refuse without reading it: net/http then reads what is left, for as long as it takes. The
		// deadline ends with the body.
		_ = rc.SetReadDeadline(time.Now().Add(s.o.Times.Body))
	}
	if p := r.URL.EscapedPath(); path.Clean(p) != p && path.Clean(p)+"/" != p {
		s.guarded(s.form, s.NotFound)(w, r) // the mux would redirect to the cleaned path
		return
	}
	s.mux.ServeHTTP(w, r)
}

// NotFound answers a request for a path that no route serves.
func (s *Server) NotFound(w http.ResponseWriter, r *http.Request) {
	Refuse(w, r, s.form, http.StatusNotFound,
		tool.Errorf(tool.CodeNotFound, "nothing at %s: %s", r.URL.Path, strings.Join(s.hints, "; ")))
}

// NotAllowed refuses a method, in the door's words and not in net/http's.
func NotAllowed(w http.ResponseWriter, r *http.Request, form Refuser, methods ...string) {
	offered := strings.Join(methods, ", ")
	w.Header().Set("Allow", offered)
	Refuse(w, r, form, http.StatusMethodNotAllowed,
		tool.Errorf(tool.CodeUnsupported, "%s is not offered on %s: use %s", r.Method, r.URL.Path, offered))
}

// Begin starts a call, or returns why it may not start. Its context ends when the caller has gone or has cancelled it
// by its id, or when the front closes; call end once it has been answered.
func (s *Server) Begin(
	w http.ResponseWriter, r *http.Request, c *tool.Call,
) (_ context.Context, end func(), _ *tool.Error) {
	if err := s.inFlight.begin(); err != nil {
		SetRetryAfter(w.Header(), err)
		return nil, nil, err
	}
	ctx, ended, _ := s.o.Calls.Begin(r.Context(), c.Caller, c.ID)
	w.Header().Set(envelope.HeaderCall, c.ID)
	return ctx, func() { ended(); s.inFlight.end() }, nil
}

// Cancel cancels a running call of the caller by its id, whichever door it came through. Calls of others are cancelled
// with a tool, which is subject to policy.
func (s *Server) Cancel(p tool.Principal, id string) error { return s.o.Calls.Cancel(p, p.ID, id) }

// Draining reports whether the front is closing and takes no more calls.
func (s *Server) Draining() bool { return s.inFlight.isDraining() }

// Leaving returns a context that ends when the front begins to close. Requests that are not calls and would never end
// by themselves, such as streams of news, end with it.
func (s *Server) Leaving() context.Context { return s.inFlight.leaving }

// Patience returns how long a peer may go without taking anything of what a door writes.
func (s *Server) Patience() time.Duration { return s.o.Times.Write }

// RetryDrained is when a client that is refused because the server ends may find its successor.
const RetryDrained = time.Second

// How long open connections have for their last request, whose answer says that they end. A client whose connection is
// closed without one, just when it sends a request, cannot tell whether that was taken.
const (
	lastCalls = 500 * time.Millisecond // if the next server waits for our end: a call is still taken
	lastWords = 100 * time.Millisecond // otherwise: it is refused
)

// leave ends the front. If another program has the address, connections are left to it; if it serves already, ours have
// all the time of calls in flight. Otherwise connections are accepted to the end, so that clients are told when to try
// again instead of being refused by the kernel.
func (s *Server) leave(outlived, served bool, closeAddress func()) {
	s.closing.Store(true)
	if outlived {
		closeAddress()
		s.crowd.empties(map[bool]time.Duration{false: lastCalls, true: s.o.Drain}[served])
	}
	s.finish()
	s.crowd.empties(lastWords)
	if !outlived {
		closeAddress()
	}
}

// finish takes no more calls and waits for those in flight, then cancels what is left and waits until that is answered.
func (s *Server) finish() {
	idle := s.inFlight.drain()
	if tool.Within(idle, s.o.Drain) {
		return
	}
	s.end(tool.Errorf(tool.CodeCancelled, "the call was cancelled because the server shut down before it had ended"))
	if !tool.Within(idle, s.o.Times.Grace) {
		s.o.Log.Warn("some calls did not end although they were cancelled")
	}
}
