package tool_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"toolpost/tool"
)

func TestRelayEndsTheCallWhenItsSinkFails(t *testing.T) {
	ctx, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	gone, n := errors.New("gone"), 0
	r := tool.NewRelay(tool.SinkFunc(func(tool.Event) error {
		if n++; n == 2 {
			return gone
		}
		return nil
	}), stop)
	r.Stderr([]byte("one"))
	if ctx.Err() != nil || r.Err() != nil {
		t.Fatal("ended too early")
	}
	if err := r.Emit(tool.LogEvent("info", "two")); !errors.Is(err, gone) || !errors.Is(context.Cause(ctx), gone) {
		t.Errorf("%v, %v", err, context.Cause(ctx))
	}
	if err := r.Emit(tool.LogEvent("info", "three")); !errors.Is(err, gone) || n != 2 || !errors.Is(r.Err(), gone) {
		t.Errorf("the sink was used again: %v, %d", err, n)
	}
}

func TestRelaySerialisesItsSinkAndStopsAtClose(t *testing.T) {
	n := 0 // unguarded, on purpose
	r := tool.NewRelay(tool.SinkFunc(func(tool.Event) error { n++; return nil }), func(error) {})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				_ = r.Emit(tool.Event{})
			}
		})
	}
	wg.Wait()
	r.Close()
	if err := r.Emit(tool.Event{}); err != nil || n != 800 {
		t.Errorf("%v, %d events", err, n)
	}
}

// A trace that can be read can be sent on.
func FuzzTraceparent(f *testing.F) {
	f.Add("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	f.Add("00-0-0-0")
	f.Fuzz(func(t *testing.T, parent string) {
		if trace := tool.TraceOf(parent); trace != "" && tool.TraceOf(tool.Traceparent(trace, "")) != trace {
			t.Errorf("%q gave %q, which cannot be sent on", parent, trace)
		}
	})
}
