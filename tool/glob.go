package tool

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxGlob is how long a pattern may be, in bytes: a config is read by people.
const maxGlob = 1024

// A Glob is a pattern for a name: * stands for any characters, ? for one.
type Glob string

// UnmarshalText implements encoding.TextUnmarshaler.
func (g *Glob) UnmarshalText(b []byte) error {
	switch *g = Glob(b); {
	case *g == "":
		return errors.New("a pattern is empty; * matches everything")
	case len(b) > maxGlob || !utf8.Valid(b):
		return fmt.Errorf("a pattern is longer than %d bytes, or not UTF-8", maxGlob)
	}
	return nil
}

// Plain reports whether the pattern is a name and nothing else.
func (g Glob) Plain() bool { return !strings.ContainsAny(string(g), "*?") }

// Match matches a whole name in time that is at most the product of both lengths: on a mismatch only the last star
// has to take one character more.
func (g Glob) Match(name string) bool {
	p, n := 0, 0
	star, mark := -1, 0
	for n < len(name) {
		switch {
		case p < len(g) && g[p] == '*':
			star, mark = p, n
			p++
		case p < len(g) && g[p] == '?':
			_, size := utf8.DecodeRuneInString(name[n:])
			p++
			n += size
		case p < len(g) && g[p] == name[n]:
			p++
			n++
		case star >= 0:
			_, size := utf8.DecodeRuneInString(name[mark:])
			mark += size
			p, n = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(string(g[p:]), "*") == ""
}

// covers reports whether a pattern certainly matches every name that another one matches. A star of the narrow one
// stands for a character that the wide one cannot name: only a star takes it, and whatever is put in its place. A
// question mark would take it too, and not what is put in its place.
func (g Glob) covers(narrow Glob) bool {
	if strings.Contains(string(g), "?") && strings.Contains(string(narrow), "*") {
		return g == narrow
	}
	return g.Match(string(narrow))
}

// Several are a list of what reads itself from text; a single one may be written alone.
type Several[T any, P interface {
	*T
	encoding.TextUnmarshaler
}] []T

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Several[T, P]) UnmarshalText(b []byte) error {
	*s = make(Several[T, P], 1)
	return P(&(*s)[0]).UnmarshalText(b)
}

// Globs are several patterns; a single one may be written alone.
type Globs []Glob

// UnmarshalText implements encoding.TextUnmarshaler.
func (g *Globs) UnmarshalText(b []byte) error {
	*g = make(Globs, 1)
	return (*g)[0].UnmarshalText(b)
}

// Match reports whether one of the patterns matches one of the names; nil stands for everything.
func (g Globs) Match(names ...string) bool {
	return g == nil || slices.ContainsFunc(g, func(one Glob) bool { return slices.ContainsFunc(names, one.Match) })
}

func (g Globs) String() string { return join(g) }

func join[S ~string](list []S) string {
	words := make([]string, len(list))
	for i, one := range list {
		words[i] = string(one)
	}
	return strings.Join(words, ", ")
}

// A Ref says which tool is meant: its source, and the name that the source has for it. What decides about tools
// compares refs: the name that a tool is published by changes with what other sources bring.
type Ref struct{ Source, Name string }

// Ref returns the tool's own.
func (s *Spec) Ref() Ref {
	return Ref{s.Source, cmp.Or(s.Own, s.Name)}
}

// String returns source.name. No two refs have the same, because the name of a source has no dot in it.
func (r Ref) String() string { return r.Source + "." + r.Name }

// A Pattern is for tools, as people write them in rules and rights: NAME is for the tools of any source that it calls
// so, SOURCE.NAME for those of one source. In both parts * stands for any characters and ? for one. The first dot ends
// the source; a name that has dots itself is written with its source, or with *. in front.
//
// There are two questions to a pattern, and no third, so that nobody compares it with a text that was put together of
// a source and a name: Match is for what lets somebody do something, Mentions for what keeps somebody from it.
type Pattern string

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Pattern) UnmarshalText(b []byte) error { return (*Glob)(p).UnmarshalText(b) }

// split returns what the pattern says of the source and of the name.
func (p Pattern) split() (source, name Glob) {
	if before, after, ok := strings.Cut(string(p), "."); ok {
		return Glob(before), Glob(after)
	}
	return "*", Glob(p)
}

// Plain reports whether the pattern is a name and nothing else.
func (p Pattern) Plain() bool { return Glob(p).Plain() }

// Match reports whether a tool is certainly meant. An alias is not enough, nor is a name with a dot in it that reads
// like another source's tool: both are for the source of the tool to choose.
func (p Pattern) Match(r Ref) bool {
	source, name := p.split()
	return source.Match(r.Source) && name.Match(r.Name)
}

// Mentions reports whether a tool can be meant: certainly, or by an alias, or by a name of its own that has a dot in
// it. A source must not get its tools out of a rule by what it calls them.
func (p Pattern) Mentions(s *Spec) bool {
	r, whole := s.Ref(), Glob(p)
	return p.Match(r) || whole.Match(r.Name) || slices.ContainsFunc(s.Aliases, whole.Match)
}

// Covers reports whether the pattern certainly matches every tool that another one matches.
func (p Pattern) Covers(narrow Pattern) bool {
	source, name := p.split()
	itsSource, itsName := narrow.split()
	return source.covers(itsSource) && name.covers(itsName)
}

// Patterns are several patterns; a single one may be written alone.
type Patterns []Pattern

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Patterns) UnmarshalText(b []byte) error {
	*p = make(Patterns, 1)
	return (*p)[0].UnmarshalText(b)
}

// Match reports whether one of the patterns matches the tool; nil stands for everything.
func (p Patterns) Match(r Ref) bool {
	return p == nil || slices.ContainsFunc(p, func(one Pattern) bool { return one.Match(r) })
}

// Mentions reports whether one of the patterns mentions the tool; nil stands for everything.
func (p Patterns) Mentions(s *Spec) bool {
	return p == nil || slices.ContainsFunc(p, func(one Pattern) bool { return one.Mentions(s) })
}

// Check refuses patterns that let somebody do something with the tools of a source that there is not; nil: there may be
// any. Most often it is the name of a tool that has a dot in it.
func (p Patterns) Check(sources []string) error {
	for _, one := range p {
		source, _ := one.split()
		if source.Plain() && sources != nil && !slices.Contains(sources, string(source)) {
			return fmt.Errorf("%q is for tools of the source %q, which does not exist; known are %s; "+
				"for a tool whose own name is %s write \"*.%s\"", one, source, strings.Join(sources, ", "), one, one)
		}
	}
	return nil
}

func (p Patterns) String() string { return join(p) }
