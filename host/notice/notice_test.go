package notice_test

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"toolpost/host/notice"
	"toolpost/internal/kit"
)

// tree makes a folder of two skills, one of which is a link.
func tree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	kit.Write(t, filepath.Join(dir, "skills/one/manifest.json"), "one")
	kit.Write(t, filepath.Join(dir, "skills/one/lib/deep/code.py"), "code")
	kit.Write(t, filepath.Join(dir, "elsewhere/manifest.json"), "two")
	kit.Write(t, filepath.Join(dir, "app.ai"), "app")
	kit.OK(t, os.Symlink("../elsewhere", filepath.Join(dir, "skills/two")))
	return dir
}

func TestAChangeIsSeen(t *testing.T) {
	later := time.Now().Add(time.Minute)
	for name, change := range map[string]func(t *testing.T, dir string){
		"a longer file":        func(t *testing.T, dir string) { kit.Write(t, filepath.Join(dir, "app.ai"), "longer") },
		"the same length":      func(t *testing.T, dir string) { kit.OK(t, os.Chtimes(filepath.Join(dir, "app.ai"), later, later)) },
		"permissions":          func(t *testing.T, dir string) { kit.OK(t, os.Chmod(filepath.Join(dir, "app.ai"), 0o700)) },
		"a file that is gone":  func(t *testing.T, dir string) { kit.OK(t, os.Remove(filepath.Join(dir, "app.ai"))) },
		"a file that is empty": func(t *testing.T, dir string) { kit.OK(t, os.Truncate(filepath.Join(dir, "app.ai"), 0)) },
		"a file deep down": func(t *testing.T, dir string) {
			kit.Write(t, filepath.Join(dir, "skills/one/lib/deep/code.py"), "more code")
		},
		"a new folder": func(t *testing.T, dir string) {
			kit.Write(t, filepath.Join(dir, "skills/three/manifest.json"), "three")
		},
		"a file behind a link": func(t *testing.T, dir string) { kit.Write(t, filepath.Join(dir, "elsewhere/manifest.json"), "other") },
		"what was not there":   func(t *testing.T, dir string) { kit.Write(t, filepath.Join(dir, ".namel3ss/tools.yaml"), "tools") },
		"another name": func(t *testing.T, dir string) {
			kit.OK(t, os.Rename(filepath.Join(dir, "skills/one"), filepath.Join(dir, "skills/uno")))
		},
		"another target": func(t *testing.T, dir string) {
			kit.OK(t, os.Remove(filepath.Join(dir, "skills/two")))
			kit.OK(t, os.Symlink("one", filepath.Join(dir, "skills/two")))
		},
		"a file in the place of another": func(t *testing.T, dir string) {
			path := filepath.Join(dir, "app.ai")
			info := kit.Must(os.Stat(path))(t)
			kit.Write(t, path+".new", "App")
			kit.OK(t, os.Chtimes(path+".new", info.ModTime(), info.ModTime()))
			kit.OK(t, os.Rename(path+".new", path))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := tree(t)
			paths := []string{filepath.Join(dir, "app.ai"), filepath.Join(dir, "skills") + "/", filepath.Join(dir, ".namel3ss") + "/"}
			before := notice.Look(paths)
			kit.Equal(t, notice.Look(paths), before, "nothing changed, and something was seen")
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
		kit.Write(t, filepath.Join(dir, name), "text")
	}
	kit.Write(t, filepath.Join(dir, "skills/one/empty"), "")
	kit.OK(t, os.Mkdir(filepath.Join(dir, "skills/empty"), 0o755))
	kit.Equal(t, notice.Look([]string{dir, filepath.Join(dir, ".venv")}), before, "it was seen")
}

func TestLookIsBoundedOnAnyTree(t *testing.T) {
	dir := tree(t)
	for i := range notice.Most + 1 {
		kit.Write(t, filepath.Join(dir, "skills/one/lib/deep", fmt.Sprint(i)), "x")
	}
	kit.OK(t, os.Symlink(dir, filepath.Join(dir, "skills/one/loop")))
	kit.OK(t, os.Symlink("/", filepath.Join(dir, "skills/one/everything")))
	kit.OK(t, os.Symlink("self", filepath.Join(dir, "skills/self")))
	kit.OK(t, syscall.Mkfifo(filepath.Join(dir, "skills/one/pipe"), 0o600))
	skills := []string{filepath.Join(dir, "skills")}
	before := notice.Look(skills)
	if !before.Cut {
		t.Error("more files than are looked at are not said")
	}
	// Files near the top are still seen.
	kit.Write(t, filepath.Join(dir, "skills/one/manifest.json"), "changed")
	if notice.Look(skills) == before {
		t.Error("it was not seen")
	}
}
