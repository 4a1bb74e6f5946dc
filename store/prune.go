package store

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"toolpost/tool"
)

// Prune removes the rows of the days that lie wholly before a time, and their sums. The chain starts at the
// cut from then on: its head keeps the hash of the last row that was removed. It gives the number of rows.
func (a *AuditTable) Prune(ctx context.Context, before time.Time) (removed int64, err error) {
	days, err := reading(ctx, a.db, func(r *reader) ([]int64, error) {
		return list(r, value[int64], `SELECT DISTINCT day FROM audit_day WHERE day < ? ORDER BY day`,
			dayOf(micros(before)))
	})
	for _, day := range days { // one at a time, so that others come in between
		if err != nil || ctx.Err() != nil {
			break
		}
		var n int64
		n, err = writing(a.db, func(t *tx) (int64, error) { return a.prune(t, day) })
		removed += n
	}
	return removed, errors.Join(err, ctx.Err())
}

// prune cuts the chain before the first row of a later day. A row of an earlier day that stands behind the
// cut, as it happens when clocks disagree, stays until the cut comes to it.
func (a *AuditTable) prune(t *tx, day int64) (int64, error) {
	h, err := a.openHead(t)
	if err != nil {
		return 0, err
	}
	cut := h.seq
	if _, err := row(t, `SELECT COALESCE(MIN(first_seq) - 1, ?) FROM audit_day WHERE day > ?`, []any{h.seq, day},
		&cut); err != nil || cut <= h.cutSeq {
		return 0, err
	}
	h.cutSeq, h.epoch = cut, h.epoch+1
	if h.cutHash, err = only(t, forged("has lost rows"), value[[]byte], hashOf, cut); err != nil {
		return 0, err
	}
	n, err := t.count(`DELETE FROM audit WHERE seq <= ?`, cut)
	if err != nil {
		return 0, err
	}
	if err := a.rebuild(t, day); err != nil {
		return 0, err
	}
	if err := t.exec(`DELETE FROM audit_kind WHERE id NOT IN (SELECT kind FROM audit_day)`); err != nil {
		return 0, err
	}
	return n, a.closeHead(t, &h)
}

// rebuild makes the sums of days up to one anew, from the rows that are left of them.
func (l *layout) rebuild(t *tx, day int64) error {
	s := newSums()
	var last int64
	_, err := row(t, `SELECT COALESCE(MAX(last_seq), 0) FROM audit_day WHERE day <= ?`, []any{day}, &last)
	if err != nil {
		return err
	}
	err = t.each(func(rows *sql.Rows) error {
		var r tool.Record
		var id int64
		var doc string
		if err := rows.Scan(into(l.inRow, &r, &id, &doc)...); err != nil {
			return err
		}
		err := readTouches(doc, &r)
		s.add(id, &r)
		return err
	}, `SELECT `+l.rowNames+`, kind, detail FROM audit WHERE seq <= ? AND at < ?`, last, (day+1)*dayLength)
	if err != nil {
		return err
	}
	for _, table := range []string{"audit_day", "audit_took", "audit_path"} {
		if err := t.exec(`DELETE FROM `+table+` WHERE day <= ?`, day); err != nil {
			return err
		}
	}
	return s.save(t)
}
