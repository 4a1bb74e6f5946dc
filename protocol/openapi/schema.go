package openapi

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"toolpost/tool"
	"toolpost/wire/schema"
	"toolpost/wire/strictjson"
)

// defs are the referenced schemas of a document, each translated once, however many tools use it. A reference becomes
// one to $defs, so that recursive schemas stay finite.
type defs struct {
	of     *document
	byRef  map[string]*def
	names  map[string]bool
	known  map[[sha256.Size]byte]json.RawMessage // the tools' schemas, by their sums: equal ones share their bytes
	trial  trial
	buf    []byte // of the schema that is written now
	list   []*def // of the closure that is read now
	walks  int    // closures read so far
	bytes  int    // of all tools' schemas so far
	values int    // in all translated schemas
}

// A def is a referenced schema.
type def struct {
	name string
	raw  json.RawMessage
	uses []string // references in it
	err  error

	walk  int  // the last closure that it was found in
	tried bool // it is in the trial
}

func newDefs(d *document) defs {
	return defs{of: d, byRef: map[string]*def{}, names: map[string]bool{}, known: map[[sha256.Size]byte]json.RawMessage{}}
}

// named returns the entry for a reference, with its name in $defs. It does not translate the schema yet: that would
// nest as deep as the chain of references.
func (s *defs) named(ref string) *def {
	if known := s.byRef[ref]; known != nil {
		return known
	}
	last := ref[strings.LastIndexByte(ref, '/')+1:]
	d := &def{name: tool.Untaken(tool.Slug(last), tool.MaxSlug, func(name string) bool { return s.names[name] })}
	s.byRef[ref], s.names[d.name] = d, true
	return d
}

// get is named with the schema translated.
func (s *defs) get(ref string) *def {
	d := s.named(ref)
	if d.raw != nil || d.err != nil {
		return d
	}
	v, err := s.of.at(ref)
	if err == nil {
		err = s.loops(ref, v)
	}
	if err == nil {
		d.raw, d.uses, err = s.translate(v)
	}
	if err != nil {
		d.err = fmt.Errorf("%s: %w", clip(ref, 200), err)
	}
	return d
}

// loops refuses a schema whose references lead back to itself with nothing in between.
func (s *defs) loops(ref string, v any) error {
	seen := map[string]bool{ref: true}
	for range maxHops {
		o, ok := v.(object)
		next, isRef := o["$ref"].(string)
		if !ok || !isRef {
			return nil
		}
		if seen[next] {
			return errors.New("its references lead to each other")
		}
		seen[next] = true
		var err error
		if v, err = s.of.at(next); err != nil {
			return err
		}
	}
	return errors.New("its references do not end")
}

// translate returns a schema as JSON Schema 2020-12, and the references in it.
func (s *defs) translate(v any) (json.RawMessage, []string, error) {
	t := &translating{defs: s, uses: map[string]bool{}}
	out, err := t.schema(v, 0)
	if err != nil {
		return nil, nil, err
	}
	raw, err := strictjson.Marshal(out)
	return raw, slices.Sorted(maps.Keys(t.uses)), err
}

// A part is a schema of a tool without those that it refers to.
type part struct {
	raw  json.RawMessage
	uses []string
}

// part encodes a schema of op, and puts it on trial with all schemas that it refers to.
func (s *defs) part(op *operation, own object, uses []string) (*part, error) {
	found, err := s.closure(uses)
	if err != nil {
		return nil, err
	}
	raw, err := strictjson.Marshal(own)
	if err != nil {
		return nil, err
	}
	s.try(op, raw, found)
	return &part{raw, uses}, nil
}

// closure returns the schemas that the references lead to, directly or indirectly. The list is valid until the next
// call.
func (s *defs) closure(uses []string) ([]*def, error) {
	s.walks++
	s.list = s.list[:0]
	todo, size := slices.Clone(uses), 0
	for len(todo) > 0 {
		d := s.get(todo[len(todo)-1])
		todo = todo[:len(todo)-1]
		if d.err != nil {
			return nil, d.err
		}
		if d.walk == s.walks {
			continue
		}
		if size += len(d.raw); size > maxSchema {
			return nil, errLargeSchema()
		}
		d.walk = s.walks
		s.list = append(s.list, d)
		todo = append(todo, d.uses...)
	}
	return s.list, nil
}

// complete sets the schemas of op's spec. This waits until the document is read, since the schemas take more memory than
// the document.
func (s *defs) complete(op *operation) {
	if op.in == nil {
		return
	}
	var err error
	if op.spec.Input, err = s.whole(op.in); err != nil {
		op.err = err
	} else if op.out != nil {
		op.spec.Output, _ = s.whole(op.out)
	}
	op.in, op.out = nil, nil
}

// whole returns a schema with all schemas that it refers to. Those are most of it, and each tool has a copy: equal ones
// share their bytes.
func (s *defs) whole(p *part) (json.RawMessage, error) {
	found, err := s.closure(p.uses)
	if err != nil {
		return nil, err
	}
	s.buf = appendWithDefs(s.buf[:0], p.raw, found)
	if len(s.buf) > maxSchema {
		return nil, errLargeSchema()
	}
	if s.bytes += len(s.buf); s.bytes > maxSchemas {
		return nil, fmt.Errorf("the schemas of the document's tools are larger than %d MiB together: choose some with `operations`",
			maxSchemas>>20)
	}
	sum := sha256.Sum256(s.buf)
	if s.known[sum] == nil {
		s.known[sum] = bytes.Clone(s.buf)
	}
	return s.known[sum], nil
}

// appendWithDefs appends an encoded schema with $defs, which it sorts.
func appendWithDefs(out, raw []byte, found []*def) []byte {
	if len(found) == 0 {
		return append(out, raw...)
	}
	size := len(`{"$defs":{},`) + len(raw)
	for _, d := range found {
		size += len(`"":,`) + len(d.name) + len(d.raw)
	}
	out = append(slices.Grow(out, size), `{"$defs":{`...)
	slices.SortFunc(found, func(a, b *def) int { return strings.Compare(a.name, b.name) })
	for _, d := range found {
		out = append(strictjson.AppendName(out, d.name), d.raw...)
	}
	out = append(out, '}')
	if len(raw) > len(`{}`) {
		out = append(out, ',')
	}
	return append(out, raw[1:]...)
}

// A trial is schemas of many tools, which are compiled as one: a definition that they share is compiled once. If that
// succeeds, each of them compiles.
type trial struct {
	ops    []*operation
	own    []json.RawMessage // the schemas without $defs
	found  []*def
	braces int // about as many as schemas
}

// try adds a schema to the trial, and ends the trial first if the schemas would be too many for one.
func (s *defs) try(op *operation, raw json.RawMessage, found []*def) {
	t, more := &s.trial, bytes.Count(raw, []byte("{"))
	for _, d := range found {
		if !d.tried {
			more += bytes.Count(d.raw, []byte("{"))
		}
	}
	if t.braces+more > schema.MaxSubschemas && len(t.ops) > 0 {
		s.endTrial()
		s.try(op, raw, found)
		return
	}
	t.ops, t.own, t.braces = append(t.ops, op), append(t.own, raw), t.braces+more
	for _, d := range found {
		if !d.tried {
			d.tried, t.found = true, append(t.found, d)
		}
	}
}

func (s *defs) endTrial() {
	list := strictjson.AppendList([]byte(`{"prefixItems":`), s.trial.own, func(b []byte, one json.RawMessage) []byte {
		return append(b, one...)
	})
	s.buf = appendWithDefs(s.buf[:0], append(list, '}'), s.trial.found)
	_, err := schema.Compile(s.buf)
	for _, op := range s.trial.ops {
		op.doubtful = op.doubtful || err != nil
	}
	for _, d := range s.trial.found {
		d.tried = false
	}
	s.trial = trial{}
}

func errLargeSchema() error {
	return fmt.Errorf("its schema is larger than %d KiB with all that it refers to", maxSchema>>10)
}

// A translating is the translation of one schema.
type translating struct {
	*defs
	uses map[string]bool
}

// The keywords that contain schemas, by form. Those of 3.0 are included.
var (
	oneSchema = []string{
		"not", "items", "additionalProperties", "contains", "propertyNames", "if", "then", "else", "unevaluatedItems",
		"unevaluatedProperties", "contentSchema",
	}
	listOfSchemas = []string{"allOf", "anyOf", "oneOf", "prefixItems"}
	mapOfSchemas  = []string{"properties", "patternProperties", "dependentSchemas"}
	// Keywords that do not constrain a value, or are translated to others.
	dropped = []string{
		"discriminator", "xml", "externalDocs", "example", "nullable", "$schema", "$anchor", "$comment", "$defs",
		"definitions", "$dynamicAnchor",
	}
	// Keywords that would change the meaning of references.
	refused = []string{"$id", "$dynamicRef", "$recursiveRef", "$recursiveAnchor", "$vocabulary"}
)

func (t *translating) schema(v any, depth int) (any, error) {
	if t.values++; t.values > maxValues {
		return nil, errTooMany()
	}
	if depth > maxDepth {
		return nil, fmt.Errorf("a schema is nested deeper than %d levels", maxDepth)
	}
	switch in := v.(type) {
	case bool:
		return in, nil
	case object:
		if ref, there := in["$ref"]; there {
			return t.reference(in, ref, depth)
		}
		return t.object(in, depth)
	}
	return nil, errors.New("a schema is neither an object nor true or false")
}

// reference keeps the keywords beside a reference, except in 3.0, which ignores them.
func (t *translating) reference(in object, ref any, depth int) (any, error) {
	name, ok := ref.(string)
	if !ok {
		return nil, errors.New("a $ref is not text")
	}
	if !strings.HasPrefix(name, "#/") {
		_, err := t.of.at(name)
		return nil, err
	}
	t.uses[name] = true
	out := object{}
	if !t.of.old {
		rest := maps.Clone(in)
		delete(rest, "$ref")
		translated, err := t.object(rest, depth)
		if err != nil {
			return nil, err
		}
		out, _ = translated.(object)
	}
	out["$ref"] = "#/$defs/" + t.named(name).name
	return out, nil
}

func (t *translating) object(in object, depth int) (any, error) {
	out := object{}
	for _, name := range slices.Sorted(maps.Keys(in)) {
		v, err := t.keyword(name, in[name], depth)
		if err != nil {
			return nil, err
		}
		if v != nil {
			out[name] = v
		}
	}
	if t.of.old {
		return translateOld(in, out), nil
	}
	return out, nil
}

// keyword translates the value of one keyword; nil means that it is left out.
func (t *translating) keyword(name string, v any, depth int) (any, error) {
	switch {
	case slices.Contains(dropped, name) || strings.HasPrefix(name, "x-"):
		return nil, nil
	case (name == "title" || name == "description") && t.of.from == nil:
		if text, ok := v.(string); ok {
			// The engine would do so in a second copy for each tool. Tools of a URL's document are pinned as they are written.
			return tool.Visible(text), nil
		}
	case slices.Contains(refused, name):
		return nil, fmt.Errorf("schemas with %s are not supported", name)
	case slices.Contains(oneSchema, name):
		return t.schema(v, depth+1)
	case slices.Contains(listOfSchemas, name):
		list, ok := v.([]any)
		if !ok {
			return nil, fmt.Errorf("%s is not a list", name)
		}
		out := make([]any, len(list))
		for i, one := range list {
			var err error
			if out[i], err = t.schema(one, depth+1); err != nil {
				return nil, err
			}
		}
		return out, nil
	case slices.Contains(mapOfSchemas, name):
		in, ok := v.(object)
		if !ok {
			return nil, fmt.Errorf("%s are not an object", name)
		}
		out := object{}
		for _, key := range slices.Sorted(maps.Keys(in)) { // the order decides the names in $defs
			var err error
			if out[key], err = t.schema(in[key], depth+1); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	return v, nil
}

// translateOld translates what 3.0 expresses differently from JSON Schema: null, and exclusive bounds.
func translateOld(in, out object) object {
	for _, bound := range [][2]string{{"exclusiveMinimum", "minimum"}, {"exclusiveMaximum", "maximum"}} {
		if exclusive, ok := in[bound[0]].(bool); ok {
			delete(out, bound[0])
			if limit, there := in[bound[1]]; exclusive && there {
				delete(out, bound[1])
				out[bound[0]] = limit
			}
		}
	}
	if !flag(in, "nullable", false) {
		return out
	}
	if list, ok := in["enum"].([]any); ok && !slices.Contains(list, nil) {
		out["enum"] = append(slices.Clone(list), nil)
	}
	if kind, ok := in["type"].(string); ok {
		out["type"] = []any{kind, "null"}
		if combined(in) { // its parts do not allow null
			out["type"] = kind
			return orNull(out)
		}
		return out
	}
	if combined(in) {
		return orNull(out)
	}
	return out
}

func combined(in object) bool { return in["allOf"] != nil || in["oneOf"] != nil || in["anyOf"] != nil }

func orNull(out object) object {
	if enum, ok := out["enum"].([]any); ok {
		out["enum"] = slices.DeleteFunc(slices.Clone(enum), func(v any) bool { return v == nil })
	}
	either := object{"anyOf": []any{out, object{"type": "null"}}}
	if about, ok := out["description"]; ok {
		either["description"] = about
	}
	return either
}
