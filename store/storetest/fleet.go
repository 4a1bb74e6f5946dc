package storetest

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"toolpost/engine/member"
	"toolpost/store"
	"toolpost/store/database"
	"toolpost/tool"
)

// ticket returns a ticket for workers with a token.
func ticket(token string, uses int) member.Ticket {
	labels := []string{"gpu", "ä,\"b"}
	return member.Ticket{Digest: database.Digest(token), Role: member.Worker, Labels: labels, Uses: uses}
}

// node returns a hub that is about to join.
func node(name string) member.Member {
	return member.Member{ID: "id of " + name, Name: name, Role: member.Hub, Key: "key of " + name, Address: "a:7422"}
}

// workerNode returns a worker that is about to join.
func workerNode(name string) member.Member {
	m := node(name)
	m.Role = member.Worker
	return m
}

func membersOf(t *testing.T, db *store.DB) []member.Member {
	t.Helper()
	return must[[]member.Member](t)(db.Fleet().Members(t.Context()))
}

// enrolled returns the error of a node that joins with a token.
func enrolled(t *testing.T, db *store.DB, token, name string) error {
	t.Helper()
	return errOf(db.Fleet().Enrol(t.Context(), database.Digest(token), workerNode(name)))
}

func fleetTickets(t *testing.T, k Kind) {
	address, mine := k.made(t)
	other, raw := k.open(t, address), k.Raw(t, address)
	works(t, mine.Fleet().AddTicket(t.Context(), ticket("two", 2), time.Hour))
	works(t, mine.Fleet().AddTicket(t.Context(), ticket("short", 2), time.Nanosecond))
	gives(t, errOf(other.Fleet().Enrol(t.Context(), database.Digest("two"), node("w1"))), tool.CodeInvalidInput, "a ticket for another role")
	want := workerNode("w1")
	want.Labels = []string{"gpu", "ä,\"b"}
	got := must[member.Member](t)(other.Fleet().Enrol(t.Context(), database.Digest("two"), workerNode("w1")))
	want.Joined, want.Keys = got.Joined, []member.Key{{Public: want.Key, Since: got.Joined}}
	equal(t, got, want, "it has the role and the labels of its ticket")
	holds(t, !got.Joined.IsZero() && time.Since(got.Joined).Abs() < time.Minute, "it joined at %v", got.Joined)
	equal(t, membersOf(t, mine), []member.Member{want})
	gives(t, enrolled(t, other, "two", "w1"), tool.CodeConflict, "a second node of a name")
	works(t, enrolled(t, other, "two", "w2"), "a node that did not join took no use")
	until(t, func() bool { return tool.CodeOf(enrolled(t, other, "short", "w3")) == tool.CodeAccessDenied })
	unknown := enrolled(t, other, "nosuch", "w1")
	for _, token := range []string{"two", "short"} { // and a name that is taken is no news for a stranger
		err := enrolled(t, mine, token, "w1")
		gives(t, err, tool.CodeAccessDenied, "%s", token)
		equal(t, err.Error(), unknown.Error(), "%s", token)
	}
	gives(t, errOf(mine.Fleet().Enrol(t.Context(), "a\x00\xff", workerNode("w3"))), tool.CodeAccessDenied, "not a digest")
	works(t, mine.Fleet().AddTicket(t.Context(), ticket("new", 1), time.Hour))
	equal(t, count(t, raw, `SELECT COUNT(*) FROM fleet_ticket`), 1, "tickets that are over are kept")
	equal(t, len(membersOf(t, other)), 2)
}

func fleetRaced(t *testing.T, k Kind) {
	_, dbs := k.three(t)
	works(t, dbs[0].Fleet().AddTicket(t.Context(), ticket("five", 5), time.Hour))
	var joined, denied atomic.Int64
	together(20, func(i int) {
		switch err := enrolled(t, dbs[i%3], "five", name("w%d", i)); {
		case err == nil:
			joined.Add(1)
		case tool.CodeOf(err) == tool.CodeAccessDenied:
			denied.Add(1)
		default:
			t.Error(err)
		}
	})
	holds(t, joined.Load() == 5 && denied.Load() == 15, "%d joined and %d were denied", joined.Load(), denied.Load())
	equal(t, len(membersOf(t, dbs[1])), 5)
	works(t, dbs[0].Fleet().AddTicket(t.Context(), ticket("more", 20), time.Hour))
	joined.Store(0)
	together(20, func(i int) {
		n := workerNode("same")
		n.ID = name("id%d", i)
		_, err := dbs[i%3].Fleet().Enrol(t.Context(), database.Digest("more"), n)
		joined.Add(int64(flag(err == nil)))
		holds(t, err == nil || tool.CodeOf(err) == tool.CodeConflict, "%v", err)
	})
	equal(t, joined.Load(), 1, "nodes of one name")
}

func fleetMembers(t *testing.T, k Kind) {
	ctx := t.Context()
	address, mine := k.made(t)
	otherDB, raw := k.open(t, address), k.Raw(t, address)
	f, other := mine.Fleet(), otherDB.Fleet()
	works(t, f.Found(ctx, node("a")))
	run(t, raw, `UPDATE fleet_node SET joined_at = joined_at + 3600000000`, `UPDATE fleet_key SET since_at = since_at + 3600000000`) // the clock was an hour off
	works(t, other.Found(ctx, node("B")))
	gives(t, f.Found(ctx, node("B")), tool.CodeConflict, "two nodes of a name")
	works(t, other.SetAddress(ctx, "id of a", "b:1"))
	gives(t, other.SetKey(ctx, "id of a", "key of B", "new"), tool.CodeConflict, "the old key is wrong")
	works(t, other.SetKey(ctx, "id of a", "key of a", "new"))
	gives(t, other.SetKey(ctx, "id of a", "key of a", "newer"), tool.CodeConflict, "the key was replaced")
	for _, id := range []string{"a", "", "\x00"} {
		gives(t, f.Evict(ctx, id), tool.CodeNotFound, "%q", id)
		gives(t, f.SetKey(ctx, id, "new", "k"), tool.CodeNotFound, "%q", id)
		gives(t, f.SetAddress(ctx, id, "b:1"), tool.CodeNotFound, "%q", id)
	}
	keys := membersOf(t, mine)[0].Keys
	holds(t, len(keys) == 2 && keys[0].Public == "key of a" && keys[1].Public == "new" && keys[1].Since.After(keys[0].Since),
		"a key is kept after it was replaced, in order, though a clock was set back: %+v", keys)
	works(t, f.Evict(ctx, "id of a"))
	was := membersOf(t, mine)
	works(t, other.Evict(ctx, "id of a"), "again")
	gives(t, f.SetKey(ctx, "id of a", "new", "k"), tool.CodeConflict, "it was evicted")
	gives(t, f.SetAddress(ctx, "id of a", "c:1"), tool.CodeConflict, "it was evicted")
	equal(t, membersOf(t, otherDB), was)
	again := node("a")
	again.ID = "another"
	works(t, f.Found(ctx, again), "the name is free again")
	got := membersOf(t, otherDB)
	needs(t, len(got) == 3, "%+v", got)
	holds(t, got[0].ID == "id of a" && got[0].Key == "new" && got[0].Address == "b:1" && !got[0].Evicted.IsZero() &&
		got[1].Name == "B" && got[2].ID == "another" && got[2].Evicted.IsZero(), "not in order: %+v", got)
}

func fleetRefused(t *testing.T, k Kind) {
	db := k.fresh(t)
	long := strings.Repeat("x", database.MaxName+1)
	for what, change := range map[string]func(*member.Ticket){
		"digest":  func(x *member.Ticket) { x.Digest = "ab" },
		"letters": func(x *member.Ticket) { x.Digest = strings.Repeat("x", 64) },
		"role":    func(x *member.Ticket) { x.Role = "boss" }, "uses": func(x *member.Ticket) { x.Uses = 0 },
		"many":  func(x *member.Ticket) { x.Labels = strings.Split(strings.Repeat("x,", 16)+"x", ",") },
		"empty": func(x *member.Ticket) { x.Labels = []string{""} },
		"long":  func(x *member.Ticket) { x.Labels = []string{strings.Repeat("x", 65)} },
	} {
		x := ticket("t", 1)
		change(&x)
		gives(t, db.Fleet().AddTicket(t.Context(), x, time.Hour), tool.CodeInvalidInput, "%s", what)
	}
	x := ticket("t", 100)
	gives(t, db.Fleet().AddTicket(t.Context(), x, 0), tool.CodeInvalidInput, "a ticket that is over")
	x.Labels = strings.Split(strings.Repeat(strings.Repeat("x", 64)+",", 15)+"x", ",")
	works(t, db.Fleet().AddTicket(t.Context(), x, time.Hour), "16 labels of 64 bytes")
	for what, change := range map[string]func(*member.Member){
		"name": func(m *member.Member) { m.Name = "" }, "long name": func(m *member.Member) { m.Name = long },
		"id": func(m *member.Member) { m.ID = "" }, "long id": func(m *member.Member) { m.ID = long },
		"key": func(m *member.Member) { m.Key = "" }, "long key": func(m *member.Member) { m.Key = long },
		"address": func(m *member.Member) { m.Address = "\xff" },
	} {
		m := node("a")
		change(&m)
		gives(t, db.Fleet().Found(t.Context(), m), tool.CodeInvalidInput, "%s", what)
		gives(t, errOf(db.Fleet().Enrol(t.Context(), x.Digest, m)), tool.CodeInvalidInput, "%s", what)
	}
	role := node("a")
	role.Role = ""
	gives(t, db.Fleet().Found(t.Context(), role), tool.CodeInvalidInput, "without a role")
	good := node("a")
	good.Name = long[1:]
	works(t, db.Fleet().Found(t.Context(), good), "the longest name")
	gives(t, db.Fleet().SetKey(t.Context(), good.ID, good.Key, ""), tool.CodeInvalidInput, "an empty key")
	gives(t, db.Fleet().SetAddress(t.Context(), good.ID, long), tool.CodeInvalidInput, "a long address")
	equal(t, len(membersOf(t, db)), 1)
}

func fleetShares(t *testing.T, k Kind) {
	mine, other := k.two(t)
	set := func(db *store.DB, source, name string, to map[string]int) {
		t.Helper()
		works(t, db.Fleet().SetShares(t.Context(), source, name, to))
	}
	shares := func(db *store.DB) []member.Share {
		t.Helper()
		return must[[]member.Share](t)(db.Fleet().Shares(t.Context()))
	}
	equal(t, len(shares(mine)), 0)
	set(mine, "std", "ä b.c", map[string]int{"d2": 10, "d1": 20})
	set(other, "std", "other", map[string]int{"d1": 100})
	want := []member.Share{{Source: "std", Tool: "other", Digest: "d1", Percent: 100}, {Source: "std", Tool: "ä b.c", Digest: "d1", Percent: 20},
		{Source: "std", Tool: "ä b.c", Digest: "d2", Percent: 10}}
	equal(t, shares(mine), want)
	equal(t, shares(other), want)
	set(other, "std", "ä b.c", map[string]int{"d2": 30})
	want[1].Digest, want[1].Percent = "d2", 30
	equal(t, shares(mine), want[:2], "the shares of a tool are replaced as a whole")
	set(mine, "std", "ä b.c", nil)
	equal(t, shares(other), want[:1])
	gives(t, mine.Fleet().SetShares(t.Context(), "std", "\x00", nil), tool.CodeInvalidInput, "a name that not every database takes")
	together(9, func(i int) {
		set([]*store.DB{mine, other}[i%2], "std", "raced", map[string]int{name("d%d", i): 1, "d": 1})
	})
	equal(t, len(shares(mine)), 3, "the shares of two changes are mixed")
}
