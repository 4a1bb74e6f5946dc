package auditlog_test

import (
	"bytes"
	"cmp"
	"database/sql"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"toolpost/engine/audit"
	"toolpost/internal/kit"
	"toolpost/store"
	"toolpost/store/database"
	"toolpost/store/sqlite"
	"toolpost/tool"
)

// twoLanes makes a log of two lanes, of which the program of the second has ended without an anchor for its last row. Every
// lane counts as silent.
func twoLanes(t *testing.T) (open func(key string) *store.DB, raw *sql.DB) {
	path := filepath.Join(t.TempDir(), "store.db")
	open = func(key string) *store.DB {
		return kit.Must(sqlite.Open(path, store.Options{
			Key: func() ([]byte, error) { return []byte(key), nil }, Silence: time.Nanosecond,
		}))(t)
	}
	own, other := open("own"), open("other")
	record(t, own, 1)
	record(t, other, 1)
	kit.OK(t, other.Close())
	other = open("other")
	record(t, other, 1)
	other.Audit().Crash()
	kit.OK(t, other.Close())
	record(t, own, 1)
	kit.OK(t, own.Close())
	return open, kit.SQLite(t, path)
}

func verified(t *testing.T, db *store.DB) *audit.Report {
	return kit.Must(db.Audit().Verify(t.Context()))(t)
}

func TestLaneOfAProgramThatIsGoneIsClosed(t *testing.T) {
	open, raw := twoLanes(t)
	own := open("own")
	if r := verified(t, own); len(r.Findings) > 0 || r.Lanes[0].Closed || !r.Lanes[1].Closed || r.Lanes[1].Rows != 2 {
		t.Errorf("%+v", r)
	}
	record(t, own, 1)
	kit.OK(t, own.Close())
	var closed int
	kit.OK(t, raw.QueryRowContext(t.Context(),
		`SELECT COUNT(*) FROM audit_anchor WHERE kind = 'close' AND about = 1`).Scan(&closed))
	kit.Equal(t, closed, 1, "anchors that close a lane once")
	other := open("other")
	record(t, other, 1)
	if r := verified(t, other); len(r.Findings) > 0 || r.Lanes[1].Closed {
		t.Errorf("a program that comes back: %+v", r)
	}
	kit.OK(t, other.Close())
}

// What a program wrote just before it was gone has no anchor of its own. Who has its key cannot write it anew all the same, nor
// close the lane again, whether with that key or with that of a lane of its own.
func TestClosedLaneCannotBeRewritten(t *testing.T) {
	for _, c := range []struct {
		rows   int
		closer string
		want   string
	}{
		{0, "", "anchors name rows of lane 1 that it does not have"},
		{1, "", "is another than anchor"},
		{2, "", "is another than anchor"},
		{1, "other", "is another than anchor"},
		{2, "evil", "is another than anchor"},
		{0, "evil", "anchors name rows of lane 1 that it does not have"},
	} {
		open, _ := twoLanes(t)
		evil := open("other")
		record(t, evil, 1) // it is in use
		kit.OK(t, evil.Audit().Resign(
			`DELETE FROM audit WHERE lane = 1 AND number > 1`,
			`UPDATE audit_head SET (seq, number, hash) = (SELECT seq, 1, hash FROM audit WHERE lane = 1) WHERE id = 2`))
		record(t, evil, c.rows)
		evil.Audit().Crash()
		kit.OK(t, evil.Close())
		if c.closer != "" {
			evil = open(c.closer)
			record(t, evil, 1)
			evil.Audit().Crash()
			kit.OK(t, evil.Audit().Forge("close", 1, time.Now(), `SELECT seq, MAX(number), hash FROM audit WHERE lane = 1`))
			kit.OK(t, evil.Close())
		}
		own := open("own")
		kit.Contains(t, fmt.Sprint(verified(t, own).Findings), c.want, c.rows, "rows, closed by", c.closer)
		kit.OK(t, own.Close())
	}
}

// A lane was idle for longer than rows are kept, and its program was gone before it could anchor what it wrote then.
// A stranger cannot remove that as if it were as old as the last anchor.
func TestClosedLaneIsNotCutAsIfItWereOld(t *testing.T) {
	path, now := filepath.Join(t.TempDir(), "store.db"), time.Now()
	open := func(key string) *store.DB {
		return kit.Must(sqlite.Open(path, store.Options{
			Key: func() ([]byte, error) { return []byte(key), nil }, Keep: 72 * time.Hour, Silence: time.Nanosecond,
		}))(t)
	}
	own, other := open("own"), open("other")
	record(t, own, 1)
	kit.OK(t, other.Audit().Forge("head", 1, now.AddDate(0, 0, -10), `SELECT 0, 0, zeroblob(32)`))
	record(t, other, 1)
	other.Audit().Crash()
	record(t, own, 1)
	kit.OK(t, cmp.Or(other.Close(), own.Close()))
	evil := open("evil")
	record(t, evil, 1)
	kit.OK(t, evil.Audit().Forge("cut", 1, time.Now(), `SELECT seq, number, hash FROM audit WHERE lane = 1`,
		`DELETE FROM audit WHERE lane = 1`, `DELETE FROM audit_kind WHERE id >> 40 = 1`))
	kit.OK(t, evil.Close())
	own = open("own")
	kit.Contains(t, fmt.Sprint(verified(t, own).Findings), "of lane 1 were removed before their time, by lane 2")
	kit.OK(t, own.Close())
}

// Two programs of one lane have something to anchor each, and the first of them closes another lane.
func TestRowIsAnchoredOnce(t *testing.T) {
	open, _ := twoLanes(t)
	other := open("other")
	record(t, other, 1)
	other.Audit().Crash()
	kit.OK(t, other.Close())
	first, second := open("own"), open("own")
	record(t, first, 1)
	record(t, second, 1)
	kit.OK(t, cmp.Or(first.Close(), second.Close()))
	own := open("own")
	kit.Equal(t, fmt.Sprint(verified(t, own).Findings), "[]")
	kit.OK(t, own.Close())
}

// A program comes back to a lane that another one has cut. If its first group is done again, it goes on after the cut all the same.
func TestCutIsAdoptedByAGroupThatIsDoneAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	open := func(key string) *store.DB {
		return kit.Must(sqlite.Open(path, store.Options{
			Key: func() ([]byte, error) { return []byte(key), nil }, Keep: time.Nanosecond,
		}))(t)
	}
	own, other := open("own"), open("other")
	record(t, own, 1)
	record(t, other, 2)
	kit.OK(t, other.Close())
	record(t, own, 1)
	kit.Must(own.Audit().Prune(t.Context(), time.Now().AddDate(0, 0, 2)))(t)
	other = open("other")
	again := other.Audit().RefuseOnce()
	other.Audit().Later(call(), func(_ *tool.Record, err error) { kit.Check(t, err) })
	kit.OK(t, other.Do(false, func(*database.Tx) error { return nil })) // in the same group
	kit.Equal(t, again(), 2)
	kit.Equal(t, fmt.Sprint(verified(t, own).Findings), "[]")
	kit.OK(t, cmp.Or(own.Close(), other.Close()))
}

// Rows are computed in parallel, some hundreds at a time.
func TestChangedRowsOfManyLanesAreFoundInTheirOrder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	var lanes []*store.DB
	for _, key := range []string{"a", "b", "c", "d"} {
		lanes = append(lanes, open(t, path, key))
	}
	for i := range 1200 {
		kit.OK(t, lanes[i%4].Audit().Append(t.Context(), call(), false))
	}
	raw := kit.SQLite(t, path)
	kit.Must(raw.ExecContext(t.Context(),
		`UPDATE audit SET session = 'x' WHERE seq IN (512, 513, 514, 1023, 1024, 1025)`))(t)
	r := verified(t, lanes[0])
	var found []int64
	for _, f := range r.Findings {
		kit.Contains(t, f.What,
			fmt.Sprintf("row %d, its kind or the row before it in lane %d was changed", f.Seq, (f.Seq-1)%4))
		found = append(found, f.Seq)
	}
	kit.EqualSlices(t, found, []int64{512, 513, 514, 1023, 1024, 1025})
	kit.Equal(t, r.Rows, 1200)
	for _, db := range lanes {
		kit.OK(t, db.Close())
	}
}

func TestTroubleWithAnchorsIsLogged(t *testing.T) {
	open, raw := twoLanes(t)
	var said bytes.Buffer
	own, evil := open("own"), open("evil")
	own.Audit().LogTo(slog.New(slog.NewTextHandler(&said, nil)))
	record(t, evil, 1)
	kit.OK(t, evil.Audit().Forge("head", 2, time.Now().Add(1e6*time.Hour),
		`SELECT seq, number, hash FROM audit WHERE lane = 2`))
	record(t, own, 1)
	kit.OK(t, cmp.Or(own.Close(), evil.Close()))
	kit.Contains(t, said.String(), "an anchor of the audit log is dated in the future")
	kit.Must(raw.ExecContext(t.Context(), `DELETE FROM audit_anchor`))(t)
	own = open("own")
	own.Audit().LogTo(slog.New(slog.NewTextHandler(&said, nil)))
	record(t, own, 1)
	kit.OK(t, own.Close())
	kit.Contains(t, said.String(), "the audit log cannot be anchored yet")
}
