package connect

import (
	"slices"
	"strings"

	"toolpost/wire/regex"
	"toolpost/wire/strictjson"
)

// A Line is a line of a difference: '+' is added, '-' is removed, and a blank stays.
type Line struct {
	Op   byte
	Text string
}

// context is how many lines are shown around a change.
const context = 2

// Diff shows the change as one block: from the first to the last line that differs.
func (c *Change) Diff() (lines []Line) {
	old, now := split(c.Before), split(c.After)
	if c.Gone {
		now = nil
	}
	head := 0
	for head < len(old) && head < len(now) && old[head] == now[head] {
		head++
	}
	tail := 0
	for tail < len(old)-head && tail < len(now)-head && old[len(old)-1-tail] == now[len(now)-1-tail] {
		tail++
	}
	add := func(op byte, text []string) {
		for _, t := range text {
			lines = append(lines, Line{op, strings.TrimRight(t, "\r\n")})
		}
	}
	add(' ', old[max(0, head-context):head])
	add('-', old[head:len(old)-tail])
	add('+', now[head:len(now)-tail])
	add(' ', old[len(old)-tail:min(len(old), len(old)-tail+context)])
	return lines
}

func split(text []byte) []string { return slices.Collect(strings.Lines(string(text))) }

// aString matches a string of JSON or TOML, with the : or = that follows if it is a name.
var aString = regex.Lazy(`("(?:[^"\\]|\\.)*"|'[^']*')(\s*[:=])?`)

// aKey matches the name at the start of a line of YAML.
var aKey = regex.Lazy(`^ *([A-Za-z0-9_.-]+:)?`)

// Shown returns a line of the difference for screens that others may see. It hides all values that are not part of the
// entry: they are unrelated to the change, and often tokens.
func (c *Change) Shown(text string) string {
	if _, ok := c.Client.format.(yamlFormat); ok && !strings.HasPrefix(strings.TrimSpace(text), c.name+": {") { // values need no quotes
		return aKey().FindString(text) + " ..."
	}
	shown := aString().ReplaceAllStringFunc(text, func(part string) string {
		if end := part[len(part)-1]; end == ':' || end == '=' || c.ours[plainText(part)] {
			return part
		}
		return `"..."`
	})
	if rest := aString().ReplaceAllString(text, ""); strings.ContainsAny(rest, `"'`) { // a string that spans lines
		shown = "..."
	}
	return Masked(shown)
}

func plainText(literal string) string {
	if text, err := strictjson.Unquote([]byte(literal)); err == nil && literal[0] == '"' {
		return string(text)
	}
	return literal[1 : len(literal)-1]
}

// own notes the values of an entry, which may be shown.
func (c *Change) own(v any) {
	switch v := v.(type) {
	case string:
		c.ours[v] = true
	case []any:
		for _, one := range v {
			c.own(one)
		}
	case map[string]any:
		for _, one := range v {
			c.own(one)
		}
	}
}
