package alphahuman

import (
	"strconv"
	"strings"

	"toolpost/tool"
)

// maxSlug bounds a name on the wire, in bytes.
const maxSlug = 64

// slug makes a name of [a-zA-Z0-9_-]{1,64}.
func slug(name string) string {
	s := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '_', r == '-':
			return r
		}
		return '_'
	}, name)
	if s == "" {
		return "_"
	}
	return s[:min(len(s), maxSlug)]
}

// slugs gives every tool a name on the wire: slugged, prefixed with its source where two would clash, and
// numbered where that does not help.
func slugs(specs []*tool.Spec) map[string]*tool.Spec {
	count := map[string]int{}
	for _, s := range specs {
		count[slug(s.Name)]++
	}
	named := map[string]*tool.Spec{}
	for _, s := range specs {
		name := slug(s.Name)
		if count[name] > 1 {
			name = slug(s.Source + "_" + s.Ref().Name)
		}
		for n, base := 2, name; named[name] != nil; n++ {
			number := "_" + strconv.Itoa(n)
			name = base[:min(len(base), maxSlug-len(number))] + number
		}
		named[name] = s
	}
	return named
}
