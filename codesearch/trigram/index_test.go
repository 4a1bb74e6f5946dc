package trigram

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"toolpost/codesearch/grep"
	"toolpost/host/workspace"
	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// testRest is longer than the clock tick of any file system that tests run on.
const testRest = 60 * time.Millisecond

// A tree is a folder with its index.
type tree struct {
	*testing.T
	dir, state string
	view       *workspace.View
	x          *Index
}

func newTree(t *testing.T, o Options, files map[string]string) *tree {
	t.Helper()
	tooltest.NoLeaks(t)
	tr := &tree{T: t, dir: t.TempDir(), state: t.TempDir()}
	for name, content := range files {
		tr.write(name, content)
	}
	ws := kit.Must(workspace.Open(tr.dir, workspace.Options{}))(t)
	t.Cleanup(func() { ws.Close() })
	tr.view = ws.View(&tool.Call{})
	tr.open(o)
	t.Cleanup(func() { tr.close() })
	return tr
}

func (tr *tree) open(o Options) {
	tr.Helper()
	if o.Pause == 0 {
		o.Pause = time.Hour // nothing is read in the background
	}
	o.rest = testRest
	x, err := Open(tr.state, tr.view, o)
	if err != nil {
		tr.Fatal(err)
	}
	tr.x = x
}

func (tr *tree) close() {
	if tr.x != nil {
		if err := tr.x.Close(); err != nil {
			tr.Error(err)
		}
	}
	tr.x = nil
}

func (tr *tree) write(name, content string) {
	tr.Helper()
	path := filepath.Join(tr.dir, name)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(content), 0o644)
	}
	if err != nil {
		tr.Fatal(err)
	}
}

// refresh waits until everything is at rest and reads it.
func (tr *tree) refresh() {
	tr.Helper()
	time.Sleep(testRest + 10*time.Millisecond)
	if err := tr.x.Refresh(context.Background()); err != nil {
		tr.Fatal(err)
	}
}

func compile(t testing.TB, expr string) *grep.Pattern {
	t.Helper()
	return kit.Must(grep.Compile(expr, false))(t)
}

// walked returns the files of the tree that match, found without the index.
func (tr *tree) walked(folder string, p *grep.Pattern) []string {
	tr.Helper()
	var files []string
	s := grep.NewSearch(context.Background(), p, grep.Options{}, func(f grep.File) error { files = append(files, f.Path); return nil })
	err := s.Walk(tr.view, cmp.Or(folder, "."), walkAll(true), func(below string) string { return filepath.Join(folder, below) })
	if err != nil && tool.CodeOf(err) != tool.CodeNotFound {
		tr.Fatal(err)
	}
	return files
}

// selected returns the same with the index; ok reports that the index could answer.
func (tr *tree) selected(folder string, p *grep.Pattern) (files []string, sel Selection, ok bool) {
	tr.Helper()
	sel, err := tr.x.Select(context.Background(), folder, p.Need())
	if errors.Is(err, ErrNotReady) {
		return nil, sel, false
	}
	if err != nil {
		tr.Fatal(err)
	}
	s := grep.NewSearch(context.Background(), p, grep.Options{}, func(f grep.File) error { files = append(files, f.Path); return nil })
	if err := search(s, tr.view, sel.Picks); err != nil {
		tr.Fatal(err)
	}
	return files, sel, true
}

// search searches the files of a selection.
func search(s *grep.Search, view *workspace.View, picks []Pick) error {
	open := func(i int) (*workspace.File, []grep.Part) {
		f, err := view.Open(picks[i].Path)
		if err != nil {
			return nil, nil
		}
		if f.Abs() != filepath.Join(view.Roots()[0].Dir, picks[i].Path) {
			f.Close() // a link
			return nil, nil
		}
		return f, picks[i].Parts(f)
	}
	return s.Files(len(picks), open, func(i int) string { return picks[i].Path })
}

// agree checks that the index answers, and finds what a walk finds. The index may decline for a path that is no longer a
// folder.
func (tr *tree) agree(folder, expr string) Selection {
	tr.Helper()
	p := compile(tr, expr)
	got, sel, ok := tr.selected(folder, p)
	if !ok && folder != "" {
		return sel
	}
	if want := tr.walked(folder, p); !ok || !slices.Equal(got, want) {
		tr.Errorf("%s in %q: %q (ready: %v), want %q", expr, folder, got, ok, want)
	}
	return sel
}

func TestIndexSelectsFewCandidates(t *testing.T) {
	files := map[string]string{"needle.txt": "here is the Needle\n", "bin": "\x00needle", ".gitignore": "out\n", "out/x": "needle", ".hid/y": "a needle\n"}
	for i := range 300 {
		files[fmt.Sprintf("d%d/f%d", i%7, i)] = fmt.Sprintf("just hay, bale %d\n", i)
	}
	tr := newTree(t, Options{}, files)
	if _, _, ok := tr.selected("", compile(t, "needle")); ok {
		t.Error("an index that has read nothing answers")
	}
	tr.refresh()
	if sel := tr.agree("", "(?i)needle"); !slices.Equal(paths(sel), []string{".hid/y", "needle.txt"}) || sel.Changed != 0 {
		t.Errorf("%+v", sel)
	}
	if sel := tr.agree("d3", "bale 3$"); len(sel.Picks) > 10 || sel.Changed != 0 {
		t.Errorf("%+v", sel)
	}
	if _, _, ok := tr.selected("", compile(t, "[a-z]+")); ok {
		t.Error("a pattern that needs nothing is answered by the index")
	}
	if _, _, ok := tr.selected("out", compile(t, "needle")); ok {
		t.Error("a folder that is ignored is answered by the index")
	}
}

func TestTheIndexIsThereAgainAfterARestart(t *testing.T) {
	tr := newTree(t, Options{}, map[string]string{"a": "alpha\n", "b/c": "gamma\n"})
	tr.refresh()
	tr.close()
	tr.open(Options{})
	if sel := tr.agree("", "gamma"); !slices.Equal(paths(sel), []string{"b/c"}) || sel.Changed != 0 {
		t.Errorf("%+v", sel)
	}
	kit.Fails(t, kit.Err(Open(tr.state, tr.view, Options{})), "another process", "a second one on the same folder")
}

// Every answer equals the result of a walk, whatever was done to the tree before, and whether the index has read it since
// or not.
func TestAnAnswerIsNeverStale(t *testing.T) {
	tr := newTree(t, Options{}, map[string]string{".gitignore": "ignored\n", "a/b/f1": "alpha beta\n", "a/f2": "gamma\n", "c/.ignore": "*.skip\n", "c/x.skip": "alpha\n"})
	rng := rand.New(rand.NewPCG(7, 3))
	for round := range 8 {
		tr.refresh()
		for range 12 {
			op := tr.change(rng)
			for _, word := range []string{"alpha", "beta|gamma", "delta"} {
				tr.agree([]string{"", "", "a", "c"}[rng.IntN(4)], word)
			}
			if t.Failed() {
				t.Fatalf("round %d, after %s", round, op)
			}
		}
	}
}

// change changes the tree at random, and describes the change.
func (tr *tree) change(rng *rand.Rand) string {
	folders := []string{"", "a", "a/b", "c", "d", "d/e", "ignored", ".dot"}
	names := []string{"f1", "f2", "x.skip", "y.go"}
	pick := func(list []string) string { return list[rng.IntN(len(list))] }
	words := func() string {
		return strings.Join([]string{pick(sampleWords()), pick(sampleWords()), pick(sampleWords())}, " ") + "\n"
	}
	for _, keep := range []string{"a", "c"} { // folders that the test checks
		_ = os.Remove(filepath.Join(tr.dir, keep)) // a link or file in its place; a folder with files stays
		_ = os.MkdirAll(filepath.Join(tr.dir, keep), 0o755)
	}
	file := filepath.Join(pick(folders), pick(names))
	at := func(p string) string { return filepath.Join(tr.dir, p) }
	switch rng.IntN(9) {
	case 0:
		_ = os.Remove(at(file))
		return "remove " + file
	case 1: // the same size, so that only the time differs
		content, err := os.ReadFile(at(file))
		if err != nil || len(content) < 6 {
			return "nothing"
		}
		tr.write(file, "delta"+string(content[5:]))
		return "overwrite " + file
	case 2:
		to := pick(folders[1:])
		_ = os.Rename(at(pick(folders[1:])), at(to))
		return "rename a folder to " + to
	case 3:
		rules := filepath.Join(pick(folders), pick([]string{".gitignore", ".ignore"}))
		if rng.IntN(3) == 0 {
			_ = os.Remove(at(rules))
			return "remove " + rules
		}
		_ = os.MkdirAll(filepath.Dir(at(rules)), 0o755)
		_ = os.WriteFile(at(rules), []byte(pick([]string{"f1\n", "*.skip\n", "b\n", "!x.skip\n", "*\n!*/\n"})), 0o644)
		return "rules in " + rules
	case 4:
		_ = os.MkdirAll(at(pick([]string{".git/info", "c/.git/info"})), 0o755)
		_ = os.WriteFile(at(pick([]string{".git/info/exclude", "c/.git/info/exclude"})), []byte(pick([]string{"f2\n", "", "y.go\n"})), 0o644)
		return "exclude"
	case 5:
		_ = os.RemoveAll(at(pick(folders[2:])))
		return "remove a folder"
	case 6:
		from := pick(folders[1:])
		_ = os.Rename(at(from), at(from+"-moved"))
		_ = os.Symlink(from+"-moved", at(from))
		return "move " + from + " and link to it"
	case 7:
		return tr.replace(file, words())
	}
	if err := os.MkdirAll(filepath.Dir(at(file)), 0o755); err == nil {
		_ = os.WriteFile(at(file), []byte(words()), 0o644)
	}
	return "write " + file
}

// replace replaces a file as an editor does: a new file takes the name of the old one.
func (tr *tree) replace(file, content string) string {
	path := filepath.Join(tr.dir, file)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
		_ = os.WriteFile(path+"~", []byte(content), 0o644)
		_ = os.Rename(path+"~", path)
	}
	return "replace " + file
}

func sampleWords() []string { return []string{"alpha", "beta", "gamma", "delta", "Alpha", "other"} }

func paths(sel Selection) (list []string) {
	for _, p := range sel.Picks {
		list = append(list, p.Path)
	}
	return list
}
