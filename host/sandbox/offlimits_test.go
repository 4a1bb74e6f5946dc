//go:build linux

package sandbox_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"toolpost/config/offlimits"
	"toolpost/host/process"
	"toolpost/host/sandbox"
	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
	"toolpost/wire/bounded"
)

// vandal tries to change, to replace or to move away the given paths, and to read the secret ones. It prints its
// successes.
const vandal = `import os, sys, shutil, ctypes
libc = ctypes.CDLL(None, use_errno=True)
root, evil = sys.argv[1], "EVIL"
tries = 0
def attempt(what, f):
    global tries
    tries += 1
    try: r = f()
    except (OSError, shutil.Error): return
    if r is not False: print("COULD", what)
def write(p, mode="w"):
    with open(p, mode) as f: f.write(evil)
def exchange(a, b):
    if libc.renameat2(-100, a.encode(), -100, b.encode(), 2): raise OSError(ctypes.get_errno(), a)
def beside(folder, isfolder):
    p = folder + "/beside" + str(isfolder)
    try: os.mkdir(p) if isfolder else write(p)
    except OSError: pass
    return p
own = root + "/free/own"
os.mkdir(own); write(own + "/file"); os.mkdir(own + "/folder"); write(own + "/folder/x")
for p in sys.argv[2:]:
    folder = os.path.isdir(p)
    if folder:
        attempt("make in " + p, lambda: write(p + "/new"))
        attempt("make a folder in " + p, lambda: os.mkdir(p + "/d"))
        attempt("remove " + p, lambda: os.rmdir(p))
        attempt("remove all of " + p, lambda: shutil.rmtree(p))
        for name in os.listdir(p):
            attempt("write " + name + " in " + p, lambda: write(p + "/" + name))
            attempt("move " + name + " out of " + p, lambda: os.rename(p + "/" + name, own + "/out"))
    else:
        attempt("append to " + p, lambda: write(p, "a"))
        attempt("write " + p, lambda: write(p))
        attempt("truncate " + p, lambda: os.truncate(p, 0))
        attempt("remove " + p, lambda: os.unlink(p))
        attempt("link " + p, lambda: os.link(p, own + "/hard"))
        attempt("change the mode of " + p, lambda: os.chmod(p, 0o777))
    above = os.path.dirname(p)
    for other in own + ("/folder" if folder else "/file"), beside(above, folder):
        attempt("rename over " + p, lambda: os.rename(other, p))
        attempt("exchange " + p, lambda: exchange(other, p))
    attempt("move away " + p, lambda: os.rename(p, own + "/away"))
    attempt("move aside " + p, lambda: os.rename(p, p + "-aside"))
    attempt("link in the place of " + p, lambda: os.symlink("/", p))
    while len(above) > len(root):
        attempt("move away the folder " + above, lambda: os.rename(above, own + "/above"))
        attempt("move aside the folder " + above, lambda: os.rename(above, above + "-aside"))
        attempt("exchange the folder " + above, lambda: exchange(own + "/folder", above))
        attempt("exchange the folder " + above + " in its place", lambda: exchange(beside(os.path.dirname(above), True), above))
        attempt("remove the folder " + above, lambda: shutil.rmtree(above))
        above = os.path.dirname(above)
print("attempts", tries)
`

// An installation is a folder that tools may write, including everything that is off limits to them.
type installation struct {
	dir, base string
	list      *offlimits.List
}

func install(t *testing.T) *installation {
	t.Helper()
	base := kit.Must(filepath.EvalSymlinks(t.TempDir()))(t)
	dir := base + "/work"
	for _, folder := range []string{"/state", "/a/b/tools", "/free"} {
		kit.OK(t, os.MkdirAll(dir+folder, 0o755))
	}
	for _, file := range []string{"/state/token", "/a/key.pem", "/config.yaml", "/a/b/tools/tool.py", "/a/b/app.ai", "/free/file"} {
		kit.OK(t, os.WriteFile(dir+file, []byte(canary), 0o644))
	}
	in := func(names ...string) []string {
		for i, name := range names {
			names[i] = dir + "/" + name
		}
		return names
	}
	return &installation{dir, base, &offlimits.List{
		Absent: in("state/", "a/key.pem", "data/store.db", "later/"), Config: dir + "/config.yaml",
		ReadOnly: in("a/b/tools/", "a/b/app.ai", "a/b/.venv/", "a/b/packs/", "x/y/script.py"), Writable: []offlimits.Owned{{Path: dir}},
	}}
}

// things lists the paths that are off limits.
func (i *installation) things() []string {
	var all []string
	for _, path := range slices.Concat(i.list.Absent, i.list.ReadOnly, []string{i.list.Config}) {
		all = append(all, filepath.Clean(path))
	}
	return all
}

// check verifies that everything off limits is unchanged, or empty.
func (i *installation) check(t *testing.T) {
	t.Helper()
	whole := 0
	for _, thing := range i.things() {
		err := filepath.WalkDir(thing, func(path string, d fs.DirEntry, err error) error {
			switch content, _ := os.ReadFile(path); {
			case err != nil:
				return err
			case !d.IsDir() && !d.Type().IsRegular(), !d.IsDir() && len(content) > 0 && string(content) != canary:
				t.Errorf("%s is %v with %q", path, d.Type(), content)
			case string(content) == canary:
				whole++
			}
			return nil
		})
		if err != nil && !os.IsNotExist(err) {
			t.Error(err)
		}
	}
	kit.Equal(t, whole, 5, "files off limits that are whole")
}

func (i *installation) vandal(t *testing.T, p sandbox.Profile) (attempts int) {
	t.Helper()
	p.Off, p.Subprocess = i.list, true
	cmd := confine(sandbox.Feasible(p), vandal)
	cmd.Argv = append(append(cmd.Argv, i.dir), i.things()...)
	out, _ := run(t, cmd)
	if _, after, ok := strings.Cut(out, "attempts "); !ok || strings.Contains(out, "COULD") {
		t.Error(out)
	} else if _, err := fmt.Sscan(after, &attempts); err != nil {
		t.Error(err)
	}
	i.check(t)
	return attempts
}

func TestOffLimitsFilesCannotBeChanged(t *testing.T) {
	tooltest.NoLeaks(t)
	total := 0
	for name, writes := range map[string]func(dir string) (write, read []string){
		"a folder":            func(dir string) (write, read []string) { return []string{dir}, nil },
		"the folder above it": func(dir string) (write, read []string) { return []string{filepath.Dir(dir)}, nil },
		"folders in folders":  func(dir string) (write, read []string) { return []string{dir, dir + "/a", dir + "/a/b"}, nil },
		"read-only between":   func(dir string) (write, read []string) { return []string{dir, dir + "/a/b"}, []string{dir + "/a"} },
		"its own folder":      func(dir string) (write, read []string) { return []string{dir}, []string{dir + "/a/b"} },
		"single ones":         func(dir string) (write, read []string) { return []string{dir + "/a", dir + "/free"}, []string{dir} },
		"what is off limits": func(dir string) (write, read []string) {
			return []string{dir + "/a/b/tools", dir + "/config.yaml", dir}, nil
		},
		"everything there is": func(string) (write, read []string) { return []string{"/"}, nil },
	} {
		t.Run(name, func(t *testing.T) {
			i := install(t)
			write, read := writes(i.dir)
			p := sandbox.Profile{Writable: write, Readable: read}
			total += i.vandal(t, p)
			kit.OK(t, os.RemoveAll(i.dir+"/free/own"))
			total += i.vandal(t, p) // with everything that the first room has left behind
		})
	}
	t.Logf("%d attempts", total)
}

func TestOffLimitsFilesCannotBeChangedAsAnOrdinaryUser(t *testing.T) {
	asNobody(t, "TestOffLimitsFilesCannotBeChanged")
}

// spy prints what it can read of the given paths.
const spy = `import os, sys
for p in sys.argv[1:]:
    try:
        if os.path.isdir(p):
            for name in os.listdir(p): print(p, "has", name)
        else:
            with open(p) as f: print(p, "is", f.read())
    except OSError: pass
`

func TestHiddenPathsAreHiddenBeforeTheyExist(t *testing.T) {
	tooltest.NoLeaks(t)
	for name, p := range map[string]func(dir string) sandbox.Profile{
		"read":  func(dir string) sandbox.Profile { return sandbox.Profile{Readable: []string{dir}} },
		"write": func(dir string) sandbox.Profile { return sandbox.Profile{Writable: []string{dir}} },
	} {
		t.Run(name, func(t *testing.T) {
			i := install(t)
			profile := p(i.dir)
			profile.Off = i.list
			cmd := confine(profile, `import sys; print("ready", flush=True); sys.stdin.readline()`+"\n"+spy)
			secrets := []string{i.dir + "/state", i.dir + "/state/token", i.dir + "/later", i.dir + "/a/key.pem", i.dir + "/data/store.db", i.list.Config}
			cmd.Argv = append(cmd.Argv, secrets...)
			c, err := process.Start(cmd)
			kit.OK(t, err)
			defer c.Close()
			lines := bounded.NewLines(c.Stdout, bounded.LineLimits{})
			_, err = lines.Next()
			kit.OK(t, err)
			// Files that the server writes while the child runs.
			for _, file := range []string{"/later/token", "/data/store.db"} {
				kit.OK(t, os.WriteFile(i.dir+file, []byte(canary), 0o600))
			}
			c.Feed([]byte("\n"))
			for {
				line, err := lines.Next()
				if err != nil {
					break
				}
				if !strings.HasSuffix(string(line), " is ") {
					t.Errorf("it sees that %s", line)
				}
			}
		})
	}
}

func TestOffLimitsPathsRefuseTheStartWithoutMounts(t *testing.T) {
	tooltest.NoLeaks(t)
	i := install(t)
	sandbox.Without(t, sandbox.LayerMounts)
	for name, p := range map[string]sandbox.Profile{
		"hidden in what is read":     {Readable: []string{i.dir}},
		"fixed in what is written":   {Writable: []string{i.dir + "/a/b"}},
		"nothing in what is written": {Writable: []string{i.dir + "/free"}},
	} {
		p.Off, p.Subprocess = i.list, true
		child, err := process.Start(process.Command{Argv: []string{"/bin/true"}, Confine: &sandbox.Confinement{Profile: sandbox.Feasible(p)}})
		if err == nil {
			child.Close()
		}
		kit.Equal(t, tool.AsError(err) != nil && tool.AsError(err).Reason == sandbox.CoverageMissing, !strings.HasPrefix(name, "nothing"), name, err)
	}
}

// swapper renames a folder, puts a link to everything in its place, and undoes that, again and again.
const swapper = `import os, sys
root, inner, n = sys.argv[1], sys.argv[2], 0
print("ready", flush=True)
while True:
    try:
        os.rename(root + "/" + inner, root + "/aside"); os.symlink("/", root + "/" + inner); n += 1
        os.unlink(root + "/" + inner); os.rename(root + "/aside", root + "/" + inner)
    except OSError as e: pass
    if n % 1000 == 0: print(n, flush=True)
`

func TestNoLinkOfAToolLeadsOut(t *testing.T) {
	tooltest.NoLeaks(t)
	base, err := filepath.EvalSymlinks(t.TempDir())
	kit.OK(t, err)
	secret := base + "/secret"
	kit.OK(t, os.Mkdir(secret, 0o755))
	kit.OK(t, os.WriteFile(secret+"/file", []byte(canary), 0o644))
	root := base + "/root"
	kit.OK(t, os.MkdirAll(root+"/outer/inner"+secret, 0o755))
	list := &offlimits.List{Writable: []offlimits.Owned{{Path: root}}}

	evil := confine(sandbox.Profile{Writable: []string{root}, Off: list}, swapper)
	evil.Argv = append(evil.Argv, root, "outer")
	c := kit.Must(process.Start(evil))(t)
	var drained sync.WaitGroup
	lines := bounded.NewLines(c.Stdout, bounded.LineLimits{})
	_, err = lines.Next()
	kit.OK(t, err)
	var last string
	drained.Go(func() {
		for line, err := lines.Next(); err == nil; line, err = lines.Next() {
			last = string(line)
		}
	})
	started, refused := 0, map[string]int{}
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
		for _, p := range []sandbox.Profile{
			{Readable: []string{root + "/outer/inner"}}, {Writable: []string{root + "/outer/inner"}},
			{Writable: []string{root, root + "/outer/inner"}}, {Readable: []string{root + "/outer"}, Writable: []string{root}},
		} {
			// A link in place of outer leads to / and so to the secret.
			p.Off = list
			cmd := process.Command{Argv: []string{"/bin/cat", root + "/outer/inner" + secret + "/file", root + "/outer" + secret + "/file", secret + "/file"}, Confine: &sandbox.Confinement{Profile: p}}
			child, err := process.Start(cmd)
			if err != nil {
				refused[tool.AsError(err).Message]++
				continue
			}
			child.CloseStdin()
			out, _ := bounded.ReadDocument(child.Stdout, 1<<20)
			child.Close()
			if started++; strings.Contains(string(out), canary) {
				t.Fatal("a room had the host's files")
			}
		}
	}
	c.Kill()
	c.Close()
	drained.Wait()
	t.Logf("%d rooms, and %d kinds of refusals, beside %s swaps: %v", started, len(refused), last, refused)
	// On a slow machine every start may meet a link; with a folder in place again it must succeed.
	kit.OK(t, os.RemoveAll(root+"/outer"))
	kit.OK(t, os.MkdirAll(root+"/outer/inner", 0o755))
	if out, _ := run(t, confine(sandbox.Profile{Readable: []string{root + "/outer/inner"}, Off: list}, `print("in")`)); out != "in\n" {
		t.Errorf("a room of what is there now: %s", out)
	}
}

func TestNoLinkOfAToolLeadsOutAsAnOrdinaryUser(t *testing.T) {
	asNobody(t, "TestNoLinkOfAToolLeadsOut")
}

func TestToolsLinkIsRefusedUntilReplacedByAFolder(t *testing.T) {
	tooltest.NoLeaks(t)
	base := kit.Must(filepath.EvalSymlinks(t.TempDir()))(t)
	root, own := base+"/root", base+"/own"
	kit.OK(t, os.MkdirAll(root+"/inner", 0o755))
	kit.OK(t, os.Symlink(root, own)) // a link that no tool can have made
	list := &offlimits.List{Writable: []offlimits.Owned{{Path: own}}}
	cat := func() (string, error) {
		child, err := process.Start(process.Command{
			Argv: []string{"/bin/cat", root + "/inner/file"}, Confine: &sandbox.Confinement{Profile: sandbox.Profile{Readable: []string{own + "/inner"}, Off: list}},
		})
		if err != nil {
			return "", err
		}
		defer child.Close()
		child.CloseStdin()
		out, err := bounded.ReadDocument(child.Stdout, 1<<20)
		return string(out), err
	}
	for round := range 3 {
		kit.OK(t, os.RemoveAll(root+"/inner"))
		kit.OK(t, os.Symlink("/", root+"/inner"))
		if out, err := cat(); err == nil || !strings.Contains(err.Error(), "symbolic link in a folder that tools may change") {
			t.Fatalf("a link that a tool may have made: %q, %v", out, err)
		}
		kit.OK(t, os.Remove(root+"/inner"))
		kit.Fails(t, kit.Err(cat()), "", "what is not there was given")
		kit.OK(t, os.Mkdir(root+"/inner", 0o755))
		kit.OK(t, os.WriteFile(root+"/inner/file", fmt.Append(nil, round), 0o644))
		kit.MustEqual(t, kit.Must(cat())(t), fmt.Sprint(round), "made again")
	}
}

// TestLinkSwappedInDuringSetupIsNotFollowed swaps at the worst moment: when every path has been resolved, and
// nothing has been mounted.
func TestLinkSwappedInDuringSetupIsNotFollowed(t *testing.T) {
	tooltest.NoLeaks(t)
	for name, c := range map[string]struct {
		read, write, dir, swap string
	}{
		"above what is read":       {read: "/a/b", swap: "/a"},
		"what is read":             {read: "/a/b", swap: "/a/b"},
		"above what is written":    {write: "/a/b", swap: "/a"},
		"in what is written":       {write: "", read: "/a/b", swap: "/a"},
		"above what is off limits": {write: "", swap: "/a"},
		"the working folder":       {write: "", dir: "/free", swap: "/free"},
	} {
		t.Run(name, func(t *testing.T) {
			i := install(t)
			p := sandbox.Profile{Off: i.list, Writable: []string{i.dir + c.write}}
			if c.read != "" {
				p.Readable = []string{i.dir + c.read}
				if c.write == "" && !strings.HasPrefix(name, "in ") {
					p.Writable = nil
				}
			}
			null := kit.Must(os.OpenFile(os.DevNull, os.O_RDWR, 0))(t)
			defer null.Close()
			child, err := sandbox.Start(sandbox.Spawn{
				Path: "/bin/true", Argv: []string{"true"}, Dir: i.dir + c.dir, Files: []*os.File{null, null, null}, Confinement: sandbox.Confinement{Profile: p},
				Born: func(int) error {
					kit.OK(t, os.Rename(i.dir+c.swap, i.dir+"/aside"))
					return os.Symlink(i.dir+"/aside", i.dir+c.swap) // so that only the link is wrong
				},
			})
			if err == nil {
				_ = syscall.Kill(child.Pid, syscall.SIGKILL)
				_, _ = syscall.Wait4(child.Pid, nil, 0, nil)
				child.End()
			}
			if !sandbox.Moved(err) {
				t.Errorf("it was built with another folder than was looked up: %v", err)
			}
		})
	}
}

func TestHiddenPathsMayLieInSystemFolders(t *testing.T) {
	tooltest.NoLeaks(t)
	dir, err := os.MkdirTemp("/usr/local/share", "toolpost-test-")
	if err != nil {
		t.Skip("not ours to write: ", err)
	}
	defer os.RemoveAll(dir)
	kit.OK(t, os.MkdirAll(dir+"/state", 0o755))
	for _, name := range []string{"/key", "/state/token", "/free"} {
		kit.OK(t, os.WriteFile(dir+name, []byte(canary), 0o644))
	}
	cmd := confine(sandbox.Profile{Off: &offlimits.List{Absent: []string{dir + "/key", dir + "/state/"}}}, spy)
	cmd.Argv = append(cmd.Argv, dir+"/key", dir+"/state", dir+"/state/token", dir+"/free")
	if out, _ := run(t, cmd); out != dir+"/key is \n"+dir+"/free is "+canary+"\n" {
		t.Error(out)
	}
}

// Devices belong to the host, and so does the one that covers a file: nothing about them may be changed.
func TestNoDeviceOfTheHostIsChanged(t *testing.T) {
	tooltest.NoLeaks(t)
	i := install(t)
	cmd := confine(sandbox.Profile{Writable: []string{i.dir}, Off: i.list}, `import os, sys
for p in sys.argv[1:]:
    mode = os.stat(p).st_mode & 0o777
    for what, do in ("mode", lambda: os.chmod(p, mode)), ("owner", lambda: os.chown(p, os.getuid(), os.getgid())), ("times", lambda: os.utime(p, (1, 1))):
        try: do(); print("COULD change the", what, "of", p)
        except OSError: pass
open("/dev/null", "w").write("x"); print("done")
`)
	cmd.Argv = append(cmd.Argv, i.list.Config, i.dir+"/a/key.pem", "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
	if out, _ := run(t, cmd); out != "done\n" {
		t.Error(out)
	}
}

// A tool's own folder is read-only in its room anyway; its parent is not.
func TestParentOfAToolsFolderCannotBeMoved(t *testing.T) {
	tooltest.NoLeaks(t)
	dir := kit.Must(filepath.EvalSymlinks(t.TempDir()))(t)
	own := dir + "/skills/one"
	kit.OK(t, os.MkdirAll(own, 0o755))
	cmd := process.Command{Argv: []string{"/bin/mv", dir + "/skills", dir + "/other"}, Confine: &sandbox.Confinement{Profile: sandbox.Profile{
		Writable: []string{dir}, Readable: []string{own}, Subprocess: true, Off: &offlimits.List{ReadOnly: []string{own + "/"},
			Writable: []offlimits.Owned{{Path: dir}}},
	}}}
	if out, exit := run(t, cmd); exit == (process.Exit{}) {
		t.Errorf("it was moved away: %s", out)
	}
}
