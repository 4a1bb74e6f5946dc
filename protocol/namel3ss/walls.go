package namel3ss

import (
	"strings"

	"toolpost/tool"
)

// walls are the guarantees that hold for a call, and who asked for each: the user's config, the pack that
// brought the tool, or the policy that tightened the call's spec.
func (f *facts) walls(c *tool.Call) (tool.Guarantees, map[string]string) {
	all := f.spec.Guarantees // the user's and the pack's
	if c.Spec != nil {
		all = all.Tighten(c.Spec.Guarantees)
	}
	sources := map[string]string{}
	for _, by := range []struct {
		who string
		g   tool.Guarantees
	}{{"policy", all}, {"pack", f.packWalls()}, {"user", f.asked}} { // the last word goes to who is nearest to the tool
		for _, name := range by.g.Asked() {
			sources[name] = by.who
		}
	}
	return all, sources
}

func (f *facts) packWalls() tool.Guarantees {
	if f.pack == nil {
		return tool.Guarantees{}
	}
	return f.pack.tools[f.spec.Name].needs.guarantees()
}

// refuse is the coverage check: a wall that was asked for and cannot be built here means that the call
// does not run. Only the unsafe override skips it, and the trace then says so.
func (f *facts) refuse(j *job) error {
	asked := j.walls.Asked()
	if len(asked) == 0 {
		return nil
	}
	return f.uncovered(j, asked, "cannot be enforced on this machine: this version of toolpost has no sandbox yet")
}

// uncovered refuses a call for want of walls, unless the user said that it may run without them.
func (f *facts) uncovered(j *job, missing []string, why string) error {
	if f.unsafe {
		j.trace.set("unsafe_override", true)
		return nil
	}
	j.trace.blocked(missing[0], "coverage_missing")
	return tool.Errorf(tool.CodeUnsupported,
		"%s was not run: %s %s; drop the guarantee, or set allow_unsafe_execution to run without it",
		f.spec.Name, strings.Join(missing, ", "), why).Because("coverage_missing")
}
