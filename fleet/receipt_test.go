package fleet

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"toolpost/engine/member"
	"toolpost/fleet/bound"
	"toolpost/fleet/late"
	"toolpost/fleet/membership"
	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/wire/packed"
	"toolpost/wire/receipt"
	"toolpost/wire/strictjson"
)

// writing makes a call of the tool wait, which may change something, and returns its record as well.
func (f *fleetTest) writing(id, args string) (*tool.Record, *tool.Result, error) {
	spec := kit.Must(f.source().Tools(f.t.Context()))(f.t)[0]
	c := &tool.Call{ID: id, Tool: "wait", Spec: spec, Args: []byte(args)}
	c.Record = &tool.Record{Time: time.Now(), Call: id, Tool: spec.Name, Source: spec.Source, Args: []byte(args)}
	r, err := f.source().Invoke(f.t.Context(), c, tool.Discard)
	c.Record.Outcome, c.Record.Code, _ = tool.OutcomeOf(r, err)
	return c.Record, r, err
}

// read returns a receipt as it is in a record.
func read(t *testing.T, r *tool.Record) (s receipt.Signed, doc receipt.Receipt) {
	t.Helper()
	kit.OK(t, strictjson.Unmarshal(r.Receipt, &s))
	if s.Document != "" {
		kit.OK(t, strictjson.Unmarshal([]byte(s.Document), &doc))
	}
	return s, doc
}

// genuine checks a receipt with nothing but what the page on fleets says about it.
func genuine(t *testing.T, s receipt.Signed, args string) bool {
	raw := kit.Must(base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(s.Key))(t)
	salted := sha256.Sum256([]byte(string(s.Salt) + args))
	return ed25519.Verify(raw[1:33], []byte("toolpost receipt v1\n"+s.Document), s.Signature) &&
		strings.Contains(s.Document, `"arguments":"`+hex.EncodeToString(salted[:])+`"`)
}

// findings returns what is wrong with records, once they are in the log of the hub's store.
func (f *fleetTest) findings(all ...*tool.Record) (found []string) {
	for _, r := range all {
		kit.OK(f.t, f.store.Audit().Append(f.t.Context(), r, true))
	}
	for _, one := range kit.Must(f.store.Audit().Verify(f.t.Context()))(f.t).Findings {
		found = append(found, one.What)
	}
	return found
}

// A node signs what it ran, if that may have changed something, whatever came of it.
func TestANodeSignsWhatItRan(t *testing.T) {
	f := open(t)
	f.journal()
	b := block("one", tool.Effects{Writes: true})
	n := f.work("one", b)
	does := func(r *tool.Result, err error) {
		b.Handler = tool.HandlerFunc(func(_ context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
			c.Record.Walls = "no_network,sandbox"
			for _, by := range []string{"policy", "user", "policy"} {
				kit.OK(t, out.Emit(tool.Event{Kind: tool.KindLog, Blocked: &tool.Blocked{Capability: "network", Target: "a secret", By: by}}))
			}
			return r, err
		})
	}
	began := time.Now()
	does(&tool.Result{OK: true, Output: []byte(`"` + strings.Repeat("x", 3*chunk) + `"`)}, nil)
	const args = "{ \"a\" : 1.0 }"
	ok, _, err := f.writing("c1", args)
	kit.OK(t, err)
	s, doc := read(t, ok)
	kit.Equal(t, s.Wrong, "")
	kit.Equal(t, genuine(t, s, args), true, "a stranger verifies it")
	kit.Equal(t, s.Key, kit.Must(n.key())(t))
	kit.Equal(t, doc.Begin.Before(began.Truncate(0)) || doc.End.Before(doc.Begin) || doc.End.After(time.Now()), false, doc.Begin, doc.End)
	kit.Equal(t, strings.Join([]string{doc.Node, doc.Call, doc.Source, doc.Tool, string(doc.Outcome), doc.Definition}, " "),
		"one c1 std wait ok "+f.source().tool("wait").digest)
	kit.DeepEqual(t, doc.Walls, []string{"no_network", "sandbox"})
	kit.DeepEqual(t, doc.Stopped, []receipt.Stopped{{What: "network", By: "policy", Times: 2}, {What: "network", By: "user", Times: 1}})
	kit.Equal(t, strings.Contains(s.Document, "secret"), false, "what was stopped may be a secret")

	does(nil, tool.Errorf(tool.CodeCrash, "it broke"))
	crash, _, err := f.writing("c2", args)
	kit.Refused(t, err, tool.CodeCrash, "it broke")
	_, doc = read(t, crash)
	kit.Equal(t, string(doc.Outcome)+" "+string(doc.Code), "error crash")
	does(&tool.Result{Failure: &tool.Error{Code: tool.CodeToolError, Message: "no"}}, nil)
	failed, _, err := f.writing("c3", args)
	kit.OK(t, err)
	again, _, err := f.writing("c1", args)
	kit.Refused(t, err, tool.CodeConflict, "has begun on this node before")
	kit.Equal(t, len(f.findings(ok, crash, failed, again)), 0)

	does(nil, tool.BeforeRun(tool.Errorf(tool.CodeAccessDenied, "no")))
	none, _, err := f.writing("c4", args)
	kit.Refused(t, err, tool.CodeAccessDenied, "no")
	kit.Equal(t, string(none.Receipt), "", "it did not run")
	does(&tool.Result{OK: true, Output: []byte(`1`)}, nil)
	bare := &tool.Call{ID: "c5", Tool: "wait", Spec: kit.Must(f.source().Tools(t.Context()))(t)[0], Args: []byte(args)}
	bare.Record = &tool.Record{}
	kit.Must(f.source().Invoke(t.Context(), bare, tool.Discard))(t)
	s, _ = read(t, bare.Record)
	kit.Equal(t, s.Wrong, "")
	kit.Equal(t, string(s.Salt), "", "the record does not have the arguments, and nobody is to guess them")
}

// Reads cost nothing more.
func TestReadsHaveNoReceipt(t *testing.T) {
	for _, effects := range []tool.Effects{{Reads: true}, {Writes: true, Idempotent: true}} {
		f := open(t)
		b := block("one", effects)
		close(b.leave)
		f.work("one", b)
		r, _, err := f.writing("c1", `{}`)
		kit.OK(t, err)
		kit.Equal(t, string(r.Receipt), "")
	}
}

// A liar is a worker that answers calls as a test wants.
type liar struct {
	*membership.Pass
	link   int
	seal   []byte
	offers *toolbox // what it offers; nil means a tool that waits
	frame  []byte   // the last one
	answer func(l *liar, r *request, args []byte, put func(k kind, body []byte))
}

func (l *liar) join(f *fleetTest, name string) {
	l.Pass = f.join(name, member.Worker)
	nc := kit.Must(raw(f.t, f.hub, l.Pass))(f.t)
	if l.offers == nil {
		l.offers = &block(name, tool.Effects{Writes: true}).toolbox
	}
	list := kit.Must(newList(l.offers.Offers(f.t.Context())))(f.t)
	_ = kit.Must(nc.Subscribe(subjectNode+l.ID, func(m *nats.Msg) {
		number := uint32(0)
		put := func(k kind, body []byte) {
			number++
			_ = nc.Publish(m.Reply, encodeFrame(k, number, body)) // the test may have ended
		}
		switch kind(m.Data[0]) {
		case kindList:
			put(kindResult, list.packed)
		case kindCall:
			var r request
			l.frame = m.Data
			args, _ := packed.Read(m.Data[headSize:], &r)
			l.answer(l, &r, args[0], put)
		}
	}))(f.t)
	f.announce(nc, announcement{ID: l.ID, Run: name, Link: cmp.Or(l.link, linkVersion), Digest: list.digest, Places: 1, Seal: l.seal})
	kit.Eventually(f.t, "the hub knows the tools of "+name, func() bool { return f.has(name) })
}

// receipt signs what a test lets the worker say.
func (l *liar) receipt(t *testing.T, r *request, args, answer []byte, say func(*receipt.Receipt)) []byte {
	doc := receipt.Receipt{Node: l.Name, Call: r.Call, Attempt: r.Attempt, Source: r.Source, Tool: r.Tool, Definition: r.Digest, Outcome: tool.OutcomeOK}
	if say != nil {
		say(&doc)
	}
	return kit.Must(receipt.Sign(&doc, args, [][]byte{{byte(kindResult)}, answer}, func(b []byte) (string, []byte, error) {
		signature, err := l.Sign(b)
		return kit.Must(l.Public())(t), signature, err
	}))(t)
}

// Whatever a worker says of a call, its outcome is that of the call, and the record says what is wrong with its receipt.
func TestABadReceiptIsRecordedAsSuch(t *testing.T) {
	log := &kit.Buffer{}
	f := open(t, slog.New(slog.NewTextHandler(log, nil)))
	answer := kit.Must(encodeResult(&tool.Result{OK: true, Output: []byte(`"done"`)}))(t)
	other := kit.Must(encodeResult(&tool.Result{OK: true, Output: []byte(`"undone"`)}))(t)
	says := func(say func(*receipt.Receipt)) func(*liar, *request, []byte) []byte {
		return func(l *liar, r *request, args []byte) []byte { return l.receipt(t, r, args, answer, say) }
	}
	var first []byte // the receipt of another call
	stranger := f.join("stranger", member.Worker)
	l := &liar{}
	var sends func(*liar, *request, []byte) []byte
	l.answer = func(l *liar, r *request, args []byte, put func(kind, []byte)) {
		if b := sends(l, r, args); b != nil {
			put(kindReceipt, b)
		}
		put(kindResult, answer)
	}
	l.join(f, "liar")
	for n, c := range []struct {
		sends func(*liar, *request, []byte) []byte
		wrong string
	}{
		{func(l *liar, r *request, args []byte) []byte {
			first = l.receipt(t, r, args, answer, nil)
			return first
		}, ""},
		{func(*liar, *request, []byte) []byte { return nil }, "its node has sent none"},
		{func(*liar, *request, []byte) []byte { return first }, `it says call "c0", and it should say "c2"`},
		{func(l *liar, r *request, args []byte) []byte { return l.receipt(t, r, args, other, nil) }, `it says answer "`},
		{func(l *liar, r *request, _ []byte) []byte { return l.receipt(t, r, []byte(`{}`), answer, nil) }, `it says arguments "`},
		{func(_ *liar, r *request, args []byte) []byte {
			own := &liar{Pass: stranger}
			own.Name = "liar"
			return own.receipt(t, r, args, answer, nil)
		}, "its key is not that of its node"},
		{func(l *liar, r *request, args []byte) []byte {
			s := kit.Must(receipt.Read(l.receipt(t, r, args, answer, nil)))(t)
			s.Signature[0] ^= 1
			return kit.Must(strictjson.Marshal(&s))(t)
		}, "its signature is not that of its key"},
		{func(*liar, *request, []byte) []byte { return []byte(`{"document":`) }, "JSON"},
		{func(*liar, *request, []byte) []byte { return make([]byte, chunk) }, "it has more than 8192 bytes"},
		{says(func(r *receipt.Receipt) { r.Attempt++ }), "it is of attempt 2, and it should be of attempt 1"},
		{says(func(r *receipt.Receipt) { r.Definition = "other" }), `it says definition "other"`},
		{says(func(r *receipt.Receipt) { r.Node = "one" }), `it says node "one", and it should say "liar"`},
		{says(func(r *receipt.Receipt) { r.Tool = "erase" }), `it says tool "erase", and it should say "wait"`},
		{says(func(r *receipt.Receipt) { r.Source = "other" }), `it says source "other", and it should say "std"`},
		{says(func(r *receipt.Receipt) { r.Outcome = tool.OutcomeFailed }), `it says outcome "failed", and it should say "ok"`},
	} {
		sends = c.sends
		id := "c" + string("0123456789abcdefgh"[n])
		rec, r, err := f.writing(id, `{"n":1}`)
		kit.OK(t, err, n)
		kit.Equal(t, string(r.Output), `"done"`, n)
		s, _ := read(t, rec)
		kit.Equal(t, s.Wrong == "", c.wrong == "", n, s.Wrong)
		kit.Contains(t, s.Wrong, c.wrong, n)
		kit.Equal(t, strings.Contains(log.String(), "the receipt of a call is wrong; its record says so\" node=liar call="+id+" "), c.wrong != "", n)
		kit.Equal(t, len(f.findings(rec)), n, "every one but the first is found")
	}
}

// A worker that ends a call by ending its stream has sent no receipt either.
func TestACallWhoseStreamItsWorkerEndsHasNoReceipt(t *testing.T) {
	for what, c := range map[string]struct {
		err   error
		wrong bool
	}{
		"an error":            {tool.Errorf(tool.CodeCrash, "it broke"), true},
		"a refusal":           {tool.Errorf(tool.CodeAccessDenied, "no"), true},
		"a refusal before it": {tool.BeforeRun(tool.Errorf(tool.CodeAccessDenied, "no")), false},
	} {
		f := open(t)
		l := &liar{answer: func(_ *liar, _ *request, _ []byte, put func(kind, []byte)) {
			put(kindEnd, encodeError(c.err))
		}}
		l.join(f, "liar")
		rec, _, err := f.writing("c1", `{}`)
		kit.Refused(t, err, tool.CodeOf(c.err), tool.AsError(c.err).Message, what)
		kit.Equal(t, strings.Contains(string(rec.Receipt), "its node has sent none"), c.wrong, what)
		kit.Equal(t, len(f.findings(rec)) == 1, c.wrong, what)
	}
}

// A receipt stays in memory until its call ends, and the budget of the hub does not count it: there is one, for calls alone, of which
// the hub keeps little.
func TestReceiptsTakeLittleMemory(t *testing.T) {
	one := []frame{{kindPart, make([]byte, chunk)}, {kindReceipt, []byte("x")}}
	for what, c := range map[string]struct {
		k      kind
		frames []frame
		fails  bool
	}{
		"a call":     {kindCall, one, false},
		"two":        {kindCall, slices.Concat(one, one), true},
		"of a list":  {kindList, one, true},
		"an order's": {kindOrder, one, true},
	} {
		s := newStream("the peer", &bound.Budget{Most: largest}, func([]byte) error { return nil })
		for i, f := range append(slices.Clone(c.frames), frame{kindResult, nil}) {
			s.deliver(encodeFrame(f.kind, uint32(i)+1, f.body))
		}
		_, err := s.exchange(t.Context(), c.k, nil, tool.Discard)
		if kit.Equal(t, cap(s.receipt) < 2*receipt.Most, true, what, cap(s.receipt)); c.fails {
			kit.Refused(t, err, tool.CodeProtocol, "the unknown kind 's'", what)
			continue
		}
		kit.OK(t, err, what)
	}
}

// A node of the version before signs nothing, and no record says that it should.
func TestANodeOfTheVersionBeforeHasNoReceipts(t *testing.T) {
	f := open(t)
	l := &liar{link: linkVersion - 1, answer: func(_ *liar, _ *request, _ []byte, put func(kind, []byte)) {
		put(kindResult, kit.Must(encodeResult(&tool.Result{OK: true, Output: []byte(`1`)}))(t))
	}}
	l.join(f, "old")
	rec, _, err := f.writing("c1", `{}`)
	kit.OK(t, err)
	kit.Equal(t, string(rec.Receipt), "")
	kit.Equal(t, len(f.findings(rec)), 0)
}

// A hub of the version before asks for no receipt, and gets a stream as it knows it.
func TestAHubOfTheVersionBeforeGetsNoReceipt(t *testing.T) {
	f := open(t)
	b := block("one", tool.Effects{Writes: true})
	close(b.leave)
	n := f.work("one", b)
	got := make(chan kind, 9)
	reply := subjectStreams + "old." + n.pass.ID + ".s"
	nc := &connectionTo{publish: func(data []byte) { got <- kind(data[0]) }}
	spec := kit.Must(f.source().Tools(t.Context()))(t)[0]
	r := kit.Must(newRequest(&tool.Call{ID: "c1", Tool: "wait", Spec: spec}, n.host.run, reply, 1, spec.Digest, 0))(t)
	kit.Equal(t, r.Receipt, 1)
	r.Receipt = 0
	n.host.take(nc, &nats.Msg{Reply: reply, Data: encodeFrame(kindCall, 1, kit.Must(packed.Write(&r, []byte(`{}`)))(t))})
	kit.Equal(t, kit.Receive(t, "its only frame", got), kindResult)
}

type connectionTo struct{ publish func([]byte) }

func (c *connectionTo) Publish(_ string, data []byte) error           { c.publish(data); return nil }
func (c *connectionTo) PublishRequest(_, _ string, data []byte) error { c.publish(data); return nil }

// A call that began before its node got a new key, or before its node was evicted, is proven by the key that the node had.
func TestReceiptsOutliveTheirKeys(t *testing.T) {
	f := open(t)
	b := block("one", tool.Effects{Writes: true})
	n := f.work("one", b)
	old := kit.Must(n.key())(t)
	ended := make(chan *tool.Record)
	go func() {
		r, _, err := f.writing("c1", `{}`)
		kit.Check(t, err)
		ended <- r
	}()
	kit.Receive(t, "the call", b.began)
	var learnt atomic.Bool
	pass, now := *n.env.Pass, n.host.attest
	n.host.attest = func(of []byte) (string, []byte, error) { // as if the node had not learnt of its new key yet
		if learnt.Swap(true) {
			return now(of)
		}
		signature, err := pass.Sign(of)
		return old, signature, err
	}
	kit.EqualSlices(t, kit.Must(f.hub.Rotate(t.Context()))(t), nil)
	close(b.leave)
	first := kit.Receive(t, "its end", ended)
	s, _ := read(t, first)
	kit.Equal(t, s.Key+s.Wrong, old)
	second, _, err := f.writing("c2", `{}`)
	kit.OK(t, err)
	s, _ = read(t, second)
	kit.Equal(t, s.Key != old && s.Wrong == "", true, s)

	var again rotated // by another hub, a moment ago
	kit.OK(t, strictjson.Unmarshal(kit.Must(n.makeKey())(t), &again))
	kit.OK(t, f.store.Fleet().SetKey(t.Context(), n.pass.ID, again.Old, again.Key))
	kit.OK(t, n.useKey())
	third, _, err := f.writing("c3", `{}`)
	kit.OK(t, err)
	s, _ = read(t, third)
	kit.Equal(t, s.Key+s.Wrong, again.Key)
	kit.OK(t, f.hub.Evict(t.Context(), "one"))
	kit.Equal(t, len(f.findings(first, second, third)), 0)
	var held int
	for _, m := range kit.Must(f.store.Fleet().Members(t.Context()))(t) {
		if m.Name == "one" {
			held = len(m.Keys)
		}
	}
	kit.Equal(t, held, 3)
}

// An outcome that comes late has its receipt with it, also one that was too large to be kept.
func TestALateOutcomeHasItsReceipt(t *testing.T) {
	for _, large := range []bool{false, true} {
		f := open(t)
		f.journal()
		b := block("one", tool.Effects{Writes: true})
		if large {
			wait := b.Handler
			b.Handler = tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
				_, err := wait.Invoke(ctx, c, out)
				return &tool.Result{OK: true, Output: []byte(`"` + strings.Repeat("x", mostKept) + `"`)}, err
			})
		}
		n := f.work("one", b)
		ended := make(chan *tool.Record, 1)
		go func() { r, _, _ := f.writing("c1", `{}`); ended <- r }()
		kit.Receive(t, "the call", b.began)
		f.cut(n.pass.ID)
		kit.Equal(t, string(kit.Receive(t, "the end of the call at the hub", ended).Receipt), "", "nothing is known of it")
		close(b.leave)
		late := kit.Receive(t, "the outcome for the record", f.late)
		s, doc := read(t, late)
		kit.Equal(t, s.Wrong, "")
		kit.Equal(t, doc.Call+" "+string(doc.Outcome), "c1 ok")
		kit.Equal(t, late.Outcome == tool.OutcomeOK, !large)
		kit.Equal(t, len(f.findings(late)), 0)
	}
}

// A worker makes up no late outcome: the receipt is of what it ran, and one without it is noted.
func TestALateOutcomeThatWasAlteredIsFound(t *testing.T) {
	f := open(t)
	f.journal()
	b := block("one", tool.Effects{Writes: true})
	close(b.leave)
	n := f.work("one", b)
	rec, _, err := f.writing("c1", `{}`)
	kit.OK(t, err)
	kept := kit.Must(n.host.past(t.Context(), n.pass.ID, "c1"))(t)
	spec := kit.Must(f.source().Tools(t.Context()))(t)[0]
	spec.Digest = "of the definition that its node has had since"
	for wrong, alter := range map[string]func(*past){
		"":                       func(*past) {},
		"its node has sent none": func(p *past) { p.Receipt = nil },
		"it says answer":         func(p *past) { p.Body = kit.Must(encodeResult(&tool.Result{OK: true, Output: []byte(`"x"`)}))(t) },
	} {
		p := kept
		p.Receipt, p.Body = slices.Clone(kept.Receipt), slices.Clone(kept.Body)
		alter(&p)
		kit.OK(t, f.hub.host.journal.Settle(t.Context(), page(pageRow, "c1"), nil, 0)) // it has no row yet
		kit.Equal(t, f.hub.late(t.Context(), &late.Call{Of: *rec}, spec, "one", p), true)
		s, _ := read(t, kit.Receive(t, "the row", f.late))
		kit.Equal(t, (s.Wrong == "") == (wrong == "") && strings.HasPrefix(s.Wrong, wrong), true, s.Wrong)
	}
}
