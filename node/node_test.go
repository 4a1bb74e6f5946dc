package node_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"toolpost/config"
	"toolpost/config/offlimits"
	"toolpost/host/sandbox"
	"toolpost/internal/kit"
	"toolpost/node"
	"toolpost/tool"
)

func TestMain(m *testing.M) {
	if sandbox.Main() {
		return
	}
	goleak.VerifyTestMain(m)
}

// A fake is a protocol whose sources behave as the test says. Each has one tool with the name of its source.
type fake struct {
	open func(ctx context.Context, src config.Source) error // nil opens at once

	more    atomic.Pointer[string] // another tool that each has; nil if there is none
	changes tool.Changes           // of more

	mu     sync.Mutex
	opened map[string]int
	closed map[string]int
}

func newFake() *fake { return &fake{opened: map[string]int{}, closed: map[string]int{}} }

func (f *fake) protocol() []node.Protocol {
	return []node.Protocol{{Name: "fake", Open: f.Open}}
}

func (f *fake) Open(ctx context.Context, src config.Source, _ *slog.Logger) (tool.Runner, error) {
	if f.open != nil {
		if err := f.open(ctx, src); err != nil {
			return nil, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.opened[src.Name]++
	return &runner{f, src}, nil
}

func (f *fake) count(m map[string]int, name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return m[name]
}

type runner struct {
	f   *fake
	src config.Source
}

func (r *runner) Tools(context.Context) ([]*tool.Spec, error) {
	if more := r.f.more.Load(); more != nil {
		return []*tool.Spec{{Name: r.src.Name}, {Name: *more}}, nil
	}
	return []*tool.Spec{{Name: r.src.Name}}, nil
}

func (r *runner) Changed() <-chan struct{} { return r.f.changes.Changed() }

func (r *runner) Invoke(ctx context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
	if r.f.count(r.f.closed, r.src.Name) >= r.f.count(r.f.opened, r.src.Name) {
		return nil, errors.New("called after it was closed")
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(time.Millisecond):
	}
	return &tool.Result{OK: true, Output: c.Args}, nil
}

func (r *runner) Close(context.Context) error {
	r.f.mu.Lock()
	defer r.f.mu.Unlock()
	r.f.closed[r.src.Name]++
	return nil
}

func parse(t *testing.T, dir, text string) *config.Config {
	t.Helper()
	return kit.Must(config.Parse(filepath.Join(dir, "toolpost.yaml"), []byte(text)))(t)
}

func open(t *testing.T, cfg *config.Config, o node.Options) *node.Node {
	t.Helper()
	return kit.Must(node.Open(t.Context(), cfg, o))(t)
}

func shut(t *testing.T, n *node.Node) {
	t.Helper()
	kit.Check(t, n.Close(kit.Context(t)))
}

func call(n *node.Node, name string) error {
	_, err := n.Handler().Invoke(context.Background(), &tool.Call{Tool: name, Args: json.RawMessage(`{}`)}, tool.Discard)
	return err
}

func TestChangedToolListKeepsTheRunner(t *testing.T) {
	f := newFake()
	n := open(t, parse(t, t.TempDir(), "sources: [{name: one, protocol: fake}]"), node.Options{Protocols: f.protocol()})
	defer shut(t, n)
	changed := tool.Changed(n.Catalog())
	more := "more"
	f.more.Store(&more)
	f.changes.Tell()
	<-changed
	kit.Check(t, errors.Join(call(n, "one"), call(n, "more")))
	if opened, closed := f.count(f.opened, "one"), f.count(f.closed, "one"); opened != 1 || closed != 0 {
		t.Errorf("opened %d times, closed %d times", opened, closed)
	}
}

func TestDeadSourceIsRetriedAndOthersStayAvailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		var tries []time.Duration
		start := time.Now()
		f.open = func(_ context.Context, src config.Source) error {
			if src.Name != "dead" {
				return nil
			}
			if tries = append(tries, time.Since(start)); len(tries) < 8 {
				return tool.Errorf(tool.CodeUnavailable, "it sleeps")
			}
			return nil
		}
		n := open(t, parse(t, t.TempDir(), "sources: [{name: dead, protocol: fake}, {name: live, protocol: fake}]"), node.Options{Protocols: f.protocol()})
		defer shut(t, n)
		kit.Check(t, call(n, "live"))
		kit.Fails(t, call(n, "dead"), "", "the dead source answered")
		if s := n.Sources(); s[0].Err == nil || s[1].Err != nil {
			t.Errorf("%+v", s)
		}
		time.Sleep(5 * time.Minute)
		kit.Check(t, call(n, "dead"))
		want := []time.Duration{0, 1, 3, 7, 15, 31, 61, 91} // seconds: waits double from 1 s up to 30 s
		for i := range want {
			if i >= len(tries) || tries[i] != want[i]*time.Second {
				t.Fatalf("tried at %v, want %v s", tries, want)
			}
		}
	})
}

func TestImpatientCallDoesNotAbortOpeningASource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.open = func(ctx context.Context, _ config.Source) error {
			select {
			case <-time.After(3 * time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		n := open(t, parse(t, t.TempDir(), "sources: [{name: slow, protocol: fake}]"),
			node.Options{Protocols: f.protocol(), Lazy: true})
		defer shut(t, n)
		hasty, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		kit.Fails(t, kit.Err(n.Handler().Invoke(hasty, &tool.Call{Tool: "slow"}, tool.Discard)),
			"", "who did not wait got an answer")
		kit.Check(t, call(n, "slow"), "who waits")
	})
}

// A source has the timeout of its protocol. A server does not wait that long, neither for its doors nor for the tools of
// other sources: the source is opened in the background, once, and announced when it is open.
func TestASourceHasTheTimeOfItsProtocol(t *testing.T) {
	for name, o := range map[string]node.Options{"a command": {Lazy: true}, "a check": {}, "a server": {Early: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				f.open = func(ctx context.Context, s config.Source) error {
					select {
					case <-time.After(map[string]time.Duration{"slow": 25 * time.Second, "quick": time.Second / 2}[s.Name]):
						return nil
					case <-ctx.Done():
						return ctx.Err()
					}
				}
				var log bytes.Buffer
				o.Protocols, o.Log = f.protocol(), slog.New(slog.NewTextHandler(&log, nil))
				o.Protocols[0].Opens = func(config.Source) time.Duration { return 40 * time.Second }
				start, more := time.Now(), "denied"
				f.more.Store(&more)
				dir, sources := t.TempDir(), "policy: {rules: [{name: no, effect: deny, tools: denied}]}\n"+
					"sources: [{name: slow, protocol: fake}, {name: quick, protocol: fake}"
				n := open(t, parse(t, dir, sources+"]"), o)
				defer func() {
					shut(t, n)
					if o.Early {
						kit.Contains(t, log.String(), `"a source was opened after the start" source=slow tools=1`)
					}
				}()
				if o.Early {
					checkEarly(t, n, start, parse(t, dir, sources+", {name: new, protocol: fake}]"))
				}
				if err := call(n, "slow"); err != nil || f.count(f.opened, "slow") != 1 {
					t.Errorf("it was opened %d times, and a call gives %v", f.count(f.opened, "slow"), err)
				}
			})
		})
	}
}

func checkEarly(t *testing.T, n *node.Node, start time.Time, more *config.Config) {
	t.Helper()
	changed := tool.Changed(n.Catalog())
	var names []string
	for spec := range n.Catalog().Specs(t.Context(), tool.Principal{}) {
		names = append(names, spec.Name)
	}
	if err := call(n, "quick"); time.Since(start) > 2*time.Second || strings.Join(names, " ") != "quick" || err != nil {
		t.Errorf("after %v there is %q, and a call gives %v", time.Since(start), names, err)
	}
	if s := n.Sources()[0]; !s.Opening || s.Err == nil {
		t.Errorf("the source that is being opened: %+v", s)
	}
	kit.Equal(t, strings.Join(n.Opening(), " "), "slow", "sources that are being opened")
	hasty, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := n.Handler().Invoke(hasty, &tool.Call{Tool: "slow"}, tool.Discard)
	kit.Refused(t, err, tool.CodeUnavailable, "a source that may have it is still opening", "a call that waited as long as its caller wants")
	n.Reload(t.Context(), more)
	<-changed // of the reload
	changed = tool.Changed(n.Catalog())
	kit.Check(t, call(n, "new"))
	<-changed
	kit.Equal(t, time.Since(start), 25*time.Second, "its tools were told of after")
}

func TestSourcesOpenAtOnceAndNoneTakesLongerThanItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		release := make(chan struct{})
		f.open = func(_ context.Context, src config.Source) error {
			switch src.Name {
			case "slow1", "slow2":
				time.Sleep(4 * time.Second)
			case "stuck": // ignores even its context
				<-release
			}
			return nil
		}
		start := time.Now()
		n := open(t, parse(t, t.TempDir(), "sources: [{name: slow1, protocol: fake}, {name: stuck, protocol: fake}, {name: slow2, protocol: fake}]"), node.Options{Protocols: f.protocol()})
		kit.Equal(t, time.Since(start), 10*time.Second, "opening takes the 10 s of the one that is stuck")
		if s := n.Sources(); s[1].Err == nil || !strings.Contains(s[1].Err.Error(), "did not open within 10s") {
			t.Errorf("%+v", s[1])
		}
		close(release)
		synctest.Wait()
		kit.Equal(t, f.count(f.closed, "stuck"), 1, "what opened too late was not closed")
		shut(t, n)
		for name, opened := range f.opened {
			if f.closed[name] != opened {
				t.Errorf("%s: opened %d times, closed %d times", name, opened, f.closed[name])
			}
		}
	})
}

func TestCloseDoesNotWaitForRetries(t *testing.T) {
	for name, at := range map[string]time.Duration{"while it waits": 500 * time.Millisecond, "while it tries": 2 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				f.open = func(ctx context.Context, _ config.Source) error {
					<-ctx.Done()
					return ctx.Err()
				}
				n := open(t, parse(t, t.TempDir(), "sources: [{name: dead, protocol: fake}]"), node.Options{Protocols: f.protocol()})
				time.Sleep(at)
				start := time.Now()
				shut(t, n)
				if took := time.Since(start); took > 0 {
					t.Errorf("took %v", took)
				}
				n.Reload(t.Context(), parse(t, t.TempDir(), "sources: [{name: late, protocol: fake}]"))
				if s := n.Sources(); s[0].Name != "dead" {
					t.Errorf("a closed node was reloaded: %+v", s)
				}
			})
		})
	}
}

func TestReloadKeepsWhatDidNotChange(t *testing.T) {
	f := newFake()
	dir := t.TempDir()
	n := open(t, parse(t, dir, "sources: [{name: same, protocol: fake}, {name: other, protocol: fake, x: 1}, {name: gone, protocol: fake}]"), node.Options{Protocols: f.protocol()})
	n.Reload(t.Context(), parse(t, dir, "sources:\n- {name: new, protocol: fake}\n- {protocol: fake, name: same} # moved\n- {name: other, protocol: fake, x: 2}\n"))
	n.Reload(t.Context(), parse(t, dir, "sources:\n- {name: new, protocol: fake}\n- {name: other, protocol: fake, x: 2}\n- {protocol: fake, name: same}\n"))
	kit.Refused(t, call(n, "gone"), tool.CodeNotFound, "", "gone")
	for _, name := range []string{"new", "same", "other"} {
		kit.Check(t, call(n, name))
	}
	shut(t, n)
	for name, want := range map[string]int{"same": 2, "other": 2, "gone": 1, "new": 1} {
		if f.opened[name] != want || f.closed[name] != want {
			t.Errorf("%s: opened %d times and closed %d times, want %d", name, f.opened[name], f.closed[name], want)
		}
	}
}

// A source that cannot be read keeps its claim on its files: what is off limits for the others does not change.
func TestTypoInOneSourceReopensNoOther(t *testing.T) {
	f := newFake()
	protocols, dir := f.protocol(), t.TempDir()
	protocols[0].Claim = func(s config.Source) (offlimits.Claim, error) {
		return offlimits.Claim{Starts: []string{filepath.Join(s.Dir, s.Name)}, Stays: true}, nil
	}
	const text = "sources: [{name: same, protocol: fake}, {name: other, protocol: fake}]"
	n := open(t, parse(t, dir, text), node.Options{Protocols: protocols})
	n.Reload(t.Context(), parse(t, dir, strings.Replace(text, "other, protocol: fake", "other, protocol: fke", 1)))
	if s := n.Sources(); s[1].Err == nil || !strings.Contains(s[1].Err.Error(), `did you mean "fake"?`) {
		t.Errorf("%+v", s[1])
	}
	n.Reload(t.Context(), parse(t, dir, text))
	shut(t, n)
	if f.opened["same"] != 1 || f.opened["other"] != 2 {
		t.Errorf("opened %v", f.opened)
	}
}

func TestReloadUnderLoadDropsNoCall(t *testing.T) {
	f := newFake()
	dir := t.TempDir()
	text := func(i int) string {
		return fmt.Sprintf("sources: [{name: steady, protocol: fake}, {name: moving, protocol: fake, version: %d}]", i)
	}
	n := open(t, parse(t, dir, text(0)), node.Options{Protocols: f.protocol()})
	defer shut(t, n)
	var done atomic.Bool
	var calls atomic.Int64
	var load sync.WaitGroup
	for i := range 8 {
		name := []string{"steady", "moving"}[i%2]
		load.Go(func() {
			for !done.Load() {
				if err := call(n, name); err != nil {
					t.Errorf("%s: %v", name, err)
					return
				}
				calls.Add(1)
			}
		})
	}
	defer func() { done.Store(true); load.Wait() }()
	kit.Eventually(t, "the first call", func() bool { return calls.Load() > 0 || t.Failed() })
	for i := range 50 {
		n.Reload(t.Context(), parse(t, dir, text(i+1)))
	}
	done.Store(true)
	load.Wait()
	if f.count(f.opened, "steady") != 1 || f.count(f.opened, "moving") != 51 {
		t.Errorf("opened: %v", f.opened)
	}
}

func TestTheConfigIsWatched(t *testing.T) {
	f := newFake()
	path := filepath.Join(t.TempDir(), "toolpost.yaml")
	write := func(text string) {
		t.Helper()
		// As editors do it: a new file replaces the old one.
		kit.OK(t, errors.Join(os.WriteFile(path+".new", []byte(text), 0o600), os.Rename(path+".new", path)))
	}
	write("sources: [{name: one, protocol: fake}]")
	cfg := kit.Must(config.Load(path))(t)
	logged := &kit.Buffer{}
	n := open(t, cfg, node.Options{Protocols: f.protocol(), Log: slog.New(slog.NewTextHandler(logged, nil))})
	defer shut(t, n)
	ctx, cancel := context.WithCancel(t.Context())
	hup := make(chan os.Signal, 1)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() { n.Watch(ctx, hup) })
	kit.Eventually(t, "the reload", func() bool {
		write("sources: [{name: two, protocol: fake}]") // repeatedly: the watch may not have begun
		time.Sleep(300 * time.Millisecond)
		return call(n, "two") == nil
	})
	write("sources: [")
	kit.Eventually(t, "the complaint", func() bool { return strings.Contains(logged.String(), "was not reloaded") })
	kit.Check(t, call(n, "two"), "a broken config took the good one away")
	for _, text := range []string{"", " \n\t\n"} { // like a file that is being saved in place
		before := strings.Count(logged.String(), "toolpost.yaml is empty")
		write(text)
		kit.Eventually(t, "the complaint", func() bool {
			return strings.Count(logged.String(), "toolpost.yaml is empty") > before
		})
		kit.Check(t, call(n, "two"), "%q took the config away", text)
	}
	write("sources: [{name: three, protocol: fake}]\nlimits: {timeout: 1s}")
	hup <- syscall.SIGHUP
	kit.Eventually(t, "the reload by SIGHUP", func() bool { return call(n, "three") == nil })
	kit.Eventually(t, "the hint", func() bool { return strings.Contains(logged.String(), "restart to apply") })
	// A config that other users could have written is not loaded, even on request.
	kit.OK(t, os.Chmod(filepath.Dir(path), 0o777))
	write("sources: [{name: four, protocol: fake}]")
	hup <- syscall.SIGHUP
	kit.Eventually(t, "the refusal", func() bool { return strings.Contains(logged.String(), "could have been written by someone else") })
	if !strings.Contains(logged.String(), "mode 0777") || !strings.Contains(logged.String(), "chmod go-w") {
		t.Errorf("the log does not say why:\n%s", logged.String())
	}
	if call(n, "four") == nil || call(n, "three") != nil {
		t.Error("a config that anybody could have written was taken")
	}
}

func TestUnknownProtocolErrorListsTheKnownOnes(t *testing.T) {
	n := open(t, parse(t, t.TempDir(), "sources: [{name: a, protocol: narratorai}, {name: b, protocol: telepathy}]"), node.Options{})
	defer shut(t, n)
	s := n.Sources()
	if !strings.Contains(s[0].Err.Error(), `did you mean "narratoria"?`) || !strings.Contains(s[1].Err.Error(), "this build speaks builtin, namel3ss, narratoria") {
		t.Errorf("%v\n%v", s[0].Err, s[1].Err)
	}
}

func TestWithoutADoorThereIsNothingToServe(t *testing.T) {
	n := open(t, parse(t, t.TempDir(), "doors: {}"), node.Options{})
	defer shut(t, n)
	kit.Refused(t, n.Serve(t.Context()), tool.CodeInvalidInput, "")
}

func TestServeOpensTheDoorAndEndsInPeace(t *testing.T) {
	f := newFake()
	ready := make(chan node.Listening, 8)
	dir := t.TempDir()
	n := open(t, parse(t, dir, "sources: [{name: tool, protocol: fake}]"), node.Options{
		Protocols: f.protocol(), Listen: "127.0.0.1:0", Ready: func(l node.Listening) { ready <- l },
	})
	defer shut(t, n)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- n.Serve(ctx) }()
	l := <-ready
	remote := kit.Must(node.Dial(l.URL, l.Token, ""))(t)
	r, err := remote.Invoke(t.Context(), &tool.Call{Tool: "tool", Args: json.RawMessage(`{"a":1}`)}, tool.Discard)
	if err != nil || string(r.Output) != `{"a":1}` {
		t.Errorf("%v, %v", r, err)
	}
	cancel()
	kit.Check(t, <-served)
	kit.Equal(t, kit.Must(os.Stat(filepath.Join(dir, ".toolpost")))(t).Mode().Perm(), 0o700, "the state folder")
}

func TestTheSchemaNamesEveryProtocol(t *testing.T) {
	b := kit.Must(node.Schema())(t)
	for _, p := range node.Protocols() {
		kit.Contains(t, string(b), fmt.Sprintf(`"const": %q`, p.Name), "%s is missing", p.Name)
	}
}
