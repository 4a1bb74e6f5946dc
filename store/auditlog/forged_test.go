package auditlog_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"toolpost/internal/kit"
	"toolpost/store"
	"toolpost/store/sqlite"
	"toolpost/tool"
)

// A program that can write to the database may add a lane of its own. With that it cannot hide the rows of others, nor remove a
// lane.
func TestALaneOfAStrangerHidesNothing(t *testing.T) {
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
		forge  func(evil *store.DB) error
		want   string
	}{
		{"the first rows of a log that was alone", false, func(evil *store.DB) error {
			return evil.Audit().Forge("cut", 0, now, `SELECT seq, seq, hash FROM audit WHERE seq = 2`,
				`DELETE FROM audit WHERE seq <= 2`)
		}, "rows up to 2 of lane 0 were removed before their time, by lane 1"},
		{"all rows of a lane", true, func(evil *store.DB) error {
			return evil.Audit().Forge("cut", 1, now.Add(1e6*time.Hour),
				`SELECT seq, number, hash FROM audit WHERE lane = 1 ORDER BY seq DESC LIMIT 1`,
				append(gone("1")[:1], gone("1")[2])...)
		}, "of lane 1 were removed before their time, by lane 2"},
		{"a lane, with all anchors", true, func(evil *store.DB) error {
			return evil.Audit().Forge("trim", 1, now, lastAnchor, append(gone("1"), `DELETE FROM audit_anchor`)...)
		}, "anchors of lane 0 are missing"},
		{"a lane, with the anchors before one that a lane names", true, func(evil *store.DB) error {
			return evil.Audit().Forge("trim", 1, now,
				`SELECT seq, 0, hash FROM audit_anchor WHERE seq = (SELECT anchor - 1 FROM audit_head WHERE id = 1)`,
				append(gone("1"), `DELETE FROM audit_anchor WHERE seq < (SELECT anchor FROM audit_head WHERE id = 1)`)...)
		}, "were removed before their time, by lane 2"},
		{"the age of an anchor", true, func(evil *store.DB) error {
			return evil.Audit().Forge("head", 2, now.Add(-1e6*time.Hour), lastAnchor)
		}, "something is missing or was added"},
	} {
		path := filepath.Join(t.TempDir(), "store.db")
		open := func(key string) *store.DB {
			return kit.Must(sqlite.Open(path, store.Options{
				Key: func() ([]byte, error) { return []byte(key), nil }, Keep: 24 * time.Hour,
			}))(t)
		}
		record := func(db *store.DB, n int) {
			for range n {
				if err := db.Audit().Append(t.Context(), &tool.Record{Time: now, Tool: "t", Outcome: tool.OutcomeOK}, true); err != nil {
					t.Fatal(err)
				}
			}
		}
		own := open("own")
		record(own, 3)
		if c.others {
			other := open("other")
			record(other, 2)
			kit.OK(t, other.Close())
			record(own, 1)
		}
		kit.OK(t, own.Close())
		evil := open("evil")
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
