package auditlog

import (
	"cmp"
	"context"
	"database/sql"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"toolpost/engine/audit"
	"toolpost/store/database"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// groupOf returns the key by which a call is grouped.
func groupOf(g audit.Group, k *tool.Record) string {
	switch g {
	case audit.ByCaller:
		return k.Caller
	case audit.ByDoor:
		return k.Door
	case audit.BySource:
		return k.Source
	default:
		return k.Tool
	}
}

// Uses returns what is used most: the most called first.
func (a *Table) Uses(ctx context.Context, f audit.Filter, by audit.Group) ([]audit.Use, error) {
	found := map[string]audit.Use{}
	err := addUp(ctx, a, f, dayTally(), func(k *tool.Record, _ sumKey, s daySum) {
		u := found[groupOf(by, k)]
		u.Name = groupOf(by, k)
		switch k.Outcome {
		case tool.OutcomeOK, tool.OutcomeAsked:
			u.OK += s.n
		case tool.OutcomeFailed:
			u.Failed += s.n
		case tool.OutcomeRefused:
			u.Refused += s.n
		default:
			u.Errors += s.n
		}
		u.Calls, u.BytesIn, u.BytesOut = u.Calls+s.n, u.BytesIn+s.in, u.BytesOut+s.out
		u.Mean += time.Duration(s.took) * time.Microsecond // a sum, divided once all are added
		u.Longest = max(u.Longest, time.Duration(s.longest)*time.Microsecond)
		found[u.Name] = u
	})
	uses := ordered(found, f.Limit, func(a, b audit.Use) int {
		return cmp.Or(cmp.Compare(b.Calls, a.Calls), cmp.Compare(a.Name, b.Name))
	})
	for i := range uses {
		u := &uses[i]
		u.Mean = (u.Mean / time.Duration(max(u.Calls, 1))).Truncate(time.Microsecond)
	}
	return uses, err
}

// ordered returns the values in order, at most most of them; 0 means all.
func ordered[K comparable, V any](found map[K]V, most int, order func(a, b V) int) []V {
	all := slices.AppendSeq(make([]V, 0, len(found)), maps.Values(found))
	slices.SortFunc(all, order)
	return first(all, most)
}

func first[T any](list []T, n int) []T {
	if n > 0 && n < len(list) {
		return list[:n]
	}
	return list
}

// Latencies returns how long calls take: the tool with the slowest calls first.
func (a *Table) Latencies(ctx context.Context, f audit.Filter) ([]audit.Latency, error) {
	limit := f.Limit
	f.Limit = 0
	uses, err := a.Uses(ctx, f, audit.ByTool)
	if err != nil {
		return nil, err
	}
	times := map[string]histogram{}
	err = addUp(ctx, a, f, tookTally(), func(k *tool.Record, key sumKey, n int64) {
		if times[k.Tool] == nil {
			times[k.Tool] = histogram{}
		}
		times[k.Tool][key.bucket] += n
	})
	all := make([]audit.Latency, 0, len(uses))
	for _, u := range uses {
		quantile := func(q float64) time.Duration { return min(times[u.Name].quantile(q), u.Longest) }
		all = append(all, audit.Latency{
			Tool: u.Name, Calls: u.Calls, Mean: u.Mean, P50: quantile(0.5), P95: quantile(0.95), P99: quantile(0.99),
			Longest: u.Longest,
		})
	}
	slices.SortStableFunc(all, func(a, b audit.Latency) int { return cmp.Compare(b.P95, a.P95) })
	return first(all, limit), err
}

// Failures returns what goes wrong: the most frequent first.
func (a *Table) Failures(ctx context.Context, f audit.Filter) ([]audit.Failure, error) {
	found, calls := map[audit.Failure]audit.Failure{}, map[string]int64{}
	want, code := f.Outcome, f.Code
	f.Outcome, f.Code = "", "" // rates are of all calls
	err := addUp(ctx, a, f, dayTally(), func(k *tool.Record, _ sumKey, s daySum) {
		calls[k.Tool] += s.n
		if (k.Outcome == want || want == "" && failed(k)) && (code == "" || k.Code == code) {
			what := audit.Failure{Tool: k.Tool, Outcome: k.Outcome, Code: k.Code}
			x := cmp.Or(found[what], what)
			x.Calls += s.n
			found[what] = x
		}
	})
	failures := ordered(found, f.Limit, func(a, b audit.Failure) int {
		return cmp.Or(cmp.Compare(b.Calls, a.Calls), cmp.Compare(a.Tool, b.Tool), cmp.Compare(a.Code, b.Code),
			cmp.Compare(a.Outcome, b.Outcome))
	})
	for i := range failures {
		x := &failures[i]
		x.Of = calls[x.Tool]
		x.Rate = float64(x.Calls) / float64(max(x.Of, 1))
	}
	return failures, err
}

func failed(k *tool.Record) bool {
	return k.Outcome != tool.OutcomeOK && k.Outcome != tool.OutcomeAsked
}

// Paths returns which files are accessed: the most accessed first. Refused calls accessed none; a filter that asks for
// them returns what they named.
func (a *Table) Paths(ctx context.Context, f audit.Filter) ([]audit.Path, error) {
	found := map[string]audit.Path{}
	err := addUp(ctx, a, f, pathTally(), func(k *tool.Record, key sumKey, n int64) {
		if k.Outcome == tool.OutcomeRefused && f.Outcome == "" {
			return
		}
		p := found[key.path]
		p.Path = key.path
		if key.mode == modeWrite {
			p.Writes += n
		} else {
			p.Reads += n
		}
		if day := startOfDay(key.day); day.After(p.Last) {
			p.Last = day
		}
		found[key.path] = p
	})
	return ordered(found, f.Limit, func(a, b audit.Path) int {
		return cmp.Or(cmp.Compare(b.Reads+b.Writes, a.Reads+a.Writes), cmp.Compare(a.Path, b.Path))
	}), err
}

// History returns the calls of each day of the filter, oldest first. Days without calls are left out.
func (a *Table) History(ctx context.Context, f audit.Filter) ([]audit.Moment, error) {
	found := map[int64]audit.Moment{}
	perDay := dayTally()
	perDay.by = `, day`
	err := addUp(ctx, a, f, perDay, func(k *tool.Record, key sumKey, s daySum) {
		m := found[key.day]
		m.Start = startOfDay(key.day)
		m.Calls += s.n
		if failed(k) {
			m.Errors += s.n
		}
		found[key.day] = m
	})
	return ordered(found, 0, func(a, b audit.Moment) int { return a.Start.Compare(b.Start) }), err
}

func startOfDay(day int64) time.Time { return time.UnixMicro(day * dayLength).UTC() }

// Log calls visit for each record that matches the filter: the newest first, or the oldest first. Seq is the order in
// which calls were recorded. An error of visit ends it.
func (a *Table) Log(ctx context.Context, f audit.Filter, newestFirst bool, visit func(*tool.Record) error) error {
	return a.span(ctx, f, func(q *query) error {
		lo, hi, err := q.bounds(q.since, q.until)
		if err != nil || hi == 0 {
			return err
		}
		switch {
		case f.After > 0 && newestFirst:
			hi = min(hi, f.After-1)
		case f.After > 0:
			lo = max(lo, f.After+1)
		}
		order := ` ORDER BY seq`
		if newestFirst {
			order += ` DESC`
		}
		if f.Limit > 0 && f.Run == "" { // rows of other runs are filtered after the query
			order += ` LIMIT ` + strconv.Itoa(f.Limit)
		}
		left := database.AtMost(f.Limit)
		return q.rows(lo, hi, q.since, q.until, order, func(id int64, r *tool.Record, doc string) error {
			k := q.kinds[id]
			for i := range a.inKind {
				*a.inKind[i].Value(r).(*string) = *a.inKind[i].Value(k).(*string)
			}
			if err := a.readDetail(doc, r); err != nil {
				return err
			}
			if err := visit(r); err != nil {
				return err
			}
			if left--; left == 0 {
				return database.ErrStop
			}
			return nil
		})
	})
}

// readDetail reads the document of a row.
func (l *layout) readDetail(doc string, r *tool.Record) error {
	if err := l.all.Unmarshal([]byte(doc), r); err != nil {
		return tool.Errorf(tool.CodeUnavailable,
			"row %d of the audit log cannot be read: %w; see `toolpost audit verify`", r.Seq, err)
	}
	return nil
}

// Head returns the number of the last row. It waits until no row before it can appear any more, so that a reader which
// continues after it misses none.
func (a *Table) Head(ctx context.Context) (seq int64, err error) {
	a.Settle()
	for end := time.Now().Add(headWait); err == nil; {
		var settled int64
		err = a.readSettled(ctx, func(r *database.Reader, to int64) error {
			if settled = to; seq > 0 {
				return nil
			}
			_, err := database.Row(r, `SELECT COALESCE(MAX(seq), 0) FROM audit_head`, nil, &seq)
			return err
		})
		if settled >= seq || err != nil {
			break
		}
		if time.Now().After(end) {
			seq = settled
			break
		}
		time.Sleep(headWait / 100)
	}
	return seq, err
}

// headWait is longer than nearly every transaction.
const headWait = 500 * time.Millisecond

// readSettled reads the log, with the number up to which no further row can appear. Rows of one lane appear in the order of
// their numbers, but one of another lane may have been numbered earlier and be committed later.
func (a *Table) readSettled(ctx context.Context, use func(r *database.Reader, to int64) error) error {
	to, held, err := a.db.Given(ctx) // before the snapshot: a row up to this number is in it, or its lane is held
	if err != nil {
		return err
	}
	return a.db.Read(ctx, func(r *database.Reader) error {
		if held(newLane) {
			to = 0
		}
		err := r.Each(func(rows *sql.Rows) error {
			var lane, seq int64
			err := rows.Scan(&lane, &seq)
			if held(keyOf(lane)) {
				to = min(to, seq)
			}
			return err
		}, `SELECT id - 1, seq FROM audit_head`)
		if err != nil {
			return err
		}
		return use(r, to)
	})
}

// Next returns the rows after a number, the oldest first, at most most: those of all programs that share the database.
// It reads these rows alone, however long the log is. A reader that continues after the last one misses none.
func (a *Table) Next(ctx context.Context, after int64, most int) (records []*tool.Record, err error) {
	err = a.readSettled(ctx, func(r *database.Reader, to int64) (err error) {
		records, err = database.List(r, func(rows *sql.Rows) (*tool.Record, error) {
			rec, doc := new(tool.Record), ""
			dest := append(into(a.inRow, rec), into(a.inKind, rec, &doc)...)
			if err := rows.Scan(dest...); err != nil {
				return nil, err
			}
			return rec, a.readDetail(doc, rec)
		}, `SELECT `+a.rowNames+`, `+a.kindNames+`, detail FROM audit JOIN audit_kind ON audit_kind.id = audit.kind
			WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?`, after, to, most)
		return err
	})
	return records, err
}

// Changed returns a channel that is closed when this program has added rows; see tool.Changing. It does not report rows
// that others add.
func (a *Table) Changed() <-chan struct{} { return a.grown.Changed() }

// A query is a filter over one state of the log.
type query struct {
	*database.Reader
	*layout
	f            audit.Filter
	kinds        map[int64]*tool.Record // those that match the filter
	in           string                 // the same as the last condition of a query; empty for all
	args         []any                  // of the condition
	since, until int64
}

// span opens a query. If no kind of call matches, there is nothing to ask.
func (a *Table) span(ctx context.Context, f audit.Filter, use func(*query) error) error {
	return a.read(ctx, func(r *database.Reader) error {
		q := &query{
			Reader: r, layout: a.layout, f: f, kinds: map[int64]*tool.Record{},
			since: math.MinInt64 / dayLength * dayLength, until: math.MaxInt64 / dayLength * dayLength,
		}
		if !f.Since.IsZero() {
			q.since = database.Micros(f.Since)
		}
		if !f.Until.IsZero() {
			q.until = database.Micros(f.Until)
		}
		if err := q.findKinds(); err != nil || len(q.kinds) == 0 {
			return err
		}
		return use(q)
	})
}

func (q *query) findKinds() error {
	all, err := q.readAllKinds(q.Reader)
	if err != nil {
		return err
	}
	f := &q.f
	of := audit.Filter{ // the part of the filter that kinds decide
		Tool: f.Tool, Source: f.Source, Caller: f.Caller, Door: f.Door, Outcome: f.Outcome, Code: f.Code,
		Kind: f.Kind, Counts: f.Counts,
	}
	for id, k := range all {
		if of.Fits(k) {
			q.kinds[id] = k
		}
	}
	if len(q.kinds) == len(all) {
		return nil
	}
	var where []string
	for column, want := range map[string]string{
		"tool": f.Tool, "source": f.Source, "caller": f.Caller, "door": f.Door, "outcome": string(f.Outcome),
		"code": string(f.Code),
	} {
		if want != "" {
			where, q.args = append(where, column+` = ?`), append(q.args, want)
		}
	}
	switch f.Kind {
	case tool.OperatorCall, tool.LateOutcome:
		where = append(where, `class = '`+f.Kind+`'`)
	case audit.OnlyCalls:
		where = append(where, `class <> '`+tool.OperatorCall+`'`)
	}
	if f.Counts {
		where = append(where, `class <> '`+tool.LateOutcome+`'`)
	}
	q.in = ` AND kind IN (SELECT id FROM audit_kind WHERE ` + strings.Join(where, ` AND `) + `)`
	return nil
}

// readAllKinds returns the kinds by their ids.
func (l *layout) readAllKinds(r *database.Reader) (map[int64]*tool.Record, error) {
	kinds := map[int64]*tool.Record{}
	err := r.Each(func(rows *sql.Rows) error {
		var id int64
		var k tool.Record
		err := rows.Scan(exactly(into(l.inKind, &k, &id))...)
		kinds[id] = &k
		return err
	}, `SELECT `+l.kindNames+`, id FROM audit_kind`)
	return kinds, err
}

// addUp visits sums over all calls of the filter: first the calls that no sum in the database covers, then the sums.
func addUp[V any](
	ctx context.Context, a *Table, f audit.Filter, t tally[V], visit func(k *tool.Record, key sumKey, sum V),
) error {
	f.Counts = true
	return a.span(ctx, f, func(q *query) error {
		s := newSums()
		from, to, err := q.apart(func(id int64, r *tool.Record, doc string) (err error) {
			if t.touches {
				err = readTouches(doc, r)
			}
			s.add(id, r)
			return err
		})
		if err != nil {
			return err
		}
		for key, sum := range t.of(s) {
			visit(q.kinds[key.kind], key, sum)
		}
		return q.Each(func(rows *sql.Rows) error {
			var key sumKey
			var sum V
			err := rows.Scan(t.into(&key, &sum)...)
			if k := q.kinds[key.kind]; k != nil && err == nil {
				visit(k, key, sum)
			}
			return err
		}, `SELECT MAX(day), `+t.keys+`, `+t.sums+` FROM `+t.table+` WHERE day >= ? AND day <= ?`+q.in+
			` GROUP BY `+t.keys+t.by, q.with(from, to)...)
	})
}

// with returns the arguments of a query that ends with the condition about kinds.
func (q *query) with(args ...any) []any { return append(args, q.args...) }

// apart visits, one by one, the calls that no sum covers: those of days that the filter covers in part, and all if it
// asks for a session, a run or a parent. It returns the days, both included, whose sums cover the others.
func (q *query) apart(visit func(kind int64, r *tool.Record, doc string) error) (from, to int64, err error) {
	if q.f.Session != "" || q.f.Run != "" || q.f.Parent != "" {
		return 1, 0, q.rows(0, math.MaxInt64, q.since, q.until, "", visit)
	}
	from, to = dayOf(q.since-1)+1, dayOf(q.until)-1
	edges := [][2]int64{{q.since, from * dayLength}, {(to + 1) * dayLength, q.until}}
	if from > to { // it covers no whole day
		from, to, edges = 1, 0, [][2]int64{{q.since, q.until}}
	}
	for _, e := range edges {
		if e[0] >= e[1] {
			continue
		}
		lo, hi, err := q.bounds(e[0], e[1])
		if err == nil && hi > 0 {
			err = q.rows(lo, hi, e[0], e[1], "", visit)
		}
		if err != nil {
			return 1, 0, err
		}
	}
	return from, to, nil
}

// readTouches reads only the paths in a detail.
func readTouches(doc string, r *tool.Record) error {
	return strictjson.Unmarshal([]byte(doc), &r.Touches)
}

// bounds returns the range of rows that contains those of the days of a period; 0 if there are none.
func (q *query) bounds(since, until int64) (lo, hi int64, err error) {
	_, err = database.Row(q, `SELECT COALESCE(MIN(first_seq), 0), COALESCE(MAX(last_seq), 0) FROM audit_day `+
		`WHERE day >= ? AND day <= ?`+q.in, q.with(dayOf(since), dayOf(until-1)), &lo, &hi)
	return lo, hi, err
}

// rows visits the rows of the log that match the filter.
func (q *query) rows(
	lo, hi, since, until int64, order string, visit func(kind int64, r *tool.Record, doc string) error,
) error {
	where, args := q.where(lo, hi, since, until)
	run := database.Plain(q.f.Run, database.MaxName)
	return q.Each(func(rows *sql.Rows) error {
		var id int64
		var r tool.Record
		var doc string
		if err := rows.Scan(into(q.inRow, &r, &id, &doc)...); err != nil {
			return err
		}
		if q.kinds[id] == nil {
			return tool.Errorf(tool.CodeUnavailable,
				"row %d of the audit log refers to nothing; see `toolpost audit verify`", r.Seq)
		}
		if run != "" {
			var of struct {
				Run string `json:"run"`
			}
			if err := strictjson.Unmarshal([]byte(doc), &of); err != nil || of.Run != run {
				return err
			}
		}
		return visit(id, &r, doc)
	}, `SELECT `+q.rowNames+`, kind, detail FROM audit`+where+order, args...)
}

// where returns the condition of the rows that match the filter, with its arguments. For a run it excludes most rows of
// others: the rest may contain the text elsewhere.
func (q *query) where(lo, hi, since, until int64) (text string, args []any) {
	text, args = ` WHERE seq >= ? AND seq <= ? AND at >= ? AND at < ?`, []any{lo, hi, since, until}
	if q.f.Session != "" {
		text, args = text+` AND session = ? AND session <> ''`, append(args, database.Plain(q.f.Session, database.MaxName))
	}
	if q.f.Parent != "" {
		text, args = text+` AND parent = ? AND parent <> ''`, append(args, database.Plain(q.f.Parent, database.MaxName))
	}
	if run := database.Plain(q.f.Run, database.MaxName); run != "" {
		text, args = text+` AND detail LIKE ? ESCAPE '!'`, append(args, likeMember("run", run))
	}
	return text + q.in, q.with(args...)
}

// reach returns the range of rows that contains those of the filter; hi is 0 if there are none. Those of a session, a
// run or a parent may be anywhere, and an index finds them.
func (q *query) reach() (lo, hi int64, err error) {
	if q.f.Session != "" || q.f.Run != "" || q.f.Parent != "" {
		return 0, math.MaxInt64, nil
	}
	return q.bounds(q.since, q.until)
}

// likeMember returns the LIKE pattern, with ! as the escape character, of documents that have a member with this text.
func likeMember(name, text string) string {
	member := strictjson.AppendString(strictjson.AppendName(nil, name), text)
	return `%` + strings.NewReplacer(`!`, `!!`, `%`, `!%`, `_`, `!_`).Replace(string(member)) + `%`
}
