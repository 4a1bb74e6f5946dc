package mcp_test

import (
	"os"
	"path/filepath"
	"testing"

	"toolpost/config"
)

// jsPeers returns the folder of the programs from npm, and node; without them the test ends.
func jsPeers(t *testing.T) (modules, node string) {
	t.Helper()
	modules, err := filepath.EvalSymlinks(filepath.Join("testdata", "js", "node_modules"))
	if err == nil {
		modules, err = filepath.Abs(modules)
	}
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("the MCP programs from npm are not installed; run `npm ci` in protocol/mcp/testdata/js")
		}
		t.Skip("the MCP programs from npm are not installed; `npm ci` in protocol/mcp/testdata/js installs them")
	}
	node, err = filepath.EvalSymlinks(filepath.Join(modules, ".bin", "node"))
	if err != nil {
		t.Fatal(err)
	}
	return modules, node
}

// A secretsOf returns secrets by name.
type secretsOf map[string]string

func (s secretsOf) Secret(name string) (string, error) { return s[name], nil }

// sourceOf returns a configured source in a folder.
func sourceOf(t testing.TB, dir, fields string, secrets secretsOf) config.Source {
	t.Helper()
	cfg, err := config.Parse(filepath.Join(dir, config.FileName), []byte("sources:\n  - {name: up, protocol: mcp, "+fields+"}\n"))
	if err != nil {
		t.Fatal(err)
	}
	src := cfg.Sources[0]
	src.Secrets = secrets
	return src
}
