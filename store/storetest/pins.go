package storetest

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"toolpost/engine/pin"
	"toolpost/store"
	"toolpost/tool"
)

// pinOf returns the pin of a tool with that description.
func pinOf(t *testing.T, name, says string) pin.Pin {
	t.Helper()
	p := must[pin.Pin](t)(pin.Of("up", &tool.Spec{Name: name, Description: says}))
	p.Seen = time.UnixMicro(1_000_000)
	return p
}

func pins(t *testing.T, k Kind) {
	db, other := k.two(t)
	pinsOf(t, db.Pins(), other.Pins())
	memory := new(store.Pins)
	pinsOf(t, memory, memory)
}

func pinsOf(t *testing.T, mine, other pin.Pins) {
	ctx := t.Context()
	odd := "odd\x00\u202e\n" + strings.Repeat("long", 1000)
	first, hostile := pinOf(t, "echo", "says it again"), pinOf(t, odd, "x\x00\u200b")
	works(t, mine.Change(ctx, []pin.Change{{Pin: first}, {Pin: hostile}}))
	works(t, other.Change(ctx, []pin.Change{{Pin: pinOf(t, "echo", "another first sight")}}))
	havePins(t, other, first, hostile)
	seen := must[int64](t)(other.Revision(ctx))

	// An approval names the previous digest. With a wrong one nothing changes, nor do the other changes of the same
	// request.
	next := pinOf(t, "echo", "and sends it home")
	next.By, next.Approved, next.Seen = "ada", time.UnixMicro(2_000_000), first.Seen
	forget := pin.Change{Was: hostile.Digest, Pin: pin.Pin{Source: "up", Name: odd}}
	gives(t, other.Change(ctx, []pin.Change{forget, {Was: next.Digest, Pin: next}}), tool.CodeConflict)
	havePins(t, mine, first, hostile)
	equal(t, must[int64](t)(mine.Revision(ctx)), seen, "nothing has changed")
	works(t, other.Change(ctx, []pin.Change{{Was: first.Digest, Pin: next}}))
	havePins(t, mine, next, hostile)
	holds(t, must[int64](t)(mine.Revision(ctx)) != seen, "a change is not seen elsewhere")
	works(t, mine.Change(ctx, []pin.Change{forget}))
	havePins(t, other, next)
	holds(t, len(must[[]pin.Pin](t)(mine.Of(ctx, "down"))) == 0, "of another source")

	// If several decide at once, one succeeds.
	var won atomic.Int32
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			change := []pin.Change{{Was: next.Digest, Pin: pinOf(t, "echo", name("decision %d", i))}}
			if [2]pin.Pins{mine, other}[i%2].Change(context.Background(), change) == nil {
				won.Add(1)
			}
		})
	}
	wg.Wait()
	equal(t, won.Load(), int32(1), "decisions that were taken")
}

func havePins(t *testing.T, in pin.Pins, want ...pin.Pin) {
	t.Helper()
	got := must[[]pin.Pin](t)(in.Of(t.Context(), "up"))
	order := func(a, b pin.Pin) int { return strings.Compare(a.Name, b.Name) }
	slices.SortFunc(got, order)
	slices.SortFunc(want, order)
	needs(t, len(got) == len(want), "%d pins, want %d", len(got), len(want))
	for i, p := range got {
		w := want[i]
		holds(t, p.Name == w.Name && p.Digest == w.Digest && string(p.Face) == string(w.Face) && p.By == w.By &&
			p.Seen.Equal(w.Seen) && p.Approved.Equal(w.Approved), "%+v, want %+v", p, w)
	}
}
