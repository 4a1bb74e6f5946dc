package engine

import (
	"context"
	"reflect"
	"slices"
	"strings"

	"toolpost/engine/pin"
	"toolpost/tool"
)

// check compares the tools of an upstream source with their pins.
func (e *Engine) check(ctx context.Context, src *source) *pin.Verdict {
	if !src.Upstream || e.pins == nil {
		return nil
	}
	v := e.pins.Check(ctx, src.Name, src.specs)
	held := map[string][]string{} // by reason: a server whose tools have all changed is one line
	for name, h := range v.Held {
		if src.verdict != nil && src.verdict.Held[name] != nil && src.verdict.Held[name].Now.Digest == h.Now.Digest {
			continue // already logged
		}
		why := tool.AsError(h.Why).Message
		held[why] = append(held[why], tool.VisibleName(name))
	}
	for why, names := range held {
		slices.Sort(names)
		e.log.Warn("tools are held back", "source", src.Name, "count", len(names),
			"tools", strings.Join(names[:min(len(names), maxNamed)], " "), "why", why)
	}
	return v
}

// maxNamed is how many tools a log line names, and how many sources an error.
const maxNamed = 10

// Recheck compares all upstream tools with their pins again, after the pins have changed here or in another process.
func (e *Engine) Recheck(ctx context.Context) {
	e.replacing.Lock()
	defer e.replacing.Unlock()
	old := e.shelf.Load()
	other := false
	for _, src := range old.bound {
		if v := e.check(ctx, src); !reflect.DeepEqual(v, src.verdict) {
			src.verdict, other = v, true
		}
	}
	if other {
		e.publish(old.bound, old.policy)
	}
}

// Held lists the tools that are held back, by source and name, for operators.
func (e *Engine) Held() (list []*pin.Held) {
	e.replacing.Lock()
	defer e.replacing.Unlock()
	for _, src := range e.shelf.Load().bound {
		if src.verdict != nil {
			for _, h := range src.verdict.Held {
				list = append(list, h)
			}
		}
	}
	slices.SortFunc(list, func(a, b *pin.Held) int {
		return strings.Compare(a.Now.Source+"."+a.Now.Name, b.Now.Source+"."+b.Now.Name)
	})
	return list
}

// Gone lists the pins of tools that a source no longer brings. It is empty if the source cannot be asked.
func (e *Engine) Gone(name string) []pin.Pin {
	e.replacing.Lock()
	defer e.replacing.Unlock()
	src := e.shelf.Load().sources[name]
	if src == nil || src.verdict == nil || src.Err != nil {
		return nil
	}
	return src.verdict.Gone
}

// heldItem returns a tool that is held back, with the description that was pinned. Only an operator who reviews the
// change sees the new one.
func (s *source) heldItem(h *pin.Held, now *item) *item {
	it := now
	if h.Was.Digest != "" {
		it = newItem(s, h.Was.Spec())
	}
	it.held, it.err = h, h.Why
	return it
}
