package sqlite_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"toolpost/store"
	"toolpost/store/sqlite"
	"toolpost/tool"
)

// Damage to the files of an open store is noticed by the very next use, and everything is refused from then on: further
// writes would be invisible to others.
func TestDeletedOrReplacedFilesAreRefused(t *testing.T) {
	for name, harm := range map[string]func(t *testing.T, path string){
		"deleted":         func(t *testing.T, path string) { remove(t, path) },
		"all deleted":     func(t *testing.T, path string) { remove(t, path, path+"-wal", path+"-shm") },
		"wal deleted":     func(t *testing.T, path string) { remove(t, path+"-wal") },
		"shm deleted":     func(t *testing.T, path string) { remove(t, path+"-shm") },
		"replaced":        replaceFile,
		"another store":   func(t *testing.T, path string) { remove(t, path, path+"-wal", path+"-shm"); populate(t, path, 3) },
		"folder replaced": replaceFolder,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state", "store.db")
			db := populate(t, path, 5)
			harm(t, path)
			if _, err := db.Sessions().State(t.Context(), "ada", "s"); !isReplaced(err) {
				t.Errorf("a read: %v", err)
			}
			for range 3 {
				if err := appendTo(db, "later"); !isReplaced(err) || !strings.Contains(err.Error(), path) {
					t.Errorf("a write: %v", err)
				}
			}
			if err := db.Audit().Begin(t.Context(), &tool.Record{Time: time.Now()}); !isReplaced(err) {
				t.Errorf("a note: %v", err)
			}
		})
	}
}

// A file that is put back is the one that is open: the store goes on.
func TestStoreContinuesWhenItsFileIsPutBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	db := populate(t, path, 5)
	must(t, os.Rename(path, path+".away"))
	if err := appendTo(db, "during"); !isReplaced(err) {
		t.Errorf("a write: %v", err)
	}
	must(t, os.Rename(path+".away", path))
	must(t, appendTo(db, "after"))
	if r, err := db.Audit().Verify(t.Context()); err != nil || r.Rows != 6 || len(r.Findings) > 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// Other programs that come and go do not disturb: the last one to close a store removes the files beside it, and that
// is right.
func TestStoreSurvivesTheCloseOfAnotherProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	for range 3 {
		db, other := populate(t, path, 1), populate(t, path, 1)
		must(t, other.Close())
		must(t, appendTo(db, "still"))
		must(t, db.Close())
	}
}

func isReplaced(err error) bool {
	e := tool.AsError(err)
	return e != nil && e.Code == tool.CodeUnavailable && e.Reason == "store_replaced"
}

func populate(t *testing.T, path string, rows int) *store.DB {
	t.Helper()
	db, err := sqlite.Open(path, store.Options{})
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	for range rows {
		must(t, appendTo(db, "call"))
	}
	return db
}

func appendTo(db *store.DB, call string) error {
	return db.Audit().Append(context.Background(), &tool.Record{Time: time.Now(), Call: call, Tool: "t", Outcome: tool.OutcomeOK}, true)
}

func remove(t *testing.T, paths ...string) {
	t.Helper()
	for _, path := range paths {
		must(t, os.Remove(path))
	}
}

func replaceFile(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	must(t, os.WriteFile(path+".new", text, 0o600))
	must(t, os.Rename(path+".new", path))
}

func replaceFolder(t *testing.T, path string) {
	t.Helper()
	dir := filepath.Dir(path)
	must(t, os.Rename(dir, dir+".away"))
	must(t, os.Mkdir(dir, 0o700))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
