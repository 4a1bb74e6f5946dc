package engine

import (
	"encoding/json"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// shown returns a tool as people and models see it: invisible characters in names and descriptions, meant for only one
// of them, become escapes. This is done here, once, so that no door can forget it. The runner still gets the tool in the
// words of its source.
//
// Hidden text in a part of a schema that takes part in validation, such as the name of an argument, cannot be escaped
// without changing the meaning. Such a tool cannot be called, and the error gives the reason.
func shown(own *tool.Spec) (*tool.Spec, error) {
	s, other := *own, false
	for _, line := range []*string{&s.Name, &s.Title, &s.Walls} {
		other = replaced(line, tool.VisibleName(*line)) || other
	}
	other = replaced(&s.Description, tool.Visible(s.Description)) || other
	s.Aliases = slices.Clone(s.Aliases)
	for i := range s.Aliases {
		other = replaced(&s.Aliases[i], tool.VisibleName(s.Aliases[i])) || other
	}
	var err error
	for which, schema := range map[string]*json.RawMessage{"input": &s.Input, "output": &s.Output} {
		clean, at := shownSchema(*schema)
		other = other || len(clean) > 0 && &clean[0] != &(*schema)[0]
		if *schema = clean; at != "" {
			err = tool.Errorf(tool.CodeUnavailable, "its %s schema has characters that cannot be seen, at %s: the "+
				"author of the tool has to take them out", which, at).Because("hidden_characters")
		}
	}
	if !other { // the usual case: one spec serves for both
		return own, err
	}
	return &s, err
}

func replaced(text *string, by string) bool {
	was := *text
	*text = by
	return was != by
}

// shownSchema returns a schema whose descriptions hide nothing, and the place of hidden text that had to stay, or "" if
// there is none. A schema without hidden text is returned unchanged, byte for byte.
func shownSchema(raw json.RawMessage) (_ json.RawMessage, at string) {
	if !mayHide(raw) {
		return raw, ""
	}
	v, err := strictjson.Decode(raw)
	if err != nil {
		return raw, "" // it fails to compile as well
	}
	w := walk{}
	v = w.schema(v, "")
	if w.at != "" {
		return json.RawMessage(`{}`), w.at
	}
	if !w.escaped {
		return raw, ""
	}
	clean, err := strictjson.Marshal(v)
	if err != nil {
		return raw, ""
	}
	return clean, ""
}

// mayHide reports whether a schema is worth parsing: it has a character that may be hidden, literally or as an escape.
func mayHide(raw []byte) bool {
	for i := 0; i < len(raw); {
		r, size := rune(raw[i]), 1
		switch {
		case r < 0x7f && r != '\\': // control characters are only white space between values
			i++
			continue
		case r == '\\' && i+6 <= len(raw) && raw[i+1] == 'u':
			n, err := strconv.ParseUint(string(raw[i+2:i+6]), 16, 32)
			if r, size = rune(n), 6; err != nil || utf16.IsSurrogate(r) {
				return true
			}
		case r == '\\': // an escaped quote, newline, slash or backslash
			i += 2
			continue
		case r >= utf8.RuneSelf:
			r, size = utf8.DecodeRune(raw[i:])
		}
		if tool.Hides(string(r)) {
			return true
		}
		i += size
	}
	return false
}

// A walk visits all parts of a schema.
type walk struct {
	escaped bool   // something was escaped
	at      string // where text is hidden that takes part in validation
}

// schema visits one schema, whose members are keywords.
func (w *walk) schema(v any, at string) any {
	o, ok := v.(map[string]any)
	if !ok {
		return w.strict(v, at)
	}
	for key, value := range o {
		below := w.below(at, key)
		switch key {
		case "title", "description", "$comment":
			if text, ok := value.(string); ok {
				o[key] = w.text(text)
				continue
			}
			o[key] = w.strict(value, below)
		case "default", "examples":
			o[key] = w.loose(value, below)
		case "enum", "const":
			o[key] = w.strict(value, below)
		case "properties", "patternProperties", "$defs", "definitions", "dependentSchemas":
			o[key] = w.named(value, below)
		case "allOf", "anyOf", "oneOf", "prefixItems", "items":
			if list, ok := value.([]any); ok {
				for i, one := range list {
					list[i] = w.schema(one, below)
				}
				continue
			}
			o[key] = w.schema(value, below)
		default:
			o[key] = w.schema(value, below)
		}
	}
	return o
}

// named visits schemas that have names.
func (w *walk) named(v any, at string) any {
	o, ok := v.(map[string]any)
	if !ok {
		return w.strict(v, at)
	}
	for name, one := range o {
		o[name] = w.schema(one, w.below(at, name))
	}
	return o
}

// strict visits a value that takes part in validation.
func (w *walk) strict(v any, at string) any {
	switch v := v.(type) {
	case string:
		if tool.Hides(v) {
			w.at = at
		}
	case []any:
		for _, one := range v {
			w.strict(one, at)
		}
	case map[string]any:
		for name, one := range v {
			w.strict(one, w.below(at, name))
		}
	}
	return v
}

// loose visits a value that is only read.
func (w *walk) loose(v any, at string) any {
	switch v := v.(type) {
	case string:
		return w.text(v)
	case []any:
		for i, one := range v {
			v[i] = w.loose(one, at)
		}
	case map[string]any:
		for name, one := range v {
			v[name] = w.loose(one, w.below(at, name))
		}
	}
	return v
}

func (w *walk) text(text string) string {
	clean := tool.Visible(text)
	w.escaped = w.escaped || clean != text
	return clean
}

// below returns the place of a member. The name of a member takes part in validation.
func (w *walk) below(at, name string) string {
	at += "/" + tool.VisibleName(name)
	if tool.VisibleName(name) != name {
		w.at = at
	}
	return at
}
