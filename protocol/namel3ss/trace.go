package namel3ss

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"toolpost/strictjson"
	"toolpost/tool"
)

// A trace tells how one call went, in the words of the contract.
type trace struct {
	start  time.Time
	fields map[string]any
	checks []check // of the pack's capabilities
}

func (t *boundTool) newTrace(args json.RawMessage) *trace {
	tr := &trace{start: time.Now(), fields: map[string]any{
		"type": "tool_call", "tool": t.spec.Name, "tool_name": t.spec.Name, "kind": t.kind, "entry": t.entry,
		"runner": t.runner, "resolved_source": t.source, "protocol_version": protocolVersion,
		"timeout_ms": millis(t.spec.Timeout), "input_summary": summarise(args),
		"decision": "allowed", "capability": "none", "reason": "policy_allowed",
	}}
	if t.purity != "" {
		tr.set("purity", t.purity)
	}
	if t.sandbox != nil {
		tr.set("sandbox", *t.sandbox)
	}
	if t.pack != nil {
		tr.set("pack_id", t.pack.ID)
		tr.set("pack_name", t.pack.Name)
		tr.set("pack_version", t.pack.Version)
	}
	t.way.describe(tr)
	return tr
}

func (tr *trace) set(name string, value any) { tr.fields[name] = value }

// blocked says that the call was refused before anything was started.
func (tr *trace) blocked(capability, reason string) {
	tr.set("decision", "blocked")
	tr.set("capability", capability)
	tr.set("reason", reason)
}

func (tr *trace) end(status string) {
	tr.set("status", status)
	tr.set("result", status)
	tr.set("duration_ms", millis(time.Since(tr.start)))
}

// result makes the outcome of a call from its reply.
func (tr *trace) result(rep *reply) *tool.Result {
	r := &tool.Result{OK: true, Output: slices.Clone(rep.Result)}
	if rep.OK {
		tr.set("output_summary", summarise(rep.Result))
		tr.end("ok")
	} else {
		r = tool.Failed(cmp.Or(rep.Error.Type, "ToolError"), rep.Error.Message)
		r.Failure.Details, _ = strictjson.Marshal(struct {
			Type       string `json:"type"`
			ReasonCode string `json:"reason_code,omitempty"`
		}{r.Failure.Reason, rep.Error.ReasonCode})
		tr.set("error_type", r.Failure.Reason)
		tr.set("error_message", rep.Error.Message)
		if rep.Error.ReasonCode != "" {
			tr.set("reason", rep.Error.ReasonCode)
		}
		tr.end("error")
	}
	tr.join(rep.Checks)
	r.Trace.Details = tr.fields
	return r
}

// join puts the checks of the pack before those that the tool's side reports.
func (tr *trace) join(reported json.RawMessage) {
	if len(tr.checks) == 0 && reported == nil {
		return
	}
	var theirs []json.RawMessage
	_ = strictjson.Unmarshal(reported, &theirs) // an array, or nothing
	all := make([]any, 0, len(tr.checks)+len(theirs))
	for _, c := range tr.checks {
		all = append(all, c)
	}
	for _, c := range theirs {
		all = append(all, c)
	}
	tr.set("capability_checks", all)
}

// failed puts the trace into an error, which has no other place for it. The sink's own error is left as
// it is.
func (tr *trace) failed(err error) error {
	var sink sinkError
	if errors.As(err, &sink) {
		return sink.error
	}
	e := tool.AsError(err)
	tr.join(nil)
	tr.set("error_type", string(e.Code))
	tr.set("error_message", e.Message)
	tr.end("error")
	if tr.fields["decision"] == "blocked" {
		tr.set("result", "blocked")
	}
	traced := *e
	traced.Details, _ = strictjson.Marshal(map[string]any{"trace": tr.fields})
	return &traced
}

// summarise tells the form of a value and none of its content.
func summarise(value json.RawMessage) map[string]any {
	const most = 10
	kind := strictjson.KindOf(value)
	count, keys := 0, []string{}
	switch kind {
	case "object":
		_ = strictjson.Object(value, func(name, _ []byte) error {
			if count++; count <= most {
				keys = append(keys, string(name))
			}
			return nil
		})
		return map[string]any{"type": kind, "keys": keys, "count": count}
	case "array":
		var items []json.RawMessage
		_ = strictjson.Unmarshal(value, &items)
		return map[string]any{"type": kind, "count": len(items)}
	}
	return map[string]any{"type": kind}
}
