package store

import (
	"maps"
	"sync"
	"time"

	"toolpost/engine/idempotency"
	"toolpost/engine/persist"
	"toolpost/store/database"
	"toolpost/tool"
)

// An ending is the end of a claim of this program: an outcome to remember, or that it is lost, or neither: then the key is free.
type ending struct {
	result []byte
	lost   bool
	ttl    time.Duration
}

// errGone is the error of an outcome whose claim is not this program's any more.
var errGone = tool.Errorf(tool.CodeUnavailable,
	"the outcome of a call was not remembered: its idempotency key is gone, or counts as lost")

// end ends a claim. If the store cannot take that, as while it is away or full, upkeep repeats it: otherwise calls that repeat this one
// would wait, in every program, until this one ends.
func (o *OutcomeTable) end(scope [32]byte, e *ending) error {
	err := o.db.Do(true, func(t *database.Tx) error { return o.write(t, scope, e) }, outcomeKey(scope)...)
	if err != nil && err != error(errGone) {
		o.left.keep(scope, e)
	}
	return err
}

func (o *OutcomeTable) write(t *database.Tx, scope [32]byte, e *ending) error {
	now, err := int64(0), error(nil)
	if e.lost || e.result != nil {
		now, err = o.now(t)
	}
	expires := now + e.ttl.Microseconds()
	switch {
	case err != nil:
	case e.lost:
		err = t.Exec(`UPDATE outcome SET lost_at = ?, expires_at = ? WHERE scope = ? AND owner = ? AND result IS NULL`,
			now, expires, scope[:], o.db.Owner)
	case e.result == nil:
		err = t.Exec(`DELETE FROM outcome WHERE scope = ? AND owner = ? AND lost_at IS NULL`, scope[:], o.db.Owner)
	default:
		var n int64
		n, err = t.Count(`UPDATE outcome SET result = ?, expires_at = ? WHERE scope = ? AND owner = ? AND lost_at IS NULL`,
			string(e.result), expires, scope[:], o.db.Owner)
		if err == nil && n == 0 {
			return errGone
		}
	}
	if err == nil {
		t.After(func() { o.left.forget(scope) })
	}
	return err
}

// upkeep ends the claims whose end is not in the store yet.
func (o *OutcomeTable) upkeep() {
	for scope, e := range o.left.all() {
		err := o.db.Do(true, func(t *database.Tx) error {
			if o.left.get(scope) != e { // this program has claimed the key again
				return nil
			}
			return o.write(t, scope, e)
		}, outcomeKey(scope)...)
		switch {
		case err == error(errGone):
			o.left.forget(scope)
		case persist.Retry(err):
			return
		}
	}
}

// The limits of endings. Calls that run while the store is away are few, since none with a key begins then.
const (
	mostEndings     = 10_000
	mostEndingBytes = 64 << 20
)

// Endings are the ends of claims of this program that the store could not take, by scope.
type endings struct {
	mu    sync.Mutex
	of    map[[32]byte]*ending
	bytes int
}

// keep remembers an ending. There may be no room for an outcome: then it is lost, and its worker may have it.
func (l *endings) keep(scope [32]byte, e *ending) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(scope)
	if len(l.of) >= mostEndings {
		return
	}
	if l.bytes+len(e.result) > mostEndingBytes {
		e = &ending{lost: true, ttl: max(e.ttl, idempotency.LostFor)}
	}
	if l.of == nil {
		l.of = map[[32]byte]*ending{}
	}
	l.of[scope] = e
	l.bytes += len(e.result)
}

func (l *endings) forget(scope [32]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(scope)
}

func (l *endings) remove(scope [32]byte) {
	if e := l.of[scope]; e != nil {
		l.bytes -= len(e.result)
		delete(l.of, scope)
	}
}

// get returns what is to be written of a scope, or nil.
func (l *endings) get(scope [32]byte) *ending {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.of[scope]
}

func (l *endings) all() map[[32]byte]*ending {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.of)
}
