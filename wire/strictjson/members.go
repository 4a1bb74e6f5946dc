package strictjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// A Scanner walks the members of one object after another without allocating, for streams of many
// small lines. It is not safe for use by several goroutines.
type Scanner struct {
	in bytes.Buffer
	d  jsontext.Decoder
}

// Object checks that b is exactly one strict object and calls each for every member, with its name unquoted and its
// value as raw JSON. Both alias b. If b has a fault anywhere, each is never called.
//
// The library reads all of b first, in one go; walking well-formed JSON then only needs to look at its brackets and
// quotes. Reading token by token costs twice as much.
func (s *Scanner) Object(b []byte, each func(name, value []byte) error) error {
	if err := s.check(b); err != nil {
		return err
	}
	return Walk(b, each)
}

// Walk is Object for JSON that is known to be strict, such as a value that Object passed to each.
func Walk(b []byte, each func(name, value []byte) error) error {
	return walk(b, func(name, value []byte, _ int) error { return each(name, value) })
}

// With returns a strict object with another value of one member, which is appended if it was missing. All else stays as
// it was.
func With(b []byte, member string, other []byte) (out []byte) {
	empty := true
	_ = walk(b, func(name, value []byte, at int) error {
		if empty = false; string(name) == member {
			out = slices.Concat(b[:at], other, b[at+len(value):])
		}
		return nil
	})
	if out != nil {
		return out
	}
	end := bytes.LastIndexByte(b, '}')
	out = slices.Clone(b[:end])
	if !empty {
		out = append(out, ',')
	}
	return append(append(append(append(out, Quote(member)...), ':'), other...), b[end:]...)
}

func walk(b []byte, each func(name, value []byte, at int) error) error {
	if kind := KindOf(b); kind != "object" {
		return fmt.Errorf("expected a JSON object, got %s", kind)
	}
	for i := after(b, bytes.IndexByte(b, '{')+1); b[i] != '}'; {
		end := endOfString(b, i+1) + 1
		name, err := unquote(b[i:end:end])
		if err != nil {
			return explain(err)
		}
		i = after(b, after(b, end)+1) // past the colon
		end = endOfValue(b, i)
		if err := each(name, b[i:end:end], i); err != nil {
			return err
		}
		if i = after(b, end); b[i] == ',' {
			i = after(b, i+1)
		}
	}
	return nil
}

// Replace checks that b is exactly one strict object and returns a copy in which members, at any depth, have other
// values: those for whose names with returns one. In well-formed JSON a string before a colon is a name, and nothing
// else is, so one pass over the quotes finds them all.
func Replace(b []byte, with func(name []byte) (value []byte)) ([]byte, error) {
	if err := CheckObject(b); err != nil {
		return nil, err
	}
	out := make([]byte, 0, len(b))
	copied := 0
	for i := 0; i < len(b); i++ {
		if b[i] != '"' {
			continue
		}
		from := i
		if i = endOfString(b, i+1); b[after(b, i+1)] != ':' {
			continue
		}
		name, err := unquote(b[from : i+1])
		if err != nil {
			return nil, explain(err)
		}
		if value := with(name); value != nil {
			at := after(b, after(b, i+1)+1)
			out = append(append(out, b[copied:at]...), value...)
			copied = endOfValue(b, at)
			i = copied - 1
		}
	}
	return append(out, b[copied:]...), nil
}

// check reports whether b is exactly one strict JSON value.
func (s *Scanner) check(b []byte) error {
	if _, err := Weigh(b); err != nil {
		return err
	}
	d := s.reset(b)
	if _, err := d.ReadValue(); err != nil {
		return explain(err)
	}
	return atEnd(d)
}

// after skips white space.
func after(b []byte, i int) int {
	for b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r' {
		i++
	}
	return i
}

// endOfValue returns the index after the value at i, in JSON that is known to be well formed.
func endOfValue(b []byte, i int) int {
	for depth := 0; ; i++ {
		switch b[i] {
		case '"':
			if i = endOfString(b, i+1); depth == 0 {
				return i + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth < 0 { // the end of the object around a number or a literal
				return i
			} else if depth == 0 {
				return i + 1
			}
		case ',', ' ', '\n', '\t', '\r':
			if depth == 0 {
				return i
			}
		}
	}
}

// reset starts reading b.
func (s *Scanner) reset(b []byte, how ...jsontext.Options) *jsontext.Decoder {
	s.in = *bytes.NewBuffer(b)
	s.d.Reset(&s.in, how...)
	return &s.d
}

func unquote(name []byte) ([]byte, error) {
	if bytes.IndexByte(name, '\\') < 0 {
		return name[1 : len(name)-1], nil
	}
	return jsontext.AppendUnquote(nil, name)
}

// Unquote returns the text of a valid JSON string, such as a value that Object passed to each.
func Unquote(value []byte) ([]byte, error) {
	text, err := jsontext.AppendUnquote(make([]byte, 0, len(value)), value)
	return text, explain(err)
}

// Text returns the text of a valid JSON string.
func Text(value []byte) string {
	text, _ := unquote(value)
	return string(text)
}

// Object is Scanner.Object for a single document.
func Object(b []byte, each func(name, value []byte) error) error {
	s := scanners.Get().(*Scanner)
	defer putBack(s)
	return s.Object(b, each)
}

var scanners = sync.Pool{New: func() any { return new(Scanner) }}

// putBack returns a scanner to the pool, without its input, which may be large.
func putBack(s *Scanner) {
	s.reset(nil)
	scanners.Put(s)
}

// Members are the known members of an object, by name. Reading with the same Members again allocates nothing; it is not
// safe for use by several goroutines.
type Members struct {
	names  []string
	values []json.RawMessage
	few    [8]json.RawMessage // holds the values of most objects, in the same allocation
	there  []uint8            // the indices of the names that this object has, since objects have few of the known ones
	places [8]uint8
	scan   *Scanner
	keep   func(name, value []byte) error
}

// NewMembers makes a reader of members with these names, fewer than 256.
func NewMembers(names ...string) *Members {
	m := known(names)
	m.scan = new(Scanner)
	return m
}

// ReadMembers reads the members of a single object that have these names.
func ReadMembers(b []byte, names ...string) (*Members, error) {
	m := known(names)
	return m, Object(b, m.keep)
}

func known(names []string) *Members {
	m := &Members{names: names}
	m.there = m.places[:0]
	if m.values = m.few[:]; len(names) > len(m.few) {
		m.values = make([]json.RawMessage, len(names))
	}
	m.keep = func(name, value []byte) error {
		for i, known := range m.names {
			if known == string(name) {
				m.values[i] = value
				m.there = append(m.there, uint8(i))
				break
			}
		}
		return nil
	}
	return m
}

// Read is Scanner.Object for the known members of b. It forgets the previous object.
func (m *Members) Read(b []byte) error {
	m.there = m.there[:0]
	return m.scan.Object(b, m.keep)
}

// Get returns the value of a member, which aliases the object, or nil if it is missing or its name is not known.
func (m *Members) Get(name string) json.RawMessage {
	for _, i := range m.there {
		if m.names[i] == name {
			return m.values[i]
		}
	}
	return nil
}
