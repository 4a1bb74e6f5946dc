package grep

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"toolpost/host/workspace"
	"toolpost/internal/kit"
	"toolpost/internal/rounds"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// view makes a view of a folder with files.
func view(t *testing.T, files map[string]string) (v *workspace.View, dir string) {
	t.Helper()
	tooltest.NoLeaks(t)
	dir = t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil {
			err = os.WriteFile(path, []byte(content), 0o644)
		}
		kit.OK(t, err)
	}
	ws := kit.Must(workspace.Open(dir, workspace.Options{}))(t)
	t.Cleanup(func() { ws.Close() })
	return ws.View(&tool.Call{}), dir
}

// lines greps and returns path:line:content.
func lines(t *testing.T, v *workspace.View, expr string, o Options) ([]string, Stats) {
	t.Helper()
	p := kit.Must(Compile(expr, false))(t)
	var found []string
	s := NewSearch(t.Context(), p, o, func(f File) error {
		for _, m := range f.Matches {
			found = append(found, fmt.Sprintf("%s:%d:%s", f.Path, m.Line, m.Content))
		}
		return nil
	})
	kit.OK(t, s.Walk(v, "", workspace.WalkOptions{Recursive: true, Ignore: true}, plain))
	return found, s.Stats()
}

func randomTree(rng *rand.Rand) map[string]string {
	files := map[string]string{}
	for range 60 {
		name := fmt.Sprintf("%c/%c%d", 'a'+rune(rng.IntN(4)), 'a'+rune(rng.IntN(4)), rng.IntN(30))
		text := string(randomText(rng)) + string(randomText(rng))
		if rng.IntN(10) == 0 {
			text = "\x00" + text
		}
		files[name] = strings.ToValidUTF8(strings.ReplaceAll(text, "\r", ""), "") // ripgrep treats these differently
	}
	return files
}

func TestWalkAgreesWithANaiveScan(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	files := randomTree(rng)
	v, dir := view(t, files)
	for range rounds.Of(50, 1500) {
		expr := randomPattern(rng, 3)
		if _, err := Compile(expr, false); err != nil {
			continue
		}
		var want []string
		for name, content := range files {
			if strings.HasPrefix(content, "\x00") {
				continue
			}
			all := strings.Split(content, "\n")
			for _, n := range naive(t, expr, false, []byte(content)) {
				want = append(want, fmt.Sprintf("%s:%d:%s", name, n, all[n-1]))
			}
		}
		got, _ := lines(t, v, expr, Options{})
		slices.Sort(want)
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Fatalf("%q: %q, want %q", expr, got, want)
		}
	}
	asRipgrep(t, v, dir, rng)
}

// asRipgrep compares with ripgrep if it is installed.
func asRipgrep(t *testing.T, v *workspace.View, dir string, rng *rand.Rand) {
	rg, err := exec.LookPath("rg")
	if err != nil {
		t.Log("ripgrep is not installed: not compared with it")
		return
	}
	for range 40 {
		expr := randomPattern(rng, 3)
		if _, err := Compile(expr, false); err != nil || strings.ContainsAny(expr, `\^$`) { // its \w, \b and ^$ in a repetition differ
			continue
		}
		cmd := exec.Command(rg, "-n", "--no-heading", "--no-config", "--sort", "path", "-e", expr)
		cmd.Dir = dir
		out, err := cmd.Output()
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() > 1 {
			continue // ripgrep rejects the expression
		}
		got, _ := lines(t, v, expr, Options{})
		want := strings.FieldsFunc(string(out), func(r rune) bool { return r == '\n' })
		slices.Sort(got)
		slices.Sort(want)
		kit.EqualSlices(t, got, want, expr)
	}
}

func TestLimits(t *testing.T) {
	files := map[string]string{"large": strings.Repeat("xx\n", 1000)}
	for i := range 50 {
		files[fmt.Sprintf("f%02d", i)] = "xx\nxx\n"
	}
	v, _ := view(t, files)
	for name, c := range map[string]struct {
		o     Options
		lines int
		more  bool
	}{
		"none":            {Options{}, 1100, false},
		"lines":           {Options{Limit: 7}, 7, true},
		"exactly":         {Options{Limit: 1100}, 1100, false},
		"lines of a file": {Options{Shape: Shape{PerFile: 1}}, 51, true},
		"bytes":           {Options{MaxBytes: 20}, 10, true},
		"size of a file":  {Options{MaxFile: 100}, 100, false},
	} {
		got, st := lines(t, v, "x", c.o)
		if len(got) != c.lines || st.More != c.more || st.Matches != c.lines {
			t.Errorf("%s: %d lines, %+v, want %d, more: %v", name, len(got), st, c.lines, c.more)
		}
		if name == "size of a file" && st.TooLarge != 1 {
			t.Errorf("%s: %+v", name, st)
		}
		if c.o.Limit == 7 && !slices.Equal(got[:3], []string{"f00:1:xx", "f00:2:xx", "f01:1:xx"}) {
			t.Errorf("the first lines are %q", got)
		}
	}
}

func TestSearchEndsWhenItsCallerStops(t *testing.T) {
	files := map[string]string{}
	for i := range 500 {
		files[fmt.Sprintf("%d/f", i)] = "x\n"
	}
	v, _ := view(t, files)
	p, err := Compile("x", false)
	kit.OK(t, err)
	gone := errors.New("gone")
	seen := 0
	err = NewSearch(t.Context(), p, Options{}, func(File) error { seen++; return gone }).Walk(v, "", workspace.WalkOptions{Recursive: true}, plain)
	if !errors.Is(err, gone) || seen != 1 {
		t.Errorf("%v after %d files", err, seen)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err = NewSearch(ctx, p, Options{}, func(File) error { cancel(); return nil }).Walk(v, "", workspace.WalkOptions{Recursive: true}, plain)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// Results that finish before their turn are held up to a bound; beyond it, a worker that is ahead waits.
func TestWorkerThatIsFarAheadWaits(t *testing.T) {
	line := strings.Repeat("y", 900) + "x\n"
	files := map[string]string{"a": strings.Repeat("z", 1<<20) + "x\n"}
	for i := range 60 {
		files[fmt.Sprintf("f%02d", i)] = strings.Repeat(line, 1000)
	}
	v, _ := view(t, files)
	got, st := lines(t, v, "x", Options{MaxBytes: 1 << 30})
	if len(got) != 60_001 || st.More || !strings.HasPrefix(got[0], "a:1:…") {
		t.Errorf("%d lines, %+v", len(got), st)
	}
}

func TestPartsOfAFile(t *testing.T) {
	v, _ := view(t, map[string]string{"f": "x1\ny\nx2\ny\nx3\n"})
	p := kit.Must(Compile("x", false))(t)
	for perFile, want := range map[int]string{0: "1:x1 5:x3", 1: "1:x1 more", 2: "1:x1 5:x3"} {
		var got []string
		s := NewSearch(t.Context(), p, Options{Shape: Shape{PerFile: perFile}}, func(f File) error {
			for _, m := range f.Matches {
				got = append(got, fmt.Sprintf("%d:%s", m.Line, m.Content))
			}
			return nil
		})
		firstAndLast := func(int) (*workspace.File, []Part) {
			f, err := v.Open("f")
			kit.Check(t, err)
			return f, []Part{{Size: 5}, {Offset: 10, Size: 3, Line: 4}}
		}
		kit.OK(t, s.Files(1, firstAndLast, func(int) string { return "f" }))
		if s.Stats().More {
			got = append(got, "more")
		}
		kit.Equal(t, strings.Join(got, " "), want, "%d of a file: %q", perFile, got)
	}
}

func TestLongAndInvalidLines(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"short":          {"a needle\n", "a needle"},
		"no newline":     {"a needle", "a needle"},
		"return":         {"a needle\r\n", "a needle"},
		"invalid":        {"\xffneedle\xc3\n", "\ufffdneedle\ufffd"},
		"long after":     {"needle" + strings.Repeat("y", 50), "needle" + strings.Repeat("y", 14) + "…"},
		"long before":    {strings.Repeat("y", 50) + "needle", "…" + strings.Repeat("y", 14) + "needle"},
		"long around":    {strings.Repeat("y", 50) + "needle" + strings.Repeat("y", 50), "…" + strings.Repeat("y", 10) + "needleyyyy…"},
		"between runes":  {strings.Repeat("é", 30) + "needle" + strings.Repeat("é", 30), "…ééééé" + "needleéé…"},
		"odd boundaries": {"x" + strings.Repeat("é", 30) + "needle" + strings.Repeat("é", 30), "…ééééé" + "needleéé…"},
	} {
		p := kit.Must(Compile("needle", false))(t)
		got, _ := p.Matcher(t.Context()).Lines([]byte(c.text), 0, Shape{MaxLine: 20})
		if len(got) != 1 || got[0].Content != c.want || !utf8.ValidString(got[0].Content) {
			t.Errorf("%s: %+v, want %q", name, got, c.want)
		}
	}
}

func FuzzLinesAreValid(f *testing.F) {
	f.Add([]byte("a\nxx\xff\nb\r\nxé\n"), 4, 1, 1)
	f.Fuzz(func(t *testing.T, text []byte, maxLine, before, after int) {
		s := Shape{MaxLine: 1 + abs(maxLine)%64, Before: abs(before) % 4, After: abs(after) % 4}
		p := kit.Must(Compile("x", false))(t)
		found, _ := p.Matcher(t.Context()).Lines(text, 0, s)
		for _, m := range found {
			around := Context{}
			if m.Around != nil {
				around = *m.Around
			}
			for _, l := range slices.Concat([]string{m.Content}, around.Before, around.After) {
				if !utf8.ValidString(l) || strings.Contains(l, "\n") || len(l) > 3*s.MaxLine+2*len(cutMark) {
					t.Fatalf("%q of %q", l, text)
				}
			}
			if m.Line < 1 || m.Line > 1+bytes.Count(text, []byte("\n")) || len(around.Before) > m.Line-1 {
				t.Fatalf("line %d with %d before it, of %q", m.Line, len(around.Before), text)
			}
		}
	})
}

func abs(n int) int { return max(n, -(n + 1)) }
