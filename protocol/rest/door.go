package rest

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"toolpost/tool"
	"toolpost/web"
	"toolpost/wire/envelope"
	"toolpost/wire/listing"
	"toolpost/wire/nearest"
	"toolpost/wire/strictjson"
)

// Options of the door. All of them have useful zero values.
type Options struct {
	Log     *slog.Logger          // nil means no log
	Metrics func(io.Writer) error // writes the metrics in Prometheus format; nil if there are none
	Opening func() []string       // returns the sources that are still being opened; nil if there are none
	Usable  func() error          // returns why calls that may change something are refused; nil if none are
	Version string                // of this program, for clients
	Beat    time.Duration         // between two keep-alives on a stream; default 15 s
	// Running returns the digest of the config that runs. It is for the door of commands; nil at all others.
	Running func() string
}

// NewDoor returns the door, to be mounted.
func NewDoor(o Options) web.Door {
	o.Beat = cmp.Or(o.Beat, 15*time.Second)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	return web.Door{
		Name: "http",
		Hint: "tools are at /v1/tools",
		Offers: []web.Offer{
			{
				Path: "/v1/tools", What: "tools over HTTP: JSON, and events as they happen",
				Try: `curl -H "Authorization: Bearer $TOOLPOST_TOKEN" URL/v1/tools`,
			},
			{Path: "/openapi.json", What: "the same as an OpenAPI document; without a token: the server's own routes"},
			{Path: "/metrics", What: "what is counted, as Prometheus reads it"},
			{Path: "/healthz", What: "whether it serves; no token"},
		},
		Routes: func(on *web.Server, h tool.Handler, c tool.Catalog) []web.Route {
			h = suggesting(tool.Recovered(o.Log, "the server's log")(h), c)
			return (&server{Server: on, Options: o, handler: h, catalog: c}).routes()
		},
		Accepts: append([]string{headerPrefer, headerLast, "Range", "If-None-Match"}, envelope.Headers()...),
		Exposes: []string{"Location", headerApplied, "ETag", "Retry-After"},
	}
}

// A server is an open door.
type server struct {
	*web.Server
	Options
	handler tool.Handler
	catalog tool.Catalog
	left    atomic.Int64 // bytes of large outputs that were sent since the last garbage collection
}

// runningPath is where commands ask which config runs.
const runningPath = "/v1/running"

// showRunning is refused while the server drains: a command then does without it.
func (s *server) showRunning(w http.ResponseWriter, _ *http.Request, _ tool.Principal) error {
	if err := s.leaving(); err != nil {
		return err
	}
	web.Reply(w, http.StatusOK, strictjson.Quote(s.Running()))
	return nil
}

// leaving returns an error if the server drains.
func (s *server) leaving() error {
	if !s.Draining() {
		return nil
	}
	return tool.Errorf(tool.CodeUnavailable, "the server is shutting down").Because("draining").RetryAfter(web.RetryDrained)
}

// routes lists all routes.
func (s *server) routes() []web.Route {
	routes := []web.Route{
		{Method: "GET", Path: "/healthz", Serve: refusing(s.healthz), Open: true},
		{Method: "GET", Path: "/readyz", Serve: refusing(s.readyz), Open: true, Optional: true},
		{Method: "GET", Path: "/metrics", Serve: refusing(s.showMetrics)},
		{Method: "GET", Path: "/openapi.json", Serve: refusing(s.describe), Optional: true},
		{Method: "GET", Path: "/v1/tools", Serve: refusing(s.listTools)},
		{Method: "GET", Path: "/v1/tools/{name}", Serve: refusing(s.showTool)},
		{Method: "POST", Path: "/v1/tools/{name}/call", Lasts: s.follows, Serve: refusing(s.call)},
		{Method: "DELETE", Path: "/v1/calls/{id}", Serve: refusing(s.cancelCall)},
		{Method: "GET", Path: "/v1/assets/{sha256}", Serve: refusing(s.asset)},
		{Method: "GET", Path: "/v1/jobs", Serve: refusing(s.jobs)},
		{Method: "GET", Path: "/v1/jobs/{id}", Serve: refusing(s.aboutJob(showJob))},
		{Method: "DELETE", Path: "/v1/jobs/{id}", Serve: refusing(s.aboutJob(cancelJob))},
		{Method: "GET", Path: "/v1/jobs/{id}/events", Serve: refusing(s.jobEvents)},
		{Path: "/v1/", Serve: s.nothing},            // without a token, a client cannot find out which paths exist
		{Path: "/v1", Serve: s.nothing, Open: true}, // otherwise it would be redirected to the line before
	}
	if s.Running != nil {
		routes = append(routes, web.Route{Method: "GET", Path: runningPath, Serve: refusing(s.showRunning)})
	}
	return routes
}

// A handler answers a request, or returns why it never became a call, or has no outcome.
type handler func(w http.ResponseWriter, r *http.Request, p tool.Principal) error

// refusing answers a request with its handler's error; the body may not have been read.
func refusing(serve handler) func(http.ResponseWriter, *http.Request, tool.Principal) {
	return func(w http.ResponseWriter, r *http.Request, p tool.Principal) {
		if e := tool.AsError(serve(w, r, p)); e != nil {
			web.Refuse(w, r, nil, web.StatusOf(e.Code), e)
		}
	}
}

func (s *server) nothing(w http.ResponseWriter, r *http.Request, _ tool.Principal) { s.NotFound(w, r) }

// Routes lists the routes of the door, as "METHOD /path/{parameter}", for tests that try each of them.
func Routes() []string {
	var names []string
	for _, r := range new(server).routes() {
		if r.Method != "" {
			names = append(names, r.Method+" "+r.Path)
		}
	}
	return names
}

func (s *server) healthz(w http.ResponseWriter, _ *http.Request, _ tool.Principal) error {
	web.Reply(w, http.StatusOK, []byte(`{"ok":true}`))
	return nil
}

// readyz is GET /readyz. A server is ready while sources are still being opened: calls of their tools wait, others do not. A
// client without a token is told how many, and not which. It is not ready while calls that may change something are refused.
func (s *server) readyz(w http.ResponseWriter, _ *http.Request, p tool.Principal) error {
	if err := s.leaving(); err != nil {
		return err
	}
	if s.Usable != nil {
		if err := s.Usable(); err != nil {
			return err
		}
	}
	ready := struct {
		OK      bool     `json:"ok"`
		Opening []string `json:"opening,omitempty"`
		Count   int      `json:"opening_count,omitzero"`
	}{OK: true}
	if s.Opening != nil {
		ready.Opening = s.Opening()
		ready.Count = len(ready.Opening)
	}
	if p.ID == "" {
		ready.Opening = nil
	}
	body, err := strictjson.Marshal(ready)
	if err == nil {
		web.Reply(w, http.StatusOK, body)
	}
	return err
}

// showMetrics is GET /metrics. Metrics cover all callers: a caller that is restricted to some tools needs the role for
// it.
func (s *server) showMetrics(w http.ResponseWriter, _ *http.Request, p tool.Principal) error {
	if p.Rights != nil && p.Rights.Tools != nil && !slices.Contains(p.Roles(), metricsRole) {
		return tool.Errorf(tool.CodeAccessDenied,
			"%q may not see the metrics of all callers: give it the role %s", p.ID, metricsRole).Because("role")
	}
	if s.Metrics == nil {
		return tool.Errorf(tool.CodeNotFound, "no metrics are kept here")
	}
	var text bytes.Buffer
	if err := s.Metrics(&text); err != nil {
		return tool.Errorf(tool.CodeInternal, "the metrics cannot be written: %w", err)
	}
	web.Send(w, http.StatusOK, "text/plain; version=0.0.4; charset=utf-8", text.Bytes())
	return nil
}

// metricsRole is the role of callers that monitor the program and may use few tools or none.
const metricsRole = "metrics"

func (s *server) listTools(w http.ResponseWriter, r *http.Request, p tool.Principal) error {
	var l toolList
	for spec, why := range s.catalog.Specs(r.Context(), p) {
		if spec.Name == "" {
			l.Failed = append(l.Failed, listing.Encode(spec, why))
		} else {
			l.Tools = append(l.Tools, listing.Encode(spec, why))
		}
	}
	body, err := strictjson.Marshal(l)
	if err == nil {
		web.Reply(w, http.StatusOK, body)
	}
	return err
}

func (s *server) showTool(w http.ResponseWriter, r *http.Request, p tool.Principal) error {
	spec, err := s.catalog.Lookup(r.Context(), p, r.PathValue("name"))
	if err != nil {
		return nearest.Tool(r.Context(), s.catalog, p, r.PathValue("name"), "", err)
	}
	web.Reply(w, http.StatusOK, listing.Encode(spec, tool.WhyNot(r.Context(), s.catalog, p, spec.Name)))
	return nil
}

// cancelCall is DELETE /v1/calls/{id}. It ends a caller's own call. An operator ends another caller's call with the
// tool for it, so that the policy applies and the act is recorded.
func (s *server) cancelCall(w http.ResponseWriter, r *http.Request, p tool.Principal) error {
	id := r.PathValue("id")
	err := s.Cancel(p, id)
	switch {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	case p.Operator() && s.offers(r, p, "cancelCall") == nil:
		return s.ask(w, r, p, "cancelCall", map[string]string{"call": id}, func(ctx context.Context, c *tool.Call) {
			if res, err := s.handler.Invoke(ctx, c, tool.Discard); err != nil || !res.OK || c.DryRun {
				s.answer(w, r, c, http.StatusOK, res, err)
				return
			}
			w.WriteHeader(http.StatusNoContent)
		})
	}
	return err
}
