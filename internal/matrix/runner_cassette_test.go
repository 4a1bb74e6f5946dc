package matrix

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"time"

	"toolpost/engine/cassette"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// cassetteRunner plays the answers of the tools of the matrix. It takes as long as they took, so that wait waits.
func cassetteRunner() *runner {
	return &runner{
		name: "cassette", about: "recorded calls, played again",
		sources: func(h *house) string {
			if err := os.WriteFile(filepath.Join(h.dir, "played.jsonl"), tape(), 0o600); err != nil {
				panic(err) // the folder is the test's own
			}
			return "- {name: played, protocol: cassette, file: played.jsonl, loose: true, realtime: true}\n"
		},
		where: in("played", "echo", "fail", "hang", "wait", "ask", "report", "patch", "asset", "choose", "large", "danger"),
		patch: `{"torch":{"lit":true}}`,
	}
}

// tape returns a cassette with each call that the matrix makes.
func tape() []byte {
	specs, _ := (&inProcess{}).Tools(context.Background()) // it only fails if hangFor is not a duration
	var b strings.Builder
	write := func(what string, v any) {
		text, _ := strictjson.Marshal(map[string]any{what: v}) // the values of cassettes always have JSON
		b.Write(append(text, '\n'))
	}
	write("cassette", map[string]any{"version": cassette.Version, "made": time.Now()})
	for _, s := range specs {
		s.Source, s.Protocol = "played", "builtin"
		write("tool", s)
	}
	for _, c := range taped() {
		c.Source, c.At = "played", time.Now()
		if c.Result == nil && c.Error == nil {
			c.Result = &cassette.Result{OK: true, Output: json.RawMessage(`{"done":true}`)}
		}
		write("call", c)
	}
	return []byte(b.String())
}

func taped() []cassette.Call {
	event := func(kind tool.Kind, data any, content []byte) []cassette.Event {
		return []cassette.Event{{Kind: kind, Data: tool.NewEvent(kind, data).Data, Content: content}}
	}
	gives := func(output string) *cassette.Result {
		return &cassette.Result{OK: true, Output: json.RawMessage(output)}
	}
	torch := tool.Asset{AssetID: "torch", Kind: "text", MediaType: "text/plain", Path: "torch.txt"}
	ask, blue := asking(&tool.Call{}).Ask, json.RawMessage(`{"colour":"blue"}`)
	return []cassette.Call{
		{Tool: "echo", Args: json.RawMessage(nested), Result: gives(nested)},
		{Tool: "echo", Args: json.RawMessage(planned), Result: gives(planned)},
		{Tool: "fail", Args: json.RawMessage(`{"message":` + quoted(noTorch) + `}`),
			Result: &cassette.Result{Failure: tool.Failed("NoTorch", noTorch).Failure}},
		{Tool: "hang", Error: tool.Errorf(tool.CodeTimeout, "it took too long")},
		{Tool: "wait", Millis: time.Hour.Milliseconds()},
		{Tool: "report", Events: event(tool.KindProgress, tool.Progress{Progress: 1, Total: 2, Message: halfWay}, nil)},
		{Tool: "patch", Events: event(tool.KindStatePatch, map[string]any{"torch": map[string]any{"lit": true}}, nil)},
		{Tool: "asset", Events: event(tool.KindAsset, torch, []byte("a torch"))},
		{Tool: "choose", Events: event(tool.KindUIEvent, tool.UIEvent{Event: choosing, Payload: json.RawMessage(choices)}, nil)},
		{Tool: "large", Result: gives(`{"text":"` + strings.Repeat("x", oneMiB) + `"}`)},
		{Tool: "danger"},
		{Tool: "ask", Result: &cassette.Result{Ask: ask}},
		{Tool: "ask", Resumed: true, Answers: blue, Result: gives(`{"answers":` + string(blue) + `}`)},
	}
}
