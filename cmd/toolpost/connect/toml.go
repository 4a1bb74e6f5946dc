package connect

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"toolpost/config"
	"toolpost/wire/regex"
	"toolpost/wire/strictjson"
)

// tomlFormat is TOML, in which each server is a table. A library could only rewrite the whole document, without its
// comments. So the table is found and changed as lines, and the library checks the result.
type tomlFormat struct{}

func (tomlFormat) decode(text []byte) (map[string]any, error) {
	doc := map[string]any{}
	err := toml.Unmarshal(text, &doc)
	if bad, ok := errors.AsType[*toml.DecodeError](err); ok {
		line, column := bad.Position()
		return nil, fmt.Errorf("line %d, column %d: %s", line, column, strings.TrimPrefix(bad.Error(), "toml: "))
	}
	return doc, err
}

func (f tomlFormat) set(text []byte, key, name string, entry config.Fields) ([]byte, error) {
	lines, err := tomlLines(key, name, entry)
	if err != nil {
		return nil, err
	}
	from, to, err := f.find(text, key, name)
	switch {
	case err != nil:
		return nil, err
	case from < to:
		return slices.Concat(text[:from], lines, text[to:]), nil
	}
	out := slices.Clone(text)
	if len(out) > 0 && !bytes.HasSuffix(out, []byte("\n")) {
		out = append(out, '\n')
	}
	if len(out) > 0 {
		out = append(out, '\n')
	}
	return append(out, lines...), nil
}

func (f tomlFormat) remove(text []byte, key, name string, _ bool) ([]byte, error) {
	from, to, err := f.find(text, key, name)
	if err != nil {
		return nil, err
	}
	if from == to {
		return nil, fmt.Errorf("the server %q is not a table of its own, [%s.%s]; take it out by hand", name, key, name)
	}
	before := bytes.TrimRight(text[:from], "\r\n")
	if len(bytes.TrimSpace(text[to:])) == 0 && len(before) > 0 { // the empty line came with the table
		return append(slices.Clone(before), '\n'), nil
	}
	return slices.Concat(text[:from], bytes.TrimLeft(text[to:], "\r\n")), nil
}

// find returns the lines of a server's table and of the tables in it; from equals to if there is none.
func (tomlFormat) find(text []byte, key, name string) (from, to int, err error) {
	p := &unstable.Parser{KeepComments: true}
	p.Reset(text)
	from, to = -1, len(text)
	for p.NextExpression() {
		e := p.Expression()
		if e.Kind != unstable.Table && e.Kind != unstable.ArrayTable {
			continue
		}
		var parts []string
		at := len(text)
		for it := e.Key(); it.Next(); {
			parts = append(parts, string(it.Node().Data))
			at = min(at, int(it.Node().Raw.Offset))
		}
		start := bytes.LastIndexByte(text[:at], '\n') + 1
		switch ours := len(parts) >= 2 && parts[0] == key && parts[1] == name; {
		case ours && from < 0:
			from = start
		case !ours && from >= 0 && to == len(text):
			to = start
		case ours && to < len(text):
			return 0, 0, fmt.Errorf("the server %q is written in several places; put them together first", name)
		}
	}
	if err := p.Error(); err != nil {
		return 0, 0, err
	}
	if from < 0 {
		return 0, 0, nil
	}
	return from, from + len(withoutTail(text[from:to])), nil
}

// withoutTail drops the empty lines and comments at the end, which belong to what follows.
func withoutTail(text []byte) []byte {
	lines := bytes.SplitAfter(text, []byte("\n"))
	for len(lines) > 0 {
		last := bytes.TrimSpace(lines[len(lines)-1])
		if len(last) > 0 && last[0] != '#' {
			break
		}
		lines = lines[:len(lines)-1]
	}
	return bytes.Join(lines, nil)
}

var bareKey = regex.Lazy(`^[A-Za-z0-9_-]+$`)

func tomlKey(name string) string {
	if bareKey().MatchString(name) {
		return name
	}
	return tomlText(name)
}

// tomlText writes text as JSON, which TOML reads the same except for the slash and DEL.
func tomlText(s string) string {
	return strings.ReplaceAll(string(strictjson.Quote(s)), "\x7f", `\u007f`)
}

// tomlLines writes a server as a table.
func tomlLines(key, name string, entry config.Fields) ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "[%s.%s]\n", tomlKey(key), tomlKey(name))
	for _, p := range entry {
		value, err := tomlValue(p.Value)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "%s = %s\n", tomlKey(p.Name), value)
	}
	return b.Bytes(), nil
}

func tomlValue(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return tomlText(v), nil
	case []string:
		var items []string
		for _, s := range v {
			items = append(items, tomlText(s))
		}
		return "[" + strings.Join(items, ", ") + "]", nil
	case config.Fields:
		var items []string
		for _, f := range v {
			value, err := tomlValue(f.Value)
			if err != nil {
				return "", err
			}
			items = append(items, tomlKey(f.Name)+" = "+value)
		}
		return "{ " + strings.Join(items, ", ") + " }", nil
	}
	return "", fmt.Errorf("%T cannot be written as TOML", v)
}
