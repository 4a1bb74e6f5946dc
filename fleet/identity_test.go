package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"toolpost/engine/member"
	"toolpost/fleet/invite"
	"toolpost/fleet/membership"
	"toolpost/fleet/roster"
	"toolpost/internal/kit"
	"toolpost/internal/rounds"
	"toolpost/tool"
	"toolpost/wire/packed"
	"toolpost/wire/strictjson"
)

// raw connects as a member to a hub, with a client that keeps no rules. It does not connect again.
func raw(t testing.TB, hub *Node, p *membership.Pass) (*nats.Conn, error) {
	t.Helper()
	nc, err := nats.Connect("nats://"+hub.address(), nats.Secure(kit.Must(p.Trust())(t)), nats.TLSHandshakeFirst(), nats.NoReconnect(),
		nats.Nkey(kit.Must(p.Public())(t), p.Sign), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err == nil {
		t.Cleanup(nc.Close)
	}
	return nc, err
}

// stranger connects as a node that joins, by an invitation of the fleet.
func (f *fleetTest) stranger(user, password string) (*nats.Conn, error) {
	i := kit.Must(invite.Parse(f.invite(member.Worker)))(f.t)
	nc, err := nats.Connect("nats://"+f.hub.address(), nats.Secure(i.Trust(f.hub.address())), nats.TLSHandshakeFirst(), nats.NoReconnect(),
		nats.UserInfo(user, password), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err == nil {
		f.t.Cleanup(nc.Close)
	}
	return nc, err
}

// inside connects with the rights of the hub.
func (f *fleetTest) inside() *nats.Conn {
	nc := kit.Must(f.hub.server.dial(accountFleet))(f.t)
	f.t.Cleanup(nc.Close)
	return nc
}

// peer is what the hub knows of a worker.
func (f *fleetTest) peer(name string) (found peer) {
	f.hub.hub.mu.Lock()
	defer f.hub.hub.mu.Unlock()
	for _, p := range f.hub.hub.peers {
		if p.Name == name {
			found = *p
		}
	}
	return found
}

func TestAServerLetsANodeUseItsOwnSubjectsAlone(t *testing.T) {
	f := open(t)
	other, hub := f.work("other", reference(t)).pass.ID, f.hub.pass.ID
	p := f.join("attacker", member.Worker)
	joining := kit.Must(f.stranger(joinUser, ""))(t)
	own := fmt.Sprint(subjectJoined, kit.Must(joining.GetClientID())(t))
	for who, c := range map[string]struct {
		nc                 *nats.Conn
		publish, subscribe []string // without a refusal
	}{
		"a member": {kit.Must(raw(t, f.hub, p))(t), []string{subjectUp + p.ID, subjectStreams + hub + "." + p.ID + ".x"},
			[]string{subjectNode + p.ID, subjectHubs}},
		"a node that joins": {joining, []string{subjectJoin}, []string{own}},
	} {
		refused := func(subject string) bool {
			kit.OK(t, c.nc.Flush())
			err := c.nc.LastError()
			return err != nil && strings.Contains(err.Error(), `"`+subject+`"`)
		}
		for _, subject := range append(c.publish, subjectUp+other, subjectNode+p.ID, subjectNode+other, subjectNode+hub, subjectHubs, subjectJoin,
			subjectJoined+"1", own, subjectStreams+hub+"."+other+".x", subjectStreams+hub+"."+p.ID+".x.y", "$SYS.REQ.SERVER.PING", "any") {
			kit.OK(t, c.nc.Publish(subject, nil))
			kit.Equal(t, refused(subject), !slices.Contains(c.publish, subject), who, "publishes to", subject)
		}
		for _, subject := range append(c.subscribe, subjectNode+other, subjectNode+hub, subjectNode+"*", subjectUp+">", subjectUp+p.ID,
			subjectStreams+">", subjectStreams+hub+"."+p.ID+".x", subjectJoin, subjectJoined+"*", subjectJoined+"1", ">", "*.*."+p.ID, "$SYS.>") {
			_ = kit.Must(c.nc.SubscribeSync(subject))(t)
			kit.Equal(t, refused(subject), !slices.Contains(c.subscribe, subject), who, "subscribes to", subject)
		}
	}
	for _, user := range []string{accountFleet, accountSystem, "", "toolpost"} {
		_, err := f.stranger(user, "x")
		kit.Fails(t, err, "Authorization", "user", user)
	}
	key := kit.Must(p.Public())(t)
	p.Seed = kit.Must(Found(t.Context(), open(t).store.Fleet(), "another", t.TempDir(), Options{}))(t).Seed
	kit.Fails(t, kit.Err(raw(t, f.hub, p)), "Authorization", "a key that no member has")
	_, err := nats.Connect("nats://"+f.hub.address(), nats.Secure(kit.Must(p.Trust())(t)), nats.TLSHandshakeFirst(), nats.NoReconnect(),
		nats.Nkey(key, p.Sign))
	kit.Fails(t, err, "Authorization", "the key of a member, without its seed")
	_, err = f.call(t.Context(), "echo", `{"text":"x"}`)
	kit.OK(t, err, "the fleet works afterwards")
}

// counting is a machine that counts the calls of its tool.
func counting() (*blocking, *atomic.Int32) {
	m, calls := block("count", tool.Effects{Writes: true}), new(atomic.Int32)
	m.Handler = tool.HandlerFunc(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
		calls.Add(1)
		return &tool.Result{OK: true, Output: []byte(`1`)}, nil
	})
	return m, calls
}

func (h *host) open() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.streams)
}

// Even with the rights of a hub, the bytes of a call count once: for one program, one stream and one definition of the tool.
func TestACallCountsOnce(t *testing.T) {
	f := open(t)
	m, calls := counting()
	n := f.work("worker", m)
	other := f.work("other", reference(t))
	nc, p := f.inside(), f.peer("worker")
	answers := make(chan *nats.Msg, 99)
	_ = kit.Must(nc.ChanSubscribe(subjectStreams+"attacker.>", answers))(t)
	digest := p.tools[toolKey("std", "wait")].digest
	reply := func(node, stream string) string { return subjectStreams + "attacker." + node + "." + stream }
	frame := func(to, reply, digest string, left time.Duration) []byte {
		c := &tool.Call{ID: tool.NewID(), Spec: &tool.Spec{Name: "wait", Source: "std"}, Args: []byte(`{}`)}
		r := kit.Must(newRequest(c, to, reply, 1, digest, left))(t)
		return encodeFrame(kindCall, 1, kit.Must(packed.Write(&r, c.Args))(t))
	}
	asked := 0
	mark := func(node string) (got error) { // what the node answers before the answer to another question
		asked++
		marker := reply(node, fmt.Sprint("marker", asked))
		kit.OK(t, nc.PublishRequest(subjectNode+node, marker, encodeFrame(kindList, 1, nil)))
		got = errors.New("no answer")
		for m := kit.Receive(t, "an answer", answers); m.Subject != marker; m = kit.Receive(t, "an answer", answers) {
			if got = nil; kind(m.Data[0]) != kindResult {
				got = ended(m.Data[headSize:])
			}
		}
		return got
	}
	ask := func(node, reply string, b []byte) error {
		kit.OK(t, nc.PublishRequest(subjectNode+node, reply, b))
		early := mark(node)
		kit.Eventually(t, "no stream is open", func() bool { return n.host.open() == 0 && other.host.open() == 0 })
		late := mark(node)
		if early != nil && early.Error() == "no answer" {
			return late
		}
		return early
	}
	genuine := frame(p.Run, reply(p.ID, "1"), digest, 0)
	for _, c := range []struct {
		what, node, reply, says string
		bytes                   []byte
	}{
		{"the call", p.ID, reply(p.ID, "1"), "", genuine},
		{"its bytes again", p.ID, reply(p.ID, "1"), "no answer", genuine},
		{"its bytes on another stream", p.ID, reply(p.ID, "2"), "belongs to another stream", genuine},
		{"its bytes for another hub", p.ID, subjectStreams + "attacker2." + p.ID + ".1", "no answer", genuine},
		{"its bytes at another node", other.pass.ID, reply(other.pass.ID, "1"), "has started again", genuine},
		{"its bytes at another node, as if of the first", other.pass.ID, reply(p.ID, "3"), "no answer", genuine},
		{"another definition of the tool", p.ID, reply(p.ID, "4"), "has another definition", frame(p.Run, reply(p.ID, "4"), "x", 0)},
		{"a call whose time is over", p.ID, reply(p.ID, "5"), "ran longer than it may", frame(p.Run, reply(p.ID, "5"), digest, 1)},
		{"the middle of a call", p.ID, reply(p.ID, "6"), "no answer", append([]byte{'c', 0, 0, 0, 2}, genuine[headSize:]...)},
		{"half a frame", p.ID, reply(p.ID, "7"), "no answer", genuine[:3]},
		{"nothing", p.ID, reply(p.ID, "8"), "no answer", nil},
		{"an unknown kind", p.ID, reply(p.ID, "9"), "unknown kind", append([]byte{'?', 0, 0, 0, 1}, genuine[headSize:]...)},
	} {
		err := ask(c.node, c.reply, c.bytes)
		if c.says == "" {
			kit.OK(t, err, c.what)
		} else {
			kit.Fails(t, err, c.says, c.what)
		}
		kit.Equal(t, calls.Load(), 1, c.what)
	}
	n.Close(t.Context())
	n = f.start(&n.pass, n.env.State, m)
	kit.Eventually(t, "it is back", func() bool { return f.peer("worker").Run != p.Run && f.has("worker") })
	kit.Fails(t, ask(p.ID, reply(p.ID, "1"), genuine), "has started again", "its bytes after a restart")
	kit.Equal(t, calls.Load(), 1)
}

// A call that is sent again while it runs breaks its stream: it is cancelled, and not run twice.
func TestACallIsNotSentAgainWhileItRuns(t *testing.T) {
	f := open(t)
	m := block("worker", tool.Effects{Writes: true})
	f.work("worker", m)
	frames := make(chan *nats.Msg, 99)
	nc, p := f.inside(), f.peer("worker")
	_ = kit.Must(nc.ChanSubscribe(subjectNode+p.ID, frames))(t)
	kit.OK(t, nc.Flush())
	outcome := make(chan error, 1)
	go func() { outcome <- kit.Err(f.call(t.Context(), "wait", `{}`)) }()
	call := kit.Receive(t, "the call on its way", frames)
	kit.Receive(t, "the call", m.began)
	kit.OK(t, nc.PublishRequest(call.Subject, call.Reply, call.Data))
	kit.Refused(t, kit.Receive(t, "the outcome", outcome), tool.CodeProtocol, "message 1 came in place of message 2")
	kit.Equal(t, len(m.began), 0)
}

// request is what a worker asks for that joins.
func requested(t testing.TB, i invite.Line, name string) joining {
	seed, public, err := membership.NewKey()
	kit.OK(t, err)
	proof := kit.Must((&membership.Pass{Seed: seed}).Sign([]byte(i.Token())))(t)
	return joining{Token: i.Token(), Name: name, Key: public, Proof: proof, Link: linkVersion, Role: member.Worker}
}

func TestOnlyAnInvitedNodeJoins(t *testing.T) {
	f, foreign := open(t), open(t)
	at := func(f *fleetTest, line, name string, role member.Role) error {
		return kit.Err(Join(t.Context(), kit.Must(invite.Parse(line))(t), name, role))
	}
	line := f.invite(member.Worker)
	kit.Refused(t, at(f, line, "w", member.Hub), tool.CodeInvalidInput, "this token is for a worker, and this node is to be a hub")
	kit.Refused(t, at(f, line, "hub", member.Worker), tool.CodeConflict, `has a node named "hub"`)
	for _, name := range []string{"", ">", "*", "a b", "../x", "a\nb", "-x", strings.Repeat("x", 101)} {
		kit.Refused(t, at(f, line, name, member.Worker), tool.CodeInvalidInput, "cannot be the name of a node", name)
	}
	kit.OK(t, at(f, line, "w", member.Worker), "none of them took its use")
	kit.Refused(t, at(f, line, "w2", member.Worker), tool.CodeAccessDenied, "expired or is used up")
	over := kit.Must(f.hub.Token(t.Context(), member.Ticket{Role: member.Worker, Uses: 1}, time.Microsecond))(t)
	kit.Refused(t, at(f, over, "w2", member.Worker), tool.CodeAccessDenied, "expired or is used up")
	hosts, _, _ := strings.Cut(f.invite(member.Worker), "#")
	_, token, _ := strings.Cut(foreign.invite(member.Worker), "#")
	kit.Refused(t, at(f, hosts+"#"+token, "w2", member.Worker), tool.CodeAccessDenied, "belongs to another fleet than this token")

	for link, says := range map[int]string{
		linkVersion - 2: "it is more than one version older than this hub; upgrade it", linkVersion - 1: "", linkVersion + 1: "",
		linkVersion + 2: "it is more than one version newer than this hub; upgrade the hubs",
	} {
		j := requested(t, kit.Must(invite.Parse(f.invite(member.Worker)))(t), fmt.Sprint("v", link))
		j.Link = link
		_, err := askToJoin(t.Context(), kit.Must(f.stranger(joinUser, ""))(t), j)
		if says == "" {
			kit.OK(t, err, "link", link)
		} else {
			kit.Refused(t, err, tool.CodeUnsupported, says)
		}
	}
	j := requested(t, kit.Must(invite.Parse(f.invite(member.Worker)))(t), "w3")
	j.Proof[0]++
	_, err := askToJoin(t.Context(), kit.Must(f.stranger(joinUser, ""))(t), j)
	kit.Refused(t, err, tool.CodeAccessDenied, "has not proven that it has its key")
}

// A node that joins hears its own answer alone, though the server does not check the subject of an answer.
func TestAStrangerCannotAnswerANodeThatJoins(t *testing.T) {
	f := open(t)
	victim, stranger := kit.Must(f.stranger(joinUser, ""))(t), kit.Must(f.stranger(joinUser, ""))(t)
	subject := fmt.Sprint(subjectJoined, kit.Must(victim.GetClientID())(t))
	heard := make(chan *nats.Msg, 999)
	inside := f.inside()
	_ = kit.Must(inside.ChanSubscribe("fleet.>", heard))(t)
	kit.OK(t, inside.Flush())
	j := kit.Must(strictjson.Marshal(requested(t, invite.Line{}, "stranger")))(t)
	for _, reply := range []string{subjectHubs, subjectUp + "x", subject} {
		kit.OK(t, stranger.PublishRequest(subjectJoin, reply, j))
	}
	for m := kit.Receive(t, "a message", heard); m.Subject != subject; m = kit.Receive(t, "a message", heard) {
		kit.Equal(t, m.Subject == subjectHubs && len(m.Reply) == 0 && string(m.Data[:1]) == "{", false, "a stranger speaks as the hub")
		kit.Equal(t, m.Subject == subjectUp+"x", false, "a stranger speaks as a node")
	}
	began := time.Now()
	for range 200 { // the hub answers them before the request of the victim, and the store takes a while
		kit.OK(t, stranger.PublishRequest(subjectJoin, subject, j))
	}
	kit.OK(t, stranger.Flush())
	_, err := askToJoin(t.Context(), victim, joining{Key: "own", Link: linkVersion + 2})
	kit.Refused(t, err, tool.CodeUnsupported, "more than one version newer", "the answer is that to its own request")
	kit.Equal(t, time.Since(began) > 200*guessEvery, true, "the store has time for others")
}

// Strangers take up so many connections and so much memory, and no more.
func TestStrangersAreFew(t *testing.T) {
	f := open(t)
	f.hub.server.mu.Lock()
	f.hub.server.joins = mostJoining - 1
	f.hub.server.mu.Unlock()
	nc := kit.Must(f.stranger(joinUser, ""))(t)
	i := kit.Must(invite.Parse(f.invite(member.Worker)))(t)
	_, err := Join(t.Context(), i, "w", member.Worker)
	kit.Refused(t, err, tool.CodeUnavailable, "too many nodes ask to join at the hub")
	for range 20 {
		_ = kit.Must(nc.SubscribeSync(fmt.Sprint(subjectJoined, kit.Must(nc.GetClientID())(t))))(t)
	}
	kit.OK(t, nc.Flush())
	kit.Fails(t, nc.LastError(), "maximum subscriptions exceeded")
	f.hub.server.mu.Lock()
	f.hub.server.joins = 0
	f.hub.server.mu.Unlock()
	heard := make(chan *nats.Msg, 9)
	nc = kit.Must(f.stranger(joinUser, ""))(t)
	own := fmt.Sprint(subjectJoined, kit.Must(nc.GetClientID())(t))
	_ = kit.Must(nc.ChanSubscribe(own, heard))(t)
	for _, name := range []string{strings.Repeat("x", maxJoining), "x"} {
		kit.OK(t, nc.PublishRequest(subjectJoin, own, kit.Must(strictjson.Marshal(joining{Name: name, Key: name, Link: linkVersion}))(t)))
	}
	var w welcome
	kit.OK(t, strictjson.Unmarshal(kit.Receive(t, "an answer", heard).Data, &w))
	kit.Equal(t, w.To, "x", "a large request is not read")
}

// flaky is a register whose database may be away.
type flaky struct {
	member.Store
	away, shareless atomic.Bool
}

func (r *flaky) Shares(ctx context.Context) ([]member.Share, error) {
	if r.shareless.Load() {
		return nil, tool.Errorf(tool.CodeUnavailable, "the shares cannot be read")
	}
	return r.Store.Shares(ctx)
}

func (r *flaky) Members(ctx context.Context) ([]member.Member, error) {
	if r.away.Load() {
		return nil, tool.Errorf(tool.CodeUnavailable, "the database is away")
	}
	return r.Store.Members(ctx)
}

// meet lets the first hub read the members, and tell its nodes of all hubs, which it does every rosterEvery.
func (f *fleetTest) meet() {
	f.t.Helper()
	kit.OK(f.t, f.hub.roster.Refresh(f.t.Context()))
	f.hub.connect(f.hub.hubAddresses())
	f.hub.tellHubs()
}

// second adds a hub, which has the store of the first, and waits until both know each other.
func (f *fleetTest) second() (*Node, *flaky) {
	f.t.Helper()
	r := &flaky{Store: f.store.Fleet()}
	with := f.with
	defer func() { f.with = with }()
	f.with = func(e *Env) {
		if e.Register = r; with != nil {
			with(e)
		}
	}
	p, state := f.join("hub2", member.Hub), f.t.TempDir()
	n := f.start(p, state, &toolbox{Handler: reference(f.t).Handler})
	f.meet()
	kit.Eventually(f.t, "the hubs know each other", func() bool { return f.hub.hub.knows(n.pass.ID) && n.hub.knows(f.hub.pass.ID) })
	return n, r
}

func TestAnEvictedNodeIsCutOff(t *testing.T) {
	f := open(t)
	second, r := f.second()
	n := f.work("worker", reference(t))
	kit.Eventually(t, "it is at both hubs", func() bool { return second.hub.knows(n.pass.ID) })
	silent := f.join("silent", member.Worker)
	one, two := kit.Must(raw(t, f.hub, silent))(t), kit.Must(raw(t, second, silent))(t)
	r.away.Store(true) // the second hub learns of it by the first
	began := time.Now()
	kit.OK(t, f.hub.Evict(t.Context(), "worker"))
	kit.Equal(t, f.hub.hub.knows(n.pass.ID) || second.hub.knows(n.pass.ID), false, "both hubs have cut it off by now")
	kit.OK(t, f.hub.Evict(t.Context(), "silent"))
	kit.Eventually(t, "their connections are cut", func() bool { return one.IsClosed() && two.IsClosed() })
	t.Log("two nodes were evicted from two hubs within", time.Since(began))
	kit.Eventually(t, "it ends", func() bool { return f.ended.Load() != nil })
	kit.Refused(t, *f.ended.Load(), tool.CodeAccessDenied, "it was evicted, or joined again elsewhere; to join again, remove ")
	for _, away := range []bool{true, false} {
		r.away.Store(away)
		for _, hub := range []*Node{f.hub, second} {
			kit.Fails(t, kit.Err(raw(t, hub, silent)), "Authorization", hub.Name(), away)
			late := &nats.Msg{Subject: subjectUp + n.pass.ID, Data: kit.Must(strictjson.Marshal(n.announcement()))(t)}
			hub.hub.announced(late)
			kit.Equal(t, hub.hub.knows(n.pass.ID), false, "a late announcement")
		}
	}
	kit.Refused(t, f.hub.Evict(t.Context(), "worker"), tool.CodeNotFound, "no node")
	was := *f.ended.Load()
	kit.OK(t, f.hub.Evict(t.Context(), "hub2"))
	kit.Eventually(t, "the hub ends", func() bool { return *f.ended.Load() != was })
}

// A hub that no other can reach reads in the store who was evicted, within rosterEvery.
func TestAHubAloneLearnsOfAnEvictionFromTheStore(t *testing.T) {
	if rounds.Of(0, 1) == 0 {
		t.Skip("it waits 5 seconds; TOOLPOST_LONG=1 does")
	}
	f := open(t)
	second, _ := f.second()
	for _, l := range second.all() {
		l.nc.Close()
	}
	kit.Eventually(t, "the first hub cannot reach it", func() bool { return !f.hub.hub.knows(second.pass.ID) })
	p := f.join("worker", member.Worker)
	nc := kit.Must(raw(t, second, p))(t)
	began := time.Now()
	kit.OK(t, f.hub.Evict(t.Context(), "worker"))
	kit.Eventually(t, "it is cut off", nc.IsClosed)
	t.Log("a hub that cannot be reached cut a node off after", time.Since(began))
	kit.Fails(t, kit.Err(raw(t, second, p)), "Authorization")
}

func TestARotatedKeyReplacesTheOldOne(t *testing.T) {
	f := open(t)
	second, r := f.second()
	n := f.work("worker", reference(t))
	kit.Eventually(t, "it is at both hubs", func() bool { return second.hub.knows(n.pass.ID) })
	old := kit.Must(membership.Load(n.env.State))(t)
	failed := kit.Must(f.hub.Rotate(t.Context()))(t)
	kit.EqualSlices(t, failed, nil)
	r.away.Store(true)
	for _, hub := range []*Node{f.hub, second} {
		kit.Fails(t, kit.Err(raw(t, hub, old)), "Authorization", "the old key at", hub.Name())
		hub.server.keep(nil)
	}
	r.away.Store(false)
	kit.Eventually(t, "it is back with its new key", func() bool { return f.hub.hub.knows(n.pass.ID) && second.hub.knows(n.pass.ID) })
	kit.Equal(t, kit.Must(membership.Load(n.env.State))(t).Seed != old.Seed, true)

	var next rotated // the store has another key, and the node was not told
	kit.OK(t, strictjson.Unmarshal(kit.Must(n.makeKey())(t), &next))
	kit.OK(t, f.store.Fleet().SetKey(t.Context(), n.pass.ID, next.Old, next.Key))
	kit.OK(t, f.hub.roster.Refresh(t.Context()))
	f.hub.server.keep(nil)
	f.hub.hub.gone(n.pass.ID)
	kit.Eventually(t, "it has the key that it kept", func() bool { return kit.Must(n.key())(t) == next.Key })
	kit.Eventually(t, "it is back", func() bool { return f.hub.hub.knows(n.pass.ID) })

	seed, public, err := membership.NewKey()
	kit.OK(t, err)
	proof := kit.Must((&membership.Pass{Seed: seed}).Sign([]byte("x")))(t)
	for what, r := range map[string]rotated{"for another key": {"x", public, proof}, "no proof": {next.Key, public, proof}} {
		m := kit.Must(f.hub.roster.Named(t.Context(), "worker"))(t)
		kit.Refused(t, f.hub.rekey(t.Context(), m, kit.Must(strictjson.Marshal(r))(t)), tool.CodeAccessDenied, "has not proven", what)
	}
}

// A hub that cannot read the members does not know a key that is new. It refuses no member for that, whose program would end.
func TestAHubThatCannotReadTheMembersRefusesNone(t *testing.T) {
	for _, rotates := range []bool{true, false} {
		var log kit.Buffer
		f := open(t, slog.New(slog.NewTextHandler(&log, nil)))
		second, r := f.second()
		var n *Node
		if rotates {
			n = f.work("worker", reference(t))
			kit.Eventually(t, "it is at both hubs", func() bool { return second.hub.knows(n.pass.ID) })
			r.away.Store(true)
			var next rotated // by the first hub
			kit.OK(t, strictjson.Unmarshal(kit.Must(n.makeKey())(t), &next))
			kit.OK(t, f.store.Fleet().SetKey(t.Context(), n.pass.ID, next.Old, next.Key))
			kit.OK(t, n.useKey())
			kit.OK(t, f.hub.roster.Refresh(t.Context()))
			second.server.keep(nil)
			second.hub.gone(n.pass.ID)
		} else {
			r.away.Store(true)
			n = f.work("worker", reference(t))
		}
		kit.Eventually(t, "the second hub does not admit it", func() bool {
			return strings.Contains(log.String(), roster.ErrUnread.Error())
		})
		r.away.Store(false)
		kit.Eventually(t, "the second hub admits it", func() bool { return second.hub.knows(n.pass.ID) })
		kit.Equal(t, f.ended.Load() == nil, true, "rotates", rotates)
	}
}

// A node that has flooded a hub is not admitted for a while, and its program goes on.
func TestABarredNodeComesBack(t *testing.T) {
	var log kit.Buffer
	f := open(t, slog.New(slog.NewTextHandler(&log, nil)))
	n := f.work("worker", reference(t))
	f.hub.server.bar(n.pass.ID)
	kit.Eventually(t, "the log of the node says so", func() bool {
		return strings.Contains(log.String(), "a hub does not admit this node now, and its log says why; it is tried again")
	})
	kit.Contains(t, log.String(), errBarred.Error())
	kit.Equal(t, f.hub.hub.knows(n.pass.ID), false)
	f.hub.server.mu.Lock()
	f.hub.server.barred[n.pass.ID] = time.Now().Add(-barFor)
	f.hub.server.mu.Unlock()
	kit.Eventually(t, "it is back", func() bool { return f.hub.hub.knows(n.pass.ID) })
	kit.Equal(t, f.ended.Load() == nil, true)
}

// A key that is used twice shows itself: each connection ends the one before, and only the one that is left gets calls.
func TestAKeyHasOneConnection(t *testing.T) {
	var log kit.Buffer
	f := open(t, slog.New(slog.NewTextHandler(&log, nil)))
	n := f.work("worker", reference(t))
	thief := kit.Must(raw(t, f.hub, kit.Must(membership.Load(n.env.State))(t)))(t)
	kit.Eventually(t, "the node is back, and the thief is cut", thief.IsClosed)
	kit.Contains(t, log.String(), "if this repeats, its key was copied: evict it")
	kit.Eventually(t, "the node works", func() bool { return kit.Err(f.call(t.Context(), "echo", `{"text":"x"}`)) == nil })
	f.hub.server.mu.Lock()
	defer f.hub.server.mu.Unlock()
	kit.Equal(t, len(f.hub.server.conns), 1)
}

// A hub that reads the members cuts off those that were evicted, whatever else it cannot read.
func TestAHubThatReadsNoSharesCutsOffEvictedNodes(t *testing.T) {
	f := open(t)
	second, r := f.second()
	n := f.work("worker", reference(t))
	kit.Eventually(t, "it is at both hubs", func() bool { return second.hub.knows(n.pass.ID) })
	r.shareless.Store(true)
	kit.OK(t, f.store.Fleet().Evict(t.Context(), n.pass.ID))
	kit.Eventually(t, "it is cut off", func() bool { return !second.hub.knows(n.pass.ID) })
}

// If two configs are as frequent, it is always the same hubs that drift.
func TestConfigDriftIsTheSameEachTime(t *testing.T) {
	f := open(t)
	f.hub.hub.mu.Lock()
	for id, digest := range map[string]string{"a": "1", "b": "1", "c": "2", "d": "2"} {
		said := announcement{ID: id, Role: string(roleHub), Config: map[string]string{"policy": digest}}
		f.hub.hub.peers[id] = &peer{announcement: said, seen: time.Now().Add(time.Hour)}
	}
	f.hub.hub.mu.Unlock()
	for range 50 {
		drift := f.hub.configDrift()
		kit.DeepEqual(t, drift, map[string][]string{f.hub.pass.ID: {"config.policy"}, "c": {"config.policy"}, "d": {"config.policy"}})
	}
}

// Only durations are compared: a clock that is a day off changes nothing.
func TestAWrongClockChangesNothing(t *testing.T) {
	f := open(t)
	p := f.join("worker", member.Worker)
	for _, off := range []time.Duration{-24 * time.Hour, 24 * time.Hour} {
		trust := kit.Must(p.Trust())(t)
		trust.Time = func() time.Time { return time.Now().Add(off) }
		nc, err := nats.Connect("nats://"+f.hub.address(), nats.Secure(trust), nats.TLSHandshakeFirst(),
			nats.Nkey(kit.Must(p.Public())(t), p.Sign))
		kit.OK(t, err, off)
		a := announcement{ID: p.ID, Link: linkVersion, Run: fmt.Sprint(off), Since: time.Now().Add(off), Places: 1}
		kit.OK(t, nc.Publish(subjectUp+p.ID, kit.Must(strictjson.Marshal(a))(t)))
		kit.Eventually(t, "it is up", func() bool { return f.peer("worker").Run == fmt.Sprint(off) })
		kit.Equal(t, time.Since(f.peer("worker").seen).Abs() < time.Hour, true, "it was seen by the clock of the hub")
		nc.Close()
	}
}

func TestAHubWithAnotherStoreIsRefused(t *testing.T) {
	f, other := open(t), open(t)
	p := f.join("hub2", member.Hub)
	_, err := Start(t.Context(), Env{
		Options: Options{Listen: "127.0.0.1:0"}, Pass: p, State: t.TempDir(), Log: f.log, Machine: reference(t), Register: other.store.Fleet(),
	})
	kit.Refused(t, err, tool.CodeAccessDenied, "all hubs of a fleet share one PostgreSQL (store: {url: postgres://…})")
}
