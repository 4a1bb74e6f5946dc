// Package form reads what people type for a tool: arguments on a command line, and answers to its questions, as a JSON Schema
// wants them.
package form

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"toolpost/tool"
	jsonschema "toolpost/wire/schema"
	"toolpost/wire/strictjson"
)

// MaxArguments bounds what is read from a file or from stdin, in bytes.
const MaxArguments = 8 << 20

// Arguments makes a call's arguments from the words after the tool's name.
func Arguments(words []string, input json.RawMessage, stdin io.Reader) (json.RawMessage, error) {
	if len(words) == 0 {
		return json.RawMessage("{}"), nil
	}
	if len(words) == 1 {
		const what = "the arguments"
		switch word := words[0]; {
		case word == "-":
			b, err := readAll(what, "stdin", stdin)
			return checked("stdin", b, err)
		case strings.HasPrefix(word, "@"):
			b, err := readFile(what, word[1:])
			return checked(word[1:], b, err)
		case strings.HasPrefix(word, "{") || strings.HasPrefix(word, "["):
			return checked(what, []byte(word), nil)
		}
	}
	return pairs(words, ReadSchema(input))
}

// readFile reads the file that has what a person gives.
func readFile(what, path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s cannot be read from %s: %w", what, path, tool.WithoutPath(err))
	}
	defer f.Close()
	return readAll(what, path, f)
}

func readAll(what, name string, r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, MaxArguments+1))
	switch {
	case err != nil:
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s cannot be read from %s: %w", what, name, tool.WithoutPath(err))
	case len(b) > MaxArguments:
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s holds more than %d bytes", name, MaxArguments)
	}
	return b, nil
}

func checked(name string, b []byte, err error) (json.RawMessage, error) {
	if b = bytes.TrimSpace(b); err != nil {
		return nil, err
	}
	if err := strictjson.CheckObject(b); err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s: %w; expected a JSON object, or name=value pairs", name, err)
	}
	return b, nil
}

// pairs makes an object from name=value, name:=JSON and name@FILE words.
func pairs(words []string, s Schema) (json.RawMessage, error) {
	var members []string
	seen := map[string]bool{}
	for _, word := range words {
		name, value, ok := strings.Cut(word, "=")
		asJSON := strings.HasSuffix(name, ":")
		name = strings.TrimSuffix(name, ":")
		if before, _, file := strings.Cut(name, "@"); file && before != "" && s.Properties[name] == nil {
			text, err := readFile(before, word[len(before)+1:])
			if err != nil {
				return nil, err
			}
			name, value, ok, asJSON = before, string(text), true, false
		}
		switch {
		case !ok || name == "":
			return nil, tool.Errorf(tool.CodeInvalidInput, "%q is not name=value, name:=JSON or name@FILE", word)
		case seen[name]:
			return nil, tool.Errorf(tool.CodeInvalidInput, "%s is given twice; a list is written %s:='[...]'", name, name)
		}
		seen[name] = true
		v, err := typed(name, value, asJSON, s)
		if err != nil {
			return nil, err
		}
		members = append(members, string(encoded(name))+":"+string(v))
	}
	return json.RawMessage("{" + strings.Join(members, ",") + "}"), nil
}

// typed converts a value to JSON: text stays text unless the schema wants another type.
func typed(name, value string, asJSON bool, s Schema) (json.RawMessage, error) {
	types := s.property(name).Type
	if !asJSON && (len(types) == 0 || slices.Contains(types, "string")) {
		if err := strictjson.Check(encoded(value)); err != nil {
			return nil, tool.Errorf(tool.CodeInvalidInput, "%s: the text is not valid UTF-8", name)
		}
		return encoded(value), nil
	}
	if err := strictjson.Check([]byte(value)); err != nil {
		if asJSON {
			return nil, tool.Errorf(tool.CodeInvalidInput, "%s: not JSON: %w", name, err)
		}
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s must be of type %s, not %q", name, strings.Join(types, " or "), value)
	}
	return json.RawMessage(value), nil
}

// A Schema is the part of a JSON Schema that helps a person to type arguments.
type Schema struct {
	Type        jsonschema.Types           `json:"type"`
	Description string                     `json:"description"`
	Properties  map[string]json.RawMessage `json:"properties"`
	Required    []string                   `json:"required"`

	whole json.RawMessage
}

// ReadSchema treats a schema that it cannot read as an empty one.
func ReadSchema(b json.RawMessage) Schema {
	var s Schema
	if strictjson.Unmarshal(b, &s) != nil {
		return Schema{}
	}
	s.whole = b
	return s
}

func (s Schema) property(name string) Schema {
	return ReadSchema(jsonschema.Referred(s.whole, s.Properties[name]))
}

// Members returns the properties of a schema in its own order, in which they are asked for.
func (s Schema) Members(whole json.RawMessage) json.RawMessage {
	found := json.RawMessage(`{}`)
	_ = strictjson.Object(whole, func(name, value []byte) error { // it is an object: it was read before
		if string(name) == "properties" {
			found = value
		}
		return nil
	})
	return found
}

// Mismatch reports what is wrong with a value, or "" if it fits.
func Mismatch(schema, value json.RawMessage) string {
	if len(schema) == 0 {
		return ""
	}
	s, err := jsonschema.Compile(schema)
	if err != nil {
		return ""
	}
	v, err := strictjson.Decode(value)
	if err != nil {
		return "that is not JSON: " + err.Error()
	}
	return jsonschema.Words(s.Validate(v))
}

// A Field is the part of a property's schema that helps to ask for it.
type Field struct {
	Schema
	Title     string            `json:"title"`
	Format    string            `json:"format"`
	WriteOnly bool              `json:"writeOnly"`
	Default   json.RawMessage   `json:"default"`
	Enum      []json.RawMessage `json:"enum"`
	EnumNames []string          `json:"enumNames"` // what MCP had before titles in oneOf
	OneOf     []Option          `json:"oneOf"`
	Items     struct {
		Enum  []json.RawMessage `json:"enum"`
		AnyOf []Option          `json:"anyOf"`
	} `json:"items"`
}

// An Option is one of a few allowed values.
type Option struct {
	Const json.RawMessage `json:"const"`
	Title string          `json:"title"`
}

// ReadField reads a schema; one that it cannot read is treated as an empty one.
func ReadField(b json.RawMessage) (f Field) {
	if strictjson.Unmarshal(b, &f) != nil {
		return Field{}
	}
	return f
}

// Options returns the values to choose from; many allows several. If there are none, anything may be typed.
func (f Field) Options() (list []Option, many bool) {
	enum, oneOf := f.Enum, f.OneOf
	if many = slices.Contains(f.Type, "array"); many {
		enum, oneOf = f.Items.Enum, f.Items.AnyOf
	}
	for i, v := range enum {
		o := Option{Const: v}
		if !many && len(f.EnumNames) == len(enum) {
			o.Title = f.EnumNames[i]
		}
		list = append(list, o)
	}
	for _, o := range oneOf {
		if o.Const == nil { // more than a list of values
			return nil, many
		}
		list = append(list, o)
	}
	return list, many
}

// String returns the title of an option, or else its value.
func (o Option) String() string {
	if o.Title != "" {
		return o.Title
	}
	return PlainText(o.Const)
}

// PlainText returns a JSON string as text, and any other value as JSON.
func PlainText(v json.RawMessage) string {
	if text, err := strictjson.Unquote(v); err == nil && strictjson.KindOf(v) == "string" {
		return string(text)
	}
	return string(v)
}

// Value converts typed text to JSON. Text that cannot be converted stays text; the schema check then finds the mistake.
func (f Field) Value(text string) json.RawMessage {
	options, many := f.Options()
	switch {
	case len(options) > 0 && many:
		list := []json.RawMessage{}
		for one := range strings.SplitSeq(text, ",") {
			if one = strings.TrimSpace(one); one != "" {
				list = append(list, pick(options, one))
			}
		}
		return encoded(list)
	case len(options) > 0:
		return pick(options, strings.TrimSpace(text))
	case slices.Contains(f.Type, "boolean"):
		switch strings.ToLower(strings.TrimSpace(text)) {
		case "y", "yes", "true":
			return json.RawMessage("true")
		case "n", "no", "false":
			return json.RawMessage("false")
		}
		return encoded(text)
	case len(f.Type) == 0 || slices.Contains(f.Type, "string"):
		return encoded(text)
	}
	if strictjson.Check([]byte(text)) != nil {
		return encoded(text)
	}
	return json.RawMessage(text)
}

// pick finds an option by number, value or title. A value takes precedence over a number: 7 may be one.
func pick(options []Option, text string) json.RawMessage {
	for _, o := range options {
		if PlainText(o.Const) == text || o.Title != "" && strings.EqualFold(o.Title, text) {
			return o.Const
		}
	}
	if n, err := strconv.Atoi(text); err == nil && n >= 1 && n <= len(options) {
		return options[n-1].Const
	}
	return encoded(text)
}

// encoded encodes text, or a list of values that are JSON already.
func encoded(v any) json.RawMessage {
	b, _ := strictjson.Marshal(v)
	return b
}
