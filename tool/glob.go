package tool

import (
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
