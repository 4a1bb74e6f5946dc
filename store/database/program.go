package database

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"toolpost/tool"
)

// A program is one of those that share a database: a DB, from its first write to its Close. Its number is never reused.
// As long as it lives it holds a lock by that number, which the owner of the lock (the kernel, or the database server)
// releases when the program is gone, however it ended. So liveness does not depend on process numbers, which mean
// nothing in another container or on another machine, nor on clocks, which disagree and go on while a program is
// stopped.
//
// If a lock is bound to a connection, it may be free for a moment while its program lives. Then others wait for it to
// return, and what a program has begun still names it: a program that was wrongly taken for dead finds that it no
// longer holds anything, and adds nothing.
type program int64

// newProgram makes a unique number. A chance of one in 2^62 is as good as none.
func newProgram() program {
	return program(rand.Int64N(1<<62-1) + 1) //nolint:gosec // a name, not a secret
}

// owner returns the name of a program in the rows that belong to it.
func (p program) owner() string { return strconv.FormatInt(int64(p), 10) }

// programOf parses a name that owner wrote, ignoring anything after a #. Another text is of a program of an earlier
// version, which had no lock; such programs have ended before the first of this version brings the tables up to date.
func programOf(owner string) (p program, ok bool) {
	name, _, _ := strings.Cut(owner, "#")
	n, err := strconv.ParseInt(name, 10, 64)
	return program(n), err == nil && n > 0
}

// A RowQuerier asks the database, in a transaction or not.
type RowQuerier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// absences remembers, by this program's own clock, since when the locks of others have been free.
type absences struct {
	mu    sync.Mutex
	since map[program]time.Time
	away  time.Time // when the database itself was last away, or this program came to it
}

// searches remembers what is worth searching for the rows of ended programs.
type searches struct {
	mu     sync.Mutex           // held while the database is asked, so it is not that of absences
	living string               // what Living returned last
	asked  time.Time            // and when
	until  time.Time            // until then a program that has lost its lock may turn out to be gone
	looked map[string]time.Time // when each table was last searched
}

// How long the answer of Living counts, and how often a table is searched although it does not change, in terms of the
// grace: a program may come and go between two answers.
func (d *Dialect) livingFor() time.Duration { return d.Grace / 5 }
func (d *Dialect) calmFor() time.Duration   { return 3 * d.Grace }

// worthwhile reports whether a table may have rows of a program that was found to be gone since the table was last
// searched. Searches of all tables share one cheap question.
func (db *DB) worthwhile(ctx context.Context, table string) (bool, error) {
	if !db.Served() {
		return true, nil
	}
	a, now := &db.searched, time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if now.Sub(a.asked) >= db.d.livingFor() {
		ctx, stop := db.watch(ctx, 2)
		defer stop()
		var living string
		if err := db.reads.QueryRowContext(ctx, db.d.Server.Living).Scan(&living); err != nil {
			return false, because(ctx, err)
		}
		if a.asked = now; living != a.living {
			db.absent.compare(a.living, living)
			a.living, a.until = living, now.Add(db.d.Grace+2*db.d.livingFor())
		}
	}
	if now.After(a.until) && now.Sub(a.looked[table]) < db.d.calmFor() {
		return false, nil
	}
	if a.looked == nil {
		a.looked = map[string]time.Time{}
	}
	a.looked[table] = now
	return true, nil
}

// gone reports whether the program of that name has ended, or at least has been without its lock for a moment.
func (db *DB) gone(ctx context.Context, q RowQuerier, owner string) (gone, away bool, err error) {
	p, ok := programOf(owner)
	if !ok || p == db.program {
		return !ok, !ok, nil
	}
	lives, err := db.d.Lives(ctx, q, int64(p))
	if err != nil {
		return false, false, err
	}
	gone, away = db.absent.gone(p, lives, db.d.Grace)
	return gone, away, nil
}

// Gone reports whether the program of that name has ended, or at least has been without its lock for a moment.
func (t *Tx) Gone(owner string) (gone, away bool, err error) {
	return t.w.db.gone(t.ctx, t.w.conn, owner)
}

// left returns the owners in the result of a query that have ended.
func (db *DB) left(r *Reader, query string, args ...any) (gone []string, err error) {
	owners, err := List(r, Value[string], query, args...)
	if err != nil {
		return nil, err
	}
	for _, owner := range owners {
		ended, _, err := db.gone(r.ctx, r.tx, owner)
		if err != nil {
			return nil, err
		}
		if ended {
			gone = append(gone, owner)
		}
	}
	return gone, nil
}

// Orphans visits the rows of a table, with a condition, whose owners have ended.
func (db *DB) Orphans(
	ctx context.Context, columns, table string, visit func(owner string, rows *sql.Rows) error,
) error {
	if search, err := db.worthwhile(ctx, table); err != nil || !search {
		return db.explain(err, "read")
	}
	return db.Read(ctx, func(r *Reader) error {
		gone, err := db.left(r, `SELECT DISTINCT owner FROM `+table)
		for _, owner := range gone {
			if err == nil {
				err = r.Each(func(rows *sql.Rows) error { return visit(owner, rows) },
					`SELECT `+columns+` FROM `+table+` AND owner = ?`, owner)
			}
		}
		return err
	})
}

// gone records whether a program is alive, and reports whether it has ended, or at least has been without its lock for a moment. All have
// the whole grace to come back once the database was away, as after a fail-over. Else a program has lost its connection alone, and finds
// out within a few seconds.
func (a *absences) gone(p program, lives bool, grace time.Duration) (gone, away bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	absent := a.note(p, lives)
	return absent >= grace*3/5 && time.Since(a.away) >= grace && !lives, absent >= grace/10 && !lives
}

// note records whether a program is alive, and returns for how long it has not been. The lock is held.
func (a *absences) note(p program, lives bool) time.Duration {
	if lives {
		delete(a.since, p)
		return 0
	}
	first, known := a.since[p]
	if !known {
		first = time.Now()
		if a.since == nil {
			a.since = map[program]time.Time{}
		}
		a.since[p] = first
	}
	return time.Since(first)
}

// compare notes which programs have lost their locks, or have them again, in two lists: a table that has something of them may be searched
// later.
func (a *absences) compare(before, now string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	living := strings.Fields(now)
	for _, owner := range append(strings.Fields(before), living...) {
		if p, ok := programOf(owner); ok {
			a.note(p, slices.Contains(living, owner))
		}
	}
}

// forget is called when the database itself was away: then no program could hold a lock, and all get their grace again.
func (a *absences) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.since)
	a.away = time.Now()
}

// keepMarks is how long a program that is gone might still come back for its mark.
const keepMarks = 24 * time.Hour

// Tidy removes the rows of programs that have been gone for a long time.
func (db *DB) Tidy(ctx context.Context) error {
	gone, err := Reading(ctx, db, func(r *Reader) ([]string, error) {
		return db.left(r, `SELECT CAST(id AS TEXT) FROM program WHERE at < ?`, Micros(time.Now().Add(-keepMarks)))
	})
	if err != nil || len(gone) == 0 {
		return err
	}
	return db.Do(false, func(t *Tx) error {
		for _, owner := range gone {
			p, _ := programOf(owner)
			if err := t.Exec(`DELETE FROM program WHERE id = ?`, int64(p)); err != nil {
				return err
			}
		}
		return nil
	})
}

// tendEvery is how often a program that has the database open checks its lock.
const tendEvery = time.Second

// tend makes sure that this program holds its lock even while it has nothing to write, which includes reconnecting, and
// that upkeep follows the last write. It ends with the DB.
func (db *DB) tend() {
	tick := time.NewTicker(tendEvery)
	defer tick.Stop()
	every := max(tendEvery, db.d.Grace/5) // so that a lost connection is back within the grace
	var kept, asked int64
	for {
		select {
		case <-db.closing:
			return
		case <-tick.C:
		case <-db.o.Hurry:
		}
		db.o.Tend()
		last := db.last.Load()
		quiet := time.Since(time.UnixMicro(max(last, asked))) >= every
		if quiet && (db.d.Grace > 0 || last != kept) &&
			db.Submit(&Write{Do: func(*Tx) error { return nil }, idle: true}) == nil { // else it retries soon
			kept, asked = last, Micros(time.Now())
		}
	}
}

// The pauses of Listen: between calls of heard if no program can ring, and before it connects again.
const (
	askAgain    = 200 * time.Millisecond
	listenAgain = time.Second
)

// Listen calls heard when a program that shares the database has rung, or may have, until ctx ends.
func (db *DB) Listen(ctx context.Context, heard func()) {
	for pause := askAgain; ; {
		if db.Served() {
			pause = listenAgain
			if conn, err := db.reads.Conn(ctx); err == nil {
				here, stop := db.stays(ctx)
				_ = db.d.Server.Listen(here, conn, heard)
				stop()
				_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // it still listens
				_ = conn.Close()
			}
		}
		if !tool.Sleep(ctx, pause) {
			return
		}
		heard()
	}
}

// stays returns a context that ends once the writer has moved to another server.
func (db *DB) stays(ctx context.Context) (here context.Context, stop func()) {
	here, stop = context.WithCancel(ctx)
	go func() {
		for at := db.d.Server.At(); tool.Sleep(here, tendEvery); at = cmp.Or(at, db.d.Server.At()) {
			if at != "" && db.d.Server.At() != at {
				stop()
			}
		}
	}()
	return here, stop
}

// Ring tells the programs that listen, outside of any transaction: a transaction that tells others takes a lock of the whole
// server when it is committed. A program that cannot be told looks later.
func (db *DB) Ring(ctx context.Context) {
	if db.Served() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), listenAgain)
		defer cancel()
		_, _ = db.reads.ExecContext(ctx, db.d.Server.Ring)
	}
}
