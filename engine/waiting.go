package engine

import (
	"context"
	"slices"
	"strings"

	"toolpost/tool"
)

// ready gives a shelf that says what a name stands for as it would with every source open. Sources that wait are opened
// as far as they could change that answer, and no further.
func (e *Engine) ready(ctx context.Context, name string) (*shelf, error) {
	for {
		sh := e.shelf.Load()
		if !sh.waits {
			return sh, nil
		}
		needed := sh.needs(name)
		if len(needed) == 0 {
			return sh, nil
		}
		if e.unpinned(needed) { // pins say which names are whose, without anybody being asked
			e.Recheck(ctx)
			continue
		}
		if err := e.open(ctx, named(needed)); err != nil {
			return nil, err
		}
	}
}

// complete gives a shelf on which no source waits, unless there is no time left to open those that do, or they come by
// themselves: a list does not wait for a source that is slow.
func (e *Engine) complete(ctx context.Context) *shelf {
	for {
		sh := e.shelf.Load()
		if !sh.waits || sh.comes || e.open(ctx, named(sh.waiting(everyone))) != nil {
			return sh
		}
	}
}

func named(sources []*source) (names []string) {
	for _, s := range sources {
		names = append(names, s.Name)
	}
	return names
}

// unpinned reports whether there is an upstream source among those that are needed whose pins have not been looked at.
func (e *Engine) unpinned(needed []*source) bool {
	return e.pins != nil && slices.ContainsFunc(needed, func(s *source) bool { return s.Upstream && s.verdict == nil })
}

// needs lists sources that wait and that could change what a name stands for; none: the shelf can say.
//
// This follows from how names are given, see name: whoever comes first keeps one. The sources of the config's owner come
// in the order of the config, so that those behind the owner of a name say nothing about it. Those of upstream servers
// come after all of these, in an order which the pins know: one that is pinned has its names already, as it has them
// while it is dead. A qualified name is its source's alone; but the name by which its tool is shown and recorded also
// depends on those in front.
//
// While sources come by themselves a name that is known is whose it is now: a slow source does not hold up the others.
func (sh *shelf) needs(name string) []*source {
	switch owner := sh.ownerOf(name); {
	case sh.comes:
		return sh.waiting(func(s *source) bool { return owner == nil || owner == s })
	case owner == nil:
		return sh.nextToAsk()
	case owner.Overall:
		return sh.waiting(everyone)
	case owner.Upstream:
		if ours := sh.waiting(ofOwner); len(ours) > 0 {
			return ours
		}
		return sh.waiting(func(s *source) bool { return s == owner || s.verdict == nil || len(s.verdict.Gone) == 0 })
	default:
		last := slices.Index(sh.bound, owner)
		return sh.waiting(func(s *source) bool { return ofOwner(s) && slices.Index(sh.bound, s) <= last })
	}
}

// ownerOf finds the source that a name belongs to by what is known now; nil: it is not known.
func (sh *shelf) ownerOf(name string) *source {
	if first, _, dotted := strings.Cut(name, "."); dotted && sh.sources[first] != nil {
		return sh.sources[first]
	}
	if it := sh.byName[name]; it != nil {
		return it.source
	}
	return nil
}

// nextToAsk chooses who may bring a name that nobody has so far, the cheap ones first: the first source that needs no
// program and no server to list its tools, all of those, those of the config's owner, everyone.
func (sh *shelf) nextToAsk() []*source {
	still := sh.waiting(func(s *source) bool { return ofOwner(s) && !s.Asks })
	if len(still) > 0 && !slices.ContainsFunc(sh.bound, func(s *source) bool { return !s.Waits && !s.Overall }) {
		return still[:1]
	}
	for _, some := range [][]*source{still, sh.waiting(ofOwner)} {
		if len(some) > 0 {
			return some
		}
	}
	return sh.waiting(everyone)
}

func everyone(*source) bool { return true }

func ofOwner(s *source) bool { return !s.Upstream }

// waiting lists the sources that wait, in the order of the config.
func (sh *shelf) waiting(which func(*source) bool) (list []*source) {
	for _, s := range sh.bound {
		if s.Waits && which(s) {
			list = append(list, s)
		}
	}
	return list
}

// lookup finds a tool that the caller may know of.
func (e *Engine) lookup(ctx context.Context, p tool.Principal, name string) (*item, error) {
	sh, err := e.ready(ctx, name)
	if err != nil {
		return nil, err
	}
	return sh.find(p, name)
}
