package matrix

import (
	"bytes"
	"encoding/json"
	"testing"

	"toolpost/tool"
)

func narratoriaDoor() *door {
	const object = "the output of done is an object: what is none arrives as `{\"value\": ...}`"
	return &door{
		name: "Narratoria", about: "`toolpost as narratoria NAME`: events, then done",
		call: callNarratoria, word: code,
		carries: carries{
			output:   {asObject, object},
			large:    {asObject, object},
			progress: {asLog, "the contract has no progress event: it arrives as a log event with progress and total in its fields"},
		},
	}
}

func callNarratoria(t *testing.T, h *house, r *runner, req request) *outcome {
	again := ""
	if req.resume != "" {
		again = `,"resume":` + quoted(req.resume) + `,"answers":` + req.answers
	}
	asked := `{"requestId":"r1","tool":"any","operation":"run","input":` + req.args + again + `}` + "\n"
	printed, _ := h.as(req.ctx, t, asked, "narratoria", r.where(req.tool)+"."+req.tool)
	o, done := &outcome{}, 0
	for line := range bytes.Lines(printed) {
		done += o.told(t, line)
	}
	if done != 1 && !req.gone() {
		t.Errorf("%d done events; the contract wants exactly one", done)
	}
	return o
}

// told adds one event of the contract, and counts done.
func (o *outcome) told(t *testing.T, line []byte) (done int) {
	e := read[struct {
		Version   string          `json:"version"`
		Type      string          `json:"type"`
		RequestID string          `json:"requestId"`
		Patch     json.RawMessage `json:"patch"`
		Output    json.RawMessage `json:"output"`
		Code      string          `json:"errorCode"`
		Message   string          `json:"errorMessage"`
		OK        bool            `json:"ok"`
		Event     string          `json:"event"`
		Payload   json.RawMessage `json:"payload"`
	}](t, line)
	if e.Version != "0" || e.RequestID != "r1" {
		t.Errorf("not an event of the contract: %.300s", line)
	}
	switch e.Type {
	case "done":
		o.ok, o.output = e.OK, e.Output
		return 1
	case "state_patch":
		o.add(t, tool.KindStatePatch, e.Patch)
	case "ui_event":
		if e.Event == "ask" {
			ask := read[tool.Ask](t, e.Payload)
			o.ask = &ask
		}
		o.add(t, tool.Kind(e.Type), line)
	case "log", "asset":
		o.add(t, tool.Kind(e.Type), line)
	case "error":
		o.class, o.reason, o.message = e.Code, e.Code, e.Message
	default:
		t.Errorf("the contract has no event of type %q", e.Type)
	}
	return 0
}
