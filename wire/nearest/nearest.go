// Package nearest suggests corrections: the known words closest to a mistyped one.
package nearest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"toolpost/tool"
)

// Check refuses names that do not exist: a rule about one would do nothing. Patterns may match nothing. If known is
// nil, any name may exist.
func Check(what string, given tool.Globs, known []string) error {
	for _, g := range given {
		if known == nil || !g.Plain() || slices.Contains(known, string(g)) {
			continue
		}
		hint := cmp.Or(Hint(string(g), known), "; known are "+strings.Join(known, ", "))
		return fmt.Errorf("there is no %s %q%s", what, string(g), hint)
	}
	return nil
}

// Hint returns the end of a message about an unknown word, or "" if no known word is near.
func Hint(word string, known []string) string {
	if near := Of(word, known); len(near) > 0 {
		return fmt.Sprintf("; did you mean %q?", near[0])
	}
	return ""
}

// Suggest ends a message about an unknown word with the known words that are near, or with otherwise if none is.
func Suggest(word string, known []string, otherwise string) string {
	if near := Of(word, known); len(near) > 0 {
		return didYouMean + strings.Join(near, " or ") + "?"
	}
	return otherwise
}

// Tool ends a not_found error about a tool with the names that are near, of the tools that the caller may see, or with
// otherwise if none is. An error to which a server has added them stays as it is.
func Tool(ctx context.Context, c tool.Catalog, p tool.Principal, name, otherwise string, err error) error {
	e := *tool.AsError(err)
	if e.Code != tool.CodeNotFound || len(name) > maxWord || strings.Contains(e.Message, didYouMean) {
		return err
	}
	var names []string
	for s := range c.Specs(ctx, p) {
		if s == nil || s.Name == "" {
			continue
		}
		names = append(append(names, s.Name), s.Aliases...)
		if strings.Contains(name, ".") {
			names = append(names, s.Source+"."+s.Name)
		}
	}
	e.Message += Suggest(name, names, otherwise)
	return &e
}

const didYouMean = "; did you mean "

// Of returns at most three of the known words that are near the given one, the nearest first. A word is near if few
// letters differ, whatever the case, or if one starts with the other.
func Of(word string, known []string) []string {
	var near []string
	far := map[string]int{}
	limit := min(max(1, len(word)/3), 5)
	for _, k := range known {
		far[k] = distance(strings.ToLower(word), strings.ToLower(k))
		alike := far[k] < max(len(word), len(k)) // one letter is not near every other
		if alike && far[k] <= limit || prefixed(word, k) {
			near = append(near, k)
		}
	}
	slices.SortStableFunc(near, func(a, b string) int { return far[a] - far[b] })
	return near[:min(3, len(near))]
}

// prefixed requires three letters in common, so that one letter does not suggest everything.
func prefixed(a, b string) bool {
	a, b = strings.ToLower(a), strings.ToLower(b)
	return min(len(a), len(b)) >= 3 && (strings.HasPrefix(a, b) || strings.HasPrefix(b, a))
}

// maxWord bounds the work: a longer name is not mistyped letter by letter.
const maxWord = 100

// distance counts insertions, deletions, replacements and swaps of neighbours.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	if len(x) > maxWord || len(y) > maxWord {
		return maxWord
	}
	before, last, row := make([]int, len(y)+1), make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range last {
		last[j] = j
	}
	for i := range x {
		row[0] = i + 1
		for j := range y {
			cost := 1
			if x[i] == y[j] {
				cost = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+cost)
			if i > 0 && j > 0 && x[i] == y[j-1] && x[i-1] == y[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(y)]
}
