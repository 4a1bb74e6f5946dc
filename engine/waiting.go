package engine

import (
	"context"
	"slices"
	"strings"

	"toolpost/tool"
)

// ready returns a shelf on which a name means what it would mean with every source open. It opens only those waiting
// sources that could change that.
//
// Once sources come by themselves, a caller waits for none whose tools are all hidden from it: that would only show it that
// there is one. Before, who has a name must not depend on who asks.
func (e *Engine) ready(ctx context.Context, p tool.Principal, name string) (*shelf, error) {
	for {
		sh := e.shelf.Load()
		if !sh.waits {
			return sh, nil
		}
		needed := sh.needs(name)
		if sh.comes {
			needed = slices.DeleteFunc(needed, func(s *source) bool { return sh.policy.HidesAll(p, s.Name) })
		}
		if len(needed) == 0 {
			return sh, nil
		}
		if e.unpinned(needed) { // pins settle the owners of names without opening a source
			e.Recheck(ctx)
			continue
		}
		if err := e.open(ctx, named(needed)); err != nil {
			return nil, err
		}
	}
}

// complete returns a shelf on which no source waits, unless the time to open them is over or they come by themselves: a
// list does not wait for a slow source.
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

// unpinned reports whether any of the needed sources is upstream and has pins that have not been checked.
func (e *Engine) unpinned(needed []*source) bool {
	return e.pins != nil && slices.ContainsFunc(needed, func(s *source) bool { return s.Upstream && s.verdict == nil })
}

// needs lists the waiting sources that could change the meaning of a name. If the list is empty, the shelf is enough.
//
// This follows from how names are given (see name): the first source keeps one. The sources of the config's owner come
// in the order of the config, so those behind the owner of a name do not matter. Upstream sources come after all of
// these, in an order that the pins record: a pinned source has its names already, even while it is dead. A qualified
// name belongs to its source alone; but the name under which its tool is shown and recorded also depends on the sources
// before it.
//
// While sources come by themselves, a known name belongs to its present owner: a slow source does not delay the others.
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

// ownerOf returns the source that a name belongs to by what is known now, or nil if that is unknown.
func (sh *shelf) ownerOf(name string) *source {
	if first, _, dotted := strings.Cut(name, "."); dotted && sh.sources[first] != nil {
		return sh.sources[first]
	}
	if it := sh.byName[name]; it != nil {
		return it.source
	}
	return nil
}

// nextToAsk chooses the sources that may bring a name without an owner, the cheap ones first: the first source that
// needs no program and no server to list its tools, then all of those, then those of the config's owner, then all
// sources.
func (sh *shelf) nextToAsk() []*source {
	offline := sh.waiting(func(s *source) bool { return ofOwner(s) && !s.Connects })
	if len(offline) > 0 && !slices.ContainsFunc(sh.bound, func(s *source) bool { return !s.Waits && !s.Overall }) {
		return offline[:1]
	}
	for _, some := range [][]*source{offline, sh.waiting(ofOwner)} {
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

// lookup returns a tool that the caller may know of.
func (e *Engine) lookup(ctx context.Context, p tool.Principal, name string) (*item, error) {
	sh, err := e.ready(ctx, p, name)
	if err != nil {
		return nil, err
	}
	return sh.find(p, name)
}
