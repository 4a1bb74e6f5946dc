package machina_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"toolpost/internal/kit"
	"toolpost/protocol/machina"
	"toolpost/store"
	"toolpost/tool"
)

// gated lets a call through only when the test permits it.
type gated struct {
	*stack
	gate chan struct{}
}

func (g gated) Invoke(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	<-g.gate
	return g.stack.Invoke(ctx, c, out)
}

func doorOf(in io.Reader, out io.Writer) *machina.Door {
	return &machina.Door{
		Mode: machina.Serve, Source: "tooltest", In: in, Out: out,
		Caller: tool.Principal{ID: "local", Door: "machina", Operates: true},
	}
}

// Requests that arrive together are answered one by one: no answer waits for the next call.
func TestAnAnswerDoesNotWaitForTheNextCall(t *testing.T) {
	const n = 100
	s := gated{newStack(&store.Leases{}, 4), make(chan struct{})}
	answers, out := io.Pipe()
	var lines strings.Builder
	for i := range n {
		fmt.Fprintln(&lines, ask("AID.TOOLTEST.ECHO.v1", fmt.Sprintf(`{"n":%d}`, i)))
	}
	ended := make(chan error, 1)
	go func() { ended <- doorOf(strings.NewReader(lines.String()), out).Serve(kit.Context(t), s, s) }()
	read := bufio.NewReader(answers)
	for i := range n {
		s.gate <- struct{}{} // the next call is not let through before this answer was read
		line, err := read.ReadString('\n')
		if err != nil || !strings.Contains(line, fmt.Sprintf(`{\"n\":%d}`, i)) {
			t.Fatalf("answer %d: %v %s", i, err, line)
		}
	}
	kit.Check(t, <-ended)
}

type broken struct{ after int }

func (b *broken) Write(p []byte) (int, error) {
	if b.after -= len(p); b.after < 0 {
		return 0, errors.New("nobody reads")
	}
	return len(p), nil
}

// Calls whose answers can no longer be written are not made.
func TestAPeerThatNoLongerReadsEndsTheSession(t *testing.T) {
	s := newStack(&store.Leases{}, 4)
	endless := io.MultiReader(strings.NewReader(ask("AID.TOOLTEST.ECHO.v1", `{}`)+"\n"), forever{})
	err := doorOf(endless, &broken{2000}).Serve(kit.Context(t), s, s)
	kit.Fails(t, err, "nobody reads")
}

// forever sends requests without end.
type forever struct{}

func (forever) Read(p []byte) (int, error) {
	return copy(p, ask("AID.TOOLTEST.ECHO.v1", `{}`)+"\n"), nil
}
