package openapi

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// An object is an object of a decoded document.
type object = map[string]any

// A document is a parsed OpenAPI document of a supported version.
type document struct {
	root object   // its paths and components are lazy
	old  bool     // version 3.0, whose schemas are not JSON Schema
	from *url.URL // the URL that it was fetched from; nil for a file
	defs defs

	values  int // decoded so far
	decoded []*lazy
	kept    int // bytes of text that decoded stands for
}

// A lazy is a part of a document that is decoded on demand. Most of a large document belongs to operations that the
// config does not choose.
type lazy struct {
	raw []byte
	v   any
}

// readDocument reads JSON or YAML. A document that begins with a brace is read as JSON: for YAML of that form, the
// errors are JSON's and the meaning is the same.
func readDocument(data []byte) (*document, error) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if len(data) > maxDocument {
		return nil, fmt.Errorf("it is larger than %d MiB", maxDocument>>20)
	}
	if !utf8.Valid(data) {
		return nil, errors.New("it is not valid UTF-8")
	}
	var err error
	if !bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
		data, err = yamlToJSON(data)
	} else if err = strictjson.Check(data); err != nil {
		err = fmt.Errorf("it is not strict JSON: %w", err)
	}
	if err != nil {
		return nil, err
	}
	if strictjson.KindOf(data) != "object" {
		return nil, errors.New("it is not an object, as an OpenAPI document is")
	}
	d := &document{}
	d.defs = newDefs(d)
	if d.root, err = members(data, d.section); err != nil {
		return nil, err
	}
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

// section reads a member of the document. Paths and components are decoded on demand.
func (d *document) section(name string, value []byte) (any, error) {
	isObject := strictjson.KindOf(value) == "object"
	switch {
	case isObject && name == "paths":
		return members(value, later)
	case isObject && name == "components":
		return members(value, func(_ string, value []byte) (any, error) {
			if strictjson.KindOf(value) != "object" {
				return d.decode(value)
			}
			return members(value, later)
		})
	}
	return d.decode(value)
}

// members reads the members of a JSON object with read.
func members(data []byte, read func(name string, raw []byte) (any, error)) (object, error) {
	o := object{}
	err := strictjson.Walk(data, func(name, raw []byte) (err error) {
		key := string(name)
		o[key], err = read(key, raw)
		return err
	})
	return o, err
}

func later(_ string, raw []byte) (any, error) { return &lazy{raw: raw}, nil }

// decode counts before it decodes: a value needs a comma or a colon in front of it, or a bracket.
func (d *document) decode(raw []byte) (any, error) {
	d.values += 1 + bytes.Count(raw, []byte(",")) + bytes.Count(raw, []byte(":"))
	if d.values > maxValues {
		return nil, errTooMany()
	}
	return strictjson.Decode(raw)
}

func errTooMany() error {
	return fmt.Errorf("what is read of it has more than %d values: choose fewer with `operations`", maxValues)
}

// value returns a part of the document, and decodes it if it is lazy.
func (d *document) value(v any) (any, error) {
	part, ok := v.(*lazy)
	if !ok {
		return v, nil
	}
	if part.v == nil {
		var err error
		if part.v, err = d.decode(part.raw); err != nil {
			return nil, err
		}
		d.keep(part)
	}
	return part.v, nil
}

// keep forgets the parts decoded so far if they are large: a tree takes several times the memory of its text, and most
// parts are read once.
func (d *document) keep(part *lazy) {
	if d.kept += len(part.raw); d.kept > maxKept {
		for _, old := range d.decoded {
			old.v = nil
		}
		d.decoded, d.kept = d.decoded[:0], len(part.raw)
	}
	d.decoded = append(d.decoded, part)
}

// at returns the target of a reference inside the document.
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
		var err error
		if v, err = d.value(next); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// object resolves references to an object. It is for everything but schemas, which may refer to themselves.
func (d *document) object(v any, what string) (object, error) {
	v, err := d.value(v)
	for range maxHops {
		if err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
		o, ok := v.(object)
		if !ok {
			return nil, fmt.Errorf("%s is not an object", what)
		}
		ref, ok := o["$ref"].(string)
		if !ok {
			return o, nil
		}
		v, err = d.at(ref)
	}
	return nil, fmt.Errorf("%s: its references lead to each other", what)
}

// text returns a member that is a string, or "".
func text(o object, name string) string {
	s, _ := o[name].(string)
	return s
}

// flag returns a member that is a boolean, or otherwise if it is not one.
func flag(o object, name string, otherwise bool) bool {
	if b, ok := o[name].(bool); ok {
		return b
	}
	return otherwise
}

// clip shortens a foreign text for a message, and makes hidden characters visible.
func clip(s string, most int) string {
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return tool.Visible(s)
}
