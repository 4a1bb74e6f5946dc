package node_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"toolpost/config"
	"toolpost/internal/kit"
	"toolpost/internal/pg"
	"toolpost/internal/rounds"
	"toolpost/node"
	"toolpost/tool"
)

// A counter is a tool that counts its calls by their argument n.
type counter struct {
	name string
	ran  *sync.Map
}

func (c counter) Tools(context.Context) ([]*tool.Spec, error) {
	return []*tool.Spec{{Name: c.name, Effects: tool.Effects{Writes: true}}}, nil
}

func (c counter) Invoke(_ context.Context, call *tool.Call, _ tool.Sink) (*tool.Result, error) {
	n, _ := c.ran.LoadOrStore(string(call.Args), new(atomic.Int64))
	time.Sleep(5 * time.Millisecond)
	return &tool.Result{OK: true, Output: fmt.Appendf(nil, `{"run":%d}`, n.(*atomic.Int64).Add(1))}, nil
}

func (counter) Close(context.Context) error { return nil }

// twoNodes serves two nodes of one PostgreSQL: both have the tool both, and one of them on_a, the other on_b. A third
// node, quiet, has the tools of b and does not serve.
func twoNodes(t *testing.T) (a, b, quiet *node.Node, ran *sync.Map) {
	t.Helper()
	ran = new(sync.Map)
	url := pg.New(t).Database(t)
	protocols := []node.Protocol{{Name: "count", Open: func(_ context.Context, src config.Source, _ *slog.Logger) (tool.Runner, error) {
		return counter{src.Name, ran}, nil
	}}}
	var nodes []*node.Node
	for i, own := range []string{"on_a", "on_b", "on_b"} {
		text := fmt.Sprintf("sources: [{name: both, protocol: count}, {name: %s, protocol: count}]\n"+
			"doors: {http: {listen: '127.0.0.1:0'}}\nstore: {url: '%s'}\n"+
			"policy: {rules: [{effect: ask, tools: on_b, when: has(args.ask)}]}\n", own, url)
		n := open(t, parse(t, t.TempDir(), text), node.Options{Protocols: protocols}) // each with an audit.key of its own
		kit.OK(t, call(n, own))
		if nodes = append(nodes, n); i == 2 {
			t.Cleanup(func() { kit.Check(t, n.Close(kit.Context(t))) })
			continue
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- n.Serve(ctx) }()
		t.Cleanup(func() {
			cancel()
			kit.Check(t, <-ended)
			kit.Check(t, n.Close(kit.Context(t)))
		})
	}
	return nodes[0], nodes[1], nodes[2], ran
}

func TestTwoNodesShareAStore(t *testing.T) {
	a, b, quiet, ran := twoNodes(t)
	ada := tool.Principal{ID: "ada", Door: "http"}
	t.Run("JobsRunWhereTheirToolIs", func(t *testing.T) {
		var ids []string
		for n := range 20 {
			from := []*node.Node{b, quiet}[n%2] // a hears of the jobs of quiet, too
			ids = append(ids, startJob(t, from, ada, fmt.Sprintf(`{"tool":"on_b","arguments":{"n":%d}}`, n)))
		}
		for _, id := range ids {
			if got := outcomeOf(kit.Context(t), t, a, ada, id); !strings.Contains(got, `"state":"done"`) {
				t.Error(got)
			}
		}
	})
	t.Run("AJobOfAProgramThatDoesNotServeBeginsAtOnce", func(t *testing.T) {
		var took []time.Duration
		for n := range 20 {
			id := startJob(t, quiet, ada, fmt.Sprintf(`{"tool":"both","arguments":{"quiet":%d}}`, n))
			var j struct{ Made, Began time.Time }
			kit.OK(t, json.Unmarshal([]byte(outcomeOf(kit.Context(t), t, a, ada, id)), &j))
			took = append(took, j.Began.Sub(j.Made))
		}
		slices.Sort(took)
		t.Logf("p50 %v, most %v", took[len(took)/2], took[len(took)-1])
		if took[len(took)/2] > time.Second { // the next look would come after five
			t.Error(took)
		}
	})
	t.Run("AnApprovalLetsAJobOfTheOtherGoOn", func(t *testing.T) {
		id := startJob(t, b, ada, `{"tool":"on_b","arguments":{"ask":true}}`)
		if got := outcomeOf(kit.Context(t), t, a, ada, id); !strings.Contains(got, `"state":"asked"`) {
			t.Fatal(got)
		}
		approveNext(kit.Context(t), t, a)
		start, state := time.Now(), ""
		kit.Eventually(t, "the job has ended", func() bool {
			r, err := a.Handler().Invoke(kit.Context(t), &tool.Call{Tool: "showJob", Args: json.RawMessage(`{"job":"` + id + `"}`), Caller: ada}, tool.Discard)
			kit.OK(t, err)
			state = string(r.Output)
			return strings.Contains(state, `"ended"`) && !strings.Contains(state, `"state":"asked"`)
		})
		if took := time.Since(start); !strings.Contains(state, `"state":"done"`) || took > 3*time.Second {
			t.Errorf("after %v: %s", took, state)
		}
	})
	t.Run("AKeyRunsOnce", func(t *testing.T) {
		for i := range rounds.Of(20, 200) {
			args := json.RawMessage(fmt.Sprintf(`{"key":%d}`, i))
			var both sync.WaitGroup
			var got [2]string
			for k, n := range []*node.Node{a, b} {
				both.Go(func() {
					r, err := n.Handler().Invoke(kit.Context(t), &tool.Call{Tool: "both", Args: args, Caller: ada, Key: fmt.Sprint("key", i)}, tool.Discard)
					if err != nil {
						t.Error(err)
						return
					}
					got[k] = string(r.Output)
				})
			}
			both.Wait()
			if n, _ := ran.Load(string(args)); n.(*atomic.Int64).Load() != 1 || got[0] != got[1] {
				t.Errorf("try %d ran %d times: %q", i, n.(*atomic.Int64).Load(), got)
			}
		}
	})
}
