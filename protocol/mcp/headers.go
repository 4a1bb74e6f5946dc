package mcp

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"

	"toolpost/wire/strictjson"
)

// The headers of the transport.
const (
	HeaderVersion = "Mcp-Protocol-Version"
	HeaderMethod  = "Mcp-Method"
	HeaderName    = "Mcp-Name"
	HeaderSession = "Mcp-Session-Id"
)

// The marks around a text in base64, for a text that cannot be a header's value as it is.
const wrapBegin, wrapEnd = "=?base64?", "?="

func notInHeader(c rune) bool { return c != '\t' && (c < ' ' || c > '~') }

// HeaderText writes a text as a header's value.
func HeaderText(text string) string {
	taken := strings.HasPrefix(text, wrapBegin) && strings.HasSuffix(text, wrapEnd)
	if text == strings.TrimSpace(text) && !taken && !strings.ContainsFunc(text, notInHeader) {
		return text
	}
	return wrapBegin + base64.StdEncoding.EncodeToString([]byte(text)) + wrapEnd
}

// PlainHeader reads a value that may be wrapped in base64.
func PlainHeader(value string) (string, error) {
	inner, wrapped := strings.CutPrefix(value, wrapBegin)
	inner, ends := strings.CutSuffix(inner, wrapEnd)
	if !wrapped || !ends {
		if strings.ContainsFunc(value, notInHeader) {
			return "", errors.New("not printable ASCII")
		}
		return value, nil
	}
	b, err := base64.StdEncoding.Strict().DecodeString(inner)
	if err == nil && !utf8.Valid(b) {
		err = errors.New("not UTF-8")
	}
	return string(b), err
}

// headerParam is the prefix of the headers that repeat arguments.
const headerParam = "Mcp-Param-"

// A Mirror is an argument that a header repeats, for proxies that route requests without reading them.
type Mirror struct {
	Header string
	Path   []string // the names that lead to it in the arguments
}

// annotation is the member of a schema that asks for a mirror.
const annotation = "x-mcp-header"

// Mirrors finds the arguments of a tool that headers repeat. An annotation that is invalid is an error.
func Mirrors(schema json.RawMessage) (all []Mirror, err error) {
	if !bytes.Contains(schema, []byte(annotation)) {
		return nil, nil // most schemas have none, and need not be decoded
	}
	doc, err := strictjson.Decode(schema)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	var walk func(v any, path []string, reachable bool) error
	walk = func(v any, path []string, reachable bool) error {
		switch v := v.(type) {
		case []any:
			for _, one := range v {
				if err := walk(one, nil, false); err != nil {
					return err
				}
			}
		case map[string]any:
			if name, ok := v[annotation]; ok {
				m, err := newMirror(name, v["type"], path, reachable)
				if err != nil {
					return err
				}
				if seen[strings.ToLower(m.Header)] {
					return fmt.Errorf("two of its arguments are %s %q", annotation, m.Header)
				}
				seen[strings.ToLower(m.Header)] = true
				all = append(all, m)
			}
			return walkMembers(v, path, reachable, walk)
		}
		return nil
	}
	err = walk(doc, nil, true)
	return all, err
}

// walkMembers walks the parts of a schema. Only a schema below nothing but properties has one place in the arguments.
func walkMembers(v map[string]any, path []string, reachable bool, walk func(any, []string, bool) error) error {
	for name, part := range v {
		switch name {
		case "properties":
			members, _ := part.(map[string]any)
			for member, inner := range members {
				if err := walk(inner, append(slices.Clip(path), member), reachable); err != nil {
					return err
				}
			}
		case "const", "enum", "default", "examples": // values, not schemas
		default:
			if err := walk(part, nil, false); err != nil {
				return err
			}
		}
	}
	return nil
}

func newMirror(name, kind any, path []string, reachable bool) (Mirror, error) {
	text, ok := name.(string)
	switch {
	case !ok || !httpguts.ValidHeaderFieldName(text):
		return Mirror{}, fmt.Errorf("its %s is not the name of a header", annotation)
	case !reachable || len(path) == 0:
		return Mirror{}, fmt.Errorf("its %s %q is at a place that no argument has for itself", annotation, text)
	case kind != "string" && kind != "integer" && kind != "boolean":
		return Mirror{}, fmt.Errorf("its %s %q is not a string, an integer or a boolean", annotation, text)
	}
	return Mirror{headerParam + text, path}, nil
}

// In returns the value of the argument, or nil if it is missing or null.
func (m Mirror) In(args json.RawMessage) json.RawMessage {
	for _, name := range m.Path {
		var object map[string]json.RawMessage
		if strictjson.KindOf(args) != "object" || strictjson.Unmarshal(args, &object) != nil {
			return nil
		}
		args = object[name]
	}
	if string(args) == "null" {
		return nil
	}
	return args
}
