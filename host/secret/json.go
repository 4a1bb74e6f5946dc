package secret

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"toolpost/wire/strictjson"
)

// JSON redacts a JSON document, which stays valid: its strings and member names are redacted, and a number that is a
// secret becomes a string. If the document as a whole is a secret, or has one that cannot be cut out, it is replaced by a
// document of the same kind. Input that is not JSON is redacted as text.
func (r *Redactor) JSON(doc json.RawMessage) json.RawMessage {
	m := r.current()
	if m == nil {
		return doc
	}
	hits := m.everywhere(asString(doc), nil, depth+1, cutAll) // its strings are escaped once more
	if len(hits) == 0 {
		return doc
	}
	if strictjson.Check(doc) != nil {
		return json.RawMessage(m.redact(string(doc), cutAll))
	}
	w := jsonWalk{m: m, doc: string(doc)}
	w.walk()
	out := w.out.String()
	if len(m.everywhere(out, nil, depth, 0)) > 0 {
		return whole(doc, m.labels[hits[0].secret])
	}
	return json.RawMessage(out)
}

// Value redacts a value that is going to be written as JSON. A value without secrets is returned unchanged.
func (r *Redactor) Value(v any) any {
	switch v := v.(type) {
	case nil, bool:
		return v
	case string:
		return r.String(v)
	case json.RawMessage:
		return r.JSON(v)
	}
	if r.Idle() {
		return v
	}
	doc, err := strictjson.Marshal(v)
	if err != nil || !r.in(asString(doc)) {
		return v
	}
	clean, err := strictjson.Decode(r.JSON(doc))
	if err != nil {
		return "[redacted]" // never: the document is JSON
	}
	return clean
}

// whole returns a replacement for a document that cannot be shown.
func whole(doc json.RawMessage, label string) json.RawMessage {
	format := map[string]string{"object": `{"redacted":"%s"}`, "array": `["%s"]`}[strictjson.KindOf(doc)]
	return fmt.Appendf(nil, cmp.Or(format, `"%s"`), label)
}

// A jsonWalk walks a valid JSON document.
type jsonWalk struct {
	m     *matcher
	doc   string
	out   strings.Builder
	names int // number of redacted names: two in one object must not become the same
}

func (w *jsonWalk) walk() {
	for at := 0; at < len(w.doc); {
		end := at + 1
		switch c := w.doc[at]; {
		case c == '"':
			end = endOfString(w.doc, at)
			w.text(w.doc[at:end], strings.HasPrefix(strings.TrimLeft(w.doc[end:], " \t\r\n"), ":"))
		case c == '-' || '0' <= c && c <= '9':
			end = len(w.doc) - len(strings.TrimLeft(w.doc[at:], "+-.0123456789eE"))
			if number := w.doc[at:end]; len(w.m.find(number)) == 0 {
				w.out.WriteString(number)
			} else {
				w.out.Write(strictjson.Quote(w.m.redact(number, 0)))
			}
		default:
			w.out.WriteByte(c)
		}
		at = end
	}
}

// endOfString returns the position after the string that begins at a position.
func endOfString(doc string, at int) int {
	for at++; doc[at] != '"'; at++ {
		if doc[at] == '\\' {
			at++
		}
	}
	return at + 1
}

func (w *jsonWalk) text(literal string, name bool) {
	var text string
	if err := strictjson.Unmarshal([]byte(literal), &text); err != nil {
		w.out.WriteString(literal) // never: the document is JSON
		return
	}
	clean := w.m.redact(text, cutAll)
	if clean == text {
		w.out.WriteString(literal)
		return
	}
	if name {
		if w.names++; w.names > 1 {
			clean += " " + strconv.Itoa(w.names)
		}
	}
	w.out.Write(strictjson.Quote(clean))
}
