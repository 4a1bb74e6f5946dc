package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync"
	"testing"

	"toolpost/engine/audit"
	"toolpost/tool"
)

// nothing is a database that takes every statement and does nothing.
type nothing struct{}

func (nothing) Connect(context.Context) (driver.Conn, error) { return nothing{}, nil }
func (nothing) Driver() driver.Driver                        { return nil }
func (nothing) Prepare(string) (driver.Stmt, error)          { return nil, errors.New("nothing to prepare") }
func (nothing) Close() error                                 { return nil }
func (nothing) Begin() (driver.Tx, error)                    { return nil, errors.New("nothing to begin") }
func (nothing) ExecContext(context.Context, string, []driver.NamedValue) (driver.Result, error) {
	return driver.ResultNoRows, nil
}

func TestAPanicOfOneLeavesNobodyWaiting(t *testing.T) {
	no := func(error) bool { return false }
	enter := func(context.Context, *sql.Conn, int64) error { return nil }
	db := New(Dialect{Enter: enter, Busy: no, Full: no, Down: no}, sql.OpenDB(nothing{}), sql.OpenDB(nothing{}), Options{})
	db.ready.Store(true)
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			err := db.w.do(false, func(*tx) error {
				if i%8 == 0 {
					panic("a mistake")
				}
				return nil
			})
			if i%8 == 0 && tool.CodeOf(err) != tool.CodeInternal {
				t.Errorf("%d: %v", i, err)
			}
		})
	}
	wg.Wait()
	if err := db.w.do(false, func(*tx) error { return nil }); err != nil {
		t.Errorf("after it: %v", err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	if err := db.w.do(false, func(*tx) error { return nil }); tool.CodeOf(err) != tool.CodeUnavailable {
		t.Errorf("a store that is closed: %v", err)
	}
}

func TestBucketsHoldWhatIsAboutTheSame(t *testing.T) {
	last := int64(-1)
	for took := int64(0); took < 1<<40; took += 1 + took/100 {
		b := bucketOf(took)
		if b < last || edgeOf(b) > took || edgeOf(b+1) <= took {
			t.Fatalf("%d is in bucket %d, which holds %d to %d", took, b, edgeOf(b), edgeOf(b+1))
		}
		if middle := int64(middleOf(b) / 1000); took >= 8 && (middle-took)*8 > took+8 || (took-middle)*8 > took+8 {
			t.Fatalf("%d is told as %d", took, middle)
		}
		last = b
	}
}

func FuzzPlain(f *testing.F) {
	for _, seed := range []string{"", "a", "a\x00b", "\xff", "äöü", "…", string(make([]byte, 600))} {
		f.Add(seed, 64)
	}
	f.Fuzz(func(t *testing.T, s string, most int) {
		if most < 16 || most > 1<<16 {
			return
		}
		got := plain(s, most)
		if plain(got, most*3) != got {
			t.Errorf("%q became %q, which is not plain", s, got)
		}
		if len(s) <= most && len(got) > 3*len(s) || len(s) > most && len(got) > 3*most {
			t.Errorf("%d bytes became %d", len(s), len(got))
		}
		l := newLayout(audit.Columns())
		text := l.detailOf(&tool.Record{Call: got, Touches: tool.Touches{Reads: []string{got}}})
		var back tool.Record
		if err := l.all.Unmarshal([]byte(text), &back); err != nil || back.Call != got || back.Touches.Reads[0] != got {
			t.Errorf("%q: %v", text, err)
		}
	})
}
