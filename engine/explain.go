package engine

import (
	"time"

	"toolpost/engine/policy"
	"toolpost/tool"
)

// Explain says what the policy would decide about a call at a time, and why. It is for those who run the
// engine: unlike a call it also finds tools that the caller may not know of. Without arguments it says what
// does not depend on them.
func (e *Engine) Explain(c *tool.Call, at time.Time) (policy.Explanation, error) {
	it := e.shelf.Load().byName[c.Tool]
	switch {
	case it == nil:
		return policy.Explanation{}, tool.Errorf(tool.CodeNotFound, "no tool named %q", c.Tool)
	case it.err != nil:
		return policy.Explanation{}, whyUnavailable(it.spec.Name, it.err)
	case !it.source.acquire():
		return policy.Explanation{}, tool.Errorf(tool.CodeUnavailable, "%s: shutting down", c.Tool)
	}
	defer it.source.release()
	found := *c
	found.Spec = it.spec
	if found.Args == nil {
		return it.judge.Explain(&found, at), nil
	}
	checked, err := withArgs(&found, it.schema.input)
	if err != nil {
		return policy.Explanation{}, err
	}
	return it.judge.Explain(checked, at), nil
}

// Spec finds a tool for those who run the engine, including one that no caller may know of.
func (e *Engine) Spec(name string) (*tool.Spec, error) {
	it := e.shelf.Load().byName[name]
	if it == nil {
		return nil, tool.Errorf(tool.CodeNotFound, "no tool named %q", name)
	}
	return it.spec, nil
}
