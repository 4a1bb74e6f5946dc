package rest

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"toolpost/identity"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// A server is the door while it is open.
type server struct {
	Options
	times   times
	handler tool.Handler
	catalog tool.Catalog
	hosts   map[string]bool
	origins map[string]bool
	certs   *certificates // nil: no TLS
	calls   *calls
	crowd   *identity.Crowd
	mux     *http.ServeMux
}

func newServer(o Options, t times, addr net.Addr, h tool.Handler, c tool.Catalog) *server {
	s := &server{
		Options: o, times: t, handler: h, catalog: c, calls: newCalls(), mux: http.NewServeMux(),
		hosts: hostNames(addr, o.Listen, o.Hosts), origins: originNames(o.Origins),
	}
	s.crowd = identity.NewCrowd(o.Bounds, func(e *tool.Error) (string, []byte) {
		status := statusOf(e.Code)
		return fmt.Sprint(status, " ", http.StatusText(status)), encodeProblem(e, "")
	})
	if addr.Network() == "unix" {
		s.hosts = nil // no page in a browser comes this way
	}
	allowed := map[string][]string{}
	for _, route := range s.routes() {
		s.mux.HandleFunc(route.String(), route.serve)
		allowed[route.path] = append(allowed[route.path], route.method)
	}
	for at, methods := range allowed {
		s.mux.HandleFunc(at, func(w http.ResponseWriter, r *http.Request) { notAllowed(w, r, methods...) })
	}
	s.mux.HandleFunc("/v1", notFound) // else it is redirected to the next line
	s.mux.HandleFunc("/v1/", s.known(func(w http.ResponseWriter, r *http.Request, _ tool.Principal) { notFound(w, r) }))
	s.mux.HandleFunc("/", notFound)
	return s
}

// A route is one thing that can be asked of the door.
type route struct {
	method, path string
	serve        http.HandlerFunc
}

func (r route) String() string { return r.method + " " + r.path }

// routes lists all that there are.
func (s *server) routes() []route {
	return []route{
		{"GET", "/healthz", s.healthz},
		{"GET", "/readyz", s.readyz},
		{"GET", "/metrics", s.known(s.showMetrics)},
		{"GET", "/v1/tools", s.known(s.listTools)},
		{"GET", "/v1/tools/{name}", s.known(s.showTool)},
		{"POST", "/v1/tools/{name}/call", s.known(s.call)},
		{"DELETE", "/v1/calls/{id}", s.known(s.cancelCall)},
		{"GET", "/v1/assets/{sha256}", s.known(s.asset)},
		{"GET", "/v1/jobs", s.known(s.jobs)},
		{"GET", "/v1/jobs/{id}", s.known(s.aboutJob(showJob))},
		{"DELETE", "/v1/jobs/{id}", s.known(s.aboutJob(cancelJob))},
		{"GET", "/v1/jobs/{id}/events", s.known(s.jobEvents)},
	}
}

// Routes lists what can be asked of the door, as "METHOD /path/{parameter}", for tests that try each of them.
func Routes() []string {
	var names []string
	for _, r := range new(server).routes() {
		names = append(names, r.String())
	}
	return names
}

// notAllowed answers the other methods of a path, in our words and not in net/http's.
func notAllowed(w http.ResponseWriter, r *http.Request, methods ...string) {
	offered := strings.Join(methods, ", ")
	w.Header().Set("Allow", offered)
	refuse(w, r, http.StatusMethodNotAllowed, tool.Errorf(tool.CodeUnsupported, "%s is not offered on %s: use %s", r.Method, r.URL.Path, offered))
}

// ServeHTTP does what holds for every request, whoever sends it.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	rc := http.NewResponseController(w)
	_ = rc.SetWriteDeadline(time.Now().Add(s.times.write))
	if r.ContentLength != 0 {
		// Also when we refuse without reading it: net/http then reads what is left, for as long as it
		// takes. The deadline ends with the body.
		_ = rc.SetReadDeadline(time.Now().Add(s.times.body))
	}
	if s.hosts != nil && !s.hosts[strings.ToLower(r.Host)] {
		refuse(w, r, http.StatusMisdirectedRequest, tool.Errorf(tool.CodeAccessDenied,
			"no service for the host %q here: use the listen address or localhost, or add it to the door's hosts", r.Host).Because("host"))
		return
	}
	if s.crossOrigin(w, r) {
		return
	}
	if p := r.URL.EscapedPath(); path.Clean(p) != p && path.Clean(p)+"/" != p {
		notFound(w, r) // the mux would redirect to the path that it thinks is meant
		return
	}
	s.mux.ServeHTTP(w, r)
}

func notFound(w http.ResponseWriter, r *http.Request) {
	refuse(w, r, http.StatusNotFound, tool.Errorf(tool.CodeNotFound, "nothing at %s: tools are at /v1/tools", r.URL.Path))
}

func (s *server) healthz(w http.ResponseWriter, _ *http.Request) {
	reply(w, http.StatusOK, []byte(`{"ok":true}`))
}

func (s *server) readyz(w http.ResponseWriter, r *http.Request) {
	if s.calls.isDraining() {
		refuse(w, r, http.StatusServiceUnavailable, tool.Errorf(tool.CodeUnavailable, "the server is shutting down").Because("draining"))
		return
	}
	reply(w, http.StatusOK, []byte(`{"ok":true}`))
}

// showMetrics is GET /metrics. What it tells is about all callers: one who is kept to some tools needs the role for it.
func (s *server) showMetrics(w http.ResponseWriter, r *http.Request, p tool.Principal) {
	if p.Rights != nil && p.Rights.Tools != nil && !slices.Contains(p.Roles(), metricsRole) {
		refuse(w, r, http.StatusForbidden, tool.Errorf(tool.CodeAccessDenied,
			"%q may not see the metrics of all callers: give it the role %s", p.ID, metricsRole).Because("role"))
		return
	}
	if s.Metrics == nil {
		refuse(w, r, http.StatusNotFound, tool.Errorf(tool.CodeNotFound, "no metrics are kept here"))
		return
	}
	var text bytes.Buffer
	if err := s.Metrics(&text); err != nil {
		refuse(w, r, http.StatusInternalServerError, tool.Errorf(tool.CodeInternal, "the metrics cannot be written: %w", err))
		return
	}
	send(w, http.StatusOK, "text/plain; version=0.0.4; charset=utf-8", text.Bytes())
}

// metricsRole is the role of those who watch the program and may use no tool, or few.
const metricsRole = "metrics"

func (s *server) listTools(w http.ResponseWriter, r *http.Request, p tool.Principal) {
	var l listing
	for spec, why := range s.catalog.Specs(r.Context(), p) {
		if spec.Name == "" {
			l.Failed = append(l.Failed, encodeEntry(spec, why))
		} else {
			l.Tools = append(l.Tools, encodeEntry(spec, why))
		}
	}
	body, err := strictjson.Marshal(l)
	if err != nil {
		refuse(w, r, http.StatusInternalServerError, tool.Errorf(tool.CodeInternal, "the list of tools cannot be written: %w", err))
		return
	}
	reply(w, http.StatusOK, body)
}

func (s *server) showTool(w http.ResponseWriter, r *http.Request, p tool.Principal) {
	spec, err := s.catalog.Lookup(r.Context(), p, r.PathValue("name"))
	if err != nil {
		e := tool.AsError(err)
		refuse(w, r, statusOf(e.Code), e)
		return
	}
	reply(w, http.StatusOK, encodeEntry(spec, tool.WhyNot(r.Context(), s.catalog, p, spec.Name)))
}

func (s *server) cancelCall(w http.ResponseWriter, r *http.Request, p tool.Principal) {
	id := r.PathValue("id")
	if !s.calls.cancel(callKey{p.ID, id}) {
		refuse(w, r, http.StatusNotFound, tool.Errorf(tool.CodeNotFound, "no call %q of yours is running", id))
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// finish waits for the calls in flight, then cancels what is left and waits until that is answered.
func (s *server) finish(idle <-chan struct{}) {
	if within(idle, s.Drain) {
		return
	}
	s.calls.cancelAll()
	if !within(idle, s.times.grace) {
		s.Log.Warn("some calls did not end although they were cancelled")
	}
}

func within(done <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// refuse answers a request whose body was not read; the connection ends with it where there is one, so
// that the answer does not wait for a body that may never come.
func refuse(w http.ResponseWriter, r *http.Request, status int, e *tool.Error) {
	if r.ContentLength != 0 {
		w.Header().Set("Connection", "close")
	}
	reply(w, status, encodeProblem(e, ""))
}

// reply writes a whole answer. Whether the peer took it is the peer's affair.
func reply(w http.ResponseWriter, status int, body []byte) { send(w, status, typeJSON, body) }

func send(w http.ResponseWriter, status int, kind string, body []byte) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", fmt.Sprint(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
