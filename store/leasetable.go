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
	ID      string    `json:"id"`               // the start of the digest of its token
	Caller  string    `json:"caller,omitempty"` // "": whoever has it
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

// LeaseID gives the id of the lease that somebody means who has its token, or the id itself.
func LeaseID(text string) string {
	if strings.HasPrefix(text, tokenPrefix) {
		return digestOf(text)[:idLength]
	}
	return plain(text, maxName)
}

// Issue makes a lease for one call of a tool, or of any with "*", up to a tier, by a caller, or by whoever has it
// with "". A ttl of 0 is DefaultLeaseTTL. The token is in nobody's hands but those of who asked for it.
func (l *LeaseTable) Issue(_ context.Context, caller, name string, tier int, ttl time.Duration) (token string, err error) {
	if ttl == 0 {
		ttl = DefaultLeaseTTL
	}
	if err := checkLease(caller, name, tier, ttl); err != nil {
		return "", err
	}
	token = tokenPrefix + rand.Text()
	err = l.db.w.do(true, func(t *tx) error {
		now := time.Now()
		if err := l.sweepSometimes(t, now); err != nil {
			return err
		}
		return t.exec(`INSERT INTO lease (id, caller, tool, tier, issued_at, expires_at) VALUES (?, ?, ?, ?, ?, ?)`,
			digestOf(token), caller, name, tier, micros(now), micros(now.Add(ttl)))
	})
	if err != nil {
		return "", err
	}
	l.issued.Add(1)
	return token, nil
}

// Consume uses a lease up for one call of a tool of that tier by a caller. Of several who try, in whatever program,
// one succeeds. A lease that does not fit is left as it is, and that of another caller is not_found.
func (l *LeaseTable) Consume(_ context.Context, token, caller, name string, tier int) error {
	id := digestOf(token)
	if plain(caller, maxLeaseName) != caller { // no lease is for such a caller alone
		caller = ""
	}
	err := l.db.w.do(true, func(t *tx) error {
		now := micros(time.Now())
		n, err := t.count(`UPDATE lease SET used_at = ? WHERE id = ? AND used_at IS NULL AND revoked_at IS NULL AND expires_at > ?
			AND (caller = '' OR caller = ?) AND (tool = ? OR tool = '*') AND tier >= ?`,
			now, id, now, caller, plain(name, maxLeaseName), tier)
		if err != nil || n == 1 {
			return err
		}
		return whyNot(t, id, caller, name, tier, now)
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
func whyNot(t *tx, id, caller, name string, tier int, now int64) error {
	var whose, have string
	var upTo int
	var expires int64
	var used, revoked sql.NullInt64
	err := t.row(`SELECT caller, tool, tier, expires_at, used_at, revoked_at FROM lease WHERE id = ?`, []any{id}, &whose, &have, &upTo, &expires, &used, &revoked)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return unknownLease()
	case err != nil:
		return err
	case whose != "" && whose != caller:
		return unknownLease()
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

// Revoke makes a lease of a caller useless, or anybody's with "", by the id that List gives or by its token. One that
// was used, or revoked, before cannot be revoked: the error, of code conflict, says so.
func (l *LeaseTable) Revoke(_ context.Context, caller, id string) error {
	if id = LeaseID(id); !isLeaseID(id) {
		return noLease(id)
	}
	return l.db.w.do(true, func(t *tx) error {
		now := micros(time.Now())
		n, err := t.count(`UPDATE lease SET revoked_at = ? WHERE id >= ? AND id < ? AND (? = '' OR caller = ?)
			AND used_at IS NULL AND revoked_at IS NULL AND expires_at > ?`, now, id, behind(id), caller, caller, now)
		if err != nil || n > 0 {
			return err
		}
		var x Lease
		if err := t.each(x.scan(now), oneLease, id, behind(id)); err != nil {
			return err
		}
		if x.ID == "" || caller != "" && x.Caller != caller {
			return noLease(id)
		}
		return tool.Errorf(tool.CodeConflict, "lease %s cannot be revoked: it is %s", id, x.State).Because(x.State)
	})
}

func noLease(id string) error {
	return tool.Errorf(tool.CodeNotFound, "there is no lease %q; one is forgotten %v after its end", id, remembrance)
}

const (
	someLeases = `SELECT id, caller, tool, tier, issued_at, expires_at, used_at, revoked_at FROM lease`
	oneLease   = someLeases + ` WHERE id >= ? AND id < ?`
)

// isLeaseID reports whether a text can be the id of a lease.
func isLeaseID(text string) bool {
	return len(text) == idLength && strings.Trim(text, "0123456789abcdef") == ""
}

// behind is the end of the digests that start with an id, which are found by their order.
func behind(id string) string { return id + "g" } // no digit is as large

// Find gives a lease that is remembered, by its id or token.
func (l *LeaseTable) Find(ctx context.Context, id string) (x Lease, err error) {
	if id = LeaseID(id); !isLeaseID(id) {
		return x, noLease(id)
	}
	err = l.db.read(ctx, func(r *reader) error {
		return r.each(x.scan(micros(time.Now())), oneLease, id, behind(id))
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
		if err := rows.Scan(&x.ID, &x.Caller, &x.Tool, &x.Tier, &issued, &expires, &used, &revoked); err != nil {
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
