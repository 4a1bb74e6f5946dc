package node

import (
	"context"

	storytools "toolpost/builtin/story"
	"toolpost/plan"
)

// stories returns the options of the story tools: the planners of the config tell them, and past plans are their history.
func (n *Node) stories() storytools.Options {
	o := storytools.Options{
		Planners: n.planners, Plans: n.plans, State: n.keep.state,
	}
	if n.store != nil {
		o.Past = n.pastPlans
	}
	return o
}

// pastPlans returns the last plans of a session in full, the newest first.
func (n *Node) pastPlans(ctx context.Context, caller, session string, most int) ([]plan.Record, error) {
	plans := n.store.Plans()
	list, err := plans.List(ctx, caller, session, "", most)
	for i := range list {
		if err == nil {
			list[i], _, err = plans.Find(ctx, caller, list[i].ID)
		}
	}
	return list, err
}
