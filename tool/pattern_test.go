package tool_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"toolpost/internal/kit"
	"toolpost/tool"
)

func TestPatternsOfTools(t *testing.T) {
	for _, c := range []struct {
		pattern, source, name string
		aliases               string
		match, mentions       bool
	}{
		// A bare name is for the tools with that name, whatever their source.
		{"readFile", "files", "readFile", "", true, true},
		{"readFile", "other", "readFile", "", true, true},
		{"readFile", "readFile", "x", "", false, false},
		{"readFile", "files", "readfile", "", false, false},
		{"read*", "files", "readFile", "", true, true},
		{"*", "files", "a.b.c", "", true, true},
		{"files*", "files", "readFile", "", false, false}, // it does not match the source
		// With a dot it is for a source and a name.
		{"files.readFile", "files", "readFile", "", true, true},
		{"files.readFile", "other", "readFile", "", false, false},
		{"files.*", "files", "readFile", "", true, true},
		{"files.*", "files", "a.b", "", true, true},
		{"*.readFile", "other", "readFile", "", true, true},
		{"f?les.r*", "files", "readFile", "", true, true},
		// A name with a dot is never a source and a name; Mentions matches it nevertheless.
		{"files.readFile", "x", "files.readFile", "", false, true},
		{"files.*", "x", "files.readFile", "", false, true},
		{"*.readFile", "x", "files.readFile", "", false, true},
		{"x.files.readFile", "x", "files.readFile", "", true, true},
		{"*.files.readFile", "x", "files.readFile", "", true, true},
		{"x.files.readFile", "x.files", "readFile", "", false, false}, // no source has such a name
		{"lease.issue", "toolpost", "lease.issue", "", false, true},
		{"toolpost.lease.issue", "toolpost", "lease.issue", "", true, true},
		// The same holds for aliases.
		{"file.read", "files", "readFile", "file.read", false, true},
		{"file.*", "files", "readFile", "file.read", false, true},
		{"files.file.read", "files", "readFile", "file.read", false, false},
		{"cat", "x", "dog", "wolf cat", false, true},
		{".x", "s", "x", "", false, false}, {"s.", "s", "x", "", false, false},
	} {
		spec := &tool.Spec{Name: c.name, Source: c.source, Aliases: strings.Fields(c.aliases)}
		clash := &tool.Spec{Name: c.source + "." + c.name, Own: c.name, Source: c.source, Aliases: spec.Aliases}
		p := tool.Pattern(c.pattern)
		for _, s := range []*tool.Spec{spec, clash} { // whatever its published name is
			if p.Match(s.Ref()) != c.match || p.Mentions(s) != c.mentions {
				t.Errorf("%q and %s of %s (%s): matches %v, mentions %v", c.pattern, s.Name, c.source, c.aliases, p.Match(s.Ref()), p.Mentions(s))
			}
		}
		if (tool.Patterns{"nothing", p}).Match(spec.Ref()) != c.match || (tool.Patterns{"nothing", p}).Mentions(spec) != c.mentions {
			t.Errorf("%q in a list says something else", c.pattern)
		}
	}
	some := &tool.Spec{Name: "x"}
	if !tool.Patterns(nil).Match(some.Ref()) || !tool.Patterns(nil).Mentions(some) || (tool.Patterns{}).Match(some.Ref()) || (tool.Patterns{}).Mentions(some) {
		t.Error("no list is everything, and an empty one nothing")
	}
}

// FuzzPattern compares the matcher with equivalent regular expressions for sources and names, and checks Covers against
// what two patterns match.
func FuzzPattern(f *testing.F) {
	f.Add("files.r*", "*", "files", "readFile", "file.read")
	f.Add("files.readFile", "files.*", "x", "files.readFile", "")
	f.Add("*.a.b", "a.b", "a", "b", "a.b")
	f.Fuzz(func(t *testing.T, pattern, wide, source, name, alias string) {
		for _, text := range []string{pattern, wide, source, name, alias} {
			if len(text) > 64 || !utf8.ValidString(text) {
				return
			}
		}
		if strings.Contains(source, ".") {
			return // no source of a config has such a name
		}
		p, spec := tool.Pattern(pattern), &tool.Spec{Source: source, Name: name, Aliases: []string{alias}}
		s, n, dotted := strings.Cut(pattern, ".")
		if !dotted {
			s, n = "*", pattern
		}
		match := says(s, source) && says(n, name)
		kit.Equal(t, p.Match(spec.Ref()), match, "%q matches %s of %s", pattern, name, source)
		if got, want := p.Mentions(spec), match || says(pattern, name) || says(pattern, alias); got != want {
			t.Errorf("%q mentions %s of %s (%s): %v", pattern, name, source, alias, got)
		}
		if match && tool.Pattern(wide).Covers(p) && !tool.Pattern(wide).Match(spec.Ref()) {
			t.Errorf("%q is said to cover %q, but for %s of %s", wide, pattern, name, source)
		}
		if other := (tool.Ref{Source: source, Name: name}); other.String() != fmt.Sprintf("%s.%s", source, name) ||
			!tool.Pattern(other.String()).Match(other) {
			t.Errorf("%q is not for itself", other)
		}
	})
}

func says(pattern, text string) bool {
	expr := strings.NewReplacer(`\*`, `.*`, `\?`, `.`).Replace(regexp.QuoteMeta(pattern))
	return regexp.MustCompile(`(?s)^(?:` + expr + `)$`).MatchString(text)
}
