package store

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"sync"
	"time"

	"toolpost/engine/connection"
	"toolpost/store/database"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// A ConnectionTable keeps what callers have connected with providers, sealed.
type ConnectionTable struct{ db *database.DB }

// Connections returns the table of connections.
func (db *DB) Connections() *ConnectionTable { return &ConnectionTable{db.DB} }

const someConnections = `SELECT caller, name, version, sealed, scopes, expires_at, connected_at, used_at FROM connection`

func connectionKey(r connection.Row) string { return "connection " + r.Caller + "\x00" + r.Name }

// Find implements connection.Store.
func (k *ConnectionTable) Find(ctx context.Context, caller, name string) (connection.Row, error) {
	return findConnection(k.db.Query(ctx), caller, name)
}

func findConnection(q database.Querier, caller, name string) (connection.Row, error) {
	none := connection.Row{Caller: caller, Name: name}
	all, err := database.List(q, scanConnection, someConnections+` WHERE caller = ? AND name = ?`, caller, name)
	if len(all) == 0 || err != nil {
		return none, err
	}
	return all[0], nil
}

// Put implements connection.Store.
func (k *ConnectionTable) Put(_ context.Context, r connection.Row) (done bool, err error) {
	if r.Caller != database.Plain(r.Caller, database.MaxName) {
		return false, tool.Errorf(tool.CodeInvalidInput, "the name of a caller with connections is text of at most %d bytes", database.MaxName)
	}
	scopes, err := strictjson.Marshal(append([]string{}, r.Scopes...))
	if err != nil {
		return false, err
	}
	sealed := append([]byte{}, r.Sealed...)
	expires := sql.NullInt64{Int64: database.Micros(r.Expires), Valid: !r.Expires.IsZero()}
	err = k.db.Do(true, func(t *database.Tx) (err error) {
		var n int64
		if r.Version == 1 {
			n, err = t.Count(`INSERT INTO connection (caller, name, version, sealed, scopes, expires_at, connected_at, claimed_until) `+
				`VALUES (?, ?, 1, ?, ?, ?, ?, 0) ON CONFLICT (caller, name) DO NOTHING`,
				r.Caller, r.Name, sealed, string(scopes), expires, database.Micros(r.Connected))
		} else {
			n, err = t.Count(`UPDATE connection SET version = ?, sealed = ?, scopes = ?, expires_at = ?, connected_at = ?, claimed_until = 0 `+
				`WHERE caller = ? AND name = ? AND version = ?`,
				r.Version, sealed, string(scopes), expires, database.Micros(r.Connected), r.Caller, r.Name, r.Version-1)
		}
		done = n > 0
		return err
	}, connectionKey(r))
	return done && err == nil, err
}

// Claim implements connection.Store.
func (k *ConnectionTable) Claim(_ context.Context, r connection.Row, lasts time.Duration) (mine bool, err error) {
	err = k.db.Do(true, func(t *database.Tx) error {
		now, err := t.Now()
		if err != nil {
			return err
		}
		n, err := t.Count(`UPDATE connection SET claimed_until = ? WHERE caller = ? AND name = ? AND version = ? AND claimed_until <= ?`,
			now+lasts.Microseconds(), r.Caller, r.Name, r.Version, now)
		mine = n > 0
		return err
	}, connectionKey(r))
	return mine && err == nil, err
}

// Remove implements connection.Store.
func (k *ConnectionTable) Remove(_ context.Context, r connection.Row) (done bool, err error) {
	err = k.db.Do(true, func(t *database.Tx) error {
		n, err := t.Count(`DELETE FROM connection WHERE caller = ? AND name = ? AND version = ?`, r.Caller, r.Name, r.Version)
		done = n > 0
		return err
	}, connectionKey(r))
	return done && err == nil, err
}

// List implements connection.Store.
func (k *ConnectionTable) List(ctx context.Context, caller string) ([]connection.Row, error) {
	return database.List(k.db.Query(ctx), scanConnection, someConnections+` WHERE caller = ? ORDER BY name`, caller)
}

// All implements connection.Store.
func (k *ConnectionTable) All(ctx context.Context) ([]connection.Row, error) {
	return database.List(k.db.Query(ctx), scanConnection, someConnections+` ORDER BY caller, name`)
}

// Touch implements connection.Store.
func (k *ConnectionTable) Touch(_ context.Context, r connection.Row, at time.Time) error {
	return k.db.Do(false, func(t *database.Tx) error {
		return t.Exec(`UPDATE connection SET used_at = ? WHERE caller = ? AND name = ?`, database.Micros(at), r.Caller, r.Name)
	}, connectionKey(r))
}

func scanConnection(rows *sql.Rows) (r connection.Row, err error) {
	var scopes string
	err = rows.Scan(&r.Caller, &r.Name, &r.Version, &r.Sealed, &scopes, (*database.MicroTime)(&r.Expires),
		(*database.MicroTime)(&r.Connected), (*database.MicroTime)(&r.Used))
	if err != nil {
		return r, err
	}
	return r, strictjson.Unmarshal([]byte(scopes), &r.Scopes)
}

// Connections keeps connections in memory: they end with this program. The zero value is ready to use.
type Connections struct {
	mu   sync.Mutex
	rows map[string]*memoryConnection
}

type memoryConnection struct {
	connection.Row
	claimed time.Time
}

// maxConnections is how many connections are kept in memory.
const maxConnections = 10_000

// at returns the row of that version, or nil. The lock is held.
func (k *Connections) at(r connection.Row, version int64) *memoryConnection {
	if had := k.rows[connectionKey(r)]; had != nil && had.Version == version {
		return had
	}
	return nil
}

// Find implements connection.Store.
func (k *Connections) Find(_ context.Context, caller, name string) (connection.Row, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := connection.Row{Caller: caller, Name: name}
	if had := k.rows[connectionKey(r)]; had != nil {
		return had.Row, nil
	}
	return r, nil
}

// Put implements connection.Store.
func (k *Connections) Put(_ context.Context, r connection.Row) (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	had := k.rows[connectionKey(r)]
	switch {
	case (had == nil) != (r.Version == 1), had != nil && had.Version != r.Version-1:
		return false, nil
	case had == nil && len(k.rows) >= maxConnections:
		return false, tool.Errorf(tool.CodeQuotaExceeded, "there are %d connections already, the most that are kept without a store", maxConnections)
	case k.rows == nil:
		k.rows = map[string]*memoryConnection{}
	}
	if had != nil {
		r.Used = had.Used
	}
	k.rows[connectionKey(r)] = &memoryConnection{Row: r}
	return true, nil
}

// Claim implements connection.Store.
func (k *Connections) Claim(_ context.Context, r connection.Row, lasts time.Duration) (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	had, now := k.at(r, r.Version), time.Now()
	if had == nil || now.Before(had.claimed) {
		return false, nil
	}
	had.claimed = now.Add(lasts)
	return true, nil
}

// Remove implements connection.Store.
func (k *Connections) Remove(_ context.Context, r connection.Row) (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	had := k.at(r, r.Version)
	if had != nil {
		delete(k.rows, connectionKey(r))
	}
	return had != nil, nil
}

// List implements connection.Store.
func (k *Connections) List(ctx context.Context, caller string) ([]connection.Row, error) {
	all, err := k.All(ctx)
	return slices.DeleteFunc(all, func(r connection.Row) bool { return r.Caller != caller }), err
}

// All implements connection.Store.
func (k *Connections) All(context.Context) (all []connection.Row, _ error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(k.rows)) {
		all = append(all, k.rows[key].Row)
	}
	return all, nil
}

// Touch implements connection.Store.
func (k *Connections) Touch(_ context.Context, r connection.Row, at time.Time) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if had := k.rows[connectionKey(r)]; had != nil {
		had.Used = at
	}
	return nil
}
