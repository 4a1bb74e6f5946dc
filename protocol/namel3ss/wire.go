// Package namel3ss speaks the namel3ss tool protocol: it runs the tools of an app and of its packs (Open),
// here, in containers or through a service, and answers as such a tool (Door) or as such a service
// (ServiceDoor) for anything that is registered.
package namel3ss

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// protocolVersion is the version that the contract freezes.
const protocolVersion = 1

// maxDocument bounds a request and a reply.
const maxDocument = 8 << 20

// A request is the one document on a tool's standard input.
type request struct {
	ProtocolVersion int                `json:"protocol_version"`
	Tool            string             `json:"tool"`
	Entry           string             `json:"entry"`
	Payload         json.RawMessage    `json:"payload"`
	Sandbox         bool               `json:"sandbox,omitzero"`
	TraceID         string             `json:"trace_id,omitempty"`
	Capabilities    *capabilityContext `json:"capability_context,omitempty"`

	wishes wishes // of one that was read: sandbox and capabilities in our words
}

// A capabilityContext tells the tool which walls stand around it and who asked for them.
type capabilityContext struct {
	ToolName        string            `json:"tool_name"`
	ResolvedSource  string            `json:"resolved_source"`
	Runner          string            `json:"runner"`
	ProtocolVersion int               `json:"protocol_version"`
	Guarantees      map[string]any    `json:"guarantees"`
	Sources         map[string]string `json:"sources"`
}

// guaranteeWords says every one of the six guarantees, and the secrets where there is a list of them.
func guaranteeWords(g tool.Guarantees) map[string]any {
	words := map[string]any{}
	for name, on := range g.All() {
		words[name] = on
	}
	if g.SecretsAllowed != nil {
		words["secrets_allowed"] = g.SecretsAllowed
	}
	return words
}

// parseRequest reads what a caller sends to a tool. The error says what is wrong with it.
func parseRequest(b []byte) (*request, error) {
	seen := map[string]json.RawMessage{}
	if err := members(b, seen, "protocol_version", "tool", "entry", "payload", "trace_id", "sandbox",
		"capability_context"); err != nil {
		return nil, fmt.Errorf("the request: %w", err)
	}
	r := &request{ProtocolVersion: protocolVersion, Payload: seen["payload"]}
	err := cmp.Or(
		checkVersion(seen["protocol_version"], true),
		text(seen, "tool", &r.Tool), text(seen, "entry", &r.Entry), optionalText(seen, "trace_id", &r.TraceID),
		checkPayload(r.Payload),
	)
	if err != nil {
		return nil, err
	}
	r.wishes, err = parseWishes(seen)
	return r, err
}

func checkPayload(payload json.RawMessage) error {
	switch kind := strictjson.KindOf(payload); {
	case payload == nil:
		return errors.New("payload is missing")
	case kind != "object":
		return fmt.Errorf("payload must be an object, not %s", kind)
	}
	return nil
}

// A reply is the one document on a tool's standard output.
type reply struct {
	OK     bool
	Result json.RawMessage
	Error  replyError
	Checks json.RawMessage // capability_checks: what the tool's side blocked and allowed
}

type replyError struct {
	Type       string `json:"type"`
	Message    string `json:"message"`
	ReasonCode string `json:"reason_code,omitempty"`
}

// parseReply reads what a tool answered. The error says which rule of the contract it breaks.
func parseReply(b []byte) (*reply, error) {
	var m replyMembers
	if err := strictjson.Object(b, m.take); err != nil {
		return nil, fmt.Errorf("the reply is not one JSON object: %w", err)
	}
	if err := checkVersion(m.version, false); err != nil {
		return nil, err
	}
	r := &reply{Result: m.result}
	if strictjson.KindOf(m.checks) == "array" {
		r.Checks = bytes.Clone(m.checks)
	}
	switch string(m.ok) {
	case "true":
		r.OK = true
		if r.Result == nil {
			return nil, errors.New("ok is true, but there is no result")
		}
		return r, nil
	case "false":
		return r, parseError(m.failure, &r.Error)
	case "":
		return nil, errors.New("the reply has no ok")
	default:
		return nil, fmt.Errorf("ok must be true or false, not %s", strictjson.KindOf(m.ok))
	}
}

// replyMembers are the parts of a reply as they stand in it.
type replyMembers struct{ ok, version, result, failure, checks json.RawMessage }

func (m *replyMembers) take(name, value []byte) error {
	switch string(name) {
	case "ok":
		m.ok = value
	case "protocol_version":
		m.version = value
	case "result":
		m.result = value
	case "error":
		m.failure = value
	case "capability_checks":
		m.checks = value
	}
	return nil
}

// parseError is generous: a tool that fails without saying why has still failed.
func parseError(b json.RawMessage, into *replyError) error {
	if kind := strictjson.KindOf(b); kind == "object" {
		seen := map[string]json.RawMessage{}
		return cmp.Or(members(b, seen, "type", "message", "reason_code"), optionalText(seen, "type", &into.Type),
			optionalText(seen, "message", &into.Message), optionalText(seen, "reason_code", &into.ReasonCode))
	} else if kind != "nothing" && kind != "null" {
		return fmt.Errorf("error must be an object, not %s", kind)
	}
	into.Message = "the tool failed and did not say why"
	return nil
}

// members gathers the named members of a strict object.
func members(b []byte, seen map[string]json.RawMessage, names ...string) error {
	return strictjson.Object(b, func(name, value []byte) error {
		for _, n := range names {
			if n == string(name) {
				seen[n] = value
			}
		}
		return nil
	})
}

func checkVersion(v json.RawMessage, wanted bool) error {
	var n float64
	switch {
	case v == nil && !wanted:
		return nil
	case v == nil:
		return errors.New("protocol_version is missing")
	case strictjson.KindOf(v) != "number":
		return fmt.Errorf("protocol_version must be a number, not %s", strictjson.KindOf(v))
	case strictjson.Unmarshal(v, &n) != nil || n != protocolVersion:
		return fmt.Errorf("protocol_version %.20s is not supported; this is version %d", v, protocolVersion)
	}
	return nil
}

func text(seen map[string]json.RawMessage, name string, into *string) error {
	if err := optionalText(seen, name, into); err != nil {
		return err
	}
	if *into == "" {
		return fmt.Errorf("%s is missing", name)
	}
	return nil
}

func optionalText(seen map[string]json.RawMessage, name string, into *string) error {
	v := seen[name]
	switch kind := strictjson.KindOf(v); kind {
	case "nothing", "null":
		return nil
	case "string":
		return strictjson.Unmarshal(v, into)
	default:
		return fmt.Errorf("%s must be a string, not %s", name, kind)
	}
}

// encodeReply writes a reply in the contract's own order of fields.
func encodeReply(r *reply) ([]byte, error) {
	if r.OK {
		return strictjson.Marshal(struct {
			OK              bool            `json:"ok"`
			ProtocolVersion int             `json:"protocol_version"`
			Result          json.RawMessage `json:"result"`
			Checks          json.RawMessage `json:"capability_checks,omitzero"`
		}{true, protocolVersion, r.Result, r.Checks})
	}
	return strictjson.Marshal(struct {
		OK              bool            `json:"ok"`
		ProtocolVersion int             `json:"protocol_version"`
		Error           replyError      `json:"error"`
		Checks          json.RawMessage `json:"capability_checks,omitzero"`
	}{false, protocolVersion, r.Error, r.Checks})
}
