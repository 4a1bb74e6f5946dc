package file

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"toolpost/host/workspace"
	"toolpost/internal/kit"
	"toolpost/tool"
)

// BenchmarkRead compares readFile with reading the file directly.
func BenchmarkRead(b *testing.B) {
	dir := b.TempDir()
	path := filepath.Join(dir, "sub", "notes.txt")
	kit.OK(b, os.Mkdir(filepath.Dir(path), 0o755))
	text := make([]byte, 4096)
	for i := range text {
		text[i] = byte('a' + i%26)
	}
	kit.OK(b, os.WriteFile(path, text, 0o644))
	b.Run("direct", func(b *testing.B) {
		for b.Loop() {
			kit.Must(os.ReadFile(path))(b)
		}
	})
	for name, o := range map[string]Options{"tool": {}, "cached": {Cache: CacheOptions{Size: 1 << 20}}} {
		b.Run(name, func(b *testing.B) {
			tools := openTools(b, dir, o, workspace.Options{})
			call := &tool.Call{Tool: readName, Spec: named(readName), Args: json.RawMessage(`{"path":"sub/notes.txt"}`)}
			for b.Loop() {
				kit.Must(tools.Invoke(b.Context(), call, tool.Discard))(b)
			}
		})
	}
}
