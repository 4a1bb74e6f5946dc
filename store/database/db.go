// Package database is a SQL database that several programs may share: one writer per program, which commits for many
// callers at once (writer.go), transactions whose COMMIT was not answered (doubt.go), and which programs are alive
// (program.go). It knows no table but its own two, toolpost_schema and program.
package database

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"toolpost/engine/persist"
	"toolpost/tool"
	"toolpost/wire/regex"
)

// A Dialect holds what one kind of database does differently. The rest is the same for all of them.
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
	// free at most, or 0 if it never is. See program.
	Enter func(ctx context.Context, conn *sql.Conn, number int64) error
	Leave func() error
	Lives func(ctx context.Context, q RowQuerier, number int64) (bool, error)
	Grace time.Duration
	// Same returns an error if the open database is no longer the one that others find in its place; nil if that cannot
	// happen.
	Same func() error
	// Upkeep is called about every second while there is something to write, outside of any transaction; it may be nil.
	// Relieve is called when there is no room, and reports whether it made some.
	Upkeep  func(ctx context.Context, conn *sql.Conn)
	Relieve func(ctx context.Context, conn *sql.Conn) bool
	Down    func(error) bool   // the database cannot be reached, or ended the connection
	Intact  string             // a query that returns one row with "ok" if the files are sound; empty if there is none
	Size    string             // a query for the size of the database in bytes
	Busy    func(error) bool   // another writer was active; a retry may help
	Full    func(error) bool   // there is no room
	Advice  func(error) string // what to do about another error, as the end of its message; may be nil
	Server  *Server            // nil if the database is files of this machine
}

// A Server holds what a dialect has for a database of a server: programs of several machines write at once, and a COMMIT that
// fails may have happened. Without one every transaction begins with Begin, so rows become visible in the order in which they
// are numbered, and programs cannot ring, but may ask often.
type Server struct {
	// Share begins a transaction that has its keys, which are sorted, to itself, or, if alone, the whole database. Lock takes a
	// key, and Held lists the keys that are taken.
	Share      func(keys []int64, alone bool) string
	Lock, Held string
	// Send runs statements, one after the other, in one round trip.
	Send func(ctx context.Context, conn *sql.Conn, all []Statement) error
	// Numbers gives as many numbers as wanted from a sequence, Given is the last one that was given, and Advance makes it go on
	// after a number.
	Numbers, Given, Advance string
	// Keeps returns an error if a connection has lost the lock of Enter. Living is a query for a text that changes whenever a
	// program takes or loses its lock.
	Keeps  func(ctx context.Context, conn *sql.Conn) error
	Living string
	// Listen calls heard whenever a program has made the statement Ring, until ctx or the connection ends.
	Listen  func(ctx context.Context, conn *sql.Conn, heard func()) error
	Ring    string
	Now     string                          // a query for the time of its clock in microseconds
	Standby string                          // a query for what is wrong with the server that would take over, or ""
	At      func() string                   // the address of the server that is written to, or "" before the first write
	Answers func(ctx context.Context) error // connects anew, and waits for an answer
}

// A Statement is one that changes something, with its arguments.
type Statement struct {
	Query string
	Args  []any
}

// A DB is an open database, with one writer for this program.
type DB struct {
	*writer
	d     Dialect
	o     Options
	reads *sql.DB

	ready    atomic.Bool                          // the tables are up to date
	program  program                              // this program, among those that use the database
	Owner    string                               // its name in rows
	absent   absences                             // of other programs
	asking   sync.Mutex                           // held by the one that asks whether the server answers
	silent   atomic.Int64                         // when it did not, last
	searched searches                             // for what they have left
	asked    atomic.Pointer[map[string]*sql.Stmt] // the prepared statements of Often; nil if not yet prepared

	tending sync.Once // starts with the first connection for writing
	closing chan struct{}
	closed  sync.Once
	tasks   sync.WaitGroup
}

// Size returns the size of the database in bytes.
func (db *DB) Size(ctx context.Context) (bytes int64, err error) {
	_, err = Row(db.Query(ctx), db.d.Size, nil, &bytes)
	return bytes, err
}

// Usable reports whether the database took the last write, and takes no longer over the present one than a call waits. It waits
// for the database only if that has never answered yet, and no longer than a call does.
func (db *DB) Usable() bool {
	for end := time.Now().Add(db.reach); !db.ready.Load() && !db.failed.Load() && time.Now().Before(end); {
		time.Sleep(db.reach / 500)
	}
	begun := db.begun.Load()
	slow := begun != 0 && time.Since(time.UnixMicro(begun)) > db.reach
	return db.ready.Load() && !slow && !db.failed.Load() && db.same() == nil
}

// Served reports whether a server has the database, so that programs on several machines may share it.
func (db *DB) Served() bool { return db.d.Server != nil }

// Standby returns what is wrong with the server that takes over if this one fails, or "". It reports whether there can be one.
func (db *DB) Standby(ctx context.Context) (wrong string, can bool, err error) {
	if !db.Served() {
		return "", false, nil
	}
	_, err = Row(db.Query(ctx), db.d.Server.Standby, nil, &wrong)
	return wrong, true, err
}

// same returns an error if the files are no longer in their place.
func (db *DB) same() error {
	if db.d.Same == nil {
		return nil
	}
	return db.d.Same()
}

// Options are what a database is used for.
type Options struct {
	Steps   [][]string      // from an empty database to the tables of this version
	Often   []string        // the queries that every call makes: parsing their SQL each time would cost more than running them
	Batches []*Batch        // in the order in which they are done in a group, after all other writes
	Undone  func()          // called if what a batch did was undone
	Tend    func()          // called about every second, from the first write on
	Hurry   <-chan struct{} // calls Tend before its time
	Grace   time.Duration
	Reach   time.Duration
}

// New makes a database of two handles, and owns them from then on.
func New(d Dialect, reads, writes *sql.DB, o Options) *DB {
	db := &DB{d: d, o: o, reads: reads, program: newProgram(), closing: make(chan struct{})}
	db.Owner = db.program.owner()
	if o.Grace > 0 && d.Grace > 0 {
		db.d.Grace = o.Grace
	}
	db.writer = &writer{db: db, pool: writes, reach: cmp.Or(o.Reach, reach)}
	return db
}

// Close ends the use of the database. Writes in progress end first; later ones fail.
func (db *DB) Close() error {
	err := db.writer.close()
	db.closed.Do(func() { close(db.closing) })
	db.tasks.Wait()
	err = errors.Join(err, db.reads.Close())
	if db.d.Leave != nil { // last: this program counts as alive as long as anything is open
		err = errors.Join(err, db.d.Leave())
	}
	return err
}

// prepare makes sure that the tables can be read.
func (db *DB) prepare(ctx context.Context) error {
	if db.ready.Load() {
		return nil
	}
	var have int
	err := db.reads.QueryRowContext(ctx, haveVersion).Scan(&have)
	switch {
	case err != nil || have < db.version():
		return db.Do(false, func(*Tx) error { return nil }) // any write migrates the tables
	case have > db.version():
		if err = db.allowed(ctx, db.reads, have, "reads"); err != nil || db.allowed(ctx, db.reads, have, "writes") != nil {
			return db.explain(err, "read")
		}
	}
	db.ready.Store(true)
	return nil
}

// ReasonNewer is the reason of a refusal: the tables are of a later version.
const ReasonNewer = "store_newer"

// version returns the version of the tables that this program knows.
func (db *DB) version() int { return len(db.o.Steps) }

const haveVersion = `SELECT COALESCE(MAX(version), 0) FROM toolpost_schema`

// What a step means for programs that do not know it, as the first of its statements. Without one they may neither read nor
// write afterwards, and the step is refused while one of them is alive.
const (
	Expands   = "-- expands"   // they go on as before
	Readable  = "-- readable"  // they may read
	Contracts = "-- contracts" // as without one, but the step waits for them, and programs that know it go on without it
)

// The versions since which a database lists its programs, and says which versions may use it.
const (
	programsSince = 5
	limitsSince   = 10
)

// is reports whether a step has a mark.
func is(mark string, step []string) bool { return len(step) > 0 && step[0] == mark }

// allowed returns an error if a database of a later version does not allow this one to read it, or to write.
func (db *DB) allowed(ctx context.Context, q RowQuerier, have int, to string) error {
	var oldest int
	err := q.QueryRowContext(ctx, `SELECT `+to+` FROM toolpost_schema WHERE version = `+strconv.Itoa(have)).Scan(&oldest)
	if db.d.Down(err) || err == nil && oldest > 0 && oldest <= db.version() {
		return err
	}
	return tool.Errorf(tool.CodeUnavailable,
		"the store belongs to a later version of toolpost: its tables are of version %d, and this "+
			"program knows version %d; update this program, or name another store with `store: {url: ...}`", have,
		db.version()).Because(ReasonNewer)
}

// migrate brings the tables up to date. A database of a later version is left alone. If the connection to a database can be
// lost, each new one is checked: another program may have been there meanwhile.
func (t *Tx) migrate() error {
	db := t.w.db
	if db.ready.Load() && (t.w.checked || !db.Served()) {
		return nil
	}
	var have int
	if _, err := Row(t, haveVersion, nil, &have); err != nil || have != db.version() { // else there is no need to be alone
		if err := t.once(db.d.Begin); err != nil {
			return err
		}
		err := t.migrateFrom(db.o.Steps)
		if err == nil {
			err = t.once("COMMIT")
		}
		if err != nil {
			return errors.Join(err, t.once("ROLLBACK"))
		}
	}
	db.ready.Store(true)
	t.w.checked = true
	return nil
}

func (t *Tx) migrateFrom(steps [][]string) error {
	if err := t.once(`CREATE TABLE IF NOT EXISTS toolpost_schema (version BIGINT NOT NULL)`); err != nil {
		return err
	}
	var have int
	if _, err := Row(t, haveVersion, nil, &have); err != nil {
		return err
	}
	switch {
	case have > len(steps):
		return t.w.db.allowed(t.ctx, t.w.conn, have, "writes")
	case have == 0:
		steps = atOnce(steps)
	}
	for n := have; n < len(steps); n++ {
		if wait, err := t.mustWait(have, steps[n:]); err != nil || wait {
			return err
		}
		if err := t.step(n+1, steps[n]); err != nil {
			return err
		}
	}
	return nil
}

var (
	makesTable = regex.Lazy(`^CREATE TABLE (\w+) \(`)
	addsColumn = regex.Lazy(`^ALTER TABLE (\w+) ADD COLUMN (.+)$`)
	lastColumn = regex.Lazy(`(,\s*PRIMARY KEY \([^)]*\))?\)$`)
)

// atOnce returns the steps for an empty database: its tables have the columns of later steps from the start. SQLite reads its whole
// schema again for each column that is added, which took most of the time of a new store.
func atOnce(steps [][]string) [][]string {
	tables, all := map[string]*string{}, make([][]string, len(steps))
	for i, step := range steps {
		all[i] = make([]string, 0, len(step)) // so that the pointers into it stay
		for _, statement := range step {
			if m := addsColumn().FindStringSubmatch(statement); m != nil && tables[m[1]] != nil {
				made := tables[m[1]]
				end := lastColumn().FindStringIndex(*made)[0]
				*made = (*made)[:end] + ", " + m[2] + (*made)[end:]
				continue
			}
			all[i] = append(all[i], statement)
			if m := makesTable().FindStringSubmatch(statement); m != nil {
				tables[m[1]] = &all[i][len(all[i])-1]
			}
		}
	}
	return all
}

// step makes the step to a version, and says which earlier versions may still use the database.
func (t *Tx) step(version int, statements []string) error {
	for _, statement := range statements {
		if err := t.once(t.w.db.d.Types.Replace(statement)); err != nil {
			return err
		}
	}
	if err := t.Exec(`INSERT INTO toolpost_schema (version) VALUES (?)`, version); err != nil || version < limitsSince {
		return err
	}
	reads, writes := version, version
	for ; reads > limitsSince && (is(Expands, t.w.db.o.Steps[reads-1]) || is(Readable, t.w.db.o.Steps[reads-1])); reads-- {
	}
	for ; writes > limitsSince && is(Expands, t.w.db.o.Steps[writes-1]); writes-- {
	}
	return t.Exec(`UPDATE toolpost_schema SET reads = ?, writes = ? WHERE version = ?`, reads, writes, version)
}

// mustWait reports whether the next steps wait for programs of earlier versions to end. Programs are listed if the database
// is a server's; the others are on this machine, and are restarted with it.
func (t *Tx) mustWait(have int, next [][]string) (bool, error) {
	db := t.w.db
	if !db.Served() || have < programsSince || is(Expands, next[0]) {
		return false, nil
	}
	query, older := `SELECT id FROM program`, 0
	if have >= limitsSince {
		query += ` WHERE version < ` + strconv.Itoa(db.version())
	}
	ids, err := List(t, Value[int64], query)
	for _, id := range ids {
		lives := false
		if err == nil && program(id) != db.program {
			lives, err = db.d.Lives(t.ctx, t.w.conn, id)
		}
		if lives {
			older++
		}
	}
	switch {
	case err != nil || older == 0:
		return false, err
	case !slices.ContainsFunc(next, func(step []string) bool { return !is(Contracts, step) }):
		return true, nil
	}
	return false, tool.Errorf(tool.CodeUnavailable, "programs of an earlier version use the store (%d), and could not go on "+
		"after its upgrade from version %d to %d; stop them first", older, have, db.version()).Because("store_older")
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

// Read runs queries that see one state of the database, whatever is written meanwhile.
func (db *DB) Read(ctx context.Context, use func(*Reader) error) error {
	if err := db.prepare(ctx); err != nil {
		return err
	}
	if err := db.same(); err != nil {
		return err
	}
	ctx, stop := db.watch(ctx, 2)
	defer stop()
	ready := db.often(ctx) // before the transaction: it needs a connection of its own
	// the isolation level of a snapshot; SQLite has no other
	snapshot := &sql.TxOptions{ReadOnly: true, Isolation: sql.LevelRepeatableRead}
	begun := time.Now()
	tx, err := db.reads.BeginTx(ctx, snapshot)
	for err != nil && db.d.Down(err) && time.Since(begun) < soonLost && ctx.Err() == nil {
		time.Sleep(soonLost / 10)
		tx, err = db.reads.BeginTx(ctx, snapshot) // the pool may have had connections to a server that restarted
	}
	if err == nil {
		defer func() { _ = tx.Rollback() }()
		err = use(&Reader{ctx, tx, &db.d, ready})
	}
	return db.explain(because(ctx, err), "read")
}

// Given returns the last number that was given to a row, and which keys were held after that: a transaction that has a lower
// number and is not over holds its keys. If rows become visible in the order of their numbers, no number is too high.
func (db *DB) Given(ctx context.Context) (last int64, held func(key string) bool, err error) {
	taken := map[int64]bool{}
	held = func(key string) bool { return taken[lockOf(key)] }
	if !db.Served() {
		return math.MaxInt64, held, nil
	}
	if err := db.prepare(ctx); err != nil {
		return 0, held, err
	}
	ctx, stop := db.watch(ctx, 2)
	defer stop()
	if err := db.reads.QueryRowContext(ctx, db.d.Server.Given).Scan(&last); err != nil {
		return 0, held, db.explain(because(ctx, err), "read")
	}
	rows, err := db.reads.QueryContext(ctx, db.d.Server.Held)
	err = eachRow(rows, err, func(rows *sql.Rows) error {
		key, err := Value[int64](rows)
		taken[key] = true
		return err
	})
	return last, held, db.explain(because(ctx, err), "read")
}

// soonLost is how long a read looks for a connection that works.
const soonLost = 200 * time.Millisecond

// often prepares the statements of Often, once. If that fails, they are run like all others.
func (db *DB) often(ctx context.Context) map[string]*sql.Stmt {
	if ready := db.asked.Load(); ready != nil {
		return *ready
	}
	ready := map[string]*sql.Stmt{}
	for _, query := range db.o.Often {
		s, err := db.reads.PrepareContext(ctx, db.d.text(query))
		if err != nil {
			return nil
		}
		ready[query] = s // if two callers do this at once, the statements of one are only closed with the database
	}
	db.asked.Store(&ready)
	return ready
}

// Query returns a Querier whose queries are reads, each of its own.
func (db *DB) Query(ctx context.Context) Querier { return query{ctx, db} }

type query struct {
	ctx context.Context
	db  *DB
}

func (q query) Each(visit func(*sql.Rows) error, text string, args ...any) error {
	return q.db.Read(q.ctx, func(r *Reader) error { return r.Each(visit, text, args...) })
}

// Reading is Read for functions that return a value.
func Reading[T any](ctx context.Context, db *DB, use func(*Reader) (T, error)) (v T, err error) {
	err = db.Read(ctx, func(r *Reader) error {
		v, err = use(r)
		return err
	})
	return v, err
}

// A Reader runs the queries of one read.
type Reader struct {
	ctx context.Context
	tx  *sql.Tx
	d   *Dialect
	// Prepared statements.
	ready map[string]*sql.Stmt
}

// Each calls visit for every row, with the row to scan.
func (r *Reader) Each(visit func(*sql.Rows) error, query string, args ...any) error {
	if s := r.ready[query]; s != nil {
		rows, err := r.tx.StmtContext(r.ctx, s).QueryContext(r.ctx, args...)
		return eachRow(rows, err, visit)
	}
	rows, err := r.tx.QueryContext(r.ctx, r.d.text(query), args...)
	return eachRow(rows, err, visit)
}

// Damage runs the database's own check, if it has one, and returns what it found.
func (r *Reader) Damage() (found string, err error) {
	if r.d.Intact == "" {
		return "", nil
	}
	if _, err = Row(r, r.d.Intact, nil, &found); found == "ok" {
		found = ""
	}
	return found, err
}

// ErrStop is returned by a visitor of rows that wants no more of them.
var ErrStop = errors.New("no more rows are wanted")

func eachRow(rows *sql.Rows, err error, visit func(*sql.Rows) error) error {
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := visit(rows); err != nil {
			if errors.Is(err, ErrStop) {
				return nil
			}
			return err
		}
	}
	return rows.Err()
}

// A Querier queries the database: a reader, or the transaction of a writer.
type Querier interface {
	Each(visit func(*sql.Rows) error, query string, args ...any) error
}

// Row scans one row into the given pointers, and reports whether there is one. If there is none, their values stay
// unchanged.
func Row(a Querier, query string, args []any, into ...any) (found bool, err error) {
	err = a.Each(func(rows *sql.Rows) error {
		found = true
		return rows.Scan(into...)
	}, query, args...)
	return found, err
}

// List reads rows of one kind.
func List[T any](a Querier, scan func(*sql.Rows) (T, error), query string, args ...any) ([]T, error) {
	all := []T{}
	err := a.Each(func(rows *sql.Rows) error {
		one, err := scan(rows)
		all = append(all, one)
		return err
	}, query, args...)
	return all, err
}

// Value reads a row of one value.
func Value[T any](rows *sql.Rows) (v T, err error) {
	err = rows.Scan(&v)
	return v, err
}

// Only reads exactly one row; missing is the error if there is none.
func Only[T any](
	a Querier, missing error, scan func(*sql.Rows) (T, error), query string, args ...any,
) (v T, err error) {
	all, err := List(a, scan, query, args...)
	if err != nil {
		return v, err
	}
	if len(all) == 0 {
		return v, missing
	}
	return all[0], nil
}

// AtMost returns a LIMIT; 0 means none.
func AtMost(n int) int {
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
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrUnconnected):
		return tool.AsError(err)
	case db.d.Down(err):
		db.absent.forget()
		return away(err, persist.Down, "the store cannot be reached to %s", verb)
	case db.d.Full(err):
		return tool.Errorf(tool.CodeUnavailable,
			"there is no disk space for the store to %s; free some and try again: %w", verb,
			err).Because(persist.Full)
	}
	e := tool.Errorf(tool.CodeUnavailable, "the store cannot %s: %w", verb, err).Because("store")
	if db.d.Advice != nil {
		e.Message += db.d.Advice(err)
	}
	return e
}

// ErrUnconnected is the error of a server that was not reached, or did not let this program in.
var ErrUnconnected = errors.New("no connection to the database")

// away returns the error of a database that is down or restarting. A restart takes seconds, so it includes when to
// retry.
func away(err error, reason, format string, args ...any) error {
	return tool.Errorf(tool.CodeUnavailable, format+"; try again in %v: %w", append(args, tryAgain, err)...).
		Because(reason).RetryAfter(tryAgain)
}

const tryAgain = 2 * time.Second

// Digest returns the digest under which a secret is stored, so that reading the database does not reveal it.
func Digest(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// Micros is how times are kept.
func Micros(t time.Time) int64 { return t.UnixMicro() }

// MicroTime is a time in the database: microseconds since 1970, in UTC.
type MicroTime time.Time

// Scan implements sql.Scanner. NULL is the zero time.
func (t *MicroTime) Scan(value any) error {
	switch n := value.(type) {
	case nil:
		*t = MicroTime{}
	case int64:
		*t = MicroTime(time.UnixMicro(n).UTC())
	default:
		return fmt.Errorf("a time cannot be %v", value)
	}
	return nil
}

var _ sql.Scanner = (*MicroTime)(nil)

// MaxName is the most bytes of a text that callers choose.
const MaxName = 256

// Plain returns text that every database accepts, of at most most bytes.
func Plain(s string, most int) string {
	if len(s) > most {
		end := most - len("…")
		for end > most/2 && !utf8.RuneStart(s[end]) {
			end--
		}
		s = s[:end] + "…"
	}
	if utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 {
		return s
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\ufffd"), "\x00", "\ufffd")
}
