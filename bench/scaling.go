package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"toolpost/bench/attempt"
	"toolpost/bench/curves"
	"toolpost/bench/scale"
	"toolpost/tool"
)

// How a fleet grows: its costs are measured on real programs, a model (package scale) is fed with them, and both are compared as far
// as this machine goes. Beyond that, the model alone is drawn.

// A site is a hub with its workers and its store, each a process of its own.
type site struct {
	hub     *served
	workers []*served
	store   *sql.DB
}

// site starts a fleet. It returns once its hub has the tools of all workers.
func (l *lab) site(ctx context.Context, workers int) *site {
	dir := attempt.Must(os.MkdirTemp(l.dir, "site"))
	url := attempt.Must(l.postgres(ctx).Create(ctx))
	s := &site{store: l.raw(url)}
	writeFiles(dir, map[string]string{"toolpost.yaml": fmt.Sprintf(siteConfig, url)})
	toolpost := func(args ...string) []byte {
		cmd := exec.CommandContext(ctx, attempt.Must(filepath.Abs(l.toolpost)), args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "TOOLPOST_TOKEN="+benchToken)
		return bytes.TrimSpace(attempt.Must(cmd.Output()))
	}
	toolpost("fleet", "init", "--name", "hub", "--listen", "127.0.0.1:0")
	s.hub = l.process(ctx, dir, attempt.Must(filepath.Abs(l.toolpost)), "serve", "--listen", "127.0.0.1:0")
	line := string(toolpost("fleet", "token", "--uses", strconv.Itoa(workers)))
	for i := range workers {
		s.workers = append(s.workers, l.benchServe(ctx, filepath.Join(dir, fmt.Sprint("worker-", i)), wordWorker, fmt.Sprint("worker-", i), line))
	}
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		var list struct {
			Nodes []struct {
				State string `json:"state"`
				Tools int    `json:"tools"`
			} `json:"nodes"`
		}
		attempt.Check(json.Unmarshal(toolpost("fleet", "--json"), &list))
		up := 0
		for _, n := range list.Nodes {
			if n.State == "up" && n.Tools > 0 {
				up++
			}
		}
		if up == workers {
			return s
		}
		if time.Now().After(end) {
			attempt.Check(fmt.Errorf("%d of %d workers are up", up, workers))
		}
	}
}

const siteConfig = `sources: []
doors: {http: {}}
store: {url: %q}
`

// spent is how much of a processor the processes took so far.
func spent(pids ...int) (d time.Duration) {
	for _, pid := range pids {
		var t unix.Timespec
		if unix.ClockGettime(int32(^pid)<<3|2, &t) == nil { // the clock of a process; one of PostgreSQL may have ended
			d += time.Duration(t.Nano())
		}
	}
	return d
}

// spent is what the hub, the workers and the store took so far, and as the caller's everything else that ran on this machine: a part of
// the kernel's work for the network belongs to no process.
func (s *site) spent(ctx context.Context) scale.Costs {
	c := scale.Costs{Hub: spent(s.hub.pid)}
	for _, w := range s.workers {
		c.Worker += spent(w.pid)
	}
	rows := attempt.Must(s.store.QueryContext(ctx, `SELECT pid FROM pg_stat_activity`))
	defer rows.Close()
	for rows.Next() {
		var pid int
		attempt.Check(rows.Scan(&pid))
		c.Store += spent(pid)
	}
	attempt.Check(rows.Err())
	c.Caller = busy() - c.Hub - c.Worker - c.Store
	return c
}

// busy is how long the processors of this machine were busy so far.
func busy() (d time.Duration) {
	text := string(attempt.Must(os.ReadFile("/proc/stat")))
	var user, nice, system, idle, wait, irq, soft, steal int64
	attempt.Must(fmt.Sscanf(text, "cpu %d %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &wait, &irq, &soft, &steal))
	return time.Duration(user+nice+system+irq+soft+steal) * 10 * time.Millisecond
}

// costs measures what a call of a tool that does nothing takes of each part of a site with one worker. Between its laps it lets
// others call.
func (l *lab) costs(ctx context.Context, s *site, between func()) scale.Costs {
	empty := l.crowd(ctx, s.hub, emptyCallers, emptyTool).recording()
	attempt.Must(empty.lap(long))
	var sum scale.Costs
	calls := time.Duration(0)
	for range rounds {
		before := s.spent(ctx)
		calls += time.Duration(len(attempt.Must(empty.lap(long)).each))
		after := s.spent(ctx)
		sum.Caller += after.Caller - before.Caller
		sum.Hub += after.Hub - before.Hub
		sum.Worker += after.Worker - before.Worker
		sum.Store += after.Store - before.Store
		between()
	}
	return scale.Costs{Caller: sum.Caller / calls, Hub: sum.Hub / calls, Worker: sum.Worker / calls, Store: sum.Store / calls}
}

// quietHub is what a hub takes in a second without calls.
func quietHub(ctx context.Context, s *site) time.Duration {
	tool.Sleep(ctx, time.Second)
	before := spent(s.hub.pid)
	tool.Sleep(ctx, idleFor)
	return (spent(s.hub.pid) - before) / (idleFor / time.Second)
}

const (
	emptyCallers = 64
	idleNodes    = 7
	idleFor      = 5 * time.Second
)

var (
	emptyTool = request{tool: "bench.look", args: fleetBody}
	waitTool  = request{tool: "slow.wait", args: "{}"}
)

// Both tools of a worker.
var (
	empties = crowding{emptyTool, func(int) int { return emptyCallers }, 1024, 0}
	waiting = crowding{waitTool, func(workers int) int { return workers * waitCallers }, waitPlaces, waitFor}
)

// A crowding is a crowd of callers of a tool.
type crowding struct {
	request
	callers func(workers int) int
	places  int
	takes   time.Duration
}

// likeModel compares the rate of a fleet on this machine with the one that the model predicts.
func likeModel(workers int, c crowding) func(context.Context, *lab) row {
	return func(ctx context.Context, l *lab) row {
		crowd, seen := l.crowd(ctx, l.site(ctx, workers).hub, c.callers(workers), c.request).recording(), new(pace)
		attempt.Must(crowd.lap(long))
		costs := l.costs(ctx, l.site(ctx, 1), func() { seen.add(attempt.Must(crowd.lap(long))) })
		f := scale.Fleet{Hubs: 1, Workers: workers, Places: c.places, Tool: c.takes, OneMachine: runtime.NumCPU(), Costs: costs}
		said := scale.Run(f, scale.Load{Callers: c.callers(workers), For: 5 * time.Second}, 1)
		one := share(curves.Thousands(seen.rate())+"/s", curves.Thousands(said.Rate)+"/s", seen.rate()/said.Rate, 0)
		ratio := seen.rate() / said.Rate
		one.target, one.pass = "0.8-1.25", ratio >= 0.8 && ratio <= 1.25
		return one
	}
}

func scaleRows() (rows []measurement) {
	for _, workers := range []int{1, 2, 4} {
		rows = append(rows,
			measurement{name: fmt.Sprintf("%d x empty tool / model", workers), run: likeModel(workers, empties)},
			measurement{name: fmt.Sprintf("%d x tool that waits / model", workers), run: likeModel(workers, waiting)},
		)
	}
	return append(rows, measurement{name: "1,000 workers in the model", run: drawScale})
}

// What the model is asked: a fleet on machines of a usual size, whose tools wait for something else most of their time.
var usual = scale.Fleet{
	Hubs: 3, HubCPUs: 4, WorkerCPUs: 4, Places: 64, Tool: 100 * time.Millisecond, Link: 250 * time.Microsecond,
}

// aMillion calls a minute.
const aMillion = 1_000_000. / 60

// drawScale asks the model about fleets that do not fit on this machine.
func drawScale(ctx context.Context, l *lab) row {
	one := l.site(ctx, 1)
	usual.Costs = l.costs(ctx, one, func() {})
	usual.Node = (quietHub(ctx, l.site(ctx, 1+idleNodes)) - quietHub(ctx, one)) / idleNodes
	run := func(hubs, workers int, load scale.Load) scale.Seen {
		f := usual
		f.Hubs, f.Workers = hubs, workers
		return scale.Run(f, load, 1)
	}
	steady := scale.Load{Rate: aMillion, For: 5 * time.Second}
	byNumber := func(title, axis, limit string) curves.Panel {
		return curves.Panel{Title: title, Axis: axis, Limit: limit, Name: curves.Count, Value: curves.Thousands}
	}
	most := byNumber("Calls a second, at most", "by the number of workers; below it, how many of their places are taken", "a million calls a minute")
	for _, n := range []int{1, 3, 10, 30, 100, 300, 1000} {
		s := run(usual.Hubs, n, scale.Load{Callers: min(2*n*usual.Places, 20_000), For: 2 * time.Second})
		most.Add(n, s.Rate, curves.Thousands(s.Rate), percent(s.Tool), aMillion)
	}
	late := byNumber("Beyond the time of the tool", "99 of 100 calls take at most so many ms longer, by the number of workers", "the way there and back")
	hubs := byNumber("How busy the processors of the hubs are", "in percent, by the number of workers", "the connection of each to the store")
	for _, n := range []int{30, 100, 300, 1000} {
		s := run(usual.Hubs, n, steady)
		over := (s.P99 - usual.Tool).Seconds() * 1000
		late.Add(n, over, curves.Thousands(over)+" ms", percent(s.Tool), 4*usual.Link.Seconds()*1000)
		hubs.Add(n, 100*s.Hub, percent(s.Hub), "", 100*s.Store)
	}
	more := byNumber("With other numbers of hubs, and 300 workers", "how busy their processors are, in percent, by the number of hubs", "the connection of each to the store")
	for _, n := range []int{1, 2, 3, 5, 7} {
		s := run(n, 300, steady)
		more.Add(n, 100*s.Hub, percent(s.Hub), "", 100*s.Store)
	}
	l.scaled = curves.Sheet{Name: "scale", Title: "A fleet that grows, by the model", Below: fmt.Sprintf(
		"%d hubs and the workers with %d processors each, %d calls at once at a worker, a tool that waits %d ms; a million calls a minute, but for the first picture",
		usual.Hubs, usual.HubCPUs, usual.Places, usual.Tool.Milliseconds()), Panels: []curves.Panel{most, late, hubs, more}}
	c := usual.Costs
	return row{
		measured: fmt.Sprintf("hub %s, worker %s", us(c.Hub), us(c.Worker)), reference: fmt.Sprintf("store %s, node %s/s", us(c.Store), us(c.Node)),
		ratio: "-", target: noTarget, pass: true,
	}
}

func percent(part float64) string { return fmt.Sprintf("%.0f %%", 100*part) }
