package tooltest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// A probe makes the calls of one check, and checks each of them against the contract of tool.Handler.
type probe struct {
	h       tool.Handler
	specs   []*tool.Spec
	without Features
	died    tool.Code
	grace   time.Duration

	mu    sync.Mutex
	found []error // faults that show only while or after a call runs
}

// limit bounds a call that nothing else ends. It only guards against a hang of the tests.
const limit = time.Minute

func (p *probe) open(h tool.Handler) error {
	p.h, p.specs = h, Specs()
	source, ok := h.(tool.Source)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	specs, err := source.Tools(ctx)
	if err != nil {
		return fmt.Errorf("the subject cannot list its tools: %w", err)
	}
	p.specs = specs
	return nil
}

func (p *probe) can(f Features) bool { return p.without&f == 0 }

func (p *probe) fault(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.found) < 8 { // a flood of faults is one fault
		p.found = append(p.found, err)
	}
}

func (p *probe) faults() []error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.found)
}

// A running is a call in progress.
type running struct {
	p         *probe
	ctx       context.Context
	end       context.CancelFunc
	live      context.Context // ends when the call returns, or with ctx
	call, was *tool.Call      // the call passed to the handler, and a copy from before
	returned  chan struct{}   // closed once result and err are set
	result    *tool.Result
	err       error
}

// start makes a call. Its caller waits for it.
func (p *probe) start(ctx context.Context, name, args string, out tool.Sink) *running {
	r := &running{p: p, call: p.call(name, args), was: p.call(name, args), returned: make(chan struct{})}
	r.was.ID, r.was.Trace = r.call.ID, r.call.Trace
	r.ctx, r.end = context.WithTimeout(ctx, limit)
	var over context.CancelFunc
	r.live, over = context.WithCancel(r.ctx)
	go func() {
		defer over()
		defer close(r.returned)
		g := &guard{p: p, tool: name, out: out}
		r.result, r.err = p.h.Invoke(r.ctx, r.call, g)
		g.closed.Store(true)
	}()
	return r
}

func (p *probe) call(name, args string) *tool.Call {
	spec := &tool.Spec{Name: name, Source: "tooltest", Protocol: "tooltest"}
	if i := slices.IndexFunc(p.specs, func(s *tool.Spec) bool { return s.Name == name }); i >= 0 {
		spec = copySpec(p.specs[i])
	}
	return &tool.Call{
		ID: tool.NewID(), Trace: tool.NewID(), Tool: name, Args: json.RawMessage(args), Spec: spec,
		Caller: tool.Principal{ID: "tooltest", Door: "tooltest"},
	}
}

func copySpec(s *tool.Spec) *tool.Spec {
	c := *s
	c.Aliases = slices.Clone(s.Aliases)
	c.Input, c.Output = bytes.Clone(s.Input), bytes.Clone(s.Output)
	c.Guarantees.SecretsAllowed = slices.Clone(s.Guarantees.SecretsAllowed)
	return &c
}

// join waits until the call has returned; once its context has ended, it waits for the grace at most.
func (r *running) join() error {
	defer r.end()
	select {
	case <-r.returned:
		return nil
	case <-r.ctx.Done():
	}
	select {
	case <-r.returned:
		return nil
	case <-time.After(r.p.grace):
		return fmt.Errorf("%s: Invoke did not return within %v after its context had ended", r.was.Tool, r.p.grace)
	}
}

// lawful joins, and returns an error if the outcome breaks the contract, whatever was called.
func (r *running) lawful() error {
	if err := r.join(); err != nil {
		return err
	}
	switch {
	case r.result == nil && r.err == nil:
		return fmt.Errorf("%s: Invoke returned neither a result nor an error", r.was.Tool)
	case r.result != nil && r.err != nil:
		return fmt.Errorf("%s: Invoke returned both a result and an error: %w", r.was.Tool, r.err)
	case changed(r.was, r.call) != "":
		return fmt.Errorf("%s: the handler changed the call's %s", r.was.Tool, changed(r.was, r.call))
	case r.err != nil:
		return nil
	}
	return lawfulResult(r.was.Tool, r.result)
}

// changed names the first field in which two calls differ.
func changed(a, b *tool.Call) string {
	va, vb := reflect.ValueOf(*a), reflect.ValueOf(*b)
	for i := range va.NumField() {
		if !reflect.DeepEqual(va.Field(i).Interface(), vb.Field(i).Interface()) {
			return va.Type().Field(i).Name
		}
	}
	return ""
}

func lawfulResult(name string, r *tool.Result) error {
	switch {
	case r.OK && (r.Failure != nil || r.Ask != nil):
		return fmt.Errorf("%s: the result is OK and has a failure or a question too", name)
	case !r.OK && r.Failure == nil && r.Ask == nil:
		return fmt.Errorf("%s: the result is not OK and does not say why", name)
	case len(r.Output) > 0:
		if err := strictjson.Check(r.Output); err != nil {
			return fmt.Errorf("%s: the output is not JSON: %w", name, err)
		}
	}
	return nil
}

// succeed waits for a result that is OK.
func (r *running) succeed() (*tool.Result, error) {
	if err := r.lawful(); err != nil {
		return nil, err
	}
	switch {
	case r.err != nil:
		return nil, fmt.Errorf("%s: %w", r.was.Tool, r.err)
	case !r.result.OK:
		return nil, fmt.Errorf("%s: a tool that succeeds came back as not OK: %v", r.was.Tool, r.result.Failure)
	}
	return r.result, nil
}

// refuse waits for an error with that code.
func (r *running) refuse(want tool.Code) error {
	if err := r.lawful(); err != nil {
		return err
	}
	if got := tool.CodeOf(r.err); got != want {
		return fmt.Errorf("%s: expected an error of code %s; got %q: %v", r.was.Tool, want, got, r.err)
	}
	return nil
}

// tooSoon ends a call that returned before it got that far, and returns an error.
func (r *running) tooSoon(where string) error {
	r.end()
	if err := r.lawful(); err != nil {
		return err
	}
	return fmt.Errorf("%s: the call ended before %s, with the result %+v and the error %v", r.was.Tool, where, r.result,
		r.err)
}

// A guard is between the handler and a check's sink and checks every event.
type guard struct {
	p      *probe
	tool   string
	out    tool.Sink
	closed atomic.Bool
}

var errLate = errors.New("an event was emitted after Invoke had returned")

func (g *guard) Emit(e tool.Event) error {
	if g.closed.Load() {
		g.p.fault(fmt.Errorf("%s: %w", g.tool, errLate))
		return errLate
	}
	if err := lawfulEvent(e); err != nil {
		g.p.fault(fmt.Errorf("%s: %w", g.tool, err))
	}
	return g.out.Emit(e)
}

func lawfulEvent(e tool.Event) error {
	switch e.Kind {
	case tool.KindLog, tool.KindProgress, tool.KindOutput, tool.KindStatePatch, tool.KindAsset, tool.KindUIEvent,
		tool.KindError:
	default:
		return fmt.Errorf("an event has the unknown kind %q", e.Kind)
	}
	if err := strictjson.CheckObject(e.Data); err != nil {
		return fmt.Errorf("the data of an event of kind %s: %w", e.Kind, err)
	}
	return nil
}

// Collect is a Sink that keeps every event and can be waited on. The zero value is ready.
type Collect struct {
	mu      sync.Mutex
	events  []tool.Event
	changes tool.Changes
}

// Emit keeps e.
func (c *Collect) Emit(e tool.Event) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, e)
	c.changes.Tell()
	return nil
}

// Events returns the events so far.
func (c *Collect) Events() []tool.Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.events)
}

// Logs returns the messages of the log events so far.
func (c *Collect) Logs() []string {
	var messages []string
	for _, e := range c.Events() {
		var data tool.Log
		if e.Kind == tool.KindLog && strictjson.Unmarshal(e.Data, &data) == nil {
			messages = append(messages, data.Message)
		}
	}
	return messages
}

// WaitLog waits until an event with that log message has come, or ctx has ended.
func (c *Collect) WaitLog(ctx context.Context, message string) error {
	for {
		changed := c.changes.Changed()
		if slices.Contains(c.Logs(), message) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
