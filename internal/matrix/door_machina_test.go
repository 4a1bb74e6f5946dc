package matrix

import (
	"encoding/json"
	"strings"
	"testing"

	"toolpost/internal/kit"
	"toolpost/tool"
)

func machinaDoorCarries() carries {
	const line = "the contract carries a state and no events: "
	return carries{
		reason:   {never, "a reply's error is words alone"},
		progress: {asLine, line + "progress goes to stderr"},
		logs:     {asLine, line + "log messages go to stderr"},
		asset:    {asLine, line + "an asset goes to stderr"},
		choice:   {asLine, line + "choices go to stderr"},
		question: {asError, "the contract has one reply for a request, and no questions: the error says what the tool asks"},
	}
}

func machinaRunDoor() *door {
	return &door{
		name: "Machina --run", about: "`toolpost as machina --run SOURCE AID`: one request on stdin",
		call: callToolhost("--run"), word: code, carries: machinaDoorCarries(),
	}
}

func machinaServeDoor() *door {
	return &door{
		name: "Machina --serve", about: "`toolpost as machina --serve SOURCE`: a request a line",
		call: callToolhost("--serve"), word: code, carries: machinaDoorCarries(),
	}
}

func callToolhost(mode string) func(*testing.T, *house, *runner, request) *outcome {
	return func(t *testing.T, h *house, r *runner, req request) *outcome {
		source := r.where(req.tool)
		aid := aidOf(t, h, source, h.published(t, r, req.tool))
		asked, words := map[string]any{"input_json": req.args}, []string{mode, source}
		if mode == "--run" {
			words = append(words, aid)
		} else {
			asked["aid"] = aid
		}
		answer, lines := h.as(req.ctx, t, string(encode(t, asked))+"\n", "machina", words...)
		if req.gone() {
			return &outcome{}
		}
		out := machinaReply(t, answer)
		out.lines = lines
		return out
	}
}

// aidOf requests the list of the toolhost, as a host does.
func aidOf(t *testing.T, h *house, source, name string) string {
	printed, _ := h.as(t.Context(), t, "", "machina", "--list", source)
	list := read[struct {
		Tools []struct {
			AID  string `json:"aid"`
			Name string `json:"name"`
		} `json:"tools"`
	}](t, printed)
	for _, l := range list.Tools {
		if l.Name == name {
			return l.AID
		}
	}
	t.Errorf("%s is not on the list of %s: %.300s", name, source, printed)
	return ""
}

func machinaReply(t *testing.T, answer []byte) *outcome {
	reply := read[struct {
		OK     bool   `json:"ok"`
		Status string `json:"status"`
		Output string `json:"output_json"`
		Error  string `json:"error"`
		State  struct {
			Slots map[string]json.RawMessage `json:"slots"`
		} `json:"ds_state"`
	}](t, answer)
	kit.Equal(t, reply.OK, (reply.Status == "OK"), "ok is true exactly when status is OK: %.300s", answer)
	out := &outcome{ok: reply.OK, output: json.RawMessage(reply.Output)}
	if !reply.OK {
		out.class, out.message = machinaError(reply.Status, reply.Error)
	}
	for n, raw := range reply.State.Slots {
		out.state = merge(out.state, slotState(t, n, raw))
	}
	return out
}

// machinaError returns the class at the beginning of the text. The text of a failed tool has none.
func machinaError(status, words string) (class, message string) {
	if words == "lease_required" {
		return words, words
	}
	class, message, ok := strings.Cut(words, ": ")
	for _, c := range tool.Codes() {
		if ok && string(c) == class {
			return class, message
		}
	}
	if status == "TOOL_ERROR" {
		return string(tool.CodeToolError), words
	}
	return "", words
}

// slotState returns a slot as a part of a state document: a value that is not an artifact travels in one of type
// toolpost.state.
func slotState(t *testing.T, n string, raw json.RawMessage) map[string]any {
	slot := read[struct {
		Type    string `json:"type"`
		Content string `json:"content_json"`
	}](t, raw)
	if slot.Type == "toolpost.state" {
		doc, _ := decode(t, []byte(slot.Content)).(map[string]any)
		return doc
	}
	return map[string]any{"slots": map[string]any{n: decode(t, raw)}}
}
