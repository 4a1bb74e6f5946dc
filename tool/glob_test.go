package tool_test

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"toolpost/internal/kit"
	"toolpost/tool"
)

func TestGlobsOfNames(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"*", "", true}, {"*", "anything/at all", true}, {"a", "a", true}, {"a", "A", false}, {"a", "ab", false},
		{"file.*", "file.read", true}, {"file.*", "file", false}, {"*.read", "file.read", true}, {"f*d", "file.read", true},
		{"f*e*d", "file.read", true}, {"f*x*d", "file.read", false}, {"?", "é", true}, {"?", "ab", false}, {"a*a*a*b", strings.Repeat("a", 200), false},
		{"**", "x", true}, {"a?c", "abc", true}, {"a?", "a", false}, {"ci-*", "ci-", true}, {"é*", "été", true}, {"é*", "éa", true},
		{"a", "", false}, {"*", "x/y", true}, {"a*", "a", true}, {"*a", "ba", true}, {"*a", "ab", false}, {"a*b*c", "abc", true}, {"a*b*c", "axxbyyc", true},
		{"a*b*c", "acb", false}, {"a*a", "a", false}, {"a**b", "ab", true},
	} {
		kit.Equal(t, tool.Glob(c.pattern).Match(c.name), c.want, c.pattern, c.name)
	}
}

// FuzzGlob compares the matcher with an equivalent regular expression.
func FuzzGlob(f *testing.F) {
	f.Add("f*.r?ad", "file.read")
	f.Add("*a*b", "aab")
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if len(pattern) > 64 || len(name) > 256 || !utf8.ValidString(pattern) || !utf8.ValidString(name) {
			return
		}
		expr := strings.NewReplacer(`\*`, `.*`, `\?`, `.`).Replace(regexp.QuoteMeta(pattern))
		if want := regexp.MustCompile(`(?s)^(?:` + expr + `)$`).MatchString(name); tool.Glob(pattern).Match(name) != want {
			t.Errorf("%q on %q: %v", pattern, name, !want)
		}
	})
}

func TestRightsOnlyRestrict(t *testing.T) {
	spec := &tool.Spec{Name: "read", Source: "files"}
	for _, c := range []struct {
		rights *tool.Rights
		want   bool
	}{
		{nil, true},
		{&tool.Rights{}, true},
		{&tool.Rights{Tools: tool.Patterns{}}, false},
		{&tool.Rights{Tools: tool.Patterns{"re*"}}, true},
		{&tool.Rights{Tools: tool.Patterns{"files.*"}}, true},
		{&tool.Rights{Tools: tool.Patterns{"write", "shell.*"}}, false},
	} {
		kit.Equal(t, (tool.Principal{ID: "a", Rights: c.rights}).May(spec), c.want, c.rights)
	}
}
