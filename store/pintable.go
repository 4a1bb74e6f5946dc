package store

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"strings"
	"sync"

	"toolpost/engine/pin"
	"toolpost/store/database"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// A PinTable keeps the descriptions of tools of foreign servers.
type PinTable struct{ db *database.DB }

// Pins returns the table of pins.
func (db *DB) Pins() *PinTable { return &PinTable{db.DB} }

// Of implements pin.Pins.
func (k *PinTable) Of(ctx context.Context, source string) ([]pin.Pin, error) {
	return database.List(k.db.Query(ctx), scanPin,
		`SELECT source, digest, face, seen_at, approved_by, approved_at FROM pin WHERE source = ?`, source)
}

func scanPin(rows *sql.Rows) (p pin.Pin, err error) {
	var face string
	err = rows.Scan(&p.Source, &p.Digest, &face, (*database.MicroTime)(&p.Seen), &p.By, (*database.MicroTime)(&p.Approved))
	if err != nil {
		return p, err
	}
	var said struct {
		Name string `json:"name"`
	}
	p.Face = []byte(face)
	err = strictjson.Unmarshal(p.Face, &said)
	p.Name = said.Name
	return p, err
}

// Change implements pin.Pins.
func (k *PinTable) Change(_ context.Context, changes []pin.Change) error {
	return k.db.Do(true, func(w *database.Tx) error {
		for _, c := range changes {
			if err := changePin(w, c); err != nil {
				return err
			}
		}
		return w.Exec(`UPDATE pin_change SET n = n + 1 WHERE id = 1`)
	})
}

func changePin(t *database.Tx, c pin.Change) error {
	id := database.Digest(c.Name)
	approved := sql.NullInt64{Int64: database.Micros(c.Approved), Valid: !c.Approved.IsZero()}
	if c.Was == "" {
		return t.Exec(`INSERT INTO pin (source, id, digest, face, seen_at, approved_by, approved_at) `+
			`VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (source, id) DO NOTHING`,
			c.Source, id, c.Digest, string(c.Face), database.Micros(c.Seen), database.Plain(c.By, database.MaxName), approved)
	}
	var n int64
	var err error
	if c.Digest == "" {
		n, err = t.Count(`DELETE FROM pin WHERE source = ? AND id = ? AND digest = ?`, c.Source, id, c.Was)
	} else {
		n, err = t.Count(`UPDATE pin SET digest = ?, face = ?, approved_by = ?, approved_at = ? `+
			`WHERE source = ? AND id = ? AND digest = ?`,
			c.Digest, string(c.Face), database.Plain(c.By, database.MaxName), approved, c.Source, id, c.Was)
	}
	if err == nil && n == 0 {
		return pinConflict(c)
	}
	return err
}

func pinConflict(c pin.Change) error {
	return tool.Errorf(tool.CodeConflict, "%s.%s has been decided about meanwhile; look again with "+
		"`toolpost tools review`", c.Source, tool.VisibleName(c.Name))
}

// Revision implements pin.Pins.
func (k *PinTable) Revision(ctx context.Context) (int64, error) {
	return database.Only(k.db.Query(ctx), nil, database.Value[int64], `SELECT n FROM pin_change WHERE id = 1`)
}

// Pins keeps pins in memory. The zero value is ready to use.
type Pins struct {
	mu   sync.Mutex
	kept map[tool.Ref]pin.Pin
	n    int64
}

// Of implements pin.Pins.
func (k *Pins) Of(_ context.Context, source string) (list []pin.Pin, _ error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for ref, p := range k.kept {
		if ref.Source == source {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b pin.Pin) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// Change implements pin.Pins.
func (k *Pins) Change(_ context.Context, changes []pin.Change) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	next := maps.Clone(k.kept)
	if next == nil {
		next = map[tool.Ref]pin.Pin{}
	}
	for _, c := range changes {
		ref := tool.Ref{Source: c.Source, Name: c.Name}
		was, is := next[ref]
		switch {
		case c.Was == "" && is:
		case c.Was != "" && was.Digest != c.Was:
			return pinConflict(c)
		case c.Digest == "":
			delete(next, ref)
		default:
			next[ref] = c.Pin
		}
	}
	k.kept = next
	k.n++
	return nil
}

// Revision implements pin.Pins.
func (k *Pins) Revision(context.Context) (int64, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.n, nil
}
