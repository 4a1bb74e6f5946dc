package narratoria

import (
	"bytes"
	"encoding/json"

	"toolpost/wire/strictjson"
)

// A request is the document of section 6 as a tool reads it.
type request struct {
	id   json.RawMessage // a JSON string; nil: none
	args json.RawMessage
}

// encodeRequest writes the document of section 6 on one line. The input's own fields are repeated at
// top level for tools that look for them there, except where the document has such a field itself.
func encodeRequest(id, name, operation string, args json.RawMessage) ([]byte, error) {
	if len(bytes.TrimSpace(args)) == 0 {
		args = json.RawMessage(`{}`)
	}
	w := strictjson.NewWriter(2*len(args) + len(id) + len(name) + len(operation) + 64)
	w.Raw("requestId", strictjson.Quote(id))
	w.Raw("tool", strictjson.Quote(name))
	w.Raw("operation", strictjson.Quote(operation))
	w.Raw("input", args)
	err := strictjson.Object(args, func(name, value []byte) error {
		switch string(name) {
		case "requestId", "tool", "operation", "input":
		default:
			w.Raw(escaped(name), value)
		}
		return nil
	})
	return oneLine(w.Done()), err
}

// escaped is the name of a member as it stands between quotes.
func escaped(name []byte) string {
	quoted := strictjson.Quote(name)
	return string(quoted[1 : len(quoted)-1])
}

// oneLine puts JSON on one line and changes no value: raw line ends only ever stand between them.
func oneLine(b []byte) []byte {
	for i, c := range b {
		if c == '\n' || c == '\r' {
			b[i] = ' '
		}
	}
	return append(b, '\n')
}

// decodeRequest reads the document of section 6. All of it is optional: nothing at all is a request
// without arguments. Without an input the other fields are the arguments. With an error the request
// still has its id where that could be read, for the answer to carry.
func decodeRequest(doc []byte) (request, error) {
	if len(bytes.TrimSpace(doc)) == 0 {
		return request{args: json.RawMessage(`{}`)}, nil
	}
	var r request
	var input []byte
	var rest []member
	err := strictjson.Object(doc, func(name, value []byte) error {
		switch string(name) {
		case "requestId":
			r.id = value
		case "input":
			input = value
		case "tool", "operation":
		default:
			rest = append(rest, member{escaped(name), value})
		}
		return nil
	})
	if err != nil {
		return request{}, err
	}
	r.id, input = unlessNull(r.id), unlessNull(input)
	if err := isKind("requestId", r.id, "string"); err != nil {
		return request{}, err
	}
	r.args = input
	if input == nil {
		r.args = object(rest...)
	}
	return r, isKind("input", input, "object")
}
