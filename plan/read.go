package plan

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"toolpost/tool"
	"toolpost/wire/schema"
	"toolpost/wire/strictjson"
	"toolpost/wire/typeschema"
)

// The limits of a plan. A document may have as many bytes as a request at a door.
const (
	MaxBytes = 8 << 20
	MaxTools = 10_000
	maxID    = 256 // bytes of a toolId
)

// Codes of errors of plans, beside those of calls.
const (
	CodeInvalidPlan = "invalid_plan"        // it is not a plan, or its tools do not fit together
	CodeCycle       = "circular_dependency" // tools wait for each other
	CodeToolFailed  = "tool_failed"         // a required tool failed
	CodePlanTimeout = "plan_timeout"        // the plan took too long
)

// A Fault is one mistake in a plan.
type Fault struct {
	Tool    string `json:"tool,omitzero"` // the toolId of the tool that it is about
	At      string `json:"at"`            // JSON pointer into the plan
	Problem string `json:"problem"`
}

// maxFaults is how many faults are listed; an author with more corrects these first. maxFault limits the bytes of the
// place and of the problem of each, which may quote any name of the plan.
const (
	maxFaults = 20
	maxFault  = 1000
)

// Read parses a plan. Unknown members are ignored, as Narratoria requires, so that planners may be newer than this
// program; but duplicate keys, wrong types and missing members are errors that name the place. An error is an *Error.
func Read(document []byte) (*Plan, error) {
	return read(document, func(map[string]any) {})
}

// ReadAnswer parses the answer of a planner like Read, but without the requestId, which the caller knows.
func ReadAnswer(document []byte) (*Plan, error) {
	p, err := read(document, func(members map[string]any) { members["requestId"] = "known" })
	if err == nil {
		p.RequestID = ""
	}
	return p, err
}

// read parses a plan; know adds members that are known already.
func read(document []byte, know func(members map[string]any)) (*Plan, error) {
	if len(document) > MaxBytes {
		return nil, invalid("a plan has at most %d bytes, not %d", MaxBytes, len(document))
	}
	v, err := strictjson.Decode(document)
	if err != nil {
		return nil, invalid("the plan is not JSON: %v", err)
	}
	members, _ := v.(map[string]any)
	if members != nil {
		know(members)
	}
	faults := faults{category: InvalidJSON}
	for _, f := range planSchema().Validate(v) {
		faults.add(idAt(members, f.At), f.At, "%s", f.Problem)
	}
	if err := faults.err(); err != nil {
		return nil, err
	}
	p := new(Plan)
	if err := strictjson.Unmarshal(document, p); err != nil {
		return nil, invalid("the plan is not one: %v", err)
	}
	return p, nil
}

// idAt returns the toolId of the tool that contains a place, or "" if there is none.
func idAt(plan map[string]any, at string) string {
	rest, ok := strings.CutPrefix(at, "/tools/")
	place, _, _ := strings.Cut(rest, "/")
	i, err := strconv.Atoi(place)
	tools, _ := plan["tools"].([]any)
	if !ok || err != nil || i < 0 || i >= len(tools) {
		return ""
	}
	members, _ := tools[i].(map[string]any)
	id, _ := members["toolId"].(string)
	return id
}

// planSchema follows from the tags of Plan. The schema of an output permits unknown members; that of an input would not.
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
	return &Error{Code: CodeInvalidPlan, Message: tool.Brief(tool.Errorf("", format, args...).Message, maxFault), Category: InvalidJSON}
}

// faults are the first faults that were found.
type faults struct {
	category string // of the faults that are added next; the category of the first one is that of the error
	first    string
	list     []Fault
	more     int      // that did not fit into the list
	cycle    []string // the ids of tools that wait for each other
}

func (f *faults) full() bool { return len(f.list) >= maxFaults }

func (f *faults) add(id, at, format string, args ...any) {
	if f.full() {
		f.more++
		return
	}
	if len(id) > maxID {
		id = ""
	}
	f.first = cmp.Or(f.first, f.category)
	problem := tool.Brief(tool.Errorf("", format, args...).Message, maxFault)
	f.list = append(f.list, Fault{id, tool.Brief(at, maxFault), problem})
}

// err returns an error that lists the faults, the first few in words, or nil if there are none.
func (f *faults) err() error {
	if len(f.list) == 0 {
		return nil
	}
	const inWords = 3
	var words []string
	for _, one := range f.list[:min(len(f.list), inWords)] {
		words = append(words, one.String())
	}
	e := &Error{Code: CodeInvalidPlan, Message: strings.Join(words, "; "), Category: f.first}
	if rest := len(f.list) - inWords + f.more; rest > 0 {
		e.Message += fmt.Sprintf("; and %d more", rest)
	}
	details := map[string]any{"faults": f.list}
	if f.more > 0 {
		details["more"] = f.more
	}
	if f.cycle != nil {
		details["cycle"] = f.cycle
	}
	if e.Details = raw(details); f.first == CircularDependency {
		e.Code = CodeCycle
	}
	return e
}

// String returns the fault with its place.
func (f Fault) String() string {
	about := strings.TrimSpace(f.At + " " + f.Problem)
	if f.Tool != "" {
		return fmt.Sprintf("tool %q: %s", f.Tool, about)
	}
	return about
}

// raw encodes a value as JSON.
func raw(v any) json.RawMessage {
	b, err := strictjson.Marshal(v)
	if err != nil {
		b = strictjson.Quote(strings.ToValidUTF8(err.Error(), "\ufffd"))
	}
	return b
}
