package policy

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"toolpost/internal/kit"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func pathGlob(t testing.TB, text string) PathGlob {
	t.Helper()
	var g PathGlob
	kit.OK(t, g.UnmarshalText([]byte(text)), text)
	return g
}

func TestGlobsOfPaths(t *testing.T) {
	for _, c := range []struct {
		pattern, path string
		exact, below  bool
	}{
		{"src/**", "/base/src/a/b.go", true, true}, {"src/**", "/base/src", true, true}, {"src/**", "/base/srcs/a", false, false},
		{"src/**", "/src/a", false, false}, {"/src/**", "/src/a", true, true}, {"src/*", "/base/src/a", true, true},
		{"src/*", "/base/src/a/b", false, true}, {"src", "/base/src/a", false, true}, {"src", "/base/deep/src", true, true},
		{"src/", "/base/deep/src", true, true}, {"./src", "/base/src", true, true}, {"./src", "/base/deep/src", false, false},
		{"*.pem", "/base/x/key.pem", true, true}, {"*.pem", "/base/x.pem/key", false, true}, {"*.pem", "/key.pem", true, true},
		{"**/.env", "/base/.env", true, true}, {"**/.env", "/.env", true, true}, {"**/.env", "/base/.envy", false, false},
		{"{a,b}/*.{go,md}", "/base/b/x.md", true, true}, {"{a,b}/*.{go,md}", "/base/c/x.md", false, false},
		{"[a-c]/x", "/base/b/x", true, true}, {"[a-c]/x", "/base/d/x", false, false}, {`a\*/x`, "/base/a*/x", true, true}, {`a\*/x`, "/base/ab/x", false, false},
		{"**", "/", true, true}, {"**", "/any/thing", true, true}, {"/", "/", true, true}, {"/", "/x", false, true}, {".", "/base", true, true}, {".", "/base/x", false, true},
		{"a/**/b/**/c", "/base/a/b/x/b/y/c", true, true}, {"a/**/b/**/c", "/base/a/x/c", false, false}, {"/etc", "/etc/passwd", false, true}, {"/etc", "/etcetera", false, false},
		{"{*.key,/etc/**}", "/any/x.key", true, true}, {"{*.key,/etc/**}", "/etc/x", true, true}, {"{*.key,/etc/**}", "/base/etc/x", false, false}, {"[!a-c]/x", "/base/d/x", true, true}, {"[!a-c]/x", "/base/b/x", false, false},
		{"a/**/**", "/base/a", true, true}, {`a\{b/x`, "/base/a{b/x", true, true},
	} {
		g := pathGlob(t, c.pattern).anchor("/base")
		kit.Equal(t, g.match(c.path, false), c.exact, c.pattern, c.path)
		kit.Equal(t, g.match(c.path, true), c.below, "%q on %q or below", c.pattern, c.path)
	}
}

func TestAFolderWithGlobCharactersInItsNameIsAFolder(t *testing.T) {
	g := pathGlob(t, "src/*").anchor(`/a[b]*{\c`)
	if !g.match(`/a[b]*{\c/src/x`, false) || g.match(`/ab\c/src/x`, false) {
		t.Error(g.anchored)
	}
}

func TestAPatternKnowsBothNamesOfALinkedFolder(t *testing.T) {
	dir := kit.Must(filepath.EvalSymlinks(t.TempDir()))(t)
	kit.OK(t, os.MkdirAll(filepath.Join(dir, "real[1]", "in"), 0o700))
	kit.OK(t, os.Symlink("real[1]", filepath.Join(dir, "link")))
	for _, g := range []PathGlob{
		pathGlob(t, "in/secret").anchor(filepath.Join(dir, "link")),
		pathGlob(t, filepath.Join(dir, "link")+"/in/secret").anchor("/elsewhere"),
	} {
		for _, name := range []string{"link", "real[1]"} {
			if !g.match(filepath.Join(dir, name, "in", "secret"), false) {
				t.Errorf("%s is not matched by %v", name, g.anchored)
			}
		}
	}
}

func TestInvalidPatternsAreRefused(t *testing.T) {
	for _, text := range []string{
		"", "[", "a/[x", "a/../b", "..", "a//b", "a/./b", "~/x", "a**", "**b/c", "{a", "a}", "{a,b}/{c", strings.Repeat("a", 1024+1),
		strings.Repeat("{a,b}", 20), `a\`,
	} {
		kit.Fails(t, new(PathGlob).UnmarshalText([]byte(text)), "", "%q was taken", text)
	}
	for _, text := range []string{"", "  ", `git "x y"`, "** git", "git ** x"} {
		kit.Fails(t, new(Command).UnmarshalText([]byte(text)), "", "command %q was taken", text)
	}
}

func TestBracesStandForABoundedNumberOfPatternsQuickly(t *testing.T) {
	for _, text := range []string{
		strings.Repeat("{a,b}", 200), strings.Repeat("{", 500) + strings.Repeat("}", 500), strings.Repeat("{a,", 250) + strings.Repeat("}", 250),
		strings.Repeat("{{a}{b}", 120) + strings.Repeat("}", 120), strings.Repeat("{", 1000), strings.Repeat("{,}", 300), strings.Repeat("{{,},{,}}", 110), strings.Repeat("{{{,}}}", 140),
	} {
		start := time.Now()
		_ = new(PathGlob).UnmarshalText([]byte(text))
		if took := time.Since(start); took > time.Minute {
			t.Errorf("%.20s... took %v", text, took)
		}
	}
}

func TestCommandPatterns(t *testing.T) {
	for _, c := range []struct {
		pattern, argv string
		allow, deny   bool
	}{
		{"ls", "ls", true, true}, {"ls", "ls -l", false, true}, {"ls", "/bin/ls", true, true}, {"ls", "lsof", false, false},
		{"/bin/ls", "/bin/ls", true, true}, {"/bin/ls", "/tmp/ls", false, false}, {"git status", "git", false, false},
		{"git log **", "git log", true, true}, {"git log **", "git log -p -1", true, true}, {"git log **", "git push", false, false},
		{"git push", "git push origin", false, true}, {"git -? *", "git -C x", true, true}, {"**", "rm -rf /", true, true}, {"go test ./*", "go test ./...", true, true},
	} {
		var p Command
		kit.OK(t, p.UnmarshalText([]byte(c.pattern)))
		argv := strings.Fields(c.argv)
		if p.match(argv, false) != c.allow || p.match(argv, true) != c.deny {
			t.Errorf("%q on %q: %v, %v", c.pattern, c.argv, p.match(argv, false), p.match(argv, true))
		}
	}
}

// FuzzPathGlob compares the matcher with an equivalent regular expression.
func FuzzPathGlob(f *testing.F) {
	f.Add("src/**/*.go", "src/a/b.go")
	f.Add("**/{a,b}/[x-z]", "q/b/y")
	f.Add("a/**/b/**", "a/b")
	f.Fuzz(func(t *testing.T, pattern, name string) {
		var g PathGlob
		if g.UnmarshalText([]byte(pattern)) != nil {
			return
		}
		start := time.Now()
		g = g.anchor("/")
		got := g.match(name, false)
		if took := time.Since(start); took > time.Minute {
			t.Errorf("%d bytes on %d bytes took %v", len(pattern), len(name), took)
		}
		if got && !g.match(name, true) {
			t.Errorf("%q matches %q and yet not what is below", pattern, name)
		}
		name = strings.Trim(name, "/")
		if !utf8.ValidString(pattern+" "+name) || strings.ContainsAny(pattern, `{}[]\`) || !strings.Contains(strings.Trim(pattern, "/"), "/") || strings.Contains(name, "//") || strings.HasPrefix(pattern, "./") {
			return // the expression below does not support it
		}
		kit.Equal(t, got, expression(strings.Trim(pattern, "/")).MatchString("/"+name), pattern, name)
	})
}

// expression translates a pattern of several parts, which starts at the root.
func expression(pattern string) *regexp.Regexp {
	var b strings.Builder
	for part := range strings.SplitSeq(pattern, "/") {
		if part == "**" {
			b.WriteString("(/[^/]+)*")
			continue
		}
		b.WriteString("/" + strings.NewReplacer(`\*`, `[^/]*`, `\?`, `[^/]`, `\[`, `[`, `\]`, `]`).Replace(regexp.QuoteMeta(part)))
	}
	return regexp.MustCompile("(?s)^" + b.String() + "$")
}

func TestPathGlobsAgreeWithAnExpression(t *testing.T) {
	part := rapid.SampledFrom([]string{"**", "*", "a", "b", "a*", "*b", "?", "[ab]", "ab"})
	name := rapid.SampledFrom([]string{"a", "b", "ab", "ba", "c", "abb"})
	rapid.Check(t, func(t *rapid.T) {
		pattern := strings.Join(rapid.SliceOfN(part, 2, 6).Draw(t, "pattern"), "/")
		path := "/" + strings.Join(rapid.SliceOfN(name, 1, 6).Draw(t, "path"), "/")
		var g PathGlob
		kit.OK(t, g.UnmarshalText([]byte(pattern)))
		g = g.anchor("/")
		if want := expression(pattern).MatchString(path); g.match(path, false) != want {
			t.Fatalf("%q on %q: %v", pattern, path, !want)
		}
		if want := expression(pattern + "/**").MatchString(path); g.match(path, true) != want {
			t.Fatalf("%q on %q or below: %v", pattern, path, !want)
		}
	})
}
