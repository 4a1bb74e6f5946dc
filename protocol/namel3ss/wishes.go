package namel3ss

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"toolpost/host/sandbox"
	"toolpost/host/walls"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// wishes are what a request asks of the walls around its call. They come on top of what the config says: they can make
// the walls of a call tighter, and never wider.
type wishes struct {
	guarantees tool.Guarantees
	sources    map[string]string // guarantee -> who asked for it, in the words of the caller
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
	_ = strictjson.Unmarshal(parts.Get("sources"), &w.sources) // words for the reply; sources of another form have none
	return w, nil
}

// readGuarantees reads the guarantees by name. One that we do not know and that is asked for nevertheless cannot be
// held.
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

// checksOf returns the capability_checks of an outcome: what the walls around the call stopped, or for want of which
// wall it was not run.
func (w wishes) checksOf(result *tool.Result, err error) []walls.Check {
	var told struct {
		Checks []walls.Check `json:"capability_checks"`
		Trace  struct {
			Checks []walls.Check `json:"capability_checks"`
		} `json:"trace"`
	}
	e := tool.AsError(err)
	if e != nil {
		_ = strictjson.Unmarshal(e.Details, &told) // details of another form tell of none
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

// byPolicy is the source of a guarantee that nobody said of the tool itself.
const byPolicy = "policy"

// blocks finds the checks that stopped something for that reason.
func blocks(reason string) func(walls.Check) bool {
	return func(c walls.Check) bool { return !c.Allowed && c.Reason == reason }
}

// capabilityOf is what a guarantee takes away.
func capabilityOf(guarantee string) string {
	return strings.TrimSuffix(strings.TrimPrefix(guarantee, "no_"), "_allowed")
}
