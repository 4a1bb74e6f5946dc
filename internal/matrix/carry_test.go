package matrix

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// A feature is something that a call may deliver to its caller.
type feature string

const (
	output   feature = "nested, non-ASCII JSON"
	large    feature = "1 MiB of output"
	failure  feature = "a failure, in its words"
	reason   feature = "the tool's name for a failure"
	timeout  feature = "a timeout"
	invalid  feature = "refused: bad arguments"
	lease    feature = "refused: no lease"
	progress feature = "progress"
	logs     feature = "log messages"
	state    feature = "a state patch"
	asset    feature = "an asset"
	choice   feature = "a choice (`narrative_choice`)"
	question feature = "a question"
	cancel   feature = "cancelling a call"
)

// features lists them in the order of the page. Log messages are one form of progress, so only doors have them.
func features() []feature {
	return []feature{output, large, failure, reason, timeout, invalid, lease, progress, logs, state, asset, choice, question, cancel}
}

// A way is the form in which something arrives.
type way string

const (
	same     way = "same"
	asText   way = "JSON text" // a value that is not a string is written into one
	asObject way = "in an object"
	asLog    way = "log event"
	asLine   way = "log line" // on stderr, beside the protocol
	asWords  way = "in words" // in the text of the result, with the data beside it for programs
	asClass  way = "wider class"
	unnamed  way = "unnamed"
	asError  way = "error"
	never    way = "–"
)

// A carry is what a protocol does with a feature. If it does not arrive unchanged, why gives the reason.
type carry struct {
	way way
	why string
}

// carries are the features that do not arrive unchanged.
type carries map[feature]carry

func (c carries) of(f feature) carry {
	if found, ok := c[f]; ok {
		return found
	}
	return carry{way: same}
}

// A route is the sequence of changes to a feature between a runner and a door. If empty, it arrives unchanged.
type route []carry

func (r route) String() string {
	if len(r) == 0 {
		return string(same)
	}
	if last := r[len(r)-1].way; last == never || last == asLine || last == asLog {
		return string(last)
	}
	var ways []string
	for _, c := range r {
		if n := len(ways); n == 0 || ways[n-1] != string(c.way) {
			ways = append(ways, string(c.way))
		}
	}
	return strings.Join(ways, ", ")
}

// last returns the form of the feature at the end.
func (r route) last() way {
	if len(r) == 0 {
		return same
	}
	return r[len(r)-1].way
}

// between returns the route of a feature from a runner to a door: the intersection of the two tables.
func between(d *door, r *runner, f feature) route {
	var way route
	from := r.carries.of(f)
	if from.way != same {
		way = append(way, from)
	}
	if from.way == never || from.way == asError {
		return way
	}
	if f == state && r.inSession && !d.sessions {
		return append(way, carry{never, noSession})
	}
	if from.way == asLog {
		f = logs
	}
	to := d.carries.of(f)
	if to.way == same || to.way == asObject && from.way != asText { // an object needs no object around it
		return way
	}
	return append(way, to)
}

// noSession is the reason why a runner that has a state only in a session has none at some doors.
const noSession = "a skill's state belongs to a session; at a door that has none the skill keeps it in its own memory"

// opened extracts a value from the form in which it arrives on a route.
func (r route) opened(t *testing.T, got any) any {
	t.Helper()
	if len(r) == 0 {
		return got
	}
	if r.last() == asObject {
		object, _ := got.(map[string]any)
		got = object["value"]
	}
	text, ok := got.(string)
	if !ok {
		t.Fatalf("the output is not a text")
	}
	return decode(t, []byte(text))
}

// An outcome is the result of a call for its caller, whatever the door.
type outcome struct {
	ok      bool
	output  json.RawMessage
	message string // of the failure, or of the error
	class   string // in the door's own term
	reason  string // the tool's own name for its failure
	events  []event
	ask     *tool.Ask      // the question that the caller has to answer before the call continues
	asked   string         // the question that was put to it
	lines   []string       // beside the protocol
	state   map[string]any // the result of all patches
}

type event struct {
	kind tool.Kind
	data map[string]any
}

func (o *outcome) String() string {
	return fmt.Sprintf("ok %v, class %q, reason %q, message %q, output %.300s, events %.300q, lines %.300q, state %v",
		o.ok, o.class, o.reason, o.message, o.output, o.events, o.lines, o.state)
}

// add adds an event for a caller that receives events unchanged.
func (o *outcome) add(t *testing.T, kind tool.Kind, data []byte) {
	t.Helper()
	d, ok := decode(t, data).(map[string]any)
	if !ok {
		t.Errorf("the data of a %s event is not an object: %s", kind, data)
	}
	o.events = append(o.events, event{kind, d})
	if kind == tool.KindStatePatch {
		o.state = merge(o.state, d)
	}
}

// merge is the contract's deep merge, for patches without null.
func merge(into, patch map[string]any) map[string]any {
	if into == nil {
		into = map[string]any{}
	}
	for name, value := range patch {
		inner, ok := value.(map[string]any)
		if under, both := into[name].(map[string]any); ok && both {
			value = merge(under, inner)
		}
		into[name] = value
	}
	return into
}

// decode decodes as strictly as the strictest of callers, and keeps numbers as they are written.
func decode(t *testing.T, raw []byte) any {
	t.Helper()
	v, err := strictjson.Decode(raw)
	if err != nil {
		t.Errorf("not JSON: %v: %.300q", err, raw)
	}
	return v
}

// read is decode for a document of a known type.
func read[T any](t *testing.T, raw []byte) (doc T) {
	t.Helper()
	if err := strictjson.Unmarshal(raw, &doc); err != nil {
		t.Errorf("not what the contract says: %v: %.300q", err, raw)
	}
	return doc
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	b, err := strictjson.Marshal(v)
	kit.Check(t, err)
	return b
}
