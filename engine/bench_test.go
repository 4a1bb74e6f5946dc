package engine_test

import (
	"context"
	"encoding/json"
	"testing"

	"toolpost/engine"
	"toolpost/tool"
)

// BenchmarkInvoke is what the chain costs around a tool that does nothing.
func BenchmarkInvoke(b *testing.B) {
	src := source(echo, "greet")
	src.specs[0].Input = json.RawMessage(person)
	e := engine.New(engine.Options{})
	e.Replace(b.Context(), []engine.Binding{bind("one", src)})
	defer e.Close(context.Background())
	c := &tool.Call{Tool: "greet", Args: json.RawMessage(`{"name":"Ada","age":36}`)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := e.Invoke(b.Context(), c, tool.Discard); err != nil {
			b.Fatal(err)
		}
	}
}
