package fleet

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"toolpost/engine/member"
	"toolpost/tool"
)

// An In returns this program's node of its fleet, or nil if it is in none.
type In func() *Node

// Node calls in, which may be nil.
func (in In) Node() *Node {
	if in == nil {
		return nil
	}
	return in()
}

// A Question is a call of one of Toolpost's own tools, which a hub asks other nodes to run, each for itself alone, for a caller
// whose rights it has judged.
type Question struct {
	Tool     string          `json:"tool"`
	Args     json.RawMessage `json:"args"`
	Caller   string          `json:"caller"`
	Operator bool            `json:"operator,omitempty"`
	Follow   bool            `json:"follow,omitempty"` // the tool reports events until it is cancelled
}

// Ask makes the question that asks other nodes what a call asks this one.
func Ask(c *tool.Call, name string) Question {
	return Question{Tool: name, Args: c.Args, Caller: c.Caller.ID, Operator: c.Caller.Operator()}
}

// An Answer is that of one node.
type Answer struct {
	Node   string
	Output []byte // of the tool
	Err    error
}

// answerWithin is how long the other nodes have to answer: people wait for it.
const answerWithin = 300 * time.Millisecond

// AskHubs asks all other hubs at once. It returns an answer or an error for each of them, in the order of their names.
func (n *Node) AskHubs(ctx context.Context, q Question) []Answer {
	return n.AskNodes(ctx, q, false, func(string, tool.Event) error { return nil })
}

// AskNodes is AskHubs for a tool that reports events, and with workers for the connected ones too.
func (n *Node) AskNodes(ctx context.Context, q Question, workers bool, each func(node string, ev tool.Event) error) (all []Answer) {
	ctx, stop := context.WithTimeout(ctx, answerWithin)
	defer stop()
	var mu sync.Mutex
	var asking sync.WaitGroup
	for _, m := range n.others(workers) {
		asking.Go(func() {
			output, err := n.order(ctx, m, order{Do: orderAnswer, About: &q}, tool.SinkFunc(func(ev tool.Event) error { return each(m.Name, ev) }))
			mu.Lock()
			defer mu.Unlock()
			all = append(all, Answer{m.Name, output, err})
		})
	}
	asking.Wait()
	slices.SortFunc(all, func(a, b Answer) int { return strings.Compare(a.Node, b.Node) })
	return all
}

// others are the other hubs, whether they are connected or not, and the connected workers.
func (n *Node) others(workers bool) (all []member.Member) {
	if n == nil || n.hub == nil {
		return nil
	}
	for _, m := range n.roster.All() {
		if m.ID != n.pass.ID && m.Evicted.IsZero() && (m.Role == roleHub || workers && n.hub.knows(m.ID)) {
			all = append(all, m)
		}
	}
	return all
}

// followAgain is how soon a node is asked again that could not be followed, and how often new nodes are looked for.
const followAgain = time.Second

// FollowNodes lets the other hubs, and with workers the connected ones too, run a tool that follows something, until ctx ends.
// The function ask makes the question for a node each time that it is asked. What the nodes report goes to each, which several
// goroutines call. The function silent is told when a node does not answer, and when it does again.
func (n *Node) FollowNodes(
	ctx context.Context, workers bool, ask func(node string) Question, each func(node string, ev tool.Event) error, silent func(node string, is bool),
) {
	var following sync.WaitGroup
	defer following.Wait()
	followed := map[string]bool{}
	for again := true; again; again = tool.Sleep(ctx, followAgain) {
		for _, m := range n.others(workers) {
			if followed[m.ID] {
				continue
			}
			followed[m.ID] = true
			following.Go(func() {
				quiet := false
				tell := func(is bool) {
					if quiet != is && ctx.Err() == nil {
						quiet = is
						silent(m.Name, is)
					}
				}
				for again := true; again; again = tool.Sleep(ctx, followAgain) {
					n.follow(ctx, m, ask(m.Name), each, tell)
				}
			})
		}
	}
}

// follow follows one node until that ends. It calls silent one at a time.
func (n *Node) follow(
	ctx context.Context, m member.Member, q Question, each func(node string, ev tool.Event) error, silent func(bool),
) {
	q.Follow = true
	answered, told := false, make(chan struct{})
	late := time.AfterFunc(answerWithin, func() { defer close(told); silent(true) })
	_, err := n.order(ctx, m, order{Do: orderAnswer, About: &q}, tool.SinkFunc(func(ev tool.Event) error {
		if !answered {
			if answered = true; !late.Stop() {
				<-told
			}
			silent(false)
			return nil
		}
		return each(m.Name, ev)
	}))
	if !late.Stop() && !answered {
		<-told
	}
	silent(err != nil || !answered)
}
