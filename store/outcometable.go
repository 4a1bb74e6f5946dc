package store

import (
	"context"
	"math"
	"time"

	"toolpost/engine/idempotency"
	"toolpost/store/database"
)

// An OutcomeTable remembers the outcomes of calls with an idempotency key, so that a call that is repeated after a
// restart, or in another program, is still the same call.
type OutcomeTable struct {
	db    *database.DB
	swept sweeper
	left  endings

	alone bool      // as in Options
	last  int64     // the newest outcome when this program came
	since time.Time // when that was; zero before the first use
}

// Outcomes returns the table of outcomes.
func (db *DB) Outcomes() *OutcomeTable { return db.outcomes }

// now returns the time by which outcomes are forgotten: that of the database. If the program is alone, it goes on from the newest
// outcome, by the monotonic clock, and only while the program runs. So no outcome is forgotten too early because the clock of the machine
// was set, and a newer one has a later time, also after that clock was set back.
func (o *OutcomeTable) now(t *database.Tx) (int64, error) {
	if !o.alone {
		return t.Now()
	}
	if o.since.IsZero() {
		if _, err := database.Row(t, `SELECT COALESCE(MAX(at), ?) FROM outcome`, []any{database.Micros(time.Now())}, &o.last); err != nil {
			return 0, err
		}
		o.since = time.Now()
	}
	return o.last + time.Since(o.since).Microseconds(), nil
}

// maxOutcomes is how many outcomes are kept; the oldest go first. Some of those that were kept at a sweep are no outcomes, and removed
// later: a call that runs may be refused. They are fewer than mayEnd.
const (
	maxOutcomes = 100_000
	mayEnd      = 10_000
)

// Claim claims a key, by the digest of its scope, for the caller, or returns what is known of it. A key is kept for ttl
// after its outcome. If its program is gone, the outcome is lost: the first caller that asks learns this, and it is
// remembered from then on, so that no call runs again because no caller asked for a while.
func (o *OutcomeTable) Claim(_ context.Context, scope, input [32]byte, call string, ttl time.Duration) (idempotency.Claim, error) {
	var c idempotency.Claim
	if err := o.sweep(); err != nil {
		return c, err
	}
	claim := func(t *database.Tx) error {
		now, err := o.now(t) // a program whose clock is wrong must not forget what others did
		if err != nil {
			return err
		}
		if c, err = o.have(t, scope, now, ttl); err != nil || !c.Mine {
			return err
		}
		if err := t.Exec(`INSERT INTO outcome (scope, input, owner, at, expires_at, call) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (scope) DO UPDATE SET
			input = excluded.input, owner = excluded.owner, at = excluded.at, expires_at = excluded.expires_at, call = excluded.call,
			result = NULL, lost_at = NULL`, scope[:], input[:], o.db.Owner, now, now+ttl.Microseconds(), call); err != nil {
			return err
		}
		t.After(func() { o.left.forget(scope) })
		return nil
	}
	err := o.db.Submit(&database.Write{Do: claim, Durable: true, Keys: outcomeKey(scope), Late: func() {
		if c.Mine && input != ([32]byte{}) { // one of no call may have been seen, and stays
			o.left.keep(scope, &ending{})
		}
	}})
	return c, err
}

// outcomeKey names the row of a scope for the writer.
func outcomeKey(scope [32]byte) []string { return []string{"outcome " + string(scope[:])} }

// have returns what is known of a key; Mine is set if nothing is.
func (o *OutcomeTable) have(
	t *database.Tx, scope [32]byte, now int64, ttl time.Duration,
) (c idempotency.Claim, err error) {
	var owner string
	var input []byte
	var expires int64
	var lost database.MicroTime
	known, err := database.Row(t, `SELECT input, owner, at, expires_at, result, lost_at, call FROM outcome WHERE scope = ?`,
		[]any{scope[:]}, &input, &owner, &c.At, &expires, &c.Result, &lost, &c.Call)
	if err != nil {
		return c, err
	}
	copy(c.Input[:], input)
	c.Age = time.Duration(now-c.At) * time.Microsecond
	left := o.left.get(scope)
	switch {
	case !known || owner == o.db.Owner && left != nil && left.result == nil && !left.lost: // no call runs that has it
		return idempotency.Claim{Mine: true}, nil
	case owner == o.db.Owner && left != nil: // as upkeep will write it
		c.Result, c.Lost = left.result, left.lost
		return c, nil
	case c.Result != nil || lost != database.MicroTime{}:
		c.Mine, c.Lost = now >= expires, lost != database.MicroTime{}
		return c, nil
	}
	if c.Lost, c.Away, err = t.Gone(owner); err != nil || !c.Lost {
		return c, err
	}
	return c, t.Exec(`UPDATE outcome SET lost_at = ?, expires_at = ? WHERE scope = ?`, now, now+ttl.Microseconds(), scope[:])
}

// Settle ends a claim of this program: with an outcome to remember, a JSON text, or with nil. It may be called again
// after an unclear write. A failed one is repeated until the store takes it.
func (o *OutcomeTable) Settle(_ context.Context, scope [32]byte, result []byte, ttl time.Duration) error {
	return o.end(scope, &ending{result: result, ttl: ttl})
}

// Lose ends a claim of this program whose call may still run elsewhere, or has ended there: its outcome counts as lost. A failed one is
// repeated until the store takes it.
func (o *OutcomeTable) Lose(_ context.Context, scope [32]byte, ttl time.Duration) error {
	return o.end(scope, &ending{lost: true, ttl: ttl})
}

// Take implements idempotency.Outcomes.
func (o *OutcomeTable) Take(_ context.Context, scope [32]byte, from idempotency.Claim, call string, ttl time.Duration) (bool, error) {
	taken := false
	take := func(t *database.Tx) error {
		now, err := o.now(t)
		if err != nil {
			return err
		}
		n, err := t.Count(`UPDATE outcome SET owner = ?, call = ?, at = ?, expires_at = ?, lost_at = NULL
			WHERE scope = ? AND call = ? AND at = ? AND result IS NULL`, o.db.Owner, call, max(now, from.At+1), now+ttl.Microseconds(), scope[:], from.Call, from.At)
		if taken = n > 0; taken && err == nil {
			t.After(func() { o.left.forget(scope) })
		}
		return err
	}
	err := o.db.Submit(&database.Write{Do: take, Durable: true, Keys: outcomeKey(scope), Late: func() {
		if taken { // the call that has it does not run
			o.left.keep(scope, &ending{})
		}
	}})
	return taken && err == nil, err
}

// Hold implements idempotency.Outcomes.
func (o *OutcomeTable) Hold(_ context.Context, scope [32]byte, call string) (held bool, err error) {
	err = o.db.Do(true, func(t *database.Tx) error {
		n, err := t.Count(`UPDATE outcome SET at = at + 1 WHERE scope = ? AND owner = ? AND call = ? AND result IS NULL AND lost_at IS NULL`,
			scope[:], o.db.Owner, call)
		held = n > 0
		return err
	}, outcomeKey(scope)...)
	return held && err == nil, err
}

// Known returns what is known of a key, without a claim to it.
func (o *OutcomeTable) Known(_ context.Context, scope [32]byte, ttl time.Duration) (c idempotency.Claim, known bool, err error) {
	err = o.db.Do(false, func(t *database.Tx) error {
		now, err := o.now(t)
		if err == nil {
			c, err = o.have(t, scope, now, ttl)
		}
		return err
	}, outcomeKey(scope)...)
	return c, !c.Mine, err
}

// Reach implements idempotency.Outcomes.
func (o *OutcomeTable) Reach(context.Context) (reach time.Duration, err error) {
	err = o.db.Do(false, func(t *database.Tx) error {
		now, err := o.now(t)
		at, many := int64(0), false
		if err == nil {
			many, err = database.Row(t, `SELECT at FROM outcome ORDER BY at DESC LIMIT 1 OFFSET ?`, []any{maxOutcomes - mayEnd}, &at)
		}
		if reach = math.MaxInt64; many {
			reach = time.Duration(now-at) * time.Microsecond
		}
		return err
	})
	return reach, err
}

// Mark implements ask.Marks: an answered question is kept like an outcome, with who answered in place of the input.
func (o *OutcomeTable) Mark(_ context.Context, question, who [32]byte, ttl time.Duration) (theirs bool, err error) {
	if err := o.sweep(); err != nil {
		return false, err
	}
	err = o.db.Do(true, func(t *database.Tx) error {
		now, err := o.now(t)
		if err == nil {
			err = t.Exec(`INSERT INTO outcome (scope, input, owner, at, expires_at, result) VALUES (?, ?, ?, ?, ?, 'true') `+
				`ON CONFLICT (scope) DO NOTHING`, question[:], who[:], o.db.Owner, now, now+ttl.Microseconds())
		}
		if err != nil {
			return err
		}
		var had []byte
		_, err = database.Row(t, `SELECT input FROM outcome WHERE scope = ?`, []any{question[:]}, &had)
		theirs = string(had) == string(who[:])
		return err
	}, outcomeKey(question)...)
	return theirs, err
}

// sweep removes what is over, now and then. It has no keys: it changes rows of all of them.
func (o *OutcomeTable) sweep() error {
	if !o.swept.due(time.Now()) {
		return nil
	}
	return o.db.Do(false, func(t *database.Tx) error {
		now, err := o.now(t)
		if err == nil {
			err = t.Exec(`DELETE FROM outcome WHERE expires_at < ? AND (result IS NOT NULL OR lost_at IS NOT NULL)`, now)
		}
		if err != nil {
			return err
		}
		return t.Exec(`DELETE FROM outcome WHERE result IS NOT NULL AND scope NOT IN (SELECT scope FROM outcome `+
			`ORDER BY at DESC LIMIT ?)`, maxOutcomes)
	})
}
