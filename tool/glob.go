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

// maxGlob is the maximum length of a pattern in bytes: people read a config.
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

// Match reports whether the pattern matches the whole name. It takes at most time proportional to the product of both
// lengths: on a mismatch only the last star has to take one more character.
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

// covers reports whether g certainly matches every name that narrow matches. A star in narrow is matched as a character
// that g cannot name, so only a star of g matches it, and that also matches whatever the star stands for. A question
// mark would match the character too, but not everything that the star stands for.
func (g Glob) covers(narrow Glob) bool {
	if strings.Contains(string(g), "?") && strings.Contains(string(narrow), "*") {
		return g == narrow
	}
	return g.Match(string(narrow))
}

// Several is a list of values that are read from text; a single one may be written alone.
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

// A Ref identifies a tool by its source and the source's own name for it. Decisions about tools compare refs, because
// the published name of a tool changes with what other sources bring.
type Ref struct{ Source, Name string }

// Ref returns the tool's ref.
func (s *Spec) Ref() Ref {
	return Ref{s.Source, cmp.Or(s.Own, s.Name)}
}

// String returns source.name. It is unique, because the name of a source has no dot in it.
func (r Ref) String() string { return r.Source + "." + r.Name }

// A Pattern selects tools, as people write it in rules and rights: NAME selects the tools that any source calls so,
// SOURCE.NAME those of one source. In both parts * stands for any characters and ? for one. The first dot ends the
// source; a name that itself has dots is written with its source, or with *. in front.
//
// A pattern has two ways of matching and no third, so that no code compares it with a text put together from a source
// and a name: Match is for rules that grant something, Mentions for rules that forbid it.
type Pattern string

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Pattern) UnmarshalText(b []byte) error { return (*Glob)(p).UnmarshalText(b) }

// split returns the source part and the name part of the pattern.
func (p Pattern) split() (source, name Glob) {
	if before, after, ok := strings.Cut(string(p), "."); ok {
		return Glob(before), Glob(after)
	}
	return "*", Glob(p)
}

// Plain reports whether the pattern is a name and nothing else.
func (p Pattern) Plain() bool { return Glob(p).Plain() }

// Match reports whether the pattern certainly selects the tool. An alias is not enough, nor is a name with a dot in it
// that reads like another source's tool: the source of the tool chooses both.
func (p Pattern) Match(r Ref) bool {
	source, name := p.split()
	return source.Match(r.Source) && name.Match(r.Name)
}

// Mentions reports whether the pattern may select the tool: certainly, or by an alias, or by a name of its own with a
// dot in it. A source must not escape a rule by the names it gives its tools.
func (p Pattern) Mentions(s *Spec) bool {
	r, whole := s.Ref(), Glob(p)
	return p.Match(r) || whole.Match(r.Name) || slices.ContainsFunc(s.Aliases, whole.Match)
}

// Covers reports whether the pattern certainly matches every tool that narrow matches.
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

// Reach reports whether one of the patterns can match a tool of a source; nil stands for everything.
func (p Patterns) Reach(source string) bool {
	return p == nil || slices.ContainsFunc(p, func(one Pattern) bool {
		of, _ := one.split()
		return of.Match(source)
	})
}

// Mentions reports whether one of the patterns mentions the tool; nil stands for everything.
func (p Patterns) Mentions(s *Spec) bool {
	return p == nil || slices.ContainsFunc(p, func(one Pattern) bool { return one.Mentions(s) })
}

// Check refuses patterns that grant access to the tools of a source that does not exist; if sources is nil, any may
// exist. The usual mistake is the name of a tool with a dot in it.
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
