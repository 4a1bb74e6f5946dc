package workspace

import (
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"toolpost/tool"
)

// Sensitive says which names nobody gets to see, as files or as folders: they are neither opened nor listed nor
// indexed. Patterns are of names, without slashes: *, ?, [a-z] and {a,b} as in a shell; upper and lower case are the
// same.
type Sensitive struct {
	Add   []string `yaml:"add" doc:"further names that are denied, such as *.kdbx"`
	Allow []string `yaml:"allow" doc:"names that are denied by default and allowed here, such as .env.example"`
}

// TempPrefix is how the names of unfinished files begin. Nobody sees them.
const TempPrefix = ".toolpost-"

// sensitiveByDefault are secrets and private keys.
func sensitiveByDefault() []string {
	return []string{
		".env", ".env.*", "credentials.json", "*.key", "*.pem", "*.p12", "*.pfx",
		"id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", ".ssh", ".netrc", ".git-credentials", ".pgpass",
	}
}

// ours is our own state, which no config gives away: it holds the tokens of the doors.
func ours() []string { return []string{".toolpost", TempPrefix + "*"} }

// sensitive decides about names.
type sensitive struct {
	ours, denied, allowed *names
}

func newSensitive(o Sensitive) (*sensitive, error) {
	for _, p := range slices.Concat(o.Add, o.Allow) {
		if CheckGlob(p) != nil || strings.Contains(p, "/") {
			return nil, tool.Errorf(tool.CodeInvalidInput,
				"sensitive: %q is not a pattern of names; write one such as *.key", p)
		}
	}
	return &sensitive{
		ours:    newNames(ours()),
		denied:  newNames(append(sensitiveByDefault(), o.Add...)),
		allowed: newNames(o.Allow),
	}, nil
}

// path reports whether any part of a path has a sensitive name.
func (s *sensitive) path(p string) bool {
	for part := range strings.SplitSeq(p, "/") {
		if s.name(part) {
			return true
		}
	}
	return false
}

// name reports whether a name is sensitive, or looks like one that is: a file system may take the two for the same,
// and so may people.
func (s *sensitive) name(name string) bool {
	if isPlain(name) {
		return s.folded(name)
	}
	folded := fold(name)
	return s.folded(folded) || slices.ContainsFunc(strings.FieldsFunc(folded, isSeparator), s.folded)
}

// isSeparator: some file systems take more than the slash for one, and the colon for the start of a stream's name.
func isSeparator(r rune) bool { return r == '/' || r == '\\' || r == ':' }

func (s *sensitive) folded(name string) bool {
	return s.ours.match(name) || s.denied.match(name) && !s.allowed.match(name)
}

// names is a set of patterns, sorted by how they are looked up.
type names struct {
	exact              map[string]bool
	prefixes, suffixes []string
	others             []string
}

func newNames(patterns []string) *names {
	n := &names{exact: map[string]bool{}}
	for _, p := range patterns {
		p = strings.ToLower(p)
		switch special := strings.IndexAny(p, `*?[{\`); {
		case special < 0:
			n.exact[p] = true
		case special == len(p)-1 && p[special] == '*':
			n.prefixes = append(n.prefixes, p[:special])
		case p[0] == '*' && !strings.ContainsAny(p[1:], `*?[{\`):
			n.suffixes = append(n.suffixes, p[1:])
		default:
			n.others = append(n.others, p)
		}
	}
	return n
}

func (n *names) match(name string) bool {
	return n.exact[name] ||
		slices.ContainsFunc(n.prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) ||
		slices.ContainsFunc(n.suffixes, func(s string) bool { return strings.HasSuffix(name, s) }) ||
		slices.ContainsFunc(n.others, func(p string) bool { return doublestar.MatchUnvalidated(p, name) }) // checked before
}
