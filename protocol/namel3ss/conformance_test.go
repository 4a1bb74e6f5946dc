package namel3ss

import (
	"testing"

	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// Python reads 1.50 as a number and writes 1.5: the digits are lost in the tool, not in transit.
func TestRunnerConforms(t *testing.T) {
	for _, mode := range modes() {
		t.Run(mode, func(t *testing.T) {
			tooltest.Run(t, tooltest.Subject{
				New: func(t testing.TB) tool.Handler {
					return open(t, "testdata/standard", Options{Mode: mode})
				},
				Without: tooltest.Digits,
			})
		})
	}
}
