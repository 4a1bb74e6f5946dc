package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"toolpost/engine/session"
	"toolpost/tool"
)

// forget removes the versions up to one from the history. What they led to becomes the mark, from which the
// later ones can be made again.
func (k sessionAt) forget(upTo int64) error {
	mark, state := int64(0), "{}"
	err := k.t.row(markOf, []any{k.caller, k.name}, &mark, &state)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	if upTo <= mark {
		return nil
	}
	var old []string
	if err := k.t.each(texts(&old), patchesBetween, k.caller, k.name, mark, upTo); err != nil {
		return err
	}
	next, err := merged(state, old)
	if err != nil {
		return err
	}
	err = k.t.exec(`INSERT INTO session_mark (caller, name, version, state) VALUES (?, ?, ?, ?)
		ON CONFLICT (caller, name) DO UPDATE SET version = excluded.version, state = excluded.state`, k.caller, k.name, upTo, string(next))
	if err != nil {
		return err
	}
	return k.t.exec(`DELETE FROM session_patch WHERE caller = ? AND name = ? AND version <= ?`, k.caller, k.name, upTo)
}

const (
	markOf         = `SELECT version, state FROM session_mark WHERE caller = ? AND name = ?`
	patchesBetween = `SELECT patches FROM session_patch ` +
		`WHERE caller = ? AND name = ? AND version > ? AND version <= ? ORDER BY version`
)

// At returns the session's state as it was at a version. The last 100 are remembered, or a few more.
func (s *SessionTable) At(ctx context.Context, caller, name string, version int64) (st session.State, err error) {
	err = s.remembered(ctx, caller, name, func(p past) error {
		switch {
		case version < 0 || version > p.current:
			return tool.Errorf(tool.CodeNotFound, "session %q has no version %d; it is at version %d", name, version,
				p.current)
		case version < p.mark:
			return tool.Errorf(tool.CodeNotFound, "version %d of session %q is no longer kept; the oldest is %d",
				version, name, p.mark)
		}
		st, err = p.at(version)
		return err
	})
	return st, err
}

// Next returns the version after the one that was seen last, or the oldest later one that is remembered; there is
// none where more is false. A session that was removed meanwhile starts again.
func (s *SessionTable) Next(
	ctx context.Context, caller, name string, seen int64,
) (st session.State, more bool, err error) {
	err = s.remembered(ctx, caller, name, func(p past) error {
		next := seen + 1
		switch {
		case p.current == seen:
			return nil
		case p.current < seen:
			next = min(p.current, 1)
		}
		more = true
		st, err = p.at(max(next, p.mark))
		return err
	})
	return st, more, err
}

// A past is what is remembered of a session, at one moment.
type past struct {
	r             *reader
	caller, name  string
	current, mark int64  // versions; nothing before the mark is remembered
	base          string // the state at the mark
}

func (s *SessionTable) remembered(ctx context.Context, caller, name string, use func(past) error) error {
	p := past{caller: plain(caller, maxSession), name: plain(name, maxSession), base: "{}"}
	return s.db.read(ctx, func(r *reader) error {
		p.r = r
		err := r.row(`SELECT version FROM session WHERE caller = ? AND name = ?`, p.caller, p.name).Scan(&p.current)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		err = r.row(markOf, p.caller, p.name).Scan(&p.mark, &p.base)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		return use(p)
	})
}

// at makes a version again that is remembered. When the mark came to be is forgotten.
func (p past) at(version int64) (session.State, error) {
	st := session.State{Version: version, State: json.RawMessage(p.base)}
	if version == p.mark {
		return st, nil
	}
	var at int64
	err := p.r.row(`SELECT at FROM session_patch WHERE caller = ? AND name = ? AND version = ?`, p.caller, p.name,
		version).Scan(&at)
	if err != nil {
		return st, err
	}
	st.Changed = time.UnixMicro(at).UTC()
	var patches []string
	if err := p.r.each(texts(&patches), patchesBetween, p.caller, p.name, p.mark, version); err != nil {
		return st, err
	}
	st.State, err = merged(p.base, patches)
	return st, err
}
