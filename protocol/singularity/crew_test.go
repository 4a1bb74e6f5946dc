package singularity

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/nats-io/nats.go"

	"toolpost/engine"
	"toolpost/tool/tooltest"
)

func deliveries(n int) []delivery {
	list := make([]delivery, n)
	for i := range list {
		list[i].msg = &nats.Msg{Data: []byte{byte(i)}}
	}
	return list
}

func TestASlowJobHoldsNoOtherUp(t *testing.T) {
	tooltest.NoLeaks(t)
	const n = 200
	for _, slow := range []int{0, 1, 50, n - 1} {
		var others sync.WaitGroup
		others.Add(n - 1)
		c := &crew{most: 2, backlog: n, maxBytes: n}
		c.run = func(j delivery) {
			if int(j.msg.Data[0]) == slow {
				others.Wait() // every other delivery ends before this one
			} else {
				others.Done()
			}
		}
		for i, j := range deliveries(n) {
			if !c.submit(j) {
				t.Fatalf("delivery %d was refused", i)
			}
		}
		c.finish()
	}
}

// A worker rests, another is on its way, and the crew finishes: what is behind a slow delivery is served nevertheless.
func TestRestingWorkersServeTheQueueAtTheEnd(t *testing.T) {
	tooltest.NoLeaks(t)
	synctest.Test(t, func(*testing.T) {
		last := make(chan struct{})
		c := &crew{most: 2, backlog: 9, maxBytes: 9}
		c.run = func(j delivery) {
			switch j.msg.Data[0] {
			case 1:
				<-last
			case 2:
				close(last)
			}
		}
		list := deliveries(3)
		c.submit(list[0])
		synctest.Wait() // the first worker rests
		c.mu.Lock()
		c.workers, c.coming = 2, true
		c.mu.Unlock()
		c.submit(list[1])
		c.submit(list[2])
		c.gone.Go(func() { synctest.Wait(); c.work() }) // it arrives after the crew has begun to finish
		c.finish()
	})
}

func TestSlowJobsRunConcurrentlyUpToTheWorkerLimit(t *testing.T) {
	tooltest.NoLeaks(t)
	const workers = 50
	var together sync.WaitGroup
	together.Add(workers)
	c := &crew{most: workers, backlog: 1000, maxBytes: 1000}
	c.run = func(delivery) { together.Done(); together.Wait() } // none ends before all have begun
	for _, j := range deliveries(workers) {
		c.submit(j)
	}
	c.finish()
}

func TestJobsOfOneWorkerAreDoneInTheirOrder(t *testing.T) {
	tooltest.NoLeaks(t)
	var done []byte
	c := &crew{most: 1, backlog: 1000, maxBytes: 1000, run: func(j delivery) { done = append(done, j.msg.Data[0]) }}
	for range 3 { // the queue is empty in between, and reused
		for _, j := range deliveries(100) {
			if !c.submit(j) {
				t.Fatal("refused")
			}
		}
	}
	c.finish()
	if len(done) != 300 || !slices.IsSorted(done[:100]) || !slices.IsSorted(done[100:200]) || !slices.IsSorted(done[200:]) {
		t.Errorf("got %v", done)
	}
}

func TestInvalidBodyReachesTheEngineUnchanged(t *testing.T) {
	tooltest.NoLeaks(t)
	s := startServer(t, "127.0.0.1:0")
	e := engine.New(engine.Options{})
	e.Replace(t.Context(), []engine.Binding{{Name: "std", Protocol: "go", Runner: inProcess{}}})
	t.Cleanup(func() { _ = e.Close(t.Context()) })
	serve(t, DoorOptions{Server: s}, e, e)
	nc := connect(t, s)
	const call = `{"tool_call_id":"1","role":"tool","name":"echo","content":"{\"a\":1}"}`
	for body, want := range map[string]string{
		`{"a":1}`: `{"data":{"a":1},"error":null}`,
		`{"tool_call_id":"1","function":{"name":"echo","arguments":"{\"a\":1}"}}`:         call,
		`{"tool_call_id":"1","f\u0075nction":{"name":"echo","arguments":{"a":1}}}`:        call,
		`{"\u0074ool_call_id":"1","function":{"name":"echo","arguments":{"a":1}}}`:        call,
		`{"id":"1","type":"function","function":{"name":"echo","arguments":"{\"a\":1}"}}`: call,
		`{"a":`:            `{"data":null,"error":"InvalidInput: the arguments of echo are not JSON: the JSON ends too early"}`,
		`[1]`:              `{"data":null,"error":"InvalidInput: the arguments of echo must be a JSON object, not array"}`,
		"{\"a\":\"\xff\"}": `{"data":null,"error":"InvalidInput: the arguments of echo are not JSON: invalid UTF-8`,
		`{"a":1,"a":2}`:    `{"data":null,"error":"InvalidInput: the arguments of echo are not JSON: duplicate`,
	} {
		if got := ask(t, nc, "tools.execute.echo", body); len(got) < len(want) || got[:len(want)] != want {
			t.Errorf("%s: got %s", body, got)
		}
	}
}
