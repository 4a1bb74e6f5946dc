package kit

import (
	"database/sql"
	"testing"
)

// SQLite opens the file of a store beside the program that may have it open, and waits for its turn as that program does. The
// driver is the one of package store/sqlite.
func SQLite(t testing.TB, path string) *sql.DB {
	t.Helper()
	db := Must(sql.Open("sqlite", path+"?_pragma=busy_timeout(60000)"))(t)
	t.Cleanup(func() { OK(t, db.Close()) })
	return db
}
