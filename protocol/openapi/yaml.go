package openapi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"toolpost/wire/regex"
	"toolpost/wire/strictjson"
)

// yamlToJSON converts YAML to JSON. It converts the entries of the document and those of its paths one by one: the
// nodes of the parser take ten times the memory of their text. A document that cannot be split, or that is invalid, is
// converted as a whole, which also reports where the error is.
func yamlToJSON(data []byte) ([]byte, error) {
	if err := checkFlow(data); err != nil {
		return nil, err
	}
	if out, err := inPieces(data); err == nil && strictjson.Check(out) == nil {
		return out, nil
	}
	return convert(data)
}

func inPieces(data []byte) ([]byte, error) {
	out := []byte{'{'}
	var err error
	for top := range entries(data) {
		name, below, _ := bytes.Cut(top, []byte("\n"))
		if string(bytes.TrimRight(name, " \r")) != "paths:" || len(bytes.TrimSpace(below)) == 0 {
			if out, err = appendEntry(out, top); err != nil {
				return nil, err
			}
			continue
		}
		out = append(strictjson.AppendName(out, "paths"), '{')
		for path := range entries(below) {
			if out, err = appendEntry(out, path); err != nil {
				return nil, err
			}
		}
		out = append(out, '}')
	}
	return append(out, '}'), nil
}

// entries splits a block mapping. An entry begins at a line that is indented like the first one. A piece that is not an
// entry, such as half of a quoted text, is refused by the parser.
func entries(data []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		indent, from, at := -1, 0, 0
		for line := range bytes.Lines(data) {
			content := bytes.TrimLeft(line, " ")
			own := len(line) - len(content)
			if blank := len(bytes.TrimSpace(content)) == 0; !blank && content[0] != '#' {
				if indent < 0 {
					indent = own
				}
				if own == indent && strings.IndexByte("-?:", content[0]) < 0 && at > from {
					if !yield(data[from:at]) {
						return
					}
					from = at
				}
			}
			at += len(line)
		}
		if from < len(data) {
			yield(data[from:])
		}
	}
}

// appendEntry appends the members of a mapping to the object at the end of out.
func appendEntry(out, text []byte) ([]byte, error) {
	one, err := convert(text)
	switch {
	case err != nil:
		return nil, err
	case string(one) == "null": // a comment, or the marker before a document
		return out, nil
	case one[0] != '{':
		return nil, errors.New("it is not a mapping")
	case len(out)+len(one) > maxDocument:
		return nil, errLong()
	}
	if out[len(out)-1] != '{' {
		out = append(out, ',')
	}
	return append(out, one[1:len(one)-1]...), nil
}

func errLong() error {
	return fmt.Errorf("it is larger than %d MiB with what its anchors stand for", maxDocument>>20)
}

// convert converts a YAML document to JSON. It cannot use the parser of the config, whose time is quadratic in the
// number of keys of a mapping, which is small there.
func convert(data []byte) (_ []byte, err error) {
	defer func() {
		if p := recover(); p != nil { // a document may make the parser panic
			err = fmt.Errorf("it is not valid YAML: the parser gave up: %v", p)
		}
	}()
	var n yaml.Node
	in := yaml.NewDecoder(bytes.NewReader(data))
	if err := in.Decode(&n); errors.Is(err, io.EOF) {
		return []byte("null"), nil
	} else if err != nil {
		return nil, fmt.Errorf("it is not valid YAML: %s", clip(strings.TrimPrefix(err.Error(), "yaml: "), 300))
	}
	if in.Decode(new(yaml.Node)) == nil {
		return nil, errors.New("it has a second YAML document; expected only one")
	}
	return appendValue(nil, &n, 0)
}

// checkFlow refuses brackets or dashes that nest so deep that the parser would need a large stack. It also counts
// brackets in texts, which does not affect real documents: they are closed again, or there are few.
func checkFlow(data []byte) error {
	for line := range bytes.Lines(data) {
		count := func(what string) int { return bytes.Count(line, []byte(what)) }
		if opened := count("[") + count("{") + count("- "); opened-count("]")-count("}") > maxDepth {
			return fmt.Errorf("nested deeper than %d levels", maxDepth)
		}
	}
	return nil
}

// appendValue appends a node of YAML as JSON. Aliases are expanded each time, so that a bomb of them ends at the size
// limit of documents.
func appendValue(out []byte, n *yaml.Node, depth int) (_ []byte, err error) {
	switch {
	case len(out) > maxDocument:
		return nil, errLong()
	case depth > maxDepth:
		return nil, fmt.Errorf("line %d: nested deeper than %d levels", n.Line, maxDepth)
	}
	switch n.Kind {
	case yaml.DocumentNode:
		return appendValue(out, n.Content[0], depth)
	case yaml.AliasNode:
		return appendValue(out, n.Alias, depth+1) // an alias inside itself ends at the depth limit
	case yaml.MappingNode:
		return appendMapping(out, n, depth)
	case yaml.SequenceNode:
		out = append(out, '[')
		for i, one := range n.Content {
			if i > 0 {
				out = append(out, ',')
			}
			if out, err = appendValue(out, one, depth+1); err != nil {
				return nil, err
			}
		}
		return append(out, ']'), nil
	case yaml.ScalarNode:
		v, err := scalar(n)
		if text, ok := v.(string); ok {
			return strictjson.AppendString(out, text), nil
		}
		return fmt.Append(out, cmp.Or(v, any("null"))), err
	}
	return append(out, "null"...), nil
}

func appendMapping(out []byte, n *yaml.Node, depth int) (_ []byte, err error) {
	out = append(out, '{')
	names := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		switch {
		case key.Tag == "!!merge":
			return nil, fmt.Errorf("line %d: merge keys are not supported; write the members out", key.Line)
		case key.Kind != yaml.ScalarNode:
			return nil, fmt.Errorf("line %d: expected text for a key", key.Line)
		case names[key.Value]:
			return nil, fmt.Errorf("line %d: duplicate key %q", key.Line, clip(key.Value, 100))
		case i > 0:
			out = append(out, ',')
		}
		names[key.Value] = true
		out = append(strictjson.AppendString(out, key.Value), ':') // the key 200 of a response stays the text that is written
		if out, err = appendValue(out, n.Content[i+1], depth+1); err != nil {
			return nil, err
		}
	}
	return append(out, '}'), nil
}

var plainNumber = regex.Lazy(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,4})?$`)

// scalar reads a scalar by the rules of YAML 1.2 as a JSON value; a date stays the text that is written.
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

// oddNumber reads the notations of numbers that JSON does not have.
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
