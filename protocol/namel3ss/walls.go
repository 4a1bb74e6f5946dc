package namel3ss

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"toolpost/host/process"
	"toolpost/host/sandbox"
	"toolpost/host/walls"
	"toolpost/tool"
)

// guarantees are those that hold for a call, and who asked for each: the user's config, the pack that
// brought the tool, or whoever made the call tighter, a policy or the caller.
func (f *facts) guarantees(c *tool.Call) (tool.Guarantees, map[string]string) {
	all := c.Tightened(f.spec.Guarantees) // the user's and the pack's, and those of the call
	sources := map[string]string{}
	note := func(who string, g tool.Guarantees) {
		for _, name := range g.Asked() {
			sources[name] = who
		}
	}
	note(byPolicy, all)
	if f.pack != nil {
		note("pack", f.pack.Has[f.spec.Name].Needs.Guarantees())
	}
	note("user", f.asked)      // the last word goes to who is nearest to the tool
	delete(sources, "sandbox") // which is no guarantee to the contract
	return all, sources
}

// covered is the coverage check: a wall that was asked for and cannot be built here means that the call
// does not run. Only the unsafe override skips it, and the trace then says so; what can be built is built.
func (f *facts) covered(inv *invocation) error {
	err := f.cover(f.spec.Name, inv.walls)
	if err == nil {
		return nil
	}
	missing := slices.DeleteFunc(inv.walls.Asked(), func(name string) bool {
		return f.cover(f.spec.Name, part(inv.walls, name)) == nil
	})
	if !f.unsafe {
		inv.trace.blocked(append(missing, "sandbox")[0], sandbox.CoverageMissing)
		return err
	}
	inv.trace.set("unsafe_override", true)
	inv.holdBut(missing)
	return nil
}

// holdBut notes that of the guarantees that were asked for some are not enforced.
func (inv *invocation) holdBut(missing []string) {
	inv.held = tool.Guarantees{}
	for _, name := range inv.walls.Asked() {
		if !slices.Contains(missing, name) {
			inv.held = inv.held.Tighten(part(inv.walls, name))
		}
	}
}

// part is one of several guarantees alone.
func part(g tool.Guarantees, name string) tool.Guarantees {
	if name == "secrets_allowed" {
		return tool.Guarantees{SecretsAllowed: g.SecretsAllowed}
	}
	return only(name)
}

// uncovered refuses a call for want of walls, unless the user said that it may run without them.
func (f *facts) uncovered(inv *invocation, missing []string, why string) error {
	if f.unsafe {
		inv.trace.set("unsafe_override", true)
		return nil
	}
	inv.trace.blocked(missing[0], sandbox.CoverageMissing)
	return tool.Errorf(tool.CodeUnsupported,
		"%s was not run: %s %s; drop the guarantee, or set allow_unsafe_execution to run without it",
		f.spec.Name, strings.Join(missing, ", "), why).Because(sandbox.CoverageMissing)
}

// around makes the walls of the tools of one language. The app and its packs are the tools' own code, which
// no guarantee takes from them; what toolpost keeps beside the config is for none of them.
func (b *builder) around(code []string, more ...string) (*walls.Walls, error) {
	needs := walls.Needs{Dir: b.dir, Read: []string{b.app.root}}
	needs.Run = slices.Concat(needs.Read, code, there(more))
	for _, p := range b.app.packs {
		needs.Run = append(needs.Run, p.Dir)
	}
	w, err := b.Walls.Around(needs)
	if err != nil {
		return nil, sourceError{err}
	}
	return w, nil
}

// there lists those of some paths that there are.
func there(paths []string) []string {
	return slices.DeleteFunc(slices.Clone(paths), func(path string) bool {
		_, err := filepath.EvalSymlinks(path)
		return err != nil || !filepath.IsAbs(path)
	})
}

// allowed are those of a tool's variables that its guarantees let it have.
func allowed(vars map[string]string, g tool.Guarantees) map[string]string {
	vars = maps.Clone(vars)
	maps.DeleteFunc(vars, func(name, _ string) bool {
		return g.SecretsAllowed != nil && !slices.Contains(g.SecretsAllowed, name)
	})
	return vars
}

// enforced puts into the trace and the record of a call what stood around it and what that stopped. Attempts
// of the blind kinds were stopped, and not seen.
func (inv *invocation) enforced(layers []string, checks []walls.Check, blind ...string) {
	walls.Enforced(inv.call, inv.trace.fields, inv.held, layers, nil)
	for _, c := range checks {
		c.Target = inv.logs.redact.Replace(c.Target)
		inv.trace.checks = append(inv.trace.checks, c)
	}
	if unseen := unseen(inv.held, layers, blind); len(unseen) > 0 {
		inv.trace.set("attempts_not_reported", unseen)
	}
}

// unseen lists the guarantees of a call against which attempts are not reported. Reads are not watched.
func unseen(g tool.Guarantees, layers, blind []string) []string {
	return slices.DeleteFunc(g.Asked(), func(name string) bool {
		switch name {
		case "no_network", "no_filesystem_write", "no_subprocess":
			return slices.Contains(layers, sandbox.LayerNotify) && !slices.Contains(blind, name)
		case "no_filesystem_read", "no_env_read":
			return false
		}
		return true // what a tool does to its own variables and what it was not given are no attempts
	})
}

// reached says how a child ended that met a limit of its walls; empty: it met none, as far as is known. The child
// must have been waited for. What it wrote is for others to tell, who know what must not be told.
func reached(child *process.Child, exit process.Exit) string {
	said, _, _ := strings.Cut(child.Describe(exit), "; the last it wrote")
	if len(child.Layers()) == 0 || !strings.Contains(said, "reached its limit") {
		return ""
	}
	return said
}
