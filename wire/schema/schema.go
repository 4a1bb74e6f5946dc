// Package schema validates JSON values against JSON Schemas: 2020-12, and the older drafts that are still in use.
//
// A schema is data from a tool, and a value is data from a caller, so neither can make this package load
// anything, loop, or work without bound. Numbers are compared exactly. Formats are annotations, as the standard
// says, and unknown keywords are ignored.
package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// MaxFaults is the maximum number of faults that Validate lists.
const MaxFaults = 20

// MaxSubschemas is how many schemas one may contain, including those of references.
const MaxSubschemas = 10_000

// A Schema is a compiled schema. It never changes: several goroutines may use it.
type Schema struct {
	root      *node
	anyText   bool
	unchecked []string
}

// Unchecked lists keywords that are not checked, and why: patterns that cannot be parsed.
func (s *Schema) Unchecked() []string { return s.unchecked }

// Unchecked lists those of a tool's schemas. Schemas that cannot be compiled are reported elsewhere.
func Unchecked(spec *tool.Spec) (all []string) {
	for which, raw := range map[string]json.RawMessage{"input": spec.Input, "output": spec.Output} {
		if s, err := Compile(raw); len(raw) > 0 && err == nil {
			for _, one := range s.unchecked {
				all = append(all, which+one)
			}
		}
	}
	slices.Sort(all)
	return all
}

// A Fault is one place where a value does not match.
type Fault struct {
	At      string `json:"at"`      // JSON pointer into the value
	Problem string `json:"problem"` // in words for people
}

// Compile reads a schema. It never loads anything from outside: a $ref to another document is an error that recommends
// $defs. An error about a keyword begins with its JSON pointer.
func Compile(raw json.RawMessage) (*Schema, error) {
	doc, err := strictjson.Decode(raw)
	if err != nil {
		return nil, fmt.Errorf("it is not JSON: %w", err)
	}
	c := &compiler{resources: map[string]*resource{}, places: map[string]*place{}, patterns: map[string]*pattern{}}
	if err := c.addDocument(baseURI, "", doc); err != nil {
		return nil, bounded(err)
	}
	if err := c.fillAll(); err != nil {
		return nil, bounded(err)
	}
	root := c.places[""].node
	return &Schema{root, anyText(root), c.unchecked}, nil
}

// bounded shortens the error of a schema: it names places, which may have any length.
func bounded(err error) error {
	if text := err.Error(); len(text) > maxError {
		return errors.New(tool.Brief(text, maxError))
	}
	return err
}

const maxError = 1000

// AnyText reports whether the content of a string makes no difference: either every string matches, or none. Then any
// string can be validated in place of one that is too large to be decoded for that.
func (s *Schema) AnyText() bool { return s.anyText }

// Absent lists the members of an object that are null but meant to be absent: the schema has each among its properties,
// does not require it, and does not allow null.
func (s *Schema) Absent(v any) (names []string) {
	obj, _ := v.(map[string]any)
	if s.root.obj == nil {
		return nil
	}
	for name, p := range s.root.obj.properties {
		if value, there := obj[name]; there && value == nil && !slices.Contains(s.root.obj.required, name) {
			r := run{quiet: true, left: baseWork}
			if !r.check(p, nil, nil) && r.stopped == "" {
				names = append(names, name)
			}
		}
	}
	return names
}

// Validate validates a value, as strictjson.Decode returns it, and returns nil if it matches. A value that matches
// costs one quick pass; only for others a second pass finds the words.
func (s *Schema) Validate(v any) []Fault {
	r := run{quiet: true, left: baseWork, value: v}
	switch ok := r.check(s.root, v, nil); {
	case r.stopped != "":
		return []Fault{{Problem: r.stopped}}
	case ok:
		return nil
	}
	r = run{left: baseWork, value: v}
	r.check(s.root, v, nil)
	return r.faults()
}
