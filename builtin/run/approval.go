package run

import (
	"context"
	"time"

	"toolpost/tool"
)

// A Waiter is an engine that knows when somebody has decided about a call, by the id of its Ask. Without one the call
// is made again and again.
type Waiter interface {
	Wait(ctx context.Context, ask string) error
}

// decided makes a call, and where somebody has to approve it, again until that is decided. Whoever wrote the program
// cannot answer for them; all that it can do is wait, as long as it has time.
func (t *Tools) decided(ctx context.Context, c *tool.Call) (*tool.Result, error) {
	var wait Waiter = &polling{}
	if knows, ok := t.Engine.(Waiter); ok {
		wait = knows
	}
	for {
		r, err := t.Engine.Invoke(ctx, c, tool.Discard)
		if err != nil || r.Ask == nil || r.Ask.Kind != tool.AskApproval {
			return r, err
		}
		if err := wait.Wait(ctx, r.Ask.ID); err != nil {
			return nil, tool.Errorf(tool.CodeOf(err), "%s was not run: nobody has approved it (%s): %w", c.Tool, r.Ask.Message,
				err)
		}
		again := *c
		again.ID, again.Resume = "", r.Ask.ID
		c = &again
	}
}

// polling asks again after a while, each time a longer one: nobody tells it when something was decided.
type polling struct{ pause time.Duration }

// The pauses between two questions.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
)

// Wait implements Waiter.
func (p *polling) Wait(ctx context.Context, _ string) error {
	p.pause = min(max(2*p.pause, firstPause), lastPause)
	select {
	case <-time.After(p.pause):
		return nil
	case <-ctx.Done():
		return tool.Ended(ctx)
	}
}
