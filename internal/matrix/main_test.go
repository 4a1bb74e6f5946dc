package matrix

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
	if os.Getenv(lineEnv) != "" {
		work()
		return
	}
	os.Exit(m.Run())
}
