package namel3ss

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"toolpost/host/sandbox"
	"toolpost/host/walls"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// A trace describes how one call went, as the contract defines it.
type trace struct {
	start  time.Time
	fields map[string]any
	checks []walls.Check // of the pack's capabilities, and attempts that the walls stopped
}

// newTrace starts the trace of a call. The error reports what is wrong with the arguments.
func (t *boundTool) newTrace(args json.RawMessage) (*trace, error) {
	tr := &trace{start: time.Now(), fields: maps.Clone(t.known)}
	tr.set("timeout_ms", millis(t.spec.Timeout))
	if err := strictjson.Check(args); err != nil {
		tr.set("input_summary", summary{strictjson.KindOf(args)})
		return tr, tool.Errorf(tool.CodeInvalidInput, "%s: the arguments: %w", t.spec.Name, err)
	}
	tr.set("input_summary", summarise(args))
	return tr, nil
}

// traced returns the fields that the traces of all calls of a tool share, with room for those of a single call.
func (t *boundTool) traced() map[string]any {
	tr := &trace{fields: map[string]any{
		"type": "tool_call", "tool": t.spec.Name, "tool_name": t.spec.Name, "kind": t.kind, "entry": t.entry,
		"runner": t.runner, "resolved_source": t.source, "protocol_version": protocolVersion,
		"timeout_ms": nil, "input_summary": nil,
		"decision": "allowed", "capability": "none", "reason": "policy_allowed",
		"status": nil, "result": nil, "duration_ms": nil,
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
	return tr.fields
}

func (tr *trace) set(name string, value any) { tr.fields[name] = value }

// blocked records that the call was refused before anything was started.
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
		if rep.Error.ReasonCode == "" && slices.ContainsFunc(tr.checks, blocks(walls.GuaranteeBlocked)) {
			rep.Error.ReasonCode = walls.GuaranteeBlocked
		}
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

// join puts our own checks before those that the tool's side reports.
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

// failed puts the trace into an error, which has no other place for it.
func (tr *trace) failed(err error) error {
	e := tool.AsError(err)
	if e.Reason == sandbox.CoverageMissing && tr.fields["decision"] != "blocked" {
		tr.blocked("sandbox", e.Reason) // a wall of the default profile
	}
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

// The summaries of values describe their form and nothing of their content.
type (
	summary struct {
		Type string `json:"type"`
	}
	listSummary struct {
		Count int    `json:"count"`
		Type  string `json:"type"`
	}
	objectSummary struct {
		Count int      `json:"count"`
		Keys  []string `json:"keys"` // the first few
		Type  string   `json:"type"`
	}
)

// summarise returns the summary of a checked value.
func summarise(value json.RawMessage) any {
	const most = 10
	switch kind := strictjson.KindOf(value); kind {
	case "object":
		o := objectSummary{Keys: []string{}, Type: kind}
		_ = strictjson.Walk(value, func(name, _ []byte) error {
			if o.Count++; o.Count <= most {
				o.Keys = append(o.Keys, string(name))
			}
			return nil
		})
		return o
	case "array":
		var items []json.RawMessage
		_ = strictjson.Unmarshal(value, &items)
		return listSummary{len(items), kind}
	default:
		return summary{kind}
	}
}
