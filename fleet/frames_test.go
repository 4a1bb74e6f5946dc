package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"toolpost/engine/member"
	"toolpost/fleet/bound"
	"toolpost/fleet/membership"
	"toolpost/fleet/roster"
	"toolpost/fleet/spool"
	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/wire/packed"
	"toolpost/wire/strictjson"
)

// numbered makes frames with successive numbers.
func numbered(k kind, bodies ...[]byte) (frames [][]byte) {
	for i, b := range bodies {
		frames = append(frames, encodeFrame(k, uint32(i+1), b))
	}
	return frames
}

// A stream that gets a bad frame ends, and tells the other end why.
func TestBadFramesEndAStream(t *testing.T) {
	part := make([]byte, chunk)
	tooMany := numbered(kindEvent, make([][]byte, window+1)...)
	for what, c := range map[string]struct {
		frames [][]byte
		says   string
	}{
		"a number that skips":      {[][]byte{encodeFrame(kindEvent, 2, nil)}, "message 2 came in place of message 1"},
		"a number again":           {[][]byte{tooMany[0], tooMany[0]}, "message 1 came in place of message 2"},
		"a number of 0":            {[][]byte{encodeFrame(kindEvent, 0, nil)}, "message 0 came in place of message 1"},
		"more than the window":     {tooMany, "more than 32 messages at once"},
		"half a frame":             {[][]byte{{'e', 0, 0}}, "a message of 3 bytes"},
		"nothing":                  {[][]byte{nil}, "a message of 0 bytes"},
		"a frame that is too long": {numbered(kindPart, append(part, 'x')), "a message of 65537 bytes"},
		"more than the budget":     {numbered(kindPart, part, part, part, part, part), "full"},
	} {
		var told error
		room := &bound.Budget{Most: 4 * chunk, Full: errors.New("full")}
		s := newStream("the peer", room, func(b []byte) error { told = ended(b[headSize:]); return nil })
		for _, f := range c.frames {
			s.deliver(f)
		}
		kit.Fails(t, s.err, c.says, what)
		kit.Fails(t, told, c.says, what)
		s.deliver(encodeFrame(kindEvent, s.got+1, []byte("late")))
		s.forget()
		kit.Equal(t, room.Held.Load(), 0, what)
		s.deliver(encodeFrame(kindEvent, s.got+1, []byte("later")))
		kit.Equal(t, room.Held.Load(), 0, what, "after its end")
	}
}

func TestABodyHasABound(t *testing.T) {
	var to, from *stream
	room := &bound.Budget{Most: 2 * largest}
	from = newStream("the peer", room, func(b []byte) error { to.deliver(b); return nil })
	to = newStream("the peer", room, func(b []byte) error { from.deliver(b); return nil })
	sent := make(chan error, 1)
	go func() { sent <- from.send(t.Context(), kindEvent, make([]byte, largest+1)) }()
	_, err := to.message(t.Context(), nil)
	kit.Refused(t, err, tool.CodeProtocol, "a message of more than 134217728 bytes")
	to.end(err)
	_ = kit.Receive(t, "the end of the other end", sent)
}

// What a stream has used counts no more in the budget: files and messages of any length pass.
func TestUsedBytesAreFree(t *testing.T) {
	room := &bound.Budget{Most: 5 * chunk, Full: errors.New("full")}
	var sent uint32
	s := newStream("the peer", room, func([]byte) error { return nil })
	send := func(k kind, n int) {
		sent++
		s.deliver(encodeFrame(k, sent, make([]byte, n)))
	}
	file := 0
	for range 3 {
		for range 10 {
			send(kindFile, chunk)
			send(kindFile, chunk)
			send(kindEvent, 1)
			kit.Must(s.message(t.Context(), func(b []byte) error { file += len(b); return nil }))(t)
		}
		send(kindPart, chunk)
		send(kindFile, chunk)
		send(kindPart, chunk)
		send(kindEvent, 1)
		f := kit.Must(s.message(t.Context(), func([]byte) error { return nil }))(t)
		kit.Equal(t, len(f.body), 2*chunk+1)
		kit.Equal(t, room.Held.Load(), 2*chunk+1, "a message that is in use")
	}
	kit.Equal(t, file, 60*chunk)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	kit.Refused(t, kit.Err(s.message(ctx, nil)), tool.CodeCancelled, "")
	kit.Equal(t, room.Held.Load(), 0)
}

// hostile lets a worker join that answers each stream as a test wants, after it got the first frame.
func (f *fleetTest) hostile(name string, answer func(put func(k kind, number uint32, body []byte))) *membership.Pass {
	f.t.Helper()
	p := f.join(name, member.Worker)
	nc := kit.Must(raw(f.t, f.hub, p))(f.t)
	b := block(name, tool.Effects{Reads: true})
	l := kit.Must(newList(b.Offers(f.t.Context())))(f.t)
	_ = kit.Must(nc.Subscribe(subjectNode+p.ID, func(m *nats.Msg) {
		put := func(k kind, number uint32, body []byte) {
			_ = nc.Publish(m.Reply, encodeFrame(k, number, body)) // the test may have ended
		}
		switch kind(m.Data[0]) {
		case kindList:
			put(kindResult, 1, l.packed)
		case kindCall, kindOrder:
			answer(put)
		}
	}))(f.t)
	f.announce(nc, announcement{ID: p.ID, Run: name, Link: linkVersion, Digest: l.digest, Places: 1})
	kit.Eventually(f.t, "the hub knows the tools of "+name, func() bool { return f.has(name) })
	return p
}

// announce announces a node until the test ends.
func (f *fleetTest) announce(nc *nats.Conn, a announcement) {
	body := kit.Must(strictjson.Marshal(a))(f.t)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for first := true; first || tool.Sleep(ctx, announceEvery); first = false {
			_ = nc.Publish(subjectUp+a.ID, body)
		}
	}()
	f.t.Cleanup(func() { stop(); <-done })
}

// A node that has lost its connection sends no outcome of the calls that came by it, and the hub may not have noticed the loss.
func TestCallsOfAnEarlierConnectionEnd(t *testing.T) {
	f, began, outcome := open(t), make(chan bool, 1), make(chan error, 1)
	p := f.hostile("again", func(func(kind, uint32, []byte)) { began <- true })
	go func() { outcome <- kit.Err(f.call(t.Context(), "wait", `{}`)) }()
	kit.Receive(t, "the call", began)
	nc := kit.Must(raw(t, f.hub, p))(t)
	f.announce(nc, announcement{ID: p.ID, Run: "again", Link: linkVersion, Places: 1})
	kit.Refused(t, kit.Receive(t, "the outcome", outcome), tool.CodeUnavailable, "whether the call had an effect is not known")
}

// If nobody reads what a hub sends on a stream, the call was not begun, unless its node has sent something before.
func TestACallOfWhichAnythingCameIsInDoubt(t *testing.T) {
	for name, events := range map[string]int{"silent": 0, "heard": 1} {
		f, began, outcome := open(t), make(chan bool, 1), make(chan error, 1)
		f.hostile(name, func(put func(kind, uint32, []byte)) {
			if events > 0 {
				put(kindEvent, 1, kit.Must(packed.Write(&event{Kind: tool.KindLog}, []byte(`{}`)))(t))
			}
			began <- true
		})
		go func() { outcome <- kit.Err(f.call(t.Context(), "wait", `{}`)) }()
		kit.Receive(t, "the call", began)
		h := f.hub.hub
		kit.Eventually(t, "the event comes", func() bool {
			h.mu.Lock()
			defer h.mu.Unlock()
			for _, s := range h.streams {
				return s.heard() == (events > 0)
			}
			return false
		})
		h.mu.Lock()
		subjects := slices.Collect(maps.Keys(h.streams))
		h.mu.Unlock()
		for _, s := range subjects {
			h.answered(&nats.Msg{Subject: s, Header: nats.Header{"Status": {"503"}}})
		}
		kit.Equal(t, tool.NotRun(kit.Receive(t, "the outcome", outcome)), events == 0, name)
	}
}

// A node whose messages belong to no call is cut off, and not admitted for a while. Its hub has time for the others.
func TestANodeThatFloodsItsHubIsCutOff(t *testing.T) {
	f := open(t)
	honest := block("honest", tool.Effects{Reads: true})
	close(honest.leave)
	f.work("honest", honest)
	for what, flood := range map[string]func(nc *nats.Conn, id string) error{
		"strays": func(nc *nats.Conn, id string) error {
			return nc.Publish(subjectStreams+f.hub.pass.ID+"."+id+".none", encodeFrame(kindEvent, 1, make([]byte, 1000)))
		},
		"announcements": func(nc *nats.Conn, id string) error { return nc.Publish(subjectUp+id, []byte(`{}`)) },
	} {
		p := f.join(what, member.Worker)
		nc := kit.Must(raw(t, f.hub, p))(t)
		for n := 0; nc.IsConnected(); n++ {
			if _ = flood(nc, p.ID); n > 1e6 {
				t.Fatal("a million messages, and the node is not cut off:", what)
			}
		}
		err := kit.Err(raw(t, f.hub, p))
		kit.Equal(t, err != nil && !errors.Is(err, nats.ErrAuthorization), true, what, "not admitted, and not refused for good", err)
		kit.Equal(t, string(kit.Must(f.call(t.Context(), "wait", `{}`))(t).Output), `"honest"`, what)
	}
	kit.Equal(t, f.hub.hub.knows(f.peer("honest").ID), true)
}

// What a node sends after the end of a call is of no use, however long the hub keeps the call because its caller does not read.
func TestAFloodOfACallThatHasEndedIsOne(t *testing.T) {
	for what, k := range map[string]kind{"events": kindEvent, "ends": kindEnd, "no responders": 0} {
		f, puts, leave := open(t), make(chan func(kind, uint32, []byte), 1), make(chan bool)
		f.hostile("flood", func(put func(kind, uint32, []byte)) { puts <- put })
		barred := make(chan bool, 9) // again in the next second
		f.hub.hub.bar = func(string) {
			select {
			case barred <- true:
			default:
			}
		}
		spec, ended := kit.Must(f.source().Tools(t.Context()))(t)[0], make(chan error)
		go func() {
			_, err := f.source().Invoke(t.Context(), &tool.Call{ID: tool.NewID(), Tool: "wait", Spec: spec, Args: []byte(`{}`)},
				tool.SinkFunc(func(tool.Event) error { <-leave; return nil }))
			ended <- err
		}()
		put := kit.Receive(t, "the call", puts)
		put(kindEvent, 1, kit.Must(packed.Write(&event{Kind: tool.KindLog}, []byte(`{}`)))(t))
		put(kindEnd, 0, encodeError(errors.New("x")))
		f.hub.hub.mu.Lock()
		subject := slices.Collect(maps.Keys(f.hub.hub.streams))[0]
		f.hub.hub.mu.Unlock()
		for n := uint32(2); n < 20*mostStray; n++ {
			if k == 0 {
				f.hub.hub.answered(&nats.Msg{Subject: subject, Header: nats.Header{"Status": {"503"}}})
			} else {
				put(k, n, encodeError(errors.New("x")))
			}
		}
		kit.Receive(t, "the hub bars the node, for "+what, barred)
		close(leave)
		kit.Equal(t, kit.Receive(t, "the end of the call", ended) != nil, true)
	}
}

// Messages of calls that the hub has just ended do not count as a flood, and neither do messages that it wants.
func TestLateMessagesOfManyCallsAreNoFlood(t *testing.T) {
	f := open(t)
	puts := make(chan func(k kind, number uint32, body []byte), 99)
	f.hostile("late", func(put func(k kind, number uint32, body []byte)) { puts <- put })
	ctx, stop := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	late := make([]func(k kind, number uint32, body []byte), 2*mostStray/window)
	for i := range late {
		calls.Go(func() { _, _ = f.call(ctx, "wait", `{}`) })
		late[i] = kit.Receive(t, "a call", puts)
	}
	stop()
	calls.Wait()
	for _, put := range late {
		for n := range uint32(window) {
			put(kindEvent, n+1, nil)
		}
	}
	go func() {
		kit.Receive(t, "the last call", puts)(kindResult, 1, kit.Must(encodeResult(&tool.Result{OK: true, Output: []byte(`1`)}))(t))
	}()
	kit.Equal(t, string(kit.Must(f.call(t.Context(), "wait", `{}`))(t).Output), `1`)
	f.hub.server.mu.Lock()
	defer f.hub.server.mu.Unlock()
	kit.Equal(t, len(f.hub.server.barred), 0)
}

// Whatever a worker answers, its call has one outcome, and the calls of others are not disturbed.
func TestAWorkerThatBreaksTheRulesEndsItsOwnCallAlone(t *testing.T) {
	result := func(r *tool.Result) []byte { return kit.Must(encodeResult(r))(t) }
	good, bad := kit.Must(packed.Write(&event{Kind: tool.KindLog}, []byte(`{}`)))(t), kit.Must(packed.Write(&event{Kind: tool.KindLog}, []byte(`{`)))(t)
	type answers = func(put func(kind, uint32, []byte))
	f := open(t)
	f.hub.hub.room.Most = 10 * chunk
	var answer atomic.Value
	f.hostile("hostile", func(put func(kind, uint32, []byte)) { answer.Load().(answers)(put) })
	one := func(k kind, body []byte) answers { return func(put func(kind, uint32, []byte)) { put(k, 1, body) } }
	for what, c := range map[string]struct {
		answer answers
		code   tool.Code
		says   string
	}{
		"a result":              {one(kindResult, result(&tool.Result{OK: true, Output: []byte(`1`)})), "", ""},
		"an unknown kind":       {one('?', nil), tool.CodeProtocol, "unknown kind"},
		"a request":             {one(kindCall, good), tool.CodeProtocol, "unknown kind"},
		"no result":             {one(kindResult, nil), tool.CodeProtocol, "cannot be read"},
		"an output that is cut": {one(kindResult, result(&tool.Result{Output: []byte(`{"a":`)})), tool.CodeProtocol, "cannot be read"},
		"more than an output":   {one(kindResult, result(&tool.Result{Output: []byte(`{"a":1} {}`)})), tool.CodeProtocol, "cannot be read"},
		"a bad block": {one(kindResult, result(&tool.Result{Content: &tool.Content{Blocks: []json.RawMessage{[]byte("\xff")}}})),
			tool.CodeProtocol, "cannot be read"},
		"an approval": {one(kindResult, result(&tool.Result{Ask: &tool.Ask{ID: "1", Kind: tool.AskApproval, Awaits: &tool.Awaited{}}})),
			tool.CodeProtocol, "only hubs ask for approvals"},
		"a bad event":         {one(kindEvent, bad), tool.CodeProtocol, "cannot be read"},
		"an error of no kind": {one(kindError, []byte(`{}`)), tool.CodeProtocol, "an error that cannot be read"},
		"a gap": {func(put func(kind, uint32, []byte)) { put(kindEvent, 1, good); put(kindResult, 3, nil) },
			tool.CodeProtocol, "message 3 came in place of message 2"},
		"parts without an end": {func(put func(kind, uint32, []byte)) {
			for i := range uint32(20) {
				put(kindPart, i+1, make([]byte, chunk))
			}
		}, tool.CodeUnavailable, "sends more at once than this hub has room for"},
		"a code of its own": {one(kindError, []byte(`{"code":"made_up","message":"odd"}`)), tool.CodeInternal, "odd"},
		"its end":           {one(kindEnd, encodeError(errors.New("x"))), tool.CodeInternal, "x"},
	} {
		answer.Store(c.answer)
		_, err := f.call(t.Context(), "wait", `{}`)
		kit.Equal(t, tool.CodeOf(err), c.code, what)
		kit.Equal(t, strings.Contains(fmt.Sprint(err), c.says), true, what, err)
		f.hub.hub.mu.Lock()
		kit.Equal(t, len(f.hub.hub.streams), 0, what)
		f.hub.hub.mu.Unlock()
		kit.Equal(t, f.hub.hub.room.Held.Load(), 0, what)
	}
}

// A worker that never answers, and takes nothing, costs a call its time and nothing else.
func TestASlowWorkerCostsNoMoreThanTheTimeOfACall(t *testing.T) {
	f := open(t)
	f.hostile("slow", func(func(kind, uint32, []byte)) {})
	for _, args := range []string{`{}`, `{"text":"` + strings.Repeat("x", 2*window*chunk) + `"}`} {
		ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, err := f.call(ctx, "wait", args)
		kit.Refused(t, err, tool.CodeTimeout, "")
		stop()
	}
}

// A node that is full says so at once, however long the call is, and another one runs it.
func TestAFullNodeDelaysNoCall(t *testing.T) {
	f := open(t)
	full := f.work("full", block("full", tool.Effects{Writes: true}))
	full.host.mu.Lock()
	for i := range maxStreams {
		full.host.streams[fmt.Sprint(i)] = nil
	}
	full.host.mu.Unlock()
	long := `{"text":"` + strings.Repeat("x", 2*window*chunk) + `"}`
	err := kit.Err(f.call(t.Context(), "wait", long))
	kit.Refused(t, err, tool.CodeUnavailable, "the node has 4096 calls and questions already")
	full.host.mu.Lock()
	clear(full.host.streams)
	full.host.mu.Unlock()
	full.host.room.Most = chunk
	kit.Refused(t, kit.Err(f.call(t.Context(), "wait", long)), tool.CodeUnavailable, "than it can hold")
	other := block("other", tool.Effects{Writes: true})
	close(other.leave)
	f.work("other", other)
	for range 9 {
		kit.Equal(t, string(kit.Must(f.call(t.Context(), "wait", long))(t).Output), `"other"`)
	}
	kit.Eventually(t, "nothing is left of the calls", func() bool { return full.host.room.Held.Load() == 0 })
}

func TestDecodersAreTheInverse(t *testing.T) {
	r := &tool.Result{OK: true, Output: []byte(`{"a":1}`), Summary: "s", Content: &tool.Content{Blocks: []json.RawMessage{[]byte(`{}`)}, Structured: true}}
	got, drops, err := decodeResult(kit.Must(encodeResult(r))(t))
	kit.OK(t, err)
	kit.Equal(t, drops, false)
	kit.DeepEqual(t, got, r)
	many := slices.Repeat([][]byte{nil}, packed.MostParts)
	kit.OK(t, kit.Err(packed.Read(kit.Must(packed.Write(1, many...))(t), new(int))))
	kit.Fails(t, kit.Err(packed.Read(kit.Must(packed.Write(1, append(many, nil)...))(t), new(int))), "ends too early", "a message of too many parts")
}

func seeds(f *testing.F, more ...[]byte) {
	r := kit.Must(encodeResult(&tool.Result{OK: true, Output: []byte(`1`), Content: &tool.Content{}}))(f)
	l := kit.Must(newList(reference(f).Offers(f.Context())))(f)
	for _, b := range append(more, nil, []byte("\x02{}"), []byte("\x01"), r, l.packed, bytes.Repeat([]byte{0xff}, 12)) {
		f.Add(b)
	}
}

func FuzzUnpack(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		var r request
		if raw, err := packed.Read(b, &r); err == nil {
			_, _ = r.call(at(raw, 0), at(raw, 1), at(raw, 2))
			kit.Must(packed.Write(&r, raw...))(t)
		}
	})
}

func FuzzDecodeList(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		all, _ := decodeList(b)
		for _, o := range all {
			kit.Equal(t, o.Spec.Name != "" && o.Spec.Source != tool.OwnSource && o.Spec.Aliases == nil && o.digest != "", true)
			kit.OK(t, checkJSON(o.Spec.Input, o.Spec.Output, o.Spec.Extra))
			again := kit.Must(decodeOffer(kit.Must(o.encode())(t)))(t)
			kit.Equal(t, again.digest, o.digest)
		}
	})
}

func FuzzDecodeResult(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, _, err := decodeResult(b); err == nil {
			kit.OK(t, checkJSON(r.Output))
			kit.Must(encodeResult(r))(t)
		}
		_ = emit(&spool.File{}, b, tool.Discard)
		_, _ = decodeTouches(b)
		kit.Equal(t, ended(b) != nil, true)
	})
}

func FuzzFrames(f *testing.F) {
	f.Add(slices.Concat(numbered(kindPart, []byte("a"), []byte("b"))...), uint8(headSize+1))
	f.Add(slices.Concat(numbered(kindTaken, nil, nil, nil)...), uint8(headSize))
	f.Fuzz(func(t *testing.T, b []byte, size uint8) {
		room := &bound.Budget{Most: 1 << 10, Full: errCut}
		s := newStream("the peer", room, func([]byte) error { return nil })
		ctx, stop := context.WithCancel(t.Context())
		stop()
		for frame := range slices.Chunk(b, max(int(size), 1)) {
			s.deliver(frame)
			if size%2 == 0 {
				_, _ = s.message(ctx, func([]byte) error { return nil })
			}
		}
		kit.Equal(t, room.Held.Load() <= room.Most && len(s.in) <= window, true)
		s.forget()
		kit.Equal(t, room.Held.Load(), 0)
	})
}

// closed is a register that lets no node join.
type closed struct{ member.Store }

func (closed) Enrol(_ context.Context, _ string, m member.Member) (member.Member, error) {
	return m, tool.Errorf(tool.CodeAccessDenied, "no")
}

func FuzzJoining(f *testing.F) {
	f.Add([]byte(`{"token":"t","name":"n","key":"k","proof":"","link":1,"role":"hub"}`), "a")
	f.Add([]byte(`{"id":"a","run":"r","link":1,"digest":"d","places":-1}`), "a")
	f.Fuzz(func(t *testing.T, b []byte, id string) {
		n := &Node{env: Env{Register: closed{}, Log: slog.New(slog.DiscardHandler)}}
		n.receive(&nats.Msg{Subject: subjectJoin, Reply: subjectJoined + "1", Data: b})
		h := &hub{roster: roster.New(nil, nil, nil), log: slog.New(slog.DiscardHandler), peers: map[string]*peer{}, heard: map[string]int{}}
		h.announced(&nats.Msg{Subject: subjectUp + id, Data: b})
		kit.Equal(t, len(h.peers), 0, "a node that is no member")
	})
}

// A worker that answers by halves takes at most half of the room of all answers.
func TestOneWorkerHasNotTheRoomOfAll(t *testing.T) {
	f := open(t)
	f.hub.hub.room.Most = 8 * chunk
	f.hostile("hostile", func(put func(kind, uint32, []byte)) {
		for n := range 4 {
			put(kindPart, uint32(n+1), make([]byte, chunk))
		}
	})
	ended := make(chan error, 2)
	for range 2 {
		go func() { ended <- kit.Err(f.call(t.Context(), "wait", `{}`)) }()
	}
	err := kit.Receive(t, "the end of one of the calls", ended)
	kit.Refused(t, err, tool.CodeUnavailable, "the node hostile sends more at once than this hub has room for; call again later")
	kit.Equal(t, f.hub.hub.room.Held.Load() <= 4*chunk, true)
	f.work("honest", reference(t))
}

// A worker may take up a call just after it has lost the connection by which the call came. Its hub knows of no such call, and says
// so.
func TestCallThatItsHubHasForgottenEnds(t *testing.T) {
	f := open(t)
	f.journal()
	b := block("one", tool.Effects{Writes: true})
	b.Handler = tool.HandlerFunc(func(_ context.Context, _ *tool.Call, out tool.Sink) (*tool.Result, error) {
		for range 2 * window {
			if err := out.Emit(tool.Event{Kind: tool.KindLog, Data: []byte(`{}`)}); err != nil {
				return nil, err
			}
		}
		return &tool.Result{OK: true, Output: []byte(`1`)}, nil
	})
	n := f.work("one", b)
	p := f.peer("one")
	reply := f.hub.hub.answers(&p, "forgotten")
	spec := kit.Must(f.source().Tools(t.Context()))(t)[0]
	c := &tool.Call{ID: "c1", Tool: "wait", Spec: spec}
	r := kit.Must(newRequest(c, p.Run, reply, 1, spec.Digest, 0))(t)
	body := kit.Must(packed.Write(&r, []byte(`{}`)))(t)
	n.host.take(uplink{Conn: n.all()[0].nc}, &nats.Msg{Reply: reply, Data: encodeFrame(kindCall, 1, body)})
	kit.Eventually(t, "the tool has ended", func() bool {
		has := kit.Must(n.host.past(t.Context(), n.pass.ID, "c1"))(t)
		return has.State == callEnded && has.Kind == kindResult
	})
	kit.Eventually(t, "its place is free", func() bool { calls, _ := n.host.running(); return calls == 0 })
}

// The client says that a connection has ended when it may have another one, whose calls go on.
func TestLateNewsOfALostConnectionEndsNoCallOfTheNextOne(t *testing.T) {
	f := open(t)
	b := block("one", tool.Effects{Writes: true})
	n := f.work("one", b)
	ended := make(chan error, 1)
	go func() { ended <- f.writes("c1", `{}`) }()
	kit.Receive(t, "the call", b.began)
	nc := n.all()[0].nc
	nc.Opts.DisconnectedErrCB(nc, nil)
	close(b.leave)
	kit.OK(t, kit.Receive(t, "the end of the call at the hub", ended))
}
