package tool

import (
	"cmp"
	"strconv"
	"strings"
)

// MaxSlug is the maximum length of a slug in bytes.
const MaxSlug = 64

// Slug turns any name into one that every protocol can carry, [a-zA-Z0-9_-]{1,64}: other characters become underscores.
// Two names may have the same slug; see Slugs.
func Slug(name string) string {
	s := Safe(name, func(r rune) bool {
		return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-'
	})
	if s == "" {
		return "_"
	}
	return s[:min(len(s), MaxSlug)]
}

// Safe is Slug for a protocol that allows other characters, or names of any length.
func Safe(name string, may func(rune) bool) string {
	return strings.Map(func(r rune) rune {
		if may(r) {
			return r
		}
		return '_'
	}, name)
}

// Slugs gives every tool a unique name for a protocol that does not carry all names: the one that the engine has set;
// or else its slug, prefixed with its source if two would clash, and numbered if that does not help.
func Slugs(specs []*Spec) map[string]*Spec {
	count := map[string]int{}
	for _, s := range specs {
		if s.Slug == "" {
			count[Slug(s.Name)]++
		}
	}
	named := map[string]*Spec{}
	for _, s := range specs {
		name := cmp.Or(s.Slug, Slug(s.Name))
		if count[name] > 1 {
			name = Slug(s.Source + "_" + s.Ref().Name)
		}
		name = Untaken(name, MaxSlug, func(name string) bool { return named[name] != nil })
		named[name] = s
	}
	return named
}

// Untaken returns a name that is not taken and has at most the given number of bytes: name itself, or the first free
// one of name_2, name_3 ...
func Untaken(name string, most int, taken func(string) bool) string {
	free := name
	for n := 2; taken(free); n++ {
		number := "_" + strconv.Itoa(n)
		free = name[:min(len(name), most-len(number))] + number
	}
	return free
}
