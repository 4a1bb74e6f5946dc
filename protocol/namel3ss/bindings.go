package namel3ss

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"toolpost/tool"
)

// A binding says where the code of a tool is. It is an entry of .namel3ss/tools.yaml.
type binding struct {
	Kind        string            `yaml:"kind"`
	Entry       string            `yaml:"entry"`
	Runner      string            `yaml:"runner"`
	URL         string            `yaml:"url"`
	Image       string            `yaml:"image"`
	Command     []string          `yaml:"command"`
	Env         map[string]string `yaml:"env"`
	Purity      string            `yaml:"purity"`
	TimeoutMS   *float64          `yaml:"timeout_ms"`
	Sandbox     *bool             `yaml:"sandbox"`
	Enforcement string            `yaml:"enforcement"`
}

func (b *binding) timeout() time.Duration {
	if b.TimeoutMS == nil {
		return 0
	}
	return time.Duration(*b.TimeoutMS * float64(time.Millisecond))
}

var entryForm = regexp.MustCompile(`^[\pL_][\pL\pN_]*(\.[\pL_][\pL\pN_]*)*:[\pL_][\pL\pN_]*$`)

// check holds a binding to the values that the contract knows.
func (b *binding) check() error {
	for _, f := range []struct {
		name, value string
		known       []string
	}{
		{"kind", b.Kind, []string{"python", "node"}},
		{"runner", b.Runner, []string{"local", "service", "container"}},
		{"purity", b.Purity, []string{"pure", "impure"}},
		{"enforcement", b.Enforcement, []string{"declared", "verified"}},
	} {
		if f.value != "" && !slices.Contains(f.known, f.value) {
			return fmt.Errorf("%s is one of %q, not %.40q", f.name, f.known, f.value)
		}
	}
	if b.TimeoutMS != nil {
		if _, err := fromSeconds(*b.TimeoutMS / 1000); err != nil {
			return fmt.Errorf("timeout_ms: %w", err)
		}
	}
	return nil
}

// parseBindings reads a tools.yaml: a mapping `tools` of names to bindings, or to entries alone.
func parseBindings(file string, data []byte) (map[string]*binding, error) {
	found := map[string]*binding{}
	if len(data) > maxBindings {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s: longer than %d bytes", file, maxBindings)
	}
	if !utf8.Valid(data) {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s: not valid UTF-8; save it as UTF-8", file)
	}
	root, err := parseYAML(data)
	if err != nil {
		return nil, at(file, err)
	}
	for _, top := range entries(root) {
		if key := keyOf(top); key != "tools" {
			return nil, at(file, faultAt(top.Key, "unknown field %.40q; only tools is known", key))
		}
		if !isMapping(top.Value) {
			return nil, at(file, faultAt(top.Value, "tools must be a mapping of names to bindings"))
		}
		for _, e := range entries(top.Value) {
			b, err := parseBinding(e.Value)
			if err != nil {
				return nil, at(file, err)
			}
			found[keyOf(e)] = b
		}
	}
	if root != nil && !isMapping(root) {
		return nil, at(file, faultAt(root, "a mapping is wanted: tools: {\"greet someone\": {kind: python, entry: ...}}"))
	}
	return found, nil
}

func parseBinding(n ast.Node) (*binding, error) {
	b := &binding{}
	if s, ok := n.(*ast.StringNode); ok {
		b.Entry = s.Value
		return b, nil
	}
	if !isMapping(n) {
		return nil, faultAt(n, "a binding is an entry such as \"tools.greet:run\", or a mapping with one")
	}
	if err := yaml.NodeToValue(n, b, yaml.Strict()); err != nil {
		return nil, err
	}
	if err := b.check(); err != nil {
		return nil, faultAt(n, "%v", err)
	}
	return b, nil
}

// Bounds on what reaches the parser, whose time and stack grow faster than its input.
const (
	maxBindings = 256 << 10 // bytes
	maxTokens   = 40_000
	maxEntries  = 5_000
	maxNesting  = 32
	maxIndent   = 128
)

func parseYAML(data []byte) (ast.Node, error) {
	tokens := lexer.Tokenize(string(data))
	if err := checkTokens(tokens); err != nil {
		return nil, err
	}
	f, err := parser.Parse(tokens, 0)
	if err != nil {
		return nil, err
	}
	switch len(f.Docs) {
	case 0:
		return nil, nil
	case 1:
		return f.Docs[0].Body, nil
	}
	return nil, faultAt(f.Docs[1], "a second document; one is wanted")
}

// checkTokens refuses what has no place in this file, and what would keep the parser busy, before the
// parser sees it. A few lines of aliases can stand for gigabytes.
func checkTokens(tokens token.Tokens) error {
	depth, entries, dashes, line := 0, 0, 0, 0
	for i, t := range tokens {
		if t.Position.Line != line {
			line, dashes = t.Position.Line, 0
		}
		switch t.Type {
		case token.AnchorType, token.AliasType, token.MergeKeyType, token.TagType, token.MappingKeyType:
			return &fault{t.Position, fmt.Sprintf("%.20q is not allowed here; write the value out", t.Value)}
		case token.SequenceStartType, token.MappingStartType:
			depth++
		case token.SequenceEndType, token.MappingEndType:
			depth--
		case token.SequenceEntryType:
			dashes++
			entries++
		case token.MappingValueType:
			entries++
		}
		if depth+dashes > maxNesting || t.Position.IndentNum > maxIndent {
			return &fault{t.Position, "nested too deep"}
		}
		if entries > maxEntries || i > maxTokens {
			return &fault{t.Position, "too many entries"}
		}
	}
	return nil
}

func isMapping(n ast.Node) bool {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return true
	}
	return false
}

func entries(n ast.Node) []*ast.MappingValueNode {
	switch m := n.(type) {
	case *ast.MappingNode:
		return m.Values
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{m}
	}
	return nil
}

func keyOf(e *ast.MappingValueNode) string {
	if s, ok := e.Key.(*ast.StringNode); ok {
		return s.Value
	}
	return e.Key.GetToken().Value
}

// A fault is what is wrong at one place of the file.
type fault struct {
	at      *token.Position
	message string
}

func (f *fault) Error() string { return f.message }

func faultAt(n ast.Node, format string, args ...any) error {
	f := &fault{message: fmt.Sprintf(format, args...)}
	if n != nil && n.GetToken() != nil {
		f.at = n.GetToken().Position
	}
	return f
}

// at gives an error its place in the file. The library's own Error would print the source around it, in
// time that grows with the square of its size.
func at(file string, err error) error {
	var f *fault
	var e yaml.Error
	if !errors.As(err, &f) && errors.As(err, &e) {
		f = &fault{message: e.GetMessage()}
		if t := e.GetToken(); t != nil {
			f.at = t.Position
		}
	}
	switch {
	case f == nil:
		return tool.Errorf(tool.CodeInvalidInput, "%s: %w", file, err)
	case f.at == nil:
		return tool.Errorf(tool.CodeInvalidInput, "%s: %s", file, f.message)
	}
	return tool.Errorf(tool.CodeInvalidInput, "%s:%d:%d: %s", file, f.at.Line, f.at.Column, f.message)
}
