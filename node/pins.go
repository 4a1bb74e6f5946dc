package node

import (
	"context"
	"slices"
	"time"

	trusttools "toolpost/builtin/trust"
	"toolpost/config"
	"toolpost/engine/pin"
	"toolpost/store"
	"toolpost/tool"
)

// pinsIn returns the memory of upstream tools: in the store, so that programs that share it agree, or in memory if there is
// none.
func (n *Node) pinsIn() *pin.Registry {
	if n.store == nil {
		return &pin.Registry{Pins: new(store.Pins)}
	}
	return &pin.Registry{Pins: n.store.Pins(), Lasting: true}
}

// upstream reports whether the tools of a source are pinned. By default, tools are pinned for protocols in which a server
// describes them. Files of this machine are not pinned: a user who can change them could change the config as well.
func (n *Node) upstream(s config.Source) bool {
	if s.Pin != "" {
		return s.Pin == "on"
	}
	p, err := n.protocol(s.Protocol)
	return err == nil && p.Upstream && !local(p, s)
}

// local reports whether a file of this machine describes the tools of a source, although other sources of its protocol ask a
// server.
func local(p Protocol, s config.Source) bool { return p.Local != nil && p.Local(s) }

// pinPause is how often a program looks for approvals by other programs.
const pinPause = time.Second

// watchPins adopts the decisions of other programs that share the store, and retries tools that could not be compared, until
// ctx ends.
func (n *Node) watchPins(ctx context.Context) {
	seen := int64(-1)
	for tool.Sleep(ctx, pinPause) {
		if some, _ := n.Pins(); !some {
			continue
		}
		now, err := n.pins.Pins.Revision(ctx)
		if err == nil && now != seen || n.unchecked() {
			n.engine.Recheck(ctx)
		}
		if err == nil {
			seen = now
		}
	}
}

// unchecked reports whether tools are held back because the store could not be asked.
func (n *Node) unchecked() bool {
	return slices.ContainsFunc(n.engine.Held(), func(h *pin.Held) bool {
		return tool.AsError(h.Why).Reason == pin.ReasonUnchecked
	})
}

// Held lists the upstream tools that are held back, for operators.
func (n *Node) Held() []*pin.Held { return n.engine.Held() }

// Pins reports whether there are sources with pinned tools, and whether the pins outlive the program.
func (n *Node) Pins() (some, lasting bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.ContainsFunc(n.sources, func(s *source) bool { return n.upstream(s.Source) }), n.pins.Lasting
}

// operators implements the operators' decisions about upstream tools.
type operators struct{ *Node }

var _ trusttools.Upstream = operators{}

// Approve implements trusttools.Upstream.
func (d operators) Approve(ctx context.Context, by string, held []*pin.Held) error {
	if err := d.pins.Approve(ctx, by, held); err != nil {
		return err
	}
	d.engine.Recheck(ctx)
	return nil
}

// Forget implements trusttools.Upstream.
func (d operators) Forget(ctx context.Context, source string) ([]pin.Pin, error) {
	gone := d.engine.Gone(source)
	if len(gone) == 0 {
		return nil, nil
	}
	if err := d.pins.Forget(ctx, gone); err != nil {
		return nil, err
	}
	d.engine.Recheck(ctx)
	return gone, nil
}

// Pinned implements trusttools.Upstream.
func (d operators) Pinned(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.ContainsFunc(d.sources, func(s *source) bool { return s.Name == name && d.upstream(s.Source) })
}

// Lasting implements trusttools.Upstream.
func (d operators) Lasting() bool { return d.pins.Lasting }
