// Package running knows the running calls of the whole process, whichever door they came through: the caller, the tool,
// the start, and the last sign of life. A caller that knows the id of its call can cancel it here.
//
// One registry serves all doors, so that an id means one call of its caller everywhere: a call made over HTTP can be
// cancelled over NATS, and an operator sees both in one list.
package running

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// A Call is a running call, as it is shown to people and programs.
type Call struct {
	ID     string    `json:"call"`
	Caller string    `json:"caller"`
	Door   string    `json:"door"`
	Tool   string    `json:"tool"`            // as its caller wrote it
	Parent string    `json:"parent,omitzero"` // the call that made it; empty if a client did
	Since  time.Time `json:"since"`
	DryRun bool      `json:"dry_run,omitzero"`
	Last   *Sign     `json:"last,omitzero"` // nil if there was none yet
}

// A Sign is the last progress or log event of a call.
type Sign struct {
	Time     time.Time `json:"time"`
	Message  string    `json:"message,omitzero"` // at most maxText bytes of it
	Progress float64   `json:"progress,omitzero"`
	Total    float64   `json:"total,omitzero"`
}

// maxText limits how much of a tool's or caller's text the registry keeps.
const maxText = 500

// Calls are the calls that run now. The zero value has none and is ready for use.
type Calls struct {
	mu  sync.Mutex
	all map[key]*entry
}

// A key is the caller and the id of a call. Callers choose ids independently of each other.
type key struct{ caller, id string }

// An entry is a call in the registry: its context, and the sink of its events while it runs. The fields above mu are
// written once, under the lock of Calls, before other goroutines see the entry.
type entry struct {
	tool.LazyContext
	key
	who    tool.Principal
	inside bool // it is in the chain; before that it waits at its door, where it can be cancelled already
	call   *tool.Call
	since  time.Time
	out    tool.Sink

	mu   sync.Mutex
	last *tool.Event // nil if there was none
}

// Begin registers a call that has an id when it comes in, so that it can be cancelled while it waits for its turn. The
// returned context, in which the call is then made, ends when the call is cancelled; end must be called once it has been
// answered. If a caller uses an id twice, the second call is not registered and first is false. The stage then refuses
// it, so that the refusal is on record.
func (c *Calls) Begin(
	ctx context.Context, p tool.Principal, id string,
) (_ context.Context, end func(), first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := key{p.ID, id}
	if c.all[k] != nil {
		return ctx, func() {}, false
	}
	e := c.add(ctx, p, k)
	return e, func() { c.remove(e) }, true
}

// Taken returns the error of a call whose id is in use.
func Taken(id string) *tool.Error {
	return tool.Errorf(tool.CodeConflict, "a call %s is running already: choose another id, or none", id).
		Because("duplicate_call")
}

// add adds an entry. The caller holds mu.
func (c *Calls) add(ctx context.Context, p tool.Principal, k key) *entry {
	if c.all == nil {
		c.all = map[key]*entry{}
	}
	e := &entry{LazyContext: tool.LazyContext{Parent: ctx}, key: k, who: p}
	c.all[k] = e
	return e
}

// remove removes a call that never entered the chain, or left it. Its id may belong to another call by now.
func (c *Calls) remove(e *entry) {
	c.mu.Lock()
	if c.all[e.key] == e {
		delete(c.all, e.key)
	}
	c.mu.Unlock()
	e.End(nil) // frees the context's resources, outside the lock that other calls need
}

// For is the stage: a call is on the list while it is in the chain.
func (c *Calls) For(*tool.Spec) tool.Middleware {
	return func(next tool.Handler) tool.Handler {
		return tool.HandlerFunc(func(ctx context.Context, call *tool.Call, out tool.Sink) (*tool.Result, error) {
			ctx, e, own, err := c.enter(ctx, call, out)
			if err != nil {
				return nil, err
			}
			defer c.leave(e, own)
			return next.Invoke(ctx, call, e)
		})
	}
}

// mine is the context key under which the stage finds the entry that a door made. The alternative, a field of the call,
// could be set by any code.
type mine struct{}

// Value implements context.Context.
func (e *entry) Value(key any) any {
	if key == (mine{}) {
		return e
	}
	return e.LazyContext.Value(key)
}

// enter returns the entry of a call that its door registered, or makes one that belongs to the stage.
func (c *Calls) enter(
	ctx context.Context, call *tool.Call, out tool.Sink,
) (_ context.Context, e *entry, own bool, _ error) {
	k := key{call.Caller.ID, call.ID}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch e = c.all[k]; {
	case e == nil:
		own = true
		e = c.add(ctx, call.Caller, k)
		ctx = e
	case e.inside || ctx.Value(mine{}) != any(e):
		return nil, nil, false, Taken(call.ID)
	}
	e.inside, e.call, e.since, e.out = true, call, call.Start(), out
	return ctx, e, own, nil
}

// leave frees the id before the door has answered: a caller may reuse it as soon as it has the answer. The context of a
// door's entry lives on, because the answer may be written under it.
func (c *Calls) leave(e *entry, own bool) {
	c.mu.Lock()
	delete(c.all, e.key)
	c.mu.Unlock()
	if own {
		e.End(nil)
	}
}

// Emit implements tool.Sink. An event is parsed only when the list is requested, unless it is large.
func (e *entry) Emit(ev tool.Event) error {
	if ev.Kind == tool.KindProgress || ev.Kind == tool.KindLog {
		last := tool.Event{Kind: ev.Kind, Time: ev.Time, Data: ev.Data}
		if last.Time.IsZero() {
			last.Time = time.Now()
		}
		if len(last.Data) > 4*maxText {
			last.Data = tool.NewEvent(tool.KindProgress, tool.Progress{Message: signOf(last).Message}).Data
		}
		e.heard(last)
	}
	return e.out.Emit(ev)
}

func (e *entry) heard(ev tool.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.last == nil {
		e.last = new(tool.Event)
	}
	*e.last = ev
}

// signOf parses an event. It drops what does not fit: the reader only wants to see that something happens.
func signOf(ev tool.Event) *Sign {
	var data tool.Progress // of a log event only the message matters, which has the same name
	if ev.Kind == tool.KindLog {
		if m, err := strictjson.ReadMembers(ev.Data, "message"); err == nil && strictjson.KindOf(m.Get("message")) == "string" {
			data.Message = strictjson.Text(m.Get("message"))
		}
	} else {
		_ = strictjson.Unmarshal(ev.Data, &data)
	}
	return &Sign{Time: ev.Time, Message: short(data.Message), Progress: data.Progress, Total: data.Total}
}

func short(text string) string {
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "")
	}
	return text
}

// List returns the calls that p may know of, the oldest first: its own, or for an operator all.
func (c *Calls) List(p tool.Principal) []Call {
	var found []*entry
	c.mu.Lock()
	for k, e := range c.all {
		if e.inside && (k.caller == p.ID || p.Operator()) {
			found = append(found, e)
		}
	}
	c.mu.Unlock()
	list := make([]Call, len(found))
	for i, e := range found { // the stage no longer changes these fields
		list[i] = Call{
			ID: e.id, Caller: e.caller, Door: e.call.Caller.Door, Tool: short(e.call.Tool), Parent: e.call.Parent,
			Since: e.since, DryRun: e.call.DryRun, Last: e.sign(),
		}
	}
	slices.SortFunc(list, func(a, b Call) int { return a.Since.Compare(b.Since) })
	return list
}

func (e *entry) sign() *Sign {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.last == nil {
		return nil
	}
	return signOf(*e.last)
}

// Cancel cancels a call of p by its id. An operator may cancel any call, and names its caller if several used the same
// id. Other callers do not learn whether such a call exists.
func (c *Calls) Cancel(p tool.Principal, whose, id string) error {
	if err := p.Reaches(whose, "calls"); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	k := key{whose, id}
	if whose == "" {
		if k.caller = p.ID; c.all[k] == nil && p.Operator() {
			owners := c.having(id)
			if len(owners) > 1 {
				return tool.Errorf(tool.CodeConflict, "%s each have a call %s: say whose", strings.Join(owners, ", "), id).
					Because("duplicate_call")
			}
			k.caller = strings.Join(owners, "")
		}
	}
	e := c.all[k]
	switch {
	case e == nil && p.Operator():
		return tool.Errorf(tool.CodeNotFound, "no call %q is running", id)
	case e == nil:
		return tool.Errorf(tool.CodeNotFound, "no call %q of yours is running", id)
	}
	by := "its caller"
	if k.caller != p.ID {
		by = p.ID + ", who runs this program"
	}
	e.End(tool.Errorf(tool.CodeCancelled, "the call was cancelled by %s", by))
	return nil
}

// Dismiss cancels the calls of callers that are gone.
func (c *Calls) Dismiss(gone func(tool.Principal) bool) {
	c.mu.Lock()
	all := slices.Collect(maps.Values(c.all))
	c.mu.Unlock()
	for _, e := range all {
		if gone(e.who) {
			e.End(tool.Errorf(tool.CodeCancelled, "the call was cancelled because the config no longer has its caller"))
		}
	}
}

// having lists the callers that have a call with this id. The caller holds mu.
func (c *Calls) having(id string) (owners []string) {
	for k := range c.all {
		if k.id == id {
			owners = append(owners, k.caller)
		}
	}
	slices.Sort(owners)
	return owners
}
