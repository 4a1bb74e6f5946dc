package approval

import (
	"context"
	"time"

	"toolpost/tool"
)

// How often Wait looks at the store, because another process may decide: soon at first, less often later.
const (
	firstLook = 50 * time.Millisecond
	lastLook  = time.Second
)

// Wait returns when an approval is no longer waiting: it was decided, or its time is over. It does not return the
// decision, which is for the call that asked. It fails if there is no such approval, if the store cannot be read, or if
// ctx ends.
func (s *Approvals) Wait(ctx context.Context, id string) error {
	for pause := firstLook; ; pause = min(2*pause, lastLook) {
		decided := s.decided.Changed() // before the look, so that no change is missed
		e, err := s.o.Store.Find(ctx, id)
		if err != nil {
			return err
		}
		now := s.o.Now()
		if e.At(now) != Waiting {
			return nil
		}
		select {
		case <-decided:
		case <-time.After(min(pause, max(e.Until.Sub(now), firstLook))): // never 0, which would not be a pause
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Changed returns a channel that is closed when an approval was requested or decided in this process.
func (s *Approvals) Changed() <-chan struct{} { return s.decided.Changed() }

// Waiting returns a handler for callers that stay until there is an outcome, as models, programs and plans do. A call
// that has to be approved is made again, under the same id, once that is decided. It waits as long as ctx lasts. A later
// approval is not lost: the same call, made anew, picks it up.
func (s *Approvals) Waiting(next tool.Handler) tool.Handler {
	return tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
		r, err := next.Invoke(ctx, c, out)
		for err == nil && r.Ask != nil && r.Ask.Kind == tool.AskApproval {
			if err := s.Wait(ctx, r.Ask.ID); err != nil {
				return nil, undecided(ctx, c, r.Ask, err)
			}
			again := *c
			again.Resume, again.Answers = r.Ask.ID, nil
			r, err = next.Invoke(ctx, &again, out)
			if err != nil && tool.AsError(err).Reason == Unknown { // an equal call in parallel has used it up
				r, err = next.Invoke(ctx, c, out)
			}
		}
		return r, err
	})
}

// undecided returns the error of a call whose caller could not wait any longer.
func undecided(ctx context.Context, c *tool.Call, a *tool.Ask, err error) error {
	if ctx.Err() != nil {
		err = tool.Ended(ctx)
	}
	return tool.Errorf(tool.CodeOf(err), "%s was not run, because it was not decided in time (%s): %w", c.Tool, a.Message, err)
}
