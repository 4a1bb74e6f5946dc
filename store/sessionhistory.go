package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"toolpost/engine/session"
	"toolpost/tool"
)

// mark returns the oldest version that is remembered, and its state.
func (k sessionAt) mark() (version int64, state string, err error) {
	state = "{}"
	_, err = row(k, `SELECT version, state FROM session_mark WHERE caller = ? AND name = ?`, []any{k.caller, k.name},
		&version, &state)
	return version, state, err
}

// forget removes the versions up to one from the history. What they led to becomes the mark, from which the
// later ones can be made again.
func (k sessionAt) forget(t *tx, upTo int64) error {
	mark, state, err := k.mark()
	if err != nil || upTo <= mark {
		return err
	}
	next, err := k.merged(state, mark, upTo)
	if err != nil {
		return err
	}
	err = t.exec(`INSERT INTO session_mark (caller, name, version, state) VALUES (?, ?, ?, ?)
		ON CONFLICT (caller, name) DO UPDATE SET version = excluded.version, state = excluded.state`, k.caller, k.name, upTo, string(next))
	if err != nil {
		return err
	}
	return t.exec(`DELETE FROM session_patch WHERE caller = ? AND name = ? AND version <= ?`, k.caller, k.name, upTo)
}

// At returns the session's state as it was at a version. The last 100 are remembered, or a few more.
func (s *SessionTable) At(ctx context.Context, caller, name string, version int64) (session.State, error) {
	return s.remembered(ctx, caller, name, func(current, mark int64) (int64, error) {
		switch {
		case version < 0 || version > current:
			return 0, tool.Errorf(tool.CodeNotFound, "session %q has no version %d; it is at version %d", name, version,
				current)
		case version < mark:
			return 0, tool.Errorf(tool.CodeNotFound, "version %d of session %q is no longer kept; the oldest is %d",
				version, name, mark)
		}
		return version, nil
	})
}

// Next returns the version after the one that was seen last, or the oldest later one that is remembered; there is
// none where more is false. A session that was removed meanwhile starts again.
func (s *SessionTable) Next(
	ctx context.Context, caller, name string, seen int64,
) (st session.State, more bool, err error) {
	st, err = s.remembered(ctx, caller, name, func(current, mark int64) (int64, error) {
		more = current != seen
		switch {
		case !more:
			return mark, nil // there is nothing to give, and the mark costs no reading of patches
		case current < seen: // it was removed and has begun again: from its first version, or its mark
			return max(min(current, 1), mark), nil
		}
		return max(seen+1, mark), nil
	})
	return st, more, err
}

// remembered makes a version again, which choose picks: no later than the current one, and not before the mark. When
// the mark came to be is forgotten.
func (s *SessionTable) remembered(
	ctx context.Context, caller, name string, choose func(current, mark int64) (int64, error),
) (session.State, error) {
	return reading(ctx, s.db, func(r *reader) (st session.State, err error) {
		k := sessionAt{r, plain(caller, maxSession), plain(name, maxSession)}
		d, err := k.open(AnyVersion)
		if err != nil {
			return st, err
		}
		mark, state, err := k.mark()
		if err != nil {
			return st, err
		}
		st.State = json.RawMessage(state)
		if st.Version, err = choose(d.version, mark); err != nil || st.Version == mark {
			return st, err
		}
		at, err := only(k, sql.ErrNoRows, value[int64],
			`SELECT at FROM session_patch WHERE caller = ? AND name = ? AND version = ?`, k.caller, k.name, st.Version)
		if err != nil {
			return st, err
		}
		st.Changed = time.UnixMicro(at).UTC()
		st.State, err = k.merged(state, mark, st.Version)
		return st, err
	})
}
