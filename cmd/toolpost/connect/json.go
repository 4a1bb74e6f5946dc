package connect

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tailscale/hujson"

	"toolpost/config"
	"toolpost/wire/strictjson"
)

// jsonFormat is hand-written JSON, for some clients with comments and trailing commas. A change touches only its own member,
// and leaves every other byte as it was.
type jsonFormat struct{ comments bool }

const (
	blanks   = " \t\r\n"
	mark     = "\ufeff" // some editors begin files with it
	maxDepth = 100_000  // the parser of hujson is recursive, and has no bound of its own
)

// parse reads a document, both as a tree that can be changed and as strict JSON. An empty text is an empty object, since
// that is how programs read a settings file that they have just created.
func (f jsonFormat) parse(text []byte) (root hujson.Value, plain []byte, err error) {
	if nested(text) > maxDepth {
		return root, nil, fmt.Errorf("nested deeper than %d levels", maxDepth)
	}
	body, marked := bytes.CutPrefix(text, []byte(mark))
	if root, err = hujson.Parse(body); err != nil {
		again, missing := hujson.Parse(append(bytes.Clone(body), "{}\n"...))
		if missing != nil {
			return root, nil, errors.New(strings.TrimPrefix(err.Error(), "hujson: "))
		}
		root = again
	}
	strict, _ := hujson.Parse(root.Pack()) // Clone drops the comma after a last member
	if f.comments {
		strict.Standardize() // keeps every offset
	}
	plain = strict.Pack()
	if err := strictjson.CheckObject(plain); err != nil {
		return root, nil, explain(plain, err)
	}
	if marked {
		root.BeforeExtra = slices.Concat([]byte(mark), root.BeforeExtra)
		root.UpdateOffsets()
	}
	return root, plain, nil
}

// nested bounds the nesting depth of a text from above. It also counts the brackets in strings and comments.
func nested(text []byte) (most int) {
	depth := 0
	for _, c := range text {
		switch c {
		case '{', '[':
			depth++
			most = max(most, depth)
		case '}', ']':
			depth--
		}
	}
	return most
}

// explain finds the place of an error, which the strict reader does not report.
func explain(plain []byte, err error) error {
	offset := len(plain) - len(bytes.TrimLeft(plain, blanks))
	_, again := jsontext.NewDecoder(bytes.NewReader(plain)).ReadValue()
	if syntax, ok := errors.AsType[*jsontext.SyntacticError](again); ok {
		offset = int(syntax.ByteOffset)
	}
	before := plain[:min(offset, len(plain))]
	column := len([]rune(string(before[bytes.LastIndexByte(before, '\n')+1:]))) + 1
	return fmt.Errorf("line %d, column %d: %w", bytes.Count(before, []byte("\n"))+1, column, err)
}

func (f jsonFormat) decode(text []byte) (map[string]any, error) {
	_, plain, err := f.parse(text)
	if err != nil {
		return nil, err
	}
	v, err := strictjson.Decode(plain)
	if err != nil {
		return nil, err
	}
	return v.(map[string]any), nil
}

func (f jsonFormat) set(text []byte, key, name string, entry config.Fields) ([]byte, error) {
	root, _, err := f.parse(text)
	if err != nil {
		return nil, err
	}
	return put(root, key, name, entry.Encode()), nil
}

func (f jsonFormat) remove(text []byte, key, name string, emptied bool) ([]byte, error) {
	root, _, err := f.parse(text)
	if err != nil {
		return nil, err
	}
	servers, _ := valueOf(&root, key)
	if o, i := memberOf(servers, name); i >= 0 {
		cut(o, i)
		if emptied && len(o.Members)+len(o.AfterExtra) == 0 {
			cut(memberOf(&root, key))
		}
	}
	return root.Pack(), nil
}

// memberOf finds a member of an object, or returns -1 if it is missing or v is not an object.
func memberOf(v *hujson.Value, name string) (*hujson.Object, int) {
	if v == nil {
		return nil, -1
	}
	o, ok := v.Value.(*hujson.Object)
	if !ok {
		return nil, -1
	}
	return o, slices.IndexFunc(o.Members, func(m hujson.ObjectMember) bool {
		return m.Name.Value.(hujson.Literal).String() == name
	})
}

func valueOf(v *hujson.Value, name string) (value, named *hujson.Value) {
	if o, i := memberOf(v, name); i >= 0 {
		return &o.Members[i].Value, &o.Members[i].Name
	}
	return nil, nil
}

// put returns the document with a value at key and name: it replaces the existing member, or follows the others. The value
// of key, if there is one, is an object.
func put(root hujson.Value, key, name string, value json.RawMessage) []byte {
	l := layoutOf(&root)
	servers, _ := valueOf(&root, key)
	if servers == nil {
		l.insert(&root, key, slices.Concat([]byte("{"), strictjson.Quote(name), []byte(":"), value, []byte("}")))
	} else if old, named := valueOf(servers, name); old != nil {
		old.Value = l.lines(value, l.indentOf(named.StartOffset))
	} else {
		l.insert(servers, name, value)
	}
	return root.Pack()
}

// A layout describes how the lines of a document look.
type layout struct {
	text          []byte
	unit, newline string
}

func layoutOf(root *hujson.Value) layout {
	l := layout{text: root.Pack(), unit: "  ", newline: "\n"}
	if bytes.Contains(l.text, []byte("\r\n")) {
		l.newline = "\r\n"
	}
	if o := root.Value.(*hujson.Object); len(o.Members) > 0 {
		if indent := l.indentOf(o.Members[0].Name.StartOffset); indent != "" {
			l.unit = indent
		}
	}
	return l
}

// indentOf returns the white space at the start of the line of an offset.
func (l layout) indentOf(offset int) string {
	line := l.text[bytes.LastIndexByte(l.text[:offset], '\n')+1 : offset]
	return string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))])
}

// lines writes a value over several lines, for a member with this indent.
func (l layout) lines(value json.RawMessage, indent string) hujson.ValueTrimmed {
	var text bytes.Buffer
	_ = json.Indent(&text, value, indent, l.unit)
	return parsed(bytes.ReplaceAll(text.Bytes(), []byte("\n"), []byte(l.newline)))
}

// parsed reads a value that this program wrote.
func parsed(value []byte) hujson.ValueTrimmed {
	v, _ := hujson.Parse(value)
	return v.Value
}

// insert appends a member to an object, in the layout of the object.
func (l layout) insert(v *hujson.Value, name string, value json.RawMessage) {
	o := v.Value.(*hujson.Object)
	oneLine := !bytes.Contains(l.text[v.StartOffset:v.EndOffset], []byte("\n"))
	m := hujson.ObjectMember{Name: hujson.Value{Value: hujson.Literal(strictjson.Quote(name))}}
	m.Value.BeforeExtra = hujson.Extra(" ")
	outer := l.indentOf(v.StartOffset)
	inner := outer + l.unit
	var last *hujson.Value
	if n := len(o.Members); n > 0 {
		inner, last = l.indentOf(o.Members[n-1].Name.StartOffset), &o.Members[n-1].Value
		m.Value.AfterExtra = last.AfterExtra // the comma after the last member, if the others have one
		last.AfterExtra = nil
	}
	if oneLine && last != nil {
		var flat bytes.Buffer
		_ = json.Compact(&flat, value)
		m.Name.BeforeExtra, m.Value.Value = hujson.Extra(" "), parsed(flat.Bytes())
	} else {
		comments := bytes.TrimRight(o.AfterExtra, blanks)
		m.Name.BeforeExtra = slices.Concat(comments, []byte(l.newline+inner))
		m.Value.Value = l.lines(value, inner)
		if o.AfterExtra = o.AfterExtra[len(comments):]; oneLine {
			o.AfterExtra = hujson.Extra(l.newline + outer)
		}
	}
	o.Members = append(o.Members, m)
}

// cut removes a member from an object, with its comma and the white space around it, but leaves comments.
func cut(o *hujson.Object, i int) {
	gone := o.Members[i]
	o.Members = slices.Delete(o.Members, i, i+1)
	before, after := gone.Name.BeforeExtra, &o.AfterExtra
	if last := i == len(o.Members); !last {
		after = &o.Members[i].Name.BeforeExtra
	} else if i > 0 { // the previous member has a comma if this one had it
		before = slices.Concat(o.Members[i-1].Value.AfterExtra, before)
		o.Members[i-1].Value.AfterExtra = nil
		if gone.Value.AfterExtra != nil {
			o.Members[i-1].Value.AfterExtra = hujson.Extra{}
		}
	}
	behind := slices.Concat(gone.Value.AfterExtra, *after)
	comments, rest := bytes.TrimRight(before, blanks), bytes.TrimLeft(behind, " \t")
	closes := len(rest) == 0 && after == &o.AfterExtra
	switch {
	case len(o.Members)+len(comments)+len(bytes.TrimLeft(rest, blanks)) == 0:
		*after = nil
	case len(rest) > 0 && (rest[0] == '\n' || rest[0] == '\r'), closes && len(comments) == 0:
		*after = slices.Concat(comments, behind)
	default:
		*after = slices.Concat(before, rest)
	}
}
