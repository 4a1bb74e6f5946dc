package runner_test

import (
	"path/filepath"
	"testing"

	"toolpost/config"
)

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
