package notice_test

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"toolpost/host/notice"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// must fails the test on an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// tree makes a folder of two skills, one of which is a link.
func tree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "skills/one/manifest.json"), "one")
	write(t, filepath.Join(dir, "skills/one/lib/deep/code.py"), "code")
	write(t, filepath.Join(dir, "elsewhere/manifest.json"), "two")
	write(t, filepath.Join(dir, "app.ai"), "app")
	must(t, os.Symlink("../elsewhere", filepath.Join(dir, "skills/two")))
	return dir
}

func TestAChangeIsSeen(t *testing.T) {
	later := time.Now().Add(time.Minute)
	for name, change := range map[string]func(t *testing.T, dir string){
		"a longer file":        func(t *testing.T, dir string) { write(t, filepath.Join(dir, "app.ai"), "longer") },
		"the same length":      func(t *testing.T, dir string) { must(t, os.Chtimes(filepath.Join(dir, "app.ai"), later, later)) },
		"permissions":          func(t *testing.T, dir string) { must(t, os.Chmod(filepath.Join(dir, "app.ai"), 0o700)) },
		"a file that is gone":  func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, "app.ai"))) },
		"a file that is empty": func(t *testing.T, dir string) { must(t, os.Truncate(filepath.Join(dir, "app.ai"), 0)) },
		"a file deep down": func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "skills/one/lib/deep/code.py"), "more code")
		},
		"a new folder":         func(t *testing.T, dir string) { write(t, filepath.Join(dir, "skills/three/manifest.json"), "three") },
		"a file behind a link": func(t *testing.T, dir string) { write(t, filepath.Join(dir, "elsewhere/manifest.json"), "other") },
		"what was not there":   func(t *testing.T, dir string) { write(t, filepath.Join(dir, ".namel3ss/tools.yaml"), "tools") },
		"another name": func(t *testing.T, dir string) {
			must(t, os.Rename(filepath.Join(dir, "skills/one"), filepath.Join(dir, "skills/uno")))
		},
		"another target": func(t *testing.T, dir string) {
			must(t, os.Remove(filepath.Join(dir, "skills/two")))
			must(t, os.Symlink("one", filepath.Join(dir, "skills/two")))
		},
		"a file in the place of another": func(t *testing.T, dir string) {
			path := filepath.Join(dir, "app.ai")
			info, err := os.Stat(path)
			must(t, err)
			write(t, path+".new", "App")
			must(t, os.Chtimes(path+".new", info.ModTime(), info.ModTime()))
			must(t, os.Rename(path+".new", path))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := tree(t)
			paths := []string{filepath.Join(dir, "app.ai"), filepath.Join(dir, "skills") + "/", filepath.Join(dir, ".namel3ss") + "/"}
			before := notice.Look(paths)
			if again := notice.Look(paths); again != before {
				t.Error("nothing changed, and something was seen")
			}
			change(t, dir)
			if notice.Look(paths) == before {
				t.Error("it was not seen")
			}
		})
	}
}

func TestGeneratedFilesAreIgnored(t *testing.T) {
	dir := tree(t)
	before := notice.Look([]string{dir, filepath.Join(dir, ".venv")})
	for _, name := range []string{
		"skills/one/__pycache__/code.pyc", "skills/one/node_modules/a/index.js", "skills/one/.venv/lib/a.py", "skills/one/.git/HEAD",
		"skills/one/.manifest.json.swp", "skills/one/manifest.json~", "skills/one/#manifest.json#", "skills/one/old.pyc", ".venv/lib/b.py",
	} {
		write(t, filepath.Join(dir, name), "text")
	}
	write(t, filepath.Join(dir, "skills/one/empty"), "")
	must(t, os.Mkdir(filepath.Join(dir, "skills/empty"), 0o755))
	if notice.Look([]string{dir, filepath.Join(dir, ".venv")}) != before {
		t.Error("it was seen")
	}
}

func TestLookIsBoundedOnAnyTree(t *testing.T) {
	dir := tree(t)
	for i := range notice.Most + 1 {
		write(t, filepath.Join(dir, "skills/one/lib/deep", fmt.Sprint(i)), "x")
	}
	must(t, os.Symlink(dir, filepath.Join(dir, "skills/one/loop")))
	must(t, os.Symlink("/", filepath.Join(dir, "skills/one/everything")))
	must(t, os.Symlink("self", filepath.Join(dir, "skills/self")))
	must(t, syscall.Mkfifo(filepath.Join(dir, "skills/one/pipe"), 0o600))
	skills := []string{filepath.Join(dir, "skills")}
	before := notice.Look(skills)
	if !before.Cut {
		t.Error("more files than are looked at are not said")
	}
	// Files near the top are still seen.
	write(t, filepath.Join(dir, "skills/one/manifest.json"), "changed")
	if notice.Look(skills) == before {
		t.Error("it was not seen")
	}
}
