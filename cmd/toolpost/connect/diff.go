package connect

import (
	"strings"

	"toolpost/wire/regex"
	"toolpost/wire/strictjson"
	"toolpost/wire/textdiff"
)

// diffAround is how many lines are shown around a change.
const diffAround = 2

// Diff returns the lines of the change for screens that others may see. They begin with a sign: + is added, - is removed, and
// a blank stays.
func (c *Change) Diff() (lines []string) {
	now := string(c.After)
	if c.Gone {
		now = ""
	}
	_, runs := textdiff.Lines(string(c.Before), now, diffAround)
	for _, r := range runs {
		for _, line := range r.Pieces {
			lines = append(lines, string(r.Sign)+" "+c.shown(strings.TrimRight(line, "\r\n")))
		}
	}
	return lines
}

// aString matches a string of JSON or TOML, with the : or = that follows if it is a name.
var aString = regex.Lazy(`("(?:[^"\\]|\\.)*"|'[^']*')(\s*[:=])?`)

// aKey matches the name at the start of a line of YAML.
var aKey = regex.Lazy(`^ *([A-Za-z0-9_.-]+:)?`)

// shown hides all values in a line that are not part of the entry: they are unrelated to the change, and often tokens.
func (c *Change) shown(text string) string {
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
