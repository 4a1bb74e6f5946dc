package define

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	"toolpost/engine/follow"
	"toolpost/fleet"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// Everywhere says of a tool that reports lines how the other nodes of a fleet report theirs too.
type Everywhere struct {
	Name    string // of the tool
	Field   string // of the lines, which gets the name of the node that each is from
	What    string // what is missing if a node does not answer, for people
	Workers bool   // connected workers have lines too
	Fleet   fleet.In
}

// Lines runs a tool here, and meanwhile lets the other nodes run it. If once is set, the tool reports what it has and ends, and the
// lines are sorted by their time. Lines of others have no seq. A node that does not answer is named in an event.
func (e Everywhere) Lines(
	ctx context.Context, c *Call, once bool, others map[string]int64, run func(context.Context) (follow.Watched, error),
) (w follow.Watched, err error) {
	n := e.Fleet.Node()
	if n.Name() == "" || c.FromHub {
		return run(ctx)
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	g, out := &gathered{of: e, next: map[string]int64{}}, c.Out
	maps.Copy(g.next, others)
	var kept []tool.Event
	if g.out = tool.NewRelay(out, stop); once {
		g.out = tool.NewRelay(tool.SinkFunc(func(ev tool.Event) error { kept = append(kept, ev); return nil }), stop)
	}
	c.Out = tool.SinkFunc(func(ev tool.Event) error { return g.pass(n.Name(), ev, false) })
	var rest sync.WaitGroup
	theirs := func(node string, ev tool.Event) error { return g.pass(node, ev, true) }
	if once {
		for _, a := range n.AskNodes(ctx, fleet.Ask(c.Call, e.Name), e.Workers, theirs) {
			if a.Err != nil {
				g.silent(a.Node, true)
			}
		}
	} else {
		rest.Go(func() {
			n.FollowNodes(ctx, e.Workers, func(node string) fleet.Question { return g.question(c.Call, node) }, theirs, g.silent)
		})
	}
	w, err = run(ctx)
	stop(nil)
	rest.Wait()
	w.Others = g.next
	slices.SortStableFunc(kept, func(a, b tool.Event) int { return a.Time.Compare(b.Time) })
	for _, ev := range kept {
		if err == nil {
			err = out.Emit(ev)
		}
	}
	return w, err
}

// A gathered is the lines of several nodes, on their way to one follower.
type gathered struct {
	of  Everywhere
	out *tool.Relay

	mu   sync.Mutex
	next map[string]int64 // the last line of each other node
}

// question asks another node for the lines behind the last one that it sent.
func (g *gathered) question(c *tool.Call, node string) fleet.Question {
	q := fleet.Ask(c, g.of.Name)
	args := map[string]json.RawMessage{}
	_ = strictjson.Unmarshal(q.Args, &args) // they were read before
	delete(args, "after")
	delete(args, "others")
	g.mu.Lock()
	if after, ok := g.next[node]; ok {
		args["after"] = raw(after)
	}
	g.mu.Unlock()
	q.Args = raw(args)
	return q
}

// pass passes a line on, with the name of its node. Numbers of other nodes mean nothing to the follower, and what is no line could
// be taken for one of this node, or end the call: it is dropped.
func (g *gathered) pass(node string, ev tool.Event, other bool) error {
	var l tool.Log
	fields := map[string]json.RawMessage{}
	if ev.Kind != tool.KindLog || strictjson.Unmarshal(ev.Data, &l) != nil || strictjson.Unmarshal(l.Fields, &fields) != nil {
		if other {
			return nil
		}
		return g.out.Emit(ev)
	}
	if other {
		var seq int64
		if strictjson.Unmarshal(fields["seq"], &seq) == nil && seq > 0 {
			g.mu.Lock()
			g.next[node] = seq
			g.mu.Unlock()
		}
		delete(fields, "seq")
	}
	fields[g.of.Field] = raw(node)
	l.Fields = raw(fields)
	at := ev.Time
	ev = tool.NewEvent(ev.Kind, l)
	ev.Time = at
	return g.out.Emit(ev)
}

// silent says that a node does not answer, or that it does again.
func (g *gathered) silent(node string, is bool) {
	text := fmt.Sprintf("%s does not answer: %s", node, g.of.What)
	if !is {
		text = node + " answers again"
	}
	_ = g.out.Emit(tool.NewEvent(tool.KindLog, tool.Log{ // an error ends the call
		Level: map[bool]string{true: "warn", false: "info"}[is], Message: text, Fields: raw(map[string]any{g.of.Field: node, "silent": is}),
	}))
}

// raw writes what always has a JSON form.
func raw(v any) json.RawMessage {
	b, _ := strictjson.Marshal(v)
	return b
}
