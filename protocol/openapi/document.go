package openapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"toolpost/tool"
	"toolpost/wire/regex"
	"toolpost/wire/strictjson"
)

// An object is one of a decoded document.
type object = map[string]any

// A document is one that was read, and is an OpenAPI document of a version that we know.
type document struct {
	root object
	old  bool     // it is of 3.0, whose schemas are not those of JSON Schema
	from *url.URL // where it was fetched; nil: it is a file of ours
	defs defs
}

// readDocument reads JSON, or YAML. What begins with a brace is JSON: YAML that does too is refused with JSON's words,
// and both would mean the same.
func readDocument(data []byte) (*document, error) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if len(data) > maxDocument {
		return nil, fmt.Errorf("it is larger than %d MiB", maxDocument>>20)
	}
	if !utf8.Valid(data) {
		return nil, errors.New("it is not valid UTF-8")
	}
	decode := decodeYAML
	if bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
		decode = decodeJSON
	}
	v, err := decode(data)
	if err != nil {
		return nil, err
	}
	root, ok := v.(object)
	if !ok {
		return nil, errors.New("it is not an object, as an OpenAPI document is")
	}
	d := &document{root: root}
	d.defs = newDefs(d)
	return d, d.checkVersion()
}

func (d *document) checkVersion() error {
	version, _ := d.root["openapi"].(string)
	switch {
	case strings.HasPrefix(version, "3.0."):
		d.old = true
	case strings.HasPrefix(version, "3.1."):
	case d.root["swagger"] != nil:
		return errors.New("it is a Swagger 2.0 document; convert it to OpenAPI 3 first")
	default:
		return fmt.Errorf("its version is %s; OpenAPI 3.0 and 3.1 are supported", clip(fmt.Sprintf("%q", version), 40))
	}
	if paths, there := d.root["paths"]; there {
		if _, ok := paths.(object); !ok {
			return errors.New("its paths are not an object")
		}
	}
	return nil
}

// decodeJSON counts before it decodes: a value needs a comma or a colon in front of it, or a bracket.
func decodeJSON(data []byte) (any, error) {
	if n := bytes.Count(data, []byte(",")) + bytes.Count(data, []byte(":")); n > maxValues {
		return nil, errTooMany()
	}
	v, err := strictjson.Decode(data)
	if err != nil {
		return nil, fmt.Errorf("it is not strict JSON: %w", err)
	}
	return v, nil
}

func errTooMany() error { return fmt.Errorf("it has more than %d values", maxValues) }

// decodeYAML gives what JSON would have said. The parser of the config cannot be used: its time grows with the square
// of the number of keys in a mapping, which is small there.
func decodeYAML(data []byte) (v any, err error) {
	defer func() {
		if p := recover(); p != nil { // somebody else may know how to make the parser panic
			v, err = nil, fmt.Errorf("it is not valid YAML: the parser gave up: %v", p)
		}
	}()
	if err := checkFlow(data); err != nil {
		return nil, err
	}
	var n yaml.Node
	in := yaml.NewDecoder(bytes.NewReader(data))
	if err := in.Decode(&n); err != nil {
		return nil, fmt.Errorf("it is not valid YAML: %s", clip(strings.TrimPrefix(err.Error(), "yaml: "), 300))
	}
	if in.Decode(new(yaml.Node)) == nil {
		return nil, errors.New("it has a second YAML document; expected only one")
	}
	c := &converting{}
	return c.value(&n, 0)
}

// checkFlow refuses what nests so deep in brackets or dashes that the parser would need a large stack for it. Brackets
// in texts count as well, which no real document notices: they are closed again, or there are few.
func checkFlow(data []byte) error {
	for line := range bytes.Lines(data) {
		count := func(what string) int { return bytes.Count(line, []byte(what)) }
		if opened := count("[") + count("{") + count("- "); opened-count("]")-count("}") > maxDepth {
			return fmt.Errorf("nested deeper than %d levels", maxDepth)
		}
	}
	return nil
}

// A converting turns nodes of YAML into the values of JSON. Anchors are what they stand for, and counted each time, so
// that a bomb of them ends early.
type converting struct{ values int }

func (c *converting) value(n *yaml.Node, depth int) (any, error) {
	if c.values++; c.values > maxValues {
		return nil, errTooMany()
	}
	if depth > maxDepth {
		return nil, fmt.Errorf("line %d: nested deeper than %d levels", n.Line, maxDepth)
	}
	switch n.Kind {
	case yaml.DocumentNode:
		return c.value(n.Content[0], depth)
	case yaml.AliasNode:
		return c.value(n.Alias, depth+1) // one that is inside itself is too deep
	case yaml.MappingNode:
		return c.mapping(n, depth)
	case yaml.SequenceNode:
		list := []any{}
		for _, one := range n.Content {
			v, err := c.value(one, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, nil
	case yaml.ScalarNode:
		return scalar(n)
	}
	return nil, nil
}

func (c *converting) mapping(n *yaml.Node, depth int) (any, error) {
	m := object{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		switch {
		case key.Tag == "!!merge":
			return nil, fmt.Errorf("line %d: merge keys are not supported; write the members out", key.Line)
		case key.Kind != yaml.ScalarNode:
			return nil, fmt.Errorf("line %d: expected text for a key", key.Line)
		}
		name := key.Value // a response's 200 is the text that it is written as
		if _, twice := m[name]; twice {
			return nil, fmt.Errorf("line %d: duplicate key %q", key.Line, clip(name, 100))
		}
		v, err := c.value(n.Content[i+1], depth+1)
		if err != nil {
			return nil, err
		}
		m[name] = v
	}
	return m, nil
}

var plainNumber = regex.Lazy(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,4})?$`)

// scalar reads a word as YAML 1.2 has it in JSON's types; a date is the text that it is written as.
func scalar(n *yaml.Node) (any, error) {
	switch n.ShortTag() {
	case "!!null":
		return nil, nil
	case "!!bool":
		var b bool
		err := n.Decode(&b)
		return b, err
	case "!!int", "!!float":
		if plainNumber().MatchString(n.Value) && len(n.Value) <= strictjson.MaxDigits {
			return json.Number(n.Value), nil
		}
		return oddNumber(n)
	case "!!str", "!!timestamp":
		return n.Value, nil
	}
	return nil, fmt.Errorf("line %d: the tag %s is not supported", n.Line, clip(n.Tag, 40))
}

// oddNumber reads the ways of writing numbers that JSON does not have.
func oddNumber(n *yaml.Node) (any, error) {
	var i int64
	if n.Decode(&i) == nil {
		return json.Number(strconv.FormatInt(i, 10)), nil
	}
	var f float64
	if err := n.Decode(&f); err != nil || math.IsInf(f, 0) || math.IsNaN(f) {
		return nil, fmt.Errorf("line %d: %q is not a number in JSON", n.Line, clip(n.Value, 40))
	}
	return json.Number(strconv.FormatFloat(f, 'g', -1, 64)), nil
}

// at gives what a reference inside the document leads to.
func (d *document) at(ref string) (any, error) {
	pointer, ok := strings.CutPrefix(ref, "#/")
	if !ok {
		return nil, fmt.Errorf("the reference %q leads out of the document: put what it names into components",
			clip(ref, 200))
	}
	if decoded, err := url.PathUnescape(pointer); err == nil {
		pointer = decoded
	}
	var v any = d.root
	for step := range strings.SplitSeq(pointer, "/") {
		step = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
		next, found := any(nil), false
		switch in := v.(type) {
		case object:
			next, found = in[step]
		case []any:
			i, err := strconv.Atoi(step)
			if found = err == nil && 0 <= i && i < len(in); found {
				next = in[i]
			}
		}
		if !found {
			return nil, fmt.Errorf("the reference %q leads nowhere", clip(ref, 200))
		}
		v = next
	}
	return v, nil
}

// object gives an object that may stand behind references. It is for everything but schemas, which may refer to
// themselves.
func (d *document) object(v any, what string) (object, error) {
	for range maxHops {
		o, ok := v.(object)
		if !ok {
			return nil, fmt.Errorf("%s is not an object", what)
		}
		ref, ok := o["$ref"].(string)
		if !ok {
			return o, nil
		}
		var err error
		if v, err = d.at(ref); err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
	}
	return nil, fmt.Errorf("%s: its references lead to each other", what)
}

// text reads a member that is text, or nothing.
func text(o object, name string) string {
	s, _ := o[name].(string)
	return s
}

// flag reads a member that is true or false; what is neither is what stands in its place.
func flag(o object, name string, otherwise bool) bool {
	if b, ok := o[name].(bool); ok {
		return b
	}
	return otherwise
}

// clip shortens a text of somebody else for a message, and shows what is hidden in it.
func clip(s string, most int) string {
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return tool.Visible(s)
}
