package file

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"toolpost/tool"
)

func TestListSaysPathSizeAndType(t *testing.T) {
	w := newWorld(t)
	w.link("notes.txt", "link")
	if err := syscall.Mkfifo(filepath.Join(w.root, "fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := w.list(map[string]any{})
	if err != nil {
		t.Fatal(err)
	}
	want := []entry{{"fifo", 0, "other"}, {"link", 0, "symlink"}, {"notes.txt", 6, "file"}, {"sub", 0, "directory"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestListedPathsStartWithTheRequestedFolder(t *testing.T) {
	w := newWorld(t)
	for path, want := range map[string]string{
		".":          "./notes.txt ./sub",
		"./":         "./notes.txt ./sub",
		"sub":        "sub/deep",
		"sub/":       "sub/deep",
		"./sub/deep": "./sub/deep/a.go",
		w.root:       w.root + "/notes.txt " + w.root + "/sub",
	} {
		if got := strings.Join(w.names(map[string]any{"path": path}), " "); got != want {
			t.Errorf("list %s: %s; want %s", path, got, want)
		}
	}
}

func TestListedPathCanBeRead(t *testing.T) {
	w := newWorld(t)
	entries, err := w.list(map[string]any{"path": w.root + "/sub", "recursive": true, "pattern": "*.go"})
	if err != nil || len(entries) != 1 {
		t.Fatalf("list: %v, %v", entries, err)
	}
	if got, err := w.read(entries[0].Path); err != nil || got != "package a\n" {
		t.Errorf("read %s: %q, %v", entries[0].Path, got, err)
	}
}

func TestPatternsSelect(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"a.ts", "src/b.ts", "src/c.tsx", "src/x/d.ts", "src/x/e.go"} {
		w.write("root/"+name, "")
	}
	for pattern, want := range map[string]string{
		"*.ts":             "a.ts src/b.ts src/x/d.ts",
		"src/*.ts":         "src/b.ts",
		"src/**/*.ts":      "src/b.ts src/x/d.ts",
		"**/*.{ts,tsx}":    "a.ts src/b.ts src/c.tsx src/x/d.ts",
		"src/**":           "src src/b.ts src/c.tsx src/x src/x/d.ts src/x/e.go",
		"[!a].ts":          "src/b.ts src/x/d.ts",
		"nothing":          "",
		"../outside/*":     "",
		"/etc/*":           "",
		"src/x/../../a.ts": "",
	} {
		if got := strings.Join(w.names(map[string]any{"recursive": true, "pattern": pattern}), " "); got != want {
			t.Errorf("pattern %s: %s; want %s", pattern, got, want)
		}
	}
}

func TestListDoesNotFollowLinks(t *testing.T) {
	w := newWorld(t)
	w.link("..", "sub/up")
	w.link("sub", "also-sub")
	w.link("../outside", "out")
	want := "also-sub notes.txt out sub sub/deep sub/deep/a.go sub/up"
	if got := strings.Join(w.names(map[string]any{"recursive": true}), " "); got != want {
		t.Errorf("got %s; want %s", got, want)
	}
}

func TestNamesThatAreNotUTF8AreShownWithAMark(t *testing.T) {
	w := newWorld(t)
	w.write("root/sub/caf\xe9.txt", "")
	want := []string{"sub/caf\uFFFD.txt", "sub/deep"}
	if diff := cmp.Diff(want, w.names(map[string]any{"path": "sub"})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAFolderThatMayNotBeReadHidesNothingElse(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may read everything")
	}
	w := newWorld(t)
	w.write("root/locked/x", "")
	if err := os.Chmod(filepath.Join(w.root, "locked"), 0); err != nil {
		t.Fatal(err)
	}
	want := "locked notes.txt sub sub/deep sub/deep/a.go"
	if got := strings.Join(w.names(map[string]any{"recursive": true}), " "); got != want {
		t.Errorf("got %s; want %s", got, want)
	}
}

func TestAListingIsBounded(t *testing.T) {
	w := newWorld(t)
	w.write("root/"+strings.Repeat("d/", maxDepth+2)+"x", "")
	_, err := w.list(map[string]any{"recursive": true})
	if tool.CodeOf(err) != tool.CodeInvalidInput || tool.AsError(err).Reason != "too_large" {
		t.Errorf("deep folders: %v; want invalid_input, too_large", err)
	}
	for what, l := range map[string]*listing{
		"bytes":   {shown: "x", bytes: maxResult - len("name") + 1},
		"entries": {shown: "x", entries: maxEntries},
	} {
		if err := l.count("name"); tool.CodeOf(err) != tool.CodeInvalidInput {
			t.Errorf("one more than the allowed %s: %v", what, err)
		}
	}
}
