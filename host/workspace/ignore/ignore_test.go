package ignore

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"toolpost/internal/kit"

	"github.com/google/go-cmp/cmp"
)

func TestTheLastRuleThatMatchesDecides(t *testing.T) {
	for _, c := range []struct {
		rules, path string
		dir         bool
		want        Verdict
	}{
		{"*.o", "a.o", false, Ignored},
		{"*.o", "x/y/a.o", false, Ignored},
		{"*.o\n!keep.o", "keep.o", false, Kept},
		{"!keep.o\n*.o", "keep.o", false, Ignored},
		{"build/", "build", false, None},
		{"build/", "build", true, Ignored},
		{"/build", "x/build", false, None},
		{"doc/*.txt", "doc/a.txt", false, Ignored},
		{"doc/*.txt", "doc/x/a.txt", false, None},
		{"doc/**/*.txt", "doc/x/y/a.txt", false, Ignored},
		{"doc/**/*.txt", "doc/a.txt", false, Ignored},
		{"**/foo", "foo", false, Ignored},
		{"**/foo", "a/b/foo", false, Ignored},
		{"abc/**", "abc/x/y", false, Ignored},
		{"abc/**", "abc", true, None},
		{`\!x`, "!x", false, Ignored},
		{`\#x`, "#x", false, Ignored},
		{"#x", "#x", false, None},
		{"x   ", "x", false, Ignored},
		{`x\ `, "x ", false, Ignored},
		{"x\r\n", "x", false, Ignored},
		{"\xef\xbb\xbfx", "x", false, Ignored},
		{"[a-c]x", "bx", false, Ignored},
		{"[!a-c]x", "bx", false, None},
		{"[[:digit:]]", "7", false, Ignored},
		{"[[:nonsense:]]", "7", false, None},
		{"[a", "[a", false, None},
		{`a\`, `a\`, false, None},
		{"A", "a", false, None},
		{"a?c", "a/c", false, None},
		{"", "", false, None}, {"/", "x", true, None}, {"!", "x", false, None}, {"   ", "x", false, None},
	} {
		kit.Equal(t, Parse([]byte(c.rules)).Match(c.path, path.Base(c.path), c.dir),
			c.want, "%q on %q (folder: %v)", c.rules, c.path, c.dir)
	}
}

// ignored uses our lists the way a walk does: from the top down, the nearest file first.
func ignored(files map[string]string, name string, isDir func(string) bool) bool {
	parts := strings.Split(name, "/")
	for n := 1; n <= len(parts); n++ {
		sub := strings.Join(parts[:n], "/")
		if decide(files, sub, isDir(sub)) == Ignored {
			return true
		}
	}
	return false
}

func decide(files map[string]string, name string, isDir bool) Verdict {
	for dir := path.Dir(name); ; dir = path.Dir(dir) {
		if text, ok := files[dir]; ok {
			below := strings.TrimPrefix(name, dir+"/")
			if v := Parse([]byte(text)).Match(below, path.Base(name), isDir); v != None {
				return v
			}
		}
		if dir == "." {
			return None
		}
	}
}

// tree returns the paths that git and we are asked about: some folders and files, with names that are difficult for
// patterns.
func tree() []string {
	return []string{
		"a", "b", "ab", "abc", "A", "a.o", "b.go", "a b", "a ", "x[y]", "[", "]", "-", "!x", "#x", `b\s`, "*", "a*b", "?", "^", "é", "7",
		"foo/bar", "foo/a", "foo/a.o", "foo/foo/bar", "foo/foo/x/bar", "foobar/a", "foo/b/c/d/a.o", "foo/.x",
		"dir/a", "dir/b.go", "dir/sub/a", "dir/sub/ab", "dir/sub/deep/a.o", "dir/sub/deep/bar", "dir/dir/dir/dir", "d/e/f/g/h",
		"build/x", "src/build/x", "src/a/b/c", "doc/a.txt", "doc/x/a.txt", "doc/x/y/z.txt",
	}
}

func withFolders(files []string) []string {
	all := slices.Clone(files)
	for _, f := range files {
		for d := path.Dir(f); d != "."; d = path.Dir(d) {
			all = append(all, d)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// A repository is a git repository to compare with.
type repository struct {
	dir   string
	paths []string
}

func newRepository(t testing.TB) *repository {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	r := &repository{dir: t.TempDir(), paths: withFolders(tree())}
	r.git(t, nil, "init", "-q", ".")
	for _, f := range tree() {
		p := filepath.Join(r.dir, f)
		kit.OK(t, os.MkdirAll(filepath.Dir(p), 0o755))
		kit.OK(t, os.WriteFile(p, nil, 0o644))
	}
	return r
}

// git runs git without any config but its own; exit status 1 means that nothing is ignored.
func (r *repository) git(t testing.TB, in []byte, args ...string) []byte {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Stdin = r.dir, bytes.NewReader(in)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "HOME=/nonexistent", "XDG_CONFIG_HOME=/nonexistent")
	out, err := cmd.Output()
	if err != nil && cmd.ProcessState.ExitCode() != 1 {
		t.Fatalf("git %v: %v", args, err)
	}
	return out
}

// compare asks git and us about every path and returns the difference.
func (r *repository) compare(t testing.TB, files map[string]string) string {
	t.Helper()
	for dir, text := range files {
		kit.OK(t, os.WriteFile(filepath.Join(r.dir, dir, ".gitignore"), []byte(text), 0o644))
	}
	out := r.git(t, []byte(strings.Join(r.paths, "\x00")), "check-ignore", "--no-index", "--stdin", "-z")
	theirs := strings.FieldsFunc(string(out), func(c rune) bool { return c == 0 })
	ours := []string{}
	isDir := func(p string) bool {
		return slices.ContainsFunc(r.paths, func(q string) bool { return strings.HasPrefix(q, p+"/") })
	}
	for _, p := range r.paths {
		if ignored(files, p, isDir) {
			ours = append(ours, p)
		}
	}
	return cmp.Diff(theirs, ours)
}

// randomRules generates an ignore file from pieces that have a meaning in git.
func randomRules(rng *rand.Rand) string {
	pieces := []string{
		"a", "b", "foo", "bar", "dir", "sub", "x", ".o", ".go", "*", "*", "**", "**/", "/**", "/", "/", "?", "[a-c]", "[!a]", "[^b]", "[]]", "[]-a]", "[a-]",
		"[[:alpha:]]", "[[:punct:]]", "[[:x:]]", "[[:digit:]", `\`, `\*`, `\[`, " ", "!", "#", "é", "[\xc3\xa9]", "***", "-", "[", "]", "^", "A", "7", "\t", "\r",
	}
	var b strings.Builder
	for range 1 + rng.IntN(4) {
		if rng.IntN(4) == 0 {
			b.WriteByte('!')
		}
		for range 1 + rng.IntN(5) {
			b.WriteString(pieces[rng.IntN(len(pieces))])
		}
		if rng.IntN(4) == 0 {
			b.WriteByte('/')
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// rounds is the number of random sets of files; git needs some milliseconds for each. TOOLPOST_LONG increases it.
func rounds() int {
	if os.Getenv("TOOLPOST_LONG") != "" {
		return 20_000
	}
	return 400
}

func TestRulesAgreeWithGit(t *testing.T) {
	r := newRepository(t)
	rng := rand.New(rand.NewPCG(4, 2))
	for i := range rounds() {
		files := map[string]string{".": randomRules(rng), "dir": randomRules(rng), "dir/sub": randomRules(rng), "foo": randomRules(rng)}
		kit.MustEqual(t, r.compare(t, files), "", "round %d, files %q (-git +ours)", i, files)
	}
}

func FuzzAgainstGit(f *testing.F) {
	for _, seed := range []string{"*.o\n!a.o\n", "/foo/**/bar\n", "**/x/\n", "foo**/bar\n", "dir/*\n!dir/sub/\n", `\!x` + "\n" + `a\ ` + "\n", "[[:alpha:]-z]*\n", "a/\\/b", "***/a"} {
		f.Add(seed, "")
	}
	f.Add("dir\n", "!a\n")
	r := newRepository(f)
	f.Fuzz(func(t *testing.T, top, sub string) {
		if len(top)+len(sub) > 4096 {
			t.Skip()
		}
		files := map[string]string{".": top, "dir": sub}
		kit.MustEqual(t, r.compare(t, files), "", "files %q (-git +ours)", files)
	})
}

func TestAHostilePatternTakesNoTime(t *testing.T) {
	for _, pattern := range []string{strings.Repeat("*a", 500) + "b", strings.Repeat("**/", 300) + "b", strings.Repeat("a**/*", 200), "/" + strings.Repeat("*/**/a", 100)} {
		l := Parse([]byte(pattern))
		for _, name := range []string{strings.Repeat("a", 4000), strings.Repeat("a/", 2000) + "a"} {
			l.Match(name, path.Base(name), false)
		}
	}
}

func BenchmarkMatch(b *testing.B) {
	var rules strings.Builder
	for i := range 100 {
		fmt.Fprintf(&rules, "*.ext%d\nname%d\n/path/to/%d\nfolder%d/\n", i, i, i, i)
	}
	l := Parse([]byte(rules.String()))
	for b.Loop() {
		l.Match("some/where/below/main.go", "main.go", false)
	}
}
