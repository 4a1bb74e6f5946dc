package define

import (
	"context"

	"toolpost/engine/follow"
)

// Following makes a tool follow something: its caller is a follower while it runs. Such a call has no end of its own, so it
// succeeds when its caller leaves, and is recorded so. A call that is cancelled, or times out, fails like any other.
func Following[A, O any](
	of *follow.Followers, run func(context.Context, *Call, A, *follow.Follower) (O, error),
) func(context.Context, *Call, A) (O, error) {
	return func(ctx context.Context, c *Call, args A) (out O, err error) {
		f, err := of.Begin(c.Caller)
		if err != nil {
			return out, err
		}
		defer f.End()
		if out, err = run(ctx, c, args, f); follow.Left(ctx) {
			err = nil
		}
		return out, err
	}
}
