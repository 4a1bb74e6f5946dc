package alphahuman

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"toolpost/tool"
	"toolpost/wire/jsonrpc"
)

// A Doc is a SKILL.md: a head of fields, as the Agent Skills standard has them, and instructions.
type Doc struct {
	Name          string
	Description   string
	License       string
	Compatibility string
	Metadata      map[string]string
	AllowedTools  []string
	Body          string

	unknown []string // fields that neither the standard nor we know
}

// Bounds on a SKILL.md. The parser's time grows faster than its input, so the head is small.
const (
	maxSkillFile   = 1 << 20
	maxFrontmatter = 16 << 10
	maxHeadDepth   = 8
	maxHeadEntries = 500
	maxHeadIndent  = 64
)

// parseDoc reads a SKILL.md. Errors name the file, and the field where there is one.
func parseDoc(file string, data []byte) (*Doc, error) {
	if !utf8.Valid(data) {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s: not valid UTF-8; save it as UTF-8", file)
	}
	head, body, err := cutFrontmatter(string(data))
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s: %w", file, err)
	}
	d := &Doc{Body: body}
	if err := d.readHead(head); err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s: %w", file, err)
	}
	return d, nil
}

// cutFrontmatter splits what stands between two lines of three dashes from the rest. A file without them is
// all body.
func cutFrontmatter(s string) (head, body string, err error) {
	s = strings.TrimPrefix(s, "\uFEFF")
	s = strings.ReplaceAll(s, "\r\n", "\n")
	rest, ok := strings.CutPrefix(s, "---\n")
	if !ok {
		return "", s, nil
	}
	if body, empty := strings.CutPrefix(rest, "---\n"); empty {
		return "", body, nil
	}
	head, body, ok = strings.Cut(rest+"\n", "\n---\n")
	switch {
	case !ok:
		return "", "", errors.New("the frontmatter is not closed; end it with a line ---")
	case len(head) > maxFrontmatter:
		return "", "", fmt.Errorf("the frontmatter is longer than %d bytes", maxFrontmatter)
	}
	return head, strings.TrimSuffix(body, "\n"), nil
}

func (d *Doc) readHead(head string) error {
	root, err := parseHead(head)
	if err != nil {
		return err
	}
	pairs, ok := pairsOf(root)
	if !ok {
		return errors.New("the frontmatter must be names and values, such as `name: my-skill`")
	}
	for _, p := range pairs {
		if err := d.setField(p.Key.String(), p.Value); err != nil {
			return err
		}
	}
	return nil
}

func (d *Doc) setField(name string, n ast.Node) (err error) {
	switch name {
	case "name":
		d.Name, err = scalar(name, n)
	case "description":
		d.Description, err = scalar(name, n)
	case "license":
		d.License, err = scalar(name, n)
	case "compatibility":
		d.Compatibility, err = scalar(name, n)
	case "metadata":
		d.Metadata, err = stringMap(name, n)
	case "allowed-tools":
		d.AllowedTools, err = words(name, n)
	default:
		d.unknown = append(d.unknown, name)
	}
	return err
}

// parseHead parses YAML that may be written by somebody who knows how to keep a parser busy.
func parseHead(head string) (root ast.Node, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the frontmatter is not valid YAML: the parser gave up: %v", p)
		}
	}()
	tokens := lexer.Tokenize(head)
	if err := checkHead(tokens); err != nil {
		return nil, err
	}
	f, err := parser.Parse(tokens, 0)
	if err != nil {
		return nil, syntaxError(err)
	}
	if len(f.Docs) != 1 {
		return nil, nil
	}
	return f.Docs[0].Body, nil
}

// syntaxError takes message and line from the parser's error, whose own text shows the source.
func syntaxError(err error) error {
	var e yaml.Error
	if errors.As(err, &e) && e.GetToken() != nil {
		return fmt.Errorf("line %d: not valid YAML: %s", e.GetToken().Position.Line+1, e.GetMessage())
	}
	return fmt.Errorf("the frontmatter is not valid YAML: %s", jsonrpc.Clip(err.Error()))
}

func checkHead(tokens token.Tokens) error {
	depth, entries := 0, 0
	for _, t := range tokens {
		switch t.Type {
		case token.AnchorType, token.AliasType, token.MergeKeyType, token.TagType, token.MappingKeyType:
			return fmt.Errorf("line %d: anchors, aliases, tags and complex keys are not allowed here",
				t.Position.Line+1)
		case token.SequenceStartType, token.MappingStartType:
			depth++
		case token.SequenceEndType, token.MappingEndType:
			depth--
		case token.SequenceEntryType, token.MappingValueType:
			entries++
		}
		if depth > maxHeadDepth || entries > maxHeadEntries || t.Position.IndentNum > maxHeadIndent {
			return fmt.Errorf("line %d: nested too deep, or too many entries", t.Position.Line+1)
		}
	}
	return nil
}

// pairsOf returns the entries of a mapping. Nothing at all is an empty one.
func pairsOf(n ast.Node) ([]*ast.MappingValueNode, bool) {
	switch m := n.(type) {
	case nil, *ast.NullNode, *ast.CommentGroupNode:
		return nil, true
	case *ast.MappingNode:
		return m.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{m}, true
	}
	return nil, false
}

// scalar returns a value as text. A number or a boolean is taken as it is written: `1.0` is what its author
// meant.
func scalar(name string, n ast.Node) (string, error) {
	switch v := n.(type) {
	case nil, *ast.NullNode:
		return "", nil
	case *ast.StringNode:
		return v.Value, nil
	case *ast.LiteralNode:
		return strings.TrimSpace(v.Value.Value), nil
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value, nil
	}
	return "", fmt.Errorf("field %s: expected text", name)
}

func stringMap(name string, n ast.Node) (map[string]string, error) {
	pairs, ok := pairsOf(n)
	if !ok {
		return nil, fmt.Errorf("field %s: expected names and values", name)
	}
	m := map[string]string{}
	for _, p := range pairs {
		key := p.Key.String()
		value, err := scalar(name+"."+key, p.Value)
		if err != nil {
			return nil, err
		}
		m[key] = value
	}
	return m, nil
}

// words returns a list, written as one or as text with spaces or commas between.
func words(name string, n ast.Node) ([]string, error) {
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		s, err := scalar(name, n)
		return strings.FieldsFunc(s, func(r rune) bool { return r == ' ' || r == ',' || r == '\n' }), err
	}
	var list []string
	for _, item := range seq.Values {
		s, err := scalar(name, item)
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, nil
}
