package audit

import (
	"encoding/json"
	"slices"
	"strings"

	"toolpost/wire/strictjson"
)

// The bounds of what is kept of arguments.
const (
	maxShape  = 1 << 10 // bytes of a shape; a longer one is cut
	maxDepth  = 4
	maxFields = 32
	maxArgs   = 4 << 10
)

// shapeOf returns arguments with the kind of each value in its place: {"path":"string"}. Names are the caller's,
// so both their number and their length are bounded. What is no object has the kind alone.
func shapeOf(args json.RawMessage) json.RawMessage {
	if len(args) == 0 {
		return nil
	}
	shape, err := appendShape(nil, args, maxDepth)
	if err != nil || len(shape) > maxShape {
		return strictjson.Quote(strictjson.KindOf(args))
	}
	return shape
}

func appendShape(b []byte, value json.RawMessage, depth int) ([]byte, error) {
	kind := strictjson.KindOf(value)
	if kind != "object" || depth == 0 {
		return strictjson.AppendString(b, kind), nil
	}
	b = append(b, '{')
	n := 0
	err := strictjson.Object(value, func(name, value []byte) (err error) {
		if n++; n > maxFields {
			return nil
		}
		if n > 1 {
			b = append(b, ',')
		}
		b, err = appendShape(append(strictjson.AppendString(b, name), ':'), value, depth-1)
		return err
	})
	return append(b, '}'), err
}

// Redacted returns arguments without the values of those whose names speak of secrets, or are among names. Arguments
// that are no object are left out.
func Redacted(args json.RawMessage, names []string) json.RawMessage {
	v, err := strictjson.Decode(args)
	if _, ok := v.(map[string]any); err != nil || !ok {
		return nil
	}
	b, err := strictjson.Marshal(redact(v, names))
	if err != nil {
		return nil
	}
	return b
}

func redact(v any, names []string) any {
	switch v := v.(type) {
	case map[string]any:
		for name, value := range v {
			if speaksOfSecrets(name, names) {
				v[name] = "[redacted]"
			} else {
				v[name] = redact(value, names)
			}
		}
	case []any:
		for i := range v {
			v[i] = redact(v[i], names)
		}
	}
	return v
}

// speaksOfSecrets reports whether the name of an argument speaks of a secret.
func speaksOfSecrets(name string, names []string) bool {
	if slices.Contains(names, name) {
		return true
	}
	name = strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(name))
	return slices.ContainsFunc([]string{
		"password", "passwd", "secret", "token", "lease", "apikey", "authorization", "credential", "privatekey",
		"cookie",
	},
		func(word string) bool { return strings.Contains(name, word) })
}
