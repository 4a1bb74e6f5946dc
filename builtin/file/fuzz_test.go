package file

import (
	"strings"
	"testing"

	"toolpost/tool"
)

func FuzzPath(f *testing.F) {
	for _, seed := range []string{"notes.txt", "../outside/secret.txt", "/etc/passwd", "sub/../..", ".env", "a\x00b", "dir/secret.txt", "//"} {
		f.Add(seed, "*")
	}
	f.Add(".", "{a,b}/**/[!x]")
	w := newWorldIn(f, f.TempDir())
	w.link("../outside", "dir")
	f.Fuzz(func(t *testing.T, path, pattern string) {
		if got, err := w.read(path); strings.Contains(got, secret) {
			t.Fatalf("read %q: the secret came out", path)
		} else if code := tool.CodeOf(err); code == tool.CodeInternal {
			t.Fatalf("read %q: %v", path, err)
		}
		entries, err := w.list(map[string]any{"path": path, "pattern": pattern, "recursive": true})
		if code := tool.CodeOf(err); code == tool.CodeInternal {
			t.Fatalf("list %q %q: %v", path, pattern, err)
		}
		for _, e := range entries {
			if strings.HasSuffix(e.Path, "secret.txt") {
				t.Fatalf("list %q went out: %v", path, e)
			}
		}
	})
}
