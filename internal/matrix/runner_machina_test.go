package matrix

import (
	"fmt"
	"strings"
)

// toolhost returns two sources of one toolhost, because a timeout belongs to a source.
func toolhost(name, mode, more string) func(*house) string {
	return func(h *house) string {
		var tools []string
		for _, t := range []string{"echo", "fail", "hang", "wait", "report", "patch", "large", "danger"} {
			entry := fmt.Sprintf("{aid: AID.MATRIX.%s.v1, name: %s", strings.ToUpper(t), t)
			switch t {
			case "echo":
				entry += ", input: " + echoInput
			case "danger":
				entry += ", tier: 3"
			}
			tools = append(tools, entry+"}")
		}
		head := fmt.Sprintf("protocol: machina, command: [%q, toolhost.py], plugin: matrix, mode: %s, tools: [%s]", h.python, mode, strings.Join(tools, ", "))
		return fmt.Sprintf("- {name: %[1]s, %[2]s%[3]s}\n- {name: %[1]s-slow, %[2]s, timeout: %[4]s}\n", name, head, more, hangFor)
	}
}

func toolhostTool(source string) func(string) string {
	return func(tool string) string {
		if tool == "hang" {
			return source + "-slow"
		}
		return in(source, "echo", "fail", "wait", "report", "patch", "large", "danger")(tool)
	}
}

// slotSeven is the artifact that the toolhost makes.
const slotSeven = `{"slots":{"7":{"type":"torch","provenance":"toolhost.py","content_json":"{\"lit\": true}","size_bytes":13}}}`

func machinaCarries() carries {
	return carries{
		reason:   {never, "a toolhost's error is words alone"},
		progress: {asLog, "the contract has no events: what a toolhost writes to stderr is its log"},
		asset:    {never, "the contract has artifacts in slots of the state, and no files"},
		choice:   {never, "the contract has no events, and nothing in a reply by which a toolhost offers choices"},
		question: {never, "the contract has one reply for a request, and nobody to ask"},
	}
}

func machinaRun() *runner {
	c := machinaCarries()
	c[large] = carry{asError, "the contract caps a reply at 1 MiB (_TOOLHOST_MAX_OUTPUT), and so does a source that does not raise max_reply"}
	return &runner{
		name: "Machina --run", about: "a toolhost for each call",
		sources: toolhost("run", "run", ""), where: toolhostTool("run"), carries: c, patch: slotSeven,
	}
}

// machinaServe raises the size limit of replies; machinaRun leaves it as in the contract.
func machinaServe() *runner {
	return &runner{
		name: "Machina --serve", about: "warm toolhost sessions, max_reply raised to 4 MiB",
		sources: toolhost("serve", "serve", ", max_reply: 4194304"), where: toolhostTool("serve"), carries: machinaCarries(), patch: slotSeven,
	}
}
