package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"toolpost/tool"
	"toolpost/wire/regex"
	"toolpost/wire/strictjson"
)

// A Field is an entry to be written into a config, here or for another program. Its value is a string, a bool, a list
// of strings, or Fields.
type Field struct {
	Name  string
	Value any
}

// Fields are written in their order.
type Fields []Field

// AddSource adds a source after the others, in the layout of the file; a note becomes a comment. Everything else stays
// as it is: a library that rewrites the file loses blank lines, and moves comments.
func AddSource(path string, text []byte, note string, source Fields) ([]byte, error) {
	return AddTo(path, text, "sources", note, source)
}

// AddTo adds an entry to a section that is a list, in the same way.
func AddTo(path string, text []byte, key, note string, entry Fields) ([]byte, error) {
	return change(path, text, key, func(e *editor) (string, error) {
		return entry.Flow(), e.add(entry.block(note), entry.Flow())
	}, func(now any) any {
		list, _ := now.([]any)
		return append(list, entry.JSON())
	})
}

// RemoveSource removes a source.
func RemoveSource(path string, text []byte, name string) ([]byte, error) {
	at := -1
	return change(path, text, "sources", func(e *editor) (string, error) {
		seq, _ := e.value.(*ast.SequenceNode)
		if seq != nil {
			at = slices.IndexFunc(seq.Values, func(n ast.Node) bool {
				called, ok := child(n, "name").(*ast.StringNode)
				return ok && called.Value == name
			})
		}
		if at < 0 {
			return "", tool.Errorf(tool.CodeNotFound, "%s has no source %q", path, name)
		}
		return "", e.remove(at)
	}, func(now any) any { return slices.Delete(now.([]any), at, at+1) })
}

// AddEntry adds an entry after the others of a section, here or in the file of another program.
func AddEntry(path string, text []byte, section, name string, from Fields) ([]byte, error) {
	line := plain(name) + ": " + from.Flow()
	return change(path, text, section, func(e *editor) (string, error) {
		return line, e.add([]string{line}, line)
	}, func(now any) any {
		all, _ := now.(map[string]any)
		if all == nil {
			all = map[string]any{}
		}
		all[name] = from.JSON()
		return all
	})
}

// RemoveEntry removes an entry of a section, and the section if it was the last one.
func RemoveEntry(path string, text []byte, section, name string) ([]byte, error) {
	return change(path, text, section, func(e *editor) (string, error) {
		pairs, _ := pairsOf(e.value)
		at := slices.IndexFunc(pairs, func(p pair) bool { return p.name == name })
		if at < 0 {
			return "", tool.Errorf(tool.CodeNotFound, "%s has no %q in `%s`", path, name, section)
		}
		if len(pairs) == 1 && e.line < e.starts()[0] { // the section was added with its first entry
			e.drop()
			return "", nil
		}
		return "", e.remove(at)
	}, func(now any) any {
		delete(now.(map[string]any), name)
		return now
	})
}

// AddSection adds a section with one field at the end of a config that lacks it.
func AddSection(path string, text []byte, section, field, value string) ([]byte, error) {
	line := section + ": {" + field + ": " + plain(value) + "}"
	before, err := YAMLValue(path, text)
	if err != nil {
		return nil, err
	}
	added := fmt.Appendf(bytes.TrimRight(slices.Clone(text), "\n"), "\n\n%s\n", line)
	after, err := YAMLValue(path, added)
	if before == nil {
		before = map[string]any{}
	}
	if before[section] = map[string]any{field: value}; err != nil || !reflect.DeepEqual(full(before), full(after)) {
		return nil, byHand(path, section, line)
	}
	return added, nil
}

// change edits one section as text, and checks that the result has the intended meaning and no other change: to returns
// the intended value of the section.
func change(path string, text []byte, key string, edit func(*editor) (string, error), to func(now any) any) ([]byte, error) {
	if rest, ok := bytes.CutPrefix(text, []byte(byteOrderMark)); ok {
		changed, err := change(path, rest, key, edit, to)
		if err != nil {
			return nil, err
		}
		return append([]byte(byteOrderMark), changed...), nil
	}
	before, err := YAMLValue(path, text)
	if err != nil {
		return nil, err
	}
	e, err := newEditor(path, text, key)
	if err != nil {
		return nil, err
	}
	line, err := edit(e)
	if errors.Is(err, errByHand) {
		return nil, byHand(path, key, line)
	} else if err != nil {
		return nil, err
	}
	before[key] = to(before[key])
	after, err := YAMLValue(path, e.text)
	if err != nil || !reflect.DeepEqual(full(before), full(after)) {
		return nil, byHand(path, key, line)
	}
	return e.text, nil
}

func byHand(path, key, line string) error {
	return tool.Errorf(tool.CodeUnsupported, "%s is laid out so that its section `%s` cannot be changed here; do it by "+
		"hand: %s", path, key, cmp.Or(line, "take the entry out"))
}

// full drops empty sections: it does not matter how those are written.
func full(all map[string]any) map[string]any {
	maps.DeleteFunc(all, func(_ string, v any) bool {
		list, isList := v.([]any)
		entries, isMap := v.(map[string]any)
		return v == nil || isList && len(list) == 0 || isMap && len(entries) == 0
	})
	return all
}

// YAMLValue returns the content of a file, whatever its layout.
func YAMLValue(path string, text []byte) (map[string]any, error) {
	d, err := parse(path, text)
	if err != nil {
		return nil, err
	}
	if isNull(d.root) {
		return map[string]any{}, nil
	}
	b, err := toJSON(d.root)
	if err != nil {
		return nil, d.explain(err)
	}
	v, err := strictjson.Decode(b)
	all, ok := v.(map[string]any)
	if err == nil && !ok {
		err = fmt.Errorf("%s: expected a mapping", path)
	}
	return all, err
}

// errByHand refuses a layout that is not understood well enough to be changed.
var errByHand = errors.New("by hand")

// An editor changes one section of a file.
type editor struct {
	text  []byte
	key   string
	there bool
	value ast.Node // of the section
	line  int      // the line of its key, from 1
	end   int      // the line of the next key, or the one after the last line
	flow  bool     // the whole file is written in brackets
}

func newEditor(path string, text []byte, key string) (*editor, error) {
	d, err := parse(path, text)
	if err != nil {
		return nil, err
	}
	pairs, err := pairsOf(d.root)
	if err != nil {
		return nil, d.explain(err)
	}
	e := &editor{text: slices.Clip(text), key: key}
	if m, ok := d.root.(*ast.MappingNode); ok {
		e.flow = m.IsFlowStyle
	}
	e.end = len(e.lines()) + 1
	for i, p := range pairs {
		if p.name != key {
			continue
		}
		e.there, e.value, e.line = true, p.value, position(p.key).Line
		if i+1 < len(pairs) {
			e.end = position(pairs[i+1].key).Line
		}
	}
	return e, nil
}

func (e *editor) lines() []string { return slices.Collect(strings.Lines(string(e.text))) }

// add puts an entry after the others: as lines, or in brackets if the others are in brackets.
func (e *editor) add(block []string, flow string) error {
	if open, shut, values := brackets(e.value); shut != nil {
		return e.addFlow(shut, values, flow, open)
	}
	lines := e.lines()
	if n := len(lines); n > 0 && !strings.HasSuffix(lines[n-1], "\n") {
		lines[n-1] += "\n"
	}
	indent, at := "  ", len(lines)
	var head []string
	switch starts := e.starts(); {
	case e.flow:
		return errByHand
	case !e.there:
		if len(lines) > 0 {
			head = append(head, "\n")
		}
		head = append(head, e.key+":\n")
	case len(starts) > 0:
		first := lines[starts[0]-1]
		indent = first[:len(first)-len(strings.TrimLeft(first, " "))]
		at = e.contentEnd(lines, e.end-1, len(indent))
		if slices.ContainsFunc(starts[1:], func(line int) bool { return stands(lines, line) }) {
			head = append(head, "\n")
		}
	case !isNull(e.value) || e.value != nil && e.value.GetToken().Type == token.NullType:
		return errByHand
	default:
		at = e.line
	}
	for i, line := range block {
		if i > 0 && len(block) > 1 {
			line = "  " + line
		}
		head = append(head, indent+line+"\n")
	}
	e.text = []byte(strings.Join(slices.Insert(lines, at, head...), ""))
	return nil
}

// stands reports whether a blank line separates an entry, with its comments, from the one before it.
func stands(lines []string, line int) bool {
	for line--; line > 0 && strings.HasPrefix(strings.TrimSpace(lines[line-1]), "#"); line-- {
	}
	return line > 0 && isEmpty(lines[line-1])
}

func isEmpty(line string) bool { return strings.TrimSpace(line) == "" }

// contentEnd goes back over empty lines, and over comments that are indented less than entries: those belong to what
// follows.
func (e *editor) contentEnd(lines []string, end, indent int) int {
	for end > e.line {
		line := lines[end-1]
		text := strings.TrimLeft(line, " ")
		remark := strings.HasPrefix(text, "#") && (len(line)-len(text) < indent || indent == 0)
		if !isEmpty(line) && !remark {
			break
		}
		end--
	}
	return end
}

// starts lists the first lines of the entries of a section that is written without brackets.
func (e *editor) starts() (lines []int) {
	switch v := e.value.(type) {
	case *ast.SequenceNode:
		for _, entry := range v.Entries {
			lines = append(lines, entry.Start.Position.Line)
		}
	case *ast.MappingNode, *ast.MappingValueNode:
		pairs, _ := pairsOf(v)
		for _, p := range pairs {
			lines = append(lines, position(p.key).Line)
		}
	}
	return lines
}

// brackets returns the brackets of a section and how many entries it has, or nil if it is written without brackets.
func brackets(n ast.Node) (open, shut *token.Token, values int) {
	switch v := n.(type) {
	case *ast.SequenceNode:
		if v.IsFlowStyle {
			return v.Start, v.End, len(v.Values)
		}
	case *ast.MappingNode:
		if v.IsFlowStyle {
			return v.Start, v.End, len(v.Values)
		}
	}
	return nil, nil, 0
}

func (e *editor) addFlow(shut *token.Token, values int, flow string, open *token.Token) error {
	at, ok := e.offset(shut)
	from, fine := e.offset(open)
	if !ok || !fine {
		return errByHand
	}
	end := at
	for end > from+1 && strings.ContainsRune(" \t\r\n", rune(e.text[end-1])) {
		end--
	}
	if values > 0 && e.text[end-1] != ',' {
		flow = ", " + flow
	} else if values > 0 {
		flow = " " + flow
	}
	e.text = slices.Concat(e.text[:end], []byte(flow), e.text[end:])
	return nil
}

// offset returns the position of a bracket in the text. The lexer counts characters, and loses count after some of
// them; so the text at the position is checked.
func (e *editor) offset(t *token.Token) (int, bool) {
	lines := e.lines()
	if t == nil || t.Position.Line < 1 || t.Position.Line > len(lines) {
		return 0, false
	}
	start := len(strings.Join(lines[:t.Position.Line-1], ""))
	line := []rune(lines[t.Position.Line-1])
	if t.Position.Column < 1 || t.Position.Column > len(line) {
		return 0, false
	}
	at := start + len(string(line[:t.Position.Column-1]))
	return at, bytes.HasPrefix(e.text[at:], []byte(t.Value))
}

// remove removes the entry with index n.
func (e *editor) remove(n int) error {
	if _, shut, _ := brackets(e.value); shut != nil {
		return e.removeFlow(n)
	}
	starts, lines := e.starts(), e.lines()
	if n >= len(starts) || starts[n] <= e.line {
		return errByHand
	}
	from := starts[n] - 1
	indent := len(lines[from]) - len(strings.TrimLeft(lines[from], " "))
	to := e.end - 1
	if n+1 < len(starts) {
		to = starts[n+1] - 1
	}
	for to = e.contentEnd(lines, to, indent+1); to <= from; to++ { // its comments are indented further than it is
	}
	if isEmpty(lines[from-1]) && (to == len(lines) || isEmpty(lines[to])) {
		from--
	}
	e.text = []byte(strings.Join(slices.Delete(lines, from, to), ""))
	return nil
}

// drop removes the whole section.
func (e *editor) drop() {
	lines := e.lines()
	from, to := e.line-1, e.contentEnd(lines, e.end-1, 1)
	if from > 0 && isEmpty(lines[from-1]) && (to == len(lines) || isEmpty(lines[to])) {
		from--
	}
	e.text = []byte(strings.Join(slices.Delete(lines, from, to), ""))
}

func (e *editor) removeFlow(n int) error {
	var first, last *token.Token
	switch v := e.value.(type) {
	case *ast.SequenceNode:
		first, last, _ = brackets(v.Values[n])
	case *ast.MappingNode:
		first = v.Values[n].Key.GetToken()
		_, last, _ = brackets(v.Values[n].Value)
	}
	from, ok := e.offset(first)
	to, fine := e.offset(last)
	if !ok || !fine {
		return errByHand
	}
	rest := bytes.TrimLeft(e.text[to+1:], " \t")
	before := bytes.TrimRight(e.text[:from], " \t")
	switch {
	case bytes.HasPrefix(rest, []byte(",")):
		rest, before = bytes.TrimLeft(rest[1:], " \t"), e.text[:from]
	case bytes.HasSuffix(before, []byte(",")):
		before = before[:len(before)-1]
		rest = e.text[to+1:]
	}
	e.text = slices.Concat(before, rest)
	return nil
}

// block writes a source as lines of its own; the caller indents those after the first by the width of the dash.
func (f Fields) block(note string) []string {
	var lines []string
	for i, field := range f {
		line := field.Name + ": " + written(field.Value)
		if i == 0 {
			if line = "- " + line; note != "" {
				line += " # " + note
			}
		}
		lines = append(lines, line)
	}
	return lines
}

// Flow writes the fields in brackets.
func (f Fields) Flow() string {
	var items []string
	for _, field := range f {
		name := field.Name
		if !plainText().MatchString(name) {
			name = plain(name)
		}
		items = append(items, name+": "+written(field.Value))
	}
	return "{" + strings.Join(items, ", ") + "}"
}

// String writes a source as lines of its own.
func (f Fields) String() string { return "  " + strings.Join(f.block(""), "\n    ") }

// JSON returns the fields as a JSON decoder would.
func (f Fields) JSON() map[string]any {
	all := map[string]any{}
	for _, field := range f {
		switch v := field.Value.(type) {
		case Fields:
			all[field.Name] = v.JSON()
		case []string:
			list := []any{}
			for _, s := range v {
				list = append(list, s)
			}
			all[field.Name] = list
		default:
			all[field.Name] = v
		}
	}
	return all
}

// Encode writes the fields as a JSON object, in their order.
func (f Fields) Encode() json.RawMessage {
	w := strictjson.NewWriter(200)
	for _, field := range f {
		if inner, ok := field.Value.(Fields); ok {
			w.Named(field.Name, inner.Encode())
			continue
		}
		value, _ := strictjson.Marshal(field.Value) // text, and lists of it
		w.Named(field.Name, value)
	}
	return w.Done()
}

func written(v any) string {
	switch v := v.(type) {
	case Fields:
		return v.Flow()
	case []string:
		var items []string
		for _, s := range v {
			items = append(items, plain(s))
		}
		return "[" + strings.Join(items, ", ") + "]"
	case string:
		return plain(v)
	}
	return fmt.Sprint(v)
}

// plainText matches text that cannot be mistaken for anything but text.
var plainText = regex.Lazy(`^(?:[A-Za-z_/]|\./|\.[A-Za-z])[A-Za-z0-9_./@+=-]*$`)

// plain writes text, in quotes if it could be mistaken for something else.
func plain(s string) string {
	reserved := []string{"true", "false", "null", "yes", "no", "on", "off", "y", "n", ".nan", ".inf"}
	if plainText().MatchString(s) && !slices.Contains(reserved, strings.ToLower(s)) {
		return s
	}
	return string(strictjson.Quote(s))
}
