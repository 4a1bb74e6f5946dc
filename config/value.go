package config

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strconv"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

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

// Duration is a time: "2s", "500ms", "1m30s", or a number of seconds.
type Duration time.Duration

// UnmarshalYAML implements yaml.NodeUnmarshaler.
func (d *Duration) UnmarshalYAML(n ast.Node) error {
	s, ok := text(n)
	if !ok {
		s = number(n) + "s"
	}
	v, err := time.ParseDuration(s)
	if err != nil {
		return faultAt(n, "expected a time, such as 2s or 500ms or a number of seconds, got %s", kindOf(n))
	}
	if v < 0 {
		return faultAt(n, "a time cannot be negative")
	}
	*d = Duration(v)
	return nil
}

// toJSON writes a node as JSON. What JSON cannot say is an error, never a near miss.
func toJSON(n ast.Node) (json.RawMessage, error) {
	var b bytes.Buffer
	err := writeJSON(&b, n, 0)
	return b.Bytes(), err
}

func writeJSON(b *bytes.Buffer, n ast.Node, depth int) error {
	if depth > strictjson.MaxDepth {
		return faultAt(n, "nested deeper than %d levels", strictjson.MaxDepth)
	}
	switch v := n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return writeObject(b, n, depth)
	case *ast.SequenceNode:
		return writeArray(b, v, depth)
	case *ast.BoolNode:
		b.WriteString(strconv.FormatBool(v.Value))
		return nil
	}
	if isNull(n) {
		b.WriteString("null")
		return nil
	}
	if s, ok := text(n); ok {
		return writeString(b, s)
	}
	if s := number(n); s != "" {
		b.WriteString(s)
		return nil
	}
	return faultAt(n, "%s cannot be written as JSON; write a decimal number, or put it in quotes", n.GetToken().Value)
}

func writeObject(b *bytes.Buffer, n ast.Node, depth int) error {
	pairs, err := pairsOf(n)
	if err != nil {
		return err
	}
	b.WriteByte('{')
	for i, p := range pairs {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := writeString(b, p.name); err != nil {
			return err
		}
		b.WriteByte(':')
		if err := writeJSON(b, p.value, depth+1); err != nil {
			return err
		}
	}
	b.WriteByte('}')
	return nil
}

func writeArray(b *bytes.Buffer, n *ast.SequenceNode, depth int) error {
	b.WriteByte('[')
	for i, item := range n.Values {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := writeJSON(b, item, depth+1); err != nil {
			return err
		}
	}
	b.WriteByte(']')
	return nil
}

func writeString(b *bytes.Buffer, s string) error {
	q, err := strictjson.Marshal(s)
	b.Write(q)
	return err
}

var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

// number returns the digits of a number as they are written, or "". The parser takes numbers that do not
// fit a machine word for text; JSON does not mind their size.
func number(n ast.Node) string {
	switch n.(type) {
	case *ast.IntegerNode, *ast.FloatNode, *ast.StringNode:
		t := n.GetToken()
		if quoted(t) || !jsonNumber.MatchString(t.Value) {
			return ""
		}
		return t.Value
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

func quoted(t *token.Token) bool {
	return t.Type == token.SingleQuoteType || t.Type == token.DoubleQuoteType
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
