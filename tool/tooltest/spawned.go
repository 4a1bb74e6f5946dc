package tooltest

import (
	"context"
	"errors"
	"fmt"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

const children = 3

func (p *probe) spawn(setsid, hang bool, out tool.Sink) *running {
	args := fmt.Sprintf(`{"children":%d,"sleep":%q,"setsid":%t,"hang":%t}`, children, mark(), setsid, hang)
	return p.start(context.Background(), "spawn", args, out)
}

func spawned(setsid bool) func(*probe) error {
	return func(p *probe) error {
		result, err := p.spawn(setsid, false, tool.Discard).succeed()
		if err != nil {
			return err
		}
		var out struct {
			Started int `json:"started"`
		}
		if err := strictjson.Unmarshal(result.Output, &out); err != nil || out.Started != children {
			return fmt.Errorf(`spawn: the output is %s and not {"started":%d}`, result.Output, children)
		}
		return p.allGone()
	}
}

func spawnCancelled(setsid bool) func(*probe) error {
	return func(p *probe) error {
		r := p.spawn(setsid, true, tool.Discard)
		if err := r.sleeping(); err != nil {
			return err
		}
		r.end()
		return errors.Join(r.refuse(tool.CodeCancelled), p.allGone())
	}
}

// sleeping waits until the processes of a spawn are there.
func (r *running) sleeping() error {
	err := eventually(limit, func() error {
		if n := len(sleepers()); n < children && r.live.Err() == nil {
			return fmt.Errorf("%d of %d", n, children)
		}
		return nil
	})
	if err != nil || r.live.Err() != nil {
		return r.tooSoon(fmt.Sprintf(`%d processes "sleep %s" were there`, children, mark()))
	}
	return nil
}

// allGone waits until they are gone. It does not close the handler: what a call started ends with the
// call, and not only with the runner.
func (p *probe) allGone() error {
	err := eventually(p.grace, func() error { return describe(sleepers()) })
	if err != nil {
		return fmt.Errorf("spawn: the call has returned, and its processes still run: %w", err)
	}
	return nil
}
