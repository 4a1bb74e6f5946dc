package workspace

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"toolpost/config/offlimits"
	"toolpost/internal/kit"
	"toolpost/tool"
)

const secret = "the secret of the folder beside"

// A world is an offered folder, with a folder beside it that is not offered.
type world struct {
	t        testing.TB
	top      string // holds both
	root, by string
	ws       *Workspace
}

func newWorld(t testing.TB) *world {
	t.Helper()
	top := kit.Must(filepath.EvalSymlinks(t.TempDir()))(t)
	w := &world{t: t, top: top, root: filepath.Join(top, "root"), by: filepath.Join(top, "outside")}
	w.write("root/notes.txt", "hello\n")
	w.write("root/sub/deep/a.go", "package a\n")
	w.write("outside/secret.txt", secret)
	w.open(Options{Roots: []RootOptions{{Path: "root", Write: true}}})
	return w
}

func (w *world) open(o Options) {
	w.t.Helper()
	ws := kit.Must(Open(w.top, o))(w.t)
	w.t.Cleanup(func() { ws.Close() })
	w.ws = ws
}

func (w *world) write(name, content string) {
	w.t.Helper()
	path := filepath.Join(w.top, name)
	kit.Write(w.t, path, content)
}

func (w *world) link(target, name string) {
	w.t.Helper()
	kit.OK(w.t, os.Symlink(target, filepath.Join(w.root, name)))
}

func (w *world) view() *View { return w.ws.View(&tool.Call{}) }

func (w *world) read(path string) (string, error) {
	f, err := w.view().Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := f.ReadAll(1 << 20)
	return string(b), err
}

func (w *world) onDisk(name string) string {
	w.t.Helper()
	return string(kit.Must(os.ReadFile(filepath.Join(w.top, name)))(w.t))
}

func TestARootThatIsNotThereIsNamed(t *testing.T) {
	dir := t.TempDir()
	kit.OK(t, os.WriteFile(filepath.Join(dir, "plain"), nil, 0o644))
	kit.OK(t, syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o644))
	for name, root := range map[string]string{"missing": "nowhere", "a file": "plain", "a pipe": "fifo"} {
		_, err := Open(dir, Options{Roots: []RootOptions{{Path: root}}})
		kit.Refused(t, err, tool.CodeUnavailable, root, name)
	}
}

func TestBadOptionsAreInvalidInput(t *testing.T) {
	for _, o := range []Options{
		{Roots: []RootOptions{{Path: ".", HardLinks: "maybe"}}},
		{Roots: []RootOptions{{Path: ".", Codebase: "a"}, {Path: ".", Codebase: "a"}}},
		{Sensitive: Sensitive{Add: []string{"[a"}}},
		{Sensitive: Sensitive{Add: []string{"a/b"}}},
		{Sensitive: Sensitive{Allow: []string{""}}},
	} {
		kit.Refused(t, kit.Err(Open(t.TempDir(), o)), tool.CodeInvalidInput, "", o)
	}
}

func TestEveryRootIsACodebaseWithAnIDOfItsOwn(t *testing.T) {
	w := newWorld(t)
	w.write("a/src/x", "")
	w.write("b/src/x", "")
	w.open(Options{Roots: []RootOptions{{Path: "a/src"}, {Path: "b/src"}, {Path: "root", Codebase: "main"}}})
	var got []string
	for _, r := range w.ws.Roots() {
		got = append(got, r.Codebase)
	}
	kit.Equal(t, cmp.Diff([]string{"src", "src-2", "main"}, got), "")
	v, err := w.view().Codebase("main")
	if err != nil || len(v.Roots()) != 1 || v.Roots()[0].Dir != w.root {
		t.Errorf("codebase main: %v, %v", v, err)
	}
}

func TestACallerSeesItsOwnRootsOnly(t *testing.T) {
	w := newWorld(t)
	w.write("private/p.txt", secret)
	w.open(Options{Roots: []RootOptions{{Path: "root"}, {Path: "private", Callers: tool.Globs{"ada", "team-*"}}}})
	for caller, sees := range map[string]bool{"ada": true, "team-7": true, "team-": true, "": false, "adam": false, "bob": false, "team": false} {
		v := w.ws.View(&tool.Call{Caller: tool.Principal{ID: caller}})
		for _, path := range []string{"p.txt", filepath.Join(w.top, "private/p.txt")} {
			f, err := v.Open(path)
			kit.Equal(t, (err == nil), sees, "%q opens %s: %v", caller, path, err)
			if err == nil {
				f.Close()
			}
		}
		_, unknown := v.Codebase("nowhere")
		_, hidden := v.Codebase("private")
		if !sees && strings.ReplaceAll(hidden.Error(), "private", "nowhere") != unknown.Error() {
			t.Errorf("%q can tell a hidden codebase from none: %v, %v", caller, hidden, unknown)
		}
		if _, err := v.LocateAll(filepath.Join(w.top, "private/p.txt")); (err == nil) != sees {
			t.Errorf("%q locates: %v", caller, err)
		}
	}
}

func TestARootThatOthersSeeThroughAnotherIsRefused(t *testing.T) {
	w := newWorld(t)
	w.write("root/team/t.txt", secret)
	zed := tool.Globs{"zed"}
	for _, c := range []struct {
		name         string
		outer, inner RootOptions
		refused      bool
	}{
		{"for some", RootOptions{}, RootOptions{Callers: zed}, true},
		{"both writable", RootOptions{Write: true}, RootOptions{Write: true, Callers: zed}, true},
		{"for others", RootOptions{Callers: tool.Globs{"ada"}}, RootOptions{Callers: zed}, true},
		{"for the same", RootOptions{Callers: zed}, RootOptions{Callers: zed}, false},
		{"writable for some", RootOptions{}, RootOptions{Write: true, Callers: zed}, false},
	} {
		c.outer.Path, c.inner.Path = "root", "root/team"
		for _, roots := range [][]RootOptions{{c.outer, c.inner}, {c.inner, c.outer}} {
			ws, err := Open(w.top, Options{Roots: roots})
			if kit.Equal(t, err != nil, c.refused, "%s: %v", c.name, err); err == nil {
				ws.Close()
			} else {
				kit.Refused(t, err, tool.CodeInvalidInput, "root root/team: it has callers of its own, but root root contains it")
			}
		}
	}
}

// bothWays runs a test with both ways to open: by openat2, and step by step.
func bothWays(t *testing.T, test func(t *testing.T, w *world)) {
	for name, slow := range map[string]bool{"openat2": false, "step by step": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.ws.noFast = slow
			test(t, w)
		})
	}
}

func TestLinksWithinTheRootAreFollowedAndOthersNot(t *testing.T) {
	bothWays(t, func(t *testing.T, w *world) {
		w.link("sub/deep/a.go", "inner")
		w.link("sub", "folder")
		w.link("../outside/secret.txt", "out")
		w.link("../outside", "outdir")
		w.link("/etc/passwd", "absolute")
		w.link("gone", "dangling")
		w.link("loop", "loop")
		for path, want := range map[string]string{"inner": "package a\n", "folder/deep/a.go": "package a\n", "folder/../notes.txt": "hello\n"} {
			kit.Equal(t, kit.Must(w.read(path))(t), want, path)
		}
		for path, code := range map[string]tool.Code{
			"out": tool.CodeAccessDenied, "outdir/secret.txt": tool.CodeAccessDenied, "absolute": tool.CodeAccessDenied,
			"dangling": tool.CodeNotFound, "loop": tool.CodeInvalidInput,
		} {
			kit.Refused(t, kit.Err(w.read(path)), code, "", path)
		}
	})
}

func TestOpenFileKnowsItsRealPath(t *testing.T) {
	bothWays(t, func(t *testing.T, w *world) {
		w.link("sub", "folder")
		for path, want := range map[string]string{"sub/deep/a.go": "sub/deep/a.go", "folder/deep/a.go": "sub/deep/a.go"} {
			f := kit.Must(w.view().Open(path))(t)
			if f.Abs() != filepath.Join(w.root, want) || f.Shown() != path || f.Size() != 10 || f.Info().Name() != "a.go" {
				t.Errorf("%s: %s, %s, %d", path, f.Abs(), f.Shown(), f.Size())
			}
			f.Close()
			if f.Close() != nil {
				t.Error("a second close failed")
			}
		}
	})
}

func TestDeletedSensitiveFileIsRefused(t *testing.T) {
	w := newWorld(t)
	w.write("root/.env", secret)
	f := kit.Must(os.Open(filepath.Join(w.root, ".env")))(t)
	defer f.Close()
	kit.OK(t, os.Remove(f.Name()))
	at := Place{w.ws.roots[0], "harmless.txt", "harmless.txt"}
	kit.Refused(t, kit.Err(w.ws.checkReal(at, int(f.Fd()))), tool.CodeAccessDenied, "")
}

func TestHardLinksAreRefusedUnlessTheRootAllowsThem(t *testing.T) {
	w := newWorld(t)
	kit.OK(t, os.Link(filepath.Join(w.by, "secret.txt"), filepath.Join(w.root, "hard")))
	walked := func() error {
		var opened error
		err := w.view().Walk(t.Context(), "", WalkOptions{}, func(e *Entry) error {
			if e.Name == "hard" {
				var f *File
				if f, opened = e.Open(); opened == nil {
					f.Close()
				}
			}
			return nil
		})
		return errors.Join(err, opened)
	}
	same := func(old []byte) ([]byte, error) { return old, nil }
	for what, err := range map[string]error{
		"read":  second(w.read("hard")),
		"walk":  walked(),
		"write": w.view().Write("hard", []byte("mine"), WriteOptions{}),
		"edit":  w.view().Edit("hard", 1<<20, same),
	} {
		if tool.CodeOf(err) != tool.CodeAccessDenied || tool.AsError(err).Reason != "hard_link" {
			t.Errorf("%s: %v; want access_denied, hard_link", what, err)
		}
	}
	w.open(Options{Roots: []RootOptions{{Path: "root", Write: true, HardLinks: "allow"}}})
	kit.Equal(t, kit.Must(w.read("hard"))(t), secret, "allowed")
	if err := w.view().Write("hard", []byte("mine"), WriteOptions{}); err != nil || w.onDisk("outside/secret.txt") != secret {
		t.Errorf("a write replaces the name, not the file behind it: %v", err)
	}
}

func second[A any](_ A, err error) error { return err }

// deny is a policy that denies some paths to a call.
type deny struct{ part string }

func (d deny) Path(abs string, write bool) error {
	if strings.Contains(abs, d.part) {
		return tool.Errorf(tool.CodeAccessDenied, "policy says no")
	}
	return nil
}

func TestTheScopeOfACallIsAskedForTheRealName(t *testing.T) {
	w := newWorld(t)
	w.write("root/closed/x.txt", secret)
	w.link("closed", "harmless")
	w.link("closed/x.txt", "link.txt")
	v := w.ws.View(&tool.Call{Scope: deny{"/closed"}})
	same := func(old []byte) ([]byte, error) { return old, nil }
	for what, err := range map[string]error{
		"open":           second(v.Open("closed/x.txt")),
		"open by link":   second(v.Open("link.txt")),
		"open by folder": second(v.Open("harmless/x.txt")),
		"stat":           second(v.Stat("harmless/x.txt")),
		"write":          v.Write("harmless/y.txt", nil, WriteOptions{}),
		"edit":           v.Edit("harmless/x.txt", 100, same),
		"mkdir":          second(v.Mkdir("harmless/d")),
		"remove":         v.Remove("harmless/x.txt"),
		"move away":      v.Rename(t.Context(), "harmless/x.txt", "free.txt", false),
		"move there":     v.Rename(t.Context(), "notes.txt", "harmless/n.txt", false),
		"list":           v.Walk(t.Context(), "harmless", WalkOptions{}, func(*Entry) error { return nil }),
	} {
		if tool.CodeOf(err) != tool.CodeAccessDenied || !strings.Contains(err.Error(), "policy says no") {
			t.Errorf("%s: %v; want policy's refusal", what, err)
		}
	}
	if f, err := v.Open("notes.txt"); err != nil {
		t.Error(err)
	} else {
		f.Close()
	}
	for _, e := range w.walked(v, "", WalkOptions{Recursive: true}) {
		if strings.HasPrefix(e, "closed") {
			t.Errorf("the walk came to %s", e)
		}
	}
}

func TestFolderWithADeniedFileIsNotMoved(t *testing.T) {
	w := newWorld(t)
	w.write("root/open/closed/x.txt", secret)
	v := w.ws.View(&tool.Call{Scope: deny{"/open/closed"}})
	kit.Refused(t, v.Rename(t.Context(), "open", "other", false), tool.CodeAccessDenied, "", "moved away")
	w.write("root/x/closed/y.txt", "")
	v = w.ws.View(&tool.Call{Scope: deny{"/new/closed"}})
	kit.Refused(t, v.Rename(t.Context(), "x", "new", false), tool.CodeAccessDenied, "", "moved there")
}

func TestAnotherSourcesRootIsNotMoved(t *testing.T) {
	w := newWorld(t)
	w.write("root/deep/theirs/x.txt", "")
	w.open(Options{Roots: []RootOptions{{Path: "root", Write: true}}, OffLimits: offlimits.NewChecker(
		&offlimits.List{Writable: []offlimits.Owned{{Path: w.root + "/deep/theirs", Source: "other"}}})})
	v := w.view()
	for _, from := range []string{"deep", "deep/theirs"} {
		kit.Refused(t, v.Rename(t.Context(), from, "away", false), tool.CodeAccessDenied, "", "%s was moved", from)
	}
	kit.OK(t, v.Rename(t.Context(), "deep/theirs/x.txt", "deep/theirs/y.txt", false))
}

// A root may be a link to the current release, which is switched while the server runs.
func TestARootThatIsALinkFollowsIt(t *testing.T) {
	w := newWorld(t)
	w.write("one/name.txt", "one")
	w.write("two/name.txt", "two")
	current := filepath.Join(w.top, "current")
	for i, release := range []string{"one", "two", "one"} {
		kit.OK(t, os.Symlink(release, current+".new"))
		kit.OK(t, os.Rename(current+".new", current))
		if i == 0 {
			w.open(Options{Roots: []RootOptions{{Path: "current"}}})
		}
		kit.Equal(t, kit.Must(w.read("name.txt"))(t), release, "the release that is read")
	}
}

// unreadable is a policy that denies reading some paths, but allows writing them.
type unreadable struct{ part string }

func (u unreadable) Path(abs string, write bool) error {
	if !write && strings.Contains(abs, u.part) {
		return tool.Errorf(tool.CodeAccessDenied, "policy says no")
	}
	return nil
}

func TestUnreadableFileCannotBeMovedToAReadablePlace(t *testing.T) {
	w := newWorld(t)
	w.write("root/open/closed/x.txt", secret)
	v := w.ws.View(&tool.Call{Scope: unreadable{"/closed"}})
	for _, from := range []string{"open", "open/closed", "open/closed/x.txt"} {
		kit.Refused(t, v.Rename(t.Context(), from, "other", false), tool.CodeAccessDenied, "", "%s was moved", from)
	}
}

func TestReadAtKeepsTheContractOfReaderAt(t *testing.T) {
	w := newWorld(t)
	f := kit.Must(w.view().Open("notes.txt"))(t)
	defer f.Close()
	buf := make([]byte, 10)
	if n, err := f.ReadAt(buf, 2); n != 4 || err != io.EOF || string(buf[:n]) != "llo\n" {
		t.Errorf("%d, %v, %q", n, err, buf[:n])
	}
	if n, err := f.ReadAt(buf[:3], 0); n != 3 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := f.ReadAt(buf, 100); n != 0 || err != io.EOF {
		t.Errorf("%d, %v", n, err)
	}
}

func TestWorkingFolderDefaultsToTheFirstRoot(t *testing.T) {
	w := newWorld(t)
	w.link("../outside", "out")
	for path, want := range map[string]string{"": w.root, "sub": filepath.Join(w.root, "sub")} {
		f := kit.Must(w.view().WorkDir(path))(t)
		kit.Equal(t, f.Abs(), want, path)
		if entries, err := os.ReadDir(f.ProcPath()); err != nil || len(entries) == 0 {
			t.Errorf("%q: %v, %v", path, entries, err)
		}
		f.Close()
	}
	for path, code := range map[string]tool.Code{"out": tool.CodeAccessDenied, "notes.txt": tool.CodeInvalidInput, "/etc": tool.CodeAccessDenied} {
		kit.Refused(t, kit.Err(w.view().WorkDir(path)), code, "", path)
	}
}

func TestGitsOwnFolderIsNotWritten(t *testing.T) {
	w := newWorld(t)
	w.write("root/.git/config", "[core]\n")
	w.write("root/.github/a.yml", "a\n")
	for _, name := range []string{"gd/HEAD", "gd/config", "gd/objects/x", "gd/refs/x", "tree/HEAD", "tree/commondir"} {
		w.write("root/"+name, "x\n")
	}
	w.link(".git", "harmless")
	v := w.view()
	for what, err := range map[string]error{
		"write":       v.Write(".git/hooks/x", nil, WriteOptions{}),
		"by case":     v.Write("sub/.GIT/config", nil, WriteOptions{}),
		"by link":     v.Write("harmless/config", nil, WriteOptions{}),
		"edit":        v.Edit(".git/config", 100, func(old []byte) ([]byte, error) { return old, nil }),
		"remove":      v.Remove(".git/config"),
		"mkdir":       second(v.Mkdir("sub/.git")),
		"move there":  v.Rename(t.Context(), "notes.txt", ".git/config", true),
		"move away":   v.Rename(t.Context(), ".git", "other", false),
		"apart":       v.Write("gd/hooks/x", nil, WriteOptions{}),
		"its config":  v.Edit("gd/config", 100, func(old []byte) ([]byte, error) { return old, nil }),
		"take apart":  v.Remove("gd/HEAD"),
		"move apart":  v.Rename(t.Context(), "gd", "other", false),
		"worktree":    v.Write("tree/commondir", nil, WriteOptions{}),
		"become .git": v.Rename(t.Context(), "sub", "sub2/.git", false),
	} {
		kit.Refused(t, err, tool.CodeAccessDenied, "", what)
	}
	kit.Check(t, v.Write(".github/b.yml", nil, WriteOptions{}))
	f := kit.Must(v.Open(".git/config"))(t)
	f.Close()
}
