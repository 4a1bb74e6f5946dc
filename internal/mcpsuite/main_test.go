package mcpsuite

import (
	"os"
	"testing"

	"toolpost/host/sandbox"
	"toolpost/tool/tooltest"
)

func TestMain(m *testing.M) {
	if sandbox.Main() {
		return
	}
	tooltest.DirectPython()
	os.Exit(m.Run())
}
