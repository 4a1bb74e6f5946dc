package matrix

import (
	"fmt"
	"strings"
)

// narratoriaTools are one source each, as the protocol requires.
func narratoriaTools() []string {
	return []string{"echo", "fail", "hang", "wait", "ask", "report", "patch", "asset", "choose", "large", "danger"}
}

func narratoriaRunner() *runner {
	return &runner{
		name: "Narratoria", about: "programs that report events",
		sources: func(h *house) string {
			var b strings.Builder
			for _, name := range narratoriaTools() {
				fmt.Fprintf(&b, "- {name: tale-%[1]s, protocol: narratoria, tool: %[1]s, command: [%[2]q, events.py], env: {MATRIX_ASSETS: %[3]q}, walls: {write: [%[3]q]}", name, h.python, h.assets)
				switch name {
				case "echo":
					b.WriteString(", input: " + echoInput)
				case "hang":
					b.WriteString(", timeout: " + hangFor)
				case "danger":
					b.WriteString(", tier: 3")
				}
				b.WriteString("}\n")
			}
			return b.String()
		},
		where: func(tool string) string { return in("tale-"+tool, narratoriaTools()...)(tool) },
		patch: `{"torch":{"lit":true}}`,
	}
}
