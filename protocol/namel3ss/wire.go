// Package namel3ss speaks the namel3ss tool protocol. It runs the tools of an app and of its packs (Open): here, in
// containers or through a service. It also answers as such a tool (Door) or as such a service (ServiceDoor) for any
// registered tool.
package namel3ss

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

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
}

// A capabilityContext tells the tool which walls are around it and their origins.
type capabilityContext struct {
	ToolName        string            `json:"tool_name"`
	ResolvedSource  string            `json:"resolved_source"`
	Runner          string            `json:"runner"`
	ProtocolVersion int               `json:"protocol_version"`
	Guarantees      map[string]any    `json:"guarantees"`
	Sources         map[string]string `json:"sources"`
}

// guaranteeWords encodes all six guarantees, or only those that are asked for, and the secrets if there is a list of them.
func guaranteeWords(g tool.Guarantees, every bool) map[string]any {
	words := map[string]any{}
	for name, on := range g.All() {
		if on || every {
			words[name] = on
		}
	}
	if g.SecretsAllowed != nil {
		words["secrets_allowed"] = g.SecretsAllowed
	}
	return words
}

// An order is a request as a tool or a service reads it.
type order struct {
	tool, traceID string
	payload       json.RawMessage
	timeout       time.Duration // 0 if not given
	wishes        wishes
}

// parseRequest reads a caller's request to a tool or to a service. The error reports what is wrong with it.
func parseRequest(b []byte, service bool) (*order, error) {
	seen, err := strictjson.ReadMembers(b, "protocol_version", "tool", "tool_name", "kind", "entry", "payload",
		"timeout_ms", "trace_id", "sandbox", "capability_context")
	if err != nil {
		return nil, fmt.Errorf("the request: %w", err)
	}
	o := &order{}
	var kind, entry string // of code that is not run
	if service {
		o.timeout, err = milliseconds(seen.Get("timeout_ms"))
		err = cmp.Or(text(seen, "tool_name", &o.tool), optionalText(seen, "kind", &kind),
			optionalText(seen, "entry", &entry), err)
	} else {
		err = cmp.Or(text(seen, "tool", &o.tool), text(seen, "entry", &entry))
	}
	if err = cmp.Or(checkVersion(seen, true), err, optionalText(seen, "trace_id", &o.traceID)); err != nil {
		return nil, err
	}
	if o.payload, err = member(seen, "payload", "an object"); err != nil {
		return nil, err
	}
	if o.payload == nil {
		return nil, errors.New("payload is missing")
	}
	o.wishes, err = parseWishes(seen)
	return o, err
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

var replyMembers = []string{"ok", "protocol_version", "result", "error", "capability_checks"}

// parseReply reads a tool's answer. The error names the rule of the contract that it breaks.
func parseReply(b []byte) (*reply, error) {
	seen, err := strictjson.ReadMembers(b, replyMembers...)
	if err != nil {
		return nil, fmt.Errorf("the reply is not one JSON object: %w", err)
	}
	if err := checkVersion(seen, false); err != nil {
		return nil, err
	}
	r := &reply{Result: seen.Get("result")}
	if checks := seen.Get("capability_checks"); strictjson.KindOf(checks) == "array" {
		r.Checks = bytes.Clone(checks)
	}
	switch ok := seen.Get("ok"); string(ok) {
	case "true":
		r.OK = true
		if r.Result == nil {
			return nil, errors.New("ok is true, but there is no result")
		}
		return r, nil
	case "false":
		return r, parseError(seen, &r.Error)
	case "":
		return nil, errors.New("the reply has no ok")
	default:
		return nil, fmt.Errorf("ok must be true or false, not %s", strictjson.KindOf(ok))
	}
}

// parseError is lenient: a tool that fails without a reason has still failed.
func parseError(seen *strictjson.Members, into *replyError) error {
	found, err := member(seen, "error", "an object")
	if err != nil {
		return err
	}
	if found == nil {
		into.Message = "the tool failed and did not say why"
		return nil
	}
	parts, err := strictjson.ReadMembers(found, "type", "message", "reason_code")
	return cmp.Or(err, optionalText(parts, "type", &into.Type), optionalText(parts, "message", &into.Message),
		optionalText(parts, "reason_code", &into.ReasonCode))
}

func checkVersion(seen *strictjson.Members, wanted bool) error {
	var n float64
	switch v := seen.Get("protocol_version"); {
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

// member returns a member that must be "a string", "a boolean" or "an object", or nil if it is missing or null.
func member(seen *strictjson.Members, name, must string) (json.RawMessage, error) {
	value := seen.Get(name)
	switch kind := strictjson.KindOf(value); {
	case kind == "nothing" || kind == "null":
		return nil, nil
	case !strings.HasSuffix(must, kind):
		return nil, fmt.Errorf("%s must be %s, not %s", name, must, kind)
	}
	return value, nil
}

func text(seen *strictjson.Members, name string, into *string) error {
	if err := optionalText(seen, name, into); err != nil {
		return err
	}
	if *into == "" {
		return fmt.Errorf("%s is missing", name)
	}
	return nil
}

func optionalText(seen *strictjson.Members, name string, into *string) error {
	value, err := member(seen, name, "a string")
	if err != nil || value == nil {
		return err
	}
	return strictjson.Unmarshal(value, into)
}

// encodeReply writes a reply with its fields in the contract's order. A service's reply has no version, so version is 0.
func encodeReply(r *reply, version int) []byte {
	doc := struct {
		OK              bool            `json:"ok"`
		ProtocolVersion int             `json:"protocol_version,omitzero"`
		Result          json.RawMessage `json:"result,omitzero"`
		Error           *replyError     `json:"error,omitzero"`
		Checks          json.RawMessage `json:"capability_checks,omitzero"`
	}{OK: r.OK, ProtocolVersion: version, Checks: r.Checks}
	if r.OK {
		doc.Result = r.Result
	} else {
		doc.Error = &r.Error
	}
	b, err := strictjson.Marshal(&doc)
	if err != nil {
		return encodeReply(refusal(tool.Errorf(tool.CodeInternal, "the result is not JSON: %w", err)), version)
	}
	return b
}

// refusal is the reply to a call that has no outcome.
func refusal(e *tool.Error) *reply { return &reply{Error: errorReply(e)} }
