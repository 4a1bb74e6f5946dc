package node_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"toolpost/config"
	fleetmember "toolpost/engine/member"
	"toolpost/fleet"
	fleetmembership "toolpost/fleet/membership"
	"toolpost/internal/kit"
	"toolpost/internal/pg"
	"toolpost/node"
	"toolpost/tool"
)

var (
	fleetOwner = tool.Principal{ID: "owner", Door: "http", Operates: true}
	fleetAda   = tool.Principal{ID: "ada", Door: "http"}
)

// The trace of the calls over HTTP.
const (
	fleetTrace = "0af7651916cd43dd8448eb211c80319c"
	fleetSpan  = "b7ad6b7169203331"
)

// A turnstile is a source with the tool hang, whose calls end when their argument a is let through.
type turnstile struct {
	began chan string
	open  map[string]chan bool
}

func (*turnstile) Tools(context.Context) ([]*tool.Spec, error) {
	return []*tool.Spec{{Name: "hang", Effects: tool.Effects{Reads: true, Idempotent: true}}}, nil
}

func (*turnstile) Close(context.Context) error { return nil }

func (g *turnstile) Invoke(ctx context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
	var args struct{ A string }
	_ = json.Unmarshal(c.Args, &args)
	g.began <- args.A
	select {
	case <-g.open[args.A]:
		return &tool.Result{OK: true, Output: []byte(`"through ` + c.Trace + " " + c.Span + `"`)}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// A fleetHub is a hub that runs in this process.
type fleetHub struct {
	*node.Node
	name   string
	url    *string
	cancel func()
	stop   func() // and wait until it has ended
}

// serves runs a node until the test ends, or stop.
func serves(t *testing.T, n *node.Node, run func(context.Context) error) (cancel, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		kit.Check(t, <-ended)
		kit.Check(t, n.Close(kit.Context(t)))
	})
	t.Cleanup(func() { cancel(); stop() })
	return cancel, stop
}

// openFleet runs the hubs one and two, on one PostgreSQL, and the worker drill, which has the turnstile.
func openFleet(t *testing.T) (one, two fleetHub, g *turnstile) {
	t.Helper()
	g = &turnstile{make(chan string, 9), map[string]chan bool{"call": make(chan bool), "job": make(chan bool)}}
	url, hubs := pg.New(t).Database(t), []fleetHub{}
	token := func(role fleetmember.Role) string {
		kit.Eventually(t, "the hub one runs", func() bool { return hubs[0].Fleet() != nil })
		return kit.Must(hubs[0].Fleet().Token(t.Context(), fleetmember.Ticket{Role: role, Uses: 1}, time.Hour))(t)
	}
	for i, name := range []string{"one", "two"} {
		cfg := parse(t, t.TempDir(), fmt.Sprintf("sources: []\ndoors: {http: {listen: '127.0.0.1:0'}}\nstore: {url: '%s'}\n"+
			"fleet: {listen: '127.0.0.1:0'}\nlimits: {drain: 2s, recent: {calls: %d}}\n", url, 60+i))
		if i == 0 {
			kit.OK(t, node.FoundFleet(t.Context(), cfg, name))
		} else {
			kit.OK(t, node.JoinFleet(t.Context(), cfg, token(fleetmember.Hub), name, fleetmember.Hub))
		}
		ready, address := make(chan node.Listening, 8), new(string)
		n := open(t, cfg, node.Options{Token: envelopeToken, Version: "1.2", Ready: func(l node.Listening) { ready <- l }})
		cancel, stop := serves(t, n, n.Serve)
		*address = kit.Receive(t, "the hub serves", ready).URL
		hubs = append(hubs, fleetHub{n, name, address, cancel, stop})
	}
	cfg := parse(t, t.TempDir(), "sources: [{name: tools, protocol: turnstile}]")
	protocols := []node.Protocol{{Name: "turnstile", Open: func(context.Context, config.Source, *slog.Logger) (tool.Runner, error) { return g, nil }}}
	kit.OK(t, node.JoinFleet(t.Context(), cfg, token(fleetmember.Worker), "drill", fleetmember.Worker))
	worker := open(t, cfg, node.Options{Worker: true, Protocols: protocols})
	serves(t, worker, worker.Work)
	for _, hub := range hubs {
		kit.Eventually(t, "each hub knows all nodes", func() bool {
			l := struct{ Nodes []struct{ State string } }{}
			_ = json.Unmarshal([]byte(hub.ask(t, fleetOwner, "listNodes", `{}`)), &l)
			_, err := hub.Catalog().Lookup(t.Context(), fleetAda, "hang")
			return err == nil && len(l.Nodes) == 3 && l.Nodes[0].State+l.Nodes[1].State+l.Nodes[2].State == "upupup"
		})
	}
	return hubs[0], hubs[1], g
}

// try calls one of Toolpost's own tools.
func (h fleetHub) try(ctx context.Context, who tool.Principal, name, args string, out tool.Sink) (string, error) {
	c := &tool.Call{ID: tool.NewID(), Tool: "toolpost." + name, Args: json.RawMessage(args), Caller: who}
	r, err := h.Handler().Invoke(ctx, c, out)
	if err != nil {
		return "", err
	}
	return string(r.Output), nil
}

func (h fleetHub) ask(t *testing.T, who tool.Principal, name, args string) string {
	t.Helper()
	return kit.Must(h.try(t.Context(), who, name, args, tool.Discard))(t)
}

// says waits until a hub says something: on a busy machine, another one may take longer than people wait.
func (h fleetHub) says(t *testing.T, who tool.Principal, name, args, words string) (said string) {
	t.Helper()
	kit.Until(t, func() (err error) {
		if said, err = h.try(t.Context(), who, name, args, tool.Discard); err != nil {
			said = err.Error()
		}
		if !strings.Contains(said, words) {
			return errors.New(said)
		}
		return nil
	})
	return said
}

// follow follows something until the test ends. The function returned waits for an event with some words.
func (h fleetHub) follow(t *testing.T, name, args string) (sees func(words ...string)) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var said kit.Buffer
	ended := make(chan error, 1)
	go func() {
		_, err := h.try(ctx, fleetOwner, name, args, tool.SinkFunc(func(ev tool.Event) error {
			_, err := fmt.Fprintf(&said, "%s\n", ev.Data)
			return err
		}))
		ended <- err
	}()
	t.Cleanup(func() { stop(); <-ended })
	return func(words ...string) {
		t.Helper()
		kit.Until(t, func() error {
			for _, line := range strings.Split(said.String(), "\n") {
				if has(line, words) {
					return nil
				}
			}
			return fmt.Errorf("%s tells nothing of %q:\n%s", name, words, said.String())
		})
	}
}

func has(line string, words []string) bool {
	for _, w := range words {
		if !strings.Contains(line, w) {
			return false
		}
	}
	return true
}

// hangs makes a call of the tool hang, which runs on the worker; its outcome is in ended.
func (h fleetHub) hangs(t *testing.T, id string, g *turnstile) (ended chan error) {
	t.Helper()
	ended = make(chan error, 1)
	go func() {
		_, err := h.Handler().Invoke(t.Context(), &tool.Call{ID: id, Tool: "hang", Args: []byte(`{"a":"b"}`), Caller: fleetAda}, tool.Discard)
		ended <- err
	}()
	kit.Receive(t, "the call runs", g.began)
	return ended
}

// What is asked of one hub covers the calls of all hubs, and each says where it came in and which node runs it.
func TestCallsOfAllHubsAreSeenAndCancelledAtEach(t *testing.T) {
	one, two, g := openFleet(t)
	calls, logs := two.follow(t, "watchCalls", `{}`), two.follow(t, "watchLogs", `{"follow":true}`)
	ended := one.hangs(t, "c1", g)
	for _, who := range []tool.Principal{fleetOwner, fleetAda} {
		kit.Until(t, func() error { // a call that looks at others is one of them until its tool is found
			list := two.says(t, who, "listCalls", `{}`, `"call":"c1","caller":"ada"`)
			if strings.Count(list, `"call":`) != 1 || !strings.Contains(list, `"node":"drill","hub":"one"`) {
				return errors.New(list)
			}
			return nil
		})
		two.says(t, who, "showCall", `{"call":"c1"}`, `"args":{"a":"b"}`)
	}
	eve := tool.Principal{ID: "eve", Door: "http"}
	two.says(t, eve, "listCalls", `{}`, `{"calls":[]}`)
	two.says(t, eve, "showCall", `{"call":"c1"}`, `no call "c1" of yours is known`)
	two.says(t, eve, "cancelCall", `{"call":"c1"}`, `no call "c1" of yours is running`)
	two.follow(t, "watchLoad", `{"interval_ms":500}`)(`"in_flight":1`, `"node":"drill","hub":"one"`)
	calls(`"hub":"one"`, `"call":"c1"`, `"node":"drill"`)
	two.says(t, fleetOwner, "cancelCall", `{"call":"c1"}`, `{"call":"c1"}`)
	kit.Refused(t, kit.Receive(t, "the call ends", ended), tool.CodeCancelled, "owner")
	calls(`"hub":"one"`, `"end":`, `"cancelled"`)
	logs(`"node":"one"`, `"from":"call"`, `"call":"c1"`)
	two.follow(t, "watchLogs", `{"last":100}`)(`"node":"drill"`, `"message":"connected to a hub"`)
	var times []time.Time
	kit.Must(two.try(t.Context(), fleetOwner, "watchLogs", `{"last":100}`, tool.SinkFunc(func(ev tool.Event) error {
		times = append(times, ev.Time)
		return nil
	})))(t)
	if len(times) < 3 || !slices.IsSortedFunc(times, time.Time.Compare) {
		t.Errorf("the lines of all nodes are from %v", times)
	}
	for call, ran := range map[string]string{"c1": "drill", "": "two"} {
		kit.Until(t, func() error {
			if log := two.ask(t, fleetOwner, "audit.log", `{"kind":"all"}`); !strings.Contains(log, `"node":"`+ran+`"`) {
				return fmt.Errorf("no record of %q says that %s ran it: %s", call, ran, log)
			}
			return nil
		})
	}
	var text strings.Builder
	kit.OK(t, one.Metrics(&text))
	for _, line := range []string{`toolpost_fleet_calls_total{node="drill"} 1`, `toolpost_fleet_nodes{state="up"} 3`, `toolpost_fleet_nodes{state="gone"} 0`} {
		kit.Contains(t, text.String(), line+"\n")
	}
}

// The jobs are in the store, whichever hub runs them.
func TestAJobOfAnotherHubIsSeenAndCancelled(t *testing.T) {
	one, two, g := openFleet(t)
	started := struct{ Job string }{}
	kit.OK(t, json.Unmarshal([]byte(one.ask(t, fleetAda, "startJob", `{"tool":"hang"}`)), &started))
	kit.Receive(t, "the job runs", g.began)
	kit.Contains(t, two.ask(t, fleetAda, "listJobs", `{}`), started.Job)
	kit.Contains(t, two.ask(t, fleetAda, "showJob", `{"job":"`+started.Job+`"}`), `"state":"running"`)
	two.ask(t, fleetAda, "cancelJob", `{"job":"`+started.Job+`"}`)
	kit.Eventually(t, "the job is cancelled", func() bool {
		return strings.Contains(two.ask(t, fleetAda, "showJob", `{"job":"`+started.Job+`"}`), `"state":"cancelled"`)
	})
}

// A hub that does not answer is named wherever its calls are missing, and within the time that people wait.
func TestAHubThatDoesNotAnswerIsNamed(t *testing.T) {
	one, two, _ := openFleet(t)
	for _, name := range []string{"issueToken", "console.link", "approveCall", "reload"} {
		for _, a := range two.Fleet().AskHubs(t.Context(), fleet.Question{Tool: name, Args: []byte(`{}`), Caller: "owner", Operator: true}) {
			kit.Refused(t, a.Err, tool.CodeAccessDenied, "no node runs", name)
		}
	}
	calls, load := two.follow(t, "watchCalls", `{}`), two.follow(t, "watchLoad", `{"interval_ms":200}`)
	nodes := two.ask(t, fleetOwner, "listNodes", `{}`)
	kit.Contains(t, nodes, `"drift":["config.limits.recent"]`)
	kit.Contains(t, nodes, `"load":0`)
	one.cancel()
	one.stop()
	calls(`"hub":"one"`, `"silent":true`, "its calls are missing here")
	load(`"missing":["one"]`)
	two.says(t, fleetOwner, "listCalls", `{}`, `"missing":["one"]`)
	kit.Contains(t, two.ask(t, fleetOwner, "listNodes", `{}`), `"state":"gone"`)
}

// An order to drain does what a signal does: the hub is not ready and takes no calls, ends those that run, hands its jobs back,
// and ends.
func TestADrainedHubEndsAsASignalEndsIt(t *testing.T) {
	for how, drain := range map[string]func(of, by fleetHub){
		"order":  func(of, by fleetHub) { by.ask(t, fleetOwner, "drainNode", `{"node":"`+of.name+`"}`) },
		"signal": func(of, _ fleetHub) { of.cancel() },
	} {
		t.Run(how, func(t *testing.T) {
			one, two, g := openFleet(t)
			started := struct{ Job string }{}
			kit.OK(t, json.Unmarshal([]byte(one.ask(t, fleetAda, "startJob", `{"tool":"hang","arguments":{"a":"job"}}`)), &started))
			kit.Equal(t, kit.Receive(t, "the job runs", g.began), "job")
			if strings.Contains(one.ask(t, fleetOwner, "listCalls", `{}`), `"hub":"two"`) { // it took the job
				one, two = two, one
			}
			answer := make(chan string, 1)
			go func() { answer <- one.http(t, http.MethodPost, "/v1/tools/hang/call", `{"a":"call"}`) }()
			kit.Equal(t, kit.Receive(t, "the call runs", g.began), "call")
			kit.Contains(t, one.http(t, http.MethodGet, "/readyz", ""), "200")
			drain(one, two)
			kit.Eventually(t, "the hub is not ready", func() bool { return strings.HasPrefix(one.http(t, http.MethodGet, "/readyz", ""), "503 1 ") })
			kit.Contains(t, one.http(t, http.MethodPost, "/v1/tools/hang/call", `{}`), "503 1 ")
			kit.Eventually(t, "the other hub sees that it drains", func() bool {
				return strings.Contains(two.ask(t, fleetOwner, "listNodes", `{}`), `"state":"draining"`)
			})
			close(g.open["call"])
			kit.Contains(t, kit.Receive(t, "the call ends", answer), `"through 0af76519-16cd-43dd-8448-eb211c80319c `+fleetSpan+`"`)
			one.stop()
			kit.Equal(t, kit.Receive(t, "the job runs again", g.began), "job")
			close(g.open["job"])
			kit.Eventually(t, "the job is done", func() bool {
				return strings.Contains(two.ask(t, fleetAda, "showJob", `{"job":"`+started.Job+`"}`), `"state":"done"`)
			})
		})
	}
}

// http sends a request, and returns the status, the header Retry-After and the body of the answer.
func (h fleetHub) http(t *testing.T, method, path, body string) string {
	req := kit.Must(http.NewRequestWithContext(t.Context(), method, *h.url+path, strings.NewReader(body)))(t)
	req.Header.Set("Authorization", "Bearer "+envelopeToken)
	req.Header.Set("Traceparent", "00-"+fleetTrace+"-"+fleetSpan+"-01")
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return fmt.Sprintf("%d %s %s", resp.StatusCode, resp.Header.Get("Retry-After"), b)
}

// A machine that is a worker is refused as a hub before it opens the journal, which the worker may be using.
func TestWorkerIsNotStartedAsAHub(t *testing.T) {
	cfg := parse(t, t.TempDir(), "sources: []\ndoors: {http: {listen: '127.0.0.1:0'}}\n")
	pass := fleetmembership.Pass{ID: "0011223344556677", Name: "drill", Role: fleetmember.Worker}
	var err error
	pass.Seed, _, err = fleetmembership.NewKey()
	kit.OK(t, err)
	kit.OK(t, pass.Save(cfg.StateDir()))
	n := open(t, cfg, node.Options{})
	kit.Refused(t, n.Serve(t.Context()), tool.CodeConflict, "this machine is a worker of its fleet; start it with `toolpost worker`")
	_, err = os.Stat(filepath.Join(cfg.StateDir(), "journal.db"))
	kit.Equal(t, errors.Is(err, os.ErrNotExist), true, err)
	shut(t, n)
}
