package config

import (
	"encoding/json"
	"reflect"
	"strconv"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"toolpost/wire/duration"
	"toolpost/wire/regex"
	"toolpost/wire/strictjson"
)

// JSON is a part of the file that becomes JSON, such as a schema: keys stay in order and numbers keep
// their digits.
type JSON json.RawMessage

// UnmarshalYAML implements yaml.NodeUnmarshaler.
func (j *JSON) UnmarshalYAML(n ast.Node) error {
	b, err := toJSON(n)
	*j = JSON(b)
	return err
}

// Duration is a time: "2s", "500ms", "1m30s", "30d". It has a unit: a number alone could mean seconds or milliseconds.
type Duration time.Duration

// UnmarshalYAML implements yaml.NodeUnmarshaler.
func (d *Duration) UnmarshalYAML(n ast.Node) error {
	s, ok := text(n)
	if !ok {
		s = number(n)
	}
	v, err := duration.Parse(s)
	if _, bare := strconv.ParseFloat(s, 64); err != nil && bare == nil {
		return faultAt(n, "a time has a unit: write %ss for seconds; the units are ms, s, m, h and d", s)
	}
	if err != nil {
		return faultAt(n, "expected a time, such as 2s, 500ms or 30d, got %s", kindOf(n))
	}
	if v < 0 {
		return faultAt(n, "a time cannot be negative")
	}
	*d = Duration(v)
	return nil
}

// Ordered is a mapping by name that keeps the order of the file.
type Ordered[V any] []Named[V]

// A Named is an entry of a mapping.
type Named[V any] struct {
	Name  string
	Value V
}

// UnmarshalYAML implements yaml.NodeUnmarshaler.
func (o *Ordered[V]) UnmarshalYAML(n ast.Node) error {
	pairs, err := pairsOf(n)
	if err != nil {
		return err
	}
	*o = make(Ordered[V], len(pairs))
	for i, p := range pairs {
		(*o)[i].Name = p.name
		if err := decode(p.value, reflect.ValueOf(&(*o)[i].Value).Elem()); err != nil {
			return err
		}
	}
	return nil
}

// element returns the type of the values, for the schema.
func (o Ordered[V]) element() reflect.Type { return reflect.TypeFor[V]() }

// toJSON writes a node as JSON. A value that JSON cannot express is an error, never a near miss.
func toJSON(n ast.Node) (json.RawMessage, error) { return appendJSON(nil, n, 0) }

func appendJSON(b []byte, n ast.Node, depth int) ([]byte, error) {
	if depth > strictjson.MaxDepth {
		return nil, faultAt(n, "nested deeper than %d levels", strictjson.MaxDepth)
	}
	switch v := n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		pairs, err := pairsOf(n)
		if err != nil {
			return nil, err
		}
		return appendItems(b, "{}", pairs, func(b []byte, p pair) ([]byte, error) {
			return appendJSON(append(strictjson.AppendString(b, p.name), ':'), p.value, depth+1)
		})
	case *ast.SequenceNode:
		return appendItems(b, "[]", v.Values, func(b []byte, item ast.Node) ([]byte, error) {
			return appendJSON(b, item, depth+1)
		})
	case *ast.BoolNode:
		return strconv.AppendBool(b, v.Value), nil
	}
	if isNull(n) {
		return append(b, "null"...), nil
	}
	if s, ok := text(n); ok {
		return strictjson.AppendString(b, s), nil
	}
	if s := number(n); s != "" {
		return append(b, s...), nil
	}
	return nil, faultAt(n, "%s cannot be written as JSON; write a decimal number, or put it in quotes", n.GetToken().Value)
}

// appendItems adds items between brackets, and commas between them.
func appendItems[T any](b []byte, brackets string, items []T, add func([]byte, T) ([]byte, error)) ([]byte, error) {
	var err error
	b = append(b, brackets[0])
	for i, item := range items {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = add(b, item); err != nil {
			return nil, err
		}
	}
	return append(b, brackets[1]), nil
}

var jsonNumber = regex.Lazy(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

// number returns the digits of a number as they are written, or "". The parser treats numbers that do not fit a machine
// word as text; JSON does not limit their size.
func number(n ast.Node) string {
	switch n.(type) {
	case *ast.IntegerNode, *ast.FloatNode, *ast.StringNode:
		t := n.GetToken()
		quoted := t.Type == token.SingleQuoteType || t.Type == token.DoubleQuoteType
		if !quoted && jsonNumber().MatchString(t.Value) {
			return t.Value
		}
	}
	return ""
}

// text returns the value of a string, and false for everything else.
func text(n ast.Node) (string, bool) {
	switch v := n.(type) {
	case *ast.StringNode:
		return v.Value, number(n) == ""
	case *ast.LiteralNode:
		return v.Value.Value, true
	}
	return "", false
}

func isNull(n ast.Node) bool {
	_, ok := n.(*ast.NullNode)
	return ok || n == nil
}

// kindOf names a node for messages.
func kindOf(n ast.Node) string {
	switch v := n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.BoolNode:
		return "the boolean " + strconv.FormatBool(v.Value)
	case *ast.LiteralNode:
		return "a block of text"
	}
	if isNull(n) {
		return "nothing"
	}
	value := n.GetToken().Value
	if len(value) > 40 {
		value = value[:40] + "..."
	}
	if _, ok := text(n); ok {
		return "the string " + strconv.Quote(value)
	}
	return "the number " + strconv.Quote(value)
}
