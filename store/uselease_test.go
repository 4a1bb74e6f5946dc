package store

import (
	"database/sql"
	"path/filepath"
	"testing"

	_ "modernc.org/sqlite"
)

// The writers' lock keeps two programs from using one lease. The statement must hold without it.
func TestLeaseStatementConsumesOnce(t *testing.T) {
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "leases.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, statement := range []string{
		`CREATE TABLE lease (id TEXT PRIMARY KEY, used_at BIGINT, revoked_at BIGINT)`,
		`INSERT INTO lease VALUES ('new', NULL, NULL), ('revoked', NULL, 1)`,
	} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		id   string
		want int64
	}{{"new", 1}, {"new", 0}, {"revoked", 0}, {"none", 0}} {
		r, err := db.ExecContext(t.Context(), useLease, 2, c.id)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := r.RowsAffected(); n != c.want || err != nil {
			t.Errorf("%s: %d rows, not %d, %v", c.id, n, c.want, err)
		}
	}
}
