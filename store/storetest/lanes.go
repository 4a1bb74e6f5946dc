package storetest

import (
	"context"
	"database/sql"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"toolpost/engine/audit"
	"toolpost/store"
	"toolpost/tool"
)

func anotherKey() ([]byte, error) { return []byte("another key"), nil }

// lanes opens a database by two programs, each with a key of its own.
func (k Kind) lanes(t testing.TB, address string) (mine, other *store.DB) {
	t.Helper()
	return k.lanesThatKeep(t, address, 0)
}

func (k Kind) lanesThatKeep(t testing.TB, address string, keep time.Duration) (mine, other *store.DB) {
	t.Helper()
	o := options()
	o.Keep = keep
	mine = k.openWith(t, address, o)
	o.Key = anotherKey
	return mine, k.openWith(t, address, o)
}

// ofLanes makes a log of two lanes with several anchors each. No program has it open.
func (k Kind) ofLanes(t testing.TB, rng *rand.Rand) (address string) {
	t.Helper()
	address = k.New(t)
	for range 3 {
		mine, other := k.lanes(t, address)
		for range 2 {
			add(t, mine, random(rng))
			add(t, other, random(rng))
		}
		add(t, mine, random(rng)) // it knows of the other lane by now
		works(t, mine.Close())
		works(t, other.Close())
	}
	return address
}

// A program that can write to the database, and has the key of one lane, cannot change what other lanes have seen of it.
func anchored(t *testing.T, k Kind) {
	rng := rand.New(rand.NewPCG(21, 22))
	address := k.ofLanes(t, rng)
	raw, db := k.Raw(t, address), k.open(t, address)
	report := sound(t, db)
	holds(t, len(report.Lanes) == 2 && report.Lanes[0].Own && !report.Lanes[1].Own && report.Lanes[0].Rows == 9 &&
		report.Lanes[1].Rows == 6 && report.Anchor.Seq >= 6 &&
		report.Lanes[0].Key != report.Lanes[1].Key, "%+v", report)
	tables := readTables(t, raw, append(logTables(), "audit_anchor")...)
	removed := []string{
		`DELETE FROM audit WHERE lane = 1`, `DELETE FROM audit_head WHERE id = 2`,
		`DELETE FROM audit_kind WHERE id > 1000000`,
		`DELETE FROM audit_day WHERE kind > 1000000`, `DELETE FROM audit_took WHERE kind > 1000000`,
		`DELETE FROM audit_path WHERE kind > 1000000`,
	}
	for _, c := range []struct {
		change []string
		want   string
	}{
		{removed, "is of lane 1, which is missing"},
		{append(removed, `DELETE FROM audit_anchor WHERE lane = 1`), "something is missing or was added"},
		{[]string{`DELETE FROM audit_anchor WHERE seq = (SELECT MAX(seq) FROM audit_anchor)`}, "its head names anchor"},
		{[]string{`DELETE FROM audit_anchor`}, "its head names anchor"},
		{
			[]string{`UPDATE audit SET took = took + 1 WHERE seq = (SELECT MAX(seq) FROM audit WHERE lane = 1)`},
			"in lane 1 was changed; rows up to",
		},
		{[]string{`UPDATE audit_anchor SET lane = 1 - lane`}, "was changed"},
	} {
		run(t, raw, c.change...)
		found := findings(t, db)
		holds(t, strings.Contains(found, c.want), "%s: found %q, want %q", c.change[0], found, c.want)
		putBack(t, raw, tables...)
	}
	sound(t, db)
	rewritten(t, k, address, raw, db)
}

// rewritten: the owner of a lane goes back to an earlier state of it, and on in another way.
func rewritten(t *testing.T, k Kind, address string, raw *sql.DB, db *store.DB) {
	t.Helper()
	early := readTables(t, raw, logTables()...)
	goOn := func(calls ...string) {
		t.Helper()
		_, other := k.lanes(t, address)
		for _, call := range calls {
			r := full()
			r.Call = call
			add(t, other, r)
		}
		works(t, other.Close())
	}
	goOn("one", "two")
	sound(t, db)
	putBack(t, raw, early...)
	goOn("another", "and", "one more")
	found := findings(t, db)
	holds(t, strings.Contains(found, "anchor"), "a lane whose owner has rewritten it: %q", found)
}

// logTables lists the tables of the log without its anchors.
func logTables() []string {
	return []string{"audit", "audit_kind", "audit_day", "audit_took", "audit_path", "audit_head"}
}

func findings(t testing.TB, db *store.DB) (text string) {
	t.Helper()
	for _, f := range must[*audit.Report](t)(db.Audit().Verify(t.Context())).Findings {
		text += f.What + "\n"
	}
	return text
}

// While a transaction of one lane is under way, another lane goes on, and a reader that follows the log waits for the
// row that was numbered first.
func overlapping(t *testing.T, k Kind) {
	address := k.New(t)
	mine, other := k.lanes(t, address)
	raw := k.Raw(t, address)
	add(t, mine, full())
	add(t, other, full())
	add(t, mine, full())
	until(t, func() bool { // so that no program writes by itself
		return count(t, raw, `SELECT COUNT(*) FROM audit_head h JOIN audit_anchor x
			ON x.seq = h.anchor AND x.row_seq = h.seq`) == 2
	})
	head := must[int64](t)(other.Audit().Head(t.Context()))
	tx := must[*sql.Tx](t)(raw.BeginTx(t.Context(), nil))
	works(t, errOf(tx.ExecContext(t.Context(), `SELECT 1 FROM audit_head WHERE id = 1 FOR UPDATE`)))
	done := make(chan error, 1)
	go func() { done <- mine.Audit().Append(context.Background(), full(), true) }()
	until(t, func() bool { return count(t, raw, `SELECT last_value FROM audit_seq`) == int(head)+1 })
	add(t, other, full())
	follow := func() (seqs []int64) {
		for _, r := range must[[]*tool.Record](t)(other.Audit().Next(t.Context(), head, 10)) {
			seqs = append(seqs, r.Seq)
		}
		return seqs
	}
	equal(t, follow(), nil, "what a follower sees before the first row is there")
	works(t, tx.Rollback())
	works(t, <-done)
	until(t, func() bool { return len(follow()) == 2 })
	equal(t, follow(), []int64{head + 1, head + 2})
	sound(t, other)
}

// The rows of a lane whose programs are gone are removed when the last of them is too old. A program that comes back
// goes on.
func goneLanes(t *testing.T, k Kind) {
	address := k.New(t)
	mine, other := k.lanesThatKeep(t, address, time.Nanosecond)
	raw, today := k.Raw(t, address), time.Now().UTC().Truncate(24*time.Hour)
	at := func(day int) *tool.Record {
		r := full()
		r.Time = today.AddDate(0, 0, day).Add(time.Hour)
		return r
	}
	add(t, mine, at(10))
	add(t, other, at(10), at(11))
	add(t, mine, at(14))
	anchored := func() {
		t.Helper()
		until(t, func() bool { return count(t, raw, `SELECT COUNT(*) FROM audit_head WHERE anchor = 0`) == 0 })
	}
	anchored()
	prune := func(day int, want int64) *audit.Report {
		t.Helper()
		before := today.AddDate(0, 0, day).Add(12 * time.Hour)
		equal(t, must[int64](t)(mine.Audit().Prune(t.Context(), before)), want, "rows removed")
		sound(t, other)
		return sound(t, mine)
	}
	prune(11, 1) // a row of the other lane is young enough, so its program may still remove the rest
	report := prune(12, 2)
	holds(t, report.Rows == 1 && len(report.Lanes) == 2 && report.Lanes[1].Closed, "%+v", report)
	add(t, other, at(14)) // of a kind that it remembers
	report = sound(t, mine)
	holds(t, report.Rows == 2 && !report.Lanes[1].Closed, "%+v", report)
	anchored()
	prune(1000, 2) // and nearly all anchors
	holds(t, count(t, raw, `SELECT COUNT(*) FROM audit_anchor`) <= 4, "anchors are left")
	prune(1000, 0)
	add(t, mine, full())
	add(t, other, full())
	equal(t, sound(t, mine).Rows, 2)
}

// A program that can write to the database has a lane of its own for the asking. It removes what is old in other lanes, and is
// found if that was not old.
func forgedCuts(t *testing.T, k Kind) {
	far := time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name string
		make func(mine, other *store.DB)
		want string
	}{
		{"of a lane that was alone", func(mine, other *store.DB) {
			add(t, mine, full(), full(), full())
			young := full() // it removes no rows of its own
			young.Time = far.AddDate(0, 0, 2)
			add(t, other, young)
		}, ""},
		{"of a lane with anchors", func(mine, other *store.DB) {
			add(t, mine, full())
			add(t, other, full())
			add(t, mine, full(), full())
			works(t, mine.Close())
		}, "rows up to 4 of lane 0 were removed before their time, by lane 1"},
	} {
		address := k.New(t)
		mine, other := k.lanes(t, address)
		c.make(mine, other)
		must[int64](t)(other.Audit().Prune(t.Context(), far))
		reader := k.open(t, address)
		if c.want == "" {
			equal(t, sound(t, reader).Rows, 4, c.name)
			continue
		}
		add(t, reader, full()) // it does not sign what was done to it
		found := findings(t, reader)
		holds(t, strings.Contains(found, c.want), "%s: found %q, want %q", c.name, found, c.want)
	}
}
