package main

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"toolpost/codesearch/split"
)

// A pair is a function and the first sentence of its documentation, without the function's name.
type pair struct {
	language split.Language
	path     string
	query    string
	part     split.Part
	code     []byte // the part without its documentation
}

// minedFrom is the maximum number of pairs of one package, so that a large one does not outweigh all others.
const minedFrom = 12000

// mine extracts the pairs of a package's sources.
func mine(sources []source) []pair {
	var pairs []pair
	for _, s := range sources {
		if !utf8.Valid(s.text) || bytes.Contains(s.text[:min(2000, len(s.text))], []byte("DO NOT EDIT")) ||
			minified(s.text) {
			continue
		}
		for _, p := range split.Parts(s.language, s.text) {
			if q, ok := pairOf(s, p); ok {
				pairs = append(pairs, q)
			}
		}
	}
	return thin(pairs, minedFrom)
}

// thin keeps at most n of a list, evenly chosen.
func thin[T any](list []T, n int) []T {
	n = min(n, len(list))
	kept := make([]T, n)
	for i := range kept {
		kept[i] = list[i*len(list)/n]
	}
	return kept
}

func minified(text []byte) bool {
	return len(text)/(bytes.Count(text, []byte{'\n'})+1) > 200
}

func pairOf(s source, p split.Part) (pair, bool) {
	if p.Kind != split.Function || p.DocEnd == p.DocStart || len(p.Name) < 2 {
		return pair{}, false
	}
	code := bytes.TrimSpace(slices.Concat(s.text[p.Start:p.DocStart], s.text[p.DocEnd:p.End]))
	if lines := bytes.Count(code, []byte{'\n'}) + 1; lines < 3 || len(code) > 8<<10 {
		return pair{}, false
	}
	query, ok := sentenceOf(string(s.text[p.DocStart:p.DocEnd]), p.Name)
	if !ok {
		return pair{}, false
	}
	return pair{language: s.language, path: s.path, query: query, part: p, code: code}, true
}

var (
	tags     = regexp.MustCompile(`<[^<>]{1,80}>|\{@\w+\s+([^}]*)\}|@[a-z]+\{[^}]*\}`)
	marks    = regexp.MustCompile("^\\s*(///?!?|//!|/\\*[*!]*|\\*+/|\\*+|#+|\"\"\"|'''|@doc\\b|[rRuU]?\"\"\"|~[sS]\"\"\")")
	closings = regexp.MustCompile(`(\*+/|"""|''')\s*$`)
	words    = regexp.MustCompile(`[A-Za-z]{2,}`)
	heading  = regexp.MustCompile(`(?i)^(args|arguments|parameters|params|returns?|raises|examples?|notes?|usage|see also|todo|fixme|xxx|copyright|licen[cs]e)\b\s*:`)
)

// sentenceOf returns the first sentence of a comment: a query that a person might have typed.
func sentenceOf(doc, name string) (string, bool) {
	var lines []string
	for _, line := range strings.Split(doc, "\n") {
		line = closings.ReplaceAllString(line, "")
		line = strings.TrimSpace(marks.ReplaceAllString(line, ""))
		switch {
		case line == "" && len(lines) == 0, skipped(line, name, len(lines) == 0):
			continue
		case line == "" || strings.Trim(line, "=-~^*_") == "" || heading.MatchString(line) || line[0] == '@' ||
			line[0] == '\\':
			if len(lines) > 0 {
				return finish(lines, name)
			}
			continue
		}
		lines = append(lines, line)
		if strings.HasSuffix(line, ".") {
			break
		}
	}
	return finish(lines, name)
}

// skipped reports whether a line only precedes the first sentence, as in some styles: tags, and the name on a line of its
// own.
func skipped(line, name string, first bool) bool {
	if !first || line == "" {
		return false
	}
	bare := strings.TrimRight(line, ":()")
	return line[0] == '@' || line[0] == '\\' || line[0] == ':' || bare == name || strings.HasSuffix(bare, "."+name) ||
		strings.HasSuffix(bare, "::"+name)
}

// finish cuts the sentence, removes the name, and reports whether enough is left.
func finish(lines []string, name string) (string, bool) {
	s := tags.ReplaceAllString(strings.Join(lines, " "), " $1 ")
	if i := strings.Index(s, ". "); i > 0 {
		s = s[:i]
	}
	s = withoutName(s, name)
	n := len(words.FindAllString(s, -1))
	low := strings.ToLower(s)
	if n < 4 || n > 50 || len(s) > 400 || strings.Contains(low, "copyright") || strings.Contains(low, "license") ||
		strings.Contains(low, "eslint") || strings.HasPrefix(low, "todo") || strings.HasPrefix(low, "fixme") ||
		strings.ContainsAny(s, "{};=") {
		return "", false
	}
	return strings.TrimSpace(s), true
}

// withoutName removes a name that occurs as a whole word.
func withoutName(s, name string) string {
	for at := 0; ; {
		i := strings.Index(s[at:], name)
		if i < 0 {
			return s
		}
		i += at
		end := i + len(name)
		if i > 0 && isWord(s[i-1]) || end < len(s) && isWord(s[end]) {
			at = end
			continue
		}
		s = s[:i] + " " + s[end:]
		at = i
	}
}

func isWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_'
}
