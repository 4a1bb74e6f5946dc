package jsonrpc

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"toolpost/internal/kit"
	"toolpost/wire/strictjson"
)

// lines reads from a pipe without limits.
type lines struct{ *bufio.Scanner }

func (l lines) Next() ([]byte, error) {
	if !l.Scan() {
		return nil, io.EOF
	}
	return l.Bytes(), nil
}

// odds keeps the messages that could not be used.
type odds struct {
	mu  sync.Mutex
	all []string
}

func (o *odds) hear(_ *Message, line []byte, why error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = append(o.all, fmt.Sprintf("%s: %v", line, why))
}

// pair connects two ends, which read until the test ends.
func pair(t *testing.T, a, b Options) (*Conn, *Conn) {
	t.Helper()
	aIn, bOut := io.Pipe()
	bIn, aOut := io.Pipe()
	end := func(o Options, out *io.PipeWriter, in io.Reader) *Conn {
		o.Writer = NewStream(out, func(error) {})
		if o.Unusable == nil {
			o.Unusable = func(_ *Message, line []byte, why error) { t.Errorf("%s: %v", line, why) }
		}
		if o.Take == nil {
			o.Take = func(in *Incoming) error { t.Errorf("%s is asked", in.Method); return nil }
		}
		c := NewConn(o)
		var reading sync.WaitGroup
		reading.Go(func() { _ = c.Read(context.Background(), lines{bufio.NewScanner(in)}) })
		t.Cleanup(func() { _ = out.Close(); reading.Wait() })
		return c
	}
	// Both writers are closed before waiting for either reader.
	x, y := end(a, aOut, aIn), end(b, bOut, bIn)
	t.Cleanup(func() { _ = aOut.Close(); _ = bOut.Close() })
	return x, y
}

func TestBothSidesAskAtOnceInIdsOfTheirOwn(t *testing.T) {
	var a, b *Conn
	ready := make(chan struct{})
	echo := func(c **Conn) func(*Incoming) error {
		return func(in *Incoming) error {
			go func() { <-ready; (*c).Reply(context.Background(), in, in.Params, nil) }()
			return nil
		}
	}
	a, b = pair(t, Options{Take: echo(&a)}, Options{Take: echo(&b)})
	close(ready)
	var all sync.WaitGroup
	for n := range 200 {
		for _, c := range []*Conn{a, b} {
			all.Go(func() {
				want := fmt.Sprintf(`{"n":%d}`, n)
				kit.Equal(t, string(kit.Must(c.Ask(t.Context(), "echo", []byte(want), nil))(t)), want)
			})
		}
	}
	all.Wait()
}

// Everything received before the answer is served, by the goroutine that waits for it, before the answer is returned.
func TestMessagesOfARequestAreServedBeforeItsAnswer(t *testing.T) {
	var b *Conn
	var served []string
	a, b := pair(t, Options{
		Names: func(in *Incoming) uint64 {
			var p struct {
				Of uint64 `json:"of"`
			}
			_ = strictjson.Unmarshal(in.Params, &p)
			return p.Of
		},
		Serve: func(_ context.Context, in *Incoming, r *Request) {
			served = append(served, fmt.Sprint(r.Tag, " ", in.Method)) // only the asking goroutine calls this
		},
	}, Options{Take: func(in *Incoming) error {
		for n := range 9 {
			_ = b.Send(t.Context(), EncodeNotification(fmt.Sprintf("progress/%d", n), []byte(`{"of":1}`)))
		}
		b.Reply(context.Background(), in, []byte(`"done"`), nil)
		return nil
	}})
	kit.Equal(t, string(kit.Must(a.Ask(t.Context(), "work", nil, "mine"))(t)), `"done"`)
	if len(served) != 9 || served[8] != "mine progress/8" {
		t.Errorf("served %q", served)
	}
}

func TestUnaddressedMessageBelongsToNoneOfSeveralRequests(t *testing.T) {
	var b *Conn
	asked, stray := make(chan *Incoming, 2), make(chan string, 1)
	a, b := pair(t, Options{
		Names: func(*Incoming) uint64 { return 0 },
		Serve: func(_ context.Context, in *Incoming, r *Request) { t.Errorf("%s is served for %v", in.Method, r.Tag) },
		Take:  func(in *Incoming) error { stray <- in.Method; return nil },
	}, Options{Take: func(in *Incoming) error { asked <- in; return nil }})
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() { _, _ = a.Ask(t.Context(), "work", nil, nil) })
	}
	first, second := <-asked, <-asked
	_ = b.Send(t.Context(), EncodeNotification("log", nil))
	kit.Equal(t, <-stray, "log")
	b.Reply(t.Context(), first, []byte(`1`), nil)
	b.Reply(t.Context(), second, []byte(`2`), nil)
	all.Wait()
}

func TestCancelledRequestIsAbandonedAndAnsweredLate(t *testing.T) {
	var heard []string
	var mu sync.Mutex
	note := func(what string) func(*Request) {
		return func(r *Request) {
			mu.Lock()
			defer mu.Unlock()
			heard = append(heard, fmt.Sprint(what, " ", r.ID, " ", r.Abandoned()))
		}
	}
	asked := make(chan *Incoming, 1)
	a, b := pair(t,
		Options{Abandoned: note("abandoned"), Answered: note("answered")},
		Options{Take: func(in *Incoming) error { asked <- in; return nil }})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { asked <- <-asked; cancel() }()
	if _, err := a.Ask(ctx, "slow", nil, nil); !errors.Is(err, ErrAbandoned) {
		t.Errorf("got %v", err)
	}
	if n, left := a.Pending(); n != 1 || len(left) != 1 || left[0].Method != "slow" || a.Only() != nil {
		t.Errorf("%d are on their way, %v are abandoned", n, left)
	}
	go func() { b.Reply(context.Background(), <-asked, []byte(`1`), nil) }()
	kit.Eventually(t, "nothing is pending", func() bool {
		n, _ := a.Pending()
		return n == 0
	})
	mu.Lock()
	defer mu.Unlock()
	kit.EqualSlices(t, heard, []string{"abandoned 1 true", "answered 1 true"}, "heard")
}

func TestAnEndedConnectionAnswersItsRequestsAndSendsNoMore(t *testing.T) {
	asked := make(chan *Incoming, 1)
	a, _ := pair(t, Options{}, Options{Take: func(in *Incoming) error { asked <- in; return nil }})
	why := errors.New("it crashed")
	go func() { <-asked; a.Retire(); a.End(why); a.End(errors.New("too late")) }()
	if _, err := a.Ask(t.Context(), "work", nil, nil); err != why {
		t.Errorf("got %v", err)
	}
	if _, err := a.Ask(t.Context(), "work", nil, nil); !errors.Is(err, ErrUnsent) {
		t.Errorf("after the end: %v", err)
	}
}

func TestLinesThatCannotBeUsedAreReportedAndHarmNothing(t *testing.T) {
	var o odds
	taken := 0
	c := NewConn(Options{Writer: NewStream(io.Discard, nil), Unusable: o.hear, Take: func(*Incoming) error { taken++; return nil }})
	in := strings.Join([]string{
		`nonsense`, ``, `[1]`, `{"id":1}`, `{"id":7,"result":1}`, `{"id":null,"error":{}}`, `{"method":5}`, `{"jsonrpc":"1.0","method":"m"}`,
		`{"id":true,"method":"m"}`, `{"id":1,"method":"m","params":[]}`, `{"id":1,"id":2,"method":"m"}`, `{"id":"x","method":"m"}`, `{"method":"m","params":{}}`,
	}, "\n")
	if err := c.Read(t.Context(), lines{bufio.NewScanner(strings.NewReader(in))}); err != io.EOF || taken != 2 || len(o.all) != 10 {
		t.Errorf("%v, %d taken, %d unusable: %q", err, taken, len(o.all), o.all)
	}
}

func TestAnAnswerThatIsNotJSONEndsItsRequest(t *testing.T) {
	var b *Conn
	a, b := pair(t, Options{}, Options{Take: func(*Incoming) error {
		return b.Send(t.Context(), []byte(`{"jsonrpc":"2.0","id":1,"result":{"a":1,"a":2}}`+"\n"))
	}})
	_, err := a.Ask(t.Context(), "work", nil, nil)
	if invalid := (*InvalidError)(nil); !errors.As(err, &invalid) || !strings.Contains(err.Error(), "not valid") {
		t.Errorf("got %v", err)
	}
}

func TestAnErrorOfTheOtherSideIsAnError(t *testing.T) {
	var b *Conn
	a, b := pair(t, Options{}, Options{Take: func(in *Incoming) error {
		b.Reply(context.Background(), in, nil, &Error{Code: -32000, Message: "no \xff", Data: json.RawMessage(`{"a":1}`)})
		return nil
	}})
	_, err := a.Ask(t.Context(), "work", nil, nil)
	if said := (*Error)(nil); !errors.As(err, &said) || said.Code != -32000 || said.Message != "no \uFFFD" || string(said.Data) != `{"a":1}` {
		t.Errorf("got %v", err)
	}
}

func TestReadEndsWithItsContext(t *testing.T) {
	r, w := io.Pipe()
	defer w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := NewConn(Options{Writer: NewStream(io.Discard, nil)})
	kit.Equal(t, c.Read(ctx, lines{bufio.NewScanner(r)}), context.Canceled)
}

// Messages beyond the bound of a waiting request are refused, and the rest is served.
func TestPendingMessagesOfARequestAreBounded(t *testing.T) {
	var told bytes.Buffer
	c := NewConn(Options{
		Writer: NewStream(&told, nil), Names: func(*Incoming) uint64 { return 1 }, Go: func(f func()) { f() },
		Unusable: func(_ *Message, line []byte, why error) { t.Errorf("%s: %v", line, why) },
		Take:     func(in *Incoming) error { t.Errorf("%s belongs to nothing", in.Method); return nil },
		Serve:    func(context.Context, *Incoming, *Request) {},
	})
	r := kit.Must(c.enter("work", nil))(t)
	var scan strictjson.Scanner
	for n := range maxAsked + 1 {
		kit.OK(t, c.Hear(&scan, fmt.Appendf(nil, `{"id":%d,"method":"m"}`, n), 0))
	}
	if len(r.asked) != maxAsked || !strings.Contains(told.String(), fmt.Sprintf(`"id":%d,"error":{"code":-32000,"message":"m: too many calls at once`, maxAsked)) {
		t.Errorf("%d wait; told %s", len(r.asked), told.String())
	}
}

// hears returns a connection whose messages come by Hear, as over HTTP: each request is sent separately.
func hears(t *testing.T, o Options) (*Conn, func(of uint64, text string)) {
	t.Helper()
	o.Unusable = func(_ *Message, line []byte, why error) { t.Errorf("%s: %v", line, why) }
	c := NewConn(o)
	return c, func(of uint64, text string) {
		t.Helper()
		kit.Check(t, c.Hear(new(strictjson.Scanner), []byte(text), of), text)
	}
}

// query returns a request that has its id in its params, and reports on sent that it was sent.
func query(tag any, sent chan<- uint64) Query {
	return Query{
		Method: "do", Tag: tag, Params: func(id uint64) []byte { return fmt.Appendf(nil, `{"id":%d}`, id) },
		Send: func(_ context.Context, id uint64, line []byte) error {
			if want := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"do","params":{"id":%d}}`+"\n", id, id); string(line) != want {
				return fmt.Errorf("it is sent as %s", line)
			}
			sent <- id
			return nil
		},
	}
}

func TestPutReturnsTheHeardAnswer(t *testing.T) {
	c, hear := hears(t, Options{})
	sent := make(chan uint64, 1)
	go func() {
		id := <-sent
		if !c.Waits(id) || c.Waits(id+1) {
			t.Error("nobody waits for it")
		}
		hear(id, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":7}`, id))
		c.Fail(id, io.EOF) // it was already answered
	}()
	kit.Equal(t, string(kit.Must(c.Put(t.Context(), query(nil, sent)))(t)), "7")
	go func() { c.Fail(<-sent, io.EOF) }()
	if raw, err := c.Put(t.Context(), query(nil, sent)); !errors.Is(err, io.EOF) {
		t.Errorf("%s, %v", raw, err)
	}
	failing := query(nil, sent)
	failing.Send = func(context.Context, uint64, []byte) error { return io.ErrClosedPipe }
	if _, err := c.Put(t.Context(), failing); !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
	if n, _ := c.Pending(); n != 0 {
		t.Errorf("%d are on their way", n)
	}
}

func TestUrgentMessageIsHeardFirst(t *testing.T) {
	var early, late []string
	_, hear := hears(t, Options{
		Early: func(in *Incoming) bool { early = append(early, in.Method); return in.Method == "now" },
		Take:  func(in *Incoming) error { late = append(late, in.Method); return nil },
	})
	hear(0, `{"jsonrpc":"2.0","method":"now"}`)
	hear(0, `{"jsonrpc":"2.0","method":"then"}`)
	if !slices.Equal(early, []string{"now", "then"}) || !slices.Equal(late, []string{"then"}) {
		t.Errorf("early %q, late %q", early, late)
	}
}

func TestUnaddressedMessageGoesToTheOwningRequest(t *testing.T) {
	served := make(chan any, 4)
	var stray []string
	c, hear := hears(t, Options{
		Names: func(*Incoming) uint64 { return 0 },
		Owns:  func(r *Request) bool { return r.Tag != "paused" },
		Serve: func(_ context.Context, _ *Incoming, r *Request) { served <- r.Tag },
		Take:  func(in *Incoming) error { stray = append(stray, in.Method); return nil },
	})
	sent := make(chan uint64, 1)
	var asking sync.WaitGroup
	var ids []uint64
	for _, tag := range []string{"paused", "runs"} {
		asking.Go(func() { _, _ = c.Put(t.Context(), query(tag, sent)) })
		ids = append(ids, <-sent)
	}
	hear(0, `{"jsonrpc":"2.0","method":"note"}`)
	hear(ids[0], `{"jsonrpc":"2.0","method":"note"}`) // a message that comes with a request belongs to it
	got := []any{<-served, <-served}
	if !slices.Contains(got, any("runs")) || !slices.Contains(got, any("paused")) || stray != nil {
		t.Errorf("served by %v; stray are %q", got, stray)
	}
	for _, id := range ids {
		c.Fail(id, io.EOF)
	}
	asking.Wait()
}

func TestARequestThatIsForgottenTakesNoPlace(t *testing.T) {
	told := make(chan uint64, 1)
	c, _ := hears(t, Options{Forget: true, Abandoned: func(r *Request) { told <- r.ID }})
	ctx, cancel := context.WithCancel(t.Context())
	sent := make(chan uint64, 1)
	go func() { sent <- <-sent; cancel() }()
	if _, err := c.Put(ctx, query(nil, sent)); !errors.Is(err, ErrAbandoned) || <-told != <-sent {
		t.Error(err)
	}
	if n, _ := c.Pending(); n != 0 {
		t.Errorf("%d are on their way", n)
	}
}

// A line that Decode accepts is one object to the standard library too, and the messages made of it are one line of
// strict JSON.
func FuzzMessage(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`, `{"jsonrpc":"2.0","id":1,"result":{}}`,
		`{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"Method not found"}}`, `{"id":null,"result":null,"error":null}`,
		`{"id":"7","error":"x"}`, `[]`, `{"id":1,"id":2}`, `{"jsonrpc":"2.0","id":12,"result":{"content":"` + "\xff" + `"}}`, `{"method":5}`,
		`{"id":1,"method":"tools/call","params":{"name":"a","arguments":{"b":[1.50]},"callId":3}}`, "{\"a\":\n1}",
		`{"id":1,"result":{"content":[{"type":"text","text":"a"}],"isError":true,"structuredContent":null}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		_, _ = brokenAnswer(line)
		var scan strictjson.Scanner
		m, err := Decode(&scan, line)
		if err != nil {
			return
		}
		var std map[string]json.RawMessage
		kit.OK(t, json.Unmarshal(line, &std), "accepted, but")
		_, _ = m.number()
		_ = m.Check()
		out := [][]byte{EncodeRequest(1, "tools/call", m.Params), EncodeReply(m.ReplyID(), []byte(`{}`), nil)}
		if m.Err != nil {
			out = append(out, EncodeReply(m.ReplyID(), nil, m.Failure()))
		}
		for _, l := range out {
			if bytes.Count(l, []byte("\n")) != 1 || strictjson.CheckObject(l) != nil {
				t.Fatalf("not one line of JSON: %q: %v", l, strictjson.CheckObject(l))
			}
		}
	})
}
