// Package schema holds JSON values against JSON Schemas: 2020-12, and the older drafts that are still found in
// the field.
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

// MaxFaults is how many faults Validate lists.
const MaxFaults = 20

// MaxSubschemas is how many schemas there may be inside one, those of references included.
const MaxSubschemas = 10_000

// A Schema is compiled. It does not change afterwards: several goroutines may use it.
type Schema struct {
	root      *node
	anyText   bool
	unchecked []string
}

// Unchecked lists keywords that values are not held against, and why: patterns that cannot be read.
func (s *Schema) Unchecked() []string { return s.unchecked }

// Unchecked is the same for the schemas of a tool. Those that cannot be compiled say so elsewhere.
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

// Compile reads a schema. It never loads anything from outside: a $ref to another document is an error that says
// to use $defs. An error about a keyword begins with its JSON pointer.
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

// bounded gives the error of a schema, which names places, and those may have any length.
func bounded(err error) error {
	if text := err.Error(); len(text) > maxError {
		return errors.New(tool.Brief(text, maxError))
	}
	return err
}

const maxError = 1000

// AnyText reports whether it makes no difference what a string says: either every one matches, or none. Then any string
// can be held against the schema in place of one that is too large to be taken apart for that.
func (s *Schema) AnyText() bool { return s.anyText }

// Absent lists the members of an object that are null and plainly meant to be absent: the schema has each among its
// properties, does not require it, and does not let it be null.
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

// Validate holds a value, as strictjson.Decode gives it, against the schema; no faults: it matches. A value that
// matches costs one quick pass; only for one that does not, a second pass finds the words.
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
