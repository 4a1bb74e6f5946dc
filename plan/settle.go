package plan

import (
	"context"
	"time"

	"toolpost/tool"
)

// lookEvery is how often somebody looks for tools that are not there yet, where nobody tells when they come.
const lookEvery = 200 * time.Millisecond

// settle waits for the tools of a plan that goes on, until x.Settled. The program that goes on with it has just been
// started, and its sources take a while to open: a plan is not to fail because of that. A tool that is still missing
// then is told of as in any other plan.
func (x *Executor) settle(ctx context.Context, p tool.Principal, pl *Plan) {
	for ctx.Err() == nil && time.Now().Before(x.Settled) {
		changed := tool.Changed(x.Catalog) // before the look: nothing is missed in between
		if x.hasAll(ctx, p, pl) {
			return
		}
		select {
		case <-changed:
		case <-time.After(min(lookEvery, time.Until(x.Settled))):
		case <-ctx.Done():
		}
	}
}

// hasAll reports whether all tools of a plan can be called.
func (x *Executor) hasAll(ctx context.Context, p tool.Principal, pl *Plan) bool {
	seen := map[string]bool{}
	for i := range pl.Tools {
		names, _ := (&step{Tool: &pl.Tools[i]}).names()
		if len(names) == 0 || seen[names[0]] {
			continue
		}
		if seen[names[0]] = true; !x.has(ctx, p, names) {
			return false
		}
	}
	return true
}

// has reports whether a tool can be called, by the first of its names under which there is one. What else is wrong with
// it does not go away by waiting.
func (x *Executor) has(ctx context.Context, p tool.Principal, names []string) bool {
	for _, name := range names {
		spec, err := x.Catalog.Lookup(ctx, p, name)
		switch {
		case tool.CodeOf(err) == tool.CodeNotFound:
			continue
		case err != nil:
			return true
		}
		return tool.WhyNot(ctx, x.Catalog, p, spec.Name) == nil
	}
	return false
}
