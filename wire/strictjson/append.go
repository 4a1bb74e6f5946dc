package strictjson

import (
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"
)

// AppendString adds text to b as a JSON string, and copies it once: some contents are large. Text must be UTF-8; what
// is not comes out as U+FFFD.
func AppendString[T string | []byte](b []byte, text T) []byte {
	if !valid(text) {
		return AppendString(b, strings.ToValidUTF8(string(text), "\uFFFD"))
	}
	b = append(b, '"')
	from := 0
	for i := plainUntil(text, 0); i < len(text); i = plainUntil(text, i+1) {
		b = append(b, text[from:i]...)
		b = appendEscaped(b, text[i])
		from = i + 1
	}
	b = append(b, text[from:]...)
	return append(b, '"')
}

func valid[T string | []byte](text T) bool {
	switch text := any(text).(type) {
	case string:
		return utf8.ValidString(text)
	case []byte:
		return utf8.Valid(text)
	}
	return false
}

// Quote is AppendString for a text alone.
func Quote[T string | []byte](text T) json.RawMessage {
	return AppendString(make([]byte, 0, len(text)+len(text)/16+16), text)
}

// A Writer writes an object, member by member. It is for documents that every call has, where Marshal takes five times
// as long. Names are written as they are: they must be plain text of our own. A value that is empty is left out.
type Writer struct {
	b []byte
}

// NewWriter makes a writer with room for so many bytes.
func NewWriter(size int) *Writer { return &Writer{b: append(make([]byte, 0, size), '{')} }

func (w *Writer) name(name string) {
	if len(w.b) > 1 {
		w.b = append(w.b, ',')
	}
	w.b = append(append(append(w.b, '"'), name...), '"', ':')
}

// Text adds a string.
func (w *Writer) Text(name, value string) {
	if value != "" {
		w.name(name)
		w.b = AppendString(w.b, value)
	}
}

// Raw adds a value that is JSON already.
func (w *Writer) Raw(name string, value []byte) {
	if len(value) > 0 {
		w.name(name)
		w.b = append(w.b, value...)
	}
}

// Int adds a number.
func (w *Writer) Int(name string, n int64) {
	if n != 0 {
		w.name(name)
		w.b = strconv.AppendInt(w.b, n, 10)
	}
}

// Flag adds true.
func (w *Writer) Flag(name string, on bool) {
	if on {
		w.name(name)
		w.b = append(w.b, "true"...)
	}
}

// Texts adds a list of strings.
func (w *Writer) Texts(name string, list []string) {
	if len(list) > 0 {
		w.name(name)
		w.b = appendStrings(w.b, list)
	}
}

// Lists adds a list of lists of strings.
func (w *Writer) Lists(name string, lists [][]string) {
	if len(lists) > 0 {
		w.name(name)
		w.b = appendList(w.b, lists, appendStrings)
	}
}

func appendStrings(b []byte, list []string) []byte { return appendList(b, list, AppendString[string]) }

func appendList[T any](b []byte, list []T, item func([]byte, T) []byte) []byte {
	b = append(b, '[')
	for i, v := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = item(b, v)
	}
	return append(b, ']')
}

// Done gives the object. The writer is of no use afterwards.
func (w *Writer) Done() json.RawMessage { return append(w.b, '}') }
