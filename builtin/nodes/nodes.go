// Package nodes has the tools for the nodes of a fleet: listNodes, inviteNodes, drainNode, evictNode, rotateNodes, listVersions, shareCalls
// and showOutcome.
// Only operators may use them.
package nodes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"toolpost/builtin/define"
	"toolpost/engine/member"
	"toolpost/fleet"
	"toolpost/tool"
)

// New makes the tools. In returns the fleet that this program is a hub of, or nil; find finds a tool by any of its names.
func New(in func() *fleet.Node, find func(name string) (*tool.Spec, error)) *define.Set {
	f := of{in, find}
	return define.NewSet(
		define.New(tool.Spec{
			Name: "listNodes", Effects: tool.Effects{Reads: true},
			Description: "Lists the nodes of the fleet: hubs and workers, whether they are up, their labels, tools and calls. For operators.",
		}, define.ForOperators("list the nodes of the fleet", f.list)),
		define.New(tool.Spec{
			Name: "inviteNodes", Description: "Makes a line with a token, with which nodes join the fleet. For operators.",
		}, define.ForOperators("invite nodes", f.invite)),
		define.New(tool.Spec{
			Name: "drainNode", Effects: tool.Effects{Writes: true, Idempotent: true},
			Description: "Lets a node take no more calls; it ends after its last one. For operators.",
		}, define.ForOperators("drain nodes", f.drain)),
		define.New(tool.Spec{
			Name: "evictNode", Effects: tool.Effects{Writes: true, Destructive: true},
			Description: "Ends the membership of a node: it is cut off within a second, and its key is refused. For operators.",
		}, define.ForOperators("evict nodes", f.evict)),
		define.New(tool.Spec{
			Name: "rotateNodes", Effects: tool.Effects{Writes: true}, Timeout: time.Minute,
			Description: "Lets every connected node make itself another key, and refuses the old ones. For operators.",
		}, define.ForOperators("rotate the keys of nodes", f.rotate)),
		define.New(tool.Spec{
			Name: "listVersions", Effects: tool.Effects{Reads: true},
			Description: "Lists the definitions that the nodes of the fleet have of a tool, with their shares of its calls. For operators.",
		}, define.ForOperators("list the versions of tools", f.versions)),
		define.New(tool.Spec{
			Name: "shareCalls", Effects: tool.Effects{Writes: true, Idempotent: true},
			Description: "Shares the calls of a tool between the definitions that nodes have of it, at all hubs. For operators.",
		}, define.ForOperators("share the calls of tools", f.share)),
		define.New(tool.Spec{
			Name: "showOutcome", Effects: tool.Effects{Reads: true},
			Description: "Asks the nodes of the fleet what became of a call that may have changed something, and whose hub lost sight of it. For operators.",
		}, define.ForOperators("ask what became of calls", f.outcome)),
	)
}

type of struct {
	in   func() *fleet.Node
	find func(name string) (*tool.Spec, error)
}

// fleet returns the fleet, or why there is none.
func (f of) fleet() (*fleet.Node, error) {
	if n := f.in(); n != nil {
		return n, nil
	}
	return nil, tool.Errorf(tool.CodeNotFound, "no hub runs with this config: make its server a hub with `toolpost fleet init`, if "+
		"it is none yet, and start it again with `toolpost serve`; elsewhere, as on a worker, ask a hub with --server URL")
}

// Listed is the output of listNodes.
type Listed struct {
	Nodes []fleet.Status `json:"nodes"`
}

func (f of) list(ctx context.Context, c *define.Call, _ struct{}) (Listed, error) {
	n, err := f.fleet()
	if err != nil {
		return Listed{}, err
	}
	all, err := n.Nodes(ctx)
	c.Summary = define.Count(len(all), "node")
	return Listed{all}, err
}

// InviteArgs are the arguments of inviteNodes.
type InviteArgs struct {
	Role   member.Role `json:"role" schema:"enum=hub|worker" doc:"what the nodes will be; default: worker"`
	Labels []string    `json:"labels,omitzero" schema:"items.minLength=1" doc:"labels of the nodes"`
	Uses   int         `json:"uses" schema:"minimum=0 maximum=100000" doc:"how many nodes can join with it; default: 1"`
	TTLms  int64       `json:"ttl_ms" schema:"minimum=0" doc:"time until it expires; default: an hour"`
}

// Invited is the output of inviteNodes.
type Invited struct {
	Line string      `json:"line" doc:"for --join; it is shown this once"`
	Role member.Role `json:"role"`
	Uses int         `json:"uses"`
}

func (f of) invite(ctx context.Context, c *define.Call, a InviteArgs) (Invited, error) {
	n, err := f.fleet()
	if err == nil {
		err = c.Told("an invitation")
	}
	if err != nil {
		return Invited{}, err
	}
	if a.Role == "" {
		a.Role = member.Worker
	}
	a.Uses = max(a.Uses, 1)
	ttl := time.Duration(min(a.TTLms, int64(365*24*time.Hour/time.Millisecond))) * time.Millisecond
	if ttl == 0 {
		ttl = time.Hour
	}
	line, err := n.Token(ctx, member.Ticket{Role: a.Role, Labels: a.Labels, Uses: a.Uses}, ttl)
	c.Summary = fmt.Sprintf("an invitation for %s", define.Count(a.Uses, string(a.Role)))
	return Invited{line, a.Role, a.Uses}, err
}

// NameArgs are the arguments of drainNode and evictNode.
type NameArgs struct {
	Node string `json:"node" schema:"required minLength=1" doc:"name or id of the node"`
}

// Done is the output of drainNode and evictNode.
type Done struct {
	Node string `json:"node"`
}

func (f of) drain(ctx context.Context, c *define.Call, a NameArgs) (Done, error) {
	n, err := f.fleet()
	if err == nil {
		err = n.DrainNode(ctx, a.Node)
	}
	c.Summary = a.Node + " drains"
	return Done(a), err
}

func (f of) evict(ctx context.Context, c *define.Call, a NameArgs) (Done, error) {
	n, err := f.fleet()
	if err == nil {
		err = n.Evict(ctx, a.Node)
	}
	c.Summary = a.Node + " is evicted"
	return Done(a), err
}

// Rotated is the output of rotateNodes.
type Rotated struct {
	Failed []string `json:"failed" doc:"connected nodes that kept their keys"`
}

func (f of) rotate(ctx context.Context, c *define.Call, _ struct{}) (Rotated, error) {
	n, err := f.fleet()
	if err != nil {
		return Rotated{}, err
	}
	failed, err := n.Rotate(ctx)
	c.Summary = "the nodes have new keys"
	return Rotated{append([]string{}, failed...)}, err
}

// OutcomeArgs are the arguments of showOutcome.
type OutcomeArgs struct {
	Call string `json:"call" schema:"required minLength=1 maxLength=200" doc:"id of the call"`
}

// Outcome is the output of showOutcome.
type Outcome struct {
	Call   string          `json:"call"`
	Node   string          `json:"node,omitempty" doc:"that began it"`
	OK     bool            `json:"ok"`
	Runs   bool            `json:"runs,omitzero" doc:"it has not ended yet"`
	Output json.RawMessage `json:"output,omitzero"`
	Error  *tool.Error     `json:"error,omitzero" doc:"its outcome, or why none is known"`
}

func (f of) outcome(ctx context.Context, c *define.Call, a OutcomeArgs) (Outcome, error) {
	n, err := f.fleet()
	if err != nil {
		return Outcome{}, err
	}
	r, node, err := n.Outcome(ctx, a.Call)
	if err != nil && node == "" {
		return Outcome{}, err
	}
	o := Outcome{Call: a.Call, Node: node, Error: tool.AsError(err), Runs: errors.Is(err, fleet.ErrRuns)}
	if r != nil {
		o.OK, o.Output, o.Error = r.OK, r.Output, r.Failure
	}
	c.Summary = fmt.Sprintf("%s ran %s", node, a.Call)
	return o, nil
}

// ToolArgs are the arguments of listVersions.
type ToolArgs struct {
	Tool string `json:"tool" schema:"required minLength=1" doc:"name of the tool"`
}

// ShareArgs are the arguments of shareCalls.
type ShareArgs struct {
	ToolArgs
	Shares []string `json:"shares,omitempty" doc:"the shares of other definitions than the one that counts, each as DIGEST=10%, in place of all earlier ones; default: none"`
}

// Versions is the output of listVersions and shareCalls.
type Versions struct {
	Tool     string          `json:"tool"`
	Versions []fleet.Version `json:"versions"`
}

// tool returns the fleet, and a tool by any of its names.
func (f of) tool(name string) (n *fleet.Node, spec *tool.Spec, err error) {
	if n, err = f.fleet(); err == nil {
		spec, err = f.find(name)
	}
	return n, spec, err
}

func (f of) versions(ctx context.Context, c *define.Call, a ToolArgs) (Versions, error) {
	n, spec, err := f.tool(a.Tool)
	if err != nil {
		return Versions{}, err
	}
	all, err := n.Versions(ctx, spec)
	slices.SortStableFunc(all, func(a, b fleet.Version) int { return b.Percent - a.Percent })
	c.Summary = define.Count(len(all), "version")
	return Versions{spec.Ref().String(), all}, err
}

func (f of) share(ctx context.Context, c *define.Call, a ShareArgs) (Versions, error) {
	n, spec, err := f.tool(a.Tool)
	if err == nil {
		err = n.Share(ctx, spec, a.Shares)
	}
	if err != nil {
		return Versions{}, err
	}
	return f.versions(ctx, c, a.ToolArgs)
}
