package strictjson

import (
	"encoding/json"
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

// AppendName begins a member of an object. Names are written as they are: they must be plain text of our own.
func AppendName(b []byte, name string) []byte {
	if len(b) > 0 && b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	return append(append(append(b, '"'), name...), '"', ':')
}

// AppendList adds a list to b.
func AppendList[T any](b []byte, list []T, item func([]byte, T) []byte) []byte {
	b = append(b, '[')
	for i, v := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = item(b, v)
	}
	return append(b, ']')
}

// A Writer writes an object, member by member. It is for documents that every call has, where Marshal takes five times
// as long. Names are those of AppendName. A value that is empty is left out.
type Writer struct {
	b []byte
}

// NewWriter makes a writer with room for so many bytes.
func NewWriter(size int) *Writer { return &Writer{b: append(make([]byte, 0, size), '{')} }

// Text adds a string.
func (w *Writer) Text(name, value string) {
	if value != "" {
		w.b = AppendString(AppendName(w.b, name), value)
	}
}

// Raw adds a value that is JSON already.
func (w *Writer) Raw(name string, value []byte) {
	if len(value) > 0 {
		w.b = append(AppendName(w.b, name), value...)
	}
}

// Done returns the object. The writer is of no use afterwards.
func (w *Writer) Done() json.RawMessage { return append(w.b, '}') }
