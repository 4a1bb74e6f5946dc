// Package machine checks what Toolpost uses: the kernel, interpreters and walls of this machine, and what a config names.
package machine

import (
	"cmp"
	"context"
	"os/exec"
	"strings"
	"time"

	"toolpost/host/sandbox"
	"toolpost/tool"
)

// A Finding is the result for one thing.
type Finding struct {
	Name   string `json:"name"`
	State  string `json:"state"`  // ok, missing (something is weaker without it), failed (something does not work)
	Detail string `json:"detail"` // what was found
	Means  string `json:"means"`  // what it is for
}

// The states of a finding.
const (
	OK      = "ok"
	Missing = "missing"
	Failed  = "failed"
)

// probeTimeout bounds a program that the doctor runs.
const probeTimeout = 5 * time.Second

// Check checks the kernel and the interpreters: what this build uses, and the walls that can be built here.
func Check(ctx context.Context) []Finding {
	findings := append(system(), python(ctx))
	for _, l := range sandbox.Probe() {
		f := Finding{l.Name, OK, cmp.Or(l.Why, "works"), l.Means}
		if !l.Works {
			f.State = Missing
		}
		findings = append(findings, f)
	}
	return findings
}

// Probe makes a finding from an error; a nil error means that the thing exists, with its detail.
func Probe(name string, err error, otherwise, detail, means string) Finding {
	if err != nil {
		return Finding{name, otherwise, tool.AsError(err).Message, means}
	}
	return Finding{name, OK, detail, means}
}

func python(ctx context.Context) Finding {
	f := Finding{Name: "python3", State: Missing, Means: "runs Python tools; 3.9 or later"}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	const script = "import sys; " +
		"print(sys.executable, '.'.join(map(str, sys.version_info[:3])), int(sys.version_info >= (3, 9)))"
	out, err := exec.CommandContext(ctx, "python3", "-c", script).Output()
	if err != nil {
		f.Detail = err.Error()
		return f
	}
	text := strings.TrimSpace(string(out))
	if f.Detail = strings.TrimSuffix(text, " 1"); f.Detail != text {
		f.State = OK
	}
	return f
}
