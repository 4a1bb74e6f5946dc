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
	"toolpost/tool"
	"toolpost/web"
	"toolpost/wire/envelope"
	"toolpost/wire/strictjson"
)

// ServiceOptions of the service door. All of them have useful zero values.
type ServiceOptions struct {
	Version string       // service_version of the handshake; "": dev
	Log     *slog.Logger // nil: silence
	// Cover reports whether guarantees can be held around a tool; nil: those that this machine can enforce, around
	// the tools that are started here.
	Cover func(spec *tool.Spec, g tool.Guarantees) error
}

// ServiceListen is where the contract's clients look for a service.
const ServiceListen = "127.0.0.1:8787"

const toolsPath = "/tools"

// secondClock is how long ours goes on: of two that were set alike the caller's ends the call, if it has one.
const secondClock = 100 * time.Millisecond

// NewServiceDoor makes the HTTP service of the contract for whatever tool is registered, to be mounted. A token may
// come as a password, since that is what clients make of http://toolpost:TOKEN@host/tools.
func NewServiceDoor(o ServiceOptions) web.Door {
	o.Version = cmp.Or(o.Version, "dev")
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Cover == nil {
		o.Cover = covered
	}
	return web.Door{
		Name:     "namel3ss",
		Hint:     "POST to " + toolsPath + " or " + handshakePath,
		Basic:    true,
		Refusals: serviceRefusals{},
		Routes: func(on *web.Server, h tool.Handler, c tool.Catalog) []web.Route {
			s := &service{on, o, h, c}
			return []web.Route{
				{Method: http.MethodPost, Path: toolsPath, Serve: s.answering(s.call)},
				{Method: http.MethodPost, Path: handshakePath, Serve: s.answering(s.handshake)},
			}
		},
	}
}

// ServicePaths lists what can be asked of the door, for tests that try each of them.
func ServicePaths() []string { return []string{toolsPath, handshakePath} }

// A service is the door while it is open.
type service struct {
	*web.Server
	ServiceOptions
	handler tool.Handler
	catalog tool.Catalog
}

// A serviceRefusals refuses what never becomes a call in the words of the contract.
type serviceRefusals struct{}

// Refusal implements web.Refuser.
func (serviceRefusals) Refusal(e *tool.Error) []byte {
	return encodeServiceReply(&reply{Error: errorReply(e)})
}

// An answerer answers a request. The call has what the headers say.
type answerer func(ctx context.Context, c *tool.Call, body []byte) (status int, reply []byte)

// answering reads a request and lets it in, as a call that can be cancelled and is waited for at the end.
func (s *service) answering(answer answerer) func(http.ResponseWriter, *http.Request, tool.Principal) {
	return func(w http.ResponseWriter, r *http.Request, p tool.Principal) {
		c := &tool.Call{Caller: p}
		timeout, bad := envelope.Read(r.Header, c)
		if bad != nil {
			web.Refuse(w, r, serviceRefusals{}, http.StatusBadRequest, tool.AsError(bad))
			return
		}
		c.Name()
		body, status, err := s.ReadBody(w, r)
		if err != nil {
			web.Refuse(w, r, serviceRefusals{}, status, err)
			return
		}
		ctx, end, err := s.Begin(w, r, c)
		if err != nil {
			web.Refuse(w, r, serviceRefusals{}, web.StatusOf(err.Code), err)
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

// call runs a tool. What the tool or the engine says is HTTP 200: the service itself did its work.
func (s *service) call(ctx context.Context, c *tool.Call, body []byte) (int, []byte) {
	req, err := parseServiceRequest(body)
	if err != nil {
		return http.StatusBadRequest, encodeServiceReply(&reply{Error: errorReply(malformed(err))})
	}
	if req.timeout > 0 {
		limit := tool.Errorf(tool.CodeTimeout, "%s ran longer than the %v that its caller gave it", req.toolName,
			req.timeout)
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
	if err := members(b, seen, "protocol_version", "tool_name", "kind", "entry", "payload", "timeout_ms", "trace_id",
		"sandbox", "capability_context"); err != nil {
		return nil, fmt.Errorf("the request: %w", err)
	}
	r := &servedRequest{payload: seen["payload"]}
	err := cmp.Or(
		checkVersion(seen["protocol_version"], true), text(seen, "tool_name", &r.toolName),
		optionalText(seen, "kind", &r.kind),
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
		return encodeServiceReply(&reply{
			Error: errorReply(tool.Errorf(tool.CodeInternal, "the result is not JSON: %w", err)),
		})
	}
	return b
}

// handshake says which walls stand around a tool on every call: those of its spec and of its source that this machine
// can build. Who shakes hands asks for nothing more with the call itself, so others are not promised.
func (s *service) handshake(ctx context.Context, c *tool.Call, body []byte) (int, []byte) {
	name, wanted, err := parseHandshakeRequest(body)
	if err != nil {
		return http.StatusBadRequest, encodeServiceReply(&reply{
			Error: errorReply(tool.Errorf(tool.CodeInvalidInput, "%w", err)),
		})
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
		return http.StatusInternalServerError, encodeServiceReply(&reply{
			Error: errorReply(tool.Errorf(tool.CodeInternal, "%w", err)),
		})
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
	err = cmp.Or(checkVersion(seen["protocol_version"], true), text(seen, "tool_name", &name),
		optionalText(seen, "runner", &runner))
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
