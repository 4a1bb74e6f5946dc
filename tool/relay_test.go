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

func TestTraceparent(t *testing.T) {
	const id, parent = "4bf92f35-77b3-4da6-a3ce-929d0e0e4736", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	if got := tool.TraceOf(parent); got != id {
		t.Error(got)
	}
	if got := tool.TraceOf(tool.Traceparent(id, "")); got != id {
		t.Error(got)
	}
	for _, bad := range []string{
		"", "00", parent[:40], "ff" + parent[2:], "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
		"00-4BF92F3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "0-" + parent[3:],
	} {
		if got := tool.TraceOf(bad); got != "" {
			t.Errorf("%s: %s", bad, got)
		}
	}
	if got := tool.Traceparent("my-trace", ""); got != "" {
		t.Error(got)
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
