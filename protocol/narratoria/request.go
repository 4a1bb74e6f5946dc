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
	head := struct {
		RequestID string          `json:"requestId"`
		Tool      string          `json:"tool"`
		Operation string          `json:"operation"`
		Input     json.RawMessage `json:"input"`
	}{id, name, operation, json.RawMessage(`{}`)}
	b, err := strictjson.Marshal(head)
	if err != nil {
		return nil, err
	}
	b = append(b[:len(b)-len(`{}}`)], args...)
	err = strictjson.Object(args, func(name, value []byte) error {
		switch string(name) {
		case "requestId", "tool", "operation", "input":
			return nil
		}
		quoted, err := strictjson.Marshal(string(name))
		b = append(append(append(append(b, ','), quoted...), ':'), value...)
		return err
	})
	return oneLine(append(b, '}')), err
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
			quoted, err := strictjson.Marshal(string(name))
			rest = append(rest, member{string(quoted[1 : len(quoted)-1]), value})
			return err
		}
		return nil
	})
	if err != nil {
		return request{}, err
	}
	r.id, input = unlessNull(r.id), unlessNull(input)
	if err := may(rule{"requestId", r.id, "string"}); err != nil {
		return request{}, err
	}
	r.args = input
	if input == nil {
		r.args = object(rest...)
	}
	return r, may(rule{"input", input, "object"})
}

func unlessNull(value []byte) []byte {
	if len(value) > 0 && value[0] == 'n' {
		return nil
	}
	return value
}
