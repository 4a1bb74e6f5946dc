package matrix

import (
	"bufio"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"toolpost/internal/kit"
)

const (
	namel3ssState  = "the namel3ss contract has no state: a tool gets a payload and gives a result"
	namel3ssAsset  = "the namel3ss contract has no assets: a tool gives one result"
	namel3ssChoice = "the namel3ss contract has no events: a tool gives one result"
	namel3ssAsk    = "the namel3ss contract has no questions: a tool gets all that it needs with its payload"
)

func namel3ssLocal() *runner {
	return &runner{
		name: "namel3ss local", about: "Python functions, a process each",
		sources: func(h *house) string {
			head := fmt.Sprintf("protocol: namel3ss, app: app, python: %q", h.python)
			return fmt.Sprintf("- {name: n3, %[1]s}\n- {name: n3-danger, %[1]s, tool: danger, entry: 'tools.matrix:danger', tier: 3}\n", head)
		},
		where: func(tool string) string {
			if tool == "danger" {
				return "n3-danger"
			}
			return in("n3", "echo", "fail", "hang", "wait", "report", "large")(tool)
		},
		carries: carries{
			progress: {asLog, "the namel3ss contract has no events: what a tool prints is its log"},
			state:    {never, namel3ssState},
			asset:    {never, namel3ssAsset},
			choice:   {never, namel3ssChoice},
			question: {never, namel3ssAsk},
		},
	}
}

// one returns a source for each tool, because they are in different places. The source of a tool is named after both.
func one(name string, tools []string, more string) string {
	var b strings.Builder
	for _, t := range tools {
		fmt.Fprintf(&b, "- {name: %s-%s, protocol: namel3ss, tool: %s, entry: 'tools.matrix:%s', %s", name, t, t, t, more)
		switch t {
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
}

func namel3ssService() *runner {
	tools := []string{"echo", "fail", "hang", "wait", "large", "danger"}
	return &runner{
		name: "namel3ss service", about: "a tool service, over HTTP",
		sources: func(h *house) string { return one("svc", tools, fmt.Sprintf("runner: service, url: %q", h.service)) },
		where:   func(tool string) string { return in("svc-"+tool, tools...)(tool) },
		carries: carries{
			progress: {never, "the namel3ss contract has one reply for a request, and a service's output is its own"},
			state:    {never, namel3ssState},
			asset:    {never, namel3ssAsset},
			choice:   {never, namel3ssChoice},
			question: {never, namel3ssAsk},
		},
	}
}

// serveTools starts the service and returns its address.
func serveTools(t *testing.T, python string) string {
	t.Helper()
	cmd := exec.Command(python, "testdata/service.py")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	kit.OK(t, err)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // "killed" is the expected error
	})
	url, err := bufio.NewReader(out).ReadString('\n')
	kit.OK(t, err, "the service did not say where it is")
	return strings.TrimSpace(url) + "/tools"
}
