package singularity

import (
	"context"

	"github.com/nats-io/nats.go"

	"toolpost/tool"
	"toolpost/wire/envelope"
)

// A called is a call that has a name, by which it can be cancelled.
type called struct {
	ctx     context.Context
	end     func()
	refused *tool.Error // its caller has a call of this name already; this one is not run
}

// expect notes a call as soon as it is here, so that it can be cancelled while it waits. It gives nil for a call
// without a name, or with a name that will be refused.
func (d *desk) expect(m *nats.Msg) *called {
	id, err := envelope.ID(m.Header)
	if err != nil || id == "" {
		return nil
	}
	var one called
	one.ctx, one.end, one.refused = d.o.Calls.Begin(d.base, d.who(), id)
	return &one
}

func (c *called) forget() {
	if c != nil && c.refused == nil {
		c.end()
	}
}

// cancel ends a call. A name that is not known here is a call of another node, or one that has ended.
func (d *desk) cancel(m *nats.Msg) { _ = d.o.Calls.Cancel(d.who(), "", string(m.Data)) }
