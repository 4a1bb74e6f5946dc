package alphahuman

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"

	"toolpost/config"
	"toolpost/tool"
)

// A Doc is a SKILL.md: a head with the fields of the Agent Skills standard, and instructions.
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
)

// parseDoc reads a SKILL.md. Errors name the file, and the field if there is one.
func parseDoc(file string, data []byte) (*Doc, error) {
	if !utf8.Valid(data) {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s: not valid UTF-8; save it as UTF-8", file)
	}
	d := new(Doc)
	head, err := d.cutFrontmatter(string(data))
	if err == nil {
		err = d.readHead(head)
	}
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s: %w", file, err)
	}
	return d, nil
}

// cutFrontmatter separates the head, between two lines of three dashes, from the body. A file without them is all body.
func (d *Doc) cutFrontmatter(s string) (head string, err error) {
	s = strings.TrimPrefix(s, "\uFEFF")
	s = strings.ReplaceAll(s, "\r\n", "\n")
	rest, ok := strings.CutPrefix(s, "---\n")
	if !ok {
		d.Body = s
		return "", nil
	}
	head, body, ok := strings.Cut("\n"+rest+"\n", "\n---\n") // the added newline keeps the line numbers right
	switch {
	case !ok:
		return "", errors.New("the frontmatter is not closed; end it with a line ---")
	case len(head) > maxFrontmatter:
		return "", fmt.Errorf("the frontmatter is longer than %d bytes", maxFrontmatter)
	}
	d.Body = strings.TrimSuffix(body, "\n")
	return head, nil
}

func (d *Doc) readHead(head string) error {
	root, err := config.ParseYAML([]byte(head))
	if err != nil {
		return err
	}
	pairs, ok := pairsOf(root)
	if !ok {
		return errors.New("the frontmatter must be names and values, such as `name: my-skill`")
	}
	texts := map[string]*string{
		"name": &d.Name, "description": &d.Description, "license": &d.License, "compatibility": &d.Compatibility,
	}
	for _, p := range pairs {
		switch name := p.Key.String(); {
		case texts[name] != nil:
			*texts[name], err = scalar(name, p.Value)
		case name == "metadata":
			d.Metadata, err = stringMap(name, p.Value)
		case name == "allowed-tools":
			d.AllowedTools, err = words(name, p.Value)
		default:
			d.unknown = append(d.unknown, name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// pairsOf returns the entries of a mapping. An empty document is an empty mapping.
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

// scalar returns a value as text. A number or a boolean is taken as written: `1.0` is what its author meant.
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

// words returns a list, written as a sequence or as text separated by spaces or commas.
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
