package fleet

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"toolpost/engine/member"
	"toolpost/fleet/certs"
	"toolpost/fleet/invite"
	"toolpost/fleet/membership"
	"toolpost/internal/kit"
	"toolpost/store"
	"toolpost/store/sqlite"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// A toolbox is a Machine with the tools of a handler, all of the source std.
type toolbox struct {
	tool.Handler
	specs []*tool.Spec
}

func reference(t testing.TB) *toolbox {
	return &toolbox{tooltest.Reference{}, kit.Must(tooltest.Reference{}.Tools(t.Context()))(t)}
}

func (b *toolbox) Offers(context.Context) (all []Offer) {
	for _, s := range b.specs {
		own := *s
		own.Source, own.Protocol = "std", "go"
		all = append(all, Offer{Spec: &own, Touches: own.Name == "touch"})
	}
	return all
}

func (b *toolbox) Touches(context.Context, *tool.Call) (tool.Touches, error) {
	return tool.Touches{Reads: []string{"/a"}, MayRead: []string{"/b"}}, nil
}

func (b *toolbox) Answer(_ context.Context, q Question, _ tool.Sink) ([]byte, error) {
	return q.Args, nil
}

func (b *toolbox) Invoke(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	own := *c
	own.Tool = strings.TrimPrefix(c.Tool, "std.")
	for _, s := range b.specs {
		if s.Name == own.Tool {
			own.Spec = s
		}
	}
	return b.Handler.Invoke(ctx, &own, out)
}

// A fleetTest is a hub, and workers that join it.
type fleetTest struct {
	t     testing.TB
	hub   *Node
	store *store.DB
	log   *slog.Logger
	with  func(*Env)            // changes what the next node is made of, if set
	ended atomic.Pointer[error] // why the last node was told to stop
	late  chan *tool.Record     // outcomes that came late
}

// open starts a hub with an SQLite store, and a log if one is given.
func open(t testing.TB, log ...*slog.Logger) *fleetTest {
	t.Helper()
	return openWith(t, certs.Files{}, log...)
}

// openWith starts a hub that has its certificate from files.
func openWith(t testing.TB, files certs.Files, log ...*slog.Logger) *fleetTest {
	t.Helper()
	db := kit.Must(sqlite.Kind().Open(filepath.Join(t.TempDir(), "fleet.db"), store.Options{Key: func() ([]byte, error) { return make([]byte, 32), nil }}))(t)
	t.Cleanup(func() { kit.OK(t, db.Close()) })
	f := &fleetTest{t: t, store: db, late: make(chan *tool.Record, 9), log: append(log, slog.New(slog.DiscardHandler))[0]}
	state := t.TempDir()
	pass := kit.Must(Found(t.Context(), db.Fleet(), "hub", state, Options{TLS: files, Advertise: "localhost"}))(t)
	if files != (certs.Files{}) {
		f.with = func(e *Env) { e.TLS, e.Advertise = files, "localhost" }
	}
	f.hub = f.start(pass, state, &toolbox{Handler: tooltest.Reference{}})
	return f
}

func (f *fleetTest) start(p *membership.Pass, state string, m Machine) *Node {
	f.t.Helper()
	env := Env{
		Options: Options{Listen: "127.0.0.1:0"}, Pass: p, State: state, Log: f.log, Machine: m, Register: f.store.Fleet(),
		Changed: func() {}, Stop: func(err error) { f.ended.Store(&err) },
		Late: func(_ context.Context, r *tool.Record) error { f.late <- r; return nil },
	}
	if f.with != nil {
		f.with(&env)
	}
	n := kit.Must(Start(f.t.Context(), env))(f.t)
	f.t.Cleanup(func() { n.Close(context.Background()) })
	return n
}

// invite makes the line of an invitation.
func (f *fleetTest) invite(role member.Role) string {
	f.t.Helper()
	return kit.Must(f.hub.Token(f.t.Context(), member.Ticket{Role: role, Uses: 1}, time.Hour))(f.t)
}

// join makes a member, which does not run.
func (f *fleetTest) join(name string, role member.Role) *membership.Pass {
	f.t.Helper()
	i := kit.Must(invite.Parse(f.invite(role)))(f.t)
	return kit.Must(Join(f.t.Context(), i, name, role))(f.t)
}

// work lets a worker join, and waits until the hub knows its tools.
func (f *fleetTest) work(name string, m Machine) *Node {
	f.t.Helper()
	p, state := f.join(name, member.Worker), f.t.TempDir()
	kit.OK(f.t, p.Save(state))
	n := f.start(p, state, m)
	kit.Eventually(f.t, "the hub knows the tools of "+name, func() bool { return f.has(name) })
	return n
}

// has reports whether the hub knows the tools of a worker.
func (f *fleetTest) has(name string) bool {
	f.hub.hub.mu.Lock()
	defer f.hub.hub.mu.Unlock()
	for _, p := range f.hub.hub.peers {
		if p.Name == name && p.listed == p.Digest {
			return !f.hub.hub.stale
		}
	}
	return false
}

// source returns the fleet's source std.
func (f *fleetTest) source() *Source {
	f.t.Helper()
	all := f.hub.Sources()
	if len(all) != 1 || all[0].Name != "std" {
		f.t.Fatalf("the sources are %v", all)
	}
	return all[0]
}

// A runner is a source whose calls get the spec that it lists.
type runner struct {
	*Source
	f *fleetTest
}

func (r runner) Specs(ctx context.Context, _ tool.Principal) iter.Seq2[*tool.Spec, error] {
	return func(yield func(*tool.Spec, error) bool) {
		specs, _ := r.Tools(ctx)
		for _, s := range specs {
			if !yield(s, nil) {
				return
			}
		}
	}
}

func TestACallOnAnotherNodeIsACall(t *testing.T) {
	tooltest.Run(t, tooltest.Subject{
		Died: tool.CodeCrash,
		New: func(t testing.TB) tool.Handler {
			f := open(t)
			f.work("worker", reference(t))
			return runner{f.source(), f}
		},
	})
}

// call makes a call of a tool of the fleet.
func (f *fleetTest) call(ctx context.Context, name, args string) (*tool.Result, error) {
	specs, _ := f.source().Tools(ctx)
	for _, s := range specs {
		if s.Name == name {
			return f.source().Invoke(ctx, &tool.Call{ID: tool.NewID(), Tool: name, Spec: s, Args: []byte(args)}, tool.Discard)
		}
	}
	return nil, errors.New("no such tool")
}

// A blocking is a machine with one tool that waits.
type blocking struct {
	toolbox
	began chan string
	leave chan struct{}
	name  string
}

func block(name string, effects tool.Effects) *blocking {
	b := &blocking{began: make(chan string, 99), leave: make(chan struct{}), name: name}
	b.specs = []*tool.Spec{{Name: "wait", Effects: effects}}
	b.Handler = tool.HandlerFunc(func(ctx context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
		b.began <- b.name
		select {
		case <-b.leave:
			return &tool.Result{OK: true, Output: []byte(`"` + b.name + `"`)}, nil
		case <-ctx.Done():
			return nil, tool.Ended(ctx)
		}
	})
	return b
}

func TestReadsOfAWorkerThatIsGoneRunElsewhere(t *testing.T) {
	f := open(t)
	one := block("one", tool.Effects{Reads: true})
	first := f.work("one", one)
	const calls = 40
	results := make(chan error, calls)
	for range calls {
		go func() {
			r, err := f.call(t.Context(), "wait", `{}`)
			if err == nil && string(r.Output) != `"two"` {
				err = errors.New(string(r.Output))
			}
			results <- err
		}()
	}
	for range calls {
		kit.Receive(t, "a call on the first worker", one.began)
	}
	two := block("two", tool.Effects{Reads: true})
	close(two.leave)
	f.work("two", two)
	first.Close(t.Context())
	for range calls {
		kit.OK(t, kit.Receive(t, "a result", results))
	}
}

func TestACallThatMayChangeSomethingIsNotRepeated(t *testing.T) {
	for what, effects := range map[string]tool.Effects{"writes": {Writes: true}, "nothing declared": {}} {
		f := open(t)
		one, two := block("one", effects), block("two", effects)
		first := f.work("one", one)
		outcome := make(chan error, 1)
		go func() { outcome <- kit.Err(f.call(t.Context(), "wait", `{}`)) }()
		kit.Receive(t, "the call on the first worker", one.began)
		close(two.leave)
		f.work("two", two)
		first.Close(t.Context())
		err := kit.Receive(t, "the outcome", outcome)
		kit.Refused(t, err, tool.CodeUnavailable, "whether the call had an effect is not known", what)
		kit.Equal(t, tool.NotRun(err), false, what)
		kit.Equal(t, len(two.began), 0, what)
		kit.Equal(t, string(kit.Must(f.call(t.Context(), "wait", `{}`))(t).Output), `"two"`, what)
	}
}

// A slow hub answers no question before it is asked no more, but reports an event.
type slow struct {
	toolbox
	ended chan error
}

func (s *slow) Answer(ctx context.Context, q Question, out tool.Sink) ([]byte, error) {
	err := out.Emit(tool.LogEvent("info", q.Caller))
	<-ctx.Done()
	s.ended <- err
	return nil, tool.Ended(ctx)
}

// People do not wait for a hub that does not answer, and what follows it ends with its follower.
func TestASlowHubIsNamedAndLeft(t *testing.T) {
	f, hub := open(t), &slow{toolbox{Handler: tooltest.Reference{}}, make(chan error, 9)}
	p := kit.Must(Join(t.Context(), kit.Must(invite.Parse(f.invite(member.Hub)))(t), "slow", member.Hub))(t)
	state := t.TempDir()
	kit.OK(t, p.Save(state))
	f.start(p, state, hub)
	kit.Eventually(t, "the hubs know each other", func() bool { return f.hub.hub.knows(p.ID) })
	began := time.Now()
	all := f.hub.AskHubs(t.Context(), Question{Caller: "ada"})
	if took := time.Since(began); took > 10*time.Second || len(all) != 1 || all[0].Node != "slow" || all[0].Err == nil { // 300 ms, and a busy machine
		t.Errorf("after %v: %+v", took, all)
	}
	kit.OK(t, kit.Receive(t, "the question ends", hub.ended))
	ctx, stop := context.WithCancel(t.Context())
	lines, ended := make(chan string, 9), make(chan bool)
	go func() {
		f.hub.FollowNodes(ctx, false, func(string) Question { return Question{Caller: "ada"} }, func(node string, ev tool.Event) error {
			lines <- node + " " + string(ev.Data)
			return nil
		}, func(string, bool) {})
		close(ended)
	}()
	kit.Equal(t, kit.Receive(t, "an event of the other hub", lines), `slow {"level":"info","message":"ada"}`)
	stop()
	kit.OK(t, kit.Receive(t, "the other hub is left", hub.ended))
	kit.Receive(t, "the follower ends", ended)
}
