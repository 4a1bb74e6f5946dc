package workspace

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"toolpost/internal/kit"
	"toolpost/tool"
)

func mkfifo(path string) error { return syscall.Mkfifo(path, 0o644) }

func TestAWriteMakesOrReplacesAFile(t *testing.T) {
	bothWays(t, func(t *testing.T, w *world) {
		w.link("sub", "folder")
		for path, where := range map[string]string{
			"notes.txt": "notes.txt", "new.txt": "new.txt", "a/b/c.txt": "a/b/c.txt", "folder/x/y.txt": "sub/x/y.txt", "sub/../z": "z", w.root + "/abs": "abs",
		} {
			if err := w.view().Write(path, []byte("content of "+path), WriteOptions{}); err != nil {
				t.Errorf("%s: %v", path, err)
			} else if got := w.onDisk("root/" + where); got != "content of "+path {
				t.Errorf("%s: %q", path, got)
			}
		}
		w.noTemps()
	})
}

// noTemps fails if an unfinished file was left.
func (w *world) noTemps() {
	w.t.Helper()
	if left := w.temps(); len(left) > 0 {
		w.t.Errorf("left behind: %s", left)
	}
}

func (w *world) temps() (left []string) {
	_ = filepath.WalkDir(w.top, func(path string, _ os.DirEntry, _ error) error {
		if strings.Contains(path, TempPrefix) {
			left = append(left, path)
		}
		return nil
	})
	return left
}

func TestAWriteKeepsModeAndOwner(t *testing.T) {
	w := newWorld(t)
	path := filepath.Join(w.root, "notes.txt")
	kit.OK(t, os.Chmod(path, 0o754))
	asRoot := os.Geteuid() == 0
	if asRoot {
		kit.OK(t, os.Chown(path, 12345, 54321))
	}
	kit.OK(t, w.view().Write("notes.txt", []byte("x"), WriteOptions{}))
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o754 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if st := info.Sys().(*syscall.Stat_t); asRoot && (st.Uid != 12345 || st.Gid != 54321) {
		t.Errorf("owner %d:%d", st.Uid, st.Gid)
	}
	kit.OK(t, w.view().Write("script", nil, WriteOptions{Mode: 0o700}))
	if info, err := os.Stat(filepath.Join(w.root, "script")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func TestRefusedWriteLeavesNothingBehind(t *testing.T) {
	bothWays(t, func(t *testing.T, w *world) {
		w.write("root/.env", "KEY=1")
		w.write("outside/dir/x", secret)
		w.link("notes.txt", "link")
		w.link("../outside/secret.txt", "out")
		w.link("gone", "dangling")
		w.link("../outside/new", "dangling-out")
		w.link("../outside/dir", "outdir")
		w.link(".env", "to-env")
		kit.OK(t, mkfifo(filepath.Join(w.root, "fifo")))
		denied, invalid, conflict := tool.CodeAccessDenied, tool.CodeInvalidInput, tool.CodeConflict
		for path, code := range map[string]tool.Code{
			"link": denied, "out": denied, "dangling": denied, "dangling-out": denied, "outdir/x": denied, "outdir/new": denied, "to-env": denied,
			".env": denied, ".ENV": denied, "sub/.ssh/config": denied, ".toolpost/x": denied, ".toolpost-x.tmp": denied, "../outside/secret.txt": denied, "/etc/x": denied,
			"sub": invalid, ".": invalid, "new/": invalid, "fifo": invalid, "notes.txt/x": conflict, "fifo/x": conflict, "dangling/x": conflict,
		} {
			kit.Refused(t, w.view().Write(path, []byte("hostile"), WriteOptions{}), code, "", path, code)
		}
		if w.onDisk("outside/secret.txt") != secret || w.onDisk("outside/dir/x") != secret || w.onDisk("root/.env") != "KEY=1" || w.onDisk("root/notes.txt") != "hello\n" {
			t.Error("something was written")
		}
		w.noTemps()
	})
}

func TestOnlyRootsThatSaySoAreWritten(t *testing.T) {
	w := newWorld(t)
	w.write("second/two.txt", "2")
	w.open(Options{Roots: []RootOptions{{Path: "root"}, {Path: "second", Write: true}}})
	v := w.view()
	same := func(old []byte) ([]byte, error) { return old, nil }
	abs := filepath.Join(w.root, "x")
	for what, err := range map[string]error{
		"replace": v.Write("notes.txt", nil, WriteOptions{}), "new": v.Write(abs, nil, WriteOptions{}), "edit": v.Edit("notes.txt", 100, same),
		"remove": v.Remove("notes.txt"), "mkdir": second(v.Mkdir(abs)), "move": v.Rename(t.Context(), "notes.txt", "n", false),
		"move there": v.Rename(t.Context(), "two.txt", abs, false),
	} {
		if tool.CodeOf(err) != tool.CodeAccessDenied || tool.AsError(err).Reason != "read_only" {
			t.Errorf("%s: %v; want access_denied, read_only", what, err)
		}
	}
	if err := v.Write("fresh.txt", []byte("f"), WriteOptions{}); err != nil || w.onDisk("second/fresh.txt") != "f" {
		t.Errorf("a new file belongs to the root that may be written: %v", err)
	}
	if err := v.Write("sub/fresh.txt", []byte("f"), WriteOptions{}); err != nil || w.onDisk("second/sub/fresh.txt") != "f" {
		t.Errorf("a new file in a new folder likewise: %v", err)
	}
}

func TestCreateOnlyNeverReplaces(t *testing.T) {
	w := newWorld(t)
	kit.Refused(t, w.view().Write("notes.txt", nil, WriteOptions{CreateOnly: true}),
		tool.CodeConflict, "", "err = ; want conflict")
	var wg sync.WaitGroup
	var mu sync.Mutex
	made := 0
	for range 20 {
		wg.Go(func() {
			err := w.view().Write("once", nil, WriteOptions{CreateOnly: true})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				made++
			} else if tool.CodeOf(err) != tool.CodeConflict {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	kit.Equal(t, made, 1, "times made")
	w.noTemps()
}

func TestEditsOfOneFileDoNotLoseEachOther(t *testing.T) {
	w := newWorld(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 10 {
				kit.Check(t, w.view().Edit("notes.txt", 1<<20, func(old []byte) ([]byte, error) { return append(old, '+'), nil }))
			}
		})
	}
	wg.Wait()
	kit.Equal(t, w.onDisk("root/notes.txt"), "hello\n"+strings.Repeat("+", 80))
}

func TestAnEditThatMeetsAnotherWriterWritesNothing(t *testing.T) {
	w := newWorld(t)
	for what, meddle := range map[string]func(){
		"changed":  func() { w.write("root/notes.txt", "theirs") },
		"replaced": func() { os.Remove(filepath.Join(w.root, "notes.txt")); w.write("root/notes.txt", "theirs") },
	} {
		err := w.view().Edit("notes.txt", 1<<20, func([]byte) ([]byte, error) { meddle(); return []byte("ours"), nil })
		if tool.CodeOf(err) != tool.CodeConflict || w.onDisk("root/notes.txt") != "theirs" {
			t.Errorf("%s: %v, %q", what, err, w.onDisk("root/notes.txt"))
		}
	}
	err := w.view().Edit("notes.txt", 1<<20, func([]byte) ([]byte, error) { return nil, os.Remove(filepath.Join(w.root, "notes.txt")) })
	kit.Refused(t, err, tool.CodeConflict, "", "removed")
	w.noTemps()
}

func TestSweepRemovesOnlyStaleTemporaryFiles(t *testing.T) {
	w := newWorld(t)
	old := time.Now().Add(-2 * staleAge)
	paths := map[string]string{}
	for _, what := range []string{"stale", "held", "young"} {
		name := "root/" + TempPrefix + what + tempSuffix
		w.write(name, "half")
		paths[what] = filepath.Join(w.top, name)
		if what != "young" {
			kit.OK(t, os.Chtimes(paths[what], old, old))
		}
	}
	f := kit.Must(os.Open(paths["held"]))(t)
	defer f.Close()
	kit.OK(t, unix.Flock(int(f.Fd()), unix.LOCK_EX))
	w.link("../outside/secret.txt", TempPrefix+"link"+tempSuffix)
	kit.OK(t, w.view().Write("x", nil, WriteOptions{}))
	for what, want := range map[string]bool{"stale": false, "held": true, "young": true} {
		if _, err := os.Stat(paths[what]); (err == nil) != want {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestFoldersAreMadeAsFarAsTheyAreMissing(t *testing.T) {
	bothWays(t, func(t *testing.T, w *world) {
		w.link("sub", "alias")
		w.link("../outside", "out")
		w.link("nowhere", "dangling")
		for path, made := range map[string]bool{"a/b/c": true, "sub": false, "alias/new": true, ".": false, "sub/deep": false} {
			kit.Equal(t, kit.Must(w.view().Mkdir(path))(t), made, path)
		}
		for path, code := range map[string]tool.Code{
			"notes.txt": tool.CodeConflict, "notes.txt/x": tool.CodeConflict, "dangling": tool.CodeConflict, "out": tool.CodeAccessDenied, "out/x": tool.CodeAccessDenied,
			"../x": tool.CodeAccessDenied, ".ssh": tool.CodeAccessDenied, "a/.env/b": tool.CodeAccessDenied,
		} {
			kit.Refused(t, kit.Err(w.view().Mkdir(path)), code, "", path, code)
		}
	})
}

func TestRemoveTakesFilesLinksAndEmptyFolders(t *testing.T) {
	w := newWorld(t)
	w.write("root/sub/file", "")
	w.link("../outside/secret.txt", "link")
	w.link("../outside", "dirlink")
	kit.OK(t, os.Mkdir(filepath.Join(w.root, "empty"), 0o755))
	kit.OK(t, mkfifo(filepath.Join(w.root, "fifo")))
	for path, code := range map[string]tool.Code{
		"notes.txt": "", "link": "", "dirlink": "", "empty": "", "sub": tool.CodeConflict, "none": tool.CodeNotFound, "fifo": tool.CodeInvalidInput,
		".": tool.CodeInvalidInput, "../outside/secret.txt": tool.CodeAccessDenied, w.by: tool.CodeAccessDenied,
	} {
		err := w.view().Remove(path)
		kit.Refused(t, err, code, "", path)
		if _, statErr := os.Lstat(filepath.Join(w.root, path)); err == nil && statErr == nil {
			t.Errorf("%s is still there", path)
		}
	}
	kit.Equal(t, w.onDisk("outside/secret.txt"), secret, "the file outside was touched")
}

func TestRenameMovesFilesFoldersAndLinks(t *testing.T) {
	w := newWorld(t)
	w.link("../outside/secret.txt", "out")
	w.write("root/other.txt", "other")
	for _, c := range []struct {
		from, to  string
		overwrite bool
		code      tool.Code
	}{
		{"notes.txt", "new/place/n.txt", false, ""},
		{"sub", "moved", false, ""},
		{"out", "still-a-link", false, ""},
		{"new/place/n.txt", "other.txt", false, tool.CodeConflict},
		{"new/place/n.txt", "other.txt", true, ""},
		{"other.txt", "still-a-link", true, tool.CodeAccessDenied},
		{"none", "x", false, tool.CodeNotFound},
		{"moved", "moved/deep/x", false, tool.CodeInvalidInput},
		{"moved", "moved", false, tool.CodeInvalidInput},
		{"other.txt", "moved", false, tool.CodeConflict},
		{"other.txt", "moved", true, tool.CodeConflict},
		{"other.txt", "../outside/x", false, tool.CodeAccessDenied},
		{"../outside/secret.txt", "x", false, tool.CodeAccessDenied},
		{"other.txt", ".env", false, tool.CodeAccessDenied},
		{".", "x", false, tool.CodeInvalidInput},
	} {
		kit.Refused(t, w.view().Rename(t.Context(), c.from, c.to, c.overwrite), c.code, "", c.from, c.to, c.code)
	}
	if w.onDisk("root/other.txt") != "hello\n" || w.onDisk("root/moved/deep/a.go") != "package a\n" || w.onDisk("outside/secret.txt") != secret {
		t.Error("the files are not where they should be")
	}
}

func TestStatDescribesTheEntryItself(t *testing.T) {
	w := newWorld(t)
	w.link("../outside/secret.txt", "out")
	w.link("../outside", "dir")
	for path, want := range map[string]string{"notes.txt": "-rw-r--r--", "sub": "drwxr-xr-x", ".": "drwxr-xr-x", "out": "Lrwxrwxrwx"} {
		info, err := w.view().Stat(path)
		if err != nil || info.Mode().String() != want {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
	if info, err := w.view().Stat("out"); err == nil && info.Size() == int64(len(secret)) {
		t.Error("the size of the file outside was told")
	}
	for path, code := range map[string]tool.Code{"dir/secret.txt": tool.CodeAccessDenied, "none": tool.CodeNotFound, ".env": tool.CodeAccessDenied} {
		kit.Refused(t, kit.Err(w.view().Stat(path)), code, "", path)
	}
}

// Another process makes the file after our check and before we are done.
func TestCreateOnlyDoesNotReplaceAConcurrentFile(t *testing.T) {
	w := newWorld(t)
	s := kit.Must(w.view().newSpot("new"))(t)
	defer s.close()
	o := WriteOptions{CreateOnly: true}
	temp := kit.Must(newTemp(s, nil, o))(t)
	w.write("root/new", "theirs")
	if err := temp.commit(s, o); tool.CodeOf(err) != tool.CodeConflict || w.onDisk("root/new") != "theirs" {
		t.Errorf("%v, %q", err, w.onDisk("root/new"))
	}
	temp.drop()
	w.noTemps()
}
