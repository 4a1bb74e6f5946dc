package storetest

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"toolpost/engine/audit"
	"toolpost/store"
	"toolpost/tool"
)

// full is a record with everything in it.
func full() *tool.Record {
	return &tool.Record{
		Time: time.Date(2026, 11, 15, 1, 2, 3, 4000, time.UTC), Call: "c1", Trace: "t1", Tool: "readFile",
		Asked: "file.read", Source: "files", Protocol: "builtin", Tier: 1, Door: "http", Caller: "ada", Session: "s1",
		Run: "r1", Shape: []byte(`{"path":"string"}`), Digest: strings.Repeat("ab", 32), Args: []byte(`{"path":"a"}`),
		Touches:  tool.Touches{Reads: []string{"/a"}, Writes: []string{"/b"}, Commands: [][]string{{"ls", "-l"}}},
		Decision: "allow", Rule: "default", Lease: "l1", Key: "k1", Replay: true, Cached: true, DryRun: true,
		Walls: "no_network", Outcome: tool.OutcomeFailed, Code: tool.CodeToolError, Reason: "ValueError",
		Duration: 1234 * time.Microsecond, In: 12, Out: 34, Lost: 5,
	}
}

func logOf(t testing.TB, db *store.DB, f audit.Filter) (records []*tool.Record) {
	t.Helper()
	err := db.Audit().Log(t.Context(), f, false, func(r *tool.Record) error {
		records = append(records, r)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return records
}

func add(t testing.TB, db *store.DB, records ...*tool.Record) {
	t.Helper()
	for _, r := range records {
		if err := db.Audit().Append(t.Context(), r, false); err != nil {
			t.Fatal(err)
		}
	}
}

func recordComesBack(t *testing.T, k Kind) {
	address := k.New(t)
	db := k.open(t, address)
	want := full()
	add(t, db, want)
	got := logOf(t, k.open(t, address), audit.Filter{}) // by another program
	want.Seq = 1
	if len(got) != 1 || fmt.Sprintf("%+v", *got[0]) != fmt.Sprintf("%+v", *want) {
		t.Errorf("got  %+v\nwant %+v", *got[0], *want)
	}
	sound(t, db)
}

func hostileText(t *testing.T, k Kind) {
	db := k.fresh(t)
	for _, evil := range []string{"a\x00b", "\xff\xfe", strings.Repeat("ä", 5000), "'; DROP TABLE audit; --", "?", "$1",
		"\u202e", ""} {
		r := full()
		r.Tool, r.Caller, r.Session, r.Rule, r.Key, r.Asked = evil, evil, evil, evil, evil, evil
		r.Touches = tool.Touches{Reads: slices.Repeat([]string{evil}, 100), Commands: [][]string{{evil, evil}}}
		r.Outcome, r.Code = tool.Outcome(evil), tool.Code(evil)
		add(t, db, r)
	}
	sound(t, db)
	for _, r := range logOf(t, db, audit.Filter{}) {
		if strings.ContainsRune(r.Caller+r.Session+r.Key, 0) || len(r.Key) > 256 ||
			len(r.Touches.Reads)+len(r.Touches.Commands) > 32 || r.Omitted == 0 {
			t.Errorf("row %d: %d bytes of a key, %d paths", r.Seq, len(r.Key), len(r.Touches.Reads))
		}
	}
}

// random makes a record of some day around a fixed one.
func random(rng *rand.Rand) *tool.Record {
	r := full()
	pick := func(of ...string) string { return of[rng.IntN(len(of))] }
	r.Time = time.Date(2026, 11, 10, 0, 0, 0, 0,
		time.UTC).Add(time.Duration(rng.Int64N(int64(4*24*time.Hour)/1000)) * 1000)
	if rng.IntN(8) == 0 { // exactly at the start of a day
		r.Time = r.Time.Truncate(24 * time.Hour)
	}
	r.Tool, r.Caller, r.Session = pick("readFile", "writeFile", "grepCode"), pick("ada", "bob"), pick("", "s1", "s2")
	r.Door, r.Source = pick("http", "cli"), pick("files", "code")
	r.Call, r.Duration, r.In, r.Out = tool.NewID(), time.Duration(rng.Int64N(1<<uint(rng.IntN(30))))*time.Microsecond, rng.Int64N(100), rng.Int64N(1000)
	r.Touches = tool.Touches{Reads: []string{pick("/a", "/b", "/c")}}
	if rng.IntN(4) == 0 {
		r.Touches.Writes = []string{pick("/a", "/d"), "/e"}
	}
	switch r.Outcome = tool.Outcomes()[rng.IntN(len(tool.Outcomes()))]; r.Outcome {
	case tool.OutcomeOK, tool.OutcomeAsked:
		r.Code = ""
	default:
		r.Code = tool.Code(pick("timeout", "access_denied"))
	}
	return r
}

func oneChain(t *testing.T, k Kind) {
	address := k.New(t)
	handles := []*store.DB{k.open(t, address), k.open(t, address)}
	const callers, each = 8, 20
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(i)))
			for n := range each {
				if err := handles[i%2].Audit().Append(context.Background(), random(rng), n%5 == 0); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if r := sound(t, handles[0]); r.Rows != callers*each || r.Head.Seq != callers*each || !r.Signed {
		t.Errorf("%+v", r)
	}
}

// keep is what a filter lets through, as a person would say it.
func keep(f audit.Filter, r *tool.Record) bool {
	return (f.Since.IsZero() || !r.Time.Before(f.Since)) && (f.Until.IsZero() || r.Time.Before(f.Until)) &&
		(f.Tool == "" || r.Tool == f.Tool) && (f.Caller == "" || r.Caller == f.Caller) &&
		(f.Session == "" || r.Session == f.Session) && (f.Outcome == "" || r.Outcome == f.Outcome)
}

func questions(t *testing.T, k Kind) {
	db := k.fresh(t)
	rng := rand.New(rand.NewPCG(3, 4))
	var all []*tool.Record
	for range Rounds(80, 300, 1000) {
		r := random(rng)
		add(t, db, r)
		all = append(all, r)
	}
	for range Rounds(8, 60, 300) {
		ask(t, db, all, randomFilter(rng))
	}
	if u := must[[]audit.Use](t)(db.Audit().Uses(t.Context(), audit.Filter{Limit: 2}, audit.ByTool)); len(u) != 2 ||
		u[0].Calls < u[1].Calls {
		t.Errorf("the two most used: %+v", u)
	}
	if u := must[[]audit.Use](t)(db.Audit().Uses(t.Context(), audit.Filter{}, audit.ByCaller)); len(u) != 2 ||
		u[0].Name != "ada" && u[0].Name != "bob" {
		t.Errorf("by caller: %+v", u)
	}
	if got := logOf(t, db, audit.Filter{Tool: "nosuch"}); got != nil {
		t.Errorf("a tool that nobody called: %v", got)
	}
	newest := int64(0)
	err := db.Audit().Log(t.Context(), audit.Filter{Limit: 1, Caller: "ada"}, true, func(r *tool.Record) error {
		newest = max(newest, r.Seq)
		return nil
	})
	if err != nil || newest < int64(len(all)-20) {
		t.Errorf("the newest of ada's: %d, %v", newest, err)
	}
}

func randomFilter(rng *rand.Rand) audit.Filter {
	var f audit.Filter
	some := func(of ...string) string {
		if rng.IntN(3) > 0 {
			return ""
		}
		return of[rng.IntN(len(of))]
	}
	moment := func() time.Time {
		at := random(rng).Time
		if rng.IntN(3) == 0 {
			return time.Time{}
		}
		return at
	}
	f.Since, f.Until = moment(), moment()
	f.Tool, f.Caller, f.Session, f.Outcome = some("readFile", "nosuch"), some("ada", "bob"), some("s1",
		"s2"), tool.Outcome(some("ok", "refused"))
	return f
}

// ask compares the answers about a filter with what counting gives.
func ask(t *testing.T, db *store.DB, all []*tool.Record, f audit.Filter) {
	t.Helper()
	uses, paths, days, calls := map[string]audit.Use{}, map[string]int64{}, map[time.Time]int64{}, []string{}
	longest := map[string][]time.Duration{}
	for _, r := range all {
		if !keep(f, r) {
			continue
		}
		u := uses[r.Tool]
		u.Name, u.Calls, u.BytesIn, u.BytesOut, u.Longest = r.Tool, u.Calls+1, u.BytesIn+r.In, u.BytesOut+r.Out, max(u.Longest, r.Duration)
		uses[r.Tool] = u
		longest[r.Tool] = append(longest[r.Tool], r.Duration)
		if r.Outcome != tool.OutcomeRefused || f.Outcome != "" {
			for _, p := range append(slices.Clone(r.Touches.Reads), r.Touches.Writes...) {
				paths[p]++
			}
		}
		days[r.Time.Truncate(24*time.Hour)]++
		calls = append(calls, r.Call)
	}
	got := must[[]audit.Use](t)(db.Audit().Uses(t.Context(), f, audit.ByTool))
	if len(got) != len(uses) {
		t.Fatalf("%+v: %d tools, want %d", f, len(got), len(uses))
	}
	for _, g := range got {
		w := uses[g.Name]
		if g.Calls != w.Calls || g.BytesIn != w.BytesIn || g.BytesOut != w.BytesOut || g.Longest != w.Longest ||
			g.OK+g.Failed+g.Refused+g.Errors != g.Calls {
			t.Fatalf("%+v: got %+v, want %+v", f, g, w)
		}
	}
	for _, g := range must[[]audit.Latency](t)(db.Audit().Latencies(t.Context(), f)) {
		if g.Longest != uses[g.Tool].Longest || g.Calls != uses[g.Tool].Calls {
			t.Fatalf("%+v: got %+v, want %+v", f, g, uses[g.Tool])
		}
		about(t, g.P50, longest[g.Tool], 0.5)
		about(t, g.P95, longest[g.Tool], 0.95)
		delete(longest, g.Tool)
	}
	for _, p := range must[[]audit.Path](t)(db.Audit().Paths(t.Context(), f)) {
		if paths[p.Path] != p.Reads+p.Writes {
			t.Fatalf("%+v: %+v, want %d", f, p, paths[p.Path])
		}
		delete(paths, p.Path)
	}
	for _, m := range must[[]audit.Moment](t)(db.Audit().History(t.Context(), f)) {
		if days[m.Start] != m.Calls || m.Errors > m.Calls {
			t.Fatalf("%+v: %+v, want %d", f, m, days[m.Start])
		}
		delete(days, m.Start)
	}
	var logged []string
	for _, r := range logOf(t, db, f) {
		logged = append(logged, r.Call)
	}
	if len(paths)+len(days)+len(longest) > 0 || !slices.Equal(logged, calls) && len(calls)+len(logged) > 0 {
		t.Fatalf("%+v: paths %v and days %v are missing; %d in the log, want %d", f, paths, days, len(logged),
			len(calls))
	}
	rates(t, db, all, f)
}

// about checks a quantile, which is told to within an eighth.
func about(t *testing.T, got time.Duration, of []time.Duration, q float64) {
	t.Helper()
	slices.Sort(of)
	want := of[min(int(q*float64(len(of))), len(of)-1)]
	if off := float64(got-want) / float64(max(want, 8*time.Microsecond)); off > 0.13 || off < -0.13 {
		t.Fatalf("the quantile %v is told as %v, and it is %v", q, got, want)
	}
}

func rates(t *testing.T, db *store.DB, all []*tool.Record, f audit.Filter) {
	t.Helper()
	calls, failed := map[string]int64{}, int64(0)
	for _, r := range all {
		anyOutcome := f
		anyOutcome.Outcome = ""
		if keep(anyOutcome, r) {
			calls[r.Tool]++
			if r.Outcome == f.Outcome ||
				f.Outcome == "" && r.Outcome != tool.OutcomeOK && r.Outcome != tool.OutcomeAsked {
				failed++
			}
		}
	}
	for _, x := range must[[]audit.Failure](t)(db.Audit().Failures(t.Context(), f)) {
		if x.Of != calls[x.Tool] || x.Rate <= 0 || x.Rate > 1 {
			t.Fatalf("%+v: %+v of %d", f, x, calls[x.Tool])
		}
		failed -= x.Calls
	}
	if failed != 0 {
		t.Fatalf("%+v: the failures do not add up: %d", f, failed)
	}
}

// A table is the content of one table.
type table struct {
	name    string
	columns []string
	rows    [][]any
}

func readTable(t testing.TB, raw *sql.DB, name string) *table {
	t.Helper()
	rows, err := raw.QueryContext(t.Context(), "SELECT * FROM "+name+" ORDER BY 1, 2, 3")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	tab := &table{name: name, columns: must[[]string](t)(rows.Columns())}
	for rows.Next() {
		row, into := make([]any, len(tab.columns)), make([]any, len(tab.columns))
		for i := range row {
			into[i] = &row[i]
		}
		if err := rows.Scan(into...); err != nil {
			t.Fatal(err)
		}
		for i := range row {
			if b, ok := row[i].([]byte); ok {
				row[i] = slices.Clone(b)
			}
		}
		tab.rows = append(tab.rows, row)
	}
	return tab
}

// write makes the table have these rows.
func (tab *table) write(t testing.TB, raw *sql.DB, rows [][]any) error {
	t.Helper()
	tx := must[*sql.Tx](t)(raw.BeginTx(t.Context(), nil))
	defer tx.Rollback()
	if _, err := tx.ExecContext(t.Context(), "DELETE FROM "+tab.name); err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		var marks []string
		for i := range row {
			marks = append(marks, name("$%d", i+1))
		}
		if _, err := tx.ExecContext(t.Context(), "INSERT INTO "+tab.name+" VALUES ("+strings.Join(marks, ", ")+")",
			row...); err != nil {
			return err
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	return nil
}

// change makes one random change to a table and says which.
func (tab *table) change(rng *rand.Rand) (rows [][]any, what string) {
	rows = slices.Clone(tab.rows)
	i := rng.IntN(len(rows))
	switch rng.IntN(6) {
	case 0:
		return slices.Delete(rows, i, i+1), name("%s: row %d deleted", tab.name, i)
	case 1:
		return rows[:i], name("%s: truncated before row %d", tab.name, i)
	case 2:
		rows[i] = slices.Clone(rows[i])
		rows[i][0] = other(rng, rows[i][0])
		return append(rows, tab.rows[i]), name("%s: a copy of row %d added", tab.name, i)
	case 3:
		if j := rng.IntN(len(rows)); j != i { // everything but what tells the rows apart
			a, b := slices.Clone(rows[i]), slices.Clone(rows[j])
			a[0], b[0] = b[0], a[0]
			rows[i], rows[j] = a, b
			return rows, name("%s: rows %d and %d swapped", tab.name, i, j)
		}
	}
	c := rng.IntN(len(tab.columns))
	rows[i] = slices.Clone(rows[i])
	rows[i][c] = other(rng, rows[i][c])
	return rows, name("%s: %s of row %d changed from %v to %v", tab.name, tab.columns[c], i, tab.rows[i][c], rows[i][c])
}

// other returns a value that is not v.
func other(rng *rand.Rand, v any) any {
	switch v := v.(type) {
	case int64:
		return v + []int64{1, -1, 1000, -v - 1}[rng.IntN(4)]
	case []byte:
		b := slices.Clone(v)
		b[rng.IntN(len(b))] ^= 1 << rng.IntN(8)
		return b
	case string:
		if v == "" || rng.IntN(2) == 0 {
			return v + "x"
		}
		i := rng.IntN(len(v))
		return v[:i] + string('a'+(v[i]-'a'+1)%26) + v[i+1:]
	}
	panic(fmt.Sprintf("no other value for %T", v))
}

func same(a, b [][]any) bool {
	text := func(rows [][]any) []string {
		var lines []string
		for _, r := range rows {
			lines = append(lines, fmt.Sprintf("%q", r))
		}
		slices.Sort(lines)
		return lines
	}
	return slices.Equal(text(a), text(b))
}

func anyChange(t *testing.T, k Kind) {
	address := k.New(t)
	db := k.open(t, address)
	rng := rand.New(rand.NewPCG(5, 6))
	for range 12 {
		add(t, db, random(rng))
	}
	raw := k.Raw(t, address)
	var tables []*table
	for _, name := range []string{"audit", "audit", "audit", "audit_kind", "audit_day", "audit_took", "audit_path",
		"audit_head"} {
		tables = append(tables, readTable(t, raw, name))
	}
	tries := Rounds(150, 2000, 10_000)
	if k.Far {
		tries /= 5
	}
	for range tries {
		tab := tables[rng.IntN(len(tables))]
		rows, what := tab.change(rng)
		if same(rows, tab.rows) || tab.write(t, raw, rows) != nil {
			continue // nothing changed, or the database itself refused
		}
		r, err := db.Audit().Verify(t.Context())
		if err != nil || len(r.Findings) == 0 {
			t.Errorf("%s: not found: %v, %v", what, r, err)
		}
		if err := tab.write(t, raw, tab.rows); err != nil {
			t.Fatal(err)
		}
	}
	sound(t, db)
}

func forgedHead(t *testing.T, k Kind) {
	address := k.New(t)
	db := k.open(t, address)
	add(t, db, full(), full(), full())
	raw := k.Raw(t, address)
	early := readTable(t, raw, "audit_head")
	tables := []*table{early}
	for _, name := range []string{"audit", "audit_day", "audit_took", "audit_path"} {
		tables = append(tables, readTable(t, raw, name))
	}
	add(t, db, full())

	stranger := must[*store.DB](t)(k.Open(address, store.Options{
		Key: func() ([]byte, error) { return []byte("another key"), nil },
	}))
	defer stranger.Close()
	if err := stranger.Audit().Append(t.Context(), full(), true); tool.CodeOf(err) != tool.CodeUnavailable ||
		tool.AsError(err).Reason != "audit_forged" {
		t.Errorf("who has another key: %v", err)
	}
	if r := must[*audit.Report](t)(stranger.Audit().Verify(t.Context())); len(r.Findings) == 0 {
		t.Error("a head that was signed with another key passed")
	}
	// An earlier state of everything, put back while the program runs.
	for _, tab := range tables {
		if err := tab.write(t, raw, tab.rows); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Audit().Append(t.Context(), full(), true); err == nil || tool.AsError(err).Reason != "audit_forged" {
		t.Errorf("a log that became shorter: %v", err)
	}
	if err := db.Sessions().Patch(t.Context(), "c", "s", []map[string]any{{"a": true}}); err != nil {
		t.Errorf("what is not the log's goes on: %v", err)
	}
}

func keptPoints(t *testing.T, k Kind) {
	address := k.New(t)
	db := k.open(t, address)
	add(t, db, full(), full())
	early := sound(t, db).Head
	add(t, db, full())
	late := sound(t, db, early).Head
	for _, p := range []audit.Point{early, late} {
		if back, err := audit.ParsePoint(p.String()); err != nil || back != p {
			t.Errorf("%v came back as %v, %v", p, back, err)
		}
	}
	other, r := k.fresh(t), full() // another log that is sound in itself
	r.Call = "another"
	add(t, other, full(), r)
	for _, p := range []audit.Point{early, late} {
		if r := must[*audit.Report](t)(other.Audit().Verify(t.Context(), p)); len(r.Findings) == 0 {
			t.Errorf("%v was not missed", p)
		}
	}
}

func pruning(t *testing.T, k Kind) {
	address := k.New(t)
	db, second := k.open(t, address), k.open(t, address)
	rng := rand.New(rand.NewPCG(7, 8))
	var all []*tool.Record
	for i := range 200 { // mostly in the order of time, as calls come
		r := random(rng)
		r.Time = time.Date(2026, 11, 10, 0, 0, 0, 0,
			time.UTC).Add(time.Duration(i)*time.Hour/3 + time.Duration(rng.IntN(3))*time.Hour)
		add(t, []*store.DB{db, second}[i%2], r)
		all = append(all, r)
	}
	cut := time.Date(2026, 11, 11, 13, 0, 0, 0, time.UTC)
	n := must[int64](t)(db.Audit().Prune(t.Context(), cut))
	left := all[n:]
	for _, r := range all[:n] {
		if !r.Time.Before(cut.Truncate(24 * time.Hour)) {
			t.Errorf("a call of %v is gone", r.Time)
		}
	}
	if report := sound(t, db); n < 60 || report.Rows != int64(len(left)) || report.Cut.Seq != n {
		t.Errorf("%d removed, %+v", n, report)
	}
	for range Rounds(4, 20, 100) {
		ask(t, db, left, randomFilter(rng))
	}
	for i := range 20 { // both go on, with what they remember of kinds
		r := random(rng)
		add(t, []*store.DB{db, second}[i%2], r)
		left = append(left, r)
	}
	sound(t, db)
	ask(t, db, left, audit.Filter{})
	if n := must[int64](t)(second.Audit().Prune(t.Context(),
		time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))); n != int64(len(left)) {
		t.Errorf("%d of %d removed", n, len(left))
	}
	if r := sound(t, db); r.Rows != 0 || r.Head.Seq != 220 {
		t.Errorf("an empty log: %+v", r)
	}
	add(t, db, full())
	sound(t, second)
}
