package sqlite_test

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"toolpost/engine/audit"
	"toolpost/internal/connectiontest"
	"toolpost/internal/kit"
	"toolpost/internal/rounds"
	"toolpost/store"
	"toolpost/store/sqlite"
	"toolpost/store/storetest"
	"toolpost/tool"
)

func kind() storetest.Kind {
	return storetest.Kind{
		New:  func(t testing.TB) string { return filepath.Join(t.TempDir(), "store.db") },
		Open: sqlite.Open,
		Raw: func(t testing.TB, path string) *sql.DB {
			db, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(10000)&_pragma=synchronous(off)")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = db.Close() })
			return db
		},
		Schema: `SELECT m.name || '.' || c.name || ' ' || c.type || ' ' || c."notnull" || ' ' || COALESCE(c.dflt_value, '') || ' ' || c.pk
				FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.type = 'table'
			UNION SELECT sql FROM sqlite_master WHERE type <> 'table' AND sql <> '' ORDER BY 1`,
	}
}

func TestMain(m *testing.M) {
	if path := os.Getenv(fullDisk); path != "" {
		if err := runOut(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if dir := os.Getenv(smallDisk); dir != "" {
		if err := fillUp(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(storetest.Main(m, kind()))
}

func TestSuite(t *testing.T) { storetest.Run(t, kind()) }

func TestConnectionsAreChangedByThoseWhoKnowTheirVersion(t *testing.T) {
	var rows [2]*store.ConnectionTable
	path := filepath.Join(t.TempDir(), "store.db")
	for i := range rows {
		db := kit.Must(sqlite.Open(path, store.Options{}))(t)
		t.Cleanup(func() { kit.Check(t, db.Close()) })
		rows[i] = db.Connections()
	}
	connectiontest.Run(t, rows[0], rows[1])
}

// Whatever bit of the file flips, the log either reports it or is unchanged.
func TestAFlippedBitIsFoundOrChangesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	db, err := sqlite.Open(path, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 400 {
		r := &tool.Record{Time: time.Unix(int64(i)*1e3, 0), Tool: "t", Session: "s", Outcome: tool.OutcomeOK, Touches: tool.Touches{Reads: []string{"/a"}}}
		if err := db.Audit().Append(t.Context(), r, false); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	sound, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want, findings := dump(t, path)
	if len(findings) > 0 {
		t.Fatal(findings)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	found, tries := 0, rounds.Of(12, 2000) // each opens and closes a file
	for range tries {
		at, bit := rng.IntN(len(sound)), byte(1<<rng.IntN(8))
		flipped := slices.Clone(sound)
		flipped[at] ^= bit
		copied := filepath.Join(t.TempDir(), "copy.db")
		if err := os.WriteFile(copied, flipped, 0o600); err != nil {
			t.Fatal(err)
		}
		got, findings := dump(t, copied)
		if len(findings) > 0 {
			found++
		} else if !slices.Equal(got, want) {
			t.Errorf("bit %x of byte %d: the log says something else, and nobody noticed", bit, at)
		}
	}
	t.Logf("%d of %d were found", found, tries)
}

// dump returns the whole log, and what is wrong with it.
func dump(t *testing.T, path string) (records []string, findings []audit.Finding) {
	db, err := sqlite.Open(path, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	r, err := db.Audit().Verify(t.Context())
	if err != nil {
		return nil, []audit.Finding{{What: err.Error()}}
	}
	err = db.Audit().Log(t.Context(), audit.Filter{Session: "s"}, false, func(r *tool.Record) error {
		records = append(records, fmt.Sprintf("%+v", r))
		return nil
	})
	if err != nil {
		r.Findings = append(r.Findings, audit.Finding{What: err.Error()})
	}
	return records, r.Findings
}

func TestFileOfAnotherProgramIsRefusedInWords(t *testing.T) {
	text, other := filepath.Join(t.TempDir(), "text"), filepath.Join(t.TempDir(), "other.db")
	kit.OK(t, os.WriteFile(text, []byte("this is the diary of another program, and no database at all"), 0o600))
	_, err := kind().Raw(t, other).ExecContext(t.Context(), `CREATE TABLE job (x INT)`)
	kit.OK(t, err)
	for _, path := range []string{text, other} {
		db, err := sqlite.Open(path, store.Options{})
		kit.OK(t, err)
		_, err = db.Sessions().State(t.Context(), "ada", "s")
		kit.Refused(t, err, tool.CodeUnavailable, "belongs to another program")
		kit.OK(t, db.Close())
	}
}
