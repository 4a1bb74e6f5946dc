package machina

import (
	"bytes"
	"unicode/utf8"

	"toolpost/wire/strictjson"
)

// The protocol carries JSON inside JSON strings, in every request and every reply. These two do for it
// what strictjson does, without the copies.

// appendQuoted writes text as a JSON string. Bytes that are not UTF-8 are replaced.
func appendQuoted(b, text []byte) []byte {
	if !utf8.Valid(text) {
		text = bytes.ToValidUTF8(text, []byte("\uFFFD"))
	}
	const hex = "0123456789abcdef"
	b = append(b, '"')
	start := 0
	for i, c := range text {
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		b = append(b, text[start:i]...)
		start = i + 1
		if c < ' ' {
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		} else {
			b = append(b, '\\', c)
		}
	}
	return append(append(b, text[start:]...), '"')
}

// unquoted gives the value of a JSON string that is known to be well formed.
func unquoted(value []byte) []byte {
	value = value[1 : len(value)-1]
	text := make([]byte, 0, len(value))
	for {
		i := bytes.IndexByte(value, '\\')
		if i < 0 {
			return append(text, value...)
		}
		text = append(text, value[:i]...)
		switch c := value[i+1]; c {
		case '"', '\\', '/':
			text = append(text, c)
		case 'n':
			text = append(text, '\n')
		case 't':
			text = append(text, '\t')
		default: // a rare escape: leave this and all that follows to the decoder
			return append(text, decoded(value[i:])...)
		}
		value = value[i+2:]
	}
}

func decoded(value []byte) string {
	var s string
	quoted := append(append([]byte{'"'}, value...), '"')
	if err := strictjson.Unmarshal(quoted, &s); err != nil {
		panic("machina: a JSON string that was checked is not one: " + err.Error())
	}
	return s
}
