package namel3ss

import (
	"strings"

	"toolpost/tool"
)

// walls are the guarantees that hold for a call, and who asked for each: the user's config, or the
// policy that tightened the call's spec.
func (t *localTool) walls(c *tool.Call) (tool.Guarantees, map[string]string) {
	own := t.spec.Guarantees
	all := own
	if c.Spec != nil {
		all = own.Tighten(c.Spec.Guarantees)
	}
	sources := map[string]string{}
	for _, name := range all.Asked() {
		sources[name] = "policy"
	}
	for _, name := range own.Asked() {
		sources[name] = "user"
	}
	return all, sources
}

// refuse is the coverage check: a wall that was asked for and cannot be built here means that the call
// does not run. Only the unsafe override skips it, and the trace then says so.
func (t *localTool) refuse(walls tool.Guarantees, tr *trace) error {
	asked := walls.Asked()
	switch {
	case len(asked) == 0:
		return nil
	case t.unsafe:
		tr.set("unsafe_override", true)
		return nil
	}
	tr.blocked(asked[0], "coverage_missing")
	return tool.Errorf(tool.CodeUnsupported,
		"%s was not run: %s cannot be enforced on this machine: this version of toolpost has no sandbox yet; "+
			"drop the guarantee, or set allow_unsafe_execution to run without it",
		t.spec.Name, strings.Join(asked, ", ")).Because("coverage_missing")
}
