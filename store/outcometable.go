package store

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"time"

	"toolpost/tool"
)

// An OutcomeTable remembers the outcomes of calls that carried an idempotency key, so that a call that is
// repeated after a restart, or in another program, is still the same call.
type OutcomeTable struct {
	db    *DB
	swept atomic.Int64
}

// Outcomes remembers the outcomes of calls.
func (db *DB) Outcomes() *OutcomeTable { return &OutcomeTable{db: db} }

// maxOutcomes is how many outcomes are kept; the oldest go first.
const maxOutcomes = 100_000

// A Claim says whose call a key belongs to.
type Claim = struct {
	Mine   bool     // it is new: whoever asked runs it, and settles it
	Input  [32]byte // of the call that has the key
	Result []byte   // its outcome; nil: there is none yet
	Lost   bool     // and there will be none: its program is gone
}

// Claim makes a key, by the digest of what it counts within, the caller's, or tells whose it is.
func (o *OutcomeTable) Claim(_ context.Context, scope, input [32]byte, ttl time.Duration) (Claim, error) {
	var c Claim
	err := o.db.w.do(true, func(t *tx) error {
		now := time.Now()
		if err := o.sweepSometimes(t, now); err != nil {
			return err
		}
		var owner string
		var result sql.NullString
		var have []byte
		var at, expires int64
		c = Claim{}
		err := t.row(`SELECT input, owner, at, expires_at, result FROM outcome WHERE scope = ?`, []any{scope[:]}, &have, &owner, &at, &expires, &result)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		dead := gone(owner) || !sameBoot(owner) && now.Sub(time.UnixMicro(at)) > elsewhere
		if err == nil && (micros(now) < expires || !result.Valid && !dead) {
			copy(c.Input[:], have)
			if result.Valid {
				c.Result = []byte(result.String)
			}
			c.Lost = !result.Valid && dead
			return nil
		}
		c.Mine = true
		return t.exec(`INSERT INTO outcome (scope, input, owner, at, expires_at) VALUES (?, ?, ?, ?, ?) ON CONFLICT (scope) DO UPDATE SET
			input = excluded.input, owner = excluded.owner, at = excluded.at, expires_at = excluded.expires_at, result = NULL`,
			scope[:], input[:], o.db.owner, micros(now), micros(now.Add(ttl)))
	})
	return c, err
}

// Settle ends a claim of this program: with an outcome to remember, a JSON text, or with nil.
func (o *OutcomeTable) Settle(_ context.Context, scope [32]byte, result []byte, ttl time.Duration) error {
	return o.db.w.do(true, func(t *tx) error {
		if result == nil {
			return t.exec(`DELETE FROM outcome WHERE scope = ? AND owner = ?`, scope[:], o.db.owner)
		}
		n, err := t.count(`UPDATE outcome SET result = ?, expires_at = ? WHERE scope = ? AND owner = ?`,
			string(result), micros(time.Now().Add(ttl)), scope[:], o.db.owner)
		if err == nil && n == 0 {
			err = tool.Errorf(tool.CodeUnavailable, "the outcome of a call was not remembered: its idempotency key is not there any more")
		}
		return err
	})
}

func (o *OutcomeTable) sweepSometimes(t *tx, now time.Time) error {
	last := o.swept.Load()
	if now.Sub(time.UnixMicro(last)) < sweepEvery || !o.swept.CompareAndSwap(last, micros(now)) {
		return nil
	}
	if err := t.exec(`DELETE FROM outcome WHERE expires_at < ? AND result IS NOT NULL`, micros(now)); err != nil {
		return err
	}
	return t.exec(`DELETE FROM outcome WHERE result IS NOT NULL AND scope NOT IN (SELECT scope FROM outcome ORDER BY at DESC LIMIT ?)`, maxOutcomes)
}
