package file

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"toolpost/host/workspace"
	"toolpost/internal/hostile"
	"toolpost/internal/kit"
	"toolpost/internal/rounds"
	"toolpost/tool"
	"toolpost/tool/tooltest"
	"toolpost/wire/strictjson"
)

// sizeOfSecret is how a listing would describe a file with the secret.
var sizeOfSecret = fmt.Sprintf(`"size":%d,"type":"file"`, len(secret))

func hostilePaths(w *world) []string {
	return hostile.Paths(hostile.Place{Top: w.top, Root: w.root, Outside: w.outside})
}

// newHostileWorld returns a world with every trap in it.
func newHostileWorld(t *testing.T) *world {
	w := newWorldIn(t, memory(t))
	w.write("rootbeside/secret.txt", secret)
	w.write("outside/linked.txt", secret+"!")
	w.write("outside/sub/secret.txt", secret)
	w.write("outside/.env", secret)
	w.setTraps()
	return w
}

// memory returns a folder in memory, if there is one: so many writes would take long on a disk.
func memory(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "toolpost-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// setTraps restores everything in the root that an operation may have removed.
func (w *world) setTraps() {
	w.t.Helper()
	for name, content := range map[string]string{
		"root/notes.txt": "hello\n", "root/sub/deep/a.go": "package a\n", "root/.env": secret, "root/sub/.ssh/config": secret, "root/secret.txt": "public",
	} {
		if _, err := os.Lstat(filepath.Join(w.top, name)); err != nil {
			w.write(name, content)
			kit.OK(w.t, os.Chtimes(filepath.Join(w.top, name), time.Unix(1, 0), time.Unix(1, 0)))
		}
	}
	for name, target := range map[string]string{
		"filelink": "../outside/secret.txt", "envlink": ".env", "dirlink": "../outside", "abslink": w.outside, "chain": "dirlink", "loop": "loop",
		"dangling": "../outside/nothing", "inner": "sub", "rootlink": "/",
	} {
		if err := os.Symlink(target, filepath.Join(w.root, name)); err != nil && !errors.Is(err, os.ErrExist) {
			w.t.Fatal(err)
		}
	}
	hard := filepath.Join(w.root, "hard")
	if err := os.Link(filepath.Join(w.outside, "linked.txt"), hard); err != nil && !errors.Is(err, os.ErrExist) {
		w.t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(w.root, "fifo"), 0o644); err != nil && !errors.Is(err, os.ErrExist) {
		w.t.Fatal(err)
	}
}

// canaries describe everything outside, and the secrets inside: names, contents, modes and times.
func (w *world) canaries() map[string]string {
	w.t.Helper()
	seen := map[string]string{}
	kit.OK(w.t, filepath.WalkDir(w.top, func(path string, d os.DirEntry, err error) error {
		rel, inside := strings.CutPrefix(path, w.root+"/")
		if err != nil || path == w.root || inside && rel != ".env" && rel != "sub/.ssh/config" {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		seen[path] = info.Mode().String()
		if info.Mode().IsRegular() {
			seen[path] += fmt.Sprintf(" %s %s", info.ModTime(), w.readFile(path))
		}
		return nil
	}))
	return seen
}

func (w *world) readFile(path string) string {
	w.t.Helper()
	return string(kit.Must(os.ReadFile(path))(w.t))
}

// An attack is a call that is made with each path.
type attack struct {
	name, variant string
	before, after string // the arguments, around the path as JSON
	changes       bool
}

func attacks() []attack {
	return []attack{
		{name: readName, before: `{"path":`, after: `}`},
		{name: readName, variant: "lines", before: `{"from_line":1,"to_line":2,"path":`, after: `}`},
		{name: readName, variant: "stream", before: `{"stream":true,"path":`, after: `}`},
		{name: listName, before: `{"path":`, after: `}`},
		{name: globName, before: `{"pattern":"*","hidden":true,"path":`, after: `}`},
		{name: statName, before: `{"path":`, after: `}`},
		{name: writeName, before: `{"content":"hostile","path":`, after: `}`, changes: true},
		{name: writeName, variant: "new", before: `{"content":"hostile","create_only":true,"path":`, after: `}`, changes: true},
		{name: writeName, variant: "more", before: `{"content":"hostile","append":true,"path":`, after: `}`, changes: true},
		{name: editName, before: `{"old":"secret","new":"hostile","replace_all":true,"path":`, after: `}`, changes: true},
		{name: deleteName, before: `{"path":`, after: `}`, changes: true},
		{name: moveName, before: `{"to":"stolen","from":`, after: `}`, changes: true},
		{name: moveName, variant: "to", before: `{"from":"notes.txt","overwrite":true,"to":`, after: `}`, changes: true},
		{name: folderName, before: `{"path":`, after: `}`, changes: true},
	}
}

// on makes the call, and returns everything that came back: output, events, and the error's text.
func (a attack) on(w *world, path string) (string, error) {
	var got strings.Builder
	events := tool.SinkFunc(func(e tool.Event) error { got.Write(e.Data); return nil })
	quoted := kit.Must(strictjson.Marshal(path))(w.t)
	res, err := w.runner.Invoke(w.t.Context(), &tool.Call{Tool: a.name, Spec: &tool.Spec{Name: a.name}, Args: slices.Concat([]byte(a.before), quoted, []byte(a.after))}, events)
	if err != nil {
		got.WriteString(err.Error())
	} else {
		got.Write(res.Output)
	}
	return got.String(), err
}

// Whatever a call asks for, nothing outside and no secret inside is read, listed, described or changed.
func TestNoHostilePathGetsOut(t *testing.T) {
	tooltest.NoLeaks(t)
	if n := len(hostilePaths(&world{root: "/r", outside: "/o", top: "/"})); n < 20_000 {
		t.Fatalf("only %d paths", n)
	}
	for n, a := range attacks() {
		every := rounds.Of(4, 1) // without TOOLPOST_LONG each path is tried with every fourth tool
		if a.variant != "" {
			every *= 4 // the plain variant of the tool tries more
		}
		t.Run(a.name+" "+a.variant, func(t *testing.T) {
			t.Parallel()
			w := newHostileWorld(t)
			before := w.canaries()
			for i, path := range hostilePaths(w) {
				if (i+n)%every == 0 {
					w.survives(a, path)
				}
				if i%5000 == 0 {
					w.checkCanaries(before, path)
				}
			}
			w.checkCanaries(before, "the last path")
		})
	}
}

// survives makes one call and fails if something leaked, or if the call ended as no call should.
func (w *world) survives(a attack, path string) {
	w.t.Helper()
	got, err := a.on(w, path)
	switch code := tool.CodeOf(err); {
	case strings.Contains(got, secret), strings.Contains(got, sizeOfSecret):
		w.t.Fatalf("%q: the secret came out: %s", path, got)
	case code == tool.CodeInternal, code == tool.CodeTimeout:
		w.t.Fatalf("%q: %v", path, err)
	case err == nil && strings.ContainsAny(path, "\n\x00"):
		w.t.Fatalf("%q was taken", path)
	case err == nil && a.changes:
		os.RemoveAll(filepath.Join(w.root, "stolen"))
		w.setTraps()
	}
}

func (w *world) checkCanaries(before map[string]string, at string) {
	w.t.Helper()
	kit.MustEqual(w.t, cmp.Diff(before, w.canaries()),
		"", "up to %q something was changed that was not offered (-before +after)", at)
}

func TestHostileRootsOfAnotherCallerStayHidden(t *testing.T) {
	w := newHostileWorld(t)
	w.open(Options{}, workspace.RootOptions{Path: "root", Write: true}, workspace.RootOptions{Path: "outside", Write: true, Callers: tool.Globs{"ada"}})
	before := w.canaries()
	for _, a := range attacks() {
		for _, path := range []string{w.outside + "/secret.txt", "sub/secret.txt", w.outside} {
			w.survives(a, path)
		}
	}
	w.checkCanaries(before, "the last path")
}
