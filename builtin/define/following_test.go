package define_test

import (
	"context"
	"testing"

	"toolpost/builtin/define"
	"toolpost/engine/follow"
	"toolpost/tool"
)

// A call that follows something normally ends when its caller leaves; if it is cancelled or times out, it fails.
func TestFollowingCallSucceedsWhenItsCallerLeaves(t *testing.T) {
	type none struct{}
	followers := follow.New()
	began := make(chan struct{})
	s := define.NewSet(define.New(tool.Spec{Name: "watch"}, define.Following(followers,
		func(ctx context.Context, _ *define.Call, _ none, f *follow.Follower) (greeting, error) {
			close(began)
			_, err := f.Wait(ctx, nil, follow.Longest)
			return greeting{"so far"}, err
		})))
	for name, c := range map[string]struct {
		cause error
		want  tool.Code
	}{
		"left":      {nil, ""},
		"cancelled": {tool.Errorf(tool.CodeCancelled, "the call was cancelled by ada"), tool.CodeCancelled},
		"late":      {context.DeadlineExceeded, tool.CodeTimeout},
	} {
		began = make(chan struct{})
		ctx, end := context.WithCancelCause(t.Context())
		go func() { <-began; end(c.cause) }()
		r, err := s.Invoke(ctx, &tool.Call{Tool: "watch"}, tool.Discard)
		if tool.CodeOf(err) != c.want || err == nil && string(r.Output) != `{"text":"so far"}` {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}
