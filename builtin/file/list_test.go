package file

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"toolpost/internal/kit"
	"toolpost/tool"
)

func TestListSaysPathSizeAndType(t *testing.T) {
	w := newWorld(t)
	w.link("notes.txt", "link")
	kit.OK(t, syscall.Mkfifo(filepath.Join(w.root, "fifo"), 0o644))
	got := kit.Must(w.list(map[string]any{}))(t)
	want := []entry{{"fifo", 0, "other"}, {"link", 0, "symlink"}, {"notes.txt", 6, "file"}, {"sub", 0, "directory"}}
	kit.Equal(t, cmp.Diff(want, got), "")
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
		kit.Equal(t, strings.Join(w.names(map[string]any{"path": path}), " "), want, "list %s", path)
	}
}

func TestListedPathCanBeRead(t *testing.T) {
	w := newWorld(t)
	entries, err := w.list(map[string]any{"path": w.root + "/sub", "recursive": true, "pattern": "*.go"})
	if err != nil || len(entries) != 1 {
		t.Fatalf("list: %v, %v", entries, err)
	}
	kit.Equal(t, kit.Must(w.read(entries[0].Path))(t), "package a\n", entries[0].Path)
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
		kit.Equal(t, strings.Join(w.names(map[string]any{"recursive": true, "pattern": pattern}), " "),
			want, "pattern %s", pattern)
	}
}

func TestListDoesNotFollowLinks(t *testing.T) {
	w := newWorld(t)
	w.link("..", "sub/up")
	w.link("sub", "also-sub")
	w.link("../outside", "out")
	want := "also-sub notes.txt out sub sub/deep sub/deep/a.go sub/up"
	kit.Equal(t, strings.Join(w.names(map[string]any{"recursive": true}), " "), want)
}

func TestNamesThatAreNotUTF8AreShownWithAMark(t *testing.T) {
	w := newWorld(t)
	w.write("root/sub/caf\xe9.txt", "")
	want := []string{"sub/caf\uFFFD.txt", "sub/deep"}
	kit.Equal(t, cmp.Diff(want, w.names(map[string]any{"path": "sub"})), "")
}

func TestAFolderThatMayNotBeReadHidesNothingElse(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may read everything")
	}
	w := newWorld(t)
	w.write("root/locked/x", "")
	kit.OK(t, os.Chmod(filepath.Join(w.root, "locked"), 0))
	want := "locked notes.txt sub sub/deep sub/deep/a.go"
	kit.Equal(t, strings.Join(w.names(map[string]any{"recursive": true}), " "), want)
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
		kit.Refused(t, l.count("name"), tool.CodeInvalidInput, "", "one more than the allowed %s", what)
	}
}
