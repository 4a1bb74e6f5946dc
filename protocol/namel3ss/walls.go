package namel3ss

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"toolpost/host/sandbox"
	"toolpost/host/walls"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// guarantees returns the guarantees that hold for a call, and the origin of each: the user's config, the pack that brought
// the tool, or the policy or caller that tightened the call.
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
	note("user", f.asked)      // the origin nearest to the tool wins
	delete(sources, "sandbox") // the contract does not count it as a guarantee
	return all, sources
}

// covered is the coverage check: a call does not run if it needs a wall that cannot be built here. Only the unsafe override
// skips the check, which the trace then records; the walls that can be built are built.
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

// holdBut records that some of the guarantees that were asked for are not enforced.
func (inv *invocation) holdBut(missing []string) {
	inv.held = tool.Guarantees{}
	for _, name := range inv.walls.Asked() {
		if !slices.Contains(missing, name) {
			inv.held = inv.held.Tighten(part(inv.walls, name))
		}
	}
}

// part returns one of several guarantees alone.
func part(g tool.Guarantees, name string) tool.Guarantees {
	if name == "secrets_allowed" {
		return tool.Guarantees{SecretsAllowed: g.SecretsAllowed}
	}
	return only(name)
}

// uncovered refuses a call for lack of walls, unless the user allows it to run without them.
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

// around makes the walls of the tools of one language. The app and its packs are the tools' own code, which no guarantee
// takes from them. None of them may see the files that toolpost keeps beside the config.
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

// there returns the absolute paths that exist.
func there(paths []string) []string {
	return slices.DeleteFunc(slices.Clone(paths), func(path string) bool {
		_, err := filepath.EvalSymlinks(path)
		return err != nil || !filepath.IsAbs(path)
	})
}

// allowed returns the variables of a tool that its guarantees permit.
func allowed(vars map[string]string, g tool.Guarantees) map[string]string {
	vars = maps.Clone(vars)
	maps.DeleteFunc(vars, func(name, _ string) bool {
		return g.SecretsAllowed != nil && !slices.Contains(g.SecretsAllowed, name)
	})
	return vars
}

// enforced records in the trace and the record of a call which walls were around it and what they stopped. Attempts of the
// blind kinds were stopped but not seen.
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

// unseen lists the guarantees of a call for which attempts are not reported. Reads are not watched.
func unseen(g tool.Guarantees, layers, blind []string) []string {
	return slices.DeleteFunc(g.Asked(), func(name string) bool {
		switch name {
		case "no_network", "no_filesystem_write", "no_subprocess":
			return slices.Contains(layers, sandbox.LayerNotify) && !slices.Contains(blind, name)
		case "no_filesystem_read", "no_env_read":
			return false
		}
		return true // changing its own variables, or using what it was not given, is not an attempt
	})
}

// wishes are what a request asks of the walls around its call. They come on top of the config: they can tighten the walls of
// a call but never widen them.
type wishes struct {
	guarantees tool.Guarantees
	sources    map[string]string // guarantee -> its origin, as the caller names it
}

// parseWishes reads `sandbox` and `capability_context` of a request.
func parseWishes(seen *strictjson.Members) (w wishes, err error) {
	boxed, err := member(seen, "sandbox", "a boolean")
	if err != nil {
		return w, err
	}
	w.guarantees.Sandbox = string(boxed) == "true"
	found, err := member(seen, "capability_context", "an object")
	if err != nil || found == nil {
		return w, err
	}
	parts, err := strictjson.ReadMembers(found, "guarantees", "sources")
	if err != nil {
		return w, fmt.Errorf("capability_context: %w", err)
	}
	if err := w.readGuarantees(parts); err != nil {
		return w, err
	}
	_ = strictjson.Unmarshal(parts.Get("sources"), &w.sources) // they only serve the reply; sources of another form are dropped
	return w, nil
}

// readGuarantees reads the guarantees by name. An unknown guarantee that is asked for cannot be held.
func (w *wishes) readGuarantees(parts *strictjson.Members) error {
	found, err := member(parts, "guarantees", "an object")
	if err != nil || found == nil {
		return err
	}
	return strictjson.Object(found, func(name, value []byte) error {
		var known tool.Guarantees
		switch kind := strictjson.KindOf(value); {
		case kind == "null" || kind == "boolean" && string(value) == "false":
			return nil
		case string(name) == "secrets_allowed":
			if known.SecretsAllowed = []string{}; strictjson.Unmarshal(value, &known.SecretsAllowed) != nil {
				return fmt.Errorf("secrets_allowed must be a list of names, not %.80s", value)
			}
		case kind != "boolean":
			return fmt.Errorf("the guarantee %.80s must be true or false, not %s", name, kind)
		default:
			if known = only(string(name)); !slices.Contains(known.Asked(), string(name)) {
				return tool.Errorf(tool.CodeUnsupported,
					"the guarantee %.80s is not known here, and so cannot be enforced", name).
					Because(sandbox.CoverageMissing)
			}
		}
		w.guarantees = w.guarantees.Tighten(known)
		return nil
	})
}

// checksOf returns the capability_checks of an outcome: the attempts that the walls around the call stopped, or the missing
// walls because of which it did not run.
func (w wishes) checksOf(result *tool.Result, err error) []walls.Check {
	var told struct {
		Checks []walls.Check `json:"capability_checks"`
		Trace  struct {
			Checks []walls.Check `json:"capability_checks"`
		} `json:"trace"`
	}
	e := tool.AsError(err)
	if e != nil {
		_ = strictjson.Unmarshal(e.Details, &told) // details of another form contain none
	} else if noted, ok := result.Trace.Details["capability_checks"]; ok {
		b, _ := strictjson.Marshal(noted)
		_ = strictjson.Unmarshal(b, &told.Checks)
	}
	checks := slices.Concat(told.Checks, told.Trace.Checks)
	if e != nil && e.Reason == sandbox.CoverageMissing && !slices.ContainsFunc(checks, blocks(e.Reason)) {
		for _, name := range w.guarantees.Asked() {
			checks = append(checks, walls.Check{Capability: capabilityOf(name), Source: byPolicy, Reason: e.Reason})
		}
	}
	for i := range checks {
		c := &checks[i]
		c.Target = "" // the contract has no place for it
		if by := w.sources["no_"+c.Capability]; c.Source == byPolicy {
			c.Source = cmp.Or(by, c.Source)
		}
	}
	return checks
}

// byPolicy is the source of a guarantee that comes from neither the user's config nor the pack.
const byPolicy = "policy"

// blocks returns a filter for the checks that stopped something for that reason.
func blocks(reason string) func(walls.Check) bool {
	return func(c walls.Check) bool { return !c.Allowed && c.Reason == reason }
}

// capabilityOf returns the capability that a guarantee takes away.
func capabilityOf(guarantee string) string {
	return strings.TrimSuffix(strings.TrimPrefix(guarantee, "no_"), "_allowed")
}
