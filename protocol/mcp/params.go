package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"toolpost/wire/jsonrpc"
	"toolpost/wire/strictjson"
)

// headerParam begins the names of headers that repeat arguments.
const headerParam = "Mcp-Param-"

// A mirror is an argument that a tool's schema wants repeated in a header, for those on the way who do not read bodies.
type mirror struct {
	header string
	path   []string // of properties
}

// mirrors reads them from a schema. Most schemas have none, and are not read.
func mirrors(schema json.RawMessage) []mirror {
	if !bytes.Contains(schema, []byte(`"x-mcp-header"`)) {
		return nil
	}
	return appendMirrors(nil, schema, nil)
}

func appendMirrors(list []mirror, schema json.RawMessage, path []string) []mirror {
	var s struct {
		Header     string                     `json:"x-mcp-header"`
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if strictjson.Unmarshal(schema, &s) != nil { // true and false are schemas too
		return list
	}
	if s.Header != "" && len(path) > 0 {
		list = append(list, mirror{headerParam + s.Header, path})
	}
	for name, inner := range s.Properties {
		list = appendMirrors(list, inner, append(path[:len(path):len(path)], name))
	}
	return list
}

// in gives the value of the argument; nil: there is none, or null.
func (m mirror) in(args json.RawMessage) json.RawMessage {
	for _, name := range m.path {
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

// checkParams refuses a call whose headers repeat other arguments than it has.
func (s *server) checkParams(ctx context.Context, h http.Header, r *request) *jsonrpc.Error {
	s.resolve(ctx, r)
	if r.spec == nil {
		return nil
	}
	for _, m := range mirrors(r.spec.Input) {
		given, value := h.Values(m.header), m.in(r.arguments)
		switch {
		case len(given) == 0 && value == nil:
		case len(given) != 1 || value == nil:
			return mismatch("%s must repeat the argument %s, and is there %d times", m.header, strings.Join(m.path, "."),
				len(given))
		default:
			text, err := plainHeader(given[0])
			if err != nil || !repeats(text, value) {
				return mismatch("%s says %q, and the argument %s is %s", m.header, jsonrpc.Clip(given[0]),
					strings.Join(m.path, "."), jsonrpc.Clip(string(value)))
			}
		}
	}
	return nil
}

// repeats reports whether a text says the same as a value. Numbers are compared as such: 42.0 is 42.
func repeats(text string, value json.RawMessage) bool {
	if strictjson.KindOf(value) != "number" {
		return text == plain(value)
	}
	if text == string(value) {
		return true
	}
	a, errA := strconv.ParseFloat(text, 64)
	b, errB := strconv.ParseFloat(string(value), 64)
	return errA == nil && errB == nil && a == b && strings.ContainsAny(text+string(value), ".eE")
}
