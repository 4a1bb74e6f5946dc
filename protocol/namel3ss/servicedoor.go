package namel3ss

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"strings"
	"time"

	"toolpost/host/sandbox"
	"toolpost/protocol/namel3ss/appfile"
	"toolpost/tool"
	"toolpost/web"
	"toolpost/wire/envelope"
	"toolpost/wire/strictjson"
)

// ServiceOptions configure the service door. All of them have useful zero values.
type ServiceOptions struct {
	Version string       // service_version of the handshake; default dev
	Log     *slog.Logger // nil discards
	// Cover reports whether guarantees can be held around a tool. The default accepts those that this machine can enforce,
	// for tools that are started here.
	Cover func(spec *tool.Spec, g tool.Guarantees) error
}

// ServiceListen is the address at which the contract's clients expect a service.
const ServiceListen = "127.0.0.1:8787"

const toolsPath = "/tools"

// secondClock is how much longer our timer runs: if both are set alike, the caller's own timer ends the call.
const secondClock = 100 * time.Millisecond

// NewServiceDoor makes the contract's HTTP service for any registered tool, to be mounted. It takes a token as a password
// too, because clients turn http://toolpost:TOKEN@host/tools into one.
func NewServiceDoor(o ServiceOptions) web.Door {
	o.Version = cmp.Or(o.Version, "dev")
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Cover == nil {
		o.Cover = covered
	}
	return web.Door{
		Name:     "namel3ss",
		Hint:     "POST to " + toolsPath + " or " + handshakePath,
		Offers:   []web.Offer{{Path: toolsPath, What: "the namel3ss service protocol"}},
		Basic:    true,
		Refusals: refuse,
		Routes: func(on *web.Server, h tool.Handler, c tool.Catalog) []web.Route {
			s := &service{on, o, h, c}
			return []web.Route{
				{Method: http.MethodPost, Path: toolsPath, Serve: s.answering(s.call)},
				{Method: http.MethodPost, Path: handshakePath, Serve: s.answering(s.handshake)},
			}
		},
	}
}

// ServicePaths lists the paths of the door, for tests that try each of them.
func ServicePaths() []string { return []string{toolsPath, handshakePath} }

// A service is the door while it is open.
type service struct {
	*web.Server
	ServiceOptions
	handler tool.Handler
	catalog tool.Catalog
}

// refuse encodes the refusal of a request that never becomes a call, as the contract defines it.
func refuse(e *tool.Error) []byte { return encodeReply(refusal(e), 0) }

// An answerer answers a request. The call carries the values of the headers.
type answerer func(ctx context.Context, c *tool.Call, body []byte) (status int, reply []byte)

// answering reads a request and admits it as a call that can be cancelled and that shutdown waits for.
func (s *service) answering(answer answerer) func(http.ResponseWriter, *http.Request, tool.Principal) {
	return func(w http.ResponseWriter, r *http.Request, p tool.Principal) {
		c := &tool.Call{Caller: p}
		timeout, bad := envelope.Read(r.Header, c)
		if bad != nil {
			web.Refuse(w, r, refuse, http.StatusBadRequest, tool.AsError(bad))
			return
		}
		c.Name()
		body, status, err := s.ReadBody(w, r)
		if err != nil {
			web.Refuse(w, r, refuse, status, err)
			return
		}
		ctx, end, err := s.Begin(w, r, c)
		if err != nil {
			web.Refuse(w, r, refuse, web.StatusOf(err.Code), err)
			return
		}
		defer end()
		ctx, stop := envelope.Within(ctx, timeout, "the call")
		defer stop()
		status, body = answer(ctx, c, body)
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.Patience()))
		web.Reply(w, status, body)
	}
}

// call runs a tool. Any outcome of the tool or the engine is HTTP 200: the service itself did its work.
func (s *service) call(ctx context.Context, c *tool.Call, body []byte) (int, []byte) {
	req, err := parseRequest(body, true)
	if err != nil {
		return http.StatusBadRequest, refuse(malformed(err))
	}
	if req.timeout > 0 {
		limit := tool.Errorf(tool.CodeTimeout, "%s ran longer than the %v that its caller gave it", req.tool,
			req.timeout)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, req.timeout+secondClock, limit)
		defer cancel()
	}
	c.Tool, c.Args, c.Guarantees = req.tool, req.payload, req.wishes.guarantees
	if req.traceID != "" {
		if strings.ReplaceAll(req.traceID, "-", "") != strings.ReplaceAll(c.Trace, "-", "") {
			c.Span = "" // the headers' span belongs to another trace
		}
		c.Trace = req.traceID
	}
	result, err := s.handler.Invoke(ctx, c, s.noted(c.Tool))
	return http.StatusOK, encodeReply(req.wishes.reply(result, err), 0)
}

// noted writes the events of a call to the log: a reply has no place for them, and none may be lost silently.
func (s *service) noted(name string) tool.Sink {
	return tool.SinkFunc(func(e tool.Event) error {
		s.Log.Info("an event of a tool", "tool", name, "event", fmt.Sprintf("%.1000s", inWords(e)))
		return nil
	})
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
	return time.Duration(min(n, float64(appfile.MaxTimeout.Milliseconds())) * float64(time.Millisecond)), nil
}

// handshake returns the guarantees that hold for a tool on every call: those of its spec and of its source that this machine
// can enforce. It promises no others, because a client that shakes hands asks for nothing more in the call itself.
func (s *service) handshake(ctx context.Context, c *tool.Call, body []byte) (int, []byte) {
	name, wanted, err := parseHandshakeRequest(body)
	if err != nil {
		return http.StatusBadRequest, refuse(malformed(err))
	}
	spec, err := s.catalog.Lookup(ctx, c.Caller, name)
	if err != nil {
		return http.StatusOK, refuse(tool.AsError(err))
	}
	r := handshakeReply{OK: true, Version: s.Version, Enforcement: enforced, Supported: s.supported(spec)}
	if missing, _ := r.missing(wanted); len(missing) > 0 || len(r.Supported) == 0 {
		r.Enforcement = "none"
	}
	b, err := strictjson.Marshal(r)
	if err != nil {
		return http.StatusInternalServerError, refuse(tool.AsError(err))
	}
	return http.StatusOK, b
}

// supported lists the guarantees of a tool that this machine can enforce, each tested by itself.
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

// covered reports whether guarantees can be promised for a tool: those that this machine can enforce if the tool is started
// here, and none if it runs elsewhere. A runner that cannot keep the promise for a call refuses the call.
func covered(spec *tool.Spec, g tool.Guarantees) error {
	if spec.Walls == "" {
		return sandbox.Elsewhere(spec.Name, g)
	}
	return sandbox.Cover(spec.Name, g)
}

// only returns the named guarantee alone.
func only(name string) tool.Guarantees {
	var g tool.Guarantees
	_ = strictjson.Unmarshal([]byte(`{"`+name+`":true}`), &g) // its JSON form has these names
	return g
}

func parseHandshakeRequest(b []byte) (name string, wanted tool.Guarantees, err error) {
	seen, err := strictjson.ReadMembers(b, "protocol_version", "tool_name", "runner", "required_guarantees")
	if err != nil {
		return "", wanted, fmt.Errorf("the handshake: %w", err)
	}
	var runner string
	required, err := member(seen, "required_guarantees", "an object")
	err = cmp.Or(checkVersion(seen, true), text(seen, "tool_name", &name), optionalText(seen, "runner", &runner), err)
	if err != nil || required == nil {
		return name, wanted, err
	}
	if err := strictjson.UnmarshalClosed(required, &wanted); err != nil {
		return "", wanted, fmt.Errorf("required_guarantees: %w", err)
	}
	return name, wanted, nil
}
