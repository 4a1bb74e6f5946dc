package audit

import (
	"bytes"
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"toolpost/tool"
	"toolpost/wire/regex"
	"toolpost/wire/strictjson"
)

// A Column is one field of a record. Columns lists them all, once. The tables of a store, the JSON and the CSV of a
// record, its redaction and the hashes of the log follow from the list, so that no field can be in one of them and
// missing from another.
//
// To add a column, give tool.Record a field and the end of the list an entry with the next version of the store as its
// Since. Existing stores get the column when they are next opened, and their rows verify as before: a row in which a
// later column is empty has the hash that it had without the column.
type Column struct {
	Name   string // in JSON and CSV
	Stored string // in the store, if it differs
	Object string // the JSON object that contains it; empty means the record itself
	Part   Part
	Since  int  // the version of the store that it came with; 0 means the first
	Always bool // it is in JSON even if it is empty
	Ours   bool // only this program writes it, so it cannot contain a secret and is not redacted
	// Value points to the value. It is a string if the column is shared; in a row also an int, int64, bool, time.Time or
	// time.Duration; in the detail also a json.RawMessage, a []string or a [][]string.
	Value func(*tool.Record) any
}

// A Part is the place where a store keeps a column.
type Part int

// The parts. Values that many calls have in common are kept once, which makes a row half as long, and lets questions
// about many calls read few rows. Values that no question filters by or sums up are in one JSON document.
const (
	Detail Part = iota // in the document of the call's row
	Shared             // in a row that calls share
	Row                // in the call's row
)

// A Table is a list of columns.
type Table []Column

// Columns lists the columns of a record. Its order is that of CSV, in which a column keeps its place for ever, and,
// within the shared ones and those of the row, that of the hashes.
func Columns() Table {
	return Table{
		{Name: "seq", Part: Row, Value: func(r *tool.Record) any { return &r.Seq }},
		{Name: "time", Stored: "at", Part: Row, Always: true, Value: func(r *tool.Record) any { return &r.Time }},
		{Name: "call", Always: true, Value: func(r *tool.Record) any { return &r.Call }},
		{Name: "trace", Value: func(r *tool.Record) any { return &r.Trace }},
		{Name: "tool", Part: Shared, Always: true, Value: func(r *tool.Record) any { return &r.Tool }},
		{Name: "asked", Value: func(r *tool.Record) any { return &r.Asked }},
		{Name: "source", Part: Shared, Value: func(r *tool.Record) any { return &r.Source }},
		{Name: "protocol", Part: Shared, Value: func(r *tool.Record) any { return &r.Protocol }},
		{Name: "tier", Value: func(r *tool.Record) any { return &r.Tier }},
		{Name: "door", Part: Shared, Always: true, Value: func(r *tool.Record) any { return &r.Door }},
		{Name: "caller", Part: Shared, Always: true, Value: func(r *tool.Record) any { return &r.Caller }},
		{Name: "session", Part: Row, Value: func(r *tool.Record) any { return &r.Session }},
		{Name: "run", Value: func(r *tool.Record) any { return &r.Run }},
		{
			Name: "digest", Stored: "sha256", Always: true, Ours: true,
			Value: func(r *tool.Record) any { return &r.Digest },
		},
		{Name: "shape", Value: func(r *tool.Record) any { return &r.Shape }},
		{Name: "reads", Object: "touches", Value: func(r *tool.Record) any { return &r.Touches.Reads }},
		{Name: "writes", Object: "touches", Value: func(r *tool.Record) any { return &r.Touches.Writes }},
		{Name: "commands", Object: "touches", Value: func(r *tool.Record) any { return &r.Touches.Commands }},
		{Name: "decision", Part: Shared, Ours: true, Value: func(r *tool.Record) any { return &r.Decision }},
		{Name: "rule", Part: Shared, Value: func(r *tool.Record) any { return &r.Rule }},
		{Name: "lease", Ours: true, Value: func(r *tool.Record) any { return &r.Lease }},
		{Name: "key", Value: func(r *tool.Record) any { return &r.Key }},
		{Name: "replay", Value: func(r *tool.Record) any { return &r.Replay }},
		{Name: "cached", Value: func(r *tool.Record) any { return &r.Cached }},
		{Name: "enforcement", Part: Shared, Value: func(r *tool.Record) any { return &r.Walls }},
		{
			Name: "outcome", Part: Shared, Always: true, Ours: true,
			Value: func(r *tool.Record) any { return (*string)(&r.Outcome) },
		},
		{Name: "code", Part: Shared, Value: func(r *tool.Record) any { return (*string)(&r.Code) }},
		{Name: "reason", Value: func(r *tool.Record) any { return &r.Reason }},
		{
			Name: "duration_ms", Stored: "took", Part: Row, Always: true,
			Value: func(r *tool.Record) any { return &r.Duration },
		},
		{Name: "bytes_in", Part: Row, Always: true, Value: func(r *tool.Record) any { return &r.In }},
		{Name: "bytes_out", Part: Row, Always: true, Value: func(r *tool.Record) any { return &r.Out }},
		{Name: "args", Value: func(r *tool.Record) any { return &r.Args }},
		{Name: "omitted", Value: func(r *tool.Record) any { return &r.Omitted }},
		{Name: "dry_run", Value: func(r *tool.Record) any { return &r.DryRun }},
		{Name: "lost", Value: func(r *tool.Record) any { return &r.Lost }},
		{Name: "parent", Part: Row, Since: 7, Value: func(r *tool.Record) any { return &r.Parent }},
		{Name: "approval", Since: 8, Ours: true, Value: func(r *tool.Record) any { return &r.Approval.ID }},
		{Name: "approval_state", Since: 8, Ours: true, Value: func(r *tool.Record) any { return &r.Approval.State }},
		{Name: "approval_by", Since: 8, Value: func(r *tool.Record) any { return &r.Approval.By }},
		{Name: "approval_at", Since: 8, Value: func(r *tool.Record) any { return &r.Approval.At }},
		{Name: "approval_reason", Since: 8, Value: func(r *tool.Record) any { return &r.Approval.Reason }},
		{Name: "kind", Stored: "class", Part: Shared, Since: 9, Ours: true, Value: func(r *tool.Record) any { return &r.Kind }},
		{Name: "lane", Part: Row, Since: 10, Value: func(r *tool.Record) any { return &r.Lane }},
		{Name: "number", Part: Row, Since: 10, Value: func(r *tool.Record) any { return &r.Number }},
		{Name: "node", Since: 12, Value: func(r *tool.Record) any { return &r.Node }},
		{Name: "receipt", Since: 14, Value: func(r *tool.Record) any { return &r.Receipt }},
		{Name: "definition", Since: 14, Ours: true, Value: func(r *tool.Record) any { return &r.Definition }},
		{Name: "connections", Since: 17, Value: func(r *tool.Record) any { return &r.Connections }},
	}
}

// StoredAs returns the name of the column in a store.
func (c *Column) StoredAs() string { return cmp.Or(c.Stored, c.Name) }

// Later reports whether the column was added after the first version of the store.
func (c *Column) Later() bool { return c.Since > 1 }

// Empty reports whether the column of a record is empty.
func (c *Column) Empty(r *tool.Record) bool {
	switch v := c.Value(r).(type) {
	case *string:
		return *v == ""
	case *int:
		return *v == 0
	case *int64:
		return *v == 0
	case *bool:
		return !*v
	case *json.RawMessage:
		return len(*v) == 0
	case *[]string:
		return len(*v) == 0
	case *[][]string:
		return len(*v) == 0
	case *time.Time:
		return v.IsZero()
	case *time.Duration:
		return *v == 0
	}
	return false
}

// AppendJSON appends the value as JSON. It runs for every call, and takes a fifth of the time of a general encoder.
// Texts must be valid UTF-8, and raw JSON must have been checked.
func (c *Column) AppendJSON(b []byte, r *tool.Record) []byte {
	switch v := c.Value(r).(type) {
	case *string:
		return strictjson.AppendString(b, *v)
	case *int:
		return strconv.AppendInt(b, int64(*v), 10)
	case *int64:
		return strconv.AppendInt(b, *v, 10)
	case *bool:
		return strconv.AppendBool(b, *v)
	case *json.RawMessage:
		return append(b, *v...)
	case *[]string:
		return strictjson.AppendList(b, *v, strictjson.AppendString[string])
	case *[][]string:
		return strictjson.AppendList(b, *v, func(b []byte, argv []string) []byte {
			return strictjson.AppendList(b, argv, strictjson.AppendString[string])
		})
	case *time.Time:
		return append(v.AppendFormat(append(b, '"'), time.RFC3339Nano), '"')
	case *time.Duration:
		return strconv.AppendFloat(b, millis(*v), 'f', -1, 64)
	}
	return append(b, "null"...)
}

// ReadJSON sets the value from the output of AppendJSON.
func (c *Column) ReadJSON(r *tool.Record, value []byte) error {
	switch v := c.Value(r).(type) {
	case *time.Duration:
		var ms float64
		err := strictjson.Unmarshal(value, &ms)
		*v = time.Duration(math.Round(ms * float64(time.Millisecond)))
		return err
	case *json.RawMessage: // the value has been checked already
		*v = bytes.Clone(value)
		return nil
	default:
		return strictjson.Unmarshal(value, v)
	}
}

// text returns the value as a cell of CSV.
func (c *Column) text(r *tool.Record) string {
	switch v := c.Value(r).(type) {
	case *string:
		return *v
	case *[]string:
		return strings.Join(*v, "\n")
	case *time.Time:
		return v.Format(time.RFC3339Nano)
	case *time.Duration:
		return strconv.FormatFloat(millis(*v), 'f', 3, 64)
	case *json.RawMessage, *[][]string:
		if c.Empty(r) {
			return ""
		}
	}
	return string(c.AppendJSON(nil, r))
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// In returns the columns of one part.
func (t Table) In(p Part) (columns Table) {
	for _, c := range t {
		if c.Part == p {
			columns = append(columns, c)
		}
	}
	return columns
}

// Names returns the names of the columns: the first line of CSV.
func (t Table) Names() (names []string) {
	for i := range t {
		names = append(names, t[i].Name)
	}
	return names
}

// Cells returns a record as a line of CSV.
func (t Table) Cells(r *tool.Record) (cells []string) {
	for i := range t {
		cells = append(cells, t[i].text(r))
	}
	return cells
}

// Marshal writes a record as JSON.
func (t Table) Marshal(r *tool.Record) (json.RawMessage, error) {
	if err := t.Check(r); err != nil {
		return nil, err
	}
	b, object := []byte{'{'}, ""
	for i := range t {
		c := &t[i]
		if !c.Always && c.Empty(r) {
			continue
		}
		if c.Object != object {
			if object != "" {
				b = append(b, '}')
			}
			if object = c.Object; object != "" {
				b = append(strictjson.AppendName(b, object), '{')
			}
		}
		b = c.AppendJSON(strictjson.AppendName(b, c.Name), r)
	}
	return append(b, '}'), nil // the last column is in no object
}

// Check refuses a record with invalid raw JSON.
func (t Table) Check(r *tool.Record) error {
	for i := range t {
		raw, ok := t[i].Value(r).(*json.RawMessage)
		if !ok || len(*raw) == 0 {
			continue
		}
		if err := strictjson.Check(*raw); err != nil {
			return tool.Errorf(tool.CodeInternal, "the record of a call cannot be written as JSON: its %s: %w",
				t[i].Name, err)
		}
	}
	return nil
}

// Unmarshal parses the output of Marshal, or a part of it under the names of the store.
func (t Table) Unmarshal(b []byte, r *tool.Record) error {
	return strictjson.Object(b, func(name, value []byte) error {
		known := false
		for i := range t {
			c := &t[i]
			if string(name) == c.Name || string(name) == c.StoredAs() {
				return c.ReadJSON(r, value)
			}
			known = known || len(name) > 0 && string(name) == c.Object
		}
		if !known {
			return tool.Errorf(tool.CodeInternal, "%.40q is not a column of a record", name)
		}
		return t.Unmarshal(value, r)
	})
}

// The limits of what is kept of arguments.
const (
	maxShape  = 1 << 10 // bytes of a shape; a longer one is cut
	maxDepth  = 4
	maxFields = 32
	maxArgs   = 4 << 10
)

// shapeOf returns arguments with the kind of each value in its place: {"path":"string"}. The caller chooses the names,
// so both their number and their length are bounded. Arguments that are not an object are reduced to their kind.
func shapeOf(args json.RawMessage) json.RawMessage {
	if len(args) == 0 {
		return nil
	}
	shape, err := appendShape(make([]byte, 0, 96), args, maxDepth)
	if err != nil || len(shape) > maxShape {
		return strictjson.Quote(strictjson.KindOf(args))
	}
	return shape
}

func appendShape(b []byte, value json.RawMessage, depth int) ([]byte, error) {
	kind := strictjson.KindOf(value)
	if kind != "object" || depth == 0 {
		return strictjson.AppendString(b, kind), nil
	}
	b = append(b, '{')
	n := 0
	err := strictjson.Object(value, func(name, value []byte) (err error) {
		if n++; n > maxFields {
			return nil
		}
		if n > 1 {
			b = append(b, ',')
		}
		b, err = appendShape(append(strictjson.AppendString(b, name), ':'), value, depth-1)
		return err
	})
	return append(b, '}'), err
}

// Redacted returns arguments without the values whose names suggest secrets, or are among names. Arguments that are not
// an object are left out.
func Redacted(args json.RawMessage, names []string) json.RawMessage {
	speak := map[string]bool{} // most documents repeat few names many times
	b, err := strictjson.Replace(args, func(name []byte) []byte {
		secret, known := speak[string(name)]
		if !known {
			secret = SpeaksOfSecrets(string(name), names)
			speak[string(name)] = secret
		}
		if secret {
			return []byte(`"[redacted]"`)
		}
		return nil
	})
	if err != nil {
		return nil
	}
	return b
}

// SpeaksOfSecrets reports whether a name, such as that of an argument, suggests a secret or is among names.
func SpeaksOfSecrets(name string, names []string) bool {
	if slices.Contains(names, name) {
		return true
	}
	plain := strings.ToLower(strings.ReplaceAll(strings.ReplaceAll(name, "-", ""), "_", ""))
	return slices.ContainsFunc([]string{
		"password", "passwd", "passphrase", "secret", "token", "lease", "apikey", "authorization", "credential",
		"privatekey", "cookie",
	}, func(word string) bool { return strings.Contains(plain, word) }) || shortSecret().MatchString(name)
}

// shortSecret finds short words for secrets only as whole words, as in db-pass, dbPass, DBPass and DB_PASS: they are
// also part of other words, such as bypass and spin.
var shortSecret = regex.Lazy(`(?:^|[^\pL\d])(?:pwd|pass|pin|creds|bearer)\d*(?:[^\p{Ll}\d]|$)` +
	`|(?:Pwd|Pass|Pin|Creds|Bearer)\d*(?:[^\p{Ll}\d]|$)` +
	`|(?:^|[^\p{Lu}\d])(?:PWD|PASS|PIN|CREDS|BEARER)\d*(?:[^\pL\d]|\p{Lu}\p{Ll}|$)`)
