package file

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"toolpost/host/workspace"
	"toolpost/tool"
)

// BenchmarkRead compares readFile with reading the file directly.
func BenchmarkRead(b *testing.B) {
	dir := b.TempDir()
	path := filepath.Join(dir, "sub", "notes.txt")
	if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil {
		b.Fatal(err)
	}
	text := make([]byte, 4096)
	for i := range text {
		text[i] = byte('a' + i%26)
	}
	if err := os.WriteFile(path, text, 0o644); err != nil {
		b.Fatal(err)
	}
	b.Run("direct", func(b *testing.B) {
		for b.Loop() {
			if _, err := os.ReadFile(path); err != nil {
				b.Fatal(err)
			}
		}
	})
	for name, o := range map[string]Options{"tool": {}, "cached": {Cache: CacheOptions{Size: 1 << 20}}} {
		b.Run(name, func(b *testing.B) {
			tools := openTools(b, dir, o, workspace.Options{})
			call := &tool.Call{Tool: readName, Spec: named(readName), Args: json.RawMessage(`{"path":"sub/notes.txt"}`)}
			for b.Loop() {
				if _, err := tools.Invoke(b.Context(), call, tool.Discard); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
