// Package ignore parses ignore files, such as .gitignore, and reports which paths they leave out, as git does.
package ignore

import (
	"bytes"
	"slices"
	"strings"
)

// A Verdict is the result of matching a path against a list.
type Verdict int

// The verdicts. A list without a matching rule returns None, and the next list is tried.
const (
	None Verdict = iota
	Ignored
	Kept // by a rule that begins with an exclamation mark
)

// A List is the rules of one ignore file. It is immutable.
type List struct {
	rules []rule
	// literals and extensions map a whole name and its last extension to the number of the last rule that matches exactly
	// that, plus one. Most rules of most files are of these two kinds.
	literals   map[string]int
	extensions map[string]int
	rest       []int // the other rules, last first
	paths      bool  // whether a rule looks at more than the name
}

// A rule is one line.
type rule struct {
	keep     bool // the line began with !
	onlyDirs bool // the line ended with /
	byName   bool // the line has no other slash, so it matches the name alone
	prefix   string
	tokens   []token // the part after the prefix
}

// Parse reads the content of an ignore file.
func Parse(content []byte) *List {
	l := &List{literals: map[string]int{}, extensions: map[string]int{}}
	content = bytes.TrimPrefix(content, []byte("\xef\xbb\xbf"))
	for line := range bytes.SplitSeq(content, []byte("\n")) {
		if len(line) > 0 && line[0] != '#' {
			l.add(string(bytes.TrimSuffix(line, []byte("\r"))))
		}
	}
	l.sort()
	return l
}

func (l *List) add(line string) {
	if i := strings.IndexByte(line, 0); i >= 0 {
		line = line[:i] // git reads C strings
	}
	if r, ok := parseRule(trimSpaces(line)); ok {
		l.rules = append(l.rules, r)
	}
}

// sort indexes every rule for Match.
func (l *List) sort() {
	for i, r := range l.rules {
		switch ext, isExt := r.extension(); {
		case r.byName && !r.onlyDirs && len(r.tokens) == 0:
			l.literals[r.prefix] = i + 1
		case isExt:
			l.extensions[ext] = i + 1
		default:
			l.rest = append(l.rest, i)
			l.paths = l.paths || !r.byName
		}
	}
	slices.Reverse(l.rest)
}

// trimSpaces cuts trailing spaces, unless a backslash precedes them.
func trimSpaces(s string) string {
	end := 0 // after the last significant character
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case ' ':
			continue
		case '\\':
			if i++; i == len(s) {
				return s
			}
		}
		end = i + 1
	}
	return s[:end]
}

// parseRule parses a line; it returns false if the line is empty or malformed, which in git matches nothing.
func parseRule(s string) (r rule, ok bool) {
	s, r.keep = strings.CutPrefix(s, "!")
	if s, r.onlyDirs = strings.CutSuffix(s, "/"); s == "" {
		return r, false
	}
	r.byName = !strings.Contains(s, "/")
	if r.prefix = s; strings.ContainsAny(s, special) {
		r.prefix = s[:strings.IndexAny(s, special)]
	}
	s = s[len(r.prefix):]
	if !r.byName {
		r.prefix = strings.TrimPrefix(r.prefix, "/")
	}
	r.tokens, ok = compile(s, !r.byName)
	return r, ok && (r.prefix != "" || len(r.tokens) > 0)
}

// special are the characters that end a literal prefix.
const special = `*?[\`

// extension returns the ".go" of a rule "*.go".
func (r rule) extension() (string, bool) {
	if !r.byName || r.onlyDirs || r.prefix != "" || len(r.tokens) < 3 || r.tokens[0].kind != anything {
		return "", false
	}
	var ext []byte
	for i, t := range r.tokens[1:] {
		if t.kind != literal || (t.char == '.') != (i == 0) {
			return "", false
		}
		ext = append(ext, t.char)
	}
	return string(ext), true
}

// NeedsPath reports whether Match looks at more of a path than its last part.
func (l *List) NeedsPath() bool { return l.paths }

// Match returns the list's verdict on a path below the folder of its file; name is its last part. The last rule that
// matches decides. A path below an ignored folder is ignored, whatever its own verdict: the caller ensures that by not
// descending into such a folder.
func (l *List) Match(path, name string, isDir bool) Verdict {
	last := l.literals[name] - 1
	if dot := strings.LastIndexByte(name, '.'); dot >= 0 {
		last = max(last, l.extensions[name[dot:]]-1)
	}
	for _, i := range l.rest {
		if i < last {
			break
		}
		if l.rules[i].match(path, name, isDir) {
			last = i
			break
		}
	}
	switch {
	case last < 0:
		return None
	case l.rules[last].keep:
		return Kept
	}
	return Ignored
}

func (r *rule) match(path, name string, isDir bool) bool {
	if r.onlyDirs && !isDir {
		return false
	}
	if !r.byName {
		name = path
	}
	rest, ok := strings.CutPrefix(name, r.prefix)
	return ok && matchTokens(r.tokens, rest)
}
