package singularity

import (
	"context"
	"errors"
	"testing"

	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// contract(singularity): Contract between AI Server (TypeScript) and Elixir App for tool execution via NATS.
func TestADoorAndARunnerTogetherKeepTheContractOfHandlers(t *testing.T) {
	tooltest.Run(t, tooltest.Subject{New: func(t testing.TB) tool.Handler {
		s := startServer(t, "127.0.0.1:0")
		serve(t, DoorOptions{Server: s}, tooltest.Reference{}, tooltest.Reference{})
		return mustOpen(t, withToken(t, s.ClientURL(), ""))
	}})
}

// The plain style cannot carry events, the end of a call on the other side, or a crash.
func TestTheStylesOfTheContractKeepTheContractOfHandlers(t *testing.T) {
	for _, style := range []string{"plain", "tool_call"} {
		t.Run(style, func(t *testing.T) {
			tooltest.Run(t, tooltest.Subject{
				Without: tooltest.Events | tooltest.Crash | tooltest.Cancel,
				New: func(t testing.TB) tool.Handler {
					s := startServer(t, "127.0.0.1:0")
					serve(t, DoorOptions{Server: s}, tooltest.Reference{}, tooltest.Reference{})
					tools := ", tools: ["
					for _, spec := range tooltest.Specs() {
						tools += "{name: " + spec.Name + "},"
					}
					return mustOpen(t, withToken(t, s.ClientURL(), ", style: "+style+tools+"]"))
				},
			})
		})
	}
}

func TestARunnerOfAForeignServerReturnsWhenItsContextEnds(t *testing.T) {
	tooltest.NoLeaks(t)
	s := startServer(t, "127.0.0.1:0")
	nc := connectOwn(t, s)
	received := make(chan struct{}, 1)
	_, err := nc.Subscribe("tools.shell.exec", answerNever(received))
	kit.OK(t, errors.Join(err, nc.Flush())) // the server knows about it when Flush returns
	r := mustOpen(t, withToken(t, s.ClientURL(), ", tools: [{name: execShell}]"))
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-received; cancel() }()
	_, err = r.Invoke(ctx, &tool.Call{Tool: "execShell", Args: []byte(`{}`)}, tool.Discard)
	wantCode(t, err, tool.CodeCancelled)
}
