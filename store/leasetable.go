package store

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"sync/atomic"
	"time"

	"toolpost/engine/lease"
	"toolpost/store/database"
	"toolpost/tool"
)

// A LeaseTable keeps leases. The table has the digests of tokens, so reading it reveals no token.
type LeaseTable struct {
	db *database.DB

	counted leaseCounts
	swept   sweeper // the removal of past leases
}

// Leases returns the table of leases.
func (db *DB) Leases() *LeaseTable { return &LeaseTable{db: db.DB} }

// idLength is how many digits of a digest identify a lease, or a token, to people.
const idLength = lease.IDLength

// leaseID returns the id of a lease, given its token or the id itself.
func leaseID(text string) string { return database.Plain(lease.ID(text), database.MaxName) }

// Issue makes a lease for one call of a tool, or of any with "*", up to a tier, by a caller, or by any holder with "".
// A ttl of 0 means lease.DefaultTTL. Only the caller of Issue gets the token.
func (l *LeaseTable) Issue(
	_ context.Context, caller, name string, tier int, ttl time.Duration,
) (token string, err error) {
	ttl = cmp.Or(ttl, lease.DefaultTTL)
	if err := checkLease(caller, name, tier, ttl); err != nil {
		return "", err
	}
	now := time.Now()
	if l.swept.due(now) { // without keys: it removes leases of all of them
		if err := l.db.Do(false, func(t *database.Tx) error { return sweep(t, now) }); err != nil {
			return "", err
		}
	}
	token = lease.TokenPrefix + rand.Text()
	id := database.Digest(token)
	err = l.db.Do(true, func(t *database.Tx) error {
		return t.Exec(`INSERT INTO lease (id, caller, tool, tier, issued_at, expires_at) VALUES (?, ?, ?, ?, ?, ?)`,
			id, caller, name, tier, database.Micros(now), database.Micros(now.Add(ttl)))
	}, "lease "+id)
	if err != nil {
		return "", err
	}
	l.counted.issued.Add(1)
	return token, nil
}

// Consume uses a lease up for one call of a tool of that tier by a caller. If several try, in any program, one
// succeeds. A lease that does not fit stays as it is, and that of another caller is not_found.
func (l *LeaseTable) Consume(_ context.Context, token, caller, name string, tier int) error {
	id := database.Digest(token)
	return l.counted.count(l.db.Do(true, func(t *database.Tx) error {
		x, err := database.Only(t, noSuchLease(), scanLease, someLeases+` WHERE id = ?`, id)
		if err == nil {
			err = whyNot(&x, caller, name, tier)
		}
		if err != nil {
			return err
		}
		n, err := t.Count(useLease, database.Micros(time.Now()), id)
		if err == nil && n == 0 { // the key rules this out; a lease is worth a second lock
			err = noSuchLease()
		}
		return err
	}, "lease "+id))
}

// useLease uses up a lease that was not used or revoked.
const useLease = `UPDATE lease SET used_at = ? WHERE id = ? AND used_at IS NULL AND revoked_at IS NULL`

// leaseCounts counts what this process has done with leases.
type leaseCounts struct{ issued, consumed, rejected atomic.Int64 }

// count counts the result of a Consume.
func (c *leaseCounts) count(err error) error {
	switch {
	case err == nil:
		c.consumed.Add(1)
	case tool.CodeOf(err) == tool.CodeLeaseRejected:
		c.rejected.Add(1)
	}
	return err
}

func (c *leaseCounts) with(active int) lease.Counts {
	return lease.Counts{
		Active: active, Issued: int(c.issued.Load()), Consumed: int(c.consumed.Load()),
		Rejected: int(c.rejected.Load()),
	}
}

// maxLeaseName is the maximum length of the names of its tool and its caller, in bytes.
const maxLeaseName = 1024

// checkLease refuses a lease that could not be used, or that would last too long.
func checkLease(caller, name string, tier int, ttl time.Duration) error {
	switch {
	case name == "" || database.Plain(name, maxLeaseName) != name:
		return tool.Errorf(tool.CodeInvalidInput, `a lease needs the name of a tool, or "*" for any`)
	case database.Plain(caller, maxLeaseName) != caller:
		return tool.Errorf(tool.CodeInvalidInput,
			"a lease is for a caller, whose name is text of at most %d bytes, not %.40q", maxLeaseName, caller)
	case tier < 0 || tier > lease.MaxTier:
		return tool.Errorf(tool.CodeInvalidInput, "a lease has a tier from 0 to %d, not %d", lease.MaxTier, tier)
	case ttl < lease.MinTTL || ttl > lease.MaxTTL:
		return tool.Errorf(tool.CodeInvalidInput, "a lease lasts from %v to %v, not %v", lease.MinTTL, lease.MaxTTL,
			ttl)
	}
	return nil
}

// whyNot returns why a call cannot use a lease, or nil if it can. The lease of another caller counts as missing.
func whyNot(x *lease.Lease, caller, name string, tier int) error {
	switch {
	case x.ID == "" || x.Caller != "" && x.Caller != caller:
		return noSuchLease()
	case x.State == lease.Used:
		return rejected("already_consumed", "the lease has been used; issue another")
	case x.State == lease.Revoked:
		return rejected("revoked", "the lease was revoked")
	case x.State == lease.Expired:
		return rejected("expired", "the lease has expired; issue another")
	case x.Tool != "*" && x.Tool != name:
		return rejected("tool_mismatch", "the lease is for "+x.Tool+" and not for "+name)
	case x.Tier < tier:
		return rejected("tier_too_low", "the lease is for a lower tier than that of "+name+"; issue one of its tier")
	}
	return nil
}

// notFound is the reason for a lease that does not exist, or is another caller's.
const notFound = "not_found"

func noSuchLease() error { return rejected(notFound, "there is no such lease") }

func rejected(reason, message string) error {
	return (&tool.Error{Code: tool.CodeLeaseRejected, Message: message}).Because(reason)
}

// Revoke ends a lease of a caller, or of any caller with "", by the id that List returns or by its token. A lease that
// was used or revoked before cannot be revoked: the error has the code conflict.
func (l *LeaseTable) Revoke(_ context.Context, caller, id string) error {
	if id = leaseID(id); !isID(id) {
		return noLease(id)
	}
	return l.db.Do(true, func(t *database.Tx) error {
		x, err := database.Only(t, noLease(id), scanLease, someLeases+withID, id, behind(id))
		switch {
		case err != nil:
			return err
		case caller != "" && x.Caller != caller:
			return noLease(id)
		}
		return revoke(t, "lease", id, x.State)
	})
}

// revoke ends an entry of a table by its id, if it is live.
func revoke(t *database.Tx, table, id, state string) error {
	if state != lease.Live {
		return tool.Errorf(tool.CodeConflict, "%s %s cannot be revoked: it is %s", table, id, state).Because(state)
	}
	return t.Exec(`UPDATE `+table+` SET revoked_at = ?`+withID, database.Micros(time.Now()), id, behind(id))
}

func noLease(id string) error {
	return tool.Errorf(tool.CodeNotFound, "there is no lease %q; one is forgotten %v after its end", id, remembrance)
}

const (
	someLeases = `SELECT id, caller, tool, tier, issued_at, expires_at, used_at, revoked_at FROM lease`
	withID     = ` WHERE id >= ? AND id < ?` // the whole digest is stored; the second parameter is behind(id)
)

// isID reports whether a text can be an id: a shorter one would match several.
func isID(text string) bool { return isHex(text, idLength) }

// behind returns the upper bound of the digests that start with an id, which are found by their order.
func behind(id string) string { return id + "g" } // no digit is as large

// Find returns a lease that is still stored, by its id or token.
func (l *LeaseTable) Find(ctx context.Context, id string) (x lease.Lease, err error) {
	if id = leaseID(id); !isID(id) {
		return x, noLease(id)
	}
	return database.Only(l.db.Query(ctx), noLease(id), scanLease, someLeases+withID, id, behind(id))
}

// List returns the stored leases, the newest first, at most most of them; 0 means all.
func (l *LeaseTable) List(ctx context.Context, most int) ([]lease.Lease, error) {
	return database.List(l.db.Query(ctx), scanLease, someLeases+` ORDER BY issued_at DESC, id LIMIT ?`, database.AtMost(most))
}

// scanLease reads a row of someLeases.
func scanLease(rows *sql.Rows) (x lease.Lease, err error) {
	var used, revoked database.MicroTime
	err = rows.Scan(&x.ID, &x.Caller, &x.Tool, &x.Tier, (*database.MicroTime)(&x.Issued), (*database.MicroTime)(&x.Expires), &used,
		&revoked)
	if err != nil {
		return x, err
	}
	x.ID = x.ID[:idLength]
	switch none := (database.MicroTime{}); {
	case used != none:
		x.State = lease.Used
	case revoked != none:
		x.State = lease.Revoked
	case !time.Now().Before(x.Expires):
		x.State = lease.Expired
	default:
		x.State = lease.Live
	}
	return x, nil
}

// GC removes the leases that ended a while ago, and returns the counts.
func (l *LeaseTable) GC(context.Context) (lease.Counts, error) {
	active := 0
	err := l.db.Do(false, func(t *database.Tx) error {
		now := time.Now()
		if err := sweep(t, now); err != nil {
			return err
		}
		_, err := database.Row(t, `SELECT COUNT(*) FROM lease WHERE expires_at > ? AND used_at IS NULL AND revoked_at IS NULL`,
			[]any{database.Micros(now)}, &active)
		return err
	})
	return l.counted.with(active), err
}

// How long a lease is kept after its end: long enough to report to a late caller that the lease has expired, and not
// that it never existed. And how often ended leases are removed if GC is not called.
const (
	remembrance = lease.MaxTTL
	sweepEvery  = time.Minute
)

// A sweeper decides when to remove what is over.
type sweeper struct{ last atomic.Int64 }

func (s *sweeper) due(now time.Time) bool {
	last := s.last.Load()
	since := now.Sub(time.UnixMicro(last)).Abs() // the clock may have been set back
	return since >= sweepEvery && s.last.CompareAndSwap(last, database.Micros(now))
}

func sweep(t *database.Tx, now time.Time) error {
	return t.Exec(`DELETE FROM lease WHERE expires_at < ?`, database.Micros(now.Add(-remembrance)))
}
