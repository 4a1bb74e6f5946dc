package auditlog_test

import (
	"cmp"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"toolpost/internal/kit"
	"toolpost/store"
	"toolpost/store/sqlite"
	"toolpost/tool"
)

func open(t *testing.T, path, key string) *store.DB {
	return kit.Must(sqlite.Open(path, store.Options{
		Key: func() ([]byte, error) { return []byte(key), nil }, Keep: 72 * time.Hour,
	}))(t)
}

func call() *tool.Record { return &tool.Record{Time: time.Now(), Tool: "t", Outcome: tool.OutcomeOK} }

func record(t *testing.T, db *store.DB, n int) {
	for range n {
		kit.OK(t, db.Audit().Append(t.Context(), call(), true))
	}
}

// A program that can write to the database may add a lane of its own. With that it cannot hide the rows of others, nor remove a
// lane. With the key of another lane it cannot change what was anchored since either.
func TestALaneOfAStrangerHidesNothing(t *testing.T) {
	const (
		noRows  = `DELETE FROM audit WHERE lane = 1`
		noKinds = `DELETE FROM audit_kind WHERE id >> 40 = 1`
	)
	const lastAnchor = `SELECT seq, 0, hash FROM audit_anchor ORDER BY seq DESC LIMIT 1`
	now := time.Now()
	gone := func(lane string) []string {
		return []string{
			`DELETE FROM audit WHERE lane = ` + lane, `DELETE FROM audit_head WHERE id = ` + lane + ` + 1`,
			`DELETE FROM audit_kind WHERE id >> 40 = ` + lane,
		}
	}
	for _, c := range []struct {
		name   string
		others bool // there is a second lane, which has anchors
		key    string
		forge  func(evil *store.DB) error
		want   string
	}{
		{"the first rows of a log that was alone", false, "evil", func(evil *store.DB) error {
			return evil.Audit().Forge("cut", 0, now, `SELECT seq, seq, hash FROM audit WHERE seq = 2`,
				`DELETE FROM audit WHERE seq <= 2`)
		}, "rows up to 2 of lane 0 were removed before their time, by lane 1"},
		{"all rows of a lane", true, "evil", func(evil *store.DB) error {
			return evil.Audit().Forge("cut", 1, now.Add(1e6*time.Hour),
				`SELECT seq, number, hash FROM audit WHERE lane = 1 ORDER BY seq DESC LIMIT 1`,
				append(gone("1")[:1], gone("1")[2])...)
		}, "of lane 1 were removed before their time, by lane 2"},
		{"a lane, with all anchors", true, "evil", func(evil *store.DB) error {
			return evil.Audit().Forge("trim", 1, now, lastAnchor, append(gone("1"), `DELETE FROM audit_anchor`)...)
		}, "anchors of lane 0 are missing"},
		{"a lane, with the anchors before one that a lane names", true, "evil", func(evil *store.DB) error {
			return evil.Audit().Forge("trim", 1, now,
				`SELECT seq, 0, hash FROM audit_anchor WHERE seq = (SELECT anchor - 1 FROM audit_head WHERE id = 1)`,
				append(gone("1"), `DELETE FROM audit_anchor WHERE seq < (SELECT anchor FROM audit_head WHERE id = 1)`)...)
		}, "were removed before their time, by lane 2"},
		{"the age of an anchor", true, "evil", func(evil *store.DB) error {
			return evil.Audit().Forge("head", 2, now.Add(-1e6*time.Hour), lastAnchor)
		}, "something is missing or was added"},
		{"rows of its own that were anchored", true, "other", func(evil *store.DB) error {
			return cmp.Or(
				evil.Audit().Resign(noRows, noKinds, `UPDATE audit_head SET seq = 0, number = 0, hash = zeroblob(32) WHERE id = 2`),
				evil.Audit().Append(t.Context(), call(), true),
				evil.Audit().Forge("head", 1, time.Now(), `SELECT seq, 0, hash FROM audit WHERE lane = 1`))
		}, "is another than anchor"},
		{"the same, as if they were old", true, "other", func(evil *store.DB) error {
			return evil.Audit().Resign(noRows, noKinds,
				`UPDATE audit_head SET cut_seq = seq, cut_number = number, cut_hash = hash WHERE id = 2`)
		}, "of lane 1 were removed before their time, by lane 1"},
		{"a row, from queries", false, "evil", func(evil *store.DB) error {
			return evil.Audit().Resign(`UPDATE audit SET kind = CAST(CAST(kind AS TEXT) AS BLOB) WHERE seq = 2`)
		}, `"kind": a value has another type than its column`},
		{"the calls of a tool, from queries", false, "evil", func(evil *store.DB) error {
			return evil.Audit().Resign(`UPDATE audit_kind SET tool = CAST(tool AS BLOB)`)
		}, `"tool": a value has another type than its column`},
		{"a count that is too large", false, "evil", func(evil *store.DB) error {
			return evil.Audit().Resign(`UPDATE audit_took SET n = n + (1 << 62) WHERE kind >> 40 = 0`)
		}, "the durations of " + now.UTC().Format(time.DateOnly)},
	} {
		path := filepath.Join(t.TempDir(), "store.db")
		open := func(key string) *store.DB { return open(t, path, key) }
		record := func(db *store.DB, n int) { record(t, db, n) }
		own := open("own")
		record(own, 3)
		if c.others {
			other := open("other")
			record(other, 2)
			kit.OK(t, other.Close())
			record(own, 1)
		}
		kit.OK(t, own.Close())
		evil := open(c.key)
		record(evil, 1)
		kit.OK(t, c.forge(evil))
		kit.OK(t, evil.Close())
		own = open("own")
		record(own, 1) // it does not sign what was done
		var found string
		for _, f := range kit.Must(own.Audit().Verify(t.Context()))(t).Findings {
			found += f.What + "\n"
		}
		if !strings.Contains(found, c.want) {
			t.Errorf("%s: found %q, want %q", c.name, found, c.want)
		}
		kit.OK(t, own.Close())
	}
}

// A lane that other programs no longer see is not old: it is anchored whether or not they are there, and whatever they say of it.
func TestALaneIsAnchoredWhateverOthersDo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	other, own := open(t, path, "other"), open(t, path, "own")
	record(t, other, 1)
	record(t, own, 1)
	kit.OK(t, own.Close())
	kit.OK(t, other.Audit().Forge("head", 0, time.Now(), `SELECT MAX(seq) + 1, 0, zeroblob(32) FROM audit`))
	kit.OK(t, other.Close())
	raw := kit.SQLite(t, path)
	for _, hide := range []string{``, `DELETE FROM audit_head WHERE id = 1`} {
		kit.Must(raw.ExecContext(t.Context(), hide))(t)
		own = open(t, path, "own")
		record(t, own, 1)
		kit.OK(t, own.Close())
		var anchored bool
		kit.OK(t, raw.QueryRowContext(t.Context(), `SELECT x.row_seq = h.seq FROM audit_head h JOIN audit_anchor x
			ON x.seq = h.anchor WHERE id = 2`).Scan(&anchored))
		if !anchored {
			t.Errorf("%q: the last row has no anchor", hide)
		}
	}
}

// A point that was kept elsewhere is in the log, and not only in what a lane says of its cut.
func TestALaneHasNoPointOfAnother(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	own := open(t, path, "own")
	record(t, own, 3)
	point := kit.Must(own.Audit().Verify(t.Context()))(t).Head
	kit.OK(t, own.Audit().Resign(`DELETE FROM audit`, `DELETE FROM audit_kind`,
		`UPDATE audit_head SET seq = 0, number = 0, hash = zeroblob(32)`))
	record(t, own, 2)
	evil := open(t, path, "evil")
	evil.Audit().Crash() // an anchor of its row, about a second later, would be a finding of its own
	record(t, evil, 1)
	kit.OK(t, evil.Audit().Resign(`DELETE FROM audit WHERE lane = 1`, `DELETE FROM audit_kind WHERE id >> 40 = 1`,
		`UPDATE audit_head SET seq = 3, cut_seq = 3, cut_number = number, hash = x'`+point.Hash+`', cut_hash = x'`+
			point.Hash+`' WHERE id = 2`))
	if r := kit.Must(own.Audit().Verify(t.Context(), point))(t); len(r.Findings) != 1 || r.Findings[0].Seq != 3 {
		t.Errorf("found %+v", r.Findings)
	}
	kit.OK(t, cmp.Or(own.Close(), evil.Close()))
}
