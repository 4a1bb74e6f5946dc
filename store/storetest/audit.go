package storetest

import (
	"cmp"
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
	"toolpost/internal/rounds"
	"toolpost/store"
	"toolpost/tool"
)

// full returns a record with all fields set.
func full() *tool.Record {
	return &tool.Record{
		Time: time.Date(2026, 11, 15, 1, 2, 3, 4000, time.UTC), Call: "c1", Trace: "t1", Tool: "readFile",
		Asked: "file.read", Source: "files", Protocol: "builtin", Tier: 1, Door: "http", Caller: "ada", Session: "s1",
		Run: "r1", Parent: "p1", Shape: []byte(`{"path":"string"}`), Digest: strings.Repeat("ab", 32),
		Args:     []byte(`{"path":"a"}`),
		Touches:  tool.Touches{Reads: []string{"/a"}, Writes: []string{"/b"}, Commands: [][]string{{"ls", "-l"}}},
		Decision: "allow", Rule: "default", Lease: "l1", Key: "k1", Replay: true, Cached: true, DryRun: true,
		Walls: "no_network", Outcome: tool.OutcomeFailed, Code: tool.CodeToolError, Reason: "ValueError",
		Duration: 1234 * time.Microsecond, In: 12, Out: 34, Lost: 5,
		Approval: tool.Approval{
			ID: "apr_1", State: "approved", By: "bob", At: time.Date(2026, 11, 15, 1, 2, 0, 5000, time.UTC), Reason: "it's fine",
		},
		Node: "worker-1", Definition: "d1", Connections: []string{"github api.github.com"},
	}
}

func logOf(t testing.TB, db *store.DB, f audit.Filter) (records []*tool.Record) {
	t.Helper()
	works(t, db.Audit().Log(t.Context(), f, false, func(r *tool.Record) error {
		records = append(records, r)
		return nil
	}))
	return records
}

func add(t testing.TB, db *store.DB, records ...*tool.Record) {
	t.Helper()
	for _, r := range records {
		works(t, db.Audit().Append(t.Context(), r, false))
	}
}

func recordComesBack(t *testing.T, k Kind) {
	db, other := k.two(t)
	want := full()
	add(t, db, want)
	got := logOf(t, other, audit.Filter{})
	want.Seq = 1
	equal(t, got, []*tool.Record{want})
	sound(t, db)
}

// receiptKept: package auditlog tests what else receipts have to be.
func receiptKept(t *testing.T, k Kind) {
	db, other := k.two(t)
	r := full()
	r.Receipt = []byte(`{"document":"{\"a\": \"\u0000ä'\"}","signature":"AAAA","key":"U"}`)
	add(t, db, r)
	equal(t, string(logOf(t, other, audit.Filter{})[0].Receipt), string(r.Receipt))
	equal(t, findings(t, other), "the receipt of row 1 is wrong: its signature is not that of its key\n")
}

// laterRecords: a record written with Later is in the log, once: when this program queries it, when others look a
// moment later, and after an orderly end.
func laterRecords(t *testing.T, k Kind) {
	address, other := k.made(t)
	db := must[*store.DB](t)(k.Open(address, options()))
	const callers, each = 8, 50
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for n := range each {
				r := full()
				r.Call, r.Session = fmt.Sprint(n), fmt.Sprint("session ", i)
				db.Audit().Later(r, func(_ *tool.Record, err error) { t.Errorf("a record is missing: %v", err) })
			}
		})
	}
	wg.Wait()
	ordered := func(of *store.DB) {
		t.Helper()
		for i := range callers {
			var calls []string
			for _, r := range logOf(t, of, audit.Filter{Session: fmt.Sprint("session ", i)}) {
				calls = append(calls, r.Call)
			}
			if len(calls) != each || !slices.IsSortedFunc(calls, func(a, b string) int { return cmp.Or(len(a)-len(b), strings.Compare(a, b)) }) {
				t.Errorf("session %d has %v", i, calls)
			}
		}
	}
	ordered(db)
	db.Audit().Later(full(), func(_ *tool.Record, err error) { t.Errorf("a record is missing: %v", err) })
	until(t, func() bool { // the program itself is not queried
		return must[int64](t)(other.Audit().Head(t.Context())) == callers*each+1
	})
	db.Audit().Later(full(), func(_ *tool.Record, err error) { t.Errorf("a record is missing: %v", err) })
	works(t, db.Close())
	if got := logOf(t, other, audit.Filter{}); len(got) != callers*each+2 {
		t.Errorf("after the end there are %d records", len(got))
	}
	sound(t, other)
}

// notesOfMany: notes are made and removed together with those of others, whatever the ids of calls are.
func notesOfMany(t *testing.T, k Kind) {
	db := k.fresh(t)
	names := []string{"c1", "a\x00b", "\xff\xfe", strings.Repeat("ä", 5000), strings.Repeat("ä", 5000) + "x", ""}
	const callers = 24
	together(callers, func(i int) {
		r := full()
		r.Call, r.Caller, r.Time = names[i%len(names)], names[i%5], r.Time.Add(time.Duration(i))
		gives(t, db.Audit().Begin(context.Background(), r), success)
		r.Begun = true
		gives(t, db.Audit().Append(context.Background(), r, true), success)
	})
	equal(t, len(logOf(t, db, audit.Filter{})), callers)
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
		db.Audit().Later(r, func(_ *tool.Record, err error) { t.Errorf("a record is missing: %v", err) })
		db.Audit().Settle()
		add(t, db, r) // as a record that was bounded and given back
	}
	sound(t, db)
	for _, r := range logOf(t, db, audit.Filter{}) {
		holds(t, !strings.ContainsRune(r.Caller+r.Session+r.Key, 0) && len(r.Key) <= 256 &&
			len(r.Touches.Reads)+len(r.Touches.Commands) <= 32 && r.Omitted != 0, "row %d: %d bytes of a key, %d paths",
			r.Seq, len(r.Key), len(r.Touches.Reads))
	}
}

// random makes a record within a few days of a fixed date.
func random(rng *rand.Rand) *tool.Record {
	r := full()
	pick := func(of ...string) string { return of[rng.IntN(len(of))] }
	r.Time = time.Date(2026, 11, 10, 0, 0, 0, 0,
		time.UTC).Add(time.Duration(rng.Int64N(int64(4*24*time.Hour)/1000)) * 1000)
	if rng.IntN(8) == 0 { // exactly at the start of a day
		r.Time = r.Time.Truncate(24 * time.Hour)
	}
	r.Tool, r.Caller, r.Session = pick("readFile", "writeFile", "grepCode"), pick("ada", "bob"), pick("", "s1", "s2")
	r.Door, r.Source, r.Run = pick("http", "cli"), pick("files", "code"), pick("", "a%b", "a_b", `a"b!`)
	r.Parent = pick("", "p1", "p2")
	r.Args = []byte(`{"run":"a%b"}`) // it only looks like its run
	r.Duration = time.Duration(rng.Int64N(1<<uint(rng.IntN(30)))) * time.Microsecond
	r.Call, r.In, r.Out = tool.NewID(), rng.Int64N(100), rng.Int64N(1000)
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
	db, other := k.two(t)
	const callers, each = 8, 20
	together(callers, func(i int) {
		rng := rand.New(rand.NewPCG(1, uint64(i)))
		for n := range each {
			log := []*store.DB{db, other}[i%2].Audit()
			gives(t, log.Append(context.Background(), random(rng), n%5 == 0), success)
		}
	})
	r := sound(t, db)
	holds(t, r.Rows == callers*each && r.Head.Seq == callers*each && r.Signed, "%+v", r)
}

// keep reports whether a record matches a filter, written naively.
func keep(f audit.Filter, r *tool.Record) bool {
	return (f.Since.IsZero() || !r.Time.Before(f.Since)) && (f.Until.IsZero() || r.Time.Before(f.Until)) &&
		(f.Tool == "" || r.Tool == f.Tool) && (f.Caller == "" || r.Caller == f.Caller) &&
		(f.Session == "" || r.Session == f.Session) && (f.Outcome == "" || r.Outcome == f.Outcome) &&
		(f.Run == "" || r.Run == f.Run) && (f.Parent == "" || r.Parent == f.Parent) &&
		(f.Door == "" || r.Door == f.Door) &&
		(f.Source == "" || r.Source == f.Source) && (f.Code == "" || r.Code == f.Code)
}

func questions(t *testing.T, k Kind) {
	db := k.fresh(t)
	rng := rand.New(rand.NewPCG(3, 4))
	var all []*tool.Record
	for range rounds.Of(80, 1000) {
		r := random(rng)
		add(t, db, r)
		all = append(all, r)
	}
	for range rounds.Of(8, 300) {
		ask(t, db, all, randomFilter(rng))
	}
	u := must[[]audit.Use](t)(db.Audit().Uses(t.Context(), audit.Filter{Limit: 2}, audit.ByTool))
	holds(t, len(u) == 2 && u[0].Calls >= u[1].Calls, "the two most used: %+v", u)
	u = must[[]audit.Use](t)(db.Audit().Uses(t.Context(), audit.Filter{}, audit.ByCaller))
	holds(t, len(u) == 2 && (u[0].Name == "ada" || u[0].Name == "bob"), "by caller: %+v", u)
	equal(t, logOf(t, db, audit.Filter{Tool: "nosuch"}), nil, "a tool that nobody called")
	newest := int64(0)
	err := db.Audit().Log(t.Context(), audit.Filter{Limit: 1, Caller: "ada"}, true, func(r *tool.Record) error {
		newest = max(newest, r.Seq)
		return nil
	})
	holds(t, err == nil && newest >= int64(len(all)-20), "the newest of ada's: %d, %v", newest, err)
	some := 0
	ofRun := audit.Filter{Limit: 3, Run: "a%b"}
	err = db.Audit().Log(t.Context(), ofRun, true, func(*tool.Record) error { some++; return nil })
	holds(t, err == nil && some == 3, "three of a run: %d, %v", some, err)

	late := *all[0]
	late.Kind = tool.LateOutcome
	add(t, db, &late)
	for _, f := range []audit.Filter{{}, {Kind: audit.OnlyCalls}, {Kind: audit.AllKinds, Tool: late.Tool, Since: late.Time}, {Session: late.Session}} {
		counts(t, db, all, f) // it is no call
	}
	equal(t, len(logOf(t, db, audit.Filter{})), len(all)+1, "rows with the late outcome")
	equal(t, len(logOf(t, db, audit.Filter{Kind: tool.LateOutcome})), 1, "late outcomes")
	equal(t, len(logOf(t, db, audit.Filter{Kind: tool.OperatorCall})), 0, "calls of operators")
}

// counts compares sums for a filter with the results of counting.
func counts(t *testing.T, db *store.DB, all []*tool.Record, f audit.Filter) {
	t.Helper()
	want, sum := int64(0), int64(0)
	for _, r := range all {
		if keep(f, r) {
			want++
		}
	}
	for _, u := range must[[]audit.Use](t)(db.Audit().Uses(t.Context(), f, audit.ByTool)) {
		sum += u.Calls
	}
	equal(t, sum, want, fmt.Sprintf("calls of %+v", f))
	series(t, db, all, f)
}

// A reader that follows the log sees every row of every program once, in the order of the log, and is woken by the rows
// of its own program.
func followed(t *testing.T, k Kind) {
	db, other := k.lanes(t, k.New(t))
	add(t, db, full())
	log := db.Audit()
	head := must[int64](t)(log.Head(t.Context()))
	holds(t, head == 1, "the head of one row is %d", head)
	const callers, each = 4, 15
	var writing sync.WaitGroup
	writing.Go(func() {
		together(callers, func(i int) {
			rng := rand.New(rand.NewPCG(5, uint64(i)))
			for range each {
				gives(t, []*store.DB{db, other}[i%2].Audit().Append(context.Background(), random(rng), false), success)
			}
		})
	})
	var seen []*tool.Record
	for len(seen) < callers*each {
		changed := log.Changed()
		rows := must[[]*tool.Record](t)(log.Next(t.Context(), head, 7))
		for _, r := range rows {
			needs(t, r.Seq > head, "row %d follows %d", r.Seq, head)
			head = r.Seq
		}
		seen = append(seen, rows...)
		if len(rows) == 0 {
			select {
			case <-changed:
			case <-time.After(20 * time.Millisecond): // it polls for rows of the other program
			}
		}
	}
	writing.Wait()
	equal(t, seen, logOf(t, db, audit.Filter{})[1:], "what was followed, and what is there")
	changed := log.Changed()
	add(t, db, full())
	select {
	case <-changed:
	case <-time.After(10 * time.Second):
		t.Error("nobody was told of a new row")
	}
}

func randomFilter(rng *rand.Rand) audit.Filter {
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
	return audit.Filter{
		Since: moment(), Until: moment(), Tool: some("readFile", "nosuch"), Caller: some("ada", "bob"),
		Session: some("s1", "s2"), Outcome: tool.Outcome(some("ok", "refused")), Run: some("a%b", "a_b", `a"b!`),
		Door: some("http", "cli"), Source: some("files", "code"), Code: tool.Code(some("timeout", "access_denied")),
		Parent: some("p1", "p2"),
	}
}

// ask compares the answers for a filter with the results of counting.
func ask(t *testing.T, db *store.DB, all []*tool.Record, f audit.Filter) {
	t.Helper()
	uses, paths, days, calls := map[string]audit.Use{}, map[string]int64{}, map[time.Time]int64{}, []string{}
	longest := map[string][]time.Duration{}
	for _, r := range all {
		if holds(t, keep(f, r) == f.Fits(r), "%+v, and %+v", f, r); !keep(f, r) {
			continue
		}
		u := uses[r.Tool]
		u.Name, u.Calls, u.BytesIn, u.BytesOut = r.Tool, u.Calls+1, u.BytesIn+r.In, u.BytesOut+r.Out
		u.Longest = max(u.Longest, r.Duration)
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
	needs(t, len(got) == len(uses), "%+v: %d tools, want %d", f, len(got), len(uses))
	for _, g := range got {
		w := uses[g.Name]
		needs(t, g.Calls == w.Calls && g.BytesIn == w.BytesIn && g.BytesOut == w.BytesOut && g.Longest == w.Longest &&
			g.OK+g.Failed+g.Refused+g.Errors == g.Calls, "%+v: got %+v, want %+v", f, g, w)
	}
	for _, g := range must[[]audit.Latency](t)(db.Audit().Latencies(t.Context(), f)) {
		needs(t, g.Longest == uses[g.Tool].Longest && g.Calls == uses[g.Tool].Calls, "%+v: got %+v, want %+v", f, g,
			uses[g.Tool])
		about(t, g.P50, longest[g.Tool], 0.5)
		about(t, g.P95, longest[g.Tool], 0.95)
		delete(longest, g.Tool)
	}
	for _, p := range must[[]audit.Path](t)(db.Audit().Paths(t.Context(), f)) {
		needs(t, paths[p.Path] == p.Reads+p.Writes, "%+v: %+v, want %d", f, p, paths[p.Path])
		delete(paths, p.Path)
	}
	for _, m := range must[[]audit.Moment](t)(db.Audit().History(t.Context(), f)) {
		needs(t, days[m.Start] == m.Calls && m.Errors <= m.Calls, "%+v: %+v, want %d", f, m, days[m.Start])
		delete(days, m.Start)
	}
	var logged []string
	for _, r := range logOf(t, db, f) {
		logged = append(logged, r.Call)
	}
	needs(t, len(paths)+len(days)+len(longest) == 0 && slices.Equal(logged, calls),
		"%+v: paths %v and days %v are missing; %d in the log, want %d", f, paths, days, len(logged), len(calls))
	rates(t, db, all, f)
	series(t, db, all, f)
}

// series compares the steps of a series with the results of counting, for steps shorter and longer than a day.
func series(t *testing.T, db *store.DB, all []*tool.Record, f audit.Filter) {
	t.Helper()
	now := time.Date(2026, 11, 15, 0, 0, 0, 0, time.UTC)
	if !f.Since.IsZero() && !f.Until.IsZero() && f.Since.After(f.Until) {
		f.Since, f.Until = f.Until, f.Since
	}
	for _, most := range []int{1, 3, 7, 100, audit.MaxBuckets} {
		s := must[*audit.Series](t)(db.Audit().Series(t.Context(), f, now, most))
		step := time.Duration(s.Step) * time.Millisecond
		needs(t, len(s.Buckets) > 0 && len(s.Buckets) <= most && s.To.Equal(s.From.Add(time.Duration(len(s.Buckets))*step)),
			"%+v in %d: %d steps of %v from %v to %v", f, most, len(s.Buckets), step, s.From, s.To)
		if step < audit.Day && f.Since.IsZero() && f.Run == "" && s.Totals.Calls() > 0 {
			needs(t, s.Buckets[0].Calls() > 0, "%+v in %d: the first step, at %v, is empty", f, most, s.From)
		}
		want, tooks := make([]audit.Counts, len(s.Buckets)+1), make([][]time.Duration, len(s.Buckets)+1)
		for _, r := range all {
			if !keep(f, r) || f.Until.IsZero() && !r.Time.Before(now) {
				continue
			}
			for _, i := range []int{int(r.Time.Sub(s.From) / step), len(s.Buckets)} {
				want[i].Add(r.Outcome, 1, r.In, r.Out)
				tooks[i] = append(tooks[i], r.Duration)
			}
		}
		for i, w := range want {
			got := s.Totals
			if i < len(s.Buckets) {
				got = s.Buckets[i].Counts
				needs(t, s.Buckets[i].Start.Equal(s.From.Add(time.Duration(i)*step)), "step %d begins at %v", i,
					s.Buckets[i].Start)
			}
			for q, ms := range map[float64]float64{0.5: got.P50, 0.95: got.P95, 0.99: got.P99} {
				if w.Calls() > 0 {
					about(t, time.Duration(ms*float64(time.Millisecond)), tooks[i], q)
				} else {
					needs(t, ms == 0, "the quantile %v of nothing is %v", q, ms)
				}
			}
			got.P50, got.P95, got.P99 = 0, 0, 0
			needs(t, got == w, "%+v in %d, step %d: got %+v, want %+v", f, most, i, got, w)
		}
	}
}

// about checks a quantile, which is accurate to within an eighth.
func about(t *testing.T, got time.Duration, of []time.Duration, q float64) {
	t.Helper()
	slices.Sort(of)
	want := of[min(int(q*float64(len(of))), len(of)-1)]
	off := float64(got-want) / float64(max(want, 8*time.Microsecond))
	needs(t, off <= 0.13 && off >= -0.13, "the quantile %v is told as %v, and it is %v", q, got, want)
}

func rates(t *testing.T, db *store.DB, all []*tool.Record, f audit.Filter) {
	t.Helper()
	calls, failed := map[string]int64{}, int64(0)
	for _, r := range all {
		anyOutcome := f
		anyOutcome.Outcome, anyOutcome.Code = "", ""
		if keep(anyOutcome, r) {
			calls[r.Tool]++
			if (f.Code == "" || r.Code == f.Code) && (r.Outcome == f.Outcome ||
				f.Outcome == "" && r.Outcome != tool.OutcomeOK && r.Outcome != tool.OutcomeAsked) {
				failed++
			}
		}
	}
	for _, x := range must[[]audit.Failure](t)(db.Audit().Failures(t.Context(), f)) {
		needs(t, x.Of == calls[x.Tool] && x.Rate > 0 && x.Rate <= 1, "%+v: %+v of %d", f, x, calls[x.Tool])
		failed -= x.Calls
	}
	needs(t, failed == 0, "%+v: the failures do not add up: %d", f, failed)
}

// A table is the content of one table.
type table struct {
	name    string
	columns []string
	rows    [][]any
}

// readTables reads several tables.
func readTables(t testing.TB, raw *sql.DB, names ...string) (tables []*table) {
	t.Helper()
	for _, name := range names {
		tables = append(tables, readTable(t, raw, name))
	}
	return tables
}

// putBack restores tables to the rows that were read.
func putBack(t testing.TB, raw *sql.DB, tables ...*table) {
	t.Helper()
	for _, tab := range tables {
		works(t, tab.write(t, raw, tab.rows))
	}
}

func readTable(t testing.TB, raw *sql.DB, name string) *table {
	t.Helper()
	rows := must[*sql.Rows](t)(raw.QueryContext(t.Context(), "SELECT * FROM "+name+" ORDER BY 1, 2, 3"))
	defer rows.Close()
	tab := &table{name: name, columns: must[[]string](t)(rows.Columns())}
	for rows.Next() {
		row, into := make([]any, len(tab.columns)), make([]any, len(tab.columns))
		for i := range row {
			into[i] = &row[i]
		}
		works(t, rows.Scan(into...))
		for i := range row {
			if b, ok := row[i].([]byte); ok {
				row[i] = slices.Clone(b)
			}
		}
		tab.rows = append(tab.rows, row)
	}
	return tab
}

// write replaces the rows of the table.
func (tab *table) write(t testing.TB, raw *sql.DB, rows [][]any) error {
	t.Helper()
	tx := must[*sql.Tx](t)(raw.BeginTx(t.Context(), nil))
	defer tx.Rollback()
	works(t, errOf(tx.ExecContext(t.Context(), "DELETE FROM "+tab.name)))
	insert := "INSERT INTO " + tab.name + " VALUES ($1"
	for i := 2; i <= len(tab.columns); i++ {
		insert += name(", $%d", i)
	}
	for _, row := range rows {
		if _, err := tx.ExecContext(t.Context(), insert+")", row...); err != nil {
			return err
		}
	}
	works(t, tx.Commit())
	return nil
}

// change makes one random change to a table and describes it.
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
		if j := rng.IntN(len(rows)); j != i { // everything but the keys of the rows
			a, b := slices.Clone(rows[i]), slices.Clone(rows[j])
			a[0], b[0] = b[0], a[0]
			rows[i], rows[j] = a, b
			return rows, name("%s: rows %d and %d swapped", tab.name, i, j)
		}
	}
	return tab.changeAt(rng, i, rng.IntN(len(tab.columns)))
}

// changeAt changes one value.
func (tab *table) changeAt(rng *rand.Rand, i, c int) (rows [][]any, what string) {
	rows = slices.Clone(tab.rows)
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
	rng := rand.New(rand.NewPCG(5, 6))
	address := k.ofLanes(t, rng)
	raw, db := k.Raw(t, address), k.open(t, address)
	tables := readTables(t, raw, append(logTables(), "audit_anchor", "audit", "audit", "audit_anchor")...)
	for _, tab := range tables[:len(logTables())+1] { // every column, whatever chance has in store
		for c := range tab.columns {
			rows, what := tab.changeAt(rng, rng.IntN(len(tab.rows)), c)
			if tab.write(t, raw, rows) == nil {
				reports(t, db, what)
			}
			putBack(t, raw, tab)
		}
	}
	for range k.fewer(rounds.Of(150, 10_000)) {
		tab := tables[rng.IntN(len(tables))]
		rows, what := tab.change(rng)
		if same(rows, tab.rows) || tab.write(t, raw, rows) != nil {
			continue // nothing changed, or the database itself refused
		}
		reports(t, db, what)
		putBack(t, raw, tab)
	}
	sound(t, db)
}

func forgedHead(t *testing.T, k Kind) {
	address, db := k.made(t)
	add(t, db, full(), full(), full())
	raw := k.Raw(t, address)
	early := readTables(t, raw, "audit_head", "audit", "audit_day", "audit_took", "audit_path")
	add(t, db, full())

	refuses := func(db *store.DB, what string) {
		t.Helper()
		err := db.Audit().Append(t.Context(), full(), true)
		gives(t, err, tool.CodeUnavailable, what)
		holds(t, err != nil && tool.AsError(err).Reason == "audit_forged", "%s: %v", what, err)
	}
	address = k.New(t)
	stranger := k.openWith(t, address, store.Options{Key: anotherKey})
	add(t, stranger, full(), full(), full(), full(), full())
	heads := readTable(t, raw, "audit_head")
	works(t, heads.write(t, raw, nil))
	refuses(db, "a log without its head")
	works(t, heads.write(t, raw, readTable(t, k.Raw(t, address), "audit_head").rows))
	refuses(db, "a head that was signed with another key")
	reports(t, db, "a head that was signed with another key")
	putBack(t, raw, early...) // while the program runs
	refuses(db, "a log that became shorter")
	works(t, db.Sessions().Patch(t.Context(), "c", "s", []map[string]any{{"a": true}}), "what is not the log's goes on")
}

func keptPoints(t *testing.T, k Kind) {
	db := k.fresh(t)
	add(t, db, full(), full())
	early := sound(t, db).Head
	add(t, db, full())
	late := sound(t, db, early).Head
	for _, p := range []audit.Point{early, late} {
		back, err := audit.ParsePoint(p.String())
		holds(t, err == nil && back == p, "%v came back as %v, %v", p, back, err)
	}
	other, r := k.fresh(t), full() // another log that is sound in itself
	r.Call = "another"
	add(t, other, full(), r)
	for _, p := range []audit.Point{early, late} {
		reports(t, other, name("%v is missing", p), p)
	}
}

func pruning(t *testing.T, k Kind) {
	db, second := k.two(t)
	rng := rand.New(rand.NewPCG(7, 8))
	var all []*tool.Record
	for i := range 200 { // mostly in order of time, as calls arrive
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
		holds(t, r.Time.Before(cut.Truncate(24*time.Hour)), "a call of %v is gone", r.Time)
	}
	report := sound(t, db)
	holds(t, n >= 60 && report.Rows == int64(len(left)) && report.Cut.Seq == n, "%d removed, %+v", n, report)
	for range rounds.Of(4, 100) {
		ask(t, db, left, randomFilter(rng))
	}
	for i := range 20 { // both continue with their cached kinds
		r := random(rng)
		add(t, []*store.DB{db, second}[i%2], r)
		left = append(left, r)
	}
	sound(t, db)
	ask(t, db, left, audit.Filter{})
	n = must[int64](t)(second.Audit().Prune(t.Context(), time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)))
	equal(t, n, int64(len(left)), "all is removed")
	report = sound(t, db)
	holds(t, report.Rows == 0 && report.Head.Seq == 220, "an empty log: %+v", report)
	add(t, db, full())
	sound(t, second)
}
