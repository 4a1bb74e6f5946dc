package namel3ss

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"toolpost/protocol/namel3ss/appfile"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

const (
	handshakePath = "/capabilities/handshake"
	enforced      = "enforced" // the only enforcement value of a service that counts

	agreementTTL  = time.Minute // a service may be replaced by one that enforces less
	maxAgreements = 64          // per tool: each policy may ask for other walls
)

// A handshakeRequest asks a service which walls it builds around a tool.
type handshakeRequest struct {
	ProtocolVersion    int            `json:"protocol_version"`
	ToolName           string         `json:"tool_name"`
	Runner             string         `json:"runner"`
	RequiredGuarantees map[string]any `json:"required_guarantees"`
}

// A handshakeReply is a service's description of itself.
type handshakeReply struct {
	OK          bool                       `json:"ok"`
	Enforcement string                     `json:"enforcement"`
	Supported   map[string]json.RawMessage `json:"supported_guarantees"`
	Version     string                     `json:"service_version"`
	Error       replyError                 `json:"-"` // if OK is false
}

// agreements cache the handshakes of one tool for a while, keyed by their guarantees.
type agreements struct {
	ttl time.Duration
	mu  sync.Mutex
	all map[string]agreement
}

type agreement struct {
	reply *handshakeReply
	until time.Time
}

func (a *agreements) get(key string) *handshakeReply {
	a.mu.Lock()
	defer a.mu.Unlock()
	if found := a.all[key]; time.Now().Before(found.until) {
		return found.reply
	}
	return nil
}

func (a *agreements) put(key string, r *handshakeReply) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all == nil || len(a.all) >= maxAgreements {
		a.all = map[string]agreement{}
	}
	a.all[key] = agreement{r, time.Now().Add(a.ttl)}
}

// shakeHands lets a call pass if the service enforces its guarantees. Otherwise the tool is not called.
func (t *serviceTool) shakeHands(ctx context.Context, inv *invocation) error {
	asked := inv.walls.Asked()
	if len(asked) == 0 && !t.required {
		return nil
	}
	inv.trace.set("service_handshake", true)
	r, err := t.agree(ctx, inv)
	if err != nil {
		return t.noHandshake(inv, asked, err)
	}
	inv.trace.set("enforcement_level", r.Enforcement)
	if r.Version != "" {
		inv.trace.set("service_version", r.Version)
	}
	if missing, why := r.missing(inv.walls); len(missing) > 0 {
		if r.Enforcement == enforced { // but it enforces other guarantees than this call's
			inv.trace.set("enforcement_level", "none")
		}
		return t.uncovered(inv, missing, why)
	}
	return nil
}

// agree returns the service's answer for these walls, or a cached one that is recent enough. Only a satisfactory answer is
// cached, so that a repaired service is noticed at once.
func (t *serviceTool) agree(ctx context.Context, inv *invocation) (*handshakeReply, error) {
	doc, err := strictjson.Marshal(handshakeRequest{
		protocolVersion, t.spec.Name, appfile.RunnerService, guaranteeWords(inv.walls, false),
	})
	if err != nil {
		return nil, err
	}
	if r := t.agreed.get(string(doc)); r != nil {
		return r, nil
	}
	body, err := t.post(ctx, inv, t.handshake, doc)
	if err != nil {
		return nil, err
	}
	r, err := parseHandshake(body)
	if err != nil {
		return nil, tool.Errorf(tool.CodeProtocol, "the service at %s broke the protocol: %w; it answered: %s",
			t.handshake, err, t.excerpt(body))
	}
	if !r.OK {
		return nil, tool.Errorf(tool.CodeUnsupported, "the service refused it: %s",
			cmp.Or(r.Error.Message, "it did not say why"))
	}
	if missing, _ := r.missing(inv.walls); len(missing) == 0 {
		t.agreed.put(string(doc), r)
	}
	return r, nil
}

// noHandshake refuses a call because it is unknown what the service enforces. The unsafe override replaces guarantees, not a
// handshake that is required in itself.
func (t *serviceTool) noHandshake(inv *invocation, asked []string, cause error) error {
	if t.unsafe && !t.required {
		inv.trace.set("unsafe_override", true)
		return nil
	}
	capability := "service_handshake"
	if len(asked) > 0 {
		capability = asked[0]
	}
	inv.trace.blocked(capability, "coverage_missing")
	e := *tool.AsError(cause)
	e.Message = fmt.Sprintf("%s was not run: the capability handshake failed: %s", t.spec.Name, e.Message)
	e.Reason = "coverage_missing"
	return &e
}

// missing lists the walls that the service does not vouch for, and the reason.
func (r *handshakeReply) missing(walls tool.Guarantees) (names []string, why string) {
	asked := walls.Asked()
	if len(asked) > 0 && r.Enforcement != enforced {
		return asked, fmt.Sprintf("is not enforced by the service, which calls its enforcement %.40q", r.Enforcement)
	}
	for _, name := range asked {
		if name == "secrets_allowed" {
			if !r.allows(walls.SecretsAllowed) {
				names = append(names, name)
			}
		} else if string(r.Supported[name]) != "true" {
			names = append(names, name)
		}
	}
	return names, "is not among the guarantees that the service supports"
}

// allows reports whether the service keeps a list of secrets that contains these.
func (r *handshakeReply) allows(secrets []string) bool {
	var theirs []string
	if list := r.Supported["secrets_allowed"]; strictjson.KindOf(list) != "array" ||
		strictjson.Unmarshal(list, &theirs) != nil {
		return false
	}
	return !slices.ContainsFunc(secrets, func(s string) bool { return !slices.Contains(theirs, s) })
}

func parseHandshake(b []byte) (*handshakeReply, error) {
	seen, err := strictjson.ReadMembers(b, "ok", "enforcement", "supported_guarantees", "service_version", "error")
	if err != nil {
		return nil, fmt.Errorf("the handshake's reply is not one JSON object: %w", err)
	}
	r := &handshakeReply{}
	switch string(seen.Get("ok")) {
	case "true":
		r.OK = true
	case "false":
		return r, parseError(seen, &r.Error)
	default:
		return nil, errors.New("the handshake's reply has no ok that is true or false")
	}
	supported, err := member(seen, "supported_guarantees", "an object")
	err = cmp.Or(text(seen, "enforcement", &r.Enforcement), optionalText(seen, "service_version", &r.Version), err)
	if err != nil || supported == nil {
		return r, err
	}
	return r, strictjson.Unmarshal(supported, &r.Supported)
}
