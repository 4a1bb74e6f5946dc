package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"slices"
	"strings"

	"toolpost/host/offlimits"
	"toolpost/tool"
	jsonschema "toolpost/wire/schema"
	"toolpost/wire/strictjson"
)

// maxArguments bounds what is read from a file or from stdin, in bytes.
const maxArguments = 8 << 20

// arguments makes a call's arguments from the words after the tool's name.
func arguments(words []string, spec *tool.Spec, stdin io.Reader) (json.RawMessage, error) {
	if len(words) == 0 {
		return json.RawMessage("{}"), nil
	}
	if len(words) == 1 {
		switch word := words[0]; {
		case word == "-":
			return readArguments("stdin", stdin)
		case strings.HasPrefix(word, "@"):
			return openArguments(word[1:])
		case strings.HasPrefix(word, "{") || strings.HasPrefix(word, "["):
			return checked("the arguments", []byte(word))
		}
	}
	return pairs(words, readSchema(spec.Input))
}

func openArguments(path string) (json.RawMessage, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the arguments cannot be read from %s: %w", path, offlimits.Plain(err))
	}
	defer f.Close()
	return readArguments(path, f)
}

func readArguments(name string, r io.Reader) (json.RawMessage, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxArguments+1))
	switch {
	case err != nil:
		return nil, tool.Errorf(tool.CodeInvalidInput, "the arguments cannot be read from %s: %w", name, err)
	case len(b) > maxArguments:
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s holds more than %d bytes of arguments", name, maxArguments)
	}
	return checked(name, bytes.TrimSpace(b))
}

func checked(name string, b []byte) (json.RawMessage, error) {
	if err := strictjson.CheckObject(b); err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s: %w; expected a JSON object, or name=value pairs", name, err)
	}
	return b, nil
}

// pairs makes an object from name=value, name:=JSON and name@FILE words.
func pairs(words []string, s schema) (json.RawMessage, error) {
	var members []string
	seen := map[string]bool{}
	for _, word := range words {
		name, value, ok := strings.Cut(word, "=")
		asJSON := strings.HasSuffix(name, ":")
		name = strings.TrimSuffix(name, ":")
		if before, _, file := strings.Cut(name, "@"); file && before != "" && s.Properties[name] == nil {
			var err error
			if value, err = fileText(before, word[len(before)+1:]); err != nil {
				return nil, err
			}
			name, ok, asJSON = before, true, false
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
		members = append(members, string(raw(name))+":"+string(v))
	}
	return json.RawMessage("{" + strings.Join(members, ",") + "}"), nil
}

// fileText reads the file that is the value of an argument.
func fileText(name, path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", tool.Errorf(tool.CodeInvalidInput, "%s cannot be read from %s: %w", name, path, offlimits.Plain(err))
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxArguments+1))
	switch {
	case err != nil:
		return "", tool.Errorf(tool.CodeInvalidInput, "%s cannot be read from %s: %w", name, path, offlimits.Plain(err))
	case len(b) > maxArguments:
		return "", tool.Errorf(tool.CodeInvalidInput, "%s holds more than %d bytes", path, maxArguments)
	}
	return string(b), nil
}

// typed converts a value to JSON: text stays text unless the schema wants another type.
func typed(name, value string, asJSON bool, s schema) (json.RawMessage, error) {
	types := s.property(name).Type
	if !asJSON && (len(types) == 0 || slices.Contains(types, "string")) {
		if err := strictjson.Check(raw(value)); err != nil {
			return nil, tool.Errorf(tool.CodeInvalidInput, "%s: the text is not valid UTF-8", name)
		}
		return raw(value), nil
	}
	if err := strictjson.Check([]byte(value)); err != nil {
		if asJSON {
			return nil, tool.Errorf(tool.CodeInvalidInput, "%s: not JSON: %w", name, err)
		}
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s wants %s, not %q", name, strings.Join(types, " or "), value)
	}
	return json.RawMessage(value), nil
}

// A schema is the part of a JSON Schema that helps a person to type arguments.
type schema struct {
	Type        jsonschema.Types           `json:"type"`
	Description string                     `json:"description"`
	Properties  map[string]json.RawMessage `json:"properties"`
	Required    []string                   `json:"required"`

	whole json.RawMessage
}

// readSchema treats a schema that it cannot read as an empty one.
func readSchema(b json.RawMessage) schema {
	var s schema
	if strictjson.Unmarshal(b, &s) != nil {
		return schema{}
	}
	s.whole = b
	return s
}

func (s schema) property(name string) schema {
	return readSchema(jsonschema.Referred(s.whole, s.Properties[name]))
}
