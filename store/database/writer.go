package database

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"toolpost/engine/persist"
	"toolpost/tool"
)

// How long a write waits: for other programs that write, and for an unreachable database. A caller with more time waits
// longer by retrying; see persist.Write.
const (
	patience = 20 * time.Second
	reach    = 5 * time.Second
	silence  = 15 * time.Second // longer than a server lets a transaction wait for its locks
	slow     = time.Second      // then a server is asked whether it hangs
	quick    = 1500 * time.Millisecond
)

// A writer writes with one connection, one transaction at a time. Writes that arrive during a transaction wait and
// share the next one: so the cost of a commit, which is that of a disk, is paid once per group.
//
// Why one. SQLite has one writer anyway: several connections would take turns by polling a lock, which is slower and
// unfair. PostgreSQL could have many for each program, but the records of a program are one chain, so they are added one
// after the other in any case.
//
// Why programs do not deadlock. A write names what it reads and changes by keys, or else excludes all others. A group locks
// the keys of its writes in one order, and before it touches a row: so a program that waits for a key holds no later one,
// and one that has its keys waits for no other program.
//
// Why it has no goroutine. The first caller leads: it commits what has gathered, and then hands the lead to one of the
// callers that arrived meanwhile. An unused writer costs nothing, a single call goes to the database without waking a
// goroutine, and there is nothing to start, to stop or to find hanging. The price is that a leader does the work of the
// others, and that it must never leave without handing on, whatever happens to it: see commitSafely.
//
// Why a write is a function that may run more than once. A transaction may fail through no fault of its own: another
// program was in the way, the server restarted, the disk was full until an operator made room. The leader then retries
// the group, within bounds, and callers see one answer. A write that is refused does not affect the others of its group:
// most are refused before they change anything, and after any other refusal the group is retried with a savepoint for each
// write. If the transaction itself fails although the database is well, one of them may be at fault, and the writes are
// tried one by one.
//
// Why some do not wait. The record of a call that changed nothing is worth less than the time that its caller would
// wait for a disk. It joins the queue and the next leader takes it along; if there is none, a timer leads (see Later).
// Such writes are bounded in number, beyond which their callers wait like all others, and in time.
//
// A COMMIT that was not answered cannot simply be retried, since it may have happened. If that is possible each
// transaction leaves a mark, by which the next one finds out: see doubt. A caller that cannot wait for that gets an
// error that the outcome is unclear, and may come again with the same name; a write that turned out to have happened is
// not repeated.
type writer struct {
	db   *DB
	pool *sql.DB
	// How long a group waits for a database that cannot be reached.
	reach time.Duration

	last   atomic.Int64 // when a group was last committed, in microseconds
	begun  atomic.Int64 // when the present group began, in microseconds; 0 if there is none
	failed atomic.Bool  // the last attempt failed, and no other program was in the way

	mu      sync.Mutex
	queue   []*Write
	led     bool
	closed  bool
	timer   *time.Timer    // leads the writes without a waiting caller; nil until the first one
	pending sync.WaitGroup // writes that are not finished
	behind  atomic.Int64   // unfinished writes without a waiting caller

	// The fields below are used by the leader alone.
	conn    *sql.Conn
	checked bool // the version of the tables, since it connected
	stmts   map[string]*sql.Stmt
	texts   map[string]string // of the statements of Exec, as the server gets them
	mode    string            // Quick or Durable, as last chosen
	kept    time.Time         // when upkeep was last done
	full    bool              // there was no room for the last group
	down    bool              // the last group did not reach the database: the next one does not wait for it
	doubt   *doubt
	// Writes that were reported as unclear and then found to have happened, by name: they are not repeated.
	landed map[string]bool
}

// A Batch does the writes of one kind in a group at once: every call has some of these, so shared statements are worth
// it.
type Batch struct {
	Do   func(*Tx, []*Write) error // all of them fail together
	Name func(*Write) string       // as Write.Name; nil if none is repeated
}

// A Write is one item to write.
type Write struct {
	Do      func(*Tx) error
	Batch   *Batch // set if Do is nil, with the item
	Item    any
	Durable bool
	Keys    []string     // names what it reads and changes; without any, it is alone in the whole database
	Then    *Write       // done after this one, in the same transaction, unless this one is refused; of a later Batch
	Name    string       // identifies the write, if a caller may repeat it after an unclear outcome
	Late    func()       // called by a leader if the write is found to have happened after it was reported as unclear
	wake    chan bool    // true to lead, false when it is done; nil if no caller waits
	Done    func(*Write) // called when it is over, if no caller waits
	Err     error
	idle    bool // does nothing: a transaction is only needed if one is in doubt

	written, told bool // for leaders: it was found to have been written; its error was returned to the caller
}

// Do runs f in a transaction and returns when it is committed. An error of f undoes what f did and nothing else. f may
// be run more than once, if other programs were in the way. See Write for the keys.
func (w *writer) Do(durable bool, f func(*Tx) error, keys ...string) error {
	return w.Submit(&Write{Do: f, Durable: durable, Keys: keys})
}

// Writing is Do, durably, for functions that return a value.
func Writing[T any](db *DB, f func(*Tx) (T, error), keys ...string) (v T, err error) {
	err = db.Do(true, func(t *Tx) error {
		v, err = f(t)
		return err
	}, keys...)
	return v, err
}

func (w *writer) Submit(one *Write) error {
	one.wake = make(chan bool, 1)
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return tool.Errorf(tool.CodeUnavailable, "the store is closed")
	}
	w.pending.Add(1)
	defer w.pending.Done()
	w.queue = append(w.queue, one)
	follow := w.led
	w.led = true
	w.mu.Unlock()
	if follow && !<-one.wake { // bounded: a leader gives up after its patience, and wakes all followers
		return one.Err
	}
	w.lead(one)
	return one.Err
}

// The longest delay of a write without a waiting caller, how many of them are written without further delay, and how
// many there may be.
const (
	soon     = 20 * time.Millisecond
	plenty   = 512
	mostLate = 4096
)

// Later submits a write without waiting; Done is called when it is over. If there are too many already the caller
// waits, so that callers cannot outrun the disk for a long time.
func (w *writer) Later(one *Write) {
	w.mu.Lock()
	if w.closed || w.behind.Load() >= mostLate {
		w.mu.Unlock()
		one.Err = w.Submit(one)
		one.Done(one)
		return
	}
	defer w.mu.Unlock()
	w.pending.Add(1)
	w.behind.Add(1)
	w.queue = append(w.queue, one)
	switch n := len(w.queue); {
	case w.led: // the current leader makes sure that there is a next one
	case n == 1:
		w.leadIn(soon)
	case n == plenty:
		w.leadIn(0)
	}
}

// leadIn makes the timer lead after a while. The lock is held.
func (w *writer) leadIn(wait time.Duration) {
	if w.timer == nil {
		w.timer = time.AfterFunc(wait, w.catchUp)
	} else {
		w.timer.Reset(wait)
	}
}

// catchUp leads for writes without a waiting caller, unless there is or was another leader.
func (w *writer) catchUp() {
	w.mu.Lock()
	if w.led || len(w.queue) == 0 {
		w.mu.Unlock()
		return
	}
	w.led = true
	w.pending.Add(1) // it has the connection until it is done, which is after the last write is
	defer w.pending.Done()
	w.mu.Unlock()
	w.lead(nil)
}

// Settle waits until all earlier writes are written, or given up.
func (w *writer) Settle() {
	if w.behind.Load() > 0 {
		_ = w.Do(false, func(*Tx) error { return nil })
	}
}

// lead commits one group, which includes the leader's own write.
func (w *writer) lead(own *Write) {
	group := w.gather()
	w.commitSafely(group)
	for _, one := range group {
		switch {
		case one == own:
		case one.wake != nil:
			one.wake <- false
		default:
			one.Done(one)
			w.behind.Add(-1)
			w.pending.Done()
		}
	}
	w.upkeep()
	w.mu.Lock()
	defer w.mu.Unlock()
	next := slices.IndexFunc(w.queue, func(one *Write) bool { return one.wake != nil })
	switch {
	case next >= 0:
		w.queue[next].wake <- true
		return
	case w.closed && len(w.queue) > 0, len(w.queue) >= plenty:
		w.leadIn(0)
	case len(w.queue) > 0:
		w.leadIn(soon)
	}
	w.led = false
}

// upkeep does the regular maintenance of the database, between two groups.
func (w *writer) upkeep() {
	now := time.Now()
	if w.conn == nil || w.db.d.Upkeep == nil || now.Sub(w.kept) < tendEvery {
		return
	}
	w.kept = now
	w.db.d.Upkeep(context.Background(), w.conn)
}

// relieved reports whether a database without room could make some.
func (w *writer) relieved() bool {
	return w.full && w.conn != nil && w.db.d.Relieve != nil && w.db.d.Relieve(context.Background(), w.conn)
}

// gather takes the queued writes. It yields to callers that are about to submit, as long as the group grows.
func (w *writer) gather() (group []*Write) {
	for before := 0; ; before = len(group) {
		runtime.Gosched()
		w.mu.Lock()
		group = w.queue
		if len(group) <= before || len(group) >= enough {
			w.queue = nil
			w.mu.Unlock()
			return group
		}
		w.mu.Unlock()
	}
}

// enough is the size of a group that does not wait for more writes.
const enough = 64

// close waits for the writes in progress.
func (w *writer) close() error {
	w.mu.Lock()
	w.closed = true
	if !w.led && len(w.queue) > 0 {
		w.leadIn(0)
	}
	w.mu.Unlock()
	w.pending.Wait()
	w.disconnect()
	return w.pool.Close()
}

// commitSafely recovers from a panic, so that followers are not left without a leader.
func (w *writer) commitSafely(group []*Write) {
	defer func() {
		if p := recover(); p != nil {
			w.disconnect()
			for _, one := range group {
				one.Err = tool.Errorf(tool.CodeInternal, "the store met an internal error: %v", p)
			}
		}
	}()
	w.begun.Store(Micros(time.Now()))
	defer w.begun.Store(0)
	w.commit(group)
}

// commit writes a group in one transaction. It retries if another program was in the way or the connection was lost.
func (w *writer) commit(group []*Write) {
	var err error
	var lost bool
	var since time.Time // when it was first lost: a slow transaction does not shorten the time to come back
	for begun, pause := time.Now(), time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		had := w.conn != nil
		w.relieved() // first, so that freed room is used where it frees more
		if err = w.attempt(group); err != nil && w.db.d.Full(err) && !w.full {
			if w.full = true; w.relieved() {
				err = w.attempt(group)
			}
		}
		w.full = w.db.d.Full(err)
		w.failed.Store(err != nil && !w.db.d.Busy(err))
		lost = had && w.conn == nil || w.db.d.Down(err)
		now := time.Now()
		if lost && since.IsZero() {
			since = now
		}
		if !(lost && !w.down && now.Sub(since) < w.reach) && !(w.db.d.Busy(err) && now.Sub(begun) < patience) {
			break
		}
		time.Sleep(pause)
	}
	w.down = lost
	switch {
	case err == nil:
		return
	case len(group) > 1 && w.conn != nil && !lost && !w.db.d.Busy(err) && !w.db.d.Full(err):
		// One write alone may be at fault: the others do not fail with it.
		for _, one := range group {
			if !one.written {
				w.commit([]*Write{one})
			}
		}
		return
	}
	if lost {
		w.db.absent.forget()
	}
	for _, one := range group {
		switch one.told = true; {
		case w.doubt.about(one):
			one.Err = away(err, persist.Unclear, "the connection to the store was lost, and it is not yet known whether this was written")
		case lost:
			one.Err = away(err, persist.Down, "the store cannot be reached to write")
		default:
			one.Err = w.db.explain(err, "write")
		}
	}
}

// attempt is one transaction. Its error is that of the transaction; the error of a single write is in that write. A
// failed transaction may be retried: if it failed at its very end, the next one first checks what became of it.
func (w *writer) attempt(group []*Write) (err error) {
	t := &Tx{ctx: context.Background(), w: w}
	if err := w.connect(); err != nil {
		t.undo(err)
		return err
	}
	ctx, stop := w.db.watch(context.Background(), 1)
	defer stop()
	t.ctx = ctx
	defer func() {
		if err != nil {
			err = cmp.Or(context.Cause(ctx), err)
			t.undo(err)
		}
	}()
	if w.doubt == nil && len(group) == 1 && group[0].idle {
		return w.keep()
	}
	if err := t.begin(group); err != nil {
		return err
	}
	if group, err = t.clear(group); err != nil {
		return err
	}
	if len(group) == 0 {
		return t.once("ROLLBACK")
	}
	if err = t.run(group); errors.Is(err, errPartly) {
		err = t.runAgain(group)
	}
	if err != nil {
		return err
	}
	if err := t.commit(group); err != nil {
		return err
	}
	for _, f := range t.done {
		f()
	}
	w.last.Store(Micros(time.Now()))
	return w.db.same() // a write to a file that others no longer find does not count
}

// errHangs is what Down takes for a lost connection.
var errHangs = fmt.Errorf("the server hangs: %w", os.ErrDeadlineExceeded)

// watch returns the context of a transaction, which ends if the server hangs while its machine goes on: then the kernel
// acknowledges what we send, and silence is not enough to tell, because a transaction may wait for a lock. So a slow one asks on
// another connection, which waits for none, until that was silent so many times. A read also ends once the writer has moved to another
// server.
func (db *DB) watch(ctx context.Context, times int) (watched context.Context, stop func()) {
	if !db.Served() {
		return ctx, func() {}
	}
	ctx, end := context.WithCancelCause(ctx)
	done, at, silent := make(chan struct{}), db.d.Server.At(), 0
	look := time.AfterFunc(slow, func() {
		defer close(done)
		for again := true; again; again = tool.Sleep(ctx, slow) {
			if db.answers(ctx) {
				silent = 0
			} else {
				silent++
			}
			if silent >= times || at != "" && db.d.Server.At() != at {
				end(errHangs) // unless the transaction is over
				return
			}
		}
	})
	return ctx, func() {
		if end(nil); !look.Stop() {
			<-done
		}
	}
}

// ErrSilent is why a server is not connected to: it did not answer a moment ago.
var ErrSilent = errors.New("it did not answer a moment ago")

// answers reports whether the server answers. If all connections are in use, one caller asks for all, on a new one.
func (db *DB) answers(ctx context.Context) bool {
	ask := db.reads.PingContext
	if s := db.reads.Stats(); s.InUse >= s.MaxOpenConnections {
		if ask = db.d.Server.Answers; !db.asking.TryLock() {
			return Micros(time.Now())-db.silent.Load() > (slow + quick).Microseconds()
		}
		defer db.asking.Unlock()
	}
	asked, cancel := context.WithTimeout(ctx, quick)
	defer cancel()
	if err := ask(asked); asked.Err() == nil && !errors.Is(err, ErrSilent) { // another error is an answer
		return true
	}
	db.silent.Store(Micros(time.Now()))
	return false
}

// because returns the error of what a watch has ended.
func because(ctx context.Context, err error) error {
	if err != nil && context.Cause(ctx) == errHangs {
		return errHangs
	}
	return err
}

// undo ends a failed transaction. Some errors end it by themselves: then the connection is still good, and worth
// keeping, since a full disk may have no room for another.
func (t *Tx) undo(err error) {
	t.w.db.o.Undone()
	// A lock that is not released for so long may be that of a commit that waits for a standby: the next connection finds out.
	stuck := t.w.db.Served() && t.w.db.d.Busy(err)
	if t.w.conn != nil && (t.w.db.d.Down(err) || stuck || t.once("ROLLBACK") != nil && t.once("SELECT 1") != nil) {
		t.w.disconnect()
	}
}

// errPartly is the error of a write that was refused after it had changed something, without a savepoint.
var errPartly = errors.New("a write was refused half-way")

// runAgain begins the transaction again, with savepoints.
func (t *Tx) runAgain(group []*Write) error {
	t.w.db.o.Undone()
	t.saves, t.done = true, nil
	if err := t.once("ROLLBACK"); err != nil {
		return err
	}
	if err := t.begin(group); err != nil {
		return err
	}
	return t.run(group)
}

// run does the writes, and then the batches.
func (t *Tx) run(group []*Write) (err error) {
	for _, one := range group {
		if one.Err = nil; one.Then != nil {
			one.Then.Err = nil
		}
	}
	batches := make([][]*Write, len(t.w.db.o.Batches))
	for _, one := range group {
		if one.Batch != nil {
			i := slices.Index(t.w.db.o.Batches, one.Batch)
			batches[i] = append(batches[i], one)
		} else if one.Err, err = t.apart(one.Do, len(group) == 1); err != nil {
			return err
		}
	}
	for i, batch := range t.w.db.o.Batches {
		if err := t.together(batches[i], len(group), batch.Do); err != nil {
			return err
		}
		for _, one := range batches[i] {
			if one.Then != nil && one.Err == nil {
				next := slices.Index(t.w.db.o.Batches, one.Then.Batch)
				batches[next] = append(batches[next], one.Then)
			}
		}
	}
	return nil
}

// together does some of the writes of a group, which has of writes, as one: they all fail together.
func (t *Tx) together(some []*Write, of int, do func(*Tx, []*Write) error) error {
	if len(some) == 0 {
		return nil
	}
	failed, err := t.apart(func(t *Tx) error { return do(t, some) }, len(some) == of)
	if err != nil {
		return err
	}
	if failed != nil {
		t.w.db.o.Undone()
		for _, one := range some {
			one.Err = failed
		}
	}
	return nil
}

// begin begins a transaction that is as durable as the most demanding write.
func (t *Tx) begin(group []*Write) error {
	w, d := t.w, &t.w.db.d
	if err := w.db.same(); err != nil {
		return err
	}
	if err := t.migrate(); err != nil {
		return err
	}
	mode := d.Quick
	if slices.ContainsFunc(group, func(one *Write) bool { return one.Durable }) {
		mode = d.Durable
	}
	if mode != w.mode {
		if err := t.once(mode); err != nil {
			return err
		}
		w.mode = mode
	}
	return t.answered(w.beginning(group))
}

// beginning returns the statement that begins the transaction of a group. One key is that of the program itself: so a
// transaction whose COMMIT was not answered is over when the next one begins.
func (w *writer) beginning(group []*Write) string {
	if !w.db.Served() {
		return w.db.d.Begin
	}
	alone := slices.ContainsFunc(group, func(one *Write) bool { return len(one.Keys) == 0 })
	keys := []int64{lockOf(OwnerKey(w.db.Owner))}
	for _, one := range group {
		for _, key := range one.Keys {
			keys = append(keys, lockOf(key))
		}
	}
	slices.Sort(keys)
	return w.db.d.Server.Share(slices.Compact(keys), alone)
}

// OwnerKey returns the key of a program, which all its writes have: so it covers the rows that belong to that program.
func OwnerKey(owner string) string { return "program " + owner }

// lockOf returns the number of a key's lock, which is negative: the numbers of programs are positive. Two keys that share a
// number wait for each other needlessly.
func lockOf(key string) int64 {
	sum := sha256.Sum256([]byte(key))
	return int64(binary.BigEndian.Uint64(sum[:]) | 1<<63)
}

func (w *writer) connect() error {
	if w.conn != nil {
		return nil
	}
	if prepare := w.db.d.Prepare; prepare != nil {
		if err := prepare(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), max(w.reach, reach))
	defer cancel()
	conn, err := w.pool.Conn(ctx)
	if err != nil {
		return err
	}
	if err := w.db.d.Enter(ctx, conn, int64(w.db.program)); err != nil {
		_ = conn.Close()
		return err
	}
	w.db.absent.forget() // the server may be another one, to which others come later
	w.conn, w.stmts, w.texts, w.mode, w.checked = conn, map[string]*sql.Stmt{}, map[string]string{}, "", false
	w.db.tending.Do(func() { w.db.tasks.Go(w.db.tend) })
	return nil
}

// keep makes sure that the connection still has the lock of this program.
func (w *writer) keep() error {
	if !w.db.Served() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), reach)
	defer cancel()
	err := w.db.d.Server.Keeps(ctx, w.conn)
	if err != nil {
		w.disconnect()
	}
	return err
}

// disconnect drops the connection, whatever its state. The next group gets another.
func (w *writer) disconnect() {
	if w.conn == nil {
		return
	}
	for _, s := range w.stmts {
		_ = s.Close()
	}
	_ = w.conn.Raw(func(any) error { return driver.ErrBadConn }) // so that the pool does not reuse it
	_ = w.conn.Close()
	w.conn, w.stmts = nil, nil
}

// A Tx is the transaction of a group. It has no deadline: the database bounds its waits.
type Tx struct {
	ctx     context.Context
	w       *writer
	done    []func()
	saves   bool        // each write has a savepoint
	changed bool        // the current write may have changed something
	soon    []Statement // Exec has not run them yet
}

// After registers f to be called when the transaction is committed.
func (t *Tx) After(f func()) { t.done = append(t.done, f) }

// Lock takes a key that the write could not name. The transaction is alone, so it waits for no other.
func (t *Tx) Lock(key string) error {
	if !t.w.db.Served() {
		return nil
	}
	return t.Each(func(*sql.Rows) error { return nil }, t.w.db.d.Server.Lock, lockOf(key))
}

// Numbers returns the numbers of n new rows, in ascending order; last is the highest number of a row.
func (t *Tx) Numbers(n int, last int64) ([]int64, error) {
	if t.w.db.Served() {
		return List(t, Value[int64], t.w.db.d.Server.Numbers, n)
	}
	numbers := make([]int64, n)
	for i := range numbers {
		numbers[i] = last + int64(i) + 1
	}
	return numbers, nil
}

// Advance makes Numbers go on after a number. The transaction is alone.
func (t *Tx) Advance(last int64) error {
	if !t.w.db.Served() {
		return nil
	}
	return t.Each(func(*sql.Rows) error { return nil }, t.w.db.d.Server.Advance, last, last)
}

// apart runs f so that its refusal undoes f alone. The second error is that of the transaction. Savepoints take two round
// trips to a server, which is more than most writes take, so there are none before one is needed: see errPartly.
func (t *Tx) apart(f func(*Tx) error, alone bool) (failed, err error) {
	save := t.saves && !alone
	if save {
		if err := t.once("SAVEPOINT job"); err != nil {
			return nil, err
		}
	}
	t.changed = false
	failed = f(t)
	_, ours := errors.AsType[*tool.Error](failed)
	switch {
	case alone || failed != nil && !ours: // the database failed: the other writes of the transaction are lost with it
		return nil, failed
	case !save && failed != nil && t.changed:
		return nil, errPartly
	case !save:
		return failed, nil
	case failed != nil:
		if err := t.once("ROLLBACK TO SAVEPOINT job"); err != nil {
			return nil, err
		}
	}
	return failed, t.once("RELEASE SAVEPOINT job")
}

// once runs a statement that is not worth preparing.
func (t *Tx) once(statement string) error {
	if statement == "ROLLBACK" {
		t.soon = nil
	}
	if err := t.flush(); err != nil {
		return err
	}
	_, err := t.w.conn.ExecContext(t.ctx, statement)
	return err
}

// answered is once for the statements that begin and end a transaction. They are quick unless the server is silent: it has
// stopped, or waits for a standby that it is cut off from. Then another may be the primary.
func (t *Tx) answered(statement string) error {
	if !t.w.db.Served() {
		return t.once(statement)
	}
	ctx, cancel := context.WithTimeout(t.ctx, silence)
	defer cancel()
	_, err := t.w.conn.ExecContext(ctx, statement)
	return err
}

// Exec runs a statement. A server gets it with those that follow, before the next one that has a result: a round trip costs
// more than most statements. So its error may be that of a later one; either ends the transaction.
func (t *Tx) Exec(query string, args ...any) error {
	if !t.w.db.Served() {
		_, err := t.Count(query, args...)
		return err
	}
	text, ok := t.w.texts[query]
	if !ok {
		text = t.w.db.d.text(query)
		t.w.texts[query] = text
	}
	if t.soon, t.changed = append(t.soon, Statement{text, args}), true; len(t.soon) >= enough {
		return t.flush() // a copy of a store is one transaction
	}
	return nil
}

// flush runs what Exec has not run yet.
func (t *Tx) flush() error {
	if len(t.soon) == 0 {
		return nil
	}
	some := t.soon
	t.soon = nil
	return t.w.db.d.Server.Send(t.ctx, t.w.conn, some)
}

// Count runs a statement and returns the number of rows that it changed.
func (t *Tx) Count(query string, args ...any) (int64, error) {
	s, err := t.prepared(query)
	if err != nil {
		return 0, err
	}
	res, err := s.ExecContext(t.ctx, args...)
	if err != nil {
		return 0, err
	}
	n, err := res.RowsAffected()
	t.changed = t.changed || n > 0
	return n, err
}

// Now returns the time by the clock of the database, in microseconds.
func (t *Tx) Now() (now int64, err error) {
	if !t.w.db.Served() {
		return Micros(time.Now()), nil
	}
	_, err = Row(t, t.w.db.d.Server.Now, nil, &now)
	return now, err
}

// Each runs a query and visits its rows.
func (t *Tx) Each(visit func(*sql.Rows) error, query string, args ...any) error {
	t.changed = t.changed || !strings.HasPrefix(query, "SELECT")
	s, err := t.prepared(query)
	if err != nil {
		return err
	}
	rows, err := s.QueryContext(t.ctx, args...)
	return eachRow(rows, err, visit)
}

// prepared returns a statement, prepared once for each connection.
func (t *Tx) prepared(query string) (*sql.Stmt, error) {
	if err := t.flush(); err != nil {
		return nil, err
	}
	if s := t.w.stmts[query]; s != nil {
		return s, nil
	}
	s, err := t.w.conn.PrepareContext(t.ctx, t.w.db.d.text(query))
	if err == nil {
		t.w.stmts[query] = s
	}
	return s, err
}

// Insert inserts many rows with few statements. Statements come in few sizes, so that they can be kept prepared.
func (t *Tx) Insert(head string, columns int, tail string, args []any) error {
	one := "(" + marks("?", columns) + ")"
	for n, some := range portions(args, columns) {
		if err := t.Exec(head+marks(one, n)+tail, some...); err != nil {
			return err
		}
	}
	return nil
}

// EachOf runs a query for the values of many rows, with few statements: it repeats a row up to a size that is kept prepared.
func (t *Tx) EachOf(visit func(*sql.Rows) error, head, row string, values []any, tail string) error {
	columns := strings.Count(row, "?")
	for some := range slices.Chunk(values, 64*columns) {
		n := len(some) / columns
		for ; n&(n-1) != 0; n++ {
			some = append(some, some[:columns]...)
		}
		if err := t.Each(visit, head+marks(row, n)+tail, some...); err != nil {
			return err
		}
	}
	return nil
}

// portions splits the values of many rows into those of 64 rows, then of 32, and so on.
func portions(args []any, columns int) iter.Seq2[int, []any] {
	return func(yield func(int, []any) bool) {
		for n := 64; n > 0; n /= 2 {
			for len(args) >= n*columns {
				if !yield(n, args[:n*columns]) {
					return
				}
				args = args[n*columns:]
			}
		}
	}
}

// marks repeats the placeholder of a value, or of a row of values.
func marks(one string, n int) string { return strings.TrimSuffix(strings.Repeat(one+", ", n), ", ") }
