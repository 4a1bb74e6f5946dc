package storetest

import (
	"database/sql"
	"testing"
	"time"

	"toolpost/engine/audit"
	"toolpost/engine/pin"
	"toolpost/identity"
	"toolpost/tool"
)

// Copies copies a store to another kind and back: all its content must come back. The store is one of an earlier
// version that has grown since, so that most tables have rows. listTables is the query for the names of tables, in the
// SQL of the first kind.
func Copies(t *testing.T, first, second Kind, listTables string) {
	ctx := t.Context()
	from := first.version5(t)
	db := first.open(t, from)
	until(t, func() bool { return len(must[[]*tool.Record](t)(db.Audit().Recover(ctx))) > 0 })
	works(t, db.Pins().Change(ctx, []pin.Change{{Pin: pinOf(t, "echo", "says it again")}}))
	must[string](t)(db.Tokens().Issue(ctx, identity.Token{Grant: identity.Grant{Caller: "ci"}}, 0))
	works(t, db.Fleet().Found(ctx, node("first")))
	works(t, db.Fleet().AddTicket(ctx, ticket("a", 1), time.Hour))
	add(t, db, full())
	between := second.fresh(t)
	to, back := first.made(t)
	works(t, db.CopyTo(ctx, between))
	works(t, between.CopyTo(ctx, back))

	head := sound(t, db).Head
	equal(t, sound(t, between, head).Head, head)
	equal(t, sound(t, back, head).Head, head)
	equal(t, logOf(t, back, audit.Filter{}), logOf(t, db, audit.Filter{}))
	equal(t, get(t, back.Sessions(), "s"), get(t, db.Sessions(), "s"))
	equal(t, membersOf(t, back), membersOf(t, db))
	was, is := first.Raw(t, from), first.Raw(t, to)
	filled := 0
	for _, table := range tablesOf(t, was, listTables) {
		n := count(t, was, `SELECT COUNT(*) FROM `+table)
		equal(t, count(t, is, `SELECT COUNT(*) FROM `+table), n, table)
		filled += min(n, 1)
	}
	holds(t, filled > 10, "only %d tables have rows, which proves little", filled)

	add(t, back, full()) // it continues
	works(t, enrolled(t, back, "a", "second"))
	sound(t, back, head)
	gives(t, between.CopyTo(ctx, back), tool.CodeConflict, "into a store that is in use")
	equal(t, sound(t, back).Rows, sound(t, db).Rows+1)
}

func tablesOf(t *testing.T, raw *sql.DB, list string) (names []string) {
	t.Helper()
	rows := must[*sql.Rows](t)(raw.QueryContext(t.Context(), list))
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var name string
		works(t, rows.Scan(&name))
		names = append(names, name)
	}
	works(t, rows.Err())
	return names
}
