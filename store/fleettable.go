package store

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/hex"
	"maps"
	"slices"
	"time"

	"toolpost/engine/member"
	"toolpost/store/auditlog"
	"toolpost/store/database"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// A FleetTable keeps the members of a fleet and the tickets to join it.
type FleetTable struct{ db *database.DB }

// Fleet returns the register of the fleet.
func (db *DB) Fleet() *FleetTable { return &FleetTable{db.DB} }

// The limits of labels: how many, and the bytes of one.
const (
	maxLabels = 16
	maxLabel  = 64
)

// change changes the register. Changes are rare, so they wait for each other: a node that joins sees all others.
func (f *FleetTable) change(do func(t *database.Tx, now int64) error) error {
	return f.db.Do(true, func(t *database.Tx) error {
		now, err := t.Now()
		if err != nil {
			return err
		}
		return do(t, now)
	}, "fleet")
}

// AddTicket implements member.Register. It removes tickets that have expired or are used up.
func (f *FleetTable) AddTicket(_ context.Context, x member.Ticket, ttl time.Duration) error {
	labels, err := checkRole(x.Role, x.Labels)
	switch _, digits := hex.DecodeString(x.Digest); {
	case err != nil:
		return err
	case digits != nil || len(x.Digest) != 64:
		return tool.Errorf(tool.CodeInvalidInput, "a join ticket needs the SHA-256 of its token, in 64 hexadecimal digits")
	case x.Uses < 1 || ttl <= 0:
		return tool.Errorf(tool.CodeInvalidInput, "a join ticket needs at least one use and a time to live, not %d uses for %v", x.Uses, ttl)
	}
	return f.change(func(t *database.Tx, now int64) error {
		if err := t.Exec(`DELETE FROM fleet_ticket WHERE expires_at <= ? OR uses < 1`, now); err != nil {
			return err
		}
		return t.Exec(`INSERT INTO fleet_ticket (digest, role, labels, uses, expires_at) VALUES (?, ?, ?, ?, ?)`,
			x.Digest, x.Role, labels, x.Uses, now+ttl.Microseconds())
	})
}

// checkRole refuses roles and labels that no node can have, and returns the labels as they are stored.
func checkRole(r member.Role, labels []string) (stored string, err error) {
	bad := func(label string) bool { return label == "" || database.Plain(label, maxLabel) != label }
	switch {
	case r != member.Hub && r != member.Worker:
		return "", tool.Errorf(tool.CodeInvalidInput, "unknown role %.64q of a node; use %s or %s", r, member.Hub, member.Worker)
	case len(labels) > maxLabels || slices.ContainsFunc(labels, bad):
		return "", tool.Errorf(tool.CodeInvalidInput, "a node has at most %d labels, each a text of 1 to %d bytes; "+
			"use fewer or shorter ones", maxLabels, maxLabel)
	}
	doc, err := strictjson.Marshal(append([]string{}, labels...))
	return string(doc), err
}

// checkNode refuses a node without a name, an id or a key, or one whose texts are too long.
func checkNode(m *member.Member) error {
	if m.Name == "" || m.ID == "" || m.Key == "" {
		return tool.Errorf(tool.CodeInvalidInput, "a node of a fleet needs a name, an id and a public key")
	}
	return cmp.Or(checkText("name", m.Name), checkText("id", m.ID), checkText("nkey", m.Key), checkText("address", m.Address))
}

func checkText(what, text string) error {
	if database.Plain(text, database.MaxName) == text {
		return nil
	}
	return tool.Errorf(tool.CodeInvalidInput, "the %s of a node is text of at most %d bytes; use a shorter one", what, database.MaxName)
}

// Enrol implements member.Register.
func (f *FleetTable) Enrol(_ context.Context, digest string, m member.Member) (member.Member, error) {
	if err := checkNode(&m); err != nil {
		return m, err
	}
	err := f.change(func(t *database.Tx, now int64) error {
		digest := database.Plain(digest, database.MaxName)
		n, err := t.Count(`UPDATE fleet_ticket SET uses = uses - 1 WHERE digest = ? AND uses > 0 AND expires_at > ?`, digest, now)
		if err == nil && n == 0 {
			err = tool.Errorf(tool.CodeAccessDenied, "no node can join with this token: there is no such token, or it has expired or is "+
				"used up; make another with `toolpost fleet token`")
		}
		if err != nil {
			return err
		}
		var labels string
		wants := m.Role
		if _, err := database.Row(t, `SELECT role, labels FROM fleet_ticket WHERE digest = ?`, []any{digest}, &m.Role, &labels); err != nil {
			return err
		}
		if wants != m.Role {
			return tool.Errorf(tool.CodeInvalidInput, "this token is for a %s, and this node is to be a %.20s; make another with "+
				"`toolpost fleet token --role %.20s`", m.Role, wants, wants)
		}
		m.Labels = nil
		if err := strictjson.Unmarshal([]byte(labels), &m.Labels); err != nil {
			return err
		}
		return join(t, now, &m, labels)
	})
	return m, err
}

// Found implements member.Register.
func (f *FleetTable) Found(_ context.Context, m member.Member) error {
	labels, err := checkRole(m.Role, m.Labels)
	if err == nil {
		err = checkNode(&m)
	}
	if err != nil {
		return err
	}
	return f.change(func(t *database.Tx, now int64) error { return join(t, now, &m, labels) })
}

// join adds a member, and notes when it joined: after all others, even if a clock was set back.
func join(t *database.Tx, now int64, m *member.Member, labels string) error {
	var last int64
	if _, err := database.Row(t, `SELECT COALESCE(MAX(joined_at), 0) FROM fleet_node`, nil, &last); err != nil {
		return err
	}
	m.Joined, m.Evicted = time.UnixMicro(max(now, last+1)).UTC(), time.Time{}
	n, err := t.Count(`INSERT INTO fleet_node (id, name, role, labels, nkey, address, joined_at) VALUES (?, ?, ?, ?, ?, ?, ?) `+
		`ON CONFLICT (name) WHERE evicted_at IS NULL DO NOTHING`, m.ID, m.Name, m.Role, labels, m.Key, m.Address, database.Micros(m.Joined))
	if err == nil && n == 0 {
		err = tool.Errorf(tool.CodeConflict, "the fleet has a node named %q; choose another name with --name, or end the membership of "+
			"that node with `toolpost fleet evict NAME` at a hub", m.Name).Because("name_taken")
	}
	if err != nil {
		return err
	}
	m.Keys = []member.Key{{Public: m.Key, Since: m.Joined}}
	return addKey(t, m.ID, m.Key, database.Micros(m.Joined))
}

// addKey notes that a member has a key from a time on: after those before it, even if a clock was set back. A key is never removed, so
// what was signed with it can be checked for ever.
func addKey(t *database.Tx, node, key string, since int64) error {
	var last int64
	if _, err := database.Row(t, `SELECT COALESCE(MAX(since_at), 0) FROM fleet_key WHERE node = ?`, []any{node}, &last); err != nil {
		return err
	}
	return t.Exec(`INSERT INTO fleet_key (node, nkey, since_at) VALUES (?, ?, ?)`, node, key, max(since, last+1))
}

// Members implements member.Register.
func (f *FleetTable) Members(ctx context.Context) ([]member.Member, error) {
	return auditlog.Members(f.db.Query(ctx))
}

// SetKey implements member.Register.
func (f *FleetTable) SetKey(_ context.Context, id, old, key string) error {
	if key == "" {
		return tool.Errorf(tool.CodeInvalidInput, "a node of a fleet needs a public key")
	}
	return f.set(id, "nkey", key, ` AND nkey = ?`, database.Plain(old, database.MaxName))
}

// SetAddress implements member.Register.
func (f *FleetTable) SetAddress(_ context.Context, id, address string) error {
	return f.set(id, "address", address, "")
}

// set sets a column of a member, if it is not evicted and a condition holds.
func (f *FleetTable) set(id, column, value, condition string, args ...any) error {
	if err := checkText(column, value); err != nil {
		return err
	}
	id = database.Plain(id, database.MaxName)
	return f.change(func(t *database.Tx, now int64) error {
		n, err := t.Count(`UPDATE fleet_node SET `+column+` = ? WHERE id = ? AND evicted_at IS NULL`+condition,
			append([]any{value, id}, args...)...)
		if err == nil && n == 0 {
			err = known(t, id, tool.Errorf(tool.CodeConflict, "the %s of node %q is unchanged: the node was evicted, or has another "+
				"key by now; if it was evicted, it can join again with a new token", column, id))
		}
		if err == nil && column == "nkey" {
			err = addKey(t, id, value, now)
		}
		return err
	})
}

// known returns an error of code not_found if there is no member with an id, and otherwise another one.
func known(t *database.Tx, id string, otherwise error) error {
	missing := tool.Errorf(tool.CodeNotFound, "the fleet has no node with the id %q; `toolpost fleet` shows its nodes", id)
	if _, err := database.Only(t, missing, database.Value[int], `SELECT 1 FROM fleet_node WHERE id = ?`, id); err != nil {
		return err
	}
	return otherwise
}

// Evict implements member.Register.
func (f *FleetTable) Evict(_ context.Context, id string) error {
	id = database.Plain(id, database.MaxName)
	return f.change(func(t *database.Tx, now int64) error {
		n, err := t.Count(`UPDATE fleet_node SET evicted_at = ? WHERE id = ? AND evicted_at IS NULL`, now, id)
		if err == nil && n == 0 {
			err = known(t, id, nil)
		}
		return err
	})
}

// SetShares implements member.Shares.
func (f *FleetTable) SetShares(_ context.Context, source, name string, to map[string]int) error {
	if err := cmp.Or(checkText("source", source), checkText("tool", name)); err != nil {
		return err
	}
	return f.change(func(t *database.Tx, _ int64) error {
		if err := t.Exec(`DELETE FROM fleet_share WHERE source = ? AND tool = ?`, source, name); err != nil {
			return err
		}
		for _, digest := range slices.Sorted(maps.Keys(to)) {
			err := t.Exec(`INSERT INTO fleet_share (source, tool, digest, percent) VALUES (?, ?, ?, ?)`, source, name, digest, to[digest])
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// Shares implements member.Shares.
func (f *FleetTable) Shares(ctx context.Context) ([]member.Share, error) {
	return database.List(f.db.Query(ctx), func(rows *sql.Rows) (s member.Share, err error) {
		return s, rows.Scan(&s.Source, &s.Tool, &s.Digest, &s.Percent)
	}, `SELECT source, tool, digest, percent FROM fleet_share ORDER BY source, tool, digest`)
}
