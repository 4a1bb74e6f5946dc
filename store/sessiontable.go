package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"strconv"
	"time"

	"toolpost/engine/session"
	"toolpost/store/database"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// A SessionTable keeps the state documents of sessions, with a version for each change and the changes that led to it.
// Two callers never share a session, whatever names they choose.
type SessionTable struct{ db *database.DB }

// Sessions returns the table of sessions.
func (db *DB) Sessions() *SessionTable { return &SessionTable{db.DB} }

// maxHistory is how many of its last versions a session keeps.
const maxHistory = 100

// AnyVersion is for changes that do not depend on the version of a session.
const AnyVersion = -1

// Patch merges the patches into the session's state, in order and all at once.
func (s *SessionTable) Patch(ctx context.Context, caller, name string, patches []map[string]any) error {
	_, err := s.PatchAt(ctx, caller, name, AnyVersion, patches)
	return err
}

// PatchAt is Patch for a caller that has seen a version of the state: if it has changed since, nothing is merged and
// the error has the code conflict. It returns the new version.
func (s *SessionTable) PatchAt(
	_ context.Context, caller, name string, seen int64, patches []map[string]any,
) (version int64, err error) {
	doc, err := strictjson.Marshal(append([]map[string]any{}, patches...))
	if err != nil {
		return 0, tool.Errorf(tool.CodeInvalidInput, "a patch of session %q is not JSON: %w", name, err)
	}
	return s.change(caller, name, seen, string(doc))
}

// Reset empties a session. Its version counts on, so that a caller that saw an earlier state notices; an unchanged
// session stays at version 0.
func (s *SessionTable) Reset(_ context.Context, caller, name string) (version int64, err error) {
	return s.change(caller, name, AnyVersion, emptied)
}

// emptied takes the place of patches for a change that left nothing of the state.
const emptied = "null"

// change makes the next version of a session, with the patches in doc.
func (s *SessionTable) change(caller, name string, seen int64, doc string) (version int64, err error) {
	if err := checkNames(caller, name); err != nil {
		return 0, err
	}
	return database.Writing(s.db, func(t *database.Tx) (int64, error) {
		k := sessionAt{t, caller, name}
		d, err := k.open(seen)
		if err != nil || doc == emptied && !d.known {
			return 0, err
		}
		d.version++
		err = t.Exec(`INSERT INTO session_patch (caller, name, version, at, patches) VALUES (?, ?, ?, ?, ?)`,
			caller, name, d.version, database.Micros(time.Now()), doc)
		if err != nil {
			return 0, err
		}
		d.tail += int64(len(doc))
		// Folding costs as much as the state is large, so it is done only when the patches have reached that size.
		if doc == emptied || d.tail > d.base+minTail || d.base+d.tail > MaxStateSize {
			if err := k.fold(t, d); err != nil {
				return 0, err
			}
		}
		return d.version, k.save(t, d)
	}, "session "+strconv.Quote(caller)+name)
}

// maxSession is the maximum length of the name of a session, in bytes.
const maxSession = 512

// minTail is how many bytes of patches even a small state leaves unmerged.
const minTail = 4 << 10

// checkNames refuses names that cannot be a key in every database.
func checkNames(names ...string) error {
	for _, n := range names {
		if database.Plain(n, maxSession) != n {
			return tool.Errorf(tool.CodeInvalidInput,
				"the name of a session or caller is text of at most %d bytes, not %.40q", maxSession, n)
		}
	}
	return nil
}

// A sessionAt is a session during one read or write.
type sessionAt struct {
	database.Querier
	caller, name string
}

// A document is a session as it is stored, without its base, the state at an earlier version. The base is stored
// separately: it may be large.
type document struct {
	version, baseVersion int64
	base, tail           int64 // bytes of the base, and of the patches that came later
	changed              int64
	known                bool
}

// The queries for reading a session.
const (
	askSession = `SELECT version, base_version, base_size, tail, changed_at FROM session WHERE caller = ? AND name = ?`
	askBase    = `SELECT state FROM session_base WHERE caller = ? AND name = ?`
	askPatches = `SELECT patches FROM session_patch WHERE caller = ? AND name = ? AND version > ? AND version <= ? ` +
		`ORDER BY version`
)

func (k sessionAt) open(seen int64) (d *document, err error) {
	d = &document{base: int64(len("{}"))}
	d.known, err = database.Row(k, askSession, []any{k.caller, k.name},
		&d.version, &d.baseVersion, &d.base, &d.tail, &d.changed)
	if err == nil && seen != AnyVersion && seen != d.version {
		e := tool.Errorf(tool.CodeConflict, "session %q is at version %d and not at %d; read it and try again", k.name,
			d.version, seen)
		e.Details, _ = strictjson.Marshal(map[string]any{"version": d.version, "seen": seen})
		return nil, e.Because("session_changed")
	}
	return d, err
}

func (k sessionAt) save(t *database.Tx, d *document) error {
	now := database.Micros(time.Now())
	if d.known {
		return t.Exec(`UPDATE session SET version = ?, base_version = ?, base_size = ?, tail = ?, changed_at = ? `+
			`WHERE caller = ? AND name = ?`,
			d.version, d.baseVersion, d.base, d.tail, now, k.caller, k.name)
	}
	var n int // programs that make sessions of a caller at once may make one too many each
	if _, err := database.Row(t, `SELECT COUNT(*) FROM session WHERE caller = ?`, []any{k.caller}, &n); err != nil {
		return err
	}
	if n >= MaxSessions {
		return tool.Errorf(tool.CodeQuotaExceeded, "%q has %d sessions already, the most that one caller may have",
			k.caller, n)
	}
	return t.Exec(`INSERT INTO session (caller, name, version, base_version, base_size, tail, changed_at) `+
		`VALUES (?, ?, ?, ?, ?, ?, ?)`,
		k.caller, k.name, d.version, d.baseVersion, d.base, d.tail, now)
}

// state returns the base with all later patches merged in.
func (k sessionAt) state(d *document) (json.RawMessage, error) {
	base := "{}"
	_, err := database.Row(k, askBase, []any{k.caller, k.name}, &base)
	if err != nil {
		return nil, err
	}
	return k.merged(base, d.baseVersion, d.version)
}

// fold makes the current state the base of later patches, and removes what is older than the history.
func (k sessionAt) fold(t *database.Tx, d *document) error {
	state, err := k.state(d)
	if err != nil {
		return err
	}
	if len(state) > MaxStateSize {
		return tool.Errorf(tool.CodeQuotaExceeded, "it would be %d bytes long, and %d is the most", len(state),
			MaxStateSize)
	}
	d.base, d.baseVersion, d.tail = int64(len(state)), d.version, 0
	err = t.Exec(`INSERT INTO session_base (caller, name, state) VALUES (?, ?, ?)
		ON CONFLICT (caller, name) DO UPDATE SET state = excluded.state`, k.caller, k.name, string(state))
	if err != nil {
		return err
	}
	return k.forget(t, d.version-maxHistory)
}

// merged returns the state of a version with the patches of later versions, up to upTo, merged in.
func (k sessionAt) merged(state string, version, upTo int64) (json.RawMessage, error) {
	later, err := database.List(k, database.Value[string], askPatches, k.caller, k.name, version, upTo)
	if err != nil {
		return nil, err
	}
	return merged(state, later)
}

// merged returns a state with the patches of later versions merged in.
func merged(base string, later []string) (json.RawMessage, error) {
	for i, doc := range later {
		if doc == emptied { // it discards everything before it
			return merged("{}", later[i+1:])
		}
	}
	if len(later) == 0 {
		return json.RawMessage(base), nil
	}
	v, err := strictjson.Decode([]byte(base))
	state, ok := v.(map[string]any)
	if err != nil || !ok {
		return nil, tool.Errorf(tool.CodeInternal, "the state of a session is damaged: %v", err)
	}
	for _, doc := range later {
		v, err := strictjson.Decode([]byte(doc))
		if err != nil {
			return nil, tool.Errorf(tool.CodeInternal, "a patch of a session is damaged: %w", err)
		}
		patches, _ := v.([]any)
		for _, p := range patches {
			if patch, ok := p.(map[string]any); ok {
				mergeInto(state, patch)
			}
		}
	}
	return strictjson.Marshal(state)
}

// mergeInto is strictjson.Merge for a state that is not shared: it changes in place what merging one patch after the
// other would copy each time.
func mergeInto(state, patch map[string]any) {
	for key, value := range patch {
		under, isObject := value.(map[string]any)
		old, wasObject := state[key].(map[string]any)
		switch {
		case value == nil:
			delete(state, key)
		case isObject && wasObject:
			mergeInto(old, under)
		case isObject:
			state[key] = strictjson.Merge(nil, under)
		default:
			state[key] = value
		}
	}
}

// State returns the session's state document; an unchanged session is {}.
func (s *SessionTable) State(ctx context.Context, caller, name string) (json.RawMessage, error) {
	st, err := s.Get(ctx, caller, name)
	return st.State, err
}

// Get returns the session's state with its version.
func (s *SessionTable) Get(ctx context.Context, caller, name string) (session.State, error) {
	return database.Reading(ctx, s.db, func(r *database.Reader) (st session.State, err error) {
		k := sessionAt{r, database.Plain(caller, maxSession), database.Plain(name, maxSession)}
		d, err := k.open(AnyVersion)
		if err != nil {
			return st, err
		}
		st.Version, st.State = d.version, json.RawMessage(`{}`)
		if d.known {
			st.Changed = time.UnixMicro(d.changed).UTC()
			st.State, err = k.state(d)
		}
		return st, err
	})
}

// Expire removes the sessions that have not changed since a time, and returns their number.
func (s *SessionTable) Expire(_ context.Context, before time.Time) (n int64, err error) {
	err = s.db.Do(false, func(t *database.Tx) (err error) {
		for _, table := range []string{"session_patch", "session_base", "session_mark"} {
			err := t.Exec(`DELETE FROM `+table+` WHERE EXISTS (SELECT 1 FROM session s WHERE s.caller = `+table+`.caller
				AND s.name = `+table+`.name AND s.changed_at < ?)`, database.Micros(before))
			if err != nil {
				return err
			}
		}
		n, err = t.Count(`DELETE FROM session WHERE changed_at < ?`, database.Micros(before))
		return err
	})
	return n, err
}

// mark returns the oldest version that is kept, and its state.
func (k sessionAt) mark() (version int64, state string, err error) {
	state = "{}"
	_, err = database.Row(k, `SELECT version, state FROM session_mark WHERE caller = ? AND name = ?`, []any{k.caller, k.name},
		&version, &state)
	return version, state, err
}

// forget removes the versions up to one from the history. The state at that version becomes the mark, from which the
// later ones can be restored.
func (k sessionAt) forget(t *database.Tx, upTo int64) error {
	mark, state, err := k.mark()
	if err != nil || upTo <= mark {
		return err
	}
	next, err := k.merged(state, mark, upTo)
	if err != nil {
		return err
	}
	err = t.Exec(`INSERT INTO session_mark (caller, name, version, state) VALUES (?, ?, ?, ?)
		ON CONFLICT (caller, name) DO UPDATE SET version = excluded.version, state = excluded.state`,
		k.caller, k.name, upTo, string(next))
	if err != nil {
		return err
	}
	return t.Exec(`DELETE FROM session_patch WHERE caller = ? AND name = ? AND version <= ?`, k.caller, k.name, upTo)
}

// At returns the session's state as it was at a version. The last 100 are kept, or a few more.
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

// Next returns the version after seen, or the oldest later one that is kept; more is false if there is none. A session
// that was removed meanwhile starts again.
func (s *SessionTable) Next(
	ctx context.Context, caller, name string, seen int64,
) (st session.State, more bool, err error) {
	st, err = s.remembered(ctx, caller, name, func(current, mark int64) (int64, error) {
		more = current != seen
		switch {
		case !more:
			return mark, nil // there is nothing to return, and the mark needs no patches
		case current < seen: // it was removed and has begun again: from its first version, or its mark
			return max(min(current, 1), mark), nil
		}
		return max(seen+1, mark), nil
	})
	return st, more, err
}

// remembered restores the version that choose picks: no later than the current one, and not before the mark. The time
// of the mark is not kept.
func (s *SessionTable) remembered(
	ctx context.Context, caller, name string, choose func(current, mark int64) (int64, error),
) (session.State, error) {
	return database.Reading(ctx, s.db, func(r *database.Reader) (st session.State, err error) {
		k := sessionAt{r, database.Plain(caller, maxSession), database.Plain(name, maxSession)}
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
		at, err := database.Only(k, sql.ErrNoRows, database.Value[int64],
			`SELECT at FROM session_patch WHERE caller = ? AND name = ? AND version = ?`, k.caller, k.name, st.Version)
		if err != nil {
			return st, err
		}
		st.Changed = time.UnixMicro(at).UTC()
		st.State, err = k.merged(state, mark, st.Version)
		return st, err
	})
}
