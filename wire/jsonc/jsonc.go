// Package jsonc reads and changes JSON that people keep by hand: settings, in which some programs allow comments and
// trailing commas. A change touches the member that it is about, and leaves every other byte as it was.
package jsonc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"toolpost/wire/strictjson"
)

// A Doc is a document whose root is an object.
type Doc struct {
	text  []byte // as it is written
	plain []byte // the same with blanks for what JSON does not have, so that an offset is one in both
}

// A SyntaxError says where a document is wrong.
type SyntaxError struct {
	Line, Column int
	Message      string
}

// Error implements error.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Message)
}

// Parse reads a document. Without comments it is to be JSON alone, as strict as everywhere else. A text with nothing in
// it is an empty object: programs take a settings file that they have just made for one.
func Parse(text []byte, comments bool) (*Doc, error) {
	d := &Doc{text: text, plain: bytes.Clone(text)}
	if bom := []byte("\ufeff"); bytes.HasPrefix(text, bom) { // some editors begin files so
		copy(d.plain, strings.Repeat(" ", len(bom)))
	}
	if comments {
		if err := blank(d.plain); err != nil {
			return nil, err
		}
	}
	if len(bytes.TrimSpace(d.plain)) == 0 {
		if d.text, d.plain = append(bytes.Clone(text), "{}\n"...), append(d.plain, "{}\n"...); len(text) == 0 {
			return d, nil
		}
	}
	if err := strictjson.CheckObject(d.plain); err != nil {
		return nil, d.explain(err)
	}
	return d, nil
}

// explain finds the place of an error. The strict reader does not tell it, so what reads JSON as such is asked again.
func (d *Doc) explain(err error) error {
	offset := len(d.plain) - len(bytes.TrimLeft(d.plain, " \t\r\n"))
	_, again := jsontext.NewDecoder(bytes.NewReader(d.plain)).ReadValue()
	if syntax, ok := errors.AsType[*jsontext.SyntacticError](again); ok {
		offset = int(syntax.ByteOffset)
	}
	return at(d.plain, offset, err.Error())
}

func at(text []byte, offset int, message string) error {
	before := text[:min(offset, len(text))]
	line := bytes.LastIndexByte(before, '\n') + 1
	return &SyntaxError{
		Line: bytes.Count(before, []byte("\n")) + 1, Column: len([]rune(string(before[line:]))) + 1, Message: message,
	}
}

// blank puts blanks in place of comments and trailing commas.
func blank(text []byte) error {
	comma := -1 // the last one, if nothing but blanks has followed it
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			for i++; i < len(text) && text[i] != '"' && text[i] != '\n'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
			comma = -1
		case c == '/' && i+1 < len(text) && (text[i+1] == '/' || text[i+1] == '*'):
			end := commentEnd(text, i)
			if end < 0 {
				return at(text, i, "the comment that begins here has no end")
			}
			for ; i < end; i++ {
				if text[i] != '\n' && text[i] != '\r' {
					text[i] = ' '
				}
			}
			i--
		case c == ',':
			comma = i
		case (c == '}' || c == ']') && comma >= 0:
			text[comma], comma = ' ', -1
		case !isBlank(c):
			comma = -1
		}
	}
	return nil
}

// commentEnd is where the comment ends that begins at i; -1: nowhere.
func commentEnd(text []byte, i int) int {
	if text[i+1] == '/' {
		if n := bytes.IndexByte(text[i:], '\n'); n >= 0 {
			return i + n
		}
		return len(text)
	}
	if n := bytes.Index(text[i+2:], []byte("*/")); n >= 0 {
		return i + n + 4
	}
	return -1
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// Text is the document as it is written.
func (d *Doc) Text() []byte { return d.text }

// Plain is the document as strict JSON.
func (d *Doc) Plain() json.RawMessage { return bytes.TrimSpace(d.plain) }

// Get returns the value at a path of names; nil: there is none.
func (d *Doc) Get(path ...string) json.RawMessage {
	o := d.object(0)
	for i, name := range path {
		m := o.member(name)
		switch {
		case m == nil:
			return nil
		case i == len(path)-1:
			return d.plain[m.value:m.end]
		case d.plain[m.value] != '{':
			return nil
		}
		o = d.object(m.value)
	}
	return nil
}

// A member of an object, by its offsets.
type member struct {
	name              string
	start, value, end int // of its name, of its value, and behind that
}

// An object, by its offsets.
type object struct {
	open, shut int // its brackets
	members    []member
}

func (o *object) member(name string) *member {
	for i := range o.members {
		if o.members[i].name == name {
			return &o.members[i]
		}
	}
	return nil
}

// object reads the object that begins at or after an offset. The document was found to be good before.
func (d *Doc) object(from int) *object {
	in := jsontext.NewDecoder(bytes.NewReader(d.plain[from:]))
	_, _ = in.ReadToken()
	o := &object{open: from + int(in.InputOffset()) - 1}
	for in.PeekKind() == '"' {
		name, _ := in.ReadValue()
		m := member{start: from + int(in.InputOffset()) - len(name)}
		text, _ := strictjson.Unquote(name)
		m.name = string(text)
		value, _ := in.ReadValue()
		m.end = from + int(in.InputOffset())
		m.value = m.end - len(value)
		o.members = append(o.members, m)
	}
	_, _ = in.ReadToken()
	o.shut = from + int(in.InputOffset()) - 1
	return o
}
