package workspace

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"toolpost/config/offlimits"
	"toolpost/internal/kit"
	"toolpost/tool"
)

// kept opens a world whose folder contains an installation.
func kept(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	for _, name := range []string{"state/token", "state/single", "keys/door", "config.yaml", "app/tools/tool.py", "app/app.ai", "app/data.txt"} {
		w.write("root/"+name, secret)
	}
	in := func(names ...string) []string {
		for i, name := range names {
			names[i] = w.root + "/" + name
		}
		return names
	}
	w.open(Options{Roots: []RootOptions{{Path: "root", Write: true, HardLinks: "allow"}}, OffLimits: offlimits.NewChecker(&offlimits.List{
		Absent: in("state/", "keys/door", "data/store.db"), Config: w.root + "/config.yaml",
		ReadOnly: in("app/tools/", "app/app.ai", "app/.venv/", "later/script.py"), Writable: []offlimits.Owned{{Path: w.root}},
	})})
	return w
}

func offLimits(err error) bool {
	return err != nil && tool.CodeOf(err) == tool.CodeAccessDenied && tool.AsError(err).Reason == "off_limits"
}

func TestOffLimitsFilesAreNotReadOrFound(t *testing.T) {
	w := kept(t)
	w.link("state", "way")
	w.link("keys/door", "plain")
	for _, link := range []string{"state/token", "keys/door"} {
		kit.OK(t, os.Link(filepath.Join(w.root, link), filepath.Join(w.root, "hard-"+filepath.Base(link))))
	}
	for _, path := range []string{
		"state/token", "state/single", "./state/../state/token", "way/token", "way/single", "plain", "keys/door", "hard-token", "hard-door", w.root + "/state/token", "data/store.db",
	} {
		if text, err := w.read(path); err == nil || text != "" || path != "data/store.db" && !offLimits(err) {
			t.Errorf("%s is read: %q, %v", path, text, err)
		}
	}
	for _, path := range []string{"state", "way", "state/."} {
		if f, err := w.view().OpenDir(path); !offLimits(err) {
			t.Errorf("%s is opened: %v, %v", path, f, err)
		}
	}
	if _, err := w.view().Stat("state/token"); !offLimits(err) {
		t.Errorf("it is described: %v", err)
	}
	if text, err := w.read("config.yaml"); text != secret {
		t.Errorf("the config is not read: %v", err)
	}
	var seen []string
	err := w.view().Walk(t.Context(), "", WalkOptions{Recursive: true, Hidden: true}, func(e *Entry) error {
		if f, err := e.Open(); err == nil {
			b, _ := f.ReadAll(1 << 20)
			f.Close()
			if string(b) == secret {
				seen = append(seen, e.Rel())
			}
		}
		return nil
	})
	if want := []string{"app/app.ai", "app/data.txt", "app/tools/tool.py", "config.yaml"}; err != nil || !slices.Equal(seen, want) {
		t.Errorf("a walk finds %q, %v", seen, err)
	}
}

func TestOffLimitsFilesAreNotChanged(t *testing.T) {
	w := kept(t)
	w.write("root/evil/script.py", "evil")
	w.write("root/evil/tools/tool.py", "evil")
	v := w.view()
	tries := 0
	refused := func(what string, err error) {
		t.Helper()
		if tries++; !offLimits(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, path := range []string{
		"state/token", "state/new", "keys/door", "config.yaml", "./app/../config.yaml", "app/tools/tool.py", "app/tools/new/x.py", "app/app.ai", "app/.venv/bin/python",
		"later/script.py", "data/store.db", w.root + "/config.yaml",
	} {
		refused("write "+path, v.Write(path, []byte("evil"), WriteOptions{}))
		refused("make "+path, errOf(v.Mkdir(path)))
		refused("move to "+path, v.Rename(t.Context(), "evil/script.py", path, true))
		if _, err := os.Lstat(filepath.Join(w.root, strings.TrimPrefix(path, w.root))); err == nil {
			refused("edit "+path, v.Edit(path, 1<<20, func([]byte) ([]byte, error) { return []byte("evil"), nil }))
			refused("remove "+path, v.Remove(path))
			refused("move away "+path, v.Rename(t.Context(), path, "away", false))
		}
	}
	for _, folder := range []string{"state", "keys", "app", "app/tools"} {
		refused("move away "+folder, v.Rename(t.Context(), folder, "away", false))
		refused("remove "+folder, v.Remove(folder))
	}
	refused("put a folder where one is to be", v.Rename(t.Context(), "evil", "later", false))
	refused("put a folder in the place of one", v.Rename(t.Context(), "evil/tools", "app/tools", true))
	kit.Check(t, v.Write("app/data.txt", []byte("other"), WriteOptions{}), "the rest of an app cannot be written")
	t.Logf("%d attempts", tries)
}

func errOf(_ bool, err error) error { return err }

func TestARootThatWasMadeAgainWorksAgain(t *testing.T) {
	w := newWorld(t)
	for round := range 3 {
		kit.OK(t, os.RemoveAll(w.root))
		kit.Refused(t, kit.Err(w.read("notes.txt")), tool.CodeUnavailable, "", "round %d: a root that is gone", round)
		w.write("root/notes.txt", "again")
		if text, err := w.read("notes.txt"); text != "again" {
			t.Fatalf("round %d: a root that was made again: %q, %v", round, text, err)
		}
		kit.OK(t, w.view().Write("new.txt", []byte("new"), WriteOptions{}))
		kit.OK(t, kit.Err(os.Stat(filepath.Join(w.root, "new.txt"))), "it was written into the old folder")
	}
	before := descriptors(t)
	for range 100 {
		kit.OK(t, os.RemoveAll(w.root))
		w.write("root/notes.txt", "again")
		kit.Must(w.read("notes.txt"))(t)
	}
	kit.Eventually(t, "descriptors are closed", func() bool {
		runtime.GC()
		return descriptors(t) <= before+20
	})
}

func TestLinkInPlaceOfAWritableRootIsRefused(t *testing.T) {
	w := newWorld(t)
	list := &offlimits.List{Writable: []offlimits.Owned{{Path: w.root}}}
	w.open(Options{Roots: []RootOptions{{Path: "root", Write: true}, {Path: "root/sub", Codebase: "inner"}}, OffLimits: offlimits.NewChecker(list)})
	inner := func() (string, error) {
		v, err := w.view().Codebase("inner")
		if err != nil {
			return "", err
		}
		f, err := v.Open("secret.txt")
		if err != nil {
			return "", err
		}
		defer f.Close()
		b, err := f.ReadAll(1 << 20)
		return string(b), err
	}
	kit.OK(t, os.Rename(w.root+"/sub", w.root+"/aside"))
	kit.OK(t, os.Symlink(w.by, w.root+"/sub"))
	if text, err := inner(); err == nil || !strings.Contains(err.Error(), "symbolic link in a folder that tools may change") {
		t.Fatalf("a link in the place of a root: %q, %v", text, err)
	}
	if ws, err := Open(w.top, Options{Roots: []RootOptions{{Path: "root/sub"}}, OffLimits: offlimits.NewChecker(list)}); err == nil {
		ws.Close()
		t.Fatal("a link in the place of a root is opened at the next start")
	}
	kit.OK(t, os.Remove(w.root+"/sub"))
	kit.OK(t, os.Rename(w.root+"/aside", w.root+"/sub"))
	w.write("root/sub/secret.txt", "none")
	if text, err := inner(); text != "none" {
		t.Fatalf("the folder is back: %q, %v", text, err)
	}
}
