package trigram

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"toolpost/internal/kit"
)

// eventually waits until a condition holds.
func (tr *tree) eventually(what string, so func() bool) {
	tr.Helper()
	kit.Eventually(tr, what, so)
}

func TestTheTreeIsReadWhenItChanges(t *testing.T) {
	tr := newTree(t, Options{Pause: time.Millisecond}, map[string]string{"a/b/f": "alpha\n"})
	upToDate := func(word string) func() bool {
		return func() bool {
			_, sel, ok := tr.selected("", compile(t, word))
			return ok && len(sel.Picks) == 1 && sel.Changed == 0
		}
	}
	tr.eventually("the first reading", upToDate("alpha"))
	tr.write("a/b/g", "delta\n")
	tr.write("new/folder/h", "omega\n")
	tr.eventually("a new file", upToDate("delta"))
	tr.eventually("a new folder", upToDate("omega"))
}

// The watcher alone, without any selection, updates the index after changes.
func TestWatcherAloneUpdatesTheIndex(t *testing.T) {
	tr := newTree(t, Options{Pause: time.Millisecond}, map[string]string{"a/f": "alpha\n"})
	tr.selected("", compile(t, "alpha"))
	files := func(n int) func() bool {
		return func() bool { got, _ := tr.x.Size(); return got == n }
	}
	tr.eventually("the first reading", files(1))
	tr.write("a/g", "beta\n")
	tr.eventually("a new file", files(2))
	kit.OK(t, os.RemoveAll(filepath.Join(tr.dir, "a")))
	tr.eventually("a folder that went", files(0))
}

// While files are written, the tree is read in the background and other goroutines query it: a query after a write must
// find what was written.
func TestQueryAfterAWriteFindsIt(t *testing.T) {
	tr := newTree(t, Options{Pause: time.Millisecond}, map[string]string{"d0/f": "x\n", "d1/f": "x\n", "d2/f": "x\n"})
	tr.refresh()
	var writers sync.WaitGroup
	for w := range 3 {
		writers.Go(func() {
			for i := range 24 {
				file := fmt.Sprintf("d%d/f", w)
				token := fmt.Sprintf("token%d_%04d", w, i)
				if i%2 == 0 {
					tr.write(file, token+"\n")
				} else {
					tr.replace(file, token+"\n")
				}
				time.Sleep(time.Duration(i%7) * testRest / 4) // sometimes the index has read it by then, at rest or not
				if got, _, ok := tr.selected("", compile(t, token)); ok && !slices.Equal(got, []string{file}) {
					t.Errorf("%s after it was written: %q", token, got)
				}
				if got, _, ok := tr.selected("", compile(t, fmt.Sprintf("token%d_%04d", w, i-1))); ok && got != nil {
					t.Errorf("what was there before %s: %q", token, got)
				}
			}
		})
	}
	writers.Wait()
}

func TestSmallSegmentsAreMadeOne(t *testing.T) {
	files := map[string]string{}
	for i := range 40 {
		files[fmt.Sprintf("f%02d", i)] = fmt.Sprintf("alpha number%02d\n", i)
	}
	tr := newTree(t, Options{}, files)
	tr.refresh()
	for i := range 10 {
		tr.write(fmt.Sprintf("f%02d", i), fmt.Sprintf("beta number%02d\n", i))
		kit.OK(t, os.Remove(filepath.Join(tr.dir, fmt.Sprintf("f%02d", 20+i))))
		tr.refresh()
		if n := len(tr.x.snap.segs); n > maxSmall+2 {
			t.Fatalf("%d segments", n)
		}
		tr.agree("", "alpha")
		tr.agree("", "beta")
		tr.agree("", "number2")
		if n, _ := tr.x.Size(); n != 39-i {
			t.Fatalf("the index has %d files, and there are %d", n, 39-i)
		}
	}
	tr.close()
	tr.open(Options{})
	tr.agree("", "alpha")
	tr.agree("", "number3")
}

func TestSensitiveFilesNeverEnterTheIndex(t *testing.T) {
	tr := newTree(t, Options{}, map[string]string{"f": "plain\n", ".env": "zqxjkv\n", "sub/id_rsa": "zqxjkv\n", "sub/.ssh/x": "zqxjkv\n"})
	tr.refresh()
	for _, s := range tr.x.snap.segs {
		if _, found := slices.BinarySearch(s.grams, gramsOf("zqx", false)[0]); found {
			t.Errorf("%s has a trigram of a secret", s.name)
		}
		for _, e := range s.files {
			if strings.Contains(e.path, "id_rsa") || strings.Contains(e.path, ".env") || strings.Contains(e.path, ".ssh") {
				t.Errorf("%s has the name %s", s.name, e.path)
			}
		}
	}
}

func TestQuotas(t *testing.T) {
	files := map[string]string{"a": "alpha\n", "b": "beta\n", "c": "gamma\n"}
	t.Run("files", func(t *testing.T) {
		tr := newTree(t, Options{MaxFiles: 2}, files)
		kit.Equal(t, tr.x.Refresh(t.Context()), errTooManyFiles)
		if _, _, ok := tr.selected("", compile(t, "alpha")); ok {
			t.Error("an index of too many files answers")
		}
	})
	t.Run("bytes", func(t *testing.T) {
		tr := newTree(t, Options{MaxBytes: 8}, files)
		tr.refresh()
		kit.EqualSlices(t, paths(tr.agree("", "gamma")), []string{"b", "c"}) // b and c are searched each time
	})
}

func TestFileWithAnOddNameIsLeftToTheWalk(t *testing.T) {
	tr := newTree(t, Options{}, map[string]string{"a": "alpha\n", "odd\nname": "alpha\n"})
	tr.refresh()
	if _, _, ok := tr.selected("", compile(t, "alpha")); ok {
		t.Error("the index answers where only a walk can")
	}
}

// A file that changed just now may change again without another stamp, so it has none.
func TestRecentlyChangedFileIsSearchedEachTime(t *testing.T) {
	tr := newTree(t, Options{}, map[string]string{"a": "alpha\n", "b": "beta\n"})
	tr.x.o.rest = time.Hour
	kit.OK(t, tr.x.Refresh(t.Context()))
	kit.EqualSlices(t, paths(tr.agree("", "gamma")), []string{"a", "b"})
}

func TestACandidateThatGrewIsSearchedAsAWhole(t *testing.T) {
	tr := newTree(t, Options{}, map[string]string{"a": "alpha\n"})
	tr.refresh()
	tr.write("a", strings.Repeat("x", 100)+"\nalpha\n")
	tr.agree("", "alpha")
}

func TestChangesOfIgnoreRulesAreNoticed(t *testing.T) {
	for _, name := range []string{".gitignore", ".ignore", "d/.gitignore", "d/.ignore", ".git/info/exclude", "d/.git/info/exclude"} {
		t.Run(name, func(t *testing.T) {
			tr := newTree(t, Options{}, map[string]string{"d/f": "alpha\n", "d/e/g": "alpha\n", "d/e/f": "alpha\n"})
			for _, rules := range []string{"f\n", "g\n", "", "e\n"} {
				tr.refresh()
				tr.write(name, rules)
				for _, folder := range []string{"", "d", "d/e"} {
					tr.agree(folder, "alpha")
				}
			}
			tr.refresh()
			top, _, _ := strings.Cut(strings.TrimPrefix(name, "d/"), "/")
			kit.OK(t, os.RemoveAll(filepath.Join(tr.dir, strings.TrimSuffix(name, strings.TrimPrefix(name, "d/")), top)))
			for _, folder := range []string{"", "d", "d/e"} {
				tr.agree(folder, "alpha")
			}
		})
	}
}
