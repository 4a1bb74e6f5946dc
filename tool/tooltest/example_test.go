package tooltest_test

import (
	"context"
	"fmt"
	"testing"

	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// A test of a runner, a stage or a door is this function. Here it is a stage that lets every call through, in front of
// the reference.
func Example() {
	through := func(next tool.Handler) tool.Handler {
		return tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
			return next.Invoke(ctx, c, out)
		})
	}

	TestThrough := func(t *testing.T) {
		tooltest.Run(t, tooltest.Subject{
			New: func(testing.TB) tool.Handler { return through(tooltest.Reference{}) },
		})
	}

	_ = TestThrough // go test finds and runs it
}

// A protocol that answers once and cannot stream declares that, and is not tested for it. New ends what it starts with
// t.Cleanup.
func ExampleSubject() {
	open := func(t testing.TB) tool.Handler {
		ctx, cancel := context.WithCancel(context.Background())
		t.Cleanup(cancel)
		_ = ctx // a real runner lives in it
		return tooltest.Reference{}
	}
	_ = tooltest.Subject{New: open, Without: tooltest.Events | tooltest.Digits}
}

func ExampleCollect() {
	var got tooltest.Collect
	call := &tool.Call{Tool: "events", Args: []byte(`{"count":2}`)}
	result, err := tooltest.Reference{}.Invoke(context.Background(), call, &got)
	fmt.Println(result.OK, err)
	fmt.Println(got.Logs())
	// Output:
	// true <nil>
	// [event 1 event 2]
}
