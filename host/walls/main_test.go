package walls

import (
	"testing"

	"go.uber.org/goleak"

	"toolpost/host/sandbox"
)

func TestMain(m *testing.M) {
	if sandbox.Main() {
		return
	}
	goleak.VerifyTestMain(m)
}
