package narratoria

import (
	"bytes"
	"encoding/json"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// A request is the document of section 6 as a tool reads it.
type request struct {
	id      json.RawMessage // a JSON string, or nil
	args    json.RawMessage
	answers json.RawMessage // to a question of an earlier call, or nil
	resume  string          // the id of that question
}

// encodeRequest writes the document of section 6 on one line, with the call's answers if it has any. The input's own fields
// are repeated at top level for tools that expect them there, unless the document has such a field itself.
func encodeRequest(name, operation string, c *tool.Call) ([]byte, error) {
	args := c.Args
	if len(bytes.TrimSpace(args)) == 0 {
		args = json.RawMessage(`{}`)
	}
	w := strictjson.NewWriter(2*len(args) + len(c.ID) + len(name) + len(operation) + len(c.Answers) + len(c.Resume) + 96)
	w.Raw("requestId", strictjson.Quote(c.ID))
	w.Raw("tool", strictjson.Quote(name))
	w.Raw("operation", strictjson.Quote(operation))
	w.Raw("input", args)
	if len(c.Answers) > 0 {
		w.Raw("answers", c.Answers)
		w.Raw("resume", strictjson.Quote(c.Resume))
	}
	err := strictjson.Object(args, func(name, value []byte) error {
		switch string(name) {
		case "requestId", "tool", "operation", "input":
		case "answers", "resume": // an argument must not pass for an answer
		default:
			w.Raw(escaped(name), value)
		}
		return nil
	})
	return oneLine(w.Done()), err
}

// escaped returns the name of a member as it is written between quotes.
func escaped(name []byte) string {
	quoted := strictjson.Quote(name)
	return string(quoted[1 : len(quoted)-1])
}

// oneLine puts JSON on one line. It changes no value, because raw line ends only occur between values.
func oneLine(b []byte) []byte {
	for i, c := range b {
		if c == '\n' || c == '\r' {
			b[i] = ' '
		}
	}
	return append(b, '\n')
}

// decodeRequest reads the document of section 6. All of it is optional: an empty document is a request without arguments.
// Without an input all other fields are the arguments; answers are possible only beside an input. Even with an error the
// request has its id, if that could be read, for the answer.
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
		return r, nil
	}
	for _, m := range rest {
		switch value := unlessNull(m.value); m.name {
		case "answers":
			r.answers = value
		case "resume":
			if err := isKind("resume", value, "string"); err != nil {
				return r, err
			}
			r.resume = string(text(value))
		}
	}
	return r, isKind("input", input, "object")
}
