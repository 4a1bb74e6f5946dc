package matrix

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"toolpost/internal/kit"
	"toolpost/plan"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// planned is the input of every tool of the plan.
const planned = `{"value":{"n":[1,"ä"]}}`

// onePlanOfAll runs the echo of every runner in one plan, all at once: each returns the output of the first.
func onePlanOfAll(t *testing.T, h *house) {
	p := plan.Plan{RequestID: "all", Parallel: true}
	var first string
	for _, r := range h.runners {
		if !r.has("echo") {
			continue
		}
		id := strings.ReplaceAll(r.name, " ", "-")
		one := plan.Tool{ID: id, Name: r.where("echo") + ".echo", Async: true, Input: json.RawMessage(planned)}
		if first != "" {
			one.Input = fmt.Appendf(nil, `{"value":"${%s.output.value}"}`, first)
		}
		p.Tools, first = append(p.Tools, one), cmp.Or(first, id)
	}
	args := kit.Must(strictjson.Marshal(map[string]any{"plan": p}))(t)
	res, err := h.node.Handler().Invoke(t.Context(), &tool.Call{Tool: "plan.run", Args: args, Caller: tool.Principal{ID: "local", Door: "cli"}}, tool.Discard)
	kit.OK(t, err)
	var r plan.Result
	if err := strictjson.Unmarshal(res.Output, &r); err != nil || !r.Success || len(r.ToolResults) != len(p.Tools) || len(p.Tools) < 7 {
		t.Fatalf("%v: %s", err, res.Output)
	}
	for _, one := range r.ToolResults {
		said := strings.NewReplacer(" ", "", `\`, "").Replace(string(one.Output)) // some protocols carry it as a text
		kit.Contains(t, said, `"n":[1,"ä"]`, one.ToolID, one.Output)
	}
}
