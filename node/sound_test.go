package node

import (
	"context"
	"encoding/json"
	"path/filepath"
	"testing"

	"toolpost/config"
	"toolpost/tool"
	"toolpost/wire/schema"
)

// These schemas are not tried when they are published, see define.Set.Sound.
func TestTheSchemasThatThisProgramWritesWork(t *testing.T) {
	cfg, err := config.Parse(filepath.Join(t.TempDir(), config.FileName), []byte(
		"sources: [{name: files, protocol: builtin, roots: [{path: ., write: true}], shell: {allow: [ls]}}]\nstore: {}\n"))
	if err != nil {
		t.Fatal(err)
	}
	n, err := Open(t.Context(), cfg, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := n.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	tried := 0
	for _, r := range []tool.Runner{n.own[0].Runner, n.sources[0].runner} {
		specs, err := r.(tool.Source).Tools(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range specs {
			for _, raw := range []json.RawMessage{s.Input, s.Output} {
				if tried++; len(raw) == 0 {
					continue
				}
				if _, err := schema.Compile(raw); err != nil {
					t.Errorf("%s: %v", s.Name, err)
				}
			}
		}
	}
	if tried < 100 {
		t.Errorf("only %d schemas were tried", tried)
	}
}
