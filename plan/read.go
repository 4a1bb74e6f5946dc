package plan

import (
	"encoding/json"
	"reflect"
	"strings"
	"sync"

	"toolpost/tool"
	"toolpost/wire/schema"
	"toolpost/wire/strictjson"
	"toolpost/wire/typeschema"
)

// The bounds of a plan. A document has at most as many bytes as come in by a door.
const (
	MaxBytes = 8 << 20
	MaxTools = 10_000
	maxID    = 256 // bytes of a toolId
)

// Codes of errors about plans, beside those of calls.
const (
	CodeInvalidPlan = "invalid_plan"        // it is not a plan, or its tools do not fit together
	CodeCycle       = "circular_dependency" // tools wait for each other
	CodeToolFailed  = "tool_failed"         // a required tool failed
	CodePlanTimeout = "plan_timeout"        // the plan took too long
)

// A Fault is one thing that is wrong with a plan.
type Fault struct {
	At      string `json:"at"` // JSON pointer into the plan
	Problem string `json:"problem"`
}

// maxFaults is how many faults are listed: whoever has made more corrects these first.
const maxFaults = 20

// Read reads a plan. Members that nobody knows are ignored, as Narratoria wants it, so that planners may be ahead of
// us; but duplicate keys, wrong types and missing members are errors that name the place. An error is an *Error.
func Read(document []byte) (*Plan, error) {
	if len(document) > MaxBytes {
		return nil, invalid("a plan has at most %d bytes, not %d", MaxBytes, len(document))
	}
	v, err := strictjson.Decode(document)
	if err != nil {
		return nil, invalid("the plan is not JSON: %v", err)
	}
	var faults faults
	for _, f := range planSchema().Validate(v) {
		faults.add(f.At, "%s", f.Problem)
	}
	if err := faults.err("the plan", InvalidJSON); err != nil {
		return nil, err
	}
	p := new(Plan)
	if err := strictjson.Unmarshal(document, p); err != nil {
		return nil, invalid("the plan is not one: %v", err)
	}
	return p, nil
}

// planSchema follows from the tags of Plan. The schema of an output leaves room for members that nobody knows, which
// that of an input would not.
var planSchema = sync.OnceValue(func() *schema.Schema {
	text, err := typeschema.Output(reflect.TypeFor[Plan]()).MarshalJSON()
	if err != nil {
		panic(err) // only a tag of ours could make it fail
	}
	s, err := schema.Compile(text)
	if err != nil {
		panic(err)
	}
	return s
})

func invalid(format string, args ...any) *Error {
	return &Error{Code: CodeInvalidPlan, Message: tool.Errorf("", format, args...).Message, Category: InvalidJSON}
}

// faults are those that were found, the first of them.
type faults []Fault

func (f *faults) add(at, format string, args ...any) {
	if len(*f) < maxFaults {
		*f = append(*f, Fault{at, tool.Errorf("", format, args...).Message})
	}
}

// err lists the faults, the first few in words; nil: there are none.
func (f faults) err(what, category string) error {
	if len(f) == 0 {
		return nil
	}
	const inWords = 3
	var words []string
	for _, one := range f[:min(len(f), inWords)] {
		words = append(words, strings.TrimSpace(one.At+" "+one.Problem))
	}
	text := what + ": " + strings.Join(words, "; ")
	if len(f) > inWords {
		text += "; and more"
	}
	return &Error{Code: CodeInvalidPlan, Message: text, Category: category, Details: raw(map[string]any{"faults": f})}
}

// raw writes what has a JSON form.
func raw(v any) json.RawMessage {
	b, err := strictjson.Marshal(v)
	if err != nil {
		b = strictjson.Quote(strings.ToValidUTF8(err.Error(), "\ufffd"))
	}
	return b
}
