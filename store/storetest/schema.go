package storetest

import (
	"context"
	"database/sql"
	_ "embed"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"toolpost/engine/audit"
	"toolpost/engine/session"
	"toolpost/store"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// version5 is a store as a program of version 5 left it: part of its log had been cut off, and a call was running when
// the program ended.
//
//go:embed testdata/v5.sql
var version5 string

const headOfVersion5 = "24:517891d649bbfe6dce01f63035aed77fc0b8343aa1bf79952c60d2ca54deb7a1"

func (k Kind) version5(t *testing.T) (address string) {
	t.Helper()
	address = k.New(t)
	dump := version5
	if k.Dump != nil {
		dump = k.Dump(dump)
	}
	run(t, k.Raw(t, address), dump)
	return address
}

func earlierLog(t *testing.T, k Kind) {
	db := k.open(t, k.version5(t))
	head := must[audit.Point](t)(audit.ParsePoint(headOfVersion5))
	report := sound(t, db, head)
	holds(t, report.Rows == 16 && report.Cut.Seq == 8 && report.Head == head && report.Signed, "%+v", report)
	records := logOf(t, db, audit.Filter{Outcome: tool.OutcomeFailed})
	needs(t, len(records) == 1, "%d records", len(records))
	r := records[0]
	got := fmt.Sprintln(r.Seq, r.Asked, string(r.Args), len(r.Touches.Reads), r.Omitted, r.Lease, r.Key, r.Replay,
		r.Cached, r.DryRun, r.Walls,
		r.Code, r.Reason, r.Lost, r.Duration, r.Time.Format("15:04:05.000000"), strings.Count(r.Digest, "ab"))
	want := `21 file.read {"path":"it's \\ \"a\"\n"} 32 12 l1 k1 true true true no_network tool_error ValueError 5 579.182ms 13:02:03.000004 32` + "\n"
	equal(t, got, want)
	until(t, func() bool { return len(must[[]*tool.Record](t)(db.Audit().Recover(t.Context()))) > 0 })
	lost := logOf(t, db, audit.Filter{Outcome: tool.OutcomeLost})
	holds(t, len(lost) == 1 && lost[0].Call == "open" && lost[0].Caller == "ada" && lost[0].DryRun &&
		len(lost[0].Touches.Writes) == 1, "the call that was running: %+v", lost)
	add(t, db, full(), full())
	equal(t, sound(t, db, head).Rows, 19)
	isAt(t, get(t, db.Sessions(), "s"), 2, object{"a": object{"b": json.Number("1"), "c": "x"}})
}

// A new store gets all columns at once, and one of an earlier version gets them step by step.
func sameTables(t *testing.T, k Kind) {
	var all [2][]string
	for i, address := range []string{k.version5(t), k.New(t)} {
		add(t, k.open(t, address), full())
		all[i] = listOf(t, k.Raw(t, address), k.Schema)
	}
	needs(t, len(all[0]) > 40, "%d parts of a schema", len(all[0]))
	equal(t, strings.Join(all[1], "\n"), strings.Join(all[0], "\n"))
}

// listOf returns the texts that a query returns.
func listOf(t *testing.T, raw *sql.DB, query string) (all []string) {
	t.Helper()
	rows := must[*sql.Rows](t)(raw.QueryContext(t.Context(), query))
	defer rows.Close()
	for rows.Next() {
		var text string
		works(t, rows.Scan(&text))
		all = append(all, strings.Join(strings.Fields(text), " "))
	}
	works(t, rows.Err())
	return all
}

// later returns the columns of a log that has grown twice. Their values alias those of other columns, so that a record
// has room for them.
func later() audit.Table {
	return append(audit.Columns(),
		audit.Column{
			Name: "region", Part: audit.Shared, Since: 6, Value: func(r *tool.Record) any { return &r.Reason },
		},
		audit.Column{Name: "cost", Part: audit.Row, Since: 6, Value: func(r *tool.Record) any { return &r.Lost }},
		audit.Column{
			Name: "zone", Stored: "place", Part: audit.Row, Since: 7, Value: func(r *tool.Record) any { return &r.Run },
		},
		audit.Column{Name: "hint", Since: 18, Value: func(r *tool.Record) any { return &r.Asked }})
}

func moreColumns(t *testing.T, k Kind) {
	for name, address := range map[string]string{"grown": k.version5(t), "new": k.New(t)} {
		o := options()
		o.Columns = later()
		db := k.openWith(t, address, o)
		var points []audit.Point
		if name == "grown" {
			points = append(points, must[audit.Point](t)(audit.ParsePoint(headOfVersion5)))
		}
		sound(t, db, points...)
		bare := full()
		bare.Reason, bare.Lost, bare.Run, bare.Asked = "", 0, "", ""
		add(t, db, full(), bare)
		sound(t, db, points...)
		raw := k.Raw(t, address)
		for _, change := range []string{
			`UPDATE audit_kind SET region = 'x' WHERE region = ''`,
			`UPDATE audit_kind SET region = '' WHERE region <> ''`,
			`UPDATE audit SET cost = cost + 1 WHERE cost = 0`, `UPDATE audit SET cost = 0 WHERE cost <> 0`,
			`UPDATE audit SET place = 'x' WHERE place = ''`, `UPDATE audit SET place = '' WHERE place <> ''`,
			`UPDATE audit SET detail = REPLACE(detail, 'hint', 'hind')`,
		} {
			tables := readTables(t, raw, "audit", "audit_kind")
			run(t, raw, change)
			reports(t, db, name+": "+change)
			putBack(t, raw, tables...)
		}
		sound(t, db, points...)
		equal(t, count(t, raw, `SELECT COUNT(*) FROM calls WHERE region = 'ValueError' AND cost = 5 AND place = 'r1'`),
			1, "%s: rows of the view", name)
		e := tool.AsError(errOf(k.open(t, address).Audit().Verify(t.Context())))
		holds(t, e != nil && e.Reason == "store_newer", "%s: a program that knows no such columns: %v", name, e)
	}
}

// A program must not work on tables that it does not know, nor report them as damaged.
func laterStore(t *testing.T, k Kind) {
	address, before := k.made(t)
	add(t, before, full())
	raw := k.Raw(t, address)
	run(t, raw, `INSERT INTO toolpost_schema (version) VALUES (1000)`)
	db := k.open(t, address)
	for what, err := range map[string]error{
		"read":   errOf(db.Sessions().Get(t.Context(), "ada", "s")),
		"verify": errOf(db.Audit().Verify(t.Context())),
		"write":  db.Audit().Append(t.Context(), full(), false),
		"note":   db.Audit().Begin(t.Context(), full()),
	} {
		e := tool.AsError(err)
		holds(t, e != nil && e.Code == tool.CodeUnavailable && e.Reason == "store_newer" &&
			strings.Contains(e.Message, "version 1000") && strings.Contains(e.Message, "update this program"),
			"%s: %v", what, err)
	}
	equal(t, count(t, raw, `SELECT COUNT(*) FROM toolpost_schema WHERE version > 1000`), 0, "steps were taken")
}

// Programs are upgraded one by one if a step says that earlier ones go on.
func upgrades(t *testing.T, k Kind) {
	address, before := k.made(t)
	with := func(steps ...string) *store.DB {
		o := options()
		o.More = steps
		return k.openWith(t, address, o)
	}
	const expands = "-- expands\nALTER TABLE session ADD COLUMN hue TEXT NOT NULL DEFAULT '';\n"
	add(t, before, full())
	after := with(expands)
	together(2, func(i int) {
		for range 20 {
			db := []*store.DB{before, after}[i]
			gives(t, db.Audit().Append(context.Background(), full(), true), success)
			gives(t, db.Sessions().Patch(context.Background(), "ada", "s", []object{{name("%d", i): true}}), success)
		}
	})
	started := k.open(t, address)
	add(t, started, full())
	equal(t, sound(t, started).Rows, 42)
	const readable = "-- readable\nALTER TABLE session ADD COLUMN size BIGINT NOT NULL DEFAULT 0;\n"
	const contracts = "-- contracts\nALTER TABLE session DROP COLUMN hue;\n"
	raw, latest := k.Raw(t, address), `SELECT MAX(version) FROM toolpost_schema`
	version := count(t, raw, latest)
	if k.Far { // its programs are listed
		add(t, with(expands, contracts), full())
		equal(t, count(t, raw, latest), version, "a step that takes something from a program that is alive waits")
		e := tool.AsError(with(expands, readable).Audit().Append(t.Context(), full(), true))
		holds(t, e != nil && e.Reason == "store_older" && strings.Contains(e.Message, "stop them first"), "%v", e)
	}
	for _, db := range []*store.DB{before, after, started} {
		works(t, db.Close())
	}
	if k.Far {
		until(t, func() bool { return with(expands, readable).Audit().Append(t.Context(), full(), true) == nil })
	} else {
		add(t, with(expands, readable), full())
	}
	reader := k.open(t, address)
	isAt(t, get(t, reader.Sessions(), "s"), 40, object{"0": true, "1": true})
	e := tool.AsError(reader.Audit().Append(t.Context(), full(), true))
	holds(t, e != nil && e.Reason == "store_newer", "%v", e)
}

// remembered is the number of versions of a session that are kept at least.
const remembered = 100

func earlierVersions(t *testing.T, k Kind) {
	address, db := k.made(t)
	s, raw := db.Sessions(), k.Raw(t, address)
	rng := rand.New(rand.NewPCG(13, 14))
	model := []object{{}} // the state at each version
	for n := range 220 {
		next, version := object{}, int64(0)
		if n%110 == 109 {
			version = must[int64](t)(s.Reset(t.Context(), "ada", "s"))
			kept := count(t, raw, `SELECT COUNT(*) FROM session_patch`)
			holds(t, kept <= remembered, "%d versions are remembered", kept)
		} else {
			p := randomPatch(rng, 2)
			p[name("k%d", n)] = true // each version contains something of all before it
			next = strictjson.Merge(model[n], p)
			version = must[int64](t)(s.PatchAt(t.Context(), "ada", "s", int64(n), []object{p}))
		}
		model = append(model, next)
		needs(t, version == int64(n+1), "version %d after %d changes", version, n+1)
		if n%40 == 0 {
			sameAsModel(t, s, model)
		}
	}
	sameAsModel(t, s, model)
	for _, version := range []int64{-1, 0, 10, 221} {
		gives(t, errOf(s.At(t.Context(), "ada", "s", version)), tool.CodeNotFound, "version %d", version)
	}
	isAt(t, must[session.State](t)(s.At(t.Context(), "ada", "other", 0)), 0, object{}, "nobody has changed it")
}

// sameAsModel checks the versions that must be kept, some in the middle and both ends.
func sameAsModel(t *testing.T, s *store.SessionTable, model []object) {
	t.Helper()
	last := len(model) - 1
	for _, version := range []int{last, last - 1, last - 7, last - 50, last - remembered + 1} {
		if version <= 0 {
			continue
		}
		st := must[session.State](t)(s.At(t.Context(), "ada", "s", int64(version)))
		isAt(t, st, int64(version), model[version], "version %d of %d", version, last)
		needs(t, !t.Failed() && !st.Changed.IsZero(), "version %d of %d changed at %v", version, last, st.Changed)
	}
}

func watching(t *testing.T, k Kind) {
	db, otherDB := k.two(t)
	s, other := db.Sessions(), otherDB.Sessions()
	const changes = remembered // as many as cannot be missed, however late a reader looks
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 1; n <= changes && !t.Failed(); n++ {
			gives(t, other.Patch(context.Background(), "ada", "s", []object{{"n": name("%d", n)}}), success)
		}
	})
	defer wg.Wait()
	for seen := int64(0); seen < changes && !t.Failed(); {
		st, more, err := s.Next(t.Context(), "ada", "s", seen)
		works(t, err)
		if !more {
			continue
		}
		seen++
		isAt(t, st, seen, object{"n": name("%d", seen)})
	}
	wg.Wait()
	for _, c := range []struct {
		what, name    string
		seen, version int64
		more          bool
	}{
		{"there is nothing more", "s", changes, 0, false},
		{"it was removed", "gone", 5, 0, true},
		{"it was removed and came again", "s", changes + 5, 1, true},
	} {
		st, more, err := s.Next(t.Context(), "ada", c.name, c.seen)
		holds(t, more == c.more && st.Version == c.version && err == nil, "%s: %+v, %v, %v", c.what, st, more, err)
	}
}

// A store of the previous version, whose history has no marks, is brought up to date: no state changes, and versions
// that can be restored are right.
func withoutMarks(t *testing.T, k Kind) {
	address, db := k.made(t)
	before := db.Sessions()
	rng := rand.New(rand.NewPCG(15, 16))
	const changes = 110
	model := []object{{}}
	for n := range changes {
		p := randomPatch(rng, 2)
		model = append(model, strictjson.Merge(model[n], p))
		works(t, before.Patch(t.Context(), "ada", "s", []object{p}))
	}
	must[int64](t)(before.PatchAt(t.Context(), "ada", "small", 0, []object{{"a": "b"}}))
	for table := range strings.FieldsSeq("audit audit_kind audit_head audit_day audit_took audit_path audit_open " +
		"session session_base session_patch lease outcome asset") {
		run(t, k.Raw(t, address), `ALTER TABLE `+table+` DROP COLUMN tenant`)
	}
	run(t, k.Raw(t, address),
		`DROP TABLE session_mark`, `DROP TABLE token`, `DROP TABLE asset_caller`, `DROP TABLE job`,
		`DROP TABLE job_event`, `ALTER TABLE lease DROP COLUMN caller`, `DROP TABLE program`, `DROP TABLE pin`,
		`DROP TABLE pin_change`, `DROP VIEW calls`, `ALTER TABLE audit_kind DROP COLUMN class`, `DROP INDEX audit_parent`, `ALTER TABLE audit DROP COLUMN parent`,
		`DROP TABLE plan`, `DROP TABLE plan_tool`, `DROP TABLE approval`, `DROP TABLE shared_key`, `DROP TABLE quota`, `DROP TABLE quota_share`,
		`DROP TABLE fleet_ticket`, `DROP TABLE fleet_node`, `DROP TABLE fleet_key`, `DROP TABLE fleet_share`, `DROP TABLE connection`,
		`ALTER TABLE audit DROP COLUMN lane`, `ALTER TABLE audit DROP COLUMN number`,
		`ALTER TABLE audit_head DROP COLUMN number`, `ALTER TABLE audit_head DROP COLUMN cut_number`,
		`ALTER TABLE audit_head DROP COLUMN public`, `ALTER TABLE audit_head DROP COLUMN anchor`,
		`ALTER TABLE audit_head DROP COLUMN anchor_hash`, `DROP TABLE audit_anchor`,
		`ALTER TABLE toolpost_schema DROP COLUMN reads`, `ALTER TABLE toolpost_schema DROP COLUMN writes`,
		`CREATE VIEW calls AS SELECT seq FROM audit`,
		`ALTER TABLE outcome DROP COLUMN lost_at`, `ALTER TABLE outcome DROP COLUMN call`, `DELETE FROM toolpost_schema WHERE version > 2`)
	after := k.open(t, address).Sessions()
	isAt(t, get(t, after, "s"), changes, model[changes])
	for version := range changes + 1 {
		st, err := after.At(t.Context(), "ada", "s", int64(version))
		if tool.CodeOf(err) == tool.CodeNotFound && version < changes {
			continue
		}
		works(t, err)
		isAt(t, st, int64(version), model[version], "version %d", version)
	}
	isAt(t, must[session.State](t)(after.At(t.Context(), "ada", "small", 1)), 1, object{"a": "b"})
}
