package jsonc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"toolpost/wire/strictjson"
)

// Set puts a value at a path of names, in place of the one that is there; objects on the way that are missing are made.
func (d *Doc) Set(value json.RawMessage, path ...string) (*Doc, error) {
	if err := strictjson.Check(value); err != nil {
		return nil, err
	}
	o := d.object(0)
	for i, name := range path {
		m := o.member(name)
		switch {
		case m == nil:
			for _, outer := range slices.Backward(path[i+1:]) {
				value = slices.Concat([]byte("{"), strictjson.Quote(outer), []byte(":"), value, []byte("}"))
			}
			return d.insert(o, name, value)
		case i == len(path)-1:
			return d.splice(edit{m.value, m.end, d.laidOut(value, d.indentOf(m.start))})
		case d.plain[m.value] != '{':
			return nil, at(d.plain, m.value, fmt.Sprintf("expected %q to be an object, got %s", name,
				strictjson.KindOf(d.plain[m.value:m.end])))
		}
		o = d.object(m.value)
	}
	return d, nil
}

// insert puts a member behind the others of an object, in the layout of the object.
func (d *Doc) insert(o *object, name string, value json.RawMessage) (*Doc, error) {
	end := o.shut // behind all that is in the object, also comments
	for isBlank(d.text[end-1]) {
		end--
	}
	name = string(strictjson.Quote(name)) + ": "
	oneLine := !bytes.Contains(d.text[o.open:o.shut], []byte("\n"))
	if last := len(o.members) - 1; last >= 0 && oneLine {
		var flat bytes.Buffer
		_ = json.Compact(&flat, value) // it was checked
		return d.splice(edit{o.members[last].end, o.members[last].end, ", " + name + flat.String()})
	}
	outer := d.indentOf(o.open)
	inner := outer + d.unit()
	var edits []edit
	tail := ""
	if last := len(o.members) - 1; last >= 0 {
		inner = d.indentOf(o.members[last].start)
		if comma := d.commaAfter(o.members[last].end); comma < 0 {
			edits = append(edits, edit{o.members[last].end, o.members[last].end, ","})
		} else {
			tail = "," // whoever wrote the others ends each with one
		}
	}
	text := d.newline() + inner + name + d.laidOut(value, inner) + tail
	if oneLine {
		text += d.newline() + outer
	}
	return d.splice(append(edits, edit{end, end, text})...)
}

// Remove takes the member at a path away, if it is there, and leaves the objects around it.
func (d *Doc) Remove(path ...string) (*Doc, error) {
	o, m := d.object(0), (*member)(nil)
	for i, name := range path {
		if m = o.member(name); m == nil {
			return d, nil
		}
		if i < len(path)-1 {
			if d.plain[m.value] != '{' {
				return d, nil
			}
			o = d.object(m.value)
		}
	}
	if m == nil {
		return d, nil
	}
	return d.cut(o, m)
}

// cut takes a member away with the comma and the blanks that come with it.
func (d *Doc) cut(o *object, m *member) (*Doc, error) {
	n := slices.IndexFunc(o.members, func(x member) bool { return x.start == m.start })
	var edits []edit
	end := m.end
	if comma := d.commaAfter(m.end); comma == m.end {
		end++
	} else if comma >= 0 {
		edits = append(edits, edit{comma, comma + 1, ""})
	}
	if n > 0 && n == len(o.members)-1 && d.commaAfter(m.end) < 0 {
		comma := d.commaAfter(o.members[n-1].end)
		edits = append(edits, edit{comma, comma + 1, ""})
	}
	start := m.start
	for isBlank(d.text[start-1]) {
		start--
	}
	rest := bytes.TrimLeft(d.text[end:], " \t")
	ends := len(rest) > 0 && (rest[0] == '\n' || rest[0] == '\r')
	switch remark := d.text[start-1] != d.plain[start-1]; { // the newline is the end of a remark
	case len(o.members) == 1 && start == o.open+1 && len(bytes.TrimSpace(d.text[end:o.shut])) == 0:
		end = o.shut
	case !ends && (remark || rest[0] != '}'):
		start = m.start
		end = len(d.text) - len(rest)
	}
	return d.splice(append(edits, edit{start, end, ""})...)
}

// skip goes over blanks and remarks.
func (d *Doc) skip(from int) int {
	for from < len(d.plain) && isBlank(d.plain[from]) {
		from++
	}
	return from
}

// commaAfter is where the comma is that follows a value, also one that JSON does not have; -1: there is none.
func (d *Doc) commaAfter(end int) int {
	next := d.skip(end)
	if next < len(d.plain) && d.plain[next] == ',' {
		return next
	}
	for i := end; i < next; i++ { // blanks but for remarks: those begin with a slash
		switch {
		case d.text[i] == ',':
			return i
		case d.text[i] == '/':
			i = commentEnd(d.text, i) - 1
		}
	}
	return -1
}

// An edit puts text in place of what is between two offsets.
type edit struct {
	from, to int
	text     string
}

// splice makes the document that some edits lead to. They do not overlap.
func (d *Doc) splice(edits ...edit) (*Doc, error) {
	slices.SortStableFunc(edits, func(a, b edit) int { return a.from - b.from })
	var out []byte
	done := 0
	for _, e := range edits {
		out = append(append(out, d.text[done:e.from]...), e.text...)
		done = e.to
	}
	return Parse(append(out, d.text[done:]...), true)
}

// indentOf is what the line of an offset begins with.
func (d *Doc) indentOf(offset int) string {
	line := d.text[bytes.LastIndexByte(d.text[:offset], '\n')+1 : offset]
	return string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))])
}

// unit is what a level is indented by.
func (d *Doc) unit() string {
	root := d.object(0)
	if len(root.members) > 0 {
		if indent := d.indentOf(root.members[0].start); indent != "" {
			return indent
		}
	}
	return "  "
}

func (d *Doc) newline() string {
	if bytes.Contains(d.text, []byte("\r\n")) {
		return "\r\n"
	}
	return "\n"
}

// laidOut writes a value over several lines, for a member that is indented so.
func (d *Doc) laidOut(value json.RawMessage, indent string) string {
	var text bytes.Buffer
	_ = json.Indent(&text, value, indent, d.unit()) // it was checked
	return strings.ReplaceAll(text.String(), "\n", d.newline())
}
