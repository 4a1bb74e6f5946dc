package rest

import (
	"bytes"
	"cmp"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"toolpost/tool"
	"toolpost/web"
	"toolpost/wire/envelope"
	"toolpost/wire/strictjson"
)

// Options of the door. All of them have useful zero values.
type Options struct {
	Log     *slog.Logger          // nil: silence
	Metrics func(io.Writer) error // writes what is counted, as Prometheus reads it; nil: nothing is
	Beat    time.Duration         // between two signs of life on a stream; 0: 15 s
}

// NewDoor makes the door, to be mounted.
func NewDoor(o Options) web.Door {
	o.Beat = cmp.Or(o.Beat, 15*time.Second)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	return web.Door{
		Name: "http",
		Hint: "tools are at /v1/tools",
		Routes: func(on *web.Server, h tool.Handler, c tool.Catalog) []web.Route {
			return (&server{on, o, h, c}).routes()
		},
		Accepts: append([]string{headerPrefer, headerLast, "Range", "If-None-Match"}, envelope.Headers()...),
		Exposes: []string{"Location", headerApplied, "ETag", "Retry-After"},
	}
}

// A server is the door while it is open.
type server struct {
	*web.Server
	Options
	handler tool.Handler
	catalog tool.Catalog
}

// routes lists all that there are.
func (s *server) routes() []web.Route {
	return []web.Route{
		{Method: "GET", Path: "/healthz", Serve: s.healthz, Open: true},
		{Method: "GET", Path: "/readyz", Serve: s.readyz, Open: true},
		{Method: "GET", Path: "/metrics", Serve: s.showMetrics},
		{Method: "GET", Path: "/v1/tools", Serve: s.listTools},
		{Method: "GET", Path: "/v1/tools/{name}", Serve: s.showTool},
		{Method: "POST", Path: "/v1/tools/{name}/call", Serve: s.call},
		{Method: "DELETE", Path: "/v1/calls/{id}", Serve: s.cancelCall},
		{Method: "GET", Path: "/v1/assets/{sha256}", Serve: s.asset},
		{Method: "GET", Path: "/v1/jobs", Serve: s.jobs},
		{Method: "GET", Path: "/v1/jobs/{id}", Serve: s.aboutJob(showJob)},
		{Method: "DELETE", Path: "/v1/jobs/{id}", Serve: s.aboutJob(cancelJob)},
		{Method: "GET", Path: "/v1/jobs/{id}/events", Serve: s.jobEvents},
		{Path: "/v1/", Serve: s.nothing},            // strangers do not learn what there is and what not
		{Path: "/v1", Serve: s.nothing, Open: true}, // else it is redirected to the line before
	}
}

func (s *server) nothing(w http.ResponseWriter, r *http.Request, _ tool.Principal) { s.NotFound(w, r) }

// Routes lists what can be asked of the door, as "METHOD /path/{parameter}", for tests that try each of them.
func Routes() []string {
	var names []string
	for _, r := range new(server).routes() {
		if r.Method != "" {
			names = append(names, r.Method+" "+r.Path)
		}
	}
	return names
}

func (s *server) healthz(w http.ResponseWriter, _ *http.Request, _ tool.Principal) {
	web.Reply(w, http.StatusOK, []byte(`{"ok":true}`))
}

func (s *server) readyz(w http.ResponseWriter, r *http.Request, _ tool.Principal) {
	if s.Draining() {
		refuse(w, r, http.StatusServiceUnavailable,
			tool.Errorf(tool.CodeUnavailable, "the server is shutting down").Because("draining"))
		return
	}
	web.Reply(w, http.StatusOK, []byte(`{"ok":true}`))
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
		refuse(w, r, http.StatusInternalServerError,
			tool.Errorf(tool.CodeInternal, "the metrics cannot be written: %w", err))
		return
	}
	web.Send(w, http.StatusOK, "text/plain; version=0.0.4; charset=utf-8", text.Bytes())
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
		refuse(w, r, http.StatusInternalServerError,
			tool.Errorf(tool.CodeInternal, "the list of tools cannot be written: %w", err))
		return
	}
	web.Reply(w, http.StatusOK, body)
}

func (s *server) showTool(w http.ResponseWriter, r *http.Request, p tool.Principal) {
	spec, err := s.catalog.Lookup(r.Context(), p, r.PathValue("name"))
	if err != nil {
		e := tool.AsError(err)
		refuse(w, r, web.StatusOf(e.Code), e)
		return
	}
	web.Reply(w, http.StatusOK, encodeEntry(spec, tool.WhyNot(r.Context(), s.catalog, p, spec.Name)))
}

func (s *server) cancelCall(w http.ResponseWriter, r *http.Request, p tool.Principal) {
	if err := s.Cancel(p, r.PathValue("id")); err != nil {
		e := tool.AsError(err)
		refuse(w, r, web.StatusOf(e.Code), e)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// refuse answers a request that never became a call, or has no outcome; its body may not have been read.
func refuse(w http.ResponseWriter, r *http.Request, status int, e *tool.Error) {
	web.Refuse(w, r, nil, status, e)
}
