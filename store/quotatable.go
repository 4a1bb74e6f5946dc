package store

import (
	"context"
	"database/sql"
	"time"

	"toolpost/engine/quota"
	"toolpost/store/database"
)

// A QuotaTable counts for the quotas of all programs.
type QuotaTable struct{ db *database.DB }

// Quotas returns the counts of quotas.
func (db *DB) Quotas() *QuotaTable { return &QuotaTable{db.DB} }

// Draw implements quota.Shared.
func (q *QuotaTable) Draw(_ context.Context, d quota.Draw) (got quota.Share, err error) {
	err = q.db.Do(false, func(t *database.Tx) (err error) {
		got, err = draw(t, q.db.Owner, &d)
		return err
	}, "quota "+string(d.Bucket[:]))
	return got, err
}

func draw(t *database.Tx, owner string, d *quota.Draw) (got quota.Share, err error) {
	now, err := t.Now()
	if err != nil {
		return got, err
	}
	var missing, at int64
	if _, err = database.Row(t, `SELECT missing, at FROM quota WHERE bucket = ?`, []any{d.Bucket[:]}, &missing, &at); err != nil {
		return got, err
	}
	now = max(now, at)
	if d.Gain > 0 && now-at > missing/d.Gain {
		missing = 0
	} else {
		missing -= (now - at) * d.Gain
	}
	mine, others, ended, err := sharesOf(t, owner, d, now)
	if err != nil {
		return got, err
	}
	if d.Gain > 0 && mine > 0 { // otherwise it has ended
		ended += d.Used
	}
	missing += min(ended, max(0, d.Full-missing))
	free := d.Full - missing - others
	got.Held = min(d.Want, free)
	if got.Held < d.Need {
		got.Held = 0
		if got.Wait = time.Second; d.Gain > 0 {
			got.Wait = time.Duration((d.Need-free)/d.Gain+1) * time.Microsecond
		} else {
			got.Held = mine // calls are running
		}
	}
	if err := t.Exec(`INSERT INTO quota (bucket, missing, at) VALUES (?, ?, ?) ON CONFLICT (bucket) DO UPDATE SET `+
		`missing = excluded.missing, at = excluded.at`, d.Bucket[:], missing, now); err != nil {
		return got, err
	}
	if got.Held <= 0 {
		return got, t.Exec(`DELETE FROM quota_share WHERE bucket = ? AND owner = ?`, d.Bucket[:], owner)
	}
	return got, t.Exec(`INSERT INTO quota_share (bucket, owner, held, until_at) VALUES (?, ?, ?, ?) ON CONFLICT (bucket, owner) `+
		`DO UPDATE SET held = excluded.held, until_at = excluded.until_at`, d.Bucket[:], owner, got.Held, now+d.For.Microseconds())
}

// sharesOf returns what this program and others hold of a bucket, and what was held by shares that have ended without a
// report: all of it may have been used.
func sharesOf(t *database.Tx, owner string, d *quota.Draw, now int64) (mine, others, ended int64, err error) {
	type share struct {
		owner       string
		held, until int64
	}
	all, err := database.List(t, func(rows *sql.Rows) (s share, err error) {
		err = rows.Scan(&s.owner, &s.held, &s.until)
		return s, err
	}, `SELECT owner, held, until_at FROM quota_share WHERE bucket = ?`, d.Bucket[:])
	for _, s := range all {
		over := d.Gain > 0 && s.until <= now
		if d.Gain == 0 && s.owner != owner && err == nil {
			over, _, err = t.Gone(s.owner)
		}
		switch {
		case err != nil:
			return 0, 0, 0, err
		case over && d.Gain > 0:
			ended += s.held
		case s.owner == owner:
			mine = s.held
		case !over:
			others += s.held
		}
		if over {
			err = t.Exec(`DELETE FROM quota_share WHERE bucket = ? AND owner = ?`, d.Bucket[:], s.owner)
		}
	}
	return mine, others, ended, err
}

// Expire removes the counts that nothing has changed for so long that all is restored.
func (q *QuotaTable) Expire(_ context.Context, before time.Time) error {
	return q.db.Do(false, func(t *database.Tx) error {
		return t.Exec(`DELETE FROM quota WHERE at < ? AND NOT EXISTS (SELECT 1 FROM quota_share s WHERE s.bucket = quota.bucket)`,
			database.Micros(before))
	})
}
