package plan

import (
	"context"
	"time"

	"toolpost/tool"
)

// lookEvery is how often to look for missing tools, if the catalogue does not signal changes.
const lookEvery = 200 * time.Millisecond

// settle waits for the tools of a resumed plan, until x.Settled. The process has just been started, and its sources take
// a while to open: a plan must not fail because of that. A tool that is still missing then is reported as in any other
// plan.
func (x *Executor) settle(ctx context.Context, p tool.Principal, pl *Plan) {
	for ctx.Err() == nil && time.Now().Before(x.Settled) {
		changed := tool.Changed(x.Catalog) // before the look, so that no change is missed
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

// has reports whether a tool can be called, by the first of its names that is found. Other faults of it do not go away
// by waiting.
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
