package engine

import (
	"context"
	"iter"

	"toolpost/config"
	"toolpost/tool"
)

// A Brought is a tool as its source brings it, for a node that runs it for others: no right of a caller leaves it out.
type Brought struct {
	Spec     *tool.Spec
	Why      error // why it cannot be called now, or nil
	Upstream bool  // a third party describes it
	Touches  bool  // its runner knows what a call will touch
}

// Brought yields the tools of the sources of this node, without Toolpost's own and those that are held back.
func (e *Engine) Brought(ctx context.Context) iter.Seq[Brought] {
	sh := e.complete(ctx)
	return func(yield func(Brought) bool) {
		for _, it := range sh.items {
			if it.back() || it.spec.Name == "" || it.source.Remote || it.source.Name == config.OwnSource {
				continue
			}
			spec := *it.own
			spec.Source, spec.Protocol = it.spec.Source, it.spec.Protocol
			if !yield(Brought{&spec, it.why(), it.source.Upstream, it.toucher() != nil}) {
				return
			}
		}
	}
}

// Touches asks the runner of a tool what a call is going to touch; it is nothing if the runner does not know.
func (e *Engine) Touches(ctx context.Context, c *tool.Call) (tool.Touches, error) {
	it, err := e.borrow(ctx, c.Caller, c.Tool)
	if err != nil {
		return tool.Touches{}, err
	}
	defer it.source.release()
	if t := it.toucher(); t != nil {
		return t.Touches(c)
	}
	return tool.Touches{}, nil
}
