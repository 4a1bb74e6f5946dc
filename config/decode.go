package config

import (
	"cmp"
	"encoding"
	"iter"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"toolpost/wire/nearest"
	"toolpost/wire/typeschema"
)

// A nodeReader reads itself from a node. It is the same as yaml.NodeUnmarshaler.
type nodeReader interface{ UnmarshalYAML(ast.Node) error }

// A validator is a struct whose fields have constraints beyond their types. It is called when all of them have been
// read.
type validator interface{ Validate() error }

// decodeFields reads a mapping into the struct that into points to. An unknown field is an error, unless it is among
// the others, which are read elsewhere.
func decodeFields(n ast.Node, into any, others ...string) error {
	return decodeStruct(n, reflect.ValueOf(into).Elem(), others)
}

// decodeSome reads the fields that the struct has and ignores all others.
func decodeSome(n ast.Node, into any) error {
	return decodeKnown(n, reflect.ValueOf(into).Elem(), func(pair) error { return nil })
}

// decodeKnown reads the fields that the struct has, and passes the others to unknown.
func decodeKnown(n ast.Node, v reflect.Value, unknown func(pair) error) error {
	pairs, err := pairsLike(n, v.Type())
	if err != nil {
		return err
	}
	fields := fieldsOf(v.Type())
	for _, p := range pairs {
		i := slices.IndexFunc(fields, func(f typeschema.Field) bool { return f.Name == p.name })
		if i < 0 {
			err = unknown(p)
		} else {
			err = decodeKind(p.value, v.FieldByIndex(fields[i].Index), fields[i].Tag.Get("kind"))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func decodeStruct(n ast.Node, v reflect.Value, others []string) error {
	if err := clientsCommand(n, fieldsOf(v.Type())); err != nil {
		return err
	}
	err := decodeKnown(n, v, func(p pair) error {
		if slices.Contains(others, p.name) {
			return nil
		}
		return unknownField(p, fieldsOf(v.Type()), others)
	})
	if err != nil {
		return err
	}
	if c, ok := v.Addr().Interface().(validator); ok {
		return placed(n, c.Validate())
	}
	return nil
}

func unknownField(p pair, fields []typeschema.Field, others []string) error {
	var names []string
	for _, f := range fields {
		names = append(names, f.Name)
	}
	names = append(names, others...)
	if p.name == "mcpServers" {
		return faultAt(p.key, "mcpServers is how MCP clients list their servers: save it as a file, such as mcp.json, and "+
			"`toolpost mcp import mcp.json` makes each server a source")
	}
	hint := cmp.Or(nearest.Hint(p.name, names), "; known are "+strings.Join(names, ", "))
	return faultAt(p.key, "unknown field %q%s", p.name, hint)
}

// decode reads n into v. Null leaves v as it is, except that `http:` alone requests the door with its defaults.
func decode(n ast.Node, v reflect.Value) error {
	if v.Kind() == reflect.Pointer {
		return decodePointer(n, v)
	}
	if isNull(n) {
		return nil
	}
	if r, ok := v.Addr().Interface().(nodeReader); ok {
		return placed(n, r.UnmarshalYAML(n))
	}
	if v.Type() == reflect.TypeFor[time.Duration]() {
		var d Duration
		err := d.UnmarshalYAML(n)
		v.SetInt(int64(d))
		return err
	}
	if short, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		if s, ok := shortText(n, v.Type()); ok {
			return placed(n, short.UnmarshalText([]byte(s)))
		}
	}
	switch v.Kind() {
	case reflect.Struct:
		if onlyText(v.Type()) {
			return faultAt(n, "expected a string, got %s", kindOf(n))
		}
		return decodeStruct(n, v, nil)
	case reflect.Slice:
		return decodeSlice(n, v)
	case reflect.Map:
		return decodeMap(n, v)
	}
	return decodeScalar(n, v)
}

// shortText returns the text of a value that may be written as text alone. A type that is only text, or a list of
// texts, may also be written as a number.
func shortText(n ast.Node, t reflect.Type) (string, bool) {
	if s, ok := text(n); ok {
		return s, true
	}
	s := number(n)
	return s, s != "" && (t.Kind() != reflect.Struct || onlyText(t))
}

// onlyText reports whether a type reads itself from text and has no fields that a file could name.
func onlyText(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && len(fieldsOf(t)) == 0 &&
		reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

func decodePointer(n ast.Node, v reflect.Value) error {
	if isNull(n) && v.Type().Elem().Kind() != reflect.Struct {
		return nil
	}
	p := reflect.New(v.Type().Elem())
	v.Set(p)
	return decode(n, p.Elem())
}

func decodeSlice(n ast.Node, v reflect.Value) error {
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		if e, ok := v.Addr().Interface().(interface{ Expected() string }); ok {
			return faultAt(n, "expected %s, got %s", e.Expected(), kindOf(n))
		}
		return faultAt(n, "expected a list, got %s%s", kindOf(n), listHint(n, v.Type()))
	}
	out := reflect.MakeSlice(v.Type(), len(seq.Values), len(seq.Values))
	for i, item := range seq.Values {
		if isNull(item) {
			return faultAt(item, "the list has an empty item")
		}
		if err := decode(item, out.Index(i)); err != nil {
			return err
		}
	}
	v.Set(out)
	return nil
}

func decodeMap(n ast.Node, v reflect.Value) error {
	pairs, err := pairsLike(n, v.Type())
	if err != nil {
		return err
	}
	out := reflect.MakeMapWithSize(v.Type(), len(pairs))
	for _, p := range pairs {
		item := reflect.New(v.Type().Elem()).Elem()
		if err := decode(p.value, item); err != nil {
			return err
		}
		out.SetMapIndex(reflect.ValueOf(p.name).Convert(v.Type().Key()), item)
	}
	v.Set(out)
	return nil
}

// quotes returns the advice to quote a value that would then be a string: a number, a boolean or, as {name} is, a mapping.
func quotes(n ast.Node) string {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		if pairs, err := pairsOf(n); err != nil || len(pairs) != 1 || !isNull(pairs[0].value) {
			return ""
		}
	case *ast.SequenceNode:
		return ""
	}
	return "; put it in quotes"
}

// listHint returns how to write a list, which some types allow to be text alone.
func listHint(n ast.Node, t reflect.Type) string {
	s, isText := text(n)
	m, isMapping := n.(*ast.MappingNode)
	_, isField := n.(*ast.MappingValueNode)
	switch {
	case reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
		return quotes(n)
	case isField, isMapping && !m.IsFlowStyle:
		return "; begin each entry with `- `"
	case isMapping:
		return "; put it in [ ]"
	case isText && (t.Elem().Kind() == reflect.String || reflect.PointerTo(t.Elem()).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())):
		return "; write " + flowList(strings.Fields(s))
	case isText && t.Elem().Kind() == reflect.Struct:
		return "; write [" + example(t.Elem(), n) + "]"
	}
	return ""
}

// flowList writes words as a list on one line.
func flowList(words []string) string {
	for i, w := range words {
		if strings.ContainsAny(w, "{}[],:#&*!|>'\"%@`") {
			words[i] = strconv.Quote(w)
		}
	}
	return "[" + strings.Join(words, ", ") + "]"
}

func decodeScalar(n ast.Node, v reflect.Value) error {
	switch v.Kind() {
	case reflect.String:
		s, ok := text(n)
		if !ok {
			return faultAt(n, "expected a string, got %s%s", kindOf(n), quotes(n))
		}
		v.SetString(s)
	case reflect.Bool:
		b, ok := n.(*ast.BoolNode)
		if !ok {
			return faultAt(n, "expected true or false, got %s%s", kindOf(n), boolHint(n))
		}
		v.SetBool(b.Value)
	case reflect.Int, reflect.Int64:
		i, err := strconv.ParseInt(number(n), 10, v.Type().Bits())
		if err != nil {
			return faultAt(n, "expected a whole number, got %s", kindOf(n))
		}
		v.SetInt(i)
	case reflect.Float64:
		x, err := strconv.ParseFloat(number(n), 64)
		if err != nil {
			return faultAt(n, "expected a number, got %s", kindOf(n))
		}
		v.SetFloat(x)
	default:
		return faultAt(n, "a field of type %s cannot be read from a config", v.Type())
	}
	return nil
}

// boolHint returns what to write for a word that other versions of YAML take as true or false.
func boolHint(n ast.Node) string {
	switch s, _ := text(n); strings.ToLower(s) {
	case "yes", "on", "true":
		return "; write true"
	case "no", "off", "false":
		return "; write false"
	}
	return ""
}

// placed adds the position of n to an error, unless it has one.
func placed(n ast.Node, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := err.(*fault); ok {
		return err
	}
	return faultAt(n, "%v", err)
}

// A pair is one entry of a mapping.
type pair struct {
	name       string
	key, value ast.Node
}

func pairsOf(n ast.Node) ([]pair, error) { return pairsLike(n, nil) }

// pairsLike is pairsOf with the type that the mapping is read into, or nil, for an example in the error.
func pairsLike(n ast.Node, t reflect.Type) ([]pair, error) {
	var values []*ast.MappingValueNode
	switch m := n.(type) {
	case nil:
	case *ast.MappingNode:
		values = m.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{m}
	default:
		if !isNull(n) {
			return nil, faultAt(n, "expected a mapping, such as `%s`, got %s", example(t, n), kindOf(n))
		}
	}
	pairs := make([]pair, 0, len(values))
	for _, v := range values {
		name, ok := text(v.Key)
		if !ok {
			return nil, faultAt(v.Key, "expected a string as a key, got %s; put it in quotes", kindOf(v.Key))
		}
		pairs = append(pairs, pair{name, v.Key, v.Value})
	}
	return pairs, nil
}

// example returns a mapping that a type may be written as: with its first field, for a list its first list of mappings, and the
// text in place of the mapping.
func example(t reflect.Type, n ast.Node) string {
	if t == nil || t.Kind() != reflect.Struct || len(fieldsOf(t)) == 0 {
		return "{NAME: VALUE}"
	}
	first, value := fieldsOf(t)[0], "..."
	entries := func(f typeschema.Field) bool {
		return f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() == reflect.Struct
	}
	if i := slices.IndexFunc(fieldsOf(t), entries); i >= 0 && kindOf(n) == "a list" {
		first = fieldsOf(t)[i]
	}
	if s, ok := text(n); ok && first.Type.Kind() == reflect.String {
		value = s
	} else if s := number(n); s != "" && first.Tag.Get("kind") == kindListen {
		value = s
	} else if first.Type.Kind() == reflect.Bool {
		value = "true"
	}
	return "{" + first.Name + ": " + value + "}"
}

// scalars yields the values in a node that have none inside.
func scalars(n ast.Node) iter.Seq[ast.Node] {
	return func(yield func(ast.Node) bool) { eachScalar(n, yield) }
}

func eachScalar(n ast.Node, yield func(ast.Node) bool) bool {
	if list, ok := n.(*ast.SequenceNode); ok {
		return !slices.ContainsFunc(list.Values, func(item ast.Node) bool { return !eachScalar(item, yield) })
	}
	pairs, err := pairsOf(n)
	if err != nil {
		return yield(n)
	}
	return !slices.ContainsFunc(pairs, func(p pair) bool { return !eachScalar(p.value, yield) })
}

// child returns the value of one key of a mapping, or the mapping itself.
func child(n ast.Node, name string) ast.Node {
	pairs, _ := pairsOf(n)
	for _, p := range pairs {
		if p.name == name {
			return p.value
		}
	}
	return n
}

// fieldsOf lists the fields of a struct. A name comes from the yaml tag, else from the json tag, so that the types of
// package tool need no yaml tags.
func fieldsOf(t reflect.Type) []typeschema.Field { return typeschema.Fields(t, "yaml", "json") }

// A Fallible is a part of a file whose mistakes do not prevent the rest of the file from being read.
type Fallible[T any] struct {
	Value T
	Err   error // what is wrong with it; Explain adds the position
}

// UnmarshalYAML implements yaml.NodeUnmarshaler.
func (p *Fallible[T]) UnmarshalYAML(n ast.Node) error {
	p.Err = decode(n, reflect.ValueOf(&p.Value).Elem())
	return nil
}

// Explain returns the error of a part of a file as DecodeYAML would: with its position.
func Explain(path string, data []byte, err error) error {
	return (&document{path: path, data: data}).explain(err)
}

// PeekYAML reads those fields of a file that the struct has, and ignores all others: it is for files that have
// mistakes.
func PeekYAML(path string, data []byte, into any) error {
	d, err := parse(path, data)
	if err != nil {
		return err
	}
	return d.explain(decodeSome(d.root, into))
}

// EmptyList returns the name of the first field, in the struct that of points to, that is a list without entries and
// not nil, except those in may; it returns "" if there is none.
func EmptyList(of any, may ...string) string {
	v := reflect.ValueOf(of).Elem()
	for _, f := range fieldsOf(v.Type()) {
		list := v.FieldByIndex(f.Index)
		if list.Kind() == reflect.Slice && !list.IsNil() && list.Len() == 0 && !slices.Contains(may, f.Name) {
			return f.Name
		}
	}
	return ""
}
