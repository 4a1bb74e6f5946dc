//go:build linux

package sandbox

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"toolpost/internal/kit"
	"toolpost/tool"
)

// A momentary lack of descriptors says nothing about a machine: it is probed again, and the error names the limit.
func TestTooFewOpenFilesAreNotTheMachinesFault(t *testing.T) {
	for name, err := range map[string]error{
		"a wall":       &wallError{LayerMounts + ": /usr", unix.EMFILE},
		"the program":  &wallError{layerExec + ": /bin/sh", unix.ENFILE},
		"the forker":   unavailable("no pipe for the sandbox's forker", unix.EMFILE),
		"the whole OS": fmt.Errorf("open /dev/null: %w", unix.ENFILE),
	} {
		said := tool.AsError(explain(err))
		if said.Code != tool.CodeUnavailable || said.Reason != CoverageMissing || !strings.Contains(said.Message, "open files is too low") || strings.Contains(said.Message, "machine") {
			t.Errorf("%s: %v", name, said)
		}
		m := &machine{broken: err}
		if covered := tool.AsError(m.cover(Profile{})); covered.Message != said.Message {
			t.Errorf("%s: %v", name, covered)
		}
	}
	for what, broken := range map[string]error{"nothing": nil, "a kernel": errors.New("no namespaces"), "files": unix.EMFILE} {
		asked := 0
		find := remember(func() *machine {
			if asked++; asked > 1 {
				return &machine{}
			}
			return &machine{broken: broken}
		})
		if m := find(); m.broken != broken {
			t.Errorf("%s: %v", what, m.broken)
		}
		m := find()
		if again := broken == unix.EMFILE; again != (asked == 2) || again && m.broken != nil {
			t.Errorf("%s: asked %d times, %v", what, asked, m.broken)
		}
		kit.Equal(t, find(), m, "%s: what was found is not remembered", what)
	}
}
