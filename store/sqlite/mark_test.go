package sqlite_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toolpost/store"
	"toolpost/store/sqlite"
	"toolpost/tool"
)

// A log that is shorter than it was is detected, even if no point of it was kept.
func TestTruncatedLogIsDetected(t *testing.T) {
	dir := t.TempDir()
	path, copied, mark := filepath.Join(dir, "store.db"), filepath.Join(dir, "copy.db"), filepath.Join(dir, "mark")
	first := filepath.Join(dir, "mark.first")
	findings := func() string {
		t.Helper()
		db := openMarked(t, path, mark)
		defer db.Close()
		r, err := db.Audit().Verify(t.Context())
		must(t, err)
		text := ""
		for _, f := range r.Findings {
			text += f.What + "\n"
		}
		return text
	}
	record := func(rows int) {
		t.Helper()
		db := openMarked(t, path, mark)
		for range rows {
			must(t, appendTo(db, "call"))
		}
		must(t, db.Close())
	}
	if got := findings(); got != "" {
		t.Errorf("a log that was never used: %s", got)
	}
	record(5)
	text, err := os.ReadFile(path)
	must(t, err)
	must(t, os.WriteFile(copied, text, 0o600))
	record(2)
	if got := findings(); got != "" {
		t.Errorf("a sound log: %s", got)
	}
	must(t, os.Rename(copied, path)) // its state two calls before
	if got := findings(); !strings.Contains(got, "it had 7 rows once") {
		t.Errorf("an earlier log: %s", got)
	}
	must(t, os.Remove(path))
	if got := findings(); !strings.Contains(got, "the log is empty, and it had 7 rows once") || !strings.Contains(got, mark) {
		t.Errorf("a log that was deleted: %s", got)
	}
	record(1)
	if got := findings(); !strings.Contains(got, "it had 7 rows once") {
		t.Errorf("a log that was begun again: %s", got)
	}
	record(8)
	if got := findings(); !strings.Contains(got, "row 7 is another than it once was") {
		t.Errorf("a log that has overtaken the one before: %s", got)
	}
	must(t, os.Remove(mark))
	for _, path := range []string{path, path + "-wal", path + "-shm"} {
		_ = os.Remove(path)
	}
	const gone = "the log is gone"
	if got := findings(); !strings.Contains(got, gone) || !strings.Contains(got, first) {
		t.Errorf("a log that was deleted with its mark: %q", got)
	}
	record(2)
	if got := findings(); !strings.Contains(got, gone) {
		t.Errorf("a log that was deleted with its mark, and begun again: %q", got)
	}
	must(t, os.Remove(first))
	record(1)
	if got := findings(); got != "" {
		t.Errorf("a log that its owner wanted to begin again: %s", got)
	}
	must(t, os.WriteFile(mark, []byte("1:"+strings.Repeat("0", 64)+" "+strings.Repeat("0", 64)+"\n"), 0o600))
	if got := findings(); !strings.Contains(got, "not signed") {
		t.Errorf("a mark that somebody has made: %s", got)
	}
}

// A program that has recorded calls does not begin again beside the lane of another key, as if it were new.
func TestRemovedLaneIsNotBegunAgain(t *testing.T) {
	path, mark := filepath.Join(t.TempDir(), "store.db"), filepath.Join(t.TempDir(), "mark")
	record := func(open func() *store.DB) error {
		db := open()
		defer db.Close()
		return appendTo(db, "call")
	}
	own := func() *store.DB { return openMarked(t, path, mark) }
	must(t, record(own))
	must(t, record(func() *store.DB {
		db, err := sqlite.Open(path, store.Options{Key: func() ([]byte, error) { return []byte("another key"), nil }})
		must(t, err)
		return db
	}))
	must(t, record(own))
	raw := kind().Raw(t, path)
	for _, statement := range []string{"DELETE FROM audit WHERE lane = 0", "DELETE FROM audit_head WHERE id = 1"} {
		_, err := raw.ExecContext(t.Context(), statement)
		must(t, err)
	}
	if e := tool.AsError(record(own)); e == nil || e.Reason != "audit_forged" {
		t.Errorf("it was begun again: %v", e)
	}
}

func openMarked(t *testing.T, path, mark string) *store.DB {
	t.Helper()
	db, err := sqlite.Open(path, store.Options{Mark: mark, Key: func() ([]byte, error) { return []byte("a key of the test"), nil }})
	must(t, err)
	return db
}
