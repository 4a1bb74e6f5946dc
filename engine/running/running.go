// Package running knows the calls that run now, of the whole program, whichever door they came by: who calls what since
// when, and what was last heard of it. Whoever knows the id of a call can end it here.
//
// There is one registry and not one for each door, so that an id means one call of its caller everywhere: a call that
// came over HTTP can be cancelled over NATS, and an operator sees both in one list.
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

// A Call is one that runs now, as people and programs are shown it.
type Call struct {
	ID     string    `json:"call"`
	Caller string    `json:"caller"`
	Door   string    `json:"door"`
	Tool   string    `json:"tool"`            // as its caller wrote it
	Parent string    `json:"parent,omitzero"` // the call that made it; empty: somebody outside
	Since  time.Time `json:"since"`
	DryRun bool      `json:"dry_run,omitzero"`
	Last   *Sign     `json:"last,omitzero"` // nil: nothing was heard of it yet
}

// A Sign is what was last heard of a call: a progress event or a log event.
type Sign struct {
	Time     time.Time `json:"time"`
	Message  string    `json:"message,omitzero"` // at most maxText bytes of it
	Progress float64   `json:"progress,omitzero"`
	Total    float64   `json:"total,omitzero"`
}

// maxText bounds what the registry keeps of a text that a tool or a caller wrote.
const maxText = 500

// Calls are the calls that run now. The zero value has none and is ready for use.
type Calls struct {
	mu  sync.Mutex
	all map[key]*entry
}

// A key is whose call it is, and its id. Callers choose ids without knowing of each other.
type key struct{ caller, id string }

// An entry is a call as the registry keeps it: its context, and the sink of its events while it runs. What stands above
// mu is written once, under the lock of Calls, before others see it.
type entry struct {
	tool.LazyContext
	key
	who    tool.Principal
	inside bool // it is in the chain; before that it waits at its door, where it can be cancelled already
	call   *tool.Call
	since  time.Time
	out    tool.Sink

	mu   sync.Mutex
	last *tool.Event // nil: there was none
}

// Begin notes a call that has an id when it comes in, so that it can be cancelled while it still waits for its turn.
// The context, in which the call is then made, ends when somebody cancels it; end is called once it has been answered.
// Of two calls of a caller with one id the second is not noted, not first: the stage refuses it, and so it is on
// record.
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

// Taken is the error of a call that is not the first.
func Taken(id string) *tool.Error {
	return tool.Errorf(tool.CodeConflict, "a call %s is running already: choose another id, or none", id).
		Because("duplicate_call")
}

// add is called by who holds mu.
func (c *Calls) add(ctx context.Context, p tool.Principal, k key) *entry {
	if c.all == nil {
		c.all = map[key]*entry{}
	}
	e := &entry{LazyContext: tool.LazyContext{Parent: ctx}, key: k, who: p}
	c.all[k] = e
	return e
}

// remove takes out a call that never came into the chain, or left it; its id may be that of another call by now.
func (c *Calls) remove(e *entry) {
	c.mu.Lock()
	if c.all[e.key] == e {
		delete(c.all, e.key)
	}
	c.mu.Unlock()
	e.End(nil) // frees what hangs on the context; all other calls need not wait for that
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

// mine is what a context is asked for to learn which entry a door made for it. The other way would be a field of the
// call, which everybody could set.
type mine struct{}

// Value implements context.Context.
func (e *entry) Value(key any) any {
	if key == (mine{}) {
		return e
	}
	return e.LazyContext.Value(key)
}

// enter finds the entry of a call that its door let in, or makes one, which is the stage's own.
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

// leave frees the id before the door has answered: a caller may use it again as soon as it has the answer. The
// context of a door's entry lives on, for the answer may be written under it.
func (c *Calls) leave(e *entry, own bool) {
	c.mu.Lock()
	delete(c.all, e.key)
	c.mu.Unlock()
	if own {
		e.End(nil)
	}
}

// Emit implements tool.Sink. What an event says is only read when somebody asks, unless it would be much to keep.
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

// signOf reads an event. What does not fit is left out: its reader only wants to see that something happens.
func signOf(ev tool.Event) *Sign {
	var data tool.Progress // of a log event only the message is of interest, which has the same name
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

// List gives the calls that p may know of, the oldest first: its own, or all of them for an operator.
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
	for i, e := range found { // what the stage wrote into them stays as it is
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

// Cancel ends a call of p's, by its id; an operator may end anybody's, and says whose where several callers gave the id
// to a call of theirs. Nobody else learns whether others have a call of this id.
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

// Dismiss ends the calls of those who are gone.
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

// having lists whose calls have an id. The caller holds mu.
func (c *Calls) having(id string) (owners []string) {
	for k := range c.all {
		if k.id == id {
			owners = append(owners, k.caller)
		}
	}
	slices.Sort(owners)
	return owners
}
