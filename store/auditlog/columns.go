package auditlog

import (
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"toolpost/engine/audit"
	"toolpost/store/database"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// A layout defines how the tables of the log store the columns of a record. What many calls have in common is a kind, a
// row of audit_kind that their rows refer to; the rest is in the row of the call, in columns of its own or in its
// detail.
type layout struct {
	all, inKind, inDetail audit.Table
	inRow                 audit.Table // numbers first
	numbers               int         // how many of them are numbers
	texts, raws           audit.Table // of all columns; raws hold foreign JSON

	rowNames, kindNames string // as listed in SQL
	findKind, addKind   string
	addRows             string
}

func newLayout(columns audit.Table) *layout {
	l := &layout{all: columns, inKind: columns.In(audit.Shared), inDetail: columns.In(audit.Detail)}
	var texts audit.Table
	for _, c := range columns.In(audit.Row) {
		if isText(&c) {
			texts = append(texts, c)
		} else {
			l.inRow = append(l.inRow, c)
		}
	}
	for _, c := range columns {
		switch c.Value(new(tool.Record)).(type) {
		case *string:
			l.texts = append(l.texts, c)
		case *json.RawMessage:
			l.raws = append(l.raws, c)
		}
	}
	l.numbers = len(l.inRow)
	l.inRow = append(l.inRow, texts...)
	l.rowNames, l.kindNames = names(l.inRow), names(l.inKind)
	l.findKind = `SELECT id FROM audit_kind WHERE ` + strings.ReplaceAll(l.kindNames, ", ", " = ? AND ") +
		` = ? AND ` + inLane + ` LIMIT 1`
	l.addKind = `INSERT INTO audit_kind (id, ` + l.kindNames + `) VALUES (?` + strings.Repeat(", ?", len(l.inKind)) +
		`)`
	l.addRows = `INSERT INTO audit (` + l.rowNames + `, kind, detail, hash) VALUES `
	return l
}

// isText reports whether a column is a text in SQL. The others are numbers.
func isText(c *audit.Column) bool {
	_, ok := c.Value(new(tool.Record)).(*string)
	return ok
}

// names lists columns as in SQL.
func names(columns audit.Table) string {
	var list []string
	for i := range columns {
		list = append(list, columns[i].StoredAs())
	}
	return strings.Join(list, ", ")
}

// number returns the value of a column that is not a text. Times and durations are microseconds.
func number(value any) int64 {
	switch v := value.(type) {
	case *int64:
		return *v
	case *int:
		return int64(*v)
	case *bool:
		return asNumber(*v)
	case *time.Time:
		return database.Micros(*v)
	case *time.Duration:
		return v.Microseconds()
	}
	panic(fmt.Sprintf("a column of the audit log cannot be a %T", value)) // a test checks every column
}

func asNumber(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// appendValues appends the SQL values of columns.
func appendValues(args []any, columns audit.Table, r *tool.Record) []any {
	for i := range columns {
		if text, ok := columns[i].Value(r).(*string); ok {
			args = append(args, *text)
		} else {
			args = append(args, number(columns[i].Value(r)))
		}
	}
	return args
}

// into returns the scan destinations of columns, followed by more.
func into(columns audit.Table, r *tool.Record, more ...any) []any {
	dest := make([]any, 0, len(columns)+len(more))
	for i := range columns {
		switch v := columns[i].Value(r).(type) {
		case *time.Time:
			dest = append(dest, (*database.MicroTime)(v))
		case *time.Duration:
			dest = append(dest, (*microDuration)(v))
		default:
			dest = append(dest, v)
		}
	}
	return append(dest, more...)
}

// exactly makes a scan refuse values of other types than their columns have. SQLite stores them, and a number in bytes would have
// the hash of the number, but no query would find it.
func exactly(dest []any) []any {
	for i, d := range dest {
		dest[i] = exact{d}
	}
	return dest
}

type exact struct{ dest any }

// Scan implements sql.Scanner.
func (e exact) Scan(value any) error {
	n, number := value.(int64)
	text, ok := value.(string)
	switch d := e.dest.(type) {
	case sql.Scanner:
		return d.Scan(value)
	case *string:
		*d = text
	case *int64:
		*d, ok = n, number
	case *int:
		*d, ok = int(n), number && int64(int(n)) == n
	case *bool:
		*d, ok = n == 1, number && n>>1 == 0
	}
	if !ok {
		return fmt.Errorf("a value has another type than its column: %T", value)
	}
	return nil
}

type microDuration time.Duration

// Scan implements sql.Scanner. A number that is too large for a duration would silently become another one.
func (d *microDuration) Scan(value any) error {
	n, ok := value.(int64)
	if !ok || n > math.MaxInt64/1000 || n < math.MinInt64/1000 {
		return fmt.Errorf("a duration cannot be %v", value)
	}
	*d = microDuration(n * 1000)
	return nil
}

var (
	_ sql.Scanner = exact{}
	_ sql.Scanner = (*microDuration)(nil)
)

// detailOf writes the document of a row. Empty values are left out.
func (l *layout) detailOf(r *tool.Record) string {
	b := append(make([]byte, 0, 512), '{')
	for i := range l.inDetail {
		if c := &l.inDetail[i]; !c.Empty(r) {
			b = c.AppendJSON(strictjson.AppendName(b, c.StoredAs()), r)
		}
	}
	return string(append(b, '}'))
}

// appendKind writes the content of a kind, unambiguously: the texts of the first version, each after its length, and
// then the later columns.
func (l *layout) appendKind(b []byte, r *tool.Record) []byte {
	for i := range l.inKind {
		if c := &l.inKind[i]; !c.Later() {
			b = appendSized(b, *c.Value(r).(*string))
		}
	}
	return appendLater(b, l.inKind, r)
}

func appendSized(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// appendLater writes the columns of later versions, by name, if they are not empty. So a row from before a column
// existed keeps its hash, and a row whose column was emptied or filled since then has another.
func appendLater(b []byte, columns audit.Table, r *tool.Record) []byte {
	for i := range columns {
		c := &columns[i]
		if !c.Later() || c.Empty(r) {
			continue
		}
		b = appendSized(b, c.Name)
		if text, ok := c.Value(r).(*string); ok {
			b = appendSized(b, *text)
		} else {
			b = binary.BigEndian.AppendUint64(b, uint64(number(c.Value(r))))
		}
	}
	return b
}

// chain returns the hash of a row: of the hash before it, its kind, its numbers, the lengths of its texts, its texts
// and its detail, and, around that, of the later columns. The first word distinguishes the two kinds of hashes.
func (l *layout) chain(before []byte, kind [sha256.Size]byte, r *tool.Record, detail string) [sha256.Size]byte {
	b := append(append(make([]byte, 0, 512), before...), kind[:]...)
	for i := range l.inRow {
		c := &l.inRow[i]
		switch {
		case c.Later():
		case i < l.numbers:
			b = binary.BigEndian.AppendUint64(b, uint64(number(c.Value(r))))
		default:
			b = binary.BigEndian.AppendUint64(b, uint64(len(*c.Value(r).(*string))))
		}
	}
	for i := l.numbers; i < len(l.inRow); i++ {
		if c := &l.inRow[i]; !c.Later() {
			b = append(b, *c.Value(r).(*string)...)
		}
	}
	sum := sha256.Sum256(append(b, detail...))
	if later := appendLater(nil, l.inRow, r); later != nil {
		sum = sha256.Sum256(append(append([]byte("toolpost audit columns"), sum[:]...), later...))
	}
	return sum
}

// The limits of texts that callers choose, in bytes, and of what a call touches.
const (
	maxPath    = 512
	maxTouches = 32
)

// bound reduces a record to what is stored: text that every database accepts, and not too long. Values that it shares
// with others are not modified. Bounding a record again, if it could not be written, changes nothing.
func (l *layout) bound(r *tool.Record) {
	for i := range l.texts {
		if text := l.texts[i].Value(r).(*string); *text != "" {
			*text = database.Plain(*text, database.MaxName)
		}
	}
	room, was := maxTouches, r.Touches
	r.Touches = tool.Touches{Reads: some(was.Reads, &room, &r.Omitted), Writes: some(was.Writes, &room, &r.Omitted)}
	for _, argv := range was.Commands {
		if room--; room < 0 {
			r.Omitted++
			continue
		}
		r.Touches.Commands = append(r.Touches.Commands, some(argv, new(maxTouches), &r.Omitted))
	}
}

// some returns as many texts of a list as there is room for, and counts the others.
func some(list []string, room, omitted *int) (kept []string) {
	if len(list) <= *room && !slices.ContainsFunc(list, func(p string) bool { return database.Plain(p, maxPath) != p }) {
		*room -= len(list) // nearly always the case
		return list
	}
	for _, p := range list {
		if *room--; *room < 0 {
			*omitted++
			continue
		}
		kept = append(kept, database.Plain(p, maxPath))
	}
	return kept
}

// create returns the SQL of a column in a new table, and, for a later column, in a table that already has rows.
func create(c *audit.Column) string {
	kind, empty := "BIGINT", "0"
	if isText(c) {
		kind, empty = "TEXT", "''"
	}
	switch {
	case c.Later():
		return c.StoredAs() + ` ` + kind + ` NOT NULL DEFAULT ` + empty
	case c.StoredAs() == "seq":
		return c.StoredAs() + ` ` + kind + ` PRIMARY KEY`
	}
	return c.StoredAs() + ` ` + kind + ` NOT NULL`
}

// tables returns the first step of the log's tables.
func (l *layout) tables() []string {
	columns := func(of audit.Table) (text string) {
		for i := range of {
			if c := &of[i]; !c.Later() {
				text += create(c) + ", "
			}
		}
		return strings.TrimSuffix(text, ", ")
	}
	return []string{
		// The common part of calls. A row of the log refers to one of these.
		`CREATE TABLE audit_kind (id BIGINT PRIMARY KEY, ` + columns(l.inKind) + `)`,
		`CREATE INDEX audit_kind_tool ON audit_kind (tool, caller)`,
		// One row for each call. hash covers the row, its kind, and the hash before it.
		`CREATE TABLE audit (` + columns(l.inRow) + `, kind BIGINT NOT NULL, detail TEXT NOT NULL, hash BLOB NOT NULL)`,
		`CREATE INDEX audit_session ON audit (session, seq) WHERE session <> ''`,
		l.view(1),
	}
}

// view returns the log for people with a SQL prompt, as of a version.
func (l *layout) view(version int) string {
	text := `CREATE VIEW calls AS SELECT `
	for i := range l.all {
		switch c := &l.all[i]; {
		case c.Since > version || c.Part == audit.Detail:
		case c.Part == audit.Shared:
			text += `k.` + c.StoredAs() + `, `
		default:
			text += `a.` + c.StoredAs() + `, `
		}
	}
	return text + `a.detail FROM audit a JOIN audit_kind k ON k.id = a.kind`
}

// Grow adds to the steps the tables of the log, and what later columns need, before the other statements of a step, which may refer to them. A
// column in the detail needs no table, but a version all the same: an earlier program could not read it.
func (l *layout) Grow(steps [][]string) [][]string {
	tables := map[audit.Part]string{audit.Shared: "audit_kind", audit.Row: "audit"}
	steps[0] = slices.Concat(l.tables(), steps[0])
	columns := map[int][]string{}
	for i := range l.all {
		c := &l.all[i]
		for len(steps) < c.Since {
			steps = append(steps, nil)
		}
		if table := tables[c.Part]; table != "" && c.Later() {
			columns[c.Since] = append(columns[c.Since], `ALTER TABLE `+table+` ADD COLUMN `+create(c))
		}
	}
	for version, added := range columns {
		steps[version-1] = slices.Concat(added, steps[version-1], []string{`DROP VIEW calls`, l.view(version)})
	}
	return steps
}
