package node

import (
	"context"
	"encoding/json"
	"path/filepath"
	"testing"

	"toolpost/config"
	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/wire/schema"
)

// These schemas are not tried when they are published, see define.Set.Sound.
func TestTheSchemasThatThisProgramWritesWork(t *testing.T) {
	cfg := kit.Must(config.Parse(filepath.Join(t.TempDir(), config.FileName), []byte(
		"sources: [{name: files, protocol: builtin, roots: [{path: ., write: true}], shell: {allow: [ls]}}]\nstore: {}\n")))(t)
	n := kit.Must(Open(t.Context(), cfg, Options{}))(t)
	defer func() {
		kit.Check(t, n.Close(context.Background()))
	}()
	tried := 0
	own := kit.Must(n.ownTools(t.Context()))(t)
	specs := kit.Must(own.Runner.(tool.Source).Tools(t.Context()))(t)
	for s := range n.Catalog().Specs(t.Context(), tool.Principal{ID: "local"}) {
		specs = append(specs, s)
	}
	for _, s := range specs {
		for _, raw := range []json.RawMessage{s.Input, s.Output} {
			if tried++; len(raw) == 0 {
				continue
			}
			kit.Check(t, kit.Err(schema.Compile(raw)), s.Name)
		}
	}
	if tried < 100 {
		t.Errorf("only %d schemas were tried", tried)
	}
}
