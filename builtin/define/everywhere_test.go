package define

import (
	"context"
	"testing"

	"toolpost/internal/kit"
	"toolpost/tool"
)

// What another node sends in place of a line ends no call, and is not taken for a line of this node.
func TestWhatIsNoLineOfAnotherNodeIsDropped(t *testing.T) {
	var got []string
	_, stop := context.WithCancelCause(t.Context())
	sink := tool.SinkFunc(func(ev tool.Event) error { got = append(got, string(ev.Data)); return nil })
	g := &gathered{of: Everywhere{Field: "node"}, out: tool.NewRelay(sink, stop), next: map[string]int64{}}
	line := `{"level":"info","message":"m","fields":{"node":"hub"}}`
	for _, ev := range []tool.Event{
		{Kind: tool.KindLog, Data: []byte(`{"level":"info","message":"m","fields":{"node":"hub","a":1,"a":2}}`)},
		{Kind: tool.KindLog, Data: []byte(`{"level":"info","message":"m","fields":"x"}`)},
		{Kind: tool.KindLog, Data: []byte(`{"level":1}`)},
		{Kind: tool.KindLog},
		{Kind: "result", Data: []byte(line)},
		{Kind: tool.KindLog, Data: []byte(line)},
	} {
		kit.OK(t, g.pass("worker", ev, true))
	}
	kit.EqualSlices(t, got, []string{`{"level":"info","message":"m","fields":{"node":"worker"}}`})
}
