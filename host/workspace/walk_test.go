package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// walked returns the entries that a walk visits, in its order.
func (w *world) walked(v *View, path string, o WalkOptions) []string {
	w.t.Helper()
	var mu sync.Mutex
	bySeq := map[int]string{}
	kit.OK(w.t, v.Walk(w.t.Context(), path, o, func(e *Entry) error {
		mu.Lock()
		defer mu.Unlock()
		bySeq[e.Seq] = e.Below()
		return nil
	}), "walk %s", path)
	got := make([]string, len(bySeq))
	for i, p := range bySeq {
		got[i] = p
	}
	return got
}

func TestAWalkComesInTheOrderOfThePaths(t *testing.T) {
	tooltest.NoLeaks(t)
	w := newWorld(t)
	for _, name := range []string{"sub.txt", "sub-a", "sub/b", "sub0", "z/a", "a/z/z", "a.go", "a/b"} {
		w.write("root/"+name, "")
	}
	for range 300 {
		w.write(fmt.Sprintf("root/many/%d/%d", rand.IntN(50), rand.IntN(1000)), "")
	}
	got := w.walked(w.view(), "", WalkOptions{Recursive: true})
	if !slices.IsSorted(got) {
		t.Errorf("not sorted: %q", got)
	}
	for _, parallel := range []int{2, 5} {
		kit.Equal(t, cmp.Diff(got, w.walked(w.view(), "", WalkOptions{Recursive: true, Parallel: parallel})),
			"", "%d at once (-one +several)", parallel)
	}
}

func TestAnEntryKnowsItsPaths(t *testing.T) {
	w := newWorld(t)
	w.link("sub", "alias")
	for start, shown := range map[string]string{"sub": "sub/deep/a.go", "alias/": "alias/deep/a.go", "./sub/": "./sub/deep/a.go", w.root + "/sub": w.root + "/sub/deep/a.go"} {
		kit.Check(t, w.view().Walk(t.Context(), start, WalkOptions{Recursive: true}, func(e *Entry) error {
			if e.Name != "a.go" {
				return nil
			}
			got := []string{e.Shown(), e.Below(), e.Rel(), e.Abs()}
			if diff := cmp.Diff([]string{shown, "deep/a.go", "sub/deep/a.go", filepath.Join(w.root, "sub/deep/a.go")}, got); diff != "" {
				t.Errorf("from %s:\n%s", start, diff)
			}
			f, err := e.Open()
			if err != nil {
				return err
			}
			defer f.Close()
			if b, err := f.ReadAll(100); err != nil || string(b) != "package a\n" || f.Abs() != e.Abs() || f.Shown() != shown {
				t.Errorf("from %s: %q, %v", start, b, err)
			}
			return nil
		}), "from %s", start)
	}
}

func TestWalkOptionsSelectEntries(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{".hidden", "src/a.go", "src/a_test.go", "src/b.ts", "src/node_modules/x.ts", "top.ts", ".env"} {
		w.write("root/"+name, "")
	}
	w.link("src", "link")
	for _, c := range []struct {
		o    WalkOptions
		want string
	}{
		{WalkOptions{}, "link notes.txt src sub top.ts"},
		{WalkOptions{Hidden: true}, ".hidden link notes.txt src sub top.ts"},
		{WalkOptions{Recursive: true, Globs: []string{"*.ts"}}, "src/b.ts src/node_modules/x.ts top.ts"},
		{WalkOptions{Recursive: true, Globs: []string{"*.ts", "!node_modules"}}, "src/b.ts top.ts"},
		{WalkOptions{Recursive: true, Globs: []string{"src/*.go", "!*_test.go"}}, "src/a.go"},
		{WalkOptions{Recursive: true, Globs: []string{"!src", "!sub"}}, "link notes.txt top.ts"},
		{WalkOptions{Recursive: true, Globs: []string{"src/**"}}, "src src/a.go src/a_test.go src/b.ts src/node_modules src/node_modules/x.ts"},
	} {
		kit.Equal(t, strings.Join(w.walked(w.view(), "", c.o), " "), c.want, c.o)
	}
	for _, bad := range []WalkOptions{{Globs: []string{"[a"}}, {Globs: []string{""}}, {Globs: []string{"!"}}, {Globs: make([]string, MaxGlobs+1)}} {
		kit.Refused(t, w.view().Walk(t.Context(), "", bad, nil), tool.CodeInvalidInput, "", bad.Globs)
	}
}

func TestAWalkIsBounded(t *testing.T) {
	w := newWorld(t)
	w.write("root/a/b/c/d", "")
	nothing := func(*Entry) error { return nil }
	for what, o := range map[string]WalkOptions{"depth": {Recursive: true, MaxDepth: 3}, "entries": {Recursive: true, MaxEntries: 5}} {
		err := w.view().Walk(t.Context(), "", o, nothing)
		if tool.CodeOf(err) != tool.CodeInvalidInput || tool.AsError(err).Reason != "too_large" {
			t.Errorf("%s: %v", what, err)
		}
	}
	kit.Check(t, w.view().Walk(t.Context(), "", WalkOptions{Recursive: true, MaxDepth: 5, MaxEntries: 100}, nothing))
}

func TestAWalkEndsWhenItIsTold(t *testing.T) {
	tooltest.NoLeaks(t)
	w := newWorld(t)
	for i := range 500 {
		w.write(fmt.Sprintf("root/many/%d/x", i), "")
	}
	before := descriptors(t)
	for _, parallel := range []int{1, 3} {
		o := WalkOptions{Recursive: true, Parallel: parallel}
		stop := errors.New("stop")
		if err := w.view().Walk(t.Context(), "", o, func(*Entry) error { return stop }); err != stop {
			t.Errorf("%d at once: %v; want the visitor's own error", parallel, err)
		}
		if err := w.view().Walk(t.Context(), "", o, func(*Entry) error { return fs.SkipAll }); err != nil {
			t.Errorf("%d at once: %v; want none", parallel, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		if err := w.view().Walk(ctx, "", o, func(*Entry) error { cancel(); return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("%d at once: %v; want cancelled", parallel, err)
		}
	}
	if after := descriptors(t); after > before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	return len(kit.Must(os.ReadDir("/proc/self/fd"))(t))
}

func TestWalkToleratesAFolderRemovedMeanwhile(t *testing.T) {
	w := newWorld(t)
	w.write("root/zz/x", "")
	kit.Check(t, w.view().Walk(t.Context(), "", WalkOptions{Recursive: true}, func(e *Entry) error {
		if e.Name == "zz" {
			return os.RemoveAll(filepath.Join(w.root, "zz"))
		}
		return nil
	}))
}

// After the walk has reached a folder, a link takes its place.
func TestAWalkDoesNotGoDownThroughALink(t *testing.T) {
	w := newWorld(t)
	w.write("root/zz/x", "")
	kit.Check(t, w.view().Walk(t.Context(), "", WalkOptions{Recursive: true}, func(e *Entry) error {
		if e.Name == "secret.txt" {
			t.Errorf("the walk went out: %s", e.Abs())
		}
		if e.Name != "zz" {
			return nil
		}
		if err := os.RemoveAll(filepath.Join(w.root, "zz")); err != nil {
			return err
		}
		return os.Symlink(w.by, filepath.Join(w.root, "zz"))
	}))
}

// After the walk has reached a file, something else takes its place.
func TestAnEntryIsOpenedWithoutFollowingALinkOrWaiting(t *testing.T) {
	w := newWorld(t)
	for what, put := range map[string]func(path string) error{
		"a link": func(path string) error { return os.Symlink(filepath.Join(w.by, "secret.txt"), path) },
		"a pipe": func(path string) error { return mkfifo(path) },
	} {
		kit.Check(t, w.view().Walk(t.Context(), "", WalkOptions{}, func(e *Entry) error {
			if e.Name != "notes.txt" {
				return nil
			}
			path := filepath.Join(w.root, e.Name)
			if err := errors.Join(os.Remove(path), put(path)); err != nil {
				return err
			}
			if f, err := e.Open(); err == nil {
				f.Close()
				t.Errorf("%s was opened", what)
			}
			return nil
		}))
		kit.OK(t, errors.Join(os.Remove(filepath.Join(w.root, "notes.txt")), os.WriteFile(filepath.Join(w.root, "notes.txt"), nil, 0o644)))
	}
}

func TestIgnoreFilesCountFromTheRootDown(t *testing.T) {
	w := newWorld(t)
	for name, content := range map[string]string{
		".gitignore": "*.log\n/build\n", ".ignore": "!keep.log\n", ".git/info/exclude": "*.mine\n", ".git/config": "",
		"a.log": "", "keep.log": "", "x.mine": "", "build/x": "", "src/build/y": "", "src/.gitignore": "!b.log\ntmp/\n",
		"src/b.log": "", "src/c.log": "", "src/tmp/z": "", "src/deep/tmp/z": "",
		"nested/.git/config": "", "nested/d.log": "", "nested/build/x": "", // a repository of its own
	} {
		w.write("root/"+name, content)
	}
	want := map[string]string{
		"":         "keep.log nested nested/build nested/build/x nested/d.log notes.txt src src/b.log src/build src/build/y src/deep sub sub/deep sub/deep/a.go",
		"src":      "b.log build build/y deep",
		"src/deep": "",
		"build":    "x", // an ignored folder is walked if it is requested
	}
	for path, want := range want {
		kit.Equal(t, strings.Join(w.walked(w.view(), path, WalkOptions{Recursive: true, Ignore: true}), " "),
			want, path)
	}
}

func TestLinkedOrHugeIgnoreFileIsIgnored(t *testing.T) {
	w := newWorld(t)
	w.write("outside/rules", "notes.txt\n")
	w.link("../outside/rules", ".gitignore")
	w.write("root/sub/.ignore", "deep\n"+strings.Repeat("#", maxIgnoreFile))
	kit.OK(t, mkfifo(filepath.Join(w.root, ".ignore")))
	kit.Equal(t, strings.Join(w.walked(w.view(), "", WalkOptions{Recursive: true, Ignore: true}), " "), "notes.txt sub sub/deep sub/deep/a.go")
}

// For a random tree, a walk lists the same as git.
func TestWalkAgreesWithGit(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	rng := rand.New(rand.NewPCG(7, 7))
	rules := []string{"a", "*.o", "!b.o", "/c", "d/", "e/*.go", "**/f", "g/**", "!a", "b*", "[cd]", "e/f/", "!/e", "?.go"}
	parts := []string{"a", "b", "c", "d", "e", "f", "g"}
	names := []string{"a", "b.o", "c.o", "x.go", "f", "main.go", "d"}
	for round := range 40 {
		w := newWorld(t)
		git := exec.Command("git", "init", "-q", w.root)
		if out, err := git.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for range 60 {
			dir := ""
			for range rng.IntN(4) {
				dir += parts[rng.IntN(len(parts))] + "/"
			}
			if path := filepath.Join(w.root, dir); os.MkdirAll(path, 0o755) == nil {
				_ = os.WriteFile(filepath.Join(path, names[rng.IntN(len(names))]), nil, 0o644) // may be a folder already
			}
			if rng.IntN(8) == 0 {
				w.tryRules(dir, rules, rng)
			}
		}
		cmd := exec.Command("git", "-c", "core.excludesFile=/dev/null", "ls-files", "-z", "--others", "--exclude-standard")
		cmd.Dir = w.root
		out, err := cmd.Output()
		kit.OK(t, err)
		theirs := strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 })
		slices.Sort(theirs)
		ours := []string{}
		err = w.view().Walk(t.Context(), "", WalkOptions{Recursive: true, Ignore: true, Hidden: true}, func(e *Entry) error {
			if !e.Type.IsDir() {
				ours = append(ours, e.Rel())
			}
			return nil
		})
		if diff := cmp.Diff(theirs, ours); err != nil || diff != "" {
			t.Fatalf("round %d: %v (-git +ours):\n%s", round, err, diff)
		}
	}
}

func (w *world) tryRules(dir string, rules []string, rng *rand.Rand) {
	var text []string
	for range 1 + rng.IntN(4) {
		text = append(text, rules[rng.IntN(len(rules))])
	}
	_ = os.WriteFile(filepath.Join(w.root, dir, ".gitignore"), []byte(strings.Join(text, "\n")), 0o644) // if dir is a folder
}

func FuzzGlob(f *testing.F) {
	for _, seed := range []string{"*.go", "src/**/*.{ts,tsx}", "[!a]?", "!x", "**", "{a,{b,c}}", `\*`, "a**/b", "../*"} {
		f.Add(seed, "src/x/a.ts")
	}
	f.Fuzz(func(t *testing.T, pattern, path string) {
		g, err := NewGlobs([]string{pattern})
		if err != nil {
			kit.Refused(t, err, tool.CodeInvalidInput, "", pattern)
			return
		}
		if len(path) > 300 {
			t.Skip()
		}
		in, out := matchAny(g.include, path), matchAny(g.exclude, path)
		if in && out {
			t.Errorf("%q: %q is wanted and left out", pattern, path)
		}
	})
}
