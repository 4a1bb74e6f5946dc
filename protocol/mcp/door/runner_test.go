package door_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"

	"toolpost/config"
	"toolpost/internal/kit"
	"toolpost/protocol/mcp/door"
	"toolpost/protocol/mcp/runner"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// runnerOf opens a source. Its caller closes it.
func runnerOf(t testing.TB, fields string) tool.Runner {
	t.Helper()
	cfg, err := config.Parse(filepath.Join(t.TempDir(), config.FileName), []byte("sources:\n  - {name: up, protocol: mcp, "+fields+"}\n"))
	if err != nil {
		t.Fatal(err)
	}
	return kit.Must(runner.Open(t.Context(), cfg.Sources[0], slog.New(slog.DiscardHandler)))(t)
}

// before returns a runner in front of a door.
func before(t testing.TB, h tool.Handler, c tool.Catalog, era string) tool.Runner {
	t.Helper()
	url := serveHTTP(t.(*testing.T), door.Options{}, h, c)
	r := runnerOf(t, fmt.Sprintf("url: %q, era: %s, headers: {Authorization: 'Bearer %s'}", url, era, token))
	t.Cleanup(func() { _ = r.Close(context.Background()) })
	return r
}

// Our own door and our own runner against each other: neither loses anything that the other needs.
func TestTheRunnerInFrontOfOurOwnDoor(t *testing.T) {
	for _, era := range []string{"modern", "legacy"} {
		t.Run(era, func(t *testing.T) {
			tooltest.Run(t, tooltest.Subject{
				// A failure is a result there, whatever its code; the reference starts nothing.
				Without: tooltest.Crash | tooltest.Spawn,
				New: func(tb testing.TB) tool.Handler {
					ref := &tooltest.Reference{}
					return before(tb, ref, ref, era)
				},
			})
		})
	}
}

func TestSchemasOfServersComeThroughOurOwnDoor(t *testing.T) {
	for _, era := range []string{"modern", "legacy"} {
		t.Run(era, func(t *testing.T) {
			b := newBench()
			r := before(t, b, b, era)
			listed, err := r.(tool.Source).Tools(t.Context())
			all := map[string]bool{}
			for _, spec := range listed {
				all[spec.Name] = true
			}
			if err != nil || !all["echo"] || !all["count"] || !all["odd_name"] {
				t.Fatalf("the tools are %v, %v", all, err)
			}
			res, err := r.Invoke(t.Context(), &tool.Call{Tool: "echo", Args: []byte(`{"a":[1.50,"x"]}`)}, tool.Discard)
			if err != nil || string(res.Output) != `{"a":[1.50,"x"]}` {
				t.Errorf("got %+v, %v", res, err)
			}
		})
	}
}
