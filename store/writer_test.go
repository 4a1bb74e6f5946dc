package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"toolpost/engine/audit"
	"toolpost/tool"
)

// nothing is a database that accepts every statement and does nothing.
type nothing struct{}

func (nothing) Connect(context.Context) (driver.Conn, error) { return nothing{}, nil }
func (nothing) Driver() driver.Driver                        { return nil }
func (nothing) Prepare(string) (driver.Stmt, error)          { return nil, errors.New("nothing to prepare") }
func (nothing) Close() error                                 { return nil }
func (nothing) Begin() (driver.Tx, error)                    { return nil, errors.New("nothing to begin") }
func (nothing) ExecContext(context.Context, string, []driver.NamedValue) (driver.Result, error) {
	return driver.ResultNoRows, nil
}

// openNothing opens a store over nothing.
func openNothing() *DB {
	no := func(error) bool { return false }
	enter := func(context.Context, *sql.Conn, int64) error { return nil }
	db := New(Dialect{Enter: enter, Busy: no, Full: no, Down: no}, sql.OpenDB(nothing{}), sql.OpenDB(nothing{}), Options{})
	db.ready.Store(true)
	return db
}

// The clock of a bubble stands still while any goroutine works, so these assertions do not measure time.
func TestBackgroundWriteIsBoundedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := openNothing()
		var mu sync.Mutex
		var order []int
		late := func(n int) {
			begun := time.Now()
			db.w.later(&write{do: func(*tx) error { return nil }, done: func(one *write) {
				mu.Lock()
				defer mu.Unlock()
				if order = append(order, n); one.err != nil || time.Since(begun) > soon {
					t.Errorf("%d: %v after %v", n, one.err, time.Since(begun))
				}
			}})
		}
		written := func() []int {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(order)
		}
		for n := range 3 {
			late(n)
		}
		if len(written()) != 0 {
			t.Error("somebody waited")
		}
		time.Sleep(soon + 1)
		for n := range plenty {
			late(3 + n)
		}
		synctest.Wait() // no time passes: a group of this size does not wait for a timer
		if got := written(); len(got) != 3+plenty || !slices.IsSorted(got) {
			t.Errorf("%d were written, in order: %v", len(got), slices.IsSorted(got))
		}
		late(3 + plenty)
		if err := db.w.do(false, func(*tx) error { return nil }); err != nil || len(written()) != 4+plenty {
			t.Errorf("a write that is waited for did not take along what came before it: %v, %d", err, len(written()))
		}
		late(4 + plenty)
		if err := db.Close(); err != nil || len(written()) != 5+plenty {
			t.Errorf("an orderly end lost a write: %v, %d", err, len(written()))
		}
		db.w.later(&write{do: func(*tx) error { return nil }, done: func(one *write) {
			if tool.CodeOf(one.err) != tool.CodeUnavailable {
				t.Errorf("a store that is closed: %v", one.err)
			}
		}})
	})
}

func TestCloseWaitsForUpkeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := openNothing()
		kept := false
		db.d.Upkeep = func(_ context.Context, conn *sql.Conn) {
			time.Sleep(time.Second)
			_, err := conn.ExecContext(t.Context(), "")
			kept = err == nil
		}
		db.w.later(&write{do: func(*tx) error { return nil }, done: func(*write) {}})
		time.Sleep(soon + 1) // a timer leads
		if err := db.Close(); err != nil || !kept {
			t.Errorf("%v; upkeep had its connection to the end: %v", err, kept)
		}
	})
}

func TestTooManyLateWritesWaitForTheDisk(t *testing.T) {
	db := openNothing()
	stuck, release := make(chan bool), make(chan bool)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := db.w.do(false, func(*tx) error { close(stuck); <-release; return nil }); err != nil {
			t.Error(err)
		}
	})
	<-stuck
	var written atomic.Int64
	add := func() {
		db.w.later(&write{do: func(*tx) error { return nil }, done: func(*write) { written.Add(1) }})
	}
	for range mostLate {
		add() // these would block for ever if they waited
	}
	wg.Go(func() {
		if add(); written.Load() <= mostLate {
			t.Errorf("one too many did not wait: %d are written", written.Load())
		}
	})
	for waiting := 0; waiting <= mostLate; runtime.Gosched() { // until the last one has arrived
		db.w.mu.Lock()
		waiting = len(db.w.queue)
		db.w.mu.Unlock()
	}
	close(release)
	wg.Wait()
	if err := db.Close(); err != nil || db.w.behind.Load() != 0 {
		t.Errorf("%v, %d are behind", err, db.w.behind.Load())
	}
}

func TestPanicInOneWriteDoesNotBlockOthers(t *testing.T) {
	db := openNothing()
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

func TestBucketsGroupSimilarDurations(t *testing.T) {
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
