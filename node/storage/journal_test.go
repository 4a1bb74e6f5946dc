package storage_test

import (
	"path/filepath"
	"testing"
	"time"

	"toolpost/engine/idempotency"
	"toolpost/internal/kit"
	"toolpost/node/storage"
	"toolpost/store"
)

// scope is the key of a call in a journal.
func scope(n byte) [32]byte { return [32]byte{n} }

// ends notes that a call has begun and ended.
func ends(t *testing.T, j *store.OutcomeTable, n byte, ttl time.Duration) {
	t.Helper()
	c := kit.Must(j.Claim(t.Context(), scope(n), scope(n), "call", ttl))(t)
	kit.Equal(t, c.Mine, true, "it is new")
	kit.OK(t, j.Settle(t.Context(), scope(n), []byte(`1`), ttl))
}

// The clock of a machine is set while the worker does not run: by years, as without a battery. A call that has run does not run again.
func TestJournalRemembersThoughTheClockIsSet(t *testing.T) {
	for what, set := range map[string]time.Duration{"forward": -50 * 365 * 24 * time.Hour, "back": 50 * 365 * 24 * time.Hour} {
		state := t.TempDir()
		run := func(work func(j *store.OutcomeTable)) {
			j, end, err := storage.OpenJournal(state)
			kit.OK(t, err)
			work(j)
			kit.OK(t, end())
		}
		run(func(j *store.OutcomeTable) { ends(t, j, 1, idempotency.LostFor) })
		raw := kit.SQLite(t, filepath.Join(state, "journal.db"))
		kit.Must(raw.ExecContext(t.Context(), `UPDATE outcome SET at = at + ?1, expires_at = expires_at + ?1`, set.Microseconds()))(t)
		run(func(j *store.OutcomeTable) {
			ends(t, j, 2, idempotency.LostFor)
			first, second := known(t, j, 1), known(t, j, 2)
			kit.Equal(t, string(first.Result), "1", what)
			kit.Equal(t, second.At > first.At, true, what, "the order of calls")
		})
		// So many that some are removed: the oldest.
		kit.Must(raw.ExecContext(t.Context(), `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)
			INSERT INTO outcome (scope, input, owner, at, expires_at, result) SELECT CAST('old' || i AS BLOB), '', '',
				(SELECT MIN(at) FROM outcome), (SELECT MAX(expires_at) FROM outcome), '1' FROM n`))(t)
		run(func(j *store.OutcomeTable) {
			ends(t, j, 3, idempotency.LostFor) // removes some first
			kit.Equal(t, string(known(t, j, 2).Result), "1", what, "the newest")
			ends(t, j, 4, time.Microsecond)
			kit.Eventually(t, "a call is forgotten after its time", func() bool {
				return kit.Must(j.Claim(t.Context(), scope(4), scope(4), "call", time.Hour))(t).Mine
			})
		})
	}
}

func known(t *testing.T, j *store.OutcomeTable, n byte) idempotency.Claim {
	t.Helper()
	c, _, err := j.Known(t.Context(), scope(n), time.Hour)
	kit.OK(t, err)
	return c
}
