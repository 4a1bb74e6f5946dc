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

// A Dialect is what one kind of database does differently. Everything else of this package is the same on
// all of them.
type Dialect struct {
	Numbered bool              // parameters are $1, $2 ... and not ?
	Types    *strings.Replacer // of the words for types in migrations
	Prepare  func() error      // makes what must be there before the first connection; nil: nothing
	Begin    string            // begins a transaction that no other writer, in whatever process, overlaps
	// Quick and Durable choose what the end of the next transaction waits for: that the record survives the
	// end of this program, or that of the machine. Empty: every transaction waits for the latter.
	Quick, Durable string
	// Enter takes the lock of this program, by its number, before anything is written with a connection; Leave gives it
	// back. Lives reports whether somebody holds the lock of a number; Grace is how long that of a program which lives
	// may be free, 0 where it never is. See program.
	Enter func(ctx context.Context, conn *sql.Conn, number int64) error
	Leave func() error
	Lives func(ctx context.Context, q Querier, number int64) (bool, error)
	Grace time.Duration
	// Same reports, as an error, that what is open is no longer what others find in its place; nil: it cannot happen.
	Same func() error
	// Upkeep is called about every second while there is something to write, outside of any transaction; nil: there is
	// nothing to do. Relieve is called where there is no room, and reports whether it made some.
	Upkeep  func(ctx context.Context, conn *sql.Conn)
	Relieve func(ctx context.Context, conn *sql.Conn) bool
	Doubt   bool             // a COMMIT that fails may have happened
	Down    func(error) bool // the database cannot be reached, or ended the connection
	Intact  string           // a query that gives one row with "ok" where the files are sound; empty: none
	Size    string           // a query that gives how many bytes the database takes
	Busy    func(error) bool // another writer was there; trying again may help
	Full    func(error) bool // there is no room
}

// A DB keeps what must last. Many goroutines may use it, and several programs may have it open at once.
type DB struct {
	d     Dialect
	reads *sql.DB
	w     *writer

	ready   atomic.Bool // the tables are up to date
	program program     // this one, among those that use the database
	owner   string      // its name in rows
	absent  absences    // of others
	audit   *AuditTable
	asked   atomic.Pointer[map[string]*sql.Stmt] // the questions of oftenAsked, ready to be asked; nil: not yet

	tending sync.Once // begins with the first connection for writing
	closing chan struct{}
	closed  sync.Once
	tasks   sync.WaitGroup
}

// The ports that this package implements, for those who look after a stage and wonder who keeps things for it.
var (
	_    audit.Log            = (*AuditTable)(nil)
	_    idempotency.Outcomes = (*OutcomeTable)(nil)
	_, _ lease.Leases         = (*LeaseTable)(nil), (*Leases)(nil)
	_, _ session.States       = (*SessionTable)(nil), (*Sessions)(nil)
	_, _ session.Assets       = (*AssetTable)(nil), (*Assets)(nil)
	_    job.Book             = (*JobTable)(nil)
	_    job.Ledger           = (*JobTable)(nil)
	_, _ pin.Pins             = (*PinTable)(nil), (*Pins)(nil)
	_    plan.Book            = (*PlanTable)(nil)
	_, _ approval.Book        = (*ApprovalTable)(nil), (*Approvals)(nil)
)

// Options has useful zero values.
type Options struct {
	// Key gives what signs the head of the audit log. It is asked at the first need. All programs that write to
	// one log have the same key. Without one the log is chained and not signed.
	Key func() ([]byte, error)
	// Columns are those of the audit log; nil: audit.Columns. Tests add some.
	Columns audit.Table
	// Mark names a file, not in the database, which keeps how far the log had come; empty: nothing does.
	Mark string
	// Grace is how long a program that has lost its connection to a database may take to come back; 0: ten seconds,
	// where that can happen.
	Grace time.Duration
	// Reach is how long a write waits for a database that cannot be reached; 0: five seconds.
	Reach time.Duration
}

// New makes a store over two handles of the same database: one for reading, one for writing, of which one
// connection is used. It owns both from then on. Nothing is opened before the first use, which also brings the
// tables up to date; where that fails, the next use tries again.
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
	db.w.settle()           // so that the mark is behind the last record
	_ = db.audit.keepMark() // the one before stays
	err := db.w.close()
	db.closed.Do(func() { close(db.closing) })
	db.tasks.Wait()
	err = errors.Join(err, db.reads.Close())
	if db.d.Leave != nil { // last: as long as anything is open this program is there
		err = errors.Join(err, db.d.Leave())
	}
	return err
}

// Size is how many bytes the database takes.
func (db *DB) Size(ctx context.Context) (bytes int64, err error) {
	err = db.read(ctx, func(r *reader) error {
		_, err := row(r, db.d.Size, nil, &bytes)
		return err
	})
	return bytes, err
}

// same refuses to go on with files that are no longer in their place.
func (db *DB) same() error {
	if db.d.Same == nil {
		return nil
	}
	return db.d.Same()
}

// prepare sees to it that the tables can be read.
func (db *DB) prepare(ctx context.Context) error {
	if db.ready.Load() {
		return nil
	}
	var have int
	if err := db.reads.QueryRowContext(ctx, haveVersion).Scan(&have); err == nil && have == db.version() {
		db.ready.Store(true)
		return nil
	}
	return db.w.do(false, func(*tx) error { return nil }) // any write does it
}

// newer is the reason of a refusal: the tables are those of a later version.
const newer = "store_newer"

// version is that of the tables which this program knows.
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

// text returns a query in the dialect's way to write parameters.
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
	ready := db.often(ctx) // before there is a transaction: it needs a connection of its own
	// the level that gives a snapshot; SQLite has no other
	tx, err := db.reads.BeginTx(ctx, &sql.TxOptions{ReadOnly: true, Isolation: sql.LevelRepeatableRead})
	if err != nil {
		return db.explain(err, "read")
	}
	defer func() { _ = tx.Rollback() }()
	return db.explain(use(&reader{ctx, tx, &db.d, ready}), "read")
}

// oftenAsked are the questions that calls ask, each time one is made. To take their SQL apart every time would cost more
// than to answer them.
var oftenAsked = [...]string{askSession, askBase, askPatches}

// often prepares what is often asked, once. Where that is not possible, it is asked like everything else.
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
		ready[query] = s // of two who come first, those of one are closed with the database
	}
	db.asked.Store(&ready)
	return ready
}

// reading is read for what gives something.
func reading[T any](ctx context.Context, db *DB, use func(*reader) (T, error)) (v T, err error) {
	err = db.read(ctx, func(r *reader) error {
		v, err = use(r)
		return err
	})
	return v, err
}

// A reader reads within one read.
type reader struct {
	ctx context.Context
	tx  *sql.Tx
	d   *Dialect
	// Questions that are ready to be asked.
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

// An asker asks the database: a reader, or the transaction of a writer.
type asker interface {
	each(visit func(*sql.Rows) error, query string, args ...any) error
}

// row reads one row into what into points to, and reports whether there is one. Where there is none, what into points
// to stays as it is.
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

// only reads what is one row; missing is the error where it is not there.
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

// atMost is a LIMIT; 0: none.
func atMost(n int) int {
	if n <= 0 {
		return math.MaxInt32
	}
	return n
}

// explain gives an error of the database a class and words. Errors of our own stay.
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

// away is the error of a database that is down, or restarting. A restart takes seconds, so it says when to try again.
func away(err error, reason, format string, args ...any) error {
	return tool.Errorf(tool.CodeUnavailable, format+"; try again in %v: %w", append(args, tryAgain, err)...).
		Because(reason).RetryAfter(tryAgain)
}

const tryAgain = 2 * time.Second

// digestOf stands for a secret that is looked up, so that reading the database does not reveal it.
func digestOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

func micros(t time.Time) int64 { return t.UnixMicro() }

//go:embed migrations
var files embed.FS

var comments = regex.Lazy(`(?m)^--.*\n`)

// migrations lists the steps from an empty database to the tables of this version: a file each. A step that was ever
// released is not changed: another one follows it. The words are those of SQLite; a Dialect has others for some of
// them. Times are microseconds since 1970, in UTC. The tables of the log, and how they grew, follow from the list of
// its columns.
func migrations(log *layout) [][]string {
	steps := [][]string{log.tables()}
	all, _ := files.ReadDir("migrations") // it is in the program
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
