package file

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"toolpost/host/workspace"
	"toolpost/internal/kit"
	"toolpost/tool"
)

// newCached returns a world with a cache whose clock is an hour ahead: every file has settled.
func newCached(t *testing.T, size int64) *world {
	w := newWorld(t)
	w.open(Options{Cache: CacheOptions{Size: size}}, workspace.RootOptions{Path: "root", Write: true})
	w.runner.cache.now = func() time.Time { return time.Now().Add(time.Hour) }
	return w
}

func (w *world) cached() int { return len(w.runner.cache.kept) }

func TestTheCacheNoticesEveryChange(t *testing.T) {
	w := newCached(t, 1<<20)
	path := filepath.Join(w.root, "notes.txt")
	info := kit.Must(os.Stat(path))(t)
	changes := map[string]func(content string){
		"rewritten":          func(s string) { w.write("root/notes.txt", s) },
		"replaced":           func(s string) { w.write("root/other", s); os.Rename(filepath.Join(w.root, "other"), path) },
		"with its old times": func(s string) { w.write("root/notes.txt", s); os.Chtimes(path, info.ModTime(), info.ModTime()) },
		"by the tool":        func(s string) { w.call(writeName, fmt.Sprintf(`{"path":"notes.txt","content":%q}`, s)) },
	}
	n := 0
	for what, change := range changes {
		for range 20 {
			n++
			want := fmt.Sprintf("%06d", n) // always six bytes
			change(want)
			for range 2 {
				kit.MustEqual(t, kit.Must(w.read("notes.txt"))(t), want, what)
			}
			kit.MustEqual(t, w.cached(), 1, "files kept")
		}
	}
}

func TestTheCacheIsAskedAfterTheFileWasChecked(t *testing.T) {
	w := newCached(t, 1<<20)
	kit.Must(w.read("notes.txt"))(t)
	path := filepath.Join(w.root, "notes.txt")
	kit.OK(t, os.Link(path, filepath.Join(w.root, "second-name")))
	kit.Refused(t, kit.Err(w.read("notes.txt")), tool.CodeAccessDenied, "", "a hard link")
}

func TestTheCacheIsBounded(t *testing.T) {
	w := newCached(t, 100)
	for i := range 50 {
		w.write(fmt.Sprintf("root/%d", i), strings.Repeat("x", 28)) // 30 as JSON
		kit.Must(w.read(fmt.Sprint(i)))(t)
	}
	w.write("root/huge", strings.Repeat("x", 200))
	kit.Must(w.read("huge"))(t)
	c := w.runner.cache
	if c.used != 90 || len(c.kept) != 3 || c.last.Len() != 3 {
		t.Errorf("%d bytes of %d files are kept", c.used, len(c.kept))
	}
	if _, ok := c.kept[filepath.Join(w.root, "49")]; !ok {
		t.Error("the last one is gone")
	}
}

func TestAFileThatWasChangedJustNowIsNotKept(t *testing.T) {
	w := newCached(t, 1<<20)
	w.runner.cache.now = time.Now
	w.write("root/fresh", "x")
	if _, err := w.read("fresh"); err != nil || w.cached() != 0 {
		t.Errorf("%d kept, %v", w.cached(), err)
	}
}

func TestTheCacheMayHaveNoNegativeSize(t *testing.T) {
	w := newWorld(t)
	ws := kit.Must(workspace.Open(w.top, workspace.Options{}))(t)
	defer ws.Close()
	for _, o := range []Options{{MaxFile: -1}, {Cache: CacheOptions{Size: -1}}} {
		kit.Refused(t, kit.Err(New(ws, o)), tool.CodeInvalidInput, "", o)
	}
}
