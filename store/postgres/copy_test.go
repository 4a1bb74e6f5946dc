package postgres_test

import (
	"path/filepath"
	"testing"

	"toolpost/internal/kit"
	"toolpost/internal/pg"
	"toolpost/store/sqlite"
	"toolpost/store/storetest"
)

func TestAStoreMovesFromSQLiteToPostgreSQLAndBack(t *testing.T) {
	file := storetest.Kind{
		New:  func(t testing.TB) string { return filepath.Join(t.TempDir(), "store.db") },
		Open: sqlite.Open,
		Raw:  kit.SQLite,
	}
	storetest.Copies(t, file, kind(pg.New(t)),
		`SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT IN ('program', 'toolpost_schema')`)
}
