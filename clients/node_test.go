package clients_test

import (
	"os"
	"os/exec"
	"testing"
)

// requireNode gives a Node whose fetch is there, if what checks types is installed too.
func requireNode(t *testing.T) string {
	t.Helper()
	_, err := os.Stat("testdata/js/node_modules")
	node, missing := exec.LookPath("node")
	if err == nil && missing == nil {
		return node
	}
	const hint = "node, or what is in clients/testdata/js, is not installed; `make setup` installs it"
	if os.Getenv("CI") == "true" {
		t.Fatal(hint)
	}
	t.Skip(hint)
	return ""
}
