package singularity

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
	"toolpost/wire/strictjson"
)

func TestAMessageWithoutAReplySubjectIsRunAndNotAnswered(t *testing.T) {
	tooltest.NoLeaks(t)
	s := startServer(t, "127.0.0.1:0")
	ran := make(chan *tool.Call, 1)
	box := toolbox{"readFile": func(_ context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
		ran <- c
		return &tool.Result{OK: true}, nil
	}}
	serve(t, DoorOptions{Server: s}, box, box)
	nc := connect(t, s)
	kit.OK(t, nc.Publish("tools.file.read", []byte(`{"path":"x"}`)))
	if c := <-ran; string(c.Args) != `{"path":"x"}` {
		t.Errorf("it ran with %s", c.Args)
	}
}

func TestRequestWithAReservedReplySubjectIsNotRun(t *testing.T) {
	s := startServer(t, "127.0.0.1:0")
	var ran atomic.Int32
	box := toolbox{"readFile": func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
		ran.Add(1)
		return &tool.Result{OK: true}, nil
	}}
	serve(t, DoorOptions{Server: s}, box, box)
	nc := connect(t, s)
	for _, reply := range []string{"tools.shell.exec", "toolpost.cancel", "$SRV.PING"} {
		kit.OK(t, nc.PublishRequest("tools.file.read", reply, []byte(`{}`)))
	}
	if ask(t, nc, "tools.file.read", `{}`); ran.Load() != 1 {
		t.Errorf("%d calls ran, want the last one alone", ran.Load())
	}
}

func TestHeadersBelongToTheCall(t *testing.T) {
	s := startServer(t, "127.0.0.1:0")
	received, lefts := make(chan *tool.Call, 1), make(chan time.Duration, 1)
	box := toolbox{"x": func(ctx context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
		deadline, _ := ctx.Deadline()
		received <- c
		lefts <- time.Until(deadline)
		return &tool.Result{OK: true}, nil
	}}
	serve(t, DoorOptions{Server: s}, box, box)
	nc := connect(t, s)
	m := nats.NewMsg("tools.execute.x")
	m.Header = nats.Header{
		"Toolpost-Session": {"s-1"}, "Idempotency-Key": {"k-1"}, "Toolpost-Lease": {"l-1"}, "Toolpost-Resume": {"r-1"},
		"Toolpost-Call": {"my-call"}, "Toolpost-Timeout": {"60s"}, "Traceparent": {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
	}
	same(t, "the answer", askMsg(t, nc, m), `{"data":{},"error":null}`)
	got, left := <-received, <-lefts
	if got.Session != "s-1" || got.Key != "k-1" || got.Lease != "l-1" || got.Resume != "r-1" || got.ID != "my-call" ||
		got.Trace != "0af76519-16cd-43dd-8448-eb211c80319c" || left <= 0 || left > time.Minute {
		t.Errorf("got %+v with %v left", got, left)
	}
	for header, values := range map[string][]string{
		"Toolpost-Session": {"a", "b"}, "Toolpost-Timeout": {"soon"}, "Toolpost-Call": {"no spaces"}, "Toolpost-Lease": {strings.Repeat("x", 2000)},
		"Toolpost-Stream": {"tools.shell.exec"}, "toolpost-stream": {"a.*"},
	} {
		m := nats.NewMsg("tools.execute.x")
		m.Header = nats.Header{header: values}
		kit.Contains(t, askMsg(t, nc, m), `"InvalidInput: the header `, header, values)
	}
}

func TestAnswersInBodyAndHeaderAreRefused(t *testing.T) {
	s := startServer(t, "127.0.0.1:0")
	received := make(chan string, 1)
	box := toolbox{"x": func(_ context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
		received <- string(c.Answers)
		return &tool.Result{OK: true}, nil
	}}
	serve(t, DoorOptions{Server: s}, box, box)
	nc := connect(t, s)
	m := nats.NewMsg("tools.execute.x")
	m.Data, m.Header = []byte(`{"arguments":{}}`), nats.Header{"Toolpost-Style": {"native"}, "Toolpost-Answers": {"[true]"}}
	if answer := askMsg(t, nc, m); !strings.Contains(answer, `"ok":true`) {
		t.Fatal(answer)
	}
	same(t, "the answers of the header", <-received, `[true]`)
	m.Data = []byte(`{"arguments":{},"answers":[true]}`)
	kit.Contains(t, askMsg(t, nc, m), "the header Toolpost-Answers is there, and the body has answers too")
	delete(m.Header, "Toolpost-Answers")
	if answer := askMsg(t, nc, m); !strings.Contains(answer, `"ok":true`) {
		t.Fatal(answer)
	}
	same(t, "the answers of the body", <-received, `[true]`)
}

func TestACallerMayShortenACall(t *testing.T) {
	s := startServer(t, "127.0.0.1:0")
	serve(t, DoorOptions{Server: s}, tooltest.Reference{}, tooltest.Reference{})
	m := nats.NewMsg("tools.execute.hang")
	m.Header = nats.Header{"Toolpost-Timeout": {"50ms"}}
	same(t, "the answer", askMsg(t, connect(t, s), m), `{"data":null,"error":"Timeout: hang ran longer than the 50ms that its caller gives it"}`)
}

func TestRequestedEventsPrecedeTheReplyInOrder(t *testing.T) {
	tooltest.NoLeaks(t)
	s := startServer(t, "127.0.0.1:0")
	serve(t, DoorOptions{Server: s}, tooltest.Reference{}, tooltest.Reference{})
	nc := connect(t, s)
	sub, err := nc.SubscribeSync("my.box.>") // one subscription for both keeps their order
	kit.OK(t, err)
	m := nats.NewMsg("tools.execute.events")
	m.Reply, m.Data, m.Header = "my.box.reply", []byte(`{"count":300}`), nats.Header{"Toolpost-Stream": {"my.box.events"}}
	kit.OK(t, nc.PublishMsg(m))
	for n := 1; n <= 300; n++ {
		m := kit.Must(sub.NextMsg(patience))(t)
		var e tool.Event
		if err := strictjson.Unmarshal(m.Data, &e); err != nil || m.Subject != "my.box.events" || e.Seq != uint64(n) || e.Time.IsZero() ||
			e.Kind != tool.KindLog || !strings.Contains(string(e.Data), fmt.Sprintf(`"event %d"`, n)) {
			t.Fatalf("message %d on %s: %s (%v)", n, m.Subject, m.Data, err)
		}
	}
	if m, err = sub.NextMsg(patience); err != nil || string(m.Data) != `{"data":{},"error":null}` {
		t.Errorf("the reply: %v, %v", m, err)
	}
}

func TestOversizedEventIsReportedAsLost(t *testing.T) {
	s := startServer(t, "127.0.0.1:0")
	box := toolbox{"big": func(_ context.Context, _ *tool.Call, out tool.Sink) (*tool.Result, error) {
		return &tool.Result{OK: true}, out.Emit(tool.LogEvent("info", strings.Repeat("x", maxPayload)))
	}}
	serve(t, DoorOptions{Server: s}, box, box)
	var got tooltest.Collect
	r := mustOpen(t, withToken(t, s.ClientURL(), ""))
	kit.Must(r.Invoke(context.Background(), &tool.Call{Tool: "big"}, &got))(t)
	if e := got.Events(); len(e) != 1 || e[0].Kind != tool.KindError || !strings.Contains(string(e[0].Data), "event_lost") {
		t.Errorf("got %v", e)
	}
}

func TestAReplyThatIsTooLargeSaysSo(t *testing.T) {
	s := startServer(t, "127.0.0.1:0")
	box := toolbox{"big": gives(`"` + strings.Repeat("x", maxPayload) + `"`), "fits": gives(`"` + strings.Repeat("x", 1<<20) + `"`)}
	serve(t, DoorOptions{Server: s}, box, box)
	nc := connect(t, s)
	for _, request := range []string{`{}`, `{"tool_call_id":"1","function":{"name":"big"}}`} {
		kit.Contains(t, ask(t, nc, "tools.execute.big", request), "SystemError: the result of big makes a reply of 83886")
	}
	if answer := ask(t, nc, "tools.execute.fits", `{}`); len(answer) < 1<<20 {
		t.Errorf("1 MiB of output came as %d bytes", len(answer))
	}
	r := mustOpen(t, withToken(t, s.ClientURL(), ""))
	_, err := r.Invoke(context.Background(), &tool.Call{Tool: "big"}, tool.Discard)
	wantCode(t, err, tool.CodeUnsupported, "max_payload")
	_, err = r.Invoke(context.Background(), &tool.Call{Tool: "fits", Args: []byte(`"` + strings.Repeat("x", maxPayload) + `"`)}, tool.Discard)
	wantCode(t, err, tool.CodeInvalidInput, "8388608")
}

func TestBusyReplyHasTheStyleOfItsRequest(t *testing.T) {
	tooltest.NoLeaks(t)
	s := startServer(t, "127.0.0.1:0")
	inside, leave := make(chan struct{}), make(chan struct{})
	box := toolbox{"wait": func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
		inside <- struct{}{}
		<-leave
		return &tool.Result{OK: true}, nil
	}}
	serve(t, DoorOptions{Server: s, Workers: 1, Backlog: 1}, box, box)
	nc := connect(t, s)
	answers := kit.Must(nc.SubscribeSync("answers.*"))(t)
	send := func(n, body string) {
		kit.OK(t, nc.PublishRequest("tools.execute.wait", "answers."+n, []byte(body)))
	}
	send("1", `{}`)
	<-inside
	send("2", `{}`)
	send("3", `{}`)
	send("4", `{"tool_call_id":"1","function":{"name":"wait"}}`)
	for _, want := range []string{"3", "4"} {
		m, err := answers.NextMsg(patience)
		if err != nil || m.Subject != "answers."+want || !strings.Contains(string(m.Data), "SystemError: busy") {
			t.Fatalf("got %v, %v", m, err)
		}
		kit.Equal(t, strings.Contains(string(m.Data), `"Error: `), (want == "4"), "the style of %s: %s", want, m.Data)
	}
	close(leave)
	<-inside
	for _, want := range []string{"1", "2"} {
		if m, err := answers.NextMsg(patience); err != nil || m.Subject != "answers."+want || string(m.Data) != `{"data":{},"error":null}` {
			t.Errorf("got %v, %v", m, err)
		}
	}
}

func TestTheBacklogIsBoundedInBytesToo(t *testing.T) {
	leave := make(chan struct{})
	c := &crew{run: func(delivery) { <-leave }, most: 1, backlog: 100, maxBytes: 10}
	message := func(n int) delivery { return delivery{msg: &nats.Msg{Data: make([]byte, n)}} }
	var took []bool
	for _, size := range []int{1000, 6, 5, 4, 1} {
		took = append(took, c.submit(message(size)))
	}
	close(leave)
	c.finish()
	kit.EqualSlices(t, took, []bool{true, true, false, true, false}, "took")
}

func TestACallIsCancelledByItsName(t *testing.T) {
	tooltest.NoLeaks(t)
	s := startServer(t, "127.0.0.1:0")
	inside := make(chan struct{}, 2)
	box := toolbox{"hang": func(ctx context.Context, _ *tool.Call, _ tool.Sink) (*tool.Result, error) {
		inside <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	serve(t, DoorOptions{Server: s, Workers: 2}, box, box)
	nc := connect(t, s)
	answers := kit.Must(nc.SubscribeSync("answers.*"))(t)
	send := func(n, id string) {
		m := nats.NewMsg("tools.execute.hang")
		m.Reply, m.Header = "answers."+n, nats.Header{"Toolpost-Call": {id}}
		kit.OK(t, nc.PublishMsg(m))
	}
	expect := func(n, says string) {
		t.Helper()
		if m, err := answers.NextMsg(patience); err != nil || m.Subject != "answers."+n || !strings.Contains(string(m.Data), says) {
			t.Fatalf("got %+v, %v", m, err)
		}
	}
	cancel := func(id string) {
		kit.OK(t, nc.Publish("toolpost.cancel", []byte(id)))
	}
	send("1", "one")
	<-inside
	send("2", "one")
	expect("2", "InvalidInput: a call one is running already")
	send("3", "three")
	<-inside
	send("4", "four") // waits: both workers are busy
	send("5", "four")
	expect("5", "InvalidInput: a call four is running already")
	send("6", "six")
	cancel("four") // it is still waiting
	cancel("unknown")
	cancel("three")
	expect("3", "SystemError: the call was cancelled by its caller")
	expect("4", "SystemError: the call was cancelled by its caller")
	<-inside // the sixth
	cancel("six")
	expect("6", "SystemError: the call was cancelled by its caller")
	cancel("one")
	expect("1", "SystemError: the call was cancelled by its caller")
}

func TestClosingDoorAnswersAcceptedCalls(t *testing.T) {
	tooltest.NoLeaks(t)
	s := startServer(t, "127.0.0.1:0")
	inside, leave := make(chan struct{}, 2), make(chan struct{})
	box := toolbox{"slow": func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
		inside <- struct{}{}
		<-leave
		return &tool.Result{OK: true, Output: []byte(`1`)}, nil
	}, "hang": func(ctx context.Context, _ *tool.Call, _ tool.Sink) (*tool.Result, error) {
		inside <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	stop := serve(t, DoorOptions{Server: s, Drain: 200 * time.Millisecond}, box, box)
	nc := connect(t, s)
	answers := kit.Must(nc.SubscribeSync("answers.*"))(t)
	for _, name := range []string{"slow", "hang"} {
		kit.OK(t, nc.PublishRequest("tools.execute."+name, "answers."+name, nil))
		<-inside
	}
	var closing sync.WaitGroup
	closing.Go(stop)
	kit.Eventually(t, "the door takes nothing any more", func() bool {
		_, err := nc.Request("tools.execute.none", nil, 5*time.Second)
		return err == nats.ErrNoResponders
	})
	close(leave)
	got := map[string]string{}
	for range 2 {
		m := kit.Must(answers.NextMsg(patience))(t)
		got[m.Subject] = string(m.Data)
	}
	closing.Wait()
	same(t, "a call that ended in time", got["answers.slow"], `{"data":1,"error":null}`)
	same(t, "a call that did not", got["answers.hang"],
		`{"data":null,"error":"SystemError: the call was cancelled because the server shut down before it had ended"}`)
}

func TestPanicIsStillAnswered(t *testing.T) {
	s := startServer(t, "127.0.0.1:0")
	box := toolbox{"bad": func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) { panic("oh") },
		"nothing": func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) { return nil, nil }}
	serve(t, DoorOptions{Server: s}, box, box)
	nc := connect(t, s)
	same(t, "a panic", ask(t, nc, "tools.execute.bad", `{}`), `{"data":null,"error":"SystemError: bad: an internal error; the server's log has the details"}`)
	same(t, "nothing", ask(t, nc, "tools.execute.nothing", `{}`), `{"data":null,"error":"SystemError: nothing ended with neither a result nor an error"}`)
}

func TestTheDoorIsANATSService(t *testing.T) {
	s := startServer(t, "127.0.0.1:0")
	serve(t, DoorOptions{Server: s, Version: "v1.2.3"}, tooltest.Reference{}, tooltest.Reference{})
	nc := connect(t, s)
	var ping micro.Ping
	decode(t, ask(t, nc, "$SRV.PING", ""), &ping)
	if ping.Type != micro.PingResponseType || ping.Name != "toolpost" || ping.Version != "1.2.3" || ping.ID == "" {
		t.Errorf("PING: %+v", ping)
	}
	var info micro.Info
	decode(t, ask(t, nc, "$SRV.INFO.toolpost", ""), &info)
	var subjects []string
	for _, e := range info.Endpoints {
		kit.Equal(t, e.QueueGroup, "toolpost", "the queue group of %s is", e.Subject)
		subjects = append(subjects, e.Subject)
	}
	// contract(singularity): Gnat.sub(:gnat, self(), "tools.file.>")
	// contract(singularity): Gnat.sub(:gnat, self(), "tools.shell.>")
	// contract(singularity): Gnat.sub(:gnat, self(), "tools.code.>")
	want := []string{"tools.file.>", "tools.shell.>", "tools.code.>", "tools.execute", "tools.execute.>", "toolpost.catalog"}
	if info.Type != micro.InfoResponseType || info.ID != ping.ID || !slices.Equal(subjects, want) {
		t.Errorf("INFO: %+v", info)
	}
	for range 3 {
		ask(t, nc, "tools.execute.echo", `{}`)
	}
	ask(t, nc, "tools.execute.fail", `{"message":"no"}`)
	var stats micro.Stats
	kit.Eventually(t, "four requests are counted", func() bool {
		decode(t, ask(t, nc, "$SRV.STATS.toolpost."+ping.ID, ""), &stats)
		return stats.Endpoints[4].NumRequests == 4
	})
	e := stats.Endpoints[4]
	if stats.Type != micro.StatsResponseType || e.Subject != "tools.execute.>" || e.NumErrors != 1 || e.LastError != "SystemError: no" ||
		e.ProcessingTime <= 0 || e.AverageProcessingTime <= 0 || stats.Started.IsZero() {
		t.Errorf("STATS: %+v %+v", stats, e)
	}
}

func decode(t *testing.T, text string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
}

func TestNonSemverVersionIsReportedAsBuild(t *testing.T) {
	if s := newService(DoorOptions{Version: "3850e3f-dirty"}); s.identity.Version != "0.0.0" || s.identity.Metadata["build"] != "3850e3f-dirty" {
		t.Errorf("got %+v", s.identity)
	}
}

func TestTwoDoorsOfAGroupShareTheRequests(t *testing.T) {
	url := outside(t, server.Options{})
	var count [2]atomic.Int32
	for i := range count {
		box := toolbox{"x": func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
			count[i].Add(1)
			return &tool.Result{OK: true}, nil
		}}
		serve(t, DoorOptions{Connect: Connect{URL: url}}, box, box)
	}
	nc := kit.Must(nats.Connect(url, nats.Timeout(patience)))(t)
	t.Cleanup(nc.Close)
	for range 200 {
		ask(t, nc, "tools.execute.x", `{}`)
	}
	if a, b := count[0].Load(), count[1].Load(); a+b != 200 || a == 0 || b == 0 {
		t.Errorf("one had %d and the other %d of 200", a, b)
	}
}

func TestDoorRefusesAServerWithAStreamOnItsSubjects(t *testing.T) {
	srv, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true})
	kit.OK(t, err)
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	nc := kit.Must(nats.Connect(srv.ClientURL(), nats.Timeout(patience)))(t)
	t.Cleanup(nc.Close)
	js := kit.Must(nc.JetStream())(t)
	box := toolbox{}
	stop := serve(t, DoorOptions{Connect: Connect{URL: srv.ClientURL()}}, box, box) // a stream on other subjects would be fine
	stop()
	kit.Must(js.AddStream(&nats.StreamConfig{Name: "GREEDY", Subjects: []string{"tools.file.*"}, Storage: nats.MemoryStorage}))(t)
	ctx := kit.Context(t)
	err = NewDoor(DoorOptions{Connect: Connect{URL: srv.ClientURL()}}).Serve(ctx, box, box)
	wantCode(t, err, tool.CodeConflict, `"GREEDY"`)
}
