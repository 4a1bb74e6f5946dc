package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"toolpost/engine/breaker"
	"toolpost/engine/member"
	"toolpost/fleet/bound"
	"toolpost/fleet/invite"
	"toolpost/internal/kit"
	"toolpost/internal/rounds"
	"toolpost/tool"
	"toolpost/wire/packed"
	"toolpost/wire/strictjson"
)

// workWith lets a worker join that is made with other options.
func (f *fleetTest) workWith(name string, m Machine, with func(*Env)) *Node {
	f.t.Helper()
	f.with = with
	defer func() { f.with = nil }()
	return f.work(name, m)
}

// A full node costs a call no attempt: it runs if any node has a place.
func TestACallFindsTheFreePlace(t *testing.T) {
	f := open(t)
	few := func(e *Env) { e.Places = 1 }
	results := make(chan string, 99)
	run := func() {
		r, err := f.call(t.Context(), "wait", `{}`)
		if err != nil {
			results <- err.Error()
			return
		}
		results <- string(r.Output)
	}
	const full = 6
	var nodes []*blocking
	for i := range full {
		nodes = append(nodes, block(fmt.Sprint("full", i), tool.Effects{Writes: true}))
		f.workWith(nodes[i].name, nodes[i], few)
		go run()
		kit.Receive(t, "its call", nodes[i].began)
	}
	f.hub.hub.mu.Lock() // the hub does not know yet that they are full, as if other hubs sent their calls
	for _, p := range f.hub.hub.peers {
		p.inflight, p.Running = -99, 0
	}
	f.hub.hub.mu.Unlock()
	kit.Refused(t, kit.Err(f.call(t.Context(), "wait", `{}`)), tool.CodeUnavailable, "the node has 1 calls already")
	free := block("free", tool.Effects{Writes: true})
	close(free.leave)
	f.workWith("free", free, few)
	f.hub.hub.mu.Lock()
	f.hub.hub.peers[f.hub.hub.idOf("free")].inflight = 1 // it seems full, and is not
	f.hub.hub.mu.Unlock()
	for range 9 {
		run()
		kit.Equal(t, <-results, `"free"`)
	}
	for _, n := range nodes {
		close(n.leave)
		kit.Equal(t, strings.HasPrefix(kit.Receive(t, "a result", results), `"full`), true)
	}
}

func (h *hub) idOf(name string) string {
	for id, p := range h.peers {
		if p.Name == name {
			return id
		}
	}
	return ""
}

// Of nodes with places, the choice leaves out those without.
func TestFullNodesAreTheLastChoice(t *testing.T) {
	all := []*peer{
		{announcement: announcement{ID: "free", Places: 2, Running: 1}, mark: markOf("free")},
		{announcement: announcement{ID: "full", Places: 1}, mark: markOf("full"), inflight: 1},
	}
	var many []*peer
	for i := range 100 {
		many = append(many, &peer{announcement: announcement{ID: fmt.Sprint(i), Places: 1}})
	}
	anyone := func(*peer) bool { return true }
	for range 20 {
		kit.Equal(t, kit.Must(pick(all, &tool.Call{}, anyone))(t).ID, "free")
		kit.Equal(t, kit.Must(pick(all[1:], &tool.Call{}, anyone))(t).ID, "full")
		kit.Equal(t, kit.Must(pick(all, &tool.Call{}, func(p *peer) bool { return p.ID == "full" }))(t).ID, "full", "the others cannot")
		kit.Equal(t, kit.Must(pick(all, &tool.Call{}, func(*peer) bool { return false }))(t) == nil, true, "nobody can")
	}
	for range 200 { // those that fit are few, and found
		fits := fmt.Sprint(rand.IntN(len(many)))
		kit.Equal(t, kit.Must(pick(many, &tool.Call{}, func(p *peer) bool { return p.ID == fits }))(t).ID, fits)
	}
	used := map[string]bool{}
	for i := range 20 {
		c := &tool.Call{Session: fmt.Sprint(i)}
		node := kit.Must(pick(all, c, anyone))(t).ID
		kit.Equal(t, kit.Must(pick(all, c, anyone))(t).ID, node, "a session stays where it is")
		used[node] = true
	}
	kit.Equal(t, len(used), 2, "sessions are on all nodes")
}

func TestRoutesChooseNodesByTheirLabels(t *testing.T) {
	f := open(t)
	f.hub.hub.routes = []Route{{Tools: tool.Patterns{"std.wa*"}, Labels: []string{"gpu"}}, {Labels: []string{"lab"}, Tools: tool.Patterns{"w*"}}}
	m := func(name string) *blocking {
		b := block(name, tool.Effects{Writes: true})
		b.specs = append(b.specs, &tool.Spec{Name: "other"})
		close(b.leave)
		return b
	}
	ran := func(name string) string {
		r, err := f.call(t.Context(), name, `{}`)
		if err != nil {
			return err.Error()
		}
		return string(r.Output)
	}
	f.workWith("plain", m("plain"), nil)
	f.workWith("gpu", m("gpu"), func(e *Env) { e.Labels = []string{"gpu", "big"} })
	kit.Contains(t, ran("wait"), "no node that has it has the labels gpu, lab, which fleet.routes wants")
	kit.Refused(t, f.source().Unavailable("wait"), tool.CodeUnavailable, "the labels gpu, lab")
	kit.OK(t, f.source().Unavailable("other"))
	line := kit.Must(f.hub.Token(t.Context(), member.Ticket{Role: member.Worker, Uses: 1, Labels: []string{"lab"}}, time.Hour))(t)
	p := kit.Must(Join(t.Context(), kit.Must(invite.Parse(line))(t), "both", member.Worker))(t)
	f.with = func(e *Env) { e.Labels = []string{"gpu"} }
	f.start(p, t.TempDir(), m("both"))
	kit.Eventually(t, "the hub knows the third", func() bool { return f.has("both") })
	others := map[string]bool{}
	for range 50 {
		kit.Equal(t, ran("wait"), `"both"`, "the labels of its ticket and of its config count")
		others[ran("other")] = true
	}
	kit.Equal(t, len(others), 3, "a tool without a route runs anywhere")
	for _, s := range kit.Must(f.hub.Nodes(t.Context()))(t) {
		if s.Name == "both" {
			kit.EqualSlices(t, s.Labels, []string{"gpu", "lab"})
		}
	}
}

// offering is a machine with one tool, which says why it cannot be called.
type offering struct {
	*blocking
	why error
}

func (o offering) Offers(ctx context.Context) (all []Offer) {
	for _, offer := range o.blocking.Offers(ctx) {
		offer.Why = o.why
		all = append(all, offer)
	}
	return all
}

// A worker whose source does not open is a member as any other: its tools are unavailable, with the reason, and run elsewhere.
func TestAToolThatANodeCannotRunRunsElsewhere(t *testing.T) {
	f := open(t)
	why := tool.Errorf(tool.CodeUnavailable, "the program gpu-tool is missing")
	for _, name := range []string{"one", "two"} {
		f.work(name, offering{block(name, tool.Effects{Writes: true}), why})
	}
	kit.Refused(t, f.source().Unavailable("wait"), tool.CodeUnavailable, "gpu-tool is missing")
	kit.Refused(t, kit.Err(f.call(t.Context(), "wait", `{}`)), tool.CodeUnavailable, "gpu-tool is missing")
	good := block("good", tool.Effects{Writes: true})
	close(good.leave)
	f.work("good", good)
	kit.OK(t, f.source().Unavailable("wait"))
	for range 20 {
		kit.Equal(t, string(kit.Must(f.call(t.Context(), "wait", `{}`))(t).Output), `"good"`)
	}
}

// A call that the breaker of its node refuses has not begun there, so it runs elsewhere, and has one journal.
func TestACallThatABreakerRefusesRunsElsewhere(t *testing.T) {
	f := open(t)
	f.journal()
	one := block("one", tool.Effects{Writes: true})
	one.Handler = breaker.Options{Failures: 1}.For(one.specs[0])(tool.HandlerFunc(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
		return nil, tool.Errorf(tool.CodeCrash, "it broke")
	}))
	n := f.work("one", one)
	kit.Refused(t, kit.Err(f.call(t.Context(), "wait", `{}`)), tool.CodeCrash, "it broke")
	_, _, err := f.writing("c1", `{}`)
	kit.Refused(t, err, tool.CodeBreakerOpen, "")
	kit.Equal(t, kit.Must(n.host.past(t.Context(), n.pass.ID, "c1"))(t).State, callUnknown)
	two := block("two", tool.Effects{Writes: true})
	close(two.leave)
	f.work("two", two)
	for range 20 {
		kit.Equal(t, string(kit.Must(f.call(t.Context(), "wait", `{}`))(t).Output), `"two"`)
	}
}

// A tool may itself say that a breaker is open, after it has done something.
func TestACallWhoseToolSpeaksOfABreakerIsNotRepeated(t *testing.T) {
	f := open(t)
	one, two := block("one", tool.Effects{Writes: true}), block("two", tool.Effects{Writes: true})
	one.Handler = tool.HandlerFunc(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
		one.began <- "one"
		return nil, tool.Errorf(tool.CodeBreakerOpen, "that of another service")
	})
	close(two.leave)
	f.work("one", one)
	f.work("two", two)
	const calls = 40
	for range calls {
		_, _ = f.call(t.Context(), "wait", `{}`)
	}
	kit.Equal(t, len(one.began)+len(two.began), calls)
}

// A node that lies about its tools has none, and the others keep theirs.
func TestAListThatBreaksTheRulesIsRefused(t *testing.T) {
	f := open(t)
	f.work("honest", reference(t))
	liar := f.work("liar", reference(t))
	offer := func(head string, raw ...[]byte) []byte {
		return kit.Must(packed.Write(json.RawMessage(head), raw...))(t)
	}
	spec := func(source, name string) []byte {
		return offer(fmt.Sprintf(`{"spec":{"source":%q,"name":%q}}`, source, name))
	}
	listed := func(raw ...[]byte) []byte { return kit.Must(packed.Write(&listHead{}, raw...))(t) }
	many := slices.Repeat([][]byte{spec("std", "x")}, mostTools+1)
	for what, c := range map[string]struct {
		list []byte
		says string
	}{
		"the source toolpost":   {listed(spec(tool.OwnSource, "x")), "which no config can have"},
		"a source with a dot":   {listed(spec("a.b", "x")), "which no config can have"},
		"no source":             {listed(spec("", "x")), "which no config can have"},
		"no name":               {listed(spec("std", "")), "has no name"},
		"a long name":           {listed(spec("std", strings.Repeat("x", maxName+1))), "has no name"},
		"a name with a zero":    {listed(offer(`{"spec":{"source":"std","name":"a\u0000b"}}`)), "has no name"},
		"a name twice":          {listed([]byte("\x1d" + `{"spec":{},"spec":{"name":1}}`)), "spec"},
		"invalid UTF-8":         {listed([]byte("\x15{\"spec\":{\"name\":\"\xff\"}}")), "UTF-8"},
		"a schema of half JSON": {listed(offer(`{"spec":{"source":"std","name":"x"}}`, []byte(`{"a":`))), "is not JSON"},
		"a deep schema":         {listed(offer(`{"spec":{"source":"std","name":"x"}}`, bytes.Repeat([]byte("["), 1<<16))), "is not JSON"},
		"too many tools":        {listed(many...), "it has 20001 tools, and may have 20000"},
		"too many bytes":        {listed(make([]byte, mostList)), "and may have 16777216"},
		"half a list":           {listed(spec("std", "x"))[:20], "ends too early"},
		"nothing":               {nil, "ends too early"},
	} {
		liar.host.list.Store(&list{packed: c.list, digest: digestBytes(c.list)})
		signal(liar.nudge)
		kit.Eventually(t, what, func() bool { return f.peer("liar").listed == digestBytes(c.list) })
		p := f.peer("liar")
		kit.Contains(t, p.refused, c.says, what)
		kit.Equal(t, len(p.tools), 0, what)
		i := slices.IndexFunc(kit.Must(f.hub.Nodes(t.Context()))(t), func(s Status) bool { return s.State == stateRefused })
		kit.Equal(t, i >= 0, true, what, "`toolpost fleet` does not show it")
		kit.OK(t, kit.Err(f.call(t.Context(), "echo", `{"text":"x"}`)), what)
	}
	kit.OK(t, liar.listTools(t.Context()))
	signal(liar.nudge)
	kit.Eventually(t, "an honest list is taken", func() bool { return f.peer("liar").refused == "" })
	names := listed(offer(`{"spec":{"source":"std","name":"x","aliases":["echo","readFile"],"own":"echo","slug":"echo"}}`))
	s := kit.Must(decodeList(names))(t)[0].Spec
	kit.Equal(t, s.Aliases == nil && s.Own == "" && s.Slug == "", true, "a node chooses names")
}

// What a node says of itself is taken for its own, and no more than it may say.
func TestANodeSpeaksForItselfAlone(t *testing.T) {
	f := open(t)
	other := f.work("other", reference(t))
	p := f.join("attacker", member.Worker)
	kit.OK(t, f.hub.roster.Refresh(t.Context()))
	say := func(a announcement) {
		f.hub.hub.announced(&nats.Msg{Subject: subjectUp + p.ID, Data: kit.Must(strictjson.Marshal(a))(t)})
	}
	say(announcement{ID: other.pass.ID, Run: "x"})
	kit.Equal(t, f.peer("other").Run, other.host.run)
	say(announcement{ID: p.ID, Run: "long", Labels: []string{strings.Repeat("x", maxAnnouncement)}})
	kit.Equal(t, f.hub.hub.knows(p.ID), false, "a long announcement")
	say(announcement{ID: p.ID, Run: "y", Name: "other", Role: "hub", Link: linkVersion - 2, Running: -5, Places: -1})
	kit.Equal(t, f.peer("attacker").Run, "y", "its name is the one that it joined with")
	kit.Equal(t, f.peer("attacker").Role, string(roleWorker), "and so is its role")
	runs := map[string]bool{}
	for n := range 5000 {
		say(announcement{ID: p.ID, Run: fmt.Sprint(n), Link: linkVersion - 2})
		runs[f.peer("attacker").Run] = true
	}
	kit.Equal(t, len(runs) < 2500, true, "a flood keeps the hub from other nodes")
	s := kit.Must(f.hub.Nodes(t.Context()))(t)
	kit.Equal(t, s[2].Name+" "+s[2].State+" "+s[2].Refused, "attacker refused it is more than one version older than this hub; upgrade it")
}

func TestTheDefinitionOfMostNodesCounts(t *testing.T) {
	f := open(t)
	for _, name := range []string{"one", "two", "liar"} {
		m := block(name, tool.Effects{Writes: true})
		if close(m.leave); name == "liar" {
			m.specs[0].Description = "Better than the others."
			m.specs[0].Effects = tool.Effects{Reads: true}
		}
		f.work(name, m)
	}
	for range 20 {
		kit.Equal(t, string(kit.Must(f.call(t.Context(), "wait", `{}`))(t).Output) == `"liar"`, false)
	}
	kit.Equal(t, kit.Must(f.source().Tools(t.Context()))(t)[0].Description, "")
	for _, s := range kit.Must(f.hub.Nodes(t.Context()))(t) {
		kit.Equal(t, len(s.Drift) == 1, s.Name == "liar", s.Name)
	}
}

// A node that comes later does not replace the definition of as many others.
func TestADefinitionThatCountsStays(t *testing.T) {
	for _, writes := range []bool{true, false} {
		f := open(t)
		f.work("one", block("one", tool.Effects{Reads: true, Writes: writes}))
		f.work("two", block("two", tool.Effects{Reads: true, Writes: !writes}))
		kit.Eventually(t, "the hub knows both", func() bool { return !f.peer("two").asking && f.peer("two").listed != "" })
		f.hub.hub.publish()
		kit.Equal(t, kit.Must(f.source().Tools(t.Context()))(t)[0].Effects.Writes, writes)
	}
}

// A call that was let through because its tool only reads does not run the tool of that name that writes.
func TestACallRunsByTheDefinitionThatLetItThrough(t *testing.T) {
	f := open(t)
	liar, honest := block("liar", tool.Effects{Reads: true}), block("honest", tool.Effects{Writes: true})
	close(honest.leave)
	n := f.work("liar", liar)
	judged := kit.Must(f.source().Tools(t.Context()))(t)[0]
	f.work("honest", honest)
	n.Close(t.Context())
	kit.Eventually(t, "the definition of the honest node counts", func() bool {
		return kit.Must(f.source().Tools(t.Context()))(t)[0].Effects.Writes
	})
	for _, touches := range []bool{false, true} {
		c := &tool.Call{ID: tool.NewID(), Tool: "wait", Spec: judged, Args: []byte(`{}`)}
		_, err := f.source().Invoke(t.Context(), c, tool.Discard)
		if touches {
			_, err = f.source().Touches(c)
		}
		kit.Refused(t, err, tool.CodeUnavailable, "the definition of wait has just changed")
		kit.Equal(t, tool.NotRun(err), true)
	}
	kit.Equal(t, len(honest.began), 0)
	kit.Must(f.call(t.Context(), "wait", `{}`))(t)
}

// The tools of a source may change between two steps of whatever looks at them.
func TestAToolMayGoAtAnyTime(t *testing.T) {
	f := open(t)
	f.work("worker", block("worker", tool.Effects{Reads: true}))
	s := f.source()
	spec := kit.Must(s.Tools(t.Context()))(t)[0]
	all, none := *s.tools.Load(), map[string]*shared{}
	stop, changing := make(chan bool), make(chan bool)
	go func() {
		defer close(changing)
		for {
			select {
			case <-stop:
				return
			default:
				s.tools.Store(&none)
				s.tools.Store(&all)
			}
		}
	}()
	for range 300_000 {
		if v, err := s.judged(&tool.Call{Tool: "wait", Spec: spec}); (v == nil) != (err != nil) {
			t.Fatal("neither a definition nor an error")
		}
		if v, err := f.hub.sharing(spec); (v == nil) != (err != nil) {
			t.Fatal("neither a tool nor an error")
		}
	}
	close(stop)
	<-changing
}

// A source that no node has for a while is no source any more, and a node cannot fill the memory of a hub with what it once had.
func TestSourcesThatAreGoneAreForgotten(t *testing.T) {
	f := open(t)
	n := f.work("worker", reference(t))
	n.Close(t.Context())
	kit.Eventually(t, "it is gone", func() bool { return f.source().Unavailable("echo") != nil })
	kit.Refused(t, f.source().Unavailable("echo"), tool.CodeUnavailable, "the nodes that have it are gone")
	kit.Refused(t, kit.Err(f.call(t.Context(), "echo", `{}`)), tool.CodeUnavailable, "the nodes that have it are gone")
	for _, s := range *f.source().tools.Load() {
		s.orphaned = time.Now().Add(-orphanFor)
	}
	f.hub.hub.publish()
	kit.Equal(t, len(f.hub.Sources()), 0)
}

// A hub that drains takes no more calls of other hubs, and its program ends as after a signal.
func TestAHubDrains(t *testing.T) {
	f := open(t)
	second, _ := f.second()
	n := f.work("worker", reference(t))
	kit.OK(t, f.hub.DrainNode(t.Context(), "worker"))
	kit.Refused(t, kit.Err(f.call(t.Context(), "echo", `{}`)), tool.CodeUnavailable, "")
	kit.Fails(t, n.host.begin(&stream{}), "it drains")
	f.ended.Store(nil)
	kit.OK(t, f.hub.DrainNode(t.Context(), "hub"))
	kit.OK(t, *f.ended.Load())
	kit.Fails(t, f.hub.host.begin(&stream{}), "it drains")
	kit.Eventually(t, "the other hub knows", func() bool {
		i := slices.IndexFunc(kit.Must(second.Nodes(t.Context()))(t), func(s Status) bool { return s.Name == "hub" })
		return kit.Must(second.Nodes(t.Context()))(t)[i].State == stateDraining
	})
	kit.Refused(t, f.hub.DrainNode(t.Context(), "nobody"), tool.CodeNotFound, "`toolpost fleet` lists them")
}

// ofMany is a machine with many tools, of which it runs any.
type ofMany struct {
	toolbox
	name string
}

func many(name string, tools int) *ofMany {
	m := &ofMany{name: name}
	for i := range tools {
		m.specs = append(m.specs, &tool.Spec{Name: fmt.Sprintf("%s-%d", name, i), Effects: tool.Effects{Reads: true},
			Input: []byte(`{"type":"object","properties":{"text":{"type":"string"},"count":{"type":"integer"}}}`)})
	}
	m.Handler = tool.HandlerFunc(func(_ context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
		return &tool.Result{OK: true, Output: []byte(strconv.Quote(c.Tool))}, nil
	})
	return m
}

func TestTenThousandToolsOfTwentyWorkers(t *testing.T) {
	f := open(t)
	const workers, tools = 20, 500
	began := time.Now()
	var last *Node
	var m *ofMany
	for w := range workers {
		m = many(fmt.Sprint("w", w), tools)
		last = f.work(m.name, m)
	}
	specs := kit.Must(f.source().Tools(t.Context()))(t)
	kit.Equal(t, len(specs), workers*tools)
	t.Log("20 workers with 500 tools each are known after", time.Since(began))
	for w := range workers {
		name := fmt.Sprintf("w%d-%d", w, 17*w)
		kit.Equal(t, string(kit.Must(f.call(t.Context(), name, `{}`))(t).Output), `"`+name+`"`)
	}
	began = time.Now()
	m.specs = append(m.specs, &tool.Spec{Name: "new"})
	last.Retold(t.Context())
	kit.Eventually(t, "the new tool can be called", func() bool { return kit.Err(f.call(t.Context(), "new", `{}`)) == nil })
	t.Log("a new tool beside 10,000 others can be called after", time.Since(began))
}

// load is the processor time and the memory that this process has taken.
func load(t testing.TB) (time.Duration, int) {
	var u syscall.Rusage
	kit.OK(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	status := kit.Read(t, "/proc/self/status")
	_, rest, _ := strings.Cut(status, "VmRSS:")
	var kib int
	kit.Must(fmt.Sscan(rest, &kib))(t)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), kib >> 10
}

const crowdVariable = "TOOLPOST_TEST_CROWD"

// The hub is this process alone: the workers are in another one.
func TestAHubOf300Workers(t *testing.T) {
	if state := os.Getenv(crowdVariable); state != "" {
		crowd(t, state)
		return
	}
	if rounds.Of(0, 1) == 0 {
		t.Skip("it measures for 20 seconds; TOOLPOST_LONG=1 does")
	}
	const workers = 300
	f := open(t)
	line := kit.Must(f.hub.Token(t.Context(), member.Ticket{Role: member.Worker, Uses: workers}, time.Hour))(t)
	measure := func() (time.Duration, int) {
		before, _ := load(t)
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
		defer stop()
		<-ctx.Done()
		after, rss := load(t)
		return after - before, rss
	}
	idle, before := measure()
	cmd := exec.Command(os.Args[0], "-test.run=^TestAHubOf300Workers$")
	cmd.Env = append(os.Environ(), crowdVariable+"="+line)
	kit.Start(t, cmd)
	kit.Eventually(t, "all are announced", func() bool {
		f.hub.hub.mu.Lock()
		defer f.hub.hub.mu.Unlock()
		known := 0
		for _, p := range f.hub.hub.peers {
			if p.listed != "" {
				known++
			}
		}
		return known == workers
	})
	busy, after := measure()
	t.Logf("in 10 s a hub takes %v, and %v with 300 workers (%.1f %% of a core more); %d MiB, and %d MiB with them", idle, busy,
		100*(busy-idle).Seconds()/10, before, after)
	kit.Equal(t, (busy-idle).Seconds()/10 < 0.05, true, "300 announced workers take at least 5 % of a core")
	kit.Equal(t, after-before < 64, true, "300 announced workers take at least 64 MiB")
}

// crowd announces 300 workers with 10 tools each until its input ends.
func crowd(t *testing.T, line string) {
	i := kit.Must(invite.Parse(line))(t)
	l := kit.Must(newList(sorted(many("many", 10).Offers(t.Context()))))(t)
	f := &fleetTest{t: t}
	for w := range 300 {
		p := kit.Must(Join(t.Context(), i, fmt.Sprint("w", w), member.Worker))(t)
		nc := kit.Must(nats.Connect("nats://"+i.Hubs[0], nats.Secure(kit.Must(p.Trust())(t)), nats.TLSHandshakeFirst(),
			nats.Nkey(kit.Must(p.Public())(t), p.Sign)))(t)
		_ = kit.Must(nc.Subscribe(subjectNode+p.ID, func(m *nats.Msg) { _ = nc.Publish(m.Reply, encodeFrame(kindResult, 1, l.packed)) }))(t)
		f.announce(nc, announcement{ID: p.ID, Run: "r", Link: linkVersion, Digest: l.digest, Tools: 10, Places: 1024})
	}
	_, _ = os.Stdin.Read(make([]byte, 1)) // until the test that started it ends
}

// Whatever a worker calls its run, its calls end when it is evicted.
func TestCallsOfAnEvictedWorkerEnd(t *testing.T) {
	for _, run := range []string{"plain", "a.b", "a b", "", "*"} {
		f, began, outcome := open(t), make(chan bool, 9), make(chan error, 1)
		p := f.join("worker", member.Worker)
		nc := kit.Must(raw(t, f.hub, p))(t)
		l := kit.Must(newList(block("worker", tool.Effects{Reads: true}).Offers(t.Context())))(t)
		_ = kit.Must(nc.Subscribe(subjectNode+p.ID, func(m *nats.Msg) {
			if kind(m.Data[0]) == kindList {
				_ = nc.Publish(m.Reply, encodeFrame(kindResult, 1, l.packed))
			} else {
				began <- true
			}
		}))(t)
		f.announce(nc, announcement{ID: p.ID, Run: run, Link: linkVersion, Digest: l.digest, Places: 1})
		kit.Eventually(t, "the hub knows its tools", func() bool { return f.has("worker") })
		go func() { outcome <- kit.Err(f.call(t.Context(), "wait", `{}`)) }()
		kit.Receive(t, "the call", began)
		kit.OK(t, f.hub.Evict(t.Context(), "worker"))
		kit.Refused(t, kit.Receive(t, "its end with the run "+run, outcome), tool.CodeUnavailable, "", run)
	}
}

// A worker that says each time that it has other tools, also by a new run, is asked for them a few times, and then after pauses.
func TestAWorkerIsAskedForItsToolsNowAndThen(t *testing.T) {
	f, lists := open(t), atomic.Int64{}
	p := f.join("worker", member.Worker)
	nc := kit.Must(raw(t, f.hub, p))(t)
	l := kit.Must(newList(nil))(t)
	_ = kit.Must(nc.Subscribe(subjectNode+p.ID, func(m *nats.Msg) {
		if kind(m.Data[0]) == kindList {
			lists.Add(1)
			_ = nc.Publish(m.Reply, encodeFrame(kindResult, 1, l.packed))
		}
	}))(t)
	began := time.Now()
	for n := range 40 {
		a := announcement{ID: p.ID, Run: fmt.Sprint(n / 2), Link: linkVersion, Digest: fmt.Sprint(n), Places: 1}
		kit.OK(t, nc.Publish(subjectUp+p.ID, kit.Must(strictjson.Marshal(a))(t)))
		kit.Eventually(t, "the hub has read it", func() bool {
			p := f.peer("worker")
			return p.Digest == a.Digest && p.Run == a.Run && !p.asking
		})
	}
	if most := bound.Free + int64(time.Since(began)/bound.First) + 1; lists.Load() > most || lists.Load() < bound.Free {
		t.Errorf("it was asked %d times, and may be %d times", lists.Load(), most)
	}
}

// The pauses double, and end with the changes.
func TestPausesDouble(t *testing.T) {
	var p bound.Pace
	now := time.Now()
	times := func(during time.Duration) (n int) {
		for end := now.Add(during); now.Before(end); now = now.Add(10 * time.Millisecond) {
			if p.Due(now) {
				n++
			}
		}
		return n
	}
	kit.Equal(t, times(900*time.Millisecond), bound.Free)
	kit.Equal(t, times(9*time.Second), 3)
	kit.Equal(t, times(time.Hour) < int(time.Hour/bound.Rests)+9, true)
	now = now.Add(time.Hour)
	kit.Equal(t, times(900*time.Millisecond), bound.Free)
}
