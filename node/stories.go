package node

import (
	"context"

	storytools "toolpost/builtin/story"
	"toolpost/plan"
)

// stories are told by the planners of the config; what has happened in them is what plans have left.
func (n *Node) stories() storytools.Options {
	o := storytools.Options{
		Planners: n.planners, Plans: n.plans, State: n.keep.state,
	}
	if n.store != nil {
		o.Past = n.pastPlans
	}
	return o
}

// pastPlans gives the last plans of a session whole, the newest first.
func (n *Node) pastPlans(ctx context.Context, caller, session string, most int) ([]plan.Record, error) {
	book := n.store.Plans()
	list, err := book.List(ctx, caller, session, "", most)
	for i := range list {
		if err == nil {
			list[i], _, err = book.Find(ctx, caller, list[i].ID)
		}
	}
	return list, err
}
