package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"toolpost/tool"
)

// A LeaseTable keeps leases. The table has the digests of tokens, not the tokens: who can read it still has
// none.
type LeaseTable struct {
	db *DB

	issued, consumed, rejected atomic.Int64
	swept                      atomic.Int64 // when leases of the past were last removed
}

// Leases keeps leases.
func (db *DB) Leases() *LeaseTable { return &LeaseTable{db: db} }

// A Lease is one lease as those see it who look after leases.
type Lease struct {
	ID      string    `json:"id"` // the start of the digest of its token
	Tool    string    `json:"tool"`
	Tier    int       `json:"tier"`
	Issued  time.Time `json:"issued"`
	Expires time.Time `json:"expires"`
	State   string    `json:"state"` // live, used, revoked, expired
}

// idLength is how much of a digest names a lease where people read it.
const idLength = 16

// tokenPrefix tells a token from an id.
const tokenPrefix = "tok_"

// LeaseID gives the id of the lease that a token is for.
func LeaseID(token string) string { return digestOf(token)[:idLength] }

// Issue makes a lease for one call of a tool, or of any with "*", up to a tier. A ttl of 0 is
// DefaultLeaseTTL. The token is in nobody's hands but the caller's.
func (l *LeaseTable) Issue(_ context.Context, name string, tier int, ttl time.Duration) (token string, err error) {
	if ttl == 0 {
		ttl = DefaultLeaseTTL
	}
	switch {
	case name == "" || plain(name, 1024) != name:
		return "", tool.Errorf(tool.CodeInvalidInput, `a lease needs the name of a tool, or "*" for any`)
	case tier < 0 || tier > MaxTier:
		return "", tool.Errorf(tool.CodeInvalidInput, "a lease has a tier from 0 to %d, not %d", MaxTier, tier)
	case ttl < MinLeaseTTL || ttl > MaxLeaseTTL:
		return "", tool.Errorf(tool.CodeInvalidInput, "a lease lasts from %v to %v, not %v", MinLeaseTTL, MaxLeaseTTL, ttl)
	}
	token = tokenPrefix + rand.Text()
	err = l.db.w.do(true, func(t *tx) error {
		now := time.Now()
		if err := l.sweepSometimes(t, now); err != nil {
			return err
		}
		return t.exec(`INSERT INTO lease (id, tool, tier, issued_at, expires_at) VALUES (?, ?, ?, ?, ?)`,
			digestOf(token), name, tier, micros(now), micros(now.Add(ttl)))
	})
	if err != nil {
		return "", err
	}
	l.issued.Add(1)
	return token, nil
}

// Consume uses a lease up for one call of a tool of that tier. Of several who try, in whatever program, one
// succeeds. A lease that does not fit is left as it is.
func (l *LeaseTable) Consume(_ context.Context, token, name string, tier int) error {
	id := digestOf(token)
	err := l.db.w.do(true, func(t *tx) error {
		now := micros(time.Now())
		n, err := t.count(`UPDATE lease SET used_at = ? WHERE id = ? AND used_at IS NULL AND revoked_at IS NULL AND expires_at > ?
			AND (tool = ? OR tool = '*') AND tier >= ?`, now, id, now, plain(name, 1024), tier)
		if err != nil || n == 1 {
			return err
		}
		return whyNot(t, id, name, tier, now)
	})
	switch {
	case err == nil:
		l.consumed.Add(1)
	case tool.CodeOf(err) == tool.CodeLeaseRejected:
		l.rejected.Add(1)
	}
	return err
}

// whyNot says why a lease cannot be consumed.
func whyNot(t *tx, id, name string, tier int, now int64) error {
	var have string
	var upTo int
	var expires int64
	var used, revoked sql.NullInt64
	err := t.row(`SELECT tool, tier, expires_at, used_at, revoked_at FROM lease WHERE id = ?`, []any{id}, &have, &upTo, &expires, &used, &revoked)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return rejected("not_found", "there is no such lease")
	case err != nil:
		return err
	case used.Valid:
		return rejected("already_consumed", "the lease has been used; issue another")
	case revoked.Valid:
		return rejected("revoked", "the lease was revoked")
	case now >= expires:
		return rejected("expired", "the lease has expired; issue another")
	case upTo < tier && (have == "*" || have == name):
		return rejected("tier_too_low", "the lease is for a lower tier than that of "+name+"; issue one of its tier")
	}
	return rejected("tool_mismatch", "the lease is for "+have+" and not for "+name)
}

// Revoke makes a lease useless, by the id that List gives or by its token. One that was used, or revoked, before
// cannot be revoked: the error, of code conflict, says so.
func (l *LeaseTable) Revoke(_ context.Context, id string) error {
	id = leaseID(id)
	return l.db.w.do(true, func(t *tx) error {
		now := micros(time.Now())
		n, err := t.count(`UPDATE lease SET revoked_at = ? WHERE SUBSTR(id, 1, ?) = ? AND used_at IS NULL AND revoked_at IS NULL AND expires_at > ?`,
			now, idLength, id, now)
		if err != nil || n > 0 {
			return err
		}
		var x Lease
		if err := t.each(x.scan(now), oneLease, idLength, id); err != nil {
			return err
		}
		if x.ID == "" {
			return noLease(id)
		}
		return tool.Errorf(tool.CodeConflict, "lease %s cannot be revoked: it is %s", id, x.State).Because(x.State)
	})
}

// leaseID gives the id that somebody means who has an id or a token.
func leaseID(text string) string {
	if strings.HasPrefix(text, tokenPrefix) {
		return LeaseID(text)
	}
	return plain(text, maxName)
}

func noLease(id string) error {
	return tool.Errorf(tool.CodeNotFound, "there is no lease %q; one is forgotten %v after its end", id, remembrance)
}

const (
	someLeases = `SELECT id, tool, tier, issued_at, expires_at, used_at, revoked_at FROM lease`
	oneLease   = someLeases + ` WHERE SUBSTR(id, 1, ?) = ?`
)

// Find gives a lease that is remembered, by its id or token.
func (l *LeaseTable) Find(ctx context.Context, id string) (x Lease, err error) {
	id = leaseID(id)
	err = l.db.read(ctx, func(r *reader) error {
		return r.each(x.scan(micros(time.Now())), oneLease, idLength, id)
	})
	if err == nil && x.ID == "" {
		err = noLease(id)
	}
	return x, err
}

// List gives the leases that are remembered, the newest first, and most of them at the most; 0: all.
func (l *LeaseTable) List(ctx context.Context, most int) ([]Lease, error) {
	leases := []Lease{}
	now := micros(time.Now())
	if most <= 0 {
		most = math.MaxInt32
	}
	err := l.db.read(ctx, func(r *reader) error {
		return r.each(func(rows *sql.Rows) error {
			var x Lease
			err := x.scan(now)(rows)
			leases = append(leases, x)
			return err
		}, someLeases+` ORDER BY issued_at DESC, id LIMIT ?`, most)
	})
	return leases, err
}

// scan reads a row of someLeases.
func (x *Lease) scan(now int64) func(*sql.Rows) error {
	return func(rows *sql.Rows) error {
		var issued, expires int64
		var used, revoked sql.NullInt64
		if err := rows.Scan(&x.ID, &x.Tool, &x.Tier, &issued, &expires, &used, &revoked); err != nil {
			return err
		}
		x.ID, x.Issued, x.Expires = x.ID[:idLength], time.UnixMicro(issued).UTC(), time.UnixMicro(expires).UTC()
		switch {
		case used.Valid:
			x.State = "used"
		case revoked.Valid:
			x.State = "revoked"
		case now >= expires:
			x.State = "expired"
		default:
			x.State = "live"
		}
		return nil
	}
}

// GC removes the leases that ended a while ago, and counts.
func (l *LeaseTable) GC(context.Context) (LeaseCounts, error) {
	counts := LeaseCounts{Issued: int(l.issued.Load()), Consumed: int(l.consumed.Load()), Rejected: int(l.rejected.Load())}
	err := l.db.w.do(false, func(t *tx) error {
		now := time.Now()
		if err := sweep(t, now); err != nil {
			return err
		}
		return t.row(`SELECT COUNT(*) FROM lease WHERE expires_at > ? AND used_at IS NULL AND revoked_at IS NULL`, []any{micros(now)}, &counts.Active)
	})
	return counts, err
}

// sweepSometimes keeps the table small where nobody calls GC.
func (l *LeaseTable) sweepSometimes(t *tx, now time.Time) error {
	last := l.swept.Load()
	if now.Sub(time.UnixMicro(last)) < sweepEvery || !l.swept.CompareAndSwap(last, micros(now)) {
		return nil
	}
	return sweep(t, now)
}

func sweep(t *tx, now time.Time) error {
	return t.exec(`DELETE FROM lease WHERE expires_at < ?`, micros(now.Add(-remembrance)))
}
