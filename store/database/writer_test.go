package database

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
	db := New(Dialect{Enter: enter, Busy: no, Full: no, Down: no}, sql.OpenDB(nothing{}), sql.OpenDB(nothing{}),
		Options{Undone: func() {}, Tend: func() {}})
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
			db.Later(&Write{Do: func(*Tx) error { return nil }, Done: func(one *Write) {
				mu.Lock()
				defer mu.Unlock()
				if order = append(order, n); one.Err != nil || time.Since(begun) > soon {
					t.Errorf("%d: %v after %v", n, one.Err, time.Since(begun))
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
		if err := db.Do(false, func(*Tx) error { return nil }); err != nil || len(written()) != 4+plenty {
			t.Errorf("a write that is waited for did not take along what came before it: %v, %d", err, len(written()))
		}
		late(4 + plenty)
		if err := db.Close(); err != nil || len(written()) != 5+plenty {
			t.Errorf("an orderly end lost a write: %v, %d", err, len(written()))
		}
		db.Later(&Write{Do: func(*Tx) error { return nil }, Done: func(one *Write) {
			if tool.CodeOf(one.Err) != tool.CodeUnavailable {
				t.Errorf("a store that is closed: %v", one.Err)
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
		db.Later(&Write{Do: func(*Tx) error { return nil }, Done: func(*Write) {}})
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
		if err := db.Do(false, func(*Tx) error { close(stuck); <-release; return nil }); err != nil {
			t.Error(err)
		}
	})
	<-stuck
	var written atomic.Int64
	add := func() {
		db.Later(&Write{Do: func(*Tx) error { return nil }, Done: func(*Write) { written.Add(1) }})
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
		db.writer.mu.Lock()
		waiting = len(db.writer.queue)
		db.writer.mu.Unlock()
	}
	close(release)
	wg.Wait()
	if err := db.Close(); err != nil || db.writer.behind.Load() != 0 {
		t.Errorf("%v, %d are behind", err, db.writer.behind.Load())
	}
}

func TestPanicInOneWriteDoesNotBlockOthers(t *testing.T) {
	db := openNothing()
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			err := db.Do(false, func(*Tx) error {
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
	if err := db.Do(false, func(*Tx) error { return nil }); err != nil {
		t.Errorf("after it: %v", err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	if err := db.Do(false, func(*Tx) error { return nil }); tool.CodeOf(err) != tool.CodeUnavailable {
		t.Errorf("a store that is closed: %v", err)
	}
}

func TestASilentOrFailingDatabaseIsNotUsable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := openNothing()
		defer func() { _ = db.Close() }()
		usable := func(want bool, when string) {
			t.Helper()
			if db.Usable() != want {
				t.Errorf("usable: %v, %s", !want, when)
			}
		}
		db.ready.Store(false)
		usable(false, "before the tables were read")
		db.ready.Store(true)
		usable(true, "before the first write")
		answer := make(chan error)
		write := func() { _ = db.Do(false, func(*Tx) error { return <-answer }) }
		go write()
		synctest.Wait()
		usable(true, "during a write")
		time.Sleep(reach + 1)
		usable(false, "during a write without an answer")
		answer <- nil
		synctest.Wait()
		usable(true, "after its answer")
		go write()
		answer <- errors.New("the disk is gone")
		synctest.Wait()
		usable(false, "after a write that failed")
		go write()
		answer <- nil
		synctest.Wait()
		usable(true, "after the next one")
	})
}
