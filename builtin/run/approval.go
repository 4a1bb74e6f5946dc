package run

import (
	"context"
	"slices"
	"time"

	"toolpost/tool"
)

// A Waiter waits for others than the program: an Ask that one of its calls got is for somebody who decides about it.
type Waiter interface {
	// Wait returns when it is worth asking again, or when ctx has ended.
	Wait(ctx context.Context, c *tool.Call, ask *tool.Ask) error
}

// decided makes a call, and where somebody has to approve it, again and again until that is decided. Whoever wrote the
// program cannot answer for them; all that it can do is wait.
func (t *Tools) decided(ctx context.Context, c *tool.Call) (*tool.Result, error) {
	wait := t.Waiter
	for {
		r, err := t.Engine.Invoke(ctx, c, tool.Discard)
		if err != nil || r.Ask == nil || !approval(r.Ask) {
			return r, err
		}
		if wait == nil {
			wait = &polling{}
		}
		if err := wait.Wait(ctx, c, r.Ask); err != nil {
			return nil, tool.Errorf(tool.CodeOf(err), "%s was not run: nobody has approved it yet (%s): %w", c.Tool,
				r.Ask.Message, err)
		}
		again := *c
		again.ID, again.Resume = "", r.Ask.ID
		c = &again
	}
}

// approval reports whether an Ask is for somebody who may approve of the call.
func approval(a *tool.Ask) bool {
	return slices.ContainsFunc(a.Needs, func(n tool.Need) bool { return n.Kind == needApproval })
}

const needApproval tool.NeedKind = "approval"

// polling asks again after a while, each time a longer one: nobody tells it when something was decided.
type polling struct{ pause time.Duration }

// The pauses between two questions.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
)

// Wait implements Waiter.
func (p *polling) Wait(ctx context.Context, _ *tool.Call, _ *tool.Ask) error {
	p.pause = min(max(2*p.pause, firstPause), lastPause)
	select {
	case <-time.After(p.pause):
		return nil
	case <-ctx.Done():
		return tool.Ended(ctx)
	}
}
