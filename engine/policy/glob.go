package policy

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"toolpost/tool"
)

// maxVariants limits how many patterns the braces of one pattern may expand to: a config is read by people.
const maxVariants = 64

// A PathGlob is a pattern for files: *, ? and [a-z] within a name, ** for any number of folders, and {a,b} for either. A
// pattern without a slash matches the name in any folder; any other starts at the folder of the config, or at the root
// if it starts with a slash.
type PathGlob struct {
	text     string
	variants [][]string // its parts between slashes, for each expansion of its braces
	anchored []anchored // the same from the root
}

// An anchored is a pattern for absolute paths, as doublestar matches them. Braces are expanded before, because each
// choice may start elsewhere: {*.key,/etc/**}.
type anchored struct {
	folder string // the pattern, without a ** at its end
	all    string // the pattern for everything below that folder
	deep   bool   // whether the pattern ends in ** and so matches all of that too
}

// newAnchored takes the parts between the slashes of a pattern, with the empty part before the first slash.
func newAnchored(parts []string) anchored {
	parts = slices.CompactFunc(slices.Clone(parts), func(a, b string) bool {
		return a == "**" && b == "**" // doublestar does not treat these as a single one
	})
	folder, deep := strings.CutSuffix(strings.Join(parts, "/"), "/**")
	return anchored{folder: folder, all: folder + "/**", deep: deep}
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (g *PathGlob) UnmarshalText(b []byte) error {
	if err := new(tool.Glob).UnmarshalText(b); err != nil {
		return err
	}
	g.text = string(b)
	for _, text := range expand(g.text) {
		if strings.HasPrefix(text, "~") {
			return fmt.Errorf("%q: ~ means nothing here; write the path out", g.text)
		}
		parts := strings.Split(text, "/")
		for i, part := range parts {
			if !doublestar.ValidatePattern(part) || part == ".." {
				return fmt.Errorf("%q is not a pattern: %q cannot be part of one", g.text, part)
			}
			if part != "**" && strings.Contains(part, "**") {
				return fmt.Errorf("%q is not a pattern: ** stands between slashes", g.text)
			}
			if part == "." && i > 0 || part == "" && i > 0 && i < len(parts)-1 {
				return fmt.Errorf("%q is not a pattern: leave out what stands for nothing, such as ./ and //", g.text)
			}
		}
		if g.variants = append(g.variants, parts); len(g.variants) > maxVariants {
			return fmt.Errorf("%q stands for more than %d patterns", g.text, maxVariants)
		}
	}
	return nil
}

// expand expands the braces of a pattern, one after the other, until there are too many.
func expand(text string) []string {
	open, choices, end := braces(text)
	if end < 0 {
		return []string{text}
	}
	var out []string
	for _, choice := range choices {
		for _, rest := range expand(text[end+1:]) {
			for _, chosen := range expand(choice) {
				if out = append(out, text[:open]+chosen+rest); len(out) > maxVariants {
					return out
				}
			}
		}
	}
	return out
}

// braces finds the first pair of braces and its choices, which are separated by the commas outside inner braces. end is
// negative if there are no braces.
func braces(text string) (open int, choices []string, end int) {
	depth, from := 0, 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '{':
			if depth++; depth == 1 {
				open, from = i, i+1
			}
		case ',':
			if depth == 1 {
				choices, from = append(choices, text[from:i]), i+1
			}
		case '}':
			if depth--; depth == 0 {
				return open, append(choices, text[from:i]), i
			}
			depth = max(depth, 0)
		}
	}
	return 0, nil, -1
}

// anchor returns a pattern that starts at the root. A folder may have two names because of a link: a pattern that begins
// with one of them also matches the other.
func (g PathGlob) anchor(dir string) PathGlob {
	out := PathGlob{text: g.text, variants: g.variants}
	for _, parts := range g.variants {
		if n := len(parts); n > 1 && parts[n-1] == "" { // the empty part after a slash at the end
			parts = parts[:n-1]
		}
		switch {
		case len(parts) == 1 && parts[0] != "**" && parts[0] != "." && parts[0] != "":
			parts = []string{"", "**", parts[0]}
		case parts[0] == "**":
			parts = append([]string{""}, parts...)
		case parts[0] != "":
			if parts[0] == "." {
				parts = parts[1:]
			}
			parts = append(quoted(dir), parts...)
		}
		out.anchored = append(out.anchored, newAnchored(parts))
		if real, ok := resolved(parts); ok {
			out.anchored = append(out.anchored, newAnchored(real))
		}
	}
	return out
}

// quoted returns the parts of a path as patterns that match only themselves.
func quoted(p string) []string {
	return strings.Split(strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `{`, `\{`, `}`,
		`\}`).Replace(strings.TrimSuffix(p, "/")), "/")
}

// resolved follows the links in the folders that a pattern begins with, as far as they exist now.
func resolved(parts []string) ([]string, bool) {
	var fixed []string // with the empty part before the first slash
	for _, part := range parts {
		name, ok := literal(part)
		if !ok {
			break
		}
		fixed = append(fixed, name)
	}
	for n := len(fixed); n > 1; n-- {
		named := strings.Join(fixed[:n], "/")
		real, err := filepath.EvalSymlinks(named)
		if err != nil {
			continue
		}
		if real == named {
			return nil, false
		}
		return append(quoted(real), parts[n:]...), true
	}
	return nil, false
}

// literal returns the name that a part of a pattern matches, if it matches only one.
func literal(part string) (string, bool) {
	var name strings.Builder
	for i := 0; i < len(part); i++ {
		switch part[i] {
		case '*', '?', '[':
			return "", false
		case '\\':
			i++ // it is followed by a character, otherwise the pattern would have been refused
		}
		name.WriteByte(part[i])
	}
	return name.String(), true
}

// match matches an absolute path. If below is set, it is enough that the pattern matches a folder that contains the
// path.
func (g PathGlob) match(abs string, below bool) bool {
	if abs = strings.Trim(abs, "/"); abs != "" {
		abs = "/" + abs
	}
	for _, a := range g.anchored {
		if doublestar.MatchUnvalidated(a.folder, abs) || (a.deep || below) && doublestar.MatchUnvalidated(a.all, abs) {
			return true
		}
	}
	return false
}

// PathGlobs is a list of patterns.
type PathGlobs = tool.Several[PathGlob, *PathGlob]

// A Command is a pattern for a command: a pattern for each of its words, split at spaces. ** at the end matches any
// number of further words.
type Command struct{ words []string }

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *Command) UnmarshalText(b []byte) error {
	if err := new(tool.Glob).UnmarshalText(b); err != nil {
		return err
	}
	c.words = strings.Fields(string(b))
	switch {
	case len(c.words) == 0:
		return errors.New("a command is empty; ** matches every command")
	case strings.ContainsAny(string(b), "\"'`\\"):
		return fmt.Errorf("%q: a command is split at spaces alone; write ? for a space or a quote within a word", b)
	}
	for _, w := range c.words[:len(c.words)-1] {
		if w == "**" {
			return fmt.Errorf("%q: ** stands for the words at the end of a command, and nowhere else", b)
		}
	}
	return nil
}

// match matches a program and its arguments. If below is set, further arguments do not matter.
func (c Command) match(argv []string, below bool) bool {
	words := c.words
	if last := len(words) - 1; words[last] == "**" {
		words, below = words[:last], true
	}
	if len(argv) < len(words) || len(argv) > len(words) && !below {
		return false
	}
	for i, w := range words {
		name := argv[i]
		if i == 0 && !strings.Contains(w, "/") {
			name = path.Base(name)
		}
		if !tool.Glob(w).Match(name) {
			return false
		}
	}
	return true
}

// Commands is a list of patterns.
type Commands = tool.Several[Command, *Command]
