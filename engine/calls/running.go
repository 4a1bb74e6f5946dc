package calls

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// A Running is a call that runs, as it is shown to people and programs.
type Running struct {
	ID     string    `json:"call"`
	Caller string    `json:"caller"`
	Door   string    `json:"door"`
	Tool   string    `json:"tool"`            // as its caller wrote it
	Parent string    `json:"parent,omitzero"` // the call that made it; empty if a client did
	Since  time.Time `json:"since"`
	DryRun bool      `json:"dry_run,omitzero"`
	Kind   string    `json:"kind,omitzero"` // tool.OperatorCall, or empty
	Node   string    `json:"node,omitzero"` // the node of the fleet that runs it; empty without a fleet
	Hub    string    `json:"hub,omitzero"`  // the hub that it came in at; likewise
	Last   *Sign     `json:"last,omitzero"` // nil if there was none yet
}

// A Sign is the last progress or log event of a call.
type Sign struct {
	Time     time.Time `json:"time"`
	Message  string    `json:"message,omitzero"` // at most maxSign bytes of it
	Progress float64   `json:"progress,omitzero"`
	Total    float64   `json:"total,omitzero"`
}

// maxSign limits how much of a tool's or caller's text the list shows.
const maxSign = 500

// Begin registers a call that has an id when it comes in, so that it can be cancelled while it waits for its turn. The
// returned context, in which the call is then made, ends when the call is cancelled; end must be called once it has been
// answered. If a caller uses an id twice, the second call is not registered and first is false. The stage then refuses
// it, so that the refusal is on record.
func (l *Log) Begin(ctx context.Context, p tool.Principal, id string) (_ context.Context, end func(), first bool) {
	k := key{p.ID, id}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running[k] != nil {
		return ctx, func() {}, false
	}
	e := l.register(ctx, p, k)
	e.atDoor = true
	return e, func() { l.remove(e) }, true
}

// Taken returns the error of a call whose id is in use.
func Taken(id string) *tool.Error {
	return tool.Errorf(tool.CodeConflict, "a call %s is running already: choose another id, or none", id).
		Because("duplicate_call")
}

// register adds an entry. The caller holds mu.
func (l *Log) register(ctx context.Context, p tool.Principal, k key) *entry {
	e := &entry{LazyContext: tool.LazyContext{Parent: ctx}, of: l, key: k, who: p}
	l.running[k] = e
	return e
}

// remove removes a call that never entered the chain, or left it. Its id may belong to another call by now.
func (l *Log) remove(e *entry) {
	l.mu.Lock()
	if l.running[e.key] == e {
		delete(l.running, e.key)
	}
	l.mu.Unlock()
	e.End(nil) // frees the context's resources, outside the lock that other calls need
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

// List returns the calls that p may know of, the oldest first: its own, or for an operator all.
func (l *Log) List(p tool.Principal) []Running {
	list, here := []Running{}, l.env.Node()
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, e := range l.running {
		if e.call != nil && (k.caller == p.ID || p.Operator()) {
			list = append(list, Running{
				ID: k.id, Caller: k.caller, Door: e.call.Caller.Door, Tool: clip(e.call.Tool), Parent: e.call.Parent,
				Since: e.start, DryRun: e.call.DryRun, Last: signOf(e.last), Kind: kind(e.looks),
				Node: cmp.Or(e.node, here), Hub: here,
			})
		}
	}
	slices.SortFunc(list, func(a, b Running) int { return a.Since.Compare(b.Since) })
	return list
}

func kind(looks bool) string {
	if looks {
		return tool.OperatorCall
	}
	return ""
}

// lastOf returns the event that a Sign is made of when the list is requested, or none. copied has the part of its data that is
// kept; a large event is parsed at once.
func lastOf(ev, copied tool.Event) tool.Event {
	switch {
	case ev.Kind != tool.KindProgress && ev.Kind != tool.KindLog:
		return tool.Event{}
	case len(ev.Data) > 4*maxSign:
		copied.Data = tool.NewEvent(tool.KindProgress, tool.Progress{Message: signOf(ev).Message}).Data
	}
	return copied
}

// signOf parses an event. It drops what does not fit: the reader only wants to see that something happens.
func signOf(ev tool.Event) *Sign {
	var data tool.Progress
	switch ev.Kind {
	case "":
		return nil
	case tool.KindLog: // only the message matters, which has the same name
		if m, err := strictjson.ReadMembers(ev.Data, "message"); err == nil && strictjson.KindOf(m.Get("message")) == "string" {
			data.Message = strictjson.Text(m.Get("message"))
		}
	default:
		_ = strictjson.Unmarshal(ev.Data, &data)
	}
	return &Sign{Time: ev.Time, Message: clip(data.Message), Progress: data.Progress, Total: data.Total}
}

func clip(text string) string {
	if len(text) > maxSign {
		text = strings.ToValidUTF8(text[:maxSign], "")
	}
	return text
}

// Cancel cancels a call of p by its id, at whichever hub of the fleet it came in: doors know no other hubs. An operator may
// cancel any call, and names its caller if several used the same id. Other callers do not learn whether such a call exists.
func (l *Log) Cancel(p tool.Principal, whose, id string) error {
	err := l.CancelHere(p, whose, id)
	if tool.CodeOf(err) != tool.CodeNotFound || l.env.Elsewhere == nil {
		return err
	}
	if there := l.env.Elsewhere(p, whose, id); tool.CodeOf(there) != tool.CodeNotFound {
		return there
	}
	return err
}

// CancelHere is Cancel for the calls of this program.
func (l *Log) CancelHere(p tool.Principal, whose, id string) error {
	if err := p.Reaches(whose, "calls"); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	k := key{whose, id}
	if whose == "" {
		if k.caller = p.ID; l.running[k] == nil && p.Operator() {
			owners := l.having(id)
			if len(owners) > 1 {
				return tool.Errorf(tool.CodeConflict, "%s each have a call %s: say whose", strings.Join(owners, ", "), id).
					Because("duplicate_call")
			}
			k.caller = strings.Join(owners, "")
		}
	}
	e := l.running[k]
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
func (l *Log) Dismiss(gone func(tool.Principal) bool) {
	l.mu.Lock()
	all := slices.Collect(maps.Values(l.running))
	l.mu.Unlock()
	for _, e := range all {
		if gone(e.who) {
			e.End(tool.Errorf(tool.CodeCancelled, "the call was cancelled because the config no longer has its caller"))
		}
	}
}

// having lists the callers that have a call with this id. The caller holds mu.
func (l *Log) having(id string) (owners []string) {
	for k := range l.running {
		if k.id == id {
			owners = append(owners, k.caller)
		}
	}
	slices.Sort(owners)
	return owners
}
