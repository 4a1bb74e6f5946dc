package door_test

import (
	"os"
	"testing"

	"toolpost/host/sandbox"
)

func TestMain(m *testing.M) {
	if sandbox.Main() {
		return
	}
	os.Exit(m.Run())
}
