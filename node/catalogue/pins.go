package catalogue

import (
	"context"
	"slices"
	"time"

	trusttools "toolpost/builtin/trust"
	"toolpost/config"
	"toolpost/engine"
	"toolpost/engine/pin"
	"toolpost/protocol/all"
	"toolpost/tool"
)

// upstream reports whether the tools of a source are pinned. By default, tools are pinned for protocols in which a server
// describes them. Files of this machine are not pinned: a user who can change them could change the config as well.
func (c *Catalogue) upstream(s config.Source) bool {
	if s.Pin != "" {
		return s.Pin == "on"
	}
	p, err := c.protocol(s.Protocol)
	return err == nil && p.Upstream && !local(p, s)
}

// local reports whether a file of this machine describes the tools of a source, although other sources of its protocol ask a
// server.
func local(p all.Protocol, s config.Source) bool { return p.Local != nil && p.Local(s) }

// pinPause is how often a program looks for approvals by other programs.
const pinPause = time.Second

// watchPins adopts the decisions of other programs that share the store, and retries tools that could not be compared, until
// ctx ends.
func (c *Catalogue) watchPins(ctx context.Context) {
	seen := int64(-1)
	for tool.Sleep(ctx, pinPause) {
		if some, _ := c.Pins(); !some {
			continue
		}
		now, err := c.env.Pins.Pins.Revision(ctx)
		if err == nil && now != seen || c.unchecked() {
			c.engine.Recheck(ctx)
		}
		if err == nil {
			seen = now
		}
	}
}

// unchecked reports whether tools are held back because the store could not be asked.
func (c *Catalogue) unchecked() bool {
	return slices.ContainsFunc(c.engine.Held(), func(h *pin.Held) bool {
		return tool.AsError(h.Why).Reason == pin.ReasonUnchecked
	})
}

// Held lists the upstream tools that are held back, for operators.
func (c *Catalogue) Held() []*pin.Held { return c.engine.Held() }

// Pins reports whether there are sources with pinned tools, and whether the pins outlive the program.
func (c *Catalogue) Pins() (some, lasting bool) {
	some = slices.ContainsFunc(c.env.Remote(), func(b engine.Binding) bool { return b.Upstream })
	c.mu.Lock()
	defer c.mu.Unlock()
	return some || slices.ContainsFunc(c.sources, func(s *source) bool { return c.upstream(s.Source) }), c.env.Pins.Lasting
}

// Upstream returns the operators' decisions about upstream tools, for their tools.
func (c *Catalogue) Upstream() trusttools.Upstream { return operators{c} }

// operators implements the operators' decisions about upstream tools.
type operators struct{ *Catalogue }

// Approve implements trusttools.Upstream.
func (d operators) Approve(ctx context.Context, by string, held []*pin.Held) error {
	if err := d.env.Pins.Approve(ctx, by, held); err != nil {
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
	if err := d.env.Pins.Forget(ctx, gone); err != nil {
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
func (d operators) Lasting() bool { return d.env.Pins.Lasting }
