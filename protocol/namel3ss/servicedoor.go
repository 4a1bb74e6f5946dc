package namel3ss

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"strings"
	"time"

	"toolpost/host/process"
	"toolpost/host/sandbox"
	"toolpost/identity"
	"toolpost/tool"
	"toolpost/wire/envelope"
	"toolpost/wire/strictjson"
)

// ServiceOptions of the service door. All of them have useful zero values.
type ServiceOptions struct {
	Listen   string            // address; "": 127.0.0.1:8787
	Listener net.Listener      // in place of Listen; the door closes it
	Gate     identity.Gate     // who may come in
	Hosts    []string          // Host headers accepted beside the listen address and localhost
	Version  string            // service_version of the handshake; "": dev
	Bounds   identity.Bounds   // connections at the same time; zero: those that follow from this process's descriptors
	Drain    time.Duration     // how long calls in flight may go on after the end; 0: 10 s
	Log      *slog.Logger      // nil: silence
	Ready    func(addr string) // called once, with the real address, when connections are taken
	// Cover reports whether guarantees can be held around a tool; nil: those that this machine can enforce, around
	// the tools that are started here.
	Cover func(spec *tool.Spec, g tool.Guarantees) error

	Anonymous identity.Anonymous // who comes in without showing anything; zero: nobody
}

// ServiceConfig is what a config says about the service door.
type ServiceConfig struct {
	Listen string   `yaml:"listen" doc:"address to listen on; 127.0.0.1:8787 where it is left out"`
	Hosts  []string `yaml:"hosts" doc:"Host headers accepted beside the listen address and localhost"`
	identity.Anonymous
}

const toolsPath = "/tools"

// Bounds of every wait on a peer.
const (
	headerTime = 10 * time.Second
	bodyTime   = 30 * time.Second
	writeTime  = time.Minute
	idleTime   = 2 * time.Minute
	graceTime  = 2 * time.Second // for cancelled calls to be answered at the end
	// secondClock is how long ours goes on: of two that were set alike the caller's ends the call, if it has one.
	secondClock = 100 * time.Millisecond
	maxHeader   = 64 << 10
)

// A ServiceDoor is the HTTP service of the contract for whatever tool is registered.
type ServiceDoor struct{ o ServiceOptions }

var _ tool.Door = (*ServiceDoor)(nil)

// NewServiceDoor makes a door; Serve opens it.
func NewServiceDoor(o ServiceOptions) *ServiceDoor {
	o.Listen = cmp.Or(o.Listen, "127.0.0.1:8787")
	o.Version = cmp.Or(o.Version, "dev")
	o.Drain = cmp.Or(o.Drain, 10*time.Second)
	if o.Bounds == (identity.Bounds{}) {
		o.Bounds = identity.DefaultBounds()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Cover == nil {
		o.Cover = covered
	}
	return &ServiceDoor{o}
}

// Serve takes calls until ctx ends. Calls in flight then have ServiceOptions.Drain to end, after which they
// are cancelled and answered.
func (d *ServiceDoor) Serve(ctx context.Context, h tool.Handler, c tool.Catalog) error {
	ln, err := d.listen(ctx)
	switch {
	case ctx.Err() != nil && err != nil:
		return nil
	case err != nil:
		return err
	}
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	s := &service{
		ServiceOptions: d.o, handler: h, catalog: c, hosts: hostNames(ln.Addr(), d.o.Listen, d.o.Hosts),
		crowd: identity.NewCrowd(d.o.Bounds, busy),
	}
	srv := &http.Server{
		Handler: s, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		BaseContext: func(net.Listener) context.Context { return base },
		ConnContext: s.crowd.Enter, ConnState: s.crowd.Watch,
		ErrorLog: slog.NewLogLogger(d.o.Log.Handler(), slog.LevelWarn),
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(ln) }()
	if d.o.Ready != nil {
		d.o.Ready(ln.Addr().String())
	}
	select {
	case <-ctx.Done():
	case err = <-ended:
		ended <- err
		err = tool.Errorf(tool.CodeUnavailable, "the namel3ss service can take no more connections: %w", err)
	}
	shutdown(srv, d.o.Drain)
	cancel()
	shutdown(srv, graceTime)
	_ = srv.Close()
	<-ended
	return err
}

func shutdown(srv *http.Server, within time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	_ = srv.Shutdown(ctx) // what did not end in time is closed by the caller
}

// listen takes no connection where nobody asks who comes in.
func (d *ServiceDoor) listen(ctx context.Context) (net.Listener, error) {
	ln := d.o.Listener
	if d.o.Gate == nil {
		if ln != nil {
			_ = ln.Close()
		}
		return nil, tool.Errorf(tool.CodeInternal, "the namel3ss service has no gate: it would be open to everyone")
	}
	if ln == nil {
		var err error
		if ln, err = new(net.ListenConfig).Listen(ctx, "tcp", d.o.Listen); err != nil {
			return nil, tool.Errorf(tool.CodeUnavailable, "cannot serve the namel3ss service on %s: %w; choose another address, or stop what uses this one", d.o.Listen, err)
		}
	}
	if err := d.o.Anonymous.CheckOn(ln.Addr()); err != nil {
		_ = ln.Close()
		return nil, err
	}
	return ln, nil
}

// hostNames lists the Host headers that are ours. A page in a browser can make its own name point to this
// machine, but it cannot send another Host.
func hostNames(addr net.Addr, listen string, configured []string) map[string]bool {
	names := map[string]bool{addr.String(): true, strings.ToLower(listen): true}
	_, port, _ := net.SplitHostPort(addr.String())
	for _, host := range append([]string{"localhost", "127.0.0.1", "[::1]"}, configured...) {
		host = strings.ToLower(host)
		names[host+":"+port] = true
		names[host] = true // as a proxy in front of us passes it on, and with port 80
	}
	return names
}

// ServicePaths lists what can be asked of the door, for tests that try each of them.
func ServicePaths() []string { return []string{toolsPath, handshakePath} }

// A service is the door while it is open.
type service struct {
	ServiceOptions
	handler tool.Handler
	catalog tool.Catalog
	hosts   map[string]bool
	crowd   *identity.Crowd
}

// busy is the answer to a connection that is not taken.
func busy(e *tool.Error) (status string, body []byte) {
	return "503 Service Unavailable", encodeServiceReply(&reply{Error: errorReply(e)})
}

// ServeHTTP does what holds for every request, whoever sends it.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(bodyTime))
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	answer := map[string]answerer{toolsPath: s.call, handshakePath: s.handshake}[r.URL.Path]
	switch {
	case !s.hosts[strings.ToLower(r.Host)]:
		s.refuse(w, http.StatusMisdirectedRequest, tool.Errorf(tool.CodeAccessDenied, "no service for the host %.100q here; use the listen address or localhost, or add it to the door's hosts", r.Host))
	case r.Header.Get("Origin") != "":
		s.refuse(w, http.StatusForbidden, tool.Errorf(tool.CodeAccessDenied, "pages in a browser may not call this service"))
	case answer == nil:
		s.refuse(w, http.StatusNotFound, tool.Errorf(tool.CodeNotFound, "nothing at %.100q; POST to %s or %s", r.URL.Path, toolsPath, handshakePath))
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		s.refuse(w, http.StatusMethodNotAllowed, tool.Errorf(tool.CodeUnsupported, "%s is not offered here; use POST", r.Method))
	default:
		s.answer(w, r, answer)
	}
}

// An answerer answers a request. The call has what the headers say.
type answerer func(ctx context.Context, c *tool.Call, body []byte) (status int, reply []byte)

func (s *service) answer(w http.ResponseWriter, r *http.Request, answer answerer) {
	p, err := s.caller(r)
	if err != nil {
		w.Header().Set("WWW-Authenticate", `Bearer realm="toolpost", Basic realm="toolpost"`)
		s.refuse(w, http.StatusUnauthorized, tool.AsError(err))
		return
	}
	if err := s.crowd.Belongs(r.Context(), p); err != nil {
		s.refuse(w, http.StatusTooManyRequests, tool.AsError(err))
		return
	}
	c := &tool.Call{Caller: p}
	timeout, err := envelope.Read(r.Header, c)
	if err != nil {
		s.refuse(w, http.StatusBadRequest, tool.AsError(err))
		return
	}
	ctx, stop := envelope.Within(r.Context(), timeout, "the call")
	defer stop()
	body, err := process.ReadDocument(r.Body, maxDocument)
	var limit *process.LimitError
	switch {
	case errors.As(err, &limit):
		s.refuse(w, http.StatusRequestEntityTooLarge, tool.Errorf(tool.CodeInvalidInput, "the request is longer than %d MiB", maxDocument>>20))
		return
	case err != nil:
		s.refuse(w, http.StatusBadRequest, tool.Errorf(tool.CodeInvalidInput, "the request broke off: %w", err))
		return
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // else net/http would take it for a caller who left
	status, b := answer(ctx, c, body)
	send(w, status, b)
}

// caller says who calls, by the token: a bearer's, or the password of whatever user, since that is what clients make of
// http://toolpost:TOKEN@host/tools.
func (s *service) caller(r *http.Request) (tool.Principal, error) {
	if name := s.Anonymous.Of(r); name != "" {
		return s.Gate(r.Context(), identity.Credentials{Door: "namel3ss", Anonymous: name})
	}
	values := r.Header.Values("Authorization")
	if len(values) == 1 {
		scheme, token, _ := strings.Cut(values[0], " ")
		if _, password, ok := r.BasicAuth(); ok {
			return s.Gate(r.Context(), identity.Credentials{Door: "namel3ss", Token: password})
		}
		if strings.EqualFold(scheme, "Bearer") {
			return s.Gate(r.Context(), identity.Credentials{Door: "namel3ss", Token: strings.TrimSpace(token)})
		}
	}
	why := ""
	if len(values) == 0 {
		why = s.Anonymous.WhyNot(r.Header)
	}
	return tool.Principal{}, tool.Errorf(tool.CodeAccessDenied, "%ssend the header Authorization: Bearer TOKEN, or the token as the password of Basic", why).
		Because(identity.Reason)
}

// refuse answers a request that never became a call; its body may not have been read.
func (s *service) refuse(w http.ResponseWriter, status int, e *tool.Error) {
	w.Header().Set("Connection", "close")
	send(w, status, encodeServiceReply(&reply{Error: errorReply(e)}))
}

func send(w http.ResponseWriter, status int, body []byte) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTime))
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", fmt.Sprint(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // whether the peer took it is the peer's affair
}

// call runs a tool. What the tool or the engine says is HTTP 200: the service itself did its work.
func (s *service) call(ctx context.Context, c *tool.Call, body []byte) (int, []byte) {
	req, err := parseServiceRequest(body)
	if err != nil {
		return http.StatusBadRequest, encodeServiceReply(&reply{Error: errorReply(malformed(err))})
	}
	if req.timeout > 0 {
		limit := tool.Errorf(tool.CodeTimeout, "%s ran longer than the %v that its caller gave it", req.toolName, req.timeout)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, req.timeout+secondClock, limit)
		defer cancel()
	}
	c.Tool, c.Args, c.Guarantees = req.toolName, req.payload, req.wishes.guarantees
	if req.traceID != "" {
		if strings.ReplaceAll(req.traceID, "-", "") != strings.ReplaceAll(c.Trace, "-", "") {
			c.Span = "" // that of the headers is of another trace
		}
		c.Trace = req.traceID
	}
	result, err := s.handler.Invoke(ctx, c, s.noted(c.Tool))
	return http.StatusOK, encodeServiceReply(req.wishes.reply(result, err))
}

// noted writes the events of a call to the log: a reply has no place for them, and none is lost silently.
func (s *service) noted(name string) tool.Sink {
	return tool.SinkFunc(func(e tool.Event) error {
		s.Log.Info("an event of a tool", "tool", name, "event", fmt.Sprintf("%.1000s", inWords(e)))
		return nil
	})
}

// A servedRequest is a request as a service reads it.
type servedRequest struct {
	toolName, kind, entry, traceID string
	payload                        json.RawMessage
	timeout                        time.Duration // 0: not said
	wishes                         wishes
}

func parseServiceRequest(b []byte) (*servedRequest, error) {
	seen := map[string]json.RawMessage{}
	if err := members(b, seen, "protocol_version", "tool_name", "kind", "entry", "payload", "timeout_ms", "trace_id", "sandbox", "capability_context"); err != nil {
		return nil, fmt.Errorf("the request: %w", err)
	}
	r := &servedRequest{payload: seen["payload"]}
	err := cmp.Or(
		checkVersion(seen["protocol_version"], true), text(seen, "tool_name", &r.toolName), optionalText(seen, "kind", &r.kind),
		optionalText(seen, "entry", &r.entry), optionalText(seen, "trace_id", &r.traceID), checkPayload(r.payload),
	)
	if err != nil {
		return nil, err
	}
	if r.wishes, err = parseWishes(seen); err != nil {
		return nil, err
	}
	r.timeout, err = milliseconds(seen["timeout_ms"])
	return r, err
}

// milliseconds reads timeout_ms.
func milliseconds(v json.RawMessage) (time.Duration, error) {
	var n float64
	switch kind := strictjson.KindOf(v); {
	case kind == "nothing" || kind == "null":
		return 0, nil
	case kind != "number" || strictjson.Unmarshal(v, &n) != nil || math.IsInf(n, 0) || n <= 0:
		return 0, fmt.Errorf("timeout_ms must be a number above 0, not %.40s", v)
	}
	return time.Duration(min(n, float64(maxTimeout.Milliseconds())) * float64(time.Millisecond)), nil
}

// encodeServiceReply writes a reply as the contract's service has it.
func encodeServiceReply(r *reply) []byte {
	var b []byte
	var err error
	if r.OK {
		b, err = strictjson.Marshal(struct {
			OK     bool            `json:"ok"`
			Result json.RawMessage `json:"result"`
			Checks json.RawMessage `json:"capability_checks,omitzero"`
		}{true, r.Result, r.Checks})
	} else {
		b, err = strictjson.Marshal(struct {
			OK     bool            `json:"ok"`
			Error  replyError      `json:"error"`
			Checks json.RawMessage `json:"capability_checks,omitzero"`
		}{false, r.Error, r.Checks})
	}
	if err != nil {
		return encodeServiceReply(&reply{Error: errorReply(tool.Errorf(tool.CodeInternal, "the result is not JSON: %w", err))})
	}
	return b
}

// handshake says which walls stand around a tool on every call: those of its spec and of its source that this machine
// can build. Who shakes hands asks for nothing more with the call itself, so others are not promised.
func (s *service) handshake(ctx context.Context, c *tool.Call, body []byte) (int, []byte) {
	name, wanted, err := parseHandshakeRequest(body)
	if err != nil {
		return http.StatusBadRequest, encodeServiceReply(&reply{Error: errorReply(tool.Errorf(tool.CodeInvalidInput, "%w", err))})
	}
	spec, err := s.catalog.Lookup(ctx, c.Caller, name)
	if err != nil {
		return http.StatusOK, encodeServiceReply(&reply{Error: errorReply(tool.AsError(err))})
	}
	r := handshakeReply{Version: s.Version, Enforcement: enforced, Supported: s.supported(spec)}
	if missing, _ := r.missing(wanted); len(missing) > 0 || len(r.Supported) == 0 {
		r.Enforcement = "none"
	}
	b, err := strictjson.Marshal(struct {
		OK          bool                       `json:"ok"`
		Enforcement string                     `json:"enforcement"`
		Supported   map[string]json.RawMessage `json:"supported_guarantees"`
		Version     string                     `json:"service_version"`
	}{true, r.Enforcement, r.Supported, r.Version})
	if err != nil {
		return http.StatusInternalServerError, encodeServiceReply(&reply{Error: errorReply(tool.Errorf(tool.CodeInternal, "%w", err))})
	}
	return http.StatusOK, b
}

// supported lists the walls around a tool that this machine can really build, one by one.
func (s *service) supported(spec *tool.Spec) map[string]json.RawMessage {
	all := map[string]json.RawMessage{}
	for name, on := range spec.Guarantees.Tighten(spec.Held).All() {
		if on && s.Cover(spec, only(name)) == nil {
			all[name] = json.RawMessage("true")
		}
	}
	secrets := spec.Guarantees.SecretsAllowed
	if secrets != nil && s.Cover(spec, tool.Guarantees{SecretsAllowed: secrets}) == nil {
		all["secrets_allowed"], _ = strictjson.Marshal(secrets)
	}
	return all
}

// covered says what can be promised of a tool: what this machine can enforce, if the tool is started here, and nothing
// of one that runs elsewhere. A runner that cannot keep the promise for a call refuses the call.
func covered(spec *tool.Spec, g tool.Guarantees) error {
	if spec.Walls == "" {
		return sandbox.Elsewhere(spec.Name, g)
	}
	return sandbox.Cover(spec.Name, g)
}

// only is the guarantee of that name alone.
func only(name string) tool.Guarantees {
	var g tool.Guarantees
	_ = strictjson.Unmarshal([]byte(`{"`+name+`":true}`), &g) // its JSON form has these names
	return g
}

func parseHandshakeRequest(b []byte) (name string, wanted tool.Guarantees, err error) {
	seen := map[string]json.RawMessage{}
	if err := members(b, seen, "protocol_version", "tool_name", "runner", "required_guarantees"); err != nil {
		return "", wanted, fmt.Errorf("the handshake: %w", err)
	}
	var runner string
	err = cmp.Or(checkVersion(seen["protocol_version"], true), text(seen, "tool_name", &name), optionalText(seen, "runner", &runner))
	if err != nil {
		return "", wanted, err
	}
	if required := seen["required_guarantees"]; strictjson.KindOf(required) == "object" {
		if err := strictjson.UnmarshalClosed(required, &wanted); err != nil {
			return "", wanted, fmt.Errorf("required_guarantees: %w", err)
		}
	} else if kind := strictjson.KindOf(required); kind != "nothing" && kind != "null" {
		return "", wanted, fmt.Errorf("required_guarantees must be an object, not %s", kind)
	}
	return name, wanted, nil
}
