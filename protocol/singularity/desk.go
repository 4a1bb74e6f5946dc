package singularity

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"toolpost/engine/calls"
	"toolpost/tool"
	"toolpost/wire/envelope"
)

// A desk serves one NATS account for a door. A message does not identify its sender, but the account does: all requests at a
// desk come from one caller. The desk's statistics and announcements concern that caller alone too.
type desk struct {
	*serving
	nc      *nats.Conn
	caller  atomic.Pointer[tool.Principal] // with its current rights
	service *service
	base    context.Context // of the calls at this desk
	end     context.CancelCauseFunc

	subs []*nats.Subscription
	open atomic.Int64 // how many of subs are open
	busy atomic.Int64 // requests that wait or run
}

// newDesk takes requests of p from a connection, which the desk owns from now on.
func (s *serving) newDesk(nc *nats.Conn, p tool.Principal) (*desk, error) {
	d := &desk{serving: s, nc: nc, service: newService(s.o)}
	d.base, d.end = context.WithCancelCause(s.base)
	d.caller.Store(&p)
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		d.close()
		return nil, errClosing
	}
	s.opening.Add(1)
	defer s.opening.Done()
	s.desks[d] = true
	s.mu.Unlock()
	if err := d.subscribe(); err != nil {
		d.close()
		return nil, tool.Errorf(tool.CodeUnavailable, "the NATS door cannot take requests: %w", err)
	}
	return d, nil
}

// errClosing reports that a desk was opened while the door was closing.
var errClosing = errors.New("the NATS door is closing")

// who returns the caller whose requests come here.
func (d *desk) who() tool.Principal { return *d.caller.Load() }

// subscribe opens every subject. Its endpoints are those that $SRV.INFO and $SRV.STATS report.
func (d *desk) subscribe() error {
	for _, e := range d.service.endpoints {
		take := func(m *nats.Msg) { d.take(e, m) }
		if e.stats.Subject == subjectCatalog {
			take = func(m *nats.Msg) { d.list(e, m) }
		}
		if err := d.add(d.nc.QueueSubscribe(e.stats.Subject, d.o.Queue, take)); err != nil {
			return err
		}
	}
	if err := d.add(d.nc.Subscribe(subjectCancel, d.cancel)); err != nil {
		return err
	}
	for _, subject := range d.service.control() {
		if err := d.add(d.nc.Subscribe(subject, d.monitor)); err != nil {
			return err
		}
	}
	return d.nc.FlushTimeout(connectWithin)
}

func (d *desk) add(sub *nats.Subscription, err error) error {
	if err != nil {
		return err
	}
	d.closed.Add(1)
	d.open.Add(1)
	sub.SetClosedHandler(func(string) {
		d.open.Add(-1)
		d.closed.Done()
	})
	d.subs = append(d.subs, sub)
	return sub.SetPendingLimits(maxUnread, maxUnreadBytes)
}

// drain accepts no requests other than those already sent.
func (d *desk) drain() {
	leave := (*nats.Subscription).Drain
	if !d.nc.IsConnected() {
		leave = (*nats.Subscription).Unsubscribe // without a connection it is unknown which message is the last
	}
	for _, sub := range d.subs {
		_ = leave(sub) // fails if the subscription is closed already
	}
}

// quiet reports whether a drained desk has nothing left to do.
func (d *desk) quiet() bool { return d.open.Load() == 0 && d.busy.Load() == 0 }

// close ends the remaining calls.
func (d *desk) close() {
	d.end(tool.Errorf(tool.CodeCancelled, "the call was cancelled because its connection was closed"))
	d.nc.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.desks, d)
}

// expect records a call that has a name, so that it can be cancelled while it waits. A call without a name, or with a name
// that will be refused, ends with the desk. A call whose name is in use is refused at once: it must not wait until the name
// is free, and then run.
func (d *desk) expect(j *delivery) *tool.Error {
	j.ctx, j.end = d.base, func() {}
	if id, err := envelope.ID(j.msg.Header); err == nil && id != "" {
		var first bool
		if j.ctx, j.end, first = d.o.Calls.Begin(d.base, d.who(), id); !first {
			return calls.Taken(id)
		}
	}
	return nil
}

// cancel ends one of the caller's own calls. An unknown name belongs to a call of another node, or to one that has ended.
func (d *desk) cancel(m *nats.Msg) { _ = d.o.Calls.Cancel(d.who(), d.who().ID, string(m.Data)) }
