package database

import (
	"cmp"
	"slices"
	"time"

	"toolpost/tool"
)

// A doubt is a transaction whose COMMIT was not answered, as when the database server stops just then: it may be
// written or not. Each transaction leaves its own mark, in the row of its program, so the next one can check: only then
// is it known what has to be written again. The database's own transaction numbers would not do, since a server that
// crashed reuses them.
type doubt struct {
	mark   string
	writes []*Write // the writes in the transaction
	done   []func()
}

// about reports whether it is in doubt that a write was done.
func (d *doubt) about(one *Write) bool { return d != nil && slices.Contains(d.writes, one) }

// clear resolves the transaction in doubt, if there is one, and returns the writes that are left to be done.
func (t *Tx) clear(group []*Write) (left []*Write, err error) {
	w := t.w
	if w.doubt != nil {
		if err := t.resolve(w.doubt); err != nil {
			return nil, err
		}
		w.doubt = nil
	}
	for _, one := range group {
		one.Err = nil
		if len(w.landed) > 0 && w.landed[w.nameOf(one)] {
			delete(w.landed, w.nameOf(one))
			one.written = true
		}
		if !one.written {
			left = append(left, one)
		}
	}
	return left, nil
}

// resolve looks for the mark of a transaction. The lock of this program is held, so the transaction itself is over.
func (t *Tx) resolve(d *doubt) error {
	var mark string
	_, err := Row(t, `SELECT mark FROM program WHERE id = ?`, []any{int64(t.w.db.program)}, &mark)
	if err != nil || mark != d.mark {
		return err
	}
	for _, f := range d.done {
		f()
	}
	for _, one := range d.writes {
		if one.written = true; one.told {
			t.w.land(one)
		}
	}
	return nil
}

// mostLanded bounds what is remembered for callers that do not come again.
const mostLanded = 1 << 14

// land remembers a write that happened after it was reported as unclear.
func (w *writer) land(one *Write) {
	if one.Late != nil {
		one.Late()
	}
	name := w.nameOf(one)
	if name == "" {
		return
	}
	if w.landed == nil || len(w.landed) >= mostLanded {
		w.landed = map[string]bool{}
	}
	w.landed[name] = true
}

// nameOf identifies a write, if a caller may repeat it after an unclear outcome. This costs more than writing a record,
// and is hardly ever needed.
func (w *writer) nameOf(one *Write) string {
	if one.Batch != nil && one.Batch.Name != nil {
		return one.Batch.Name(one)
	}
	return one.Name
}

// commit ends the transaction of a group.
func (t *Tx) commit(group []*Write) error {
	if !t.w.db.Served() {
		return t.once("COMMIT")
	}
	d := &doubt{mark: tool.NewID(), done: t.done}
	for _, one := range group {
		if one.Err == nil { // the others left nothing in the transaction
			d.writes = append(d.writes, one)
		}
	}
	err := t.Exec(`INSERT INTO program (id, mark, at, version) VALUES (?, ?, ?, ?) `+
		`ON CONFLICT (id) DO UPDATE SET mark = excluded.mark, at = excluded.at`,
		int64(t.w.db.program), d.mark, Micros(time.Now()), t.w.db.version())
	if err = cmp.Or(err, t.flush()); err != nil {
		return err
	}
	if err = t.answered("COMMIT"); err != nil {
		t.w.doubt = d
	}
	return err
}
