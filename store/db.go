package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"toolpost/engine/approval"
	"toolpost/engine/audit"
	"toolpost/engine/idempotency"
	"toolpost/engine/job"
	"toolpost/engine/lease"
	"toolpost/engine/pin"
	"toolpost/engine/session"
	"toolpost/plan"
	"toolpost/tool"
	"toolpost/wire/regex"
)

// A Dialect holds what one kind of database does differently. The rest of this package is the same for all of them.
type Dialect struct {
	Numbered bool              // parameters are $1, $2 ... and not ?
	Types    *strings.Replacer // replaces the type names in migrations
	Prepare  func() error      // creates what must exist before the first connection; may be nil
	Begin    string            // begins a transaction that no other writer, in any process, overlaps
	// Quick and Durable choose what the end of the next transaction waits for: that the record survives the end of this
	// program, or that of the machine. If they are empty, every transaction waits for the latter.
	Quick, Durable string
	// Enter takes the lock of this program, by its number, before anything is written with a connection; Leave releases
	// it. Lives reports whether the lock of a number is held; Grace is how long the lock of a living program may be
	// free, or 0 if it never is. See program.
	Enter func(ctx context.Context, conn *sql.Conn, number int64) error
	Leave func() error
	Lives func(ctx context.Context, q Querier, number int64) (bool, error)
	Grace time.Duration
	// Same returns an error if the open database is no longer the one that others find in its place; nil if that cannot
	// happen.
	Same func() error
	// Upkeep is called about every second while there is something to write, outside of any transaction; it may be nil.
	// Relieve is called when there is no room, and reports whether it made some.
	Upkeep  func(ctx context.Context, conn *sql.Conn)
	Relieve func(ctx context.Context, conn *sql.Conn) bool
	Doubt   bool             // a COMMIT that fails may have happened
	Down    func(error) bool // the database cannot be reached, or ended the connection
	Intact  string           // a query that returns one row with "ok" if the files are sound; empty if there is none
	Size    string           // a query for the size of the database in bytes
	Busy    func(error) bool // another writer was active; a retry may help
	Full    func(error) bool // there is no room
}

// A DB keeps durable data. Many goroutines may use it, and several programs may have it open at once.
type DB struct {
	d     Dialect
	reads *sql.DB
	w     *writer

	ready   atomic.Bool // the tables are up to date
	program program     // this program, among those that use the database
	owner   string      // its name in rows
	absent  absences    // of other programs
	audit   *AuditTable
	asked   atomic.Pointer[map[string]*sql.Stmt] // the prepared statements of oftenAsked; nil if not yet prepared

	tending sync.Once // starts with the first connection for writing
	closing chan struct{}
	closed  sync.Once
	tasks   sync.WaitGroup
}

// The ports that this package implements, for readers of a stage who wonder what its store is.
var (
	_    audit.Log            = (*AuditTable)(nil)
	_    idempotency.Outcomes = (*OutcomeTable)(nil)
	_, _ lease.Leases         = (*LeaseTable)(nil), (*Leases)(nil)
	_, _ session.States       = (*SessionTable)(nil), (*Sessions)(nil)
	_, _ session.Assets       = (*AssetTable)(nil), (*Assets)(nil)
	_    job.CallerStore      = (*JobTable)(nil)
	_    job.Ledger           = (*JobTable)(nil)
	_, _ pin.Pins             = (*PinTable)(nil), (*Pins)(nil)
	_    plan.Store           = (*PlanTable)(nil)
	_, _ approval.Store       = (*ApprovalTable)(nil), (*Approvals)(nil)
)

// Options of a DB. The zero value is useful.
type Options struct {
	// Key returns the key that signs the head of the audit log. It is called on first use. All programs that write to
	// one log have the same key. Without one the log is chained and not signed.
	Key func() ([]byte, error)
	// Columns are the columns of the audit log; nil means audit.Columns. Tests add some.
	Columns audit.Table
	// Mark names a file, outside the database, that records how far the log has come; empty for none.
	Mark string
	// Grace is how long a program that has lost its connection to a database may take to come back; the default is ten
	// seconds, if that can happen.
	Grace time.Duration
	// Reach is how long a write waits for a database that cannot be reached; default five seconds.
	Reach time.Duration
}

// New makes a store over two handles of the same database: one for reading, one for writing, of which one connection is
// used. It owns both from then on. Nothing is opened before the first use, which also brings the tables up to date; if
// that fails, the next use tries again.
func New(d Dialect, reads, writes *sql.DB, o Options) *DB {
	db := &DB{d: d, reads: reads, program: newProgram(), closing: make(chan struct{})}
	db.owner = db.program.owner()
	if o.Grace > 0 && d.Grace > 0 {
		db.d.Grace = o.Grace
	}
	db.w = &writer{db: db, pool: writes, reach: cmp.Or(o.Reach, reach)}
	db.audit = newAuditTable(db, o)
	return db
}

// Close ends the use of the database. Writes in progress end first; later ones fail.
func (db *DB) Close() error {
	db.w.settle()           // so that the mark covers the last record
	_ = db.audit.keepMark() // on an error the previous mark stays
	err := db.w.close()
	db.closed.Do(func() { close(db.closing) })
	db.tasks.Wait()
	err = errors.Join(err, db.reads.Close())
	if db.d.Leave != nil { // last: this program counts as alive as long as anything is open
		err = errors.Join(err, db.d.Leave())
	}
	return err
}

// Size returns the size of the database in bytes.
func (db *DB) Size(ctx context.Context) (bytes int64, err error) {
	err = db.read(ctx, func(r *reader) error {
		_, err := row(r, db.d.Size, nil, &bytes)
		return err
	})
	return bytes, err
}

// same returns an error if the files are no longer in their place.
func (db *DB) same() error {
	if db.d.Same == nil {
		return nil
	}
	return db.d.Same()
}

// prepare makes sure that the tables can be read.
func (db *DB) prepare(ctx context.Context) error {
	if db.ready.Load() {
		return nil
	}
	var have int
	if err := db.reads.QueryRowContext(ctx, haveVersion).Scan(&have); err == nil && have == db.version() {
		db.ready.Store(true)
		return nil
	}
	return db.w.do(false, func(*tx) error { return nil }) // any write migrates the tables
}

// newer is the reason of a refusal: the tables are of a later version.
const newer = "store_newer"

// version returns the version of the tables that this program knows.
func (db *DB) version() int { return len(migrations(db.audit.layout)) }

const haveVersion = `SELECT COALESCE(MAX(version), 0) FROM toolpost_schema`

// migrate brings the tables up to date. A database of a later version is left alone.
func (t *tx) migrate() error {
	db := t.w.db
	if db.ready.Load() {
		return nil
	}
	if err := t.once(db.d.Begin); err != nil {
		return err
	}
	err := t.migrateFrom(migrations(db.audit.layout))
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
	if _, err := row(t, haveVersion, nil, &have); err != nil {
		return err
	}
	if have > len(steps) {
		return tool.Errorf(tool.CodeUnavailable,
			"the store belongs to a later version of toolpost: its tables are of version %d, and this "+
				"program knows version %d; update this program, or name another store with `store: {url: ...}`", have,
			len(steps)).Because(newer)
	}
	for n := have; n < len(steps); n++ {
		for _, statement := range steps[n] {
			if err := t.once(t.w.db.d.Types.Replace(statement)); err != nil {
				return err
			}
		}
		if err := t.exec(`INSERT INTO toolpost_schema (version) VALUES (?)`, n+1); err != nil {
			return err
		}
	}
	return nil
}

// text returns a query with parameters in the dialect's syntax.
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
	if err := db.same(); err != nil {
		return err
	}
	ready := db.often(ctx) // before the transaction: it needs a connection of its own
	// the isolation level of a snapshot; SQLite has no other
	tx, err := db.reads.BeginTx(ctx, &sql.TxOptions{ReadOnly: true, Isolation: sql.LevelRepeatableRead})
	if err != nil {
		return db.explain(err, "read")
	}
	defer func() { _ = tx.Rollback() }()
	return db.explain(use(&reader{ctx, tx, &db.d, ready}), "read")
}

// oftenAsked are the queries that every call makes. Parsing their SQL each time would cost more than running them.
var oftenAsked = [...]string{askSession, askBase, askPatches}

// often prepares the statements of oftenAsked, once. If that fails, they are run like all others.
func (db *DB) often(ctx context.Context) map[string]*sql.Stmt {
	if ready := db.asked.Load(); ready != nil {
		return *ready
	}
	ready := map[string]*sql.Stmt{}
	for _, query := range &oftenAsked {
		s, err := db.reads.PrepareContext(ctx, db.d.text(query))
		if err != nil {
			return nil
		}
		ready[query] = s // if two callers do this at once, the statements of one are only closed with the database
	}
	db.asked.Store(&ready)
	return ready
}

// reading is read for functions that return a value.
func reading[T any](ctx context.Context, db *DB, use func(*reader) (T, error)) (v T, err error) {
	err = db.read(ctx, func(r *reader) error {
		v, err = use(r)
		return err
	})
	return v, err
}

// A reader runs the queries of one read.
type reader struct {
	ctx context.Context
	tx  *sql.Tx
	d   *Dialect
	// Prepared statements.
	ready map[string]*sql.Stmt
}

// each calls visit for every row, with the row to scan.
func (r *reader) each(visit func(*sql.Rows) error, query string, args ...any) error {
	if s := r.ready[query]; s != nil {
		rows, err := r.tx.StmtContext(r.ctx, s).QueryContext(r.ctx, args...)
		return eachRow(rows, err, visit)
	}
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

// An asker queries the database: a reader, or the transaction of a writer.
type asker interface {
	each(visit func(*sql.Rows) error, query string, args ...any) error
}

// row scans one row into the given pointers, and reports whether there is one. If there is none, their values stay
// unchanged.
func row(a asker, query string, args []any, into ...any) (found bool, err error) {
	err = a.each(func(rows *sql.Rows) error {
		found = true
		return rows.Scan(into...)
	}, query, args...)
	return found, err
}

// list reads rows of one kind.
func list[T any](a asker, scan func(*sql.Rows) (T, error), query string, args ...any) ([]T, error) {
	all := []T{}
	err := a.each(func(rows *sql.Rows) error {
		one, err := scan(rows)
		all = append(all, one)
		return err
	}, query, args...)
	return all, err
}

// value reads a row of one value.
func value[T any](rows *sql.Rows) (v T, err error) {
	err = rows.Scan(&v)
	return v, err
}

// only reads exactly one row; missing is the error if there is none.
func only[T any](
	a asker, missing error, scan func(*sql.Rows) (T, error), query string, args ...any,
) (v T, err error) {
	all, err := list(a, scan, query, args...)
	if err != nil {
		return v, err
	}
	if len(all) == 0 {
		return v, missing
	}
	return all[0], nil
}

// atMost returns a LIMIT; 0 means none.
func atMost(n int) int {
	if n <= 0 {
		return math.MaxInt32
	}
	return n
}

// explain adds a code and a message to an error of the database. Our own errors stay as they are.
func (db *DB) explain(err error, verb string) error {
	_, ours := errors.AsType[*tool.Error](err)
	switch {
	case err == nil || ours:
		return err
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return tool.AsError(err)
	case db.d.Down(err):
		db.absent.forget()
		return away(err, tool.StoreDown, "the store cannot be reached to %s", verb)
	case db.d.Full(err):
		return tool.Errorf(tool.CodeUnavailable,
			"there is no disk space for the store to %s; free some and try again: %w", verb,
			err).Because(tool.StoreFull)
	}
	return tool.Errorf(tool.CodeUnavailable, "the store cannot %s: %w", verb, err).Because("store")
}

// away returns the error of a database that is down or restarting. A restart takes seconds, so it includes when to
// retry.
func away(err error, reason, format string, args ...any) error {
	return tool.Errorf(tool.CodeUnavailable, format+"; try again in %v: %w", append(args, tryAgain, err)...).
		Because(reason).RetryAfter(tryAgain)
}

const tryAgain = 2 * time.Second

// digestOf returns the digest under which a secret is stored, so that reading the database does not reveal it.
func digestOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

func micros(t time.Time) int64 { return t.UnixMicro() }

//go:embed migrations
var files embed.FS

var comments = regex.Lazy(`(?m)^--.*\n`)

// migrations lists the steps from an empty database to the tables of this version, one file each. A released step never
// changes: another one follows it. Type names are those of SQLite; a Dialect replaces some of them. Times are
// microseconds since 1970, in UTC. The tables of the log, and their changes, are derived from the list of its columns.
func migrations(log *layout) [][]string {
	steps := [][]string{log.tables()}
	all, _ := files.ReadDir("migrations") // it is embedded
	for n := 1; n <= len(all); n++ {
		text, err := files.ReadFile(fmt.Sprintf("migrations/%d.sql", n))
		if err != nil {
			panic(err) // a number is missing
		}
		if n > len(steps) {
			steps = append(steps, nil)
		}
		for statement := range strings.SplitSeq(comments().ReplaceAllString(string(text), ""), ";\n") {
			if statement = strings.TrimSpace(statement); statement != "" {
				steps[n-1] = append(steps[n-1], statement)
			}
		}
	}
	return log.grow(steps)
}
