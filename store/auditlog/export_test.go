package auditlog

import (
	"cmp"
	"math"
	"time"

	"toolpost/store/database"
	"toolpost/tool"
)

// Forge does what a program could do to hide rows with the key of its own lane, and no other: it adds an anchor of any kind
// and time, about the row or anchor that a query returns, and removes what it likes. The sums of the lane fit afterwards.
func (a *Table) Forge(kind string, about int64, at time.Time, row string, remove ...string) error {
	return a.db.Do(true, func(t *database.Tx) error {
		h, err := a.openHead(t)
		if err != nil {
			return err
		}
		before := anchor{hash: genesis()}
		x := anchor{kind: kind, lane: h.lane, about: about, at: database.Micros(at)}
		_, err = database.Row(t, row, nil, &x.row.seq, &x.row.number, &x.row.hash)
		if err == nil {
			_, err = database.Row(t, `SELECT seq, hash FROM audit_anchor ORDER BY seq DESC LIMIT 1`, nil, &before.seq, &before.hash)
		}
		for _, statement := range remove {
			if err == nil {
				err = t.Exec(statement)
			}
		}
		if err == nil {
			err = a.rebuild(t, about, dayOf(database.Micros(time.Now())))
		}
		if err != nil {
			return err
		}
		x.seq = before.seq + 1
		x.hash = x.chained(before.hash, h.public)
		h.anchor, h.anchorHash = x.seq, x.hash
		if err := a.closeHead(t, &h); err != nil {
			return err
		}
		return t.Exec(`INSERT INTO audit_anchor (`+anchorColumns+`) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`, x.seq, x.kind, x.lane,
			x.about, x.row.seq, x.row.number, x.row.hash, x.at, x.hash)
	})
}

// Crash lets the program end without an anchor for its last rows, those that follow included.
func (a *Table) Crash() { a.unanchored.Store(math.MinInt64 / 2) }

// Resign does what the owner of a lane could do to its head: the statements change what they like, and it is signed again.
func (a *Table) Resign(statements ...string) error {
	return a.db.Do(true, func(t *database.Tx) error {
		h, err := a.openHead(t)
		for _, statement := range statements {
			if err == nil {
				err = t.Exec(statement)
			}
		}
		if err == nil {
			err = a.rebuild(t, h.lane, dayOf(database.Micros(time.Now())))
		}
		if err == nil {
			h, err = database.Only(t, forged("has lost its head"), readHead, askHeads+` WHERE id = ?`, h.lane+1)
		}
		if err != nil {
			return err
		}
		a.last, a.kinds = h.number, map[string]kindID{}
		return a.closeHead(t, &h)
	})
}

// RefuseOnce lets the first group of records be refused after it was written, and returns how often one was.
func (a *Table) RefuseOnce() (times func() int) {
	n, write := 0, a.records.Do
	a.records.Do = func(t *database.Tx, group []*database.Write) error {
		err := write(t, group)
		if n++; n == 1 {
			return cmp.Or(err, error(tool.Errorf(tool.CodeConflict, "no")))
		}
		return err
	}
	return func() int { return n }
}
