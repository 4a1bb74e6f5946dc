package tool

import (
	"cmp"
	"strconv"
	"strings"
)

// MaxSlug is how long a slug is at the most, in bytes.
const MaxSlug = 64

// Slug makes a name that every protocol can carry, [a-zA-Z0-9_-]{1,64}, out of any other: what may not be in it becomes
// an underscore. Two names may have the same slug; see Slugs.
func Slug(name string) string {
	s := Safe(name, func(r rune) bool {
		return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-'
	})
	if s == "" {
		return "_"
	}
	return s[:min(len(s), MaxSlug)]
}

// Safe is Slug for a protocol that has other letters, or takes names of any length.
func Safe(name string, may func(rune) bool) string {
	return strings.Map(func(r rune) rune {
		if may(r) {
			return r
		}
		return '_'
	}, name)
}

// Slugs returns every tool a name of its own in a protocol that does not carry all names: the one that the engine has
// settled; or else its slug, prefixed with its source where two would clash, and numbered where that does not help.
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

// Untaken returns a name that is not taken, and within most bytes: the given one, or the first of name_2, name_3 ...
// that is free.
func Untaken(name string, most int, taken func(string) bool) string {
	free := name
	for n := 2; taken(free); n++ {
		number := "_" + strconv.Itoa(n)
		free = name[:min(len(name), most-len(number))] + number
	}
	return free
}
