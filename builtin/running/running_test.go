package running_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	tools "toolpost/builtin/running"
	"toolpost/engine/calls"
	"toolpost/internal/kit"
	"toolpost/tool"
)

var (
	ada      = tool.Principal{ID: "ada", Door: "http"}
	operator = tool.Principal{ID: "owner", Door: "nats", Operates: true}
)

// stage returns the stage that writes the log.
func stage(all *calls.Log) tool.Middleware { return all.Stage(slog.New(slog.DiscardHandler))(nil) }

// ask calls one of the tools through the stage, as the engine does.
func ask(ctx context.Context, all *calls.Log, who tool.Principal, name, args string) (string, error) {
	c := &tool.Call{ID: "asks", Tool: name, Args: json.RawMessage(args), Caller: who}
	r, err := stage(all)(tools.New(tools.Options{Calls: all})).Invoke(ctx, c, tool.Discard)
	if err != nil {
		return "", err
	}
	return string(r.Output), nil
}

func TestCallerAndOperatorSeeAndCancelACall(t *testing.T) {
	all := calls.New(calls.Env{})
	began, ended := make(chan bool), make(chan error, 1)
	go func() {
		_, err := stage(all)(tool.HandlerFunc(func(ctx context.Context, _ *tool.Call, out tool.Sink) (*tool.Result, error) {
			_ = out.Emit(tool.LogEvent("info", "half of it"))
			began <- true
			<-ctx.Done()
			return nil, context.Cause(ctx)
		})).Invoke(t.Context(), &tool.Call{ID: "c1", Tool: "slow", Caller: ada}, tool.Discard)
		ended <- err
	}()
	<-began
	for who, sees := range map[*tool.Principal]bool{&ada: true, &operator: true, {ID: "eve"}: false} {
		out, err := ask(t.Context(), all, *who, "listCalls", `{}`)
		if err != nil || strings.Contains(out, `"call":"c1","caller":"ada","door":"http","tool":"slow"`) != sees || strings.Contains(out, "asks") {
			t.Errorf("%s sees %s, %v", who.ID, out, err)
		}
		if sees && !strings.Contains(out, `"message":"half of it"`) {
			t.Error(out)
		}
	}
	for args, want := range map[string]tool.Code{
		`{"call":"c1"}`: tool.CodeNotFound, `{"call":"c1","caller":"ada"}`: tool.CodeAccessDenied, `{}`: tool.CodeNotFound, `{"id":"c1"}`: tool.CodeInvalidInput,
	} {
		kit.Refused(t, kit.Err(ask(t.Context(), all, tool.Principal{ID: "eve"}, "cancelCall", args)), want, "", args)
	}
	kit.Equal(t, kit.Must(ask(t.Context(), all, operator, "cancelCall", `{"call":"c1"}`))(t), `{"call":"c1"}`)
	kit.Refused(t, <-ended, tool.CodeCancelled, "")
}
