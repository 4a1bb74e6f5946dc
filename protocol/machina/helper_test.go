package machina_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	builtin "toolpost/builtin/lease"
	"toolpost/engine/idempotency"
	"toolpost/engine/lease"
	"toolpost/host/sandbox"
	"toolpost/protocol/machina"
	"toolpost/store"
	"toolpost/store/sqlite"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// helper makes this test program one of our toolhosts. The value is the folder of its store.
const helper = "TOOLPOST_TEST_TOOLHOST"

func TestMain(m *testing.M) {
	if sandbox.Main() {
		return
	}
	if dir := os.Getenv(helper); dir != "" {
		os.Exit(toolhost(os.Args[1:], dir))
	}
	os.Exit(m.Run())
}

// toolhost runs a Door for a command line.
func toolhost(args []string, dir string) int {
	mode, source, aid, err := machina.ParseArgs(args)
	if err == nil {
		db, failed := sqlite.Open(filepath.Join(dir, "store.db"), store.Options{})
		if failed != nil {
			fmt.Fprintln(os.Stderr, failed)
			return 1
		}
		defer db.Close()
		s := newStack(db.Leases(), machina.LeaseTier(mode, os.Getenv))
		d := &machina.Door{
			Mode: mode, Source: source, AID: aid, In: os.Stdin, Out: os.Stdout, Log: os.Stderr,
			Caller: tool.Principal{ID: "local", Door: "machina", Operates: true},
		}
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
		defer stop()
		err = d.Serve(ctx, s, s)
	}
	var exit *machina.ExitError
	switch {
	case errors.As(err, &exit):
		fmt.Fprintln(os.Stderr, err)
		return exit.ExitCode()
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// A stack is a small engine: it resolves names, remembers keys, requires leases and runs tools.
type stack struct {
	tooltest.Reference
	specs []*tool.Spec
	next  tool.Handler
	lease tool.Runner
	runs  int
}

// leases is what the stage and the tools need.
type leases interface {
	lease.Leases
	builtin.Leases
}

func newStack(leases leases, from int) *stack {
	s := &stack{specs: append(tooltest.Specs(),
		&tool.Spec{Name: "note", Source: "tooltest", Tier: 1, Description: "emits its arguments as a state patch and gives the state it saw"},
		&tool.Spec{Name: "shell", Source: "tooltest", Tier: 2, Effects: tool.Effects{Exec: true}},
		&tool.Spec{Name: "look", Source: "tooltest", Effects: tool.Effects{Reads: true, Idempotent: true}, Aliases: []string{"AID.EYE.LOOK.v2"}},
		&tool.Spec{Name: "code", Source: "tooltest", Description: "ends with an error of the code in args"},
		&tool.Spec{Name: "count", Source: "tooltest", Description: "counts its runs"},
		&tool.Spec{Name: "elsewhere", Source: "other"},
		&tool.Spec{Source: "dead"},
	)}
	s.lease = builtin.New(builtin.Options{Leases: leases, Resolve: func(ctx context.Context, p tool.Principal, name string) (string, int, error) {
		spec, err := s.Lookup(ctx, p, name)
		if err != nil {
			return "", 0, err
		}
		return spec.Ref().String(), machina.TierOf(spec), nil
	}})
	gate := lease.Stage{From: from, Consume: leases, Tiers: machina.TierOf}
	s.next = idempotency.New(idempotency.Options{}).For(nil)(tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
		if leased := gate.For(c.Spec); leased != nil {
			return leased(tool.HandlerFunc(s.run)).Invoke(ctx, c, out)
		}
		return s.run(ctx, c, out)
	}))
	return s
}

func (s *stack) Specs(context.Context, tool.Principal) iter.Seq2[*tool.Spec, error] {
	return func(yield func(*tool.Spec, error) bool) {
		for _, spec := range s.specs {
			var err error
			if spec.Name == "" {
				err = tool.Errorf(tool.CodeUnavailable, "it died")
			}
			if !yield(spec, err) {
				return
			}
		}
	}
}

func (s *stack) Lookup(_ context.Context, _ tool.Principal, name string) (*tool.Spec, error) {
	for _, spec := range s.specs {
		if name != "" && (spec.Name == name || slices.Contains(spec.Aliases, name)) {
			return spec, nil
		}
	}
	return nil, tool.Errorf(tool.CodeNotFound, "no tool is called %q", name)
}

func (s *stack) Invoke(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	if own, ok := strings.CutPrefix(c.Tool, "toolpost."); ok {
		about := *c
		about.Tool = own
		return s.lease.Invoke(ctx, &about, out)
	}
	spec, err := s.Lookup(ctx, c.Caller, c.Tool)
	if err != nil {
		return nil, err
	}
	found := *c
	found.Spec = spec
	return s.next.Invoke(ctx, &found, out)
}

func (s *stack) run(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	switch c.Tool {
	case "note":
		if err := out.Emit(tool.Event{Kind: tool.KindStatePatch, Data: c.Args}); err != nil {
			return nil, err
		}
		return &tool.Result{OK: true, Output: c.State}, nil
	case "code":
		return s.code(c)
	case "count":
		s.runs++
		return &tool.Result{OK: true, Output: fmt.Appendf(nil, `{"runs":%d}`, s.runs)}, nil
	case "shell", "look", "elsewhere":
		return &tool.Result{OK: true}, nil
	}
	return s.Reference.Invoke(ctx, c, out)
}

// code ends as its arguments demand.
func (s *stack) code(c *tool.Call) (*tool.Result, error) {
	var args struct {
		Code, Reason string
		Details      json.RawMessage
		Ask          bool
	}
	if err := json.Unmarshal(c.Args, &args); err != nil {
		return nil, err
	}
	if args.Ask {
		return &tool.Result{Ask: &tool.Ask{ID: "q", Message: "really?"}}, nil
	}
	return nil, &tool.Error{Code: tool.Code(args.Code), Reason: args.Reason, Message: "because", Details: args.Details}
}

// ours returns a runner of our own toolhost.
func ours(t testing.TB, o machina.Options) *machina.Runner {
	t.Helper()
	o.Command = []string{os.Args[0]}
	o.Plugin = "tooltest"
	o.Env = map[string]string{helper: t.TempDir(), "GORACE": "atexit_sleep_ms=0"}
	o.Dir = t.TempDir()
	if o.Timeout == 0 {
		o.Timeout = 60e9
	}
	return open(t, o)
}
