package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"toolpost/tool"
)

// A Dialect is what one kind of database does differently. Everything else of this package is the same on
// all of them.
type Dialect struct {
	Name     string
	Numbered bool              // parameters are $1, $2 ... and not ?
	Types    *strings.Replacer // of the words for types in migrations; nil: they stay
	Prepare  func() error      // makes what must be there before the first connection; nil: nothing
	Begin    []string          // begins a transaction that no other writer, in whatever process, overlaps
	// Quick and Durable choose what the end of the next transaction waits for: that the record survives the
	// end of this program, or that of the machine. Inside says that they belong inside the transaction.
	Quick, Durable string
	Inside         bool
	Intact         string           // a query that gives one row with "ok" where the files are sound; empty: none
	Busy           func(error) bool // another writer was there; trying again may help
	Full           func(error) bool // there is no room
}

// A DB keeps what must last. Many goroutines may use it, and several programs may have it open at once.
type DB struct {
	d     Dialect
	reads *sql.DB
	w     *writer

	ready atomic.Bool // the tables are up to date
	owner string      // names this program among those that use the database
	audit *AuditTable
}

// Options has useful zero values.
type Options struct {
	// Key gives what signs the head of the audit log. It is asked at the first need. All programs that write to
	// one log have the same key. Without one the log is chained and not signed.
	Key func() ([]byte, error)
}

// New makes a store over two handles of the same database: one for reading, one for writing, of which one
// connection is used. It owns both from then on. Nothing is opened before the first use, which also brings the
// tables up to date; where that fails, the next use tries again.
func New(d Dialect, reads, writes *sql.DB, o Options) *DB {
	db := &DB{d: d, reads: reads, owner: thisProcess()}
	db.w = &writer{db: db, pool: writes}
	db.audit = newAuditTable(db, o.Key)
	return db
}

// Close ends the use of the database. Writes in progress end first; later ones fail.
func (db *DB) Close() error {
	return errors.Join(db.w.close(), db.reads.Close())
}

// prepare sees to it that the tables can be read.
func (db *DB) prepare(ctx context.Context) error {
	if db.ready.Load() {
		return nil
	}
	var have int
	if err := db.reads.QueryRowContext(ctx, haveVersion).Scan(&have); err == nil && have == len(migrations()) {
		db.ready.Store(true)
		return nil
	}
	return db.w.do(false, func(*tx) error { return nil }) // any write does it
}

const haveVersion = `SELECT COALESCE(MAX(version), 0) FROM toolpost_schema`

// migrate brings the tables up to date. A database of a later version is left alone.
func (t *tx) migrate() error {
	db := t.w.db
	if db.ready.Load() {
		return nil
	}
	if err := t.start(); err != nil {
		return err
	}
	err := t.migrateFrom(migrations())
	if err == nil {
		err = t.once("COMMIT")
	}
	if err != nil {
		return errors.Join(err, t.once("ROLLBACK"))
	}
	db.ready.Store(true)
	return nil
}

func (t *tx) migrateFrom(steps [][]string) error {
	if err := t.once(`CREATE TABLE IF NOT EXISTS toolpost_schema (version BIGINT NOT NULL)`); err != nil {
		return err
	}
	var have int
	if err := t.row(haveVersion, nil, &have); err != nil {
		return err
	}
	if have > len(steps) {
		return tool.Errorf(tool.CodeUnavailable, "the store was made by a later version of toolpost (%d, this one knows %d); use that version", have, len(steps))
	}
	for n := have; n < len(steps); n++ {
		for _, statement := range steps[n] {
			if err := t.once(t.w.db.d.types(statement)); err != nil {
				return err
			}
		}
		if err := t.exec(`INSERT INTO toolpost_schema (version) VALUES (?)`, n+1); err != nil {
			return err
		}
	}
	return nil
}

func (d *Dialect) types(statement string) string {
	if d.Types == nil {
		return statement
	}
	return d.Types.Replace(statement)
}

// text gives a query in the dialect's way to write parameters.
func (d *Dialect) text(query string) string {
	if !d.Numbered {
		return query
	}
	var b strings.Builder
	for n := 1; ; n++ {
		before, after, more := strings.Cut(query, "?")
		b.WriteString(before)
		if !more {
			return b.String()
		}
		b.WriteByte('$')
		b.WriteString(strconv.Itoa(n))
		query = after
	}
}

// read runs queries that see one state of the database, whatever is written meanwhile.
func (db *DB) read(ctx context.Context, use func(*reader) error) error {
	if err := db.prepare(ctx); err != nil {
		return err
	}
	tx, err := db.reads.BeginTx(ctx, &sql.TxOptions{ReadOnly: true, Isolation: db.isolation()})
	if err != nil {
		return db.explain(err, "read")
	}
	defer func() { _ = tx.Rollback() }()
	return db.explain(use(&reader{ctx, tx, &db.d}), "read")
}

// isolation is the one that gives a snapshot. SQLite knows no other.
func (db *DB) isolation() sql.IsolationLevel {
	if db.d.Numbered {
		return sql.LevelRepeatableRead
	}
	return sql.LevelDefault
}

// A reader reads within one read.
type reader struct {
	ctx context.Context
	tx  *sql.Tx
	d   *Dialect
}

func (r *reader) row(query string, args ...any) *sql.Row {
	return r.tx.QueryRowContext(r.ctx, r.d.text(query), args...)
}

// each calls visit for every row, with the row to scan.
func (r *reader) each(visit func(*sql.Rows) error, query string, args ...any) error {
	rows, err := r.tx.QueryContext(r.ctx, r.d.text(query), args...)
	return eachRow(rows, err, visit)
}

func eachRow(rows *sql.Rows, err error, visit func(*sql.Rows) error) error {
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := visit(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// explain gives an error of the database a class and words. Errors of our own stay.
func (db *DB) explain(err error, verb string) error {
	var e *tool.Error
	switch {
	case err == nil || errors.As(err, &e):
		return err
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return tool.AsError(err)
	case db.d.Full(err):
		return tool.Errorf(tool.CodeUnavailable, "there is no room for the store to %s; free some and try again: %w", verb, err).Because("store_full")
	}
	return tool.Errorf(tool.CodeUnavailable, "the store cannot %s: %w", verb, err).Because("store")
}

// digestOf stands for a secret that is looked up, so that who reads the database does not learn it.
func digestOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

func micros(t time.Time) int64 { return t.UnixMicro() }
