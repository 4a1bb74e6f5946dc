package storage

import (
	"encoding/hex"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toolpost/config"
	"toolpost/host/secret"
	"toolpost/internal/kit"
	"toolpost/tool"
)

// The key that seals connections is in a file, whichever database the store is.
func TestConnectionsAreSealedWithAKeyOutsideOfTheStore(t *testing.T) {
	const served = "store: {url: 'postgres://127.0.0.1:1/x'%s}\n"
	key := strings.Repeat("ab", 32)
	for name, c := range map[string]struct{ text, want string }{
		"a file":                   {"{}", "audit.key"},
		"a server":                 {strings.Replace(served, "%s", "", 1), "audit.key"},
		"a server and a key":       {strings.Replace(served, "%s", ", key: shared.key", 1), "shared.key"},
		"hubs without a key":       {strings.Replace(served, "%s", "", 1) + "fleet: {}\n", ""},
		"hubs with the same key":   {strings.Replace(served, "%s", ", key: shared.key", 1) + "fleet: {}\n", "shared.key"},
		"a key that is not there":  {strings.Replace(served, "%s", ", key: nosuch.key", 1), ""},
		"the hub of a single file": {"fleet: {}\n", "audit.key"},
	} {
		dir := t.TempDir()
		kit.OK(t, os.WriteFile(filepath.Join(dir, "shared.key"), []byte(key), 0o600))
		cfg := kit.Must(config.Parse(filepath.Join(dir, "toolpost.yaml"), []byte(c.text)))(t)
		s := kit.Must(New(cfg, true, slog.New(slog.DiscardHandler), new(secret.Redactor), nil))(t)
		got, err := s.sealingKey()
		if c.want == "" {
			kit.Equal(t, tool.CodeOf(err), tool.CodeUnavailable, name)
			continue
		}
		kit.OK(t, err)
		path := filepath.Join(dir, c.want)
		if c.want == "audit.key" {
			path = filepath.Join(cfg.StateDir(), c.want)
		}
		text := kit.Must(os.ReadFile(path))(t)
		kit.Equal(t, hex.EncodeToString(got), strings.TrimSpace(string(text)), name)
	}
}
