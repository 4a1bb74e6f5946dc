package engine

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"toolpost/tool"
)

// A version is a further definition of a tool, with its part of the calls. It has its own schemas, judge and handler, so
// that no call runs by one definition that was let through by another.
type version struct {
	*item
	from, percent int
}

// further makes the items of the further definitions of a tool. A tool that a third party describes has none: it is pinned
// by one definition, and another one might say anything.
func (s *source) further(given *tool.Spec) (all []version) {
	for _, v := range given.Versions {
		if it := newItem(s, v.Spec); it.err == nil && !s.Upstream {
			all = append(all, version{it, v.From, v.Percent})
		}
	}
	return all
}

// named gives a version the names of its tool.
func (v version) named(of *item) {
	published := *v.spec
	published.Name, published.Own, published.Slug, published.Aliases = of.spec.Name, of.spec.Own, of.spec.Slug, of.spec.Aliases
	published.Versions = of.spec.Versions
	v.spec = &published
}

// choose returns the definition for a call: the one that asked the question which it answers, the one of its session or its key, else
// any, by their shares, which are the same at every hub. A dry run is about the one that counts. Jobs and plans may make a call twice
// if the definition that counts lets them, so they get no other one that does not.
func (e *Engine) choose(ctx context.Context, it *item, c *tool.Call) *item {
	if len(it.further) == 0 || c.DryRun {
		return it
	}
	again := (c.Background || c.Parent != "") && it.spec.Effects.Repeatable()
	sum := sha256.Sum256([]byte(cmp.Or(c.Session, c.Key, c.ID)))
	at := int(binary.BigEndian.Uint64(sum[:]) % 100)
	is := func(v version) bool { return at >= v.from && at < v.from+v.percent }
	if c.Resume != "" {
		asked := e.asked(ctx, c.Resume)
		is = func(v version) bool { return v.spec.Digest == asked }
	}
	if i := slices.IndexFunc(it.further, is); i >= 0 && (!again || it.further[i].spec.Effects.Repeatable()) {
		return it.further[i].item
	}
	return it
}

// left reports whether the nodes that have a definition are gone, or take no calls, and the call can run by another one.
func left(err error, c *tool.Call) bool {
	e := tool.AsError(err)
	return e != nil && c.Resume == "" && (e.Reason == tool.ReasonGone || e.Code == tool.CodeBreakerOpen) &&
		(tool.NotRun(err) || c.Spec.Effects.ChangesNothing())
}
