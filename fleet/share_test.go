package fleet

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"toolpost/engine"
	"toolpost/internal/kit"
	"toolpost/tool"
)

// versioned is a machine with a tool of the first version, which reads, or of the second one, which writes. It says which node ran it.
func versioned(name string, version int) *blocking {
	b := block(name, tool.Effects{Reads: version == 1, Writes: version == 2})
	b.specs[0].Description, b.specs[0].Tier = fmt.Sprint("Version ", version), version-1
	b.Handler = tool.HandlerFunc(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
		return &tool.Result{OK: true, Output: []byte(`"` + name + `"`)}, nil
	})
	return b
}

// published is an engine that publishes what the nodes of a hub offer.
func published(t *testing.T, n *Node) *engine.Engine {
	t.Helper()
	e := engine.New(engine.Options{})
	t.Cleanup(func() { kit.OK(t, e.Close(context.Background())) })
	e.Replace(t.Context(), []engine.Binding{{Name: "std", Protocol: "go", Runner: n.Sources()[0], Remote: true}})
	return e
}

// ran returns which node ran a call.
func ran(t *testing.T, e *engine.Engine, c tool.Call) string {
	t.Helper()
	c.Tool, c.Args = "wait", []byte(`{}`)
	r, err := e.Invoke(t.Context(), &c, tool.Discard)
	if err != nil {
		t.Error(err)
		return ""
	}
	return strings.Trim(string(r.Output), `"`)
}

// times counts the nodes that run so many calls.
func times(t *testing.T, e *engine.Engine, calls int) map[string]int {
	t.Helper()
	by := map[string]int{}
	for range calls {
		by[ran(t, e, tool.Call{})]++
	}
	return by
}

// shares waits until a hub publishes the tool with so many further definitions.
func shares(t *testing.T, e *engine.Engine, further int) *tool.Spec {
	t.Helper()
	var spec *tool.Spec
	kit.Eventually(t, fmt.Sprint(further, " further definitions are published"), func() bool {
		var err error
		spec, err = e.Spec("wait")
		return err == nil && len(spec.Versions) == further
	})
	return spec
}

// Of 400 calls with a share of 25 %, fewer than 50 or more than 155 are rarer than one in 10^9.
const fewest, mostOfThem = 50, 155

func TestTwoVersionsSideBySide(t *testing.T) {
	f := open(t)
	f.work("one", versioned("one", 1))
	two := f.work("two", versioned("two", 2))
	other, r := f.second()
	kit.Eventually(t, "the other hub knows both", func() bool {
		all := other.Sources()
		return len(all) == 1 && len(all[0].tool("wait").versions) == 2
	})
	e, second := published(t, f.hub), published(t, other)
	kit.Equal(t, times(t, e, 50)["one"], 50, "the one that counts")
	spec := shares(t, e, 0)
	all := kit.Must(f.hub.Versions(t.Context(), spec))(t)
	fresh := all[0]
	if all[0].Counts {
		fresh = all[1]
	}
	kit.Equal(t, fmt.Sprint(len(all), fresh.Nodes, fresh.Effects, fresh.Tier, fresh.Percent), "2 [two] [writes] 1 0")

	kit.OK(t, f.hub.Share(t.Context(), spec, []string{fresh.Digest[:6] + "=25%"}))
	shares(t, e, 1)
	shares(t, second, 1)
	for _, hub := range []*engine.Engine{e, second} {
		by := times(t, hub, 400)
		kit.Equal(t, by["two"] >= fewest && by["two"] <= mostOfThem && by["one"]+by["two"] == 400, true, by)
	}
	for _, s := range kit.Must(f.hub.Nodes(t.Context()))(t) {
		kit.Equal(t, len(s.Drift), 0, s.Name)
	}
	on := map[string]int{}
	for i := range 60 {
		for _, c := range []tool.Call{{Session: fmt.Sprint(i)}, {Key: fmt.Sprint(i)}} {
			node := ran(t, e, c)
			on[node]++
			kit.Equal(t, ran(t, second, c), node, "sessions and keys have the same version at all hubs")
		}
	}
	kit.Equal(t, len(on), 2)
	lost := f.hub.hub.specOf(&tool.Record{Source: "std", Tool: "wait", Definition: fresh.Digest})
	kit.Equal(t, lost.Digest+" "+lost.Description, fresh.Digest+" Version 2", "what became of a call is asked for its definition")

	// The version leaves, while calls run, and comes back.
	ctx, stop := context.WithCancel(t.Context())
	var calling sync.WaitGroup
	for range 4 {
		calling.Go(func() {
			for ctx.Err() == nil {
				ran(t, e, tool.Call{})
			}
		})
	}
	two.Drain(t.Context())
	shares(t, e, 0)
	two.Close(t.Context())
	stop()
	calling.Wait()
	kit.Equal(t, times(t, e, 50)["one"], 50, "no node has the version")
	kit.Eventually(t, "its node is gone", func() bool {
		return len(kit.Must(f.hub.Versions(t.Context(), spec))(t)[0].Nodes)+
			len(kit.Must(f.hub.Versions(t.Context(), spec))(t)[1].Nodes) == 1
	})
	f.work("three", versioned("three", 2))
	shares(t, e, 1)

	// A hub that is cut off from the store keeps the shares that it knows.
	shares(t, second, 1)
	r.away.Store(true)
	kit.OK(t, f.hub.Share(t.Context(), spec, nil))
	shares(t, e, 0)
	kit.Equal(t, times(t, e, 50)["one"], 50, "the share has ended")
	kit.Fails(t, other.roster.Refresh(t.Context()), "the database is away")
	kit.Equal(t, len(kit.Must(second.Spec("wait"))(t).Versions), 1)
	r.away.Store(false)
	shares(t, second, 0)
}

// A version whose nodes leave takes no session from another one: its own go to the version that counts.
func TestSessionsOfOtherVersionsStay(t *testing.T) {
	f := open(t)
	nodes := map[string]*Node{}
	for name, v := range map[string]int{"one": 1, "too": 1, "two": 2, "three": 3} {
		nodes[name] = f.work(name, versioned(name, v))
	}
	e := published(t, f.hub)
	spec := shares(t, e, 0)
	kit.Equal(t, len(kit.Must(f.hub.Versions(t.Context(), spec))(t)), 3)
	to, first, second := []string{}, "", ""
	for _, v := range kit.Must(f.hub.Versions(t.Context(), spec))(t) {
		if v.Counts {
			continue
		}
		to = append(to, v.Digest+"=40%")
		if first == "" { // in the order of the digests, as hubs take them
			first = v.Nodes[0]
			continue
		}
		second = v.Nodes[0]
	}
	kit.OK(t, f.hub.Share(t.Context(), spec, to))
	shares(t, e, 2)
	before := map[string]string{}
	for i := range 100 {
		before[fmt.Sprint(i)] = ran(t, e, tool.Call{Session: fmt.Sprint(i)})
	}
	nodes[first].Close(t.Context())
	shares(t, e, 1)
	for session, node := range before {
		now := ran(t, e, tool.Call{Session: session})
		kit.Equal(t, now == second, node == second, "the session", session, "was at", node, "and is at", now)
	}
}

// A version may get shares only if it can be told apart, and if no third party can change it.
func TestBadSharesAreRefused(t *testing.T) {
	f := open(t)
	f.work("one", versioned("one", 1))
	f.work("once", versioned("once", 1)) // so that this definition counts
	f.work("two", versioned("two", 2))
	f.work("wild", foreign{versioned("wild", 3)})
	e := published(t, f.hub)
	spec := shares(t, e, 0)
	digests, counts := map[string]string{}, ""
	for _, v := range kit.Must(f.hub.Versions(t.Context(), spec))(t) {
		digests[v.Nodes[len(v.Nodes)-1]] = v.Digest
		if v.Counts {
			counts = v.Digest
		}
	}
	for _, c := range []struct {
		shares []string
		says   string
	}{
		{[]string{"10%"}, `"10%" is no share; write DIGEST=N%`}, {[]string{digests["two"]}, "is no share"},
		{[]string{digests["two"] + "=10"}, "is no share"}, {[]string{digests["two"] + "=0%"}, "is no share"},
		{[]string{digests["two"] + "=101%"}, "is no share"}, {[]string{digests["two"] + "=-1%"}, "is no share"},
		{[]string{digests["two"] + "=60%", digests["one"] + "=50%"}, "the shares of std.wait are 110 % together"},
		{[]string{"ffffff=10%"}, `"ffffff" does not name one definition of std.wait`}, {[]string{digests["two"][:5] + "=10%"}, digests["two"]},
		{[]string{digests["wild"] + "=10%"}, "a third party describes std.wait"}, {[]string{counts + "=10%"}, "is the definition of std.wait that counts"},
	} {
		kit.Contains(t, kit.Err(0, f.hub.Share(t.Context(), spec, c.shares)).Error(), c.says, c.shares)
	}
	kit.Equal(t, len(kit.Must(f.store.Fleet().Shares(t.Context()))(t)), 0, "a bad share changes none")
	kit.Refused(t, f.hub.Share(t.Context(), &tool.Spec{Source: "std", Name: "none"}, nil), tool.CodeNotFound, "no other node has the tool std.none")

	kit.OK(t, f.store.Fleet().SetShares(t.Context(), "std", "wait", map[string]int{digests["wild"]: 50, digests["two"]: 50}))
	kit.OK(t, f.hub.roster.Refresh(t.Context()))
	kit.Equal(t, shares(t, e, 1).Versions[0].Spec.Digest, digests["two"], "what a third party describes is not called, whatever the store says")
}

// foreign is a machine whose tools a third party describes.
type foreign struct{ *blocking }

func (m foreign) Offers(ctx context.Context) []Offer {
	all := m.blocking.Offers(ctx)
	for i := range all {
		all[i].Upstream = true
	}
	return all
}

// Digits with which two definitions begin name neither.
func TestAnAmbiguousDigestIsRefused(t *testing.T) {
	a := &version{offered: &offered{}, have: []*peer{{}}}
	s := &shared{version: a, versions: map[string]*version{"abcdef1": a, "abcdef2": a, "abcdef34": a}}
	spec := &tool.Spec{Source: "std", Name: "wait"}
	kit.Refused(t, kit.Err(s.begins(spec, "abcdef")), tool.CodeNotFound, `"abcdef" does not name one definition of std.wait`)
	kit.Equal(t, kit.Must(s.begins(spec, "abcdef3"))(t), "abcdef34")
}
