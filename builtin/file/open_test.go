package file

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"toolpost/config"
	"toolpost/tool"
)

func source(t *testing.T, dir, text string) config.Source {
	t.Helper()
	cfg, err := config.Parse(filepath.Join(dir, "toolpost.yaml"), []byte("sources:\n  - {name: files, protocol: builtin, "+text+"}\n"))
	if err != nil {
		t.Fatal(err)
	}
	return cfg.Sources[0]
}

func TestOpenReadsTheOptionsOfASource(t *testing.T) {
	w := newWorld(t)
	var log bytes.Buffer
	r, err := Open(t.Context(), source(t, w.top, "roots: [{path: root, write: true}], max_file: 5"), slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close(context.Background())
	w.runner = r.(*Runner)
	if _, err := w.read("notes.txt"); tool.CodeOf(err) != tool.CodeInvalidInput {
		t.Errorf("six bytes with max_file 5: %v", err)
	}
	if !strings.Contains(log.String(), "write: true") {
		t.Errorf("nothing is said about write: true: %s", log.String())
	}
}

func TestOpenRefusesWhatItDoesNotKnow(t *testing.T) {
	for _, text := range []string{"root: .", "roots: [{path: ., mode: rw}]", "roots: root", "max_file: big"} {
		if r, err := Open(t.Context(), source(t, t.TempDir(), text), slog.New(slog.DiscardHandler)); err == nil {
			r.Close(context.Background())
			t.Errorf("%s: no error", text)
		}
	}
}

func FuzzPath(f *testing.F) {
	for _, seed := range []string{"notes.txt", "../outside/secret.txt", "/etc/passwd", "sub/../..", ".env", "a\x00b", "dir/secret.txt", "//"} {
		f.Add(seed, "*")
	}
	f.Add(".", "{a,b}/**/[!x]")
	f.Fuzz(func(t *testing.T, path, pattern string) {
		w := newWorld(t)
		w.link("../outside", "dir")
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
