package tooltest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// A check is one thing that every handler must do. It returns an error rather than failing a test, so
// that the suite can be tested itself.
type check struct {
	name  string
	needs Features
	run   func(*probe) error
}

func checks() []check {
	return []check{
		{"echo returns its arguments", 0, echoes},
		{"events come in order and before the outcome", Events, eventsInOrder},
		{"a tool's failure is a result", 0, failureIsResult},
		{"an unknown tool is not found", Names, unknownTool},
		{"a cancelled call returns promptly", Cancel, cancelled},
		{"a call that was cancelled before it began returns promptly", Cancel, cancelledBefore},
		{"a deadline is a timeout", Cancel, deadline},
		{"a sink's error stops the call", Events, sinkError},
		{"a sink's error ends a tool that would never end", Events | Cancel, sinkErrorEnds},
		{"a sink that blocks holds the tool back", Events | Cancel, backPressure},
		{"a crash is an error", Crash, crashed},
		{"calls at the same time do not mix", 0, concurrent},
		{"processes of a tool that returned are ended", Spawn, spawned(false)},
		{"processes in their own sessions are ended", Spawn, spawned(true)},
		{"processes of a cancelled tool are ended", Spawn | Cancel, spawnCancelled(false)},
		{"processes in their own sessions are ended on cancel", Spawn | Cancel, spawnCancelled(true)},
	}
}

func echoes(p *probe) error {
	for name, args := range map[string]string{
		"an empty object":         `{}`,
		"nested":                  `{"a":[{"b":[[],{},[null,true,false]]}],"":{"":""}}`,
		"numbers":                 `{"zero":0,"negative":-7,"fraction":0.1,"exponent":2.5e-3}`,
		"a big integer":           `{"n":123456789012345678901234567890}`,
		"1.50":                    `{"n":1.50}`,
		"not ASCII":               `{"größe":"žluťoučký 日本語 🔧","escaped":"\u00e9\ud83d\ude00"}`,
		"characters of framings":  `{"s":"a\nb\r\nc\td\u0000\u001b[0m\u2028\u007f \"\\\" data: </script>"}`,
		"words of envelopes":      `{"ok":false,"error":{"message":"no"},"type":"done","id":1,"result":null,"version":"9","tool":"fail"}`,
		"a string of 256 KiB":     `{"s":"` + strings.Repeat("0123456789abcde\\n", 16<<10) + `"}`,
		"an array of 10000 items": `{"a":[` + strings.Repeat("1,", 9_999) + `1]}`,
	} {
		if err := p.echo(args); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// echo checks one round trip; checks also use it to see that the handler still works.
func (p *probe) echo(args string) error {
	result, err := p.start(context.Background(), "echo", args, tool.Discard).succeed()
	if err != nil {
		return err
	}
	sent, _ := strictjson.Decode([]byte(args))
	got, err := strictjson.Decode(result.Output)
	if err != nil {
		return fmt.Errorf("echo: the output is not JSON: %w", err)
	}
	if !p.can(Digits) {
		sent, got = byValue(sent), byValue(got)
	}
	if !reflect.DeepEqual(sent, got) {
		return fmt.Errorf("echo: sent %.200s and got %.200s back", args, result.Output)
	}
	return nil
}

// byValue writes every number of a decoded value as a fraction in lowest terms.
func byValue(v any) any {
	switch v := v.(type) {
	case json.Number:
		if r, ok := new(big.Rat).SetString(v.String()); ok {
			return r.String()
		}
	case []any:
		for i := range v {
			v[i] = byValue(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = byValue(v[name])
		}
	}
	return v
}

func eventsInOrder(p *probe) error {
	for _, count := range []int{0, 1, 500} {
		var got Collect
		if _, err := p.events(count, &got).succeed(); err != nil {
			return err
		}
		if err := numbered(got.Logs(), count); err != nil {
			return err
		}
	}
	return nil
}

func (p *probe) events(count int, out tool.Sink) *running {
	return p.start(context.Background(), "events", fmt.Sprintf(`{"count":%d}`, count), out)
}

// numbered checks that logs has "event 1" to "event count". Other messages are the protocol's own.
func numbered(logs []string, count int) error {
	n := 0
	for _, message := range logs {
		if !strings.HasPrefix(message, "event ") {
			continue
		}
		n++
		if want := fmt.Sprintf("event %d", n); message != want {
			return fmt.Errorf("events: %q came where %q was due", message, want)
		}
	}
	if n != count {
		return fmt.Errorf("events: %d of %d events had come when Invoke returned", n, count)
	}
	return nil
}

func failureIsResult(p *probe) error {
	for _, message := range []string{"no such torch", "ok", "größer als 日本 🔧", "two\nlines"} {
		args, _ := strictjson.Marshal(map[string]string{"message": message})
		r := p.start(context.Background(), "fail", string(args), tool.Discard)
		if err := r.lawful(); err != nil {
			return err
		}
		switch {
		case r.err != nil:
			return fmt.Errorf("fail: a tool's own failure came as an error and not as a result: %w", r.err)
		case r.result.OK || r.result.Failure == nil:
			return errors.New("fail: a tool's failure came as a success")
		case r.result.Failure.Code != tool.CodeToolError:
			return fmt.Errorf("fail: the failure has code %q, not %q", r.result.Failure.Code, tool.CodeToolError)
		case !strings.Contains(r.result.Failure.Message, message):
			return fmt.Errorf("fail: the tool said %q, the caller reads %q", message, r.result.Failure.Message)
		}
	}
	return nil
}

func unknownTool(p *probe) error {
	return p.start(context.Background(), "no_such_tool", `{}`, tool.Discard).refuse(tool.CodeNotFound)
}

func cancelled(p *probe) error {
	var got Collect
	r := p.start(context.Background(), "hang", `{}`, &got)
	if err := p.hanging(r, &got); err != nil {
		return err
	}
	r.end()
	return p.survives(r, tool.CodeCancelled)
}

// survives checks that a call is refused and that the handler still works after it.
func (p *probe) survives(r *running, code tool.Code) error {
	if err := r.refuse(code); err != nil {
		return err
	}
	return p.echo(`{"after":"` + string(code) + `"}`)
}

// hanging waits until the tool logs that it hangs, or for a moment if it cannot log.
func (p *probe) hanging(r *running, got *Collect) error {
	if p.can(Events) {
		if got.WaitLog(r.live, "hanging") != nil {
			return r.tooSoon(`it said "hanging"`)
		}
		return nil
	}
	select {
	case <-r.live.Done():
		return r.tooSoon("it was ended")
	case <-time.After(100 * time.Millisecond):
		return nil
	}
}

func cancelledBefore(p *probe) error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return p.survives(p.start(ctx, "hang", `{}`, tool.Discard), tool.CodeCancelled)
}

func deadline(p *probe) error {
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	return p.survives(p.start(ctx, "hang", `{}`, tool.Discard), tool.CodeTimeout)
}

var errEnough = errors.New("the caller wants no more events")

// stopAfter is a sink that takes n events.
func stopAfter(n int64) tool.Sink {
	var taken atomic.Int64
	return tool.SinkFunc(func(tool.Event) error {
		if taken.Add(1) > n {
			return errEnough
		}
		return nil
	})
}

func sinkError(p *probe) error {
	return p.stopped(p.events(10, stopAfter(3)))
}

func sinkErrorEnds(p *probe) error {
	r := p.start(context.Background(), "flood", `{}`, stopAfter(3))
	select {
	case <-r.returned:
		return p.stopped(r)
	case <-time.After(p.grace):
		r.end()
		return errors.Join(errors.New("flood: the call went on after the sink's error"), r.lawful())
	}
}

func (p *probe) stopped(r *running) error {
	if err := r.lawful(); err != nil {
		return err
	}
	if !errors.Is(r.err, errEnough) {
		return fmt.Errorf("%s: the sink said %q, but Invoke returned the error %v", r.was.Tool, errEnough, r.err)
	}
	return p.echo(`{"after":"stop"}`)
}

func crashed(p *probe) error {
	return p.survives(p.start(context.Background(), "crash", `{}`, tool.Discard), cmp.Or(p.died, tool.CodeCrash))
}

func concurrent(p *probe) error {
	const calls = 32
	errs := make([]error, calls)
	var wg sync.WaitGroup
	for i := range calls {
		wg.Go(func() {
			if i%2 == 0 || !p.can(Events) {
				errs[i] = p.echo(fmt.Sprintf(`{"call":%d}`, i))
				return
			}
			var got Collect
			if _, errs[i] = p.events(i, &got).succeed(); errs[i] == nil {
				errs[i] = numbered(got.Logs(), i)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

const children = 3

func (p *probe) spawn(setsid, hang bool, out tool.Sink) *running {
	args := fmt.Sprintf(`{"children":%d,"sleep":%q,"setsid":%t,"hang":%t}`, children, mark(), setsid, hang)
	return p.start(context.Background(), "spawn", args, out)
}

func spawned(setsid bool) func(*probe) error {
	return func(p *probe) error {
		result, err := p.spawn(setsid, false, tool.Discard).succeed()
		if err != nil {
			return err
		}
		var out struct {
			Started int `json:"started"`
		}
		if err := strictjson.Unmarshal(result.Output, &out); err != nil || out.Started != children {
			return fmt.Errorf(`spawn: the output is %s and not {"started":%d}`, result.Output, children)
		}
		return p.allGone()
	}
}

func spawnCancelled(setsid bool) func(*probe) error {
	return func(p *probe) error {
		r := p.spawn(setsid, true, tool.Discard)
		if err := r.sleeping(); err != nil {
			return err
		}
		r.end()
		return errors.Join(r.refuse(tool.CodeCancelled), p.allGone())
	}
}

// sleeping waits until the processes of a spawn exist.
func (r *running) sleeping() error {
	err := eventually(limit, func() error {
		if n := len(sleepers()); n < children && r.live.Err() == nil {
			return fmt.Errorf("%d of %d", n, children)
		}
		return nil
	})
	if err != nil || r.live.Err() != nil {
		return r.tooSoon(fmt.Sprintf(`%d processes "sleep %s" were there`, children, mark()))
	}
	return nil
}

// allGone waits until they are gone. It does not close the handler: the processes of a call must end with the call, not
// only with the runner.
func (p *probe) allGone() error {
	err := eventually(p.grace, func() error { return describe(sleepers()) })
	if err != nil {
		return fmt.Errorf("spawn: the call has returned, and its processes still run: %w", err)
	}
	return nil
}

const (
	maxAhead  = 8 << 20 // bytes that buffers of this process may hold between a tool and its caller
	freeCount = 1000    // events, of 1 KiB each, that pass before the sink blocks
)

// backPressure lets some events pass, blocks the sink, and checks whether memory grows. The rate before determines how
// long it watches: long enough for twice what buffers may hold.
func backPressure(p *probe) error {
	v := &valve{blocked: make(chan struct{}), opened: make(chan struct{})}
	r := p.start(context.Background(), "flood", `{}`, v)
	open := sync.OnceFunc(func() { close(v.opened) })
	defer open()
	select {
	case <-v.blocked:
	case <-r.live.Done():
		return r.tooSoon(fmt.Sprintf("%d events had come", freeCount))
	}
	const rounds = 2 * maxAhead / (freeCount << 10)
	err := watchHeap(min(max(rounds*v.took, 200*time.Millisecond), 3*time.Second))
	r.end()
	open()
	return errors.Join(err, v.short, r.refuse(tool.CodeCancelled))
}

// watchHeap looks only a few times: buffers do not empty, and every look collects all garbage.
func watchHeap(d time.Duration) error {
	before := liveHeap()
	for start := time.Now(); time.Since(start) < d; {
		time.Sleep(d / 8)
		if now := liveHeap(); now > before+maxAhead {
			return fmt.Errorf("flood: the sink blocks, and yet %d MiB of events were taken from the tool",
				(now-before)>>20)
		}
	}
	return nil
}

func liveHeap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A valve is a sink that lets some events through and then blocks until it is opened.
type valve struct {
	mu    sync.Mutex
	count int
	first time.Time

	blocked, opened chan struct{}
	took            time.Duration // until it blocked; like short set before blocked is closed
	short           error         // events are so small that the check would see nothing
}

func (v *valve) Emit(e tool.Event) error {
	if !v.pass(e) {
		<-v.opened
	}
	return nil
}

func (v *valve) pass(e tool.Event) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch v.count++; v.count {
	case 1:
		v.first = time.Now()
	case freeCount:
		if v.took = time.Since(v.first); len(e.Data) < 1<<10 {
			v.short = fmt.Errorf("flood: an event has %d bytes of data; 1 KiB is the least", len(e.Data))
		}
		close(v.blocked)
	}
	return v.count < freeCount
}
