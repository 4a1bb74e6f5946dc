package storetest

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"toolpost/engine/connection"
	"toolpost/store"
)

func connections(t *testing.T, k Kind) {
	db, other := k.two(t)
	connectionsOf(t, db.Connections(), other.Connections())
	memory := new(store.Connections)
	connectionsOf(t, memory, memory)
}

func connectionsOf(t *testing.T, mine, other connection.Store) {
	ctx := t.Context()
	find := func(in connection.Store) connection.Row { return must[connection.Row](t)(in.Find(ctx, "ada", "github")) }
	equal(t, find(mine).Version, int64(0))
	r := connection.Row{
		Caller: "ada", Name: "github", Version: 1, Sealed: []byte{0, 1, 255}, Scopes: []string{"repo"},
		Expires: time.UnixMicro(5_000_000).UTC(), Connected: time.UnixMicro(2_000_000).UTC(),
	}
	put := func(in connection.Store, r connection.Row) bool { return must[bool](t)(in.Put(ctx, r)) }
	holds(t, put(mine, r), "the first")
	holds(t, !put(other, r), "a second first one")
	works(t, mine.Touch(ctx, r, time.UnixMicro(7_000_000)))
	got := find(other)
	holds(t, string(got.Sealed) == string(r.Sealed) && got.Scopes[0] == "repo" && got.Expires.Equal(r.Expires) &&
		got.Connected.Equal(r.Connected) && got.Used.Equal(time.UnixMicro(7_000_000)), "%+v", got)

	// Of several that want to renew a row, one does, until its claim ends or the row has another version.
	var won atomic.Int32
	together(8, func(i int) {
		if ok, err := []connection.Store{mine, other}[i%2].Claim(context.Background(), r, 300*time.Millisecond); ok && err == nil {
			won.Add(1)
		}
	})
	equal(t, won.Load(), int32(1), "claims")
	until(t, func() bool { return must[bool](t)(other.Claim(ctx, r, time.Hour)) })
	holds(t, !must[bool](t)(mine.Claim(ctx, r, time.Hour)), "a claim that is held")
	next := r
	next.Version, next.Sealed = 2, nil
	holds(t, put(mine, next), "the next version")
	holds(t, !put(other, next), "a version that there is")
	holds(t, !must[bool](t)(other.Claim(ctx, r, time.Hour)), "of an earlier version")
	holds(t, must[bool](t)(other.Claim(ctx, next, time.Hour)), "a version that no program renews")
	equal(t, len(find(other).Sealed), 0)

	equal(t, len(must[[]connection.Row](t)(other.List(ctx, "bob"))), 0)
	equal(t, len(must[[]connection.Row](t)(other.List(ctx, "ada"))), 1)
	equal(t, len(must[[]connection.Row](t)(other.List(ctx, ""))), 1)
	holds(t, !must[bool](t)(mine.Remove(ctx, r)), "of an earlier version")
	holds(t, must[bool](t)(mine.Remove(ctx, next)), "of this version")
	equal(t, find(other).Version, int64(0))
}
