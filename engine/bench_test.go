package engine_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"

	"toolpost/engine"
	"toolpost/engine/calls"
	"toolpost/internal/kit"
	"toolpost/tool"
)

// BenchmarkInvoke measures the cost of the chain around a tool that does nothing: alone, with recent calls kept, and
// while a client watches, so that every stage is timed.
func BenchmarkInvoke(b *testing.B) {
	b.Run("alone", func(b *testing.B) { benchmarkInvoke(b, nil) })
	kept := calls.New(calls.Env{})
	stage := kept.Stage(slog.New(slog.DiscardHandler))
	b.Run("kept", func(b *testing.B) { benchmarkInvoke(b, stage) })
	defer kept.Watching()()
	b.Run("watched", func(b *testing.B) { benchmarkInvoke(b, stage) })
}

func benchmarkInvoke(b *testing.B, keep engine.Stage) {
	src := source(echo, "greet")
	src.specs[0].Input = json.RawMessage(person)
	e := engine.New(engine.Options{Stages: map[string]engine.Stage{"calls": keep}})
	e.Replace(b.Context(), []engine.Binding{bind("one", src)})
	defer e.Close(context.Background())
	c := &tool.Call{Tool: "greet", Args: json.RawMessage(`{"name":"Ada","age":36}`)}
	b.ReportAllocs()
	for b.Loop() {
		kit.Must(e.Invoke(b.Context(), c, tool.Discard))(b)
	}
}
