package policy

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strings"

	"toolpost/tool"
)

// Bounds on patterns: a config is read by people.
const (
	maxPattern  = 1024 // bytes of one pattern
	maxVariants = 64   // patterns that the braces of one stand for
)

func checkPattern(s string) error {
	switch {
	case s == "":
		return errors.New("a pattern is empty; * matches everything")
	case len(s) > maxPattern:
		return fmt.Errorf("a pattern is longer than %d bytes", maxPattern)
	}
	return nil
}

// A PathGlob is a pattern for files: *, ? and [a-z] within a name, ** for any number of folders, and
// {a,b} for either. One without a slash is for the name, wherever the file is; any other starts at the
// folder of the config, or at the root when it starts with a slash.
type PathGlob struct {
	text     string
	variants [][]string // its parts between slashes
	anchored [][]part   // the same from the root
}

// A part of a pattern is for one name in a path.
type part struct {
	text string
	kind partKind
}

type partKind int

const (
	partName    partKind = iota // this name and no other: most parts
	partPattern                 // a pattern of path.Match
	partFolders                 // **: any number of folders
)

func (p part) match(name string) bool {
	if p.kind == partName {
		return p.text == name
	}
	ok, _ := path.Match(p.text, name) // the pattern was tried when it was read
	return ok
}

func partsFrom(texts []string) []part {
	parts := make([]part, len(texts))
	for i, text := range texts {
		name, plain := literal(text)
		switch {
		case text == "**":
			parts[i] = part{text, partFolders}
		case plain:
			parts[i] = part{name, partName}
		default:
			parts[i] = part{text, partPattern}
		}
	}
	return parts
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (g *PathGlob) UnmarshalText(b []byte) error {
	g.text = string(b)
	if err := checkPattern(g.text); err != nil {
		return err
	}
	for _, text := range expand(g.text) {
		if strings.HasPrefix(text, "~") {
			return fmt.Errorf("%q: ~ means nothing here; write the path out", g.text)
		}
		parts := strings.Split(text, "/")
		for i, part := range parts {
			if _, err := path.Match(part, ""); err != nil || part == ".." {
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

// expand writes the braces of a pattern out, one after the other, until there are too many.
func expand(text string) []string {
	open, end := braces(text)
	if end < 0 {
		return []string{text}
	}
	var out []string
	for _, choice := range choices(text[open+1 : end]) {
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

// braces finds the first pair; end is below zero where there is none.
func braces(text string) (open, end int) {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '{':
			if depth++; depth == 1 {
				open = i
			}
		case '}':
			if depth--; depth == 0 {
				return open, i
			}
			depth = max(depth, 0)
		}
	}
	return 0, -1
}

// choices splits at the commas that are not in braces of their own.
func choices(text string) []string {
	var out []string
	depth, from := 0, 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '{':
			depth++
		case '}':
			depth--
		case ',':
			if depth == 0 {
				out = append(out, text[from:i])
				from = i + 1
			}
		}
	}
	return append(out, text[from:])
}

// anchor makes a pattern that starts at the root. A folder may have two names, where a link leads to it:
// a pattern that begins with such a name is also for the other one.
func (g PathGlob) anchor(dir string) PathGlob {
	out := PathGlob{text: g.text, variants: g.variants}
	for _, parts := range g.variants {
		parts = trimmed(parts)
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
		parts = parts[1:] // the nothing before the first slash
		out.anchored = append(out.anchored, partsFrom(parts))
		if real, ok := resolved(parts); ok {
			out.anchored = append(out.anchored, partsFrom(real))
		}
	}
	return out
}

// trimmed leaves out the nothing behind a slash at the end.
func trimmed(parts []string) []string {
	if n := len(parts); n > 1 && parts[n-1] == "" {
		return parts[:n-1]
	}
	return parts
}

// quoted gives the parts of a path as patterns for themselves.
func quoted(p string) []string {
	return strings.Split(strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(strings.TrimSuffix(p, "/")), "/")
}

// resolved follows the links in the folders that a pattern begins with, as far as there are any now.
func resolved(parts []string) ([]string, bool) {
	var fixed []string
	for _, part := range parts {
		name, ok := literal(part)
		if !ok {
			break
		}
		fixed = append(fixed, name)
	}
	for n := len(fixed); n > 0; n-- {
		named := "/" + strings.Join(fixed[:n], "/")
		real, err := filepath.EvalSymlinks(named)
		if err != nil {
			continue
		}
		if real == named {
			return nil, false
		}
		return append(trimmed(quoted(real)[1:]), parts[n:]...), true
	}
	return nil, false
}

// literal gives the one name that a part of a pattern matches, where it is one.
func literal(part string) (string, bool) {
	var name strings.Builder
	for i := 0; i < len(part); i++ {
		switch part[i] {
		case '*', '?', '[':
			return "", false
		case '\\':
			i++ // what follows is there, else the pattern would not have been taken
		}
		name.WriteByte(part[i])
	}
	return name.String(), true
}

// match matches the parts of an absolute path. With below it is enough that the pattern matches a
// folder that the path is in.
func (g PathGlob) match(parts []string, below bool) bool {
	for _, v := range g.anchored {
		if matchParts(v, parts, below) {
			return true
		}
	}
	return false
}

// matchParts does for parts what tool.Glob does for characters.
func matchParts(pattern []part, parts []string, below bool) bool {
	p, t := 0, 0
	star, mark := -1, 0
	for {
		if below && onlyStars(pattern[p:]) {
			return true
		}
		if t == len(parts) {
			return onlyStars(pattern[p:])
		}
		switch {
		case p < len(pattern) && pattern[p].kind == partFolders:
			star, mark = p, t
			p++
		case p < len(pattern) && pattern[p].match(parts[t]):
			p++
			t++
		case star >= 0:
			mark++
			p, t = star+1, mark
		default:
			return false
		}
	}
}

func onlyStars(pattern []part) bool {
	for _, part := range pattern {
		if part.kind != partFolders {
			return false
		}
	}
	return true
}

// partsOf splits an absolute path.
func partsOf(abs string) []string {
	if abs = strings.Trim(abs, "/"); abs == "" {
		return nil
	}
	return strings.Split(abs, "/")
}

// PathGlobs are several patterns; a single one may be written alone.
type PathGlobs []PathGlob

// UnmarshalText implements encoding.TextUnmarshaler.
func (g *PathGlobs) UnmarshalText(b []byte) error {
	*g = make(PathGlobs, 1)
	return (*g)[0].UnmarshalText(b)
}

func (g PathGlobs) match(parts []string, below bool) bool {
	for _, one := range g {
		if one.match(parts, below) {
			return true
		}
	}
	return false
}

// A Command is a pattern for a command: a pattern for each of its words, split at spaces. ** at the end
// stands for any number of further words.
type Command struct{ words []string }

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *Command) UnmarshalText(b []byte) error {
	if err := checkPattern(string(b)); err != nil {
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

// match matches a program and its arguments. With below further arguments do not matter.
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

// Commands are several patterns; a single one may be written alone.
type Commands []Command

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *Commands) UnmarshalText(b []byte) error {
	*c = make(Commands, 1)
	return (*c)[0].UnmarshalText(b)
}

func (c Commands) match(argv []string, below bool) bool {
	for _, one := range c {
		if one.match(argv, below) {
			return true
		}
	}
	return false
}
