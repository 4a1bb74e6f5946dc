// Package connectiontest tests stores of connections.
package connectiontest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"toolpost/engine/connection"
	"toolpost/internal/kit"
)

func holds(t *testing.T, is bool, what string, about ...any) {
	t.Helper()
	if !is {
		t.Fatalf("not so: "+what, about...)
	}
}

// Run tests two stores with the same rows, as two programs have.
func Run(t *testing.T, mine, other connection.Store) {
	t.Helper()
	ctx := t.Context()
	find := func(in connection.Store) connection.Row { return kit.Must(in.Find(ctx, "ada", "github"))(t) }
	kit.Equal(t, find(mine).Version, int64(0))
	r := connection.Row{
		Caller: "ada", Name: "github", Version: 1, Sealed: []byte{0, 1, 255}, Scopes: []string{"repo"},
		Expires: time.UnixMicro(5_000_000).UTC(), Connected: time.UnixMicro(2_000_000).UTC(),
	}
	put := func(in connection.Store, r connection.Row) bool { return kit.Must(in.Put(ctx, r))(t) }
	holds(t, put(mine, r), "the first")
	holds(t, !put(other, r), "a second first one")
	kit.OK(t, mine.Touch(ctx, r, time.UnixMicro(7_000_000)))
	got := find(other)
	holds(t, string(got.Sealed) == string(r.Sealed) && got.Scopes[0] == "repo" && got.Expires.Equal(r.Expires) &&
		got.Connected.Equal(r.Connected) && got.Used.Equal(time.UnixMicro(7_000_000)), "%+v", got)

	// Of several that want to renew a row, one does, until its claim ends or the row has another version.
	var won atomic.Int32
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			if ok, err := []connection.Store{mine, other}[i%2].Claim(context.Background(), r, 300*time.Millisecond); ok && err == nil {
				won.Add(1)
			}
		})
	}
	all.Wait()
	kit.Equal(t, won.Load(), int32(1), "claims")
	kit.Eventually(t, "the claim ends", func() bool { return kit.Must(other.Claim(ctx, r, time.Hour))(t) })
	holds(t, !kit.Must(mine.Claim(ctx, r, time.Hour))(t), "a claim that is held")
	next := r
	next.Version, next.Sealed = 2, nil
	holds(t, put(mine, next), "the next version")
	holds(t, !put(other, next), "a version that there is")
	holds(t, !kit.Must(other.Claim(ctx, r, time.Hour))(t), "of an earlier version")
	holds(t, kit.Must(other.Claim(ctx, next, time.Hour))(t), "a version that no program renews")
	kit.Equal(t, len(find(other).Sealed), 0)

	kit.Equal(t, len(kit.Must(other.List(ctx, "bob"))(t)), 0)
	kit.Equal(t, len(kit.Must(other.List(ctx, "ada"))(t)), 1)
	kit.Equal(t, len(kit.Must(other.List(ctx, ""))(t)), 0, "those of the caller without a name")
	kit.Equal(t, len(kit.Must(other.All(ctx))(t)), 1)
	holds(t, !kit.Must(mine.Remove(ctx, r))(t), "of an earlier version")
	holds(t, kit.Must(mine.Remove(ctx, next))(t), "of this version")
	kit.Equal(t, find(other).Version, int64(0))
}
