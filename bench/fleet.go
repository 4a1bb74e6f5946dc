package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"

	"toolpost/bench/attempt"
	"toolpost/config"
	"toolpost/engine/member"
	"toolpost/node"
	"toolpost/tool"
)

const (
	hubConfig = `fleet: {listen: "127.0.0.1:0"}
doors: {http: {}}
store: {url: "sqlite:hub.db"}
`
	workerConfig = `sources: [{name: bench, protocol: echo}, {name: slow, protocol: waits}]
store: {url: none}
`
	fleetBody = `{"message":"hello","n":42}`
)

// fleetCalls compares calls of a tool that only reads, from a hub in this process through a worker process, with bare NATS
// requests from this process to another one. The server is in this process both times, as it is in a hub.
func fleetCalls(callers int) (times func(each int) (m, r time.Duration), of func(context.Context, *lab)) {
	var ours, bare func() error
	of = func(ctx context.Context, l *lab) {
		h := l.hub(ctx, 1)
		call := tool.Call{Tool: "bench.look", Args: []byte(fleetBody)}
		ours = func() error {
			c := call
			out, err := invoke(ctx, h, &c)
			return wantBody(out, err)
		}
		url := l.natsServer()
		l.benchServe(ctx, l.dir, wordRespond, url)
		nc := attempt.Must(nats.Connect(url))
		l.atEnd(func() error { nc.Close(); return nil })
		bare = func() error {
			m, err := nc.Request("bare", []byte(fleetBody), patience)
			if err != nil {
				return err
			}
			return wantBody(m.Data, nil)
		}
	}
	return func(each int) (m, r time.Duration) {
		return compare(21, clock(storm(callers, each, ours)), clock(storm(callers, each, bare)))
	}, of
}

func wantBody(b []byte, err error) error {
	if err == nil && !bytes.Equal(b, []byte(fleetBody)) {
		err = fmt.Errorf("unexpected answer %q", b)
	}
	return err
}

// fleetAlone is the time of one call, of a single caller.
func fleetAlone(ctx context.Context, l *lab) row {
	const each = 500
	times, open := fleetCalls(1)
	open(ctx, l)
	m, r := times(each)
	return asLong(m/each, r/each, us, 2.5)
}

// fleetCrowd is the rate of many callers.
func fleetCrowd(ctx context.Context, l *lab) row {
	const callers, each = 64, 50
	times, open := fleetCalls(callers)
	open(ctx, l)
	m, r := times(each)
	return ofTheRate(callers*each, m, r, 0.35)
}

// Workers of tools that wait: each runs so many calls at once, and twice as many callers keep its queue filled.
const (
	waitPlaces  = 8
	waitCallers = 2 * waitPlaces
	waitEach    = 20
	waitFor     = 20 * time.Millisecond
)

// fleetWaits compares a number of workers, whose tools wait, with that many times what one worker does.
func fleetWaits(workers int) func(context.Context, *lab) row {
	return func(ctx context.Context, l *lab) row {
		m, r := compare(3, clock(l.waiters(ctx, workers)), clock(l.waiters(ctx, 1)))
		calls := waitCallers * waitEach
		return share(rate(workers*calls, m), fmt.Sprintf("%d x %s", workers, rate(calls, r)), float64(r)/float64(m), 0.9)
	}
}

func (l *lab) waiters(ctx context.Context, workers int) func() error {
	h := l.hub(ctx, workers)
	return storm(workers*waitCallers, waitEach, func() error {
		_, err := invoke(ctx, h, &tool.Call{Tool: "slow.wait", Args: []byte(`{}`)})
		return err
	})
}

// hub serves a hub in this process, and starts workers that join it. It returns once the hub has the tools of all of them.
func (l *lab) hub(ctx context.Context, workers int) tool.Handler {
	dir := attempt.Must(os.MkdirTemp(l.dir, "hub"))
	writeFiles(dir, map[string]string{"toolpost.yaml": hubConfig})
	cfg := attempt.Must(config.Parse(filepath.Join(dir, "toolpost.yaml"), []byte(hubConfig)))
	attempt.Check(node.FoundFleet(ctx, cfg, "hub"))
	n, _ := l.serveNode(ctx, dir, hubConfig)
	line := attempt.Must(n.Fleet().Token(ctx, member.Ticket{Role: member.Worker, Uses: workers}, time.Hour))
	for i := range workers {
		l.benchServe(ctx, attempt.Must(os.MkdirTemp(l.dir, "worker")), wordWorker, fmt.Sprint("worker-", i), line)
	}
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		ready := 0
		for _, s := range attempt.Must(n.Fleet().Nodes(ctx)) {
			if s.Tools > 0 && s.State == "up" {
				ready++
			}
		}
		_, err := n.Handler().Invoke(ctx, &tool.Call{Tool: "bench.look", Args: []byte(`{}`)}, tool.Discard)
		if ready >= workers && err == nil {
			return n.Handler()
		}
		if time.Now().After(end) {
			attempt.Check(errors.Join(fmt.Errorf("%d of %d workers are up", ready, workers), err))
		}
	}
}

// serveWorker is a worker with the tools of echo, and one that waits.
func serveWorker(ctx context.Context, l *lab, name, line string) error {
	dir := attempt.Must(filepath.Abs("."))
	cfg := attempt.Must(config.Parse(filepath.Join(dir, "toolpost.yaml"), []byte(workerConfig)))
	attempt.Check(node.JoinFleet(ctx, cfg, line, name, member.Worker))
	n := l.openNode(ctx, dir, map[string]string{"toolpost.yaml": workerConfig}, node.Options{Worker: true})
	fmt.Println("serving on http://worker ")
	return n.Work(ctx)
}

// serveResponder answers NATS requests with what they carry.
func serveResponder(ctx context.Context, url string) error {
	nc := attempt.Must(nats.Connect(url))
	defer nc.Close()
	attempt.Must(nc.Subscribe("bare", func(m *nats.Msg) { _ = m.Respond(m.Data) }))
	attempt.Check(nc.Flush())
	fmt.Println("serving on http://responder ")
	<-ctx.Done()
	return nil
}

// waits is an in-process source whose tool waits, and has few places.
type waits struct{}

var (
	_ tool.Runner = waits{}
	_ tool.Source = waits{}
)

func (waits) Tools(context.Context) ([]*tool.Spec, error) {
	return []*tool.Spec{{Name: "wait", Input: []byte(`{"type":"object"}`), Effects: tool.Effects{Reads: true}}}, nil
}

func (waits) Invoke(ctx context.Context, _ *tool.Call, _ tool.Sink) (*tool.Result, error) {
	tool.Sleep(ctx, waitFor)
	return &tool.Result{OK: true, Output: []byte(`{}`)}, nil
}

// Places limits the calls at once.
func (waits) Places(string) (string, int) { return "waits", waitPlaces }

func (waits) Close(context.Context) error { return nil }

func fleetRows() []measurement {
	return []measurement{
		{name: "1 caller / bare request", run: fleetAlone},
		{name: "64 callers / bare requests", run: fleetCrowd},
		{name: "2 workers that wait / 2 x 1", run: fleetWaits(2)},
		{name: "4 workers that wait / 4 x 1", run: fleetWaits(4)},
	}
}
