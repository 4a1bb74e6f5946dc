package postgres_test

import (
	"database/sql"
	"path/filepath"
	"testing"

	"toolpost/internal/pg"
	"toolpost/store/sqlite"
	"toolpost/store/storetest"
)

func TestAStoreMovesFromSQLiteToPostgreSQLAndBack(t *testing.T) {
	file := storetest.Kind{
		New:  func(t testing.TB) string { return filepath.Join(t.TempDir(), "store.db") },
		Open: sqlite.Open,
		Raw: func(t testing.TB, path string) *sql.DB {
			t.Helper()
			db, err := sql.Open("sqlite", path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = db.Close() })
			return db
		},
	}
	storetest.Copies(t, file, kind(pg.New(t)),
		`SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT IN ('program', 'toolpost_schema')`)
}
