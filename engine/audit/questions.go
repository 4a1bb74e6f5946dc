package audit

import (
	"fmt"
	"time"

	"toolpost/tool"
)

// A Filter selects the calls that a question is about. The zero value selects all.
type Filter struct {
	Since   time.Time    `json:"since,omitzero" doc:"only calls that began since this time"`
	Until   time.Time    `json:"until,omitzero" doc:"only calls that began before this time"`
	Tool    string       `json:"tool,omitzero" doc:"only calls of this tool"`
	Source  string       `json:"source,omitzero" doc:"only calls of tools of this source"`
	Caller  string       `json:"caller,omitzero" doc:"only calls of this caller"`
	Door    string       `json:"door,omitzero" doc:"only calls that came in by this door"`
	Session string       `json:"session,omitzero" doc:"only calls of this session"`
	Run     string       `json:"run,omitzero" doc:"only calls of this run of an agent"`
	Parent  string       `json:"parent,omitzero" doc:"only calls made by the call with this id, such as a plan"`
	Outcome tool.Outcome `json:"outcome,omitzero" schema:"enum=ok|failed|asked|refused|error|lost" doc:"only calls with this outcome"`
	Code    tool.Code    `json:"code,omitzero" doc:"only calls that ended with this error code"`
	Kind    string       `json:"kind,omitzero" schema:"enum=call|operator|late|all" doc:"kind of rows: operator (read-only calls of Toolpost's own tools, such as those of the console), late (outcomes that came after the row of their call, which is the parent), call (all but operator) or all; default: call, or all if tool or source is given"`
	Limit   int          `json:"limit,omitzero" schema:"minimum=0" doc:"maximum number of rows; 0: all"`
	Counts  bool         `json:"-"` // only rows that are counted: late outcomes are of calls that have a row already
	After   int64        `json:"-"` // in a log: only rows after the one with this number; 0 means from its start
}

// The kinds of calls that a filter selects.
const (
	OnlyCalls = "call"
	AllKinds  = "all" // as does an empty Kind
)

// Counted returns the filter with its default kind for people.
func (f Filter) Counted() Filter {
	if f.Kind == "" && f.Tool == "" && f.Source == "" {
		f.Kind = OnlyCalls
	}
	return f
}

// fitsKind reports whether the filter selects calls of a kind.
func (f *Filter) fitsKind(kind string) bool {
	switch {
	case f.Counts && kind == tool.LateOutcome:
		return false
	case f.Kind == tool.LateOutcome:
		return kind == tool.LateOutcome
	}
	return f.Kind == "" || f.Kind == AllKinds || (f.Kind == tool.OperatorCall) == (kind == tool.OperatorCall)
}

// Fits reports whether the filter selects a call.
func (f *Filter) Fits(r *tool.Record) bool {
	either := func(want, is string) bool { return want == "" || want == is }
	return f.fitsKind(r.Kind) && either(f.Tool, r.Tool) && either(f.Caller, r.Caller) && either(f.Session, r.Session) && either(f.Run, r.Run) &&
		either(f.Parent, r.Parent) && either(f.Source, r.Source) && either(f.Door, r.Door) &&
		either(string(f.Outcome), string(r.Outcome)) && either(string(f.Code), string(r.Code)) &&
		(f.Since.IsZero() || !r.Time.Before(f.Since)) && (f.Until.IsZero() || r.Time.Before(f.Until))
}

// A Use is how often something was called, with what success, and how long that took.
type Use struct {
	Name     string        `json:"name"` // of the tool, or of whatever the calls are grouped by
	Calls    int64         `json:"calls"`
	OK       int64         `json:"ok"`
	Failed   int64         `json:"failed"`
	Refused  int64         `json:"refused"`
	Errors   int64         `json:"errors"` // including lost calls
	Mean     time.Duration `json:"mean_ns"`
	Longest  time.Duration `json:"longest_ns"`
	BytesIn  int64         `json:"bytes_in"`
	BytesOut int64         `json:"bytes_out"`
}

// A Group is a property by which calls are grouped.
type Group string

// The groups.
const (
	ByTool   Group = "tool"
	ByCaller Group = "caller"
	ByDoor   Group = "door"
	BySource Group = "source"
)

// A Latency is how long the calls of a tool take. Its quantiles are accurate to within an eighth.
type Latency struct {
	Tool    string        `json:"tool"`
	Calls   int64         `json:"calls"`
	Mean    time.Duration `json:"mean_ns"`
	P50     time.Duration `json:"p50_ns"`
	P95     time.Duration `json:"p95_ns"`
	P99     time.Duration `json:"p99_ns"`
	Longest time.Duration `json:"longest_ns"`
}

// A Failure is how often a tool ended in one way other than success.
type Failure struct {
	Tool    string       `json:"tool"`
	Outcome tool.Outcome `json:"outcome"`
	Code    tool.Code    `json:"code"`
	Calls   int64        `json:"calls"`
	Of      int64        `json:"of"` // calls of the tool
	Rate    float64      `json:"rate"`
}

// A Path is how often calls accessed a file.
type Path struct {
	Path   string    `json:"path"`
	Reads  int64     `json:"reads"`
	Writes int64     `json:"writes"`
	Last   time.Time `json:"last"` // the day
}

// A Moment is one step of a history.
type Moment struct {
	Start  time.Time `json:"start"`
	Calls  int64     `json:"calls"`
	Errors int64     `json:"errors"` // everything but a success
}

// A Point is a place in the chain. A copy that is kept elsewhere can be checked later: a log that no longer has it is
// not the same log.
type Point struct {
	Seq  int64  `json:"seq"`
	Hash string `json:"hash"`
}

// A Finding is one fault of the log.
type Finding struct {
	Seq  int64  `json:"seq,omitempty"` // the row that it is about; 0 if none
	What string `json:"what"`
}

// A Report is the result of checking the whole log.
type Report struct {
	Rows     int64     `json:"rows"`
	Cut      Point     `json:"cut"` // rows up to here were removed because they were too old
	Head     Point     `json:"head"`
	Signed   bool      `json:"signed"` // with the key of this program, at least a lane
	Findings []Finding `json:"findings"`
	Receipts int64     `json:"receipts,omitzero"` // of nodes of a fleet, as many as there are: each was checked
	Lanes    []Lane    `json:"lanes"`
	Anchor   Point     `json:"anchor,omitzero"` // the last one, if there are any
}

// A Lane is the chain of the programs that have one key.
type Lane struct {
	Lane int64  `json:"lane"`
	Key  string `json:"key"`           // the beginning of the digest of its public key
	Own  bool   `json:"own,omitempty"` // the program that checks it has its key
	Rows int64  `json:"rows"`
	Head Point  `json:"head"`
	// Closed: its programs have recorded nothing of late, and another one has closed it at its last row, or has removed its rows.
	Closed bool `json:"closed,omitempty"`
}

// ParsePoint parses the output of Point.String.
func ParsePoint(text string) (Point, error) {
	var p Point
	var rest string
	if n, err := fmt.Sscanf(text, "%d:%64s%s", &p.Seq, &p.Hash, &rest); n != 2 || err == nil || len(p.Hash) != 64 {
		return Point{}, tool.Errorf(tool.CodeInvalidInput,
			"%q is not a point of the log; expected NUMBER:HASH, as verify prints it", text)
	}
	return p, nil
}

// String returns the point as one line.
func (p Point) String() string { return fmt.Sprintf("%d:%s", p.Seq, p.Hash) }
