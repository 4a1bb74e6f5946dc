package idempotency_test

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"toolpost/engine/idempotency"
	"toolpost/engine/persist"
	"toolpost/host/secret"
	"toolpost/internal/kit"
	"toolpost/store"
	"toolpost/store/sqlite"
	"toolpost/tool"
)

var _ idempotency.Outcomes = (*store.OutcomeTable)(nil)

// shared is a memory of outcomes that the engines of several processes share.
type shared struct {
	mu     sync.Mutex
	claims map[[32]byte]*idempotency.Claim
	fail   error
	lost   time.Duration // how long a claim whose process is gone would count as lost
	away   int           // so often it cannot be reached to lose a claim
}

func (s *shared) Claim(_ context.Context, scope, input [32]byte, call string, ttl time.Duration) (idempotency.Claim, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = ttl
	if have := s.claims[scope]; have != nil {
		return *have, s.fail
	}
	if s.claims == nil {
		s.claims = map[[32]byte]*idempotency.Claim{}
	}
	s.claims[scope] = &idempotency.Claim{Input: input, Call: call}
	return idempotency.Claim{Mine: true, Input: input}, s.fail
}

func (s *shared) Settle(_ context.Context, scope [32]byte, result []byte, _ time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if result == nil {
		delete(s.claims, scope)
		return s.fail
	}
	s.claims[scope].Result = result
	return s.fail
}

func (s *shared) Lose(_ context.Context, scope [32]byte, _ time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away--; s.away >= 0 {
		return tool.Errorf(tool.CodeUnavailable, "away").Because(persist.Down)
	}
	s.claims[scope].Lost = true
	return s.fail
}

func (s *shared) Known(_ context.Context, scope [32]byte, _ time.Duration) (c idempotency.Claim, known bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if have := s.claims[scope]; have != nil {
		return *have, true, s.fail
	}
	return c, false, s.fail
}

func (s *shared) Take(_ context.Context, scope [32]byte, from idempotency.Claim, call string, _ time.Duration) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.claims[scope]
	if c == nil || c.Call != from.Call || c.At != from.At {
		return false, s.fail
	}
	*c = idempotency.Claim{Input: c.Input, Call: call, At: c.At + 1}
	return true, s.fail
}

func (s *shared) Reach(context.Context) (time.Duration, error) { return idempotency.LostFor, s.fail }

func (s *shared) Hold(_ context.Context, scope [32]byte, call string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.claims[scope]
	if c == nil || c.Call != call || c.Lost || c.Result != nil {
		return false, s.fail
	}
	c.At++
	return true, s.fail
}

// program returns the stage of a process that shares outcomes, and so the key.
func program(s idempotency.Outcomes) *idempotency.Calls {
	return idempotency.New(idempotency.Options{Outcomes: s, Digests: secret.NewKeyed(func() ([]byte, error) { return []byte("the same for all"), nil })})
}

func TestOutcomeIsReplayedByAnotherProcess(t *testing.T) {
	var runs atomic.Int64
	s := &shared{}
	for i, want := range []string{"1", "1", "1"} {
		h := program(s).For(nil)(counting(&runs)) // each time a new process
		out, hit, err := invoke(t, h, call("k", `{"a":1}`))
		if out != want || hit != (i > 0) || err != nil {
			t.Errorf("%d: %s, %v, %v", i, out, hit, err)
		}
	}
	h := program(s).For(nil)(counting(&runs))
	if _, _, err := invoke(t, h, call("k", `{"a":2}`)); tool.CodeOf(err) != tool.CodeConflict {
		t.Errorf("another input: %v", err)
	}
}

func TestContentIsReplayedByAnotherProcess(t *testing.T) {
	s := &shared{}
	gives := tool.HandlerFunc(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
		return &tool.Result{OK: true, Content: &tool.Content{Blocks: []json.RawMessage{json.RawMessage(`{"type":"chart"}`)}, Structured: true}}, nil
	})
	for range 2 {
		r, err := program(s).For(nil)(gives).Invoke(t.Context(), call("k", `{}`), tool.Discard)
		if err != nil || r.Content == nil || len(r.Content.Blocks) != 1 || string(r.Content.Blocks[0]) != `{"type":"chart"}` || !r.Content.Structured {
			t.Errorf("%+v, %v", r, err)
		}
	}
}

func TestDuplicateInAnotherProcessWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int64
		s := &shared{}
		slow := tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
			time.Sleep(time.Second)
			return counting(&runs).Invoke(ctx, c, out)
		})
		var wg sync.WaitGroup
		for range 8 {
			h := program(s).For(nil)(slow)
			wg.Go(func() {
				if out, _, err := invoke(t, h, call("k", `{}`)); out != "1" || err != nil {
					t.Errorf("%s, %v", out, err)
				}
			})
		}
		wg.Wait()
		for _, c := range s.claims { // as if it still ran
			c.Result = nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := program(s).For(nil)(slow).Invoke(ctx, call("k", `{}`), tool.Discard); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("who waits can stop waiting: %v", err)
		}
	})
}

func TestACallThatWasInterruptedIsNotRunAgain(t *testing.T) {
	var runs atomic.Int64
	s := &shared{}
	if _, _, err := invoke(t, program(s).For(nil)(counting(&runs)), call("k", `{}`)); err != nil {
		t.Fatal(err)
	}
	for _, c := range s.claims { // as if its process had ended before it did
		c.Result, c.Lost = nil, true
	}
	_, _, err := invoke(t, program(s).For(nil)(counting(&runs)), call("k", `{}`))
	if e := tool.AsError(err); runs.Load() != 1 || e == nil || e.Code != tool.CodeConflict || e.Reason != idempotency.Unknown {
		t.Errorf("%d runs, %v", runs.Load(), err)
	}
	kit.Equal(t, s.lost, 24*time.Hour, "its worker may run it still, and knows of it for a day")
}

// A call of which this machine has lost sight is not run again: another machine may know what became of it.
func TestACallInDoubtIsNotRunAgain(t *testing.T) {
	for what, c := range map[string]struct {
		late idempotency.Late
		want tool.Code
	}{
		"nobody knows": {nil, tool.CodeConflict},
		"nobody there": {func(context.Context, idempotency.First, *tool.Call) (*tool.Result, bool, error) {
			return nil, false, nil
		}, tool.CodeConflict},
		"it failed": {func(context.Context, idempotency.First, *tool.Call) (*tool.Result, bool, error) {
			return nil, false, tool.Errorf(tool.CodeCrash, "x")
		}, tool.CodeCrash},
		"it ran": {func(_ context.Context, first idempotency.First, _ *tool.Call) (*tool.Result, bool, error) {
			return &tool.Result{OK: true, Output: []byte(`"` + first.Call + " " + first.Digest + `"`)}, false, nil
		}, ""},
	} {
		var runs atomic.Int64
		stage := idempotency.New(idempotency.Options{Outcomes: &shared{}, Late: c.late}).For(nil)(tool.HandlerFunc(
			func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
				runs.Add(1)
				return nil, tool.Doubt(tool.Errorf(tool.CodeUnavailable, "the node is gone"))
			}))
		first := call("k", `{}`)
		first.ID, first.Spec.Digest = "first", "d"
		kit.Refused(t, kit.Err(stage.Invoke(t.Context(), first, tool.Discard)), tool.CodeUnavailable, "the node is gone", what)
		for range 2 {
			again := call("k", `{}`) // the shares have changed since
			again.Spec.Digest = "e"
			r, err := stage.Invoke(t.Context(), again, tool.Discard)
			kit.Equal(t, tool.CodeOf(err), c.want, what)
			if c.want == "" {
				kit.Equal(t, string(r.Output), `"first d"`, what)
				kit.Equal(t, r.Trace.Details[idempotency.Hit], any(true), what)
			}
		}
		kit.Equal(t, runs.Load(), 1, what)
	}
}

// A call that never began elsewhere, and never will, gives its key to the one that repeats it, also while its process may be back soon.
// That finds out before a machine begins it which joined later.
func TestACallThatNeverBeganRunsInItsPlace(t *testing.T) {
	for what, now := range map[string]idempotency.Claim{"its process is gone": {Lost: true}, "its process cannot be seen": {Away: true}} {
		s, never, asked := &shared{}, false, 0
		stage := func(run tool.HandlerFunc) tool.Handler {
			return idempotency.New(idempotency.Options{
				Outcomes: s, Digests: secret.NewKeyed(func() ([]byte, error) { return make([]byte, 32), nil }),
				Late: func(_ context.Context, first idempotency.First, _ *tool.Call) (*tool.Result, bool, error) {
					kit.DeepEqual(t, first, idempotency.First{Call: "first", Digest: "d"}, what)
					if asked++; asked > 1 {
						never = true
					}
					return nil, never, nil
				},
			}).For(nil)(run)
		}
		c := func(id string) *tool.Call {
			c := call("k", `{}`)
			c.ID, c.Spec = id, &tool.Spec{Name: "add", Source: "one", Elsewhere: tool.Elsewhere{Digest: "d"}}
			return c
		}
		var runs atomic.Int64
		first := c("first")
		err := kit.Err(stage(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
			kit.OK(t, first.Holds())
			for _, claim := range s.claims {
				claim.Lost, claim.Away = now.Lost, now.Away
			}
			other := stage(counting(&runs).Invoke)
			if now.Lost {
				kit.Refused(t, kit.Err(other.Invoke(t.Context(), c("second"), tool.Discard)), tool.CodeConflict, "its outcome is unknown", what)
			}
			kit.Equal(t, string(kit.Must(other.Invoke(t.Context(), c("second"), tool.Discard))(t).Output), "1", what)
			return nil, first.Holds()
		}).Invoke(t.Context(), first, tool.Discard))
		kit.Refused(t, err, tool.CodeConflict, "another call has the idempotency key", what)
		kit.Equal(t, tool.NotRun(err), true, what)
		kit.Equal(t, asked, 2, what)
	}
}

// What ran in a process ends with it, and no other one is asked.
func TestACallOfThisMachineIsNotLookedForElsewhere(t *testing.T) {
	s := &shared{}
	o := idempotency.Options{Outcomes: s, Late: func(context.Context, idempotency.First, *tool.Call) (*tool.Result, bool, error) {
		return nil, true, nil
	}}
	h := idempotency.New(o).For(nil)(tool.HandlerFunc(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
		return nil, tool.Doubt(tool.Errorf(tool.CodeUnavailable, "the connection was lost"))
	}))
	for _, want := range []tool.Code{tool.CodeUnavailable, tool.CodeConflict} {
		_, _, err := invoke(t, h, call("k", `{}`))
		kit.Equal(t, tool.CodeOf(err), want)
	}
}

// A tool of our own whose write may be in the store is not run again, also if the store is still away when its call ends.
func TestACallWhoseWriteIsInDoubtIsNotRunAgain(t *testing.T) {
	var runs atomic.Int64
	s := &shared{away: 1}
	h := program(s).For(nil)(tool.HandlerFunc(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
		runs.Add(1)
		return nil, tool.Errorf(tool.CodeUnavailable, "the connection was lost").Because(persist.Unclear)
	}))
	for _, want := range []tool.Code{tool.CodeUnavailable, tool.CodeConflict, tool.CodeConflict} {
		_, _, err := invoke(t, h, call("k", `{}`))
		kit.Equal(t, tool.CodeOf(err), want, err)
	}
	kit.Equal(t, runs.Load(), 1)
}

// The store does not take the end of a call. Once it does, a repeat with the key learns what became of the call.
func TestRepeatLearnsOfACallThatEndedWithoutTheStore(t *testing.T) {
	for what, c := range map[string]struct {
		ends error
		want string
	}{"it ran": {nil, "1"}, "its worker was gone": {tool.Doubt(tool.Errorf(tool.CodeUnavailable, "gone")), `"of the journal"`}} {
		path := filepath.Join(t.TempDir(), "x.db")
		db := kit.Must(sqlite.Kind().Open(path, store.Options{}))(t)
		raw := kit.SQLite(t, path)
		o := idempotency.Options{Outcomes: db.Outcomes(), Late: func(context.Context, idempotency.First, *tool.Call) (*tool.Result, bool, error) {
			return &tool.Result{OK: true, Output: []byte(`"of the journal"`)}, false, nil
		}}
		stage := idempotency.New(o).For(nil)(tool.HandlerFunc(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
			kit.Must(raw.ExecContext(t.Context(), `ALTER TABLE outcome RENAME TO elsewhere`))(t)
			return &tool.Result{OK: true, Output: []byte(`1`)}, c.ends
		}))
		first, again := call("k", `{}`), call("k", `{}`)
		first.ID, again.ID = "first", "again"
		first.Spec.Digest, again.Spec.Digest = "d", "d"
		kit.Refused(t, kit.Err(stage.Invoke(t.Context(), first, tool.Discard)), tool.CodeUnavailable, "", what)
		kit.Must(raw.ExecContext(t.Context(), `ALTER TABLE elsewhere RENAME TO outcome`))(t)
		r := kit.Must(stage.Invoke(t.Context(), again, tool.Discard))(t) // without the repair it waits for ever
		kit.Equal(t, string(r.Output), c.want, what)
		kit.OK(t, db.Close())
	}
}

func TestUnstoredOutcomeIsAnError(t *testing.T) {
	var runs atomic.Int64
	s := &shared{}
	h := program(s).For(nil)(tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
		s.mu.Lock()
		s.fail = errors.New("no room")
		s.mu.Unlock()
		return counting(&runs).Invoke(ctx, c, out)
	}))
	if _, _, err := invoke(t, h, call("k", `{}`)); tool.CodeOf(err) != tool.CodeUnavailable {
		t.Error(err)
	}
	if _, _, err := invoke(t, h, call("k", `{}`)); err == nil || runs.Load() != 1 {
		t.Errorf("%d runs, %v", runs.Load(), err)
	}
}

// Inputs are often short: a reader of the store must not be able to guess them by trial.
func TestInputDigestsAreKeyed(t *testing.T) {
	seen := &digests{}
	for range 2 {
		for _, key := range []string{"one", "other"} {
			h := idempotency.New(idempotency.Options{Outcomes: seen, Digests: secret.NewKeyed(func() ([]byte, error) { return []byte(key), nil })})
			kit.Must(h.For(nil)(counting(new(atomic.Int64))).Invoke(t.Context(), call("k", `{"pin":"1234"}`), tool.Discard))(t)
		}
	}
	if a := *seen; len(a) != 4 || a[0] != a[2] || a[1] != a[3] || a[0][0] == a[1][0] || a[0][1] == a[1][1] {
		t.Errorf("one key gives the same each time, and another gives others: %x", a)
	}
	broken := idempotency.New(idempotency.Options{Outcomes: seen, Digests: secret.NewKeyed(func() ([]byte, error) { return nil, errors.New("no key") })})
	if _, err := broken.For(nil)(counting(new(atomic.Int64))).Invoke(t.Context(), call("k", `{}`), tool.Discard); err == nil || len(*seen) != 4 {
		t.Errorf("without a key: %v", err)
	}
}

// digests records the scopes and inputs that are claimed.
type digests [][2][32]byte

func (d *digests) Claim(_ context.Context, scope, input [32]byte, _ string, _ time.Duration) (idempotency.Claim, error) {
	*d = append(*d, [2][32]byte{scope, input})
	return idempotency.Claim{Mine: true}, nil
}

func (d *digests) Settle(context.Context, [32]byte, []byte, time.Duration) error { return nil }

func (d *digests) Known(context.Context, [32]byte, time.Duration) (c idempotency.Claim, known bool, err error) {
	return c, false, nil
}

func (d *digests) Take(context.Context, [32]byte, idempotency.Claim, string, time.Duration) (bool, error) {
	return false, nil
}

func (d *digests) Hold(context.Context, [32]byte, string) (bool, error) { return false, nil }

func (d *digests) Lose(context.Context, [32]byte, time.Duration) error { return nil }

func (d *digests) Reach(context.Context) (time.Duration, error) { return 0, nil }

// A claim of an earlier version has no definition, and an earlier version asks for no call by a claim of this one.
func TestClaimSaysByWhichDefinitionACallRan(t *testing.T) {
	for named, want := range map[string]idempotency.First{
		"#d#c1": {Call: "c1", Digest: "d"}, "#d#c#1@x": {Call: "c#1@x", Digest: "d"}, "@c1": {Call: "c1"},
		"@#d#1": {Call: "#d#1"}, "": {}, "c1": {},
	} {
		var got idempotency.First
		s := &shared{}
		late := func(_ context.Context, f idempotency.First, _ *tool.Call) (*tool.Result, bool, error) {
			got = f
			return nil, false, nil
		}
		stage := idempotency.New(idempotency.Options{Outcomes: s, Late: late}).For(nil)(tool.HandlerFunc(func(context.Context, *tool.Call, tool.Sink) (*tool.Result, error) {
			return nil, tool.Doubt(tool.Errorf(tool.CodeUnavailable, "gone"))
		}))
		first := func() error { return kit.Err(stage.Invoke(t.Context(), call("k", `{}`), tool.Discard)) }
		kit.Refused(t, first(), tool.CodeUnavailable, "gone", named)
		for _, claim := range s.claims {
			claim.Call = named
		}
		kit.Refused(t, first(), tool.CodeConflict, "its outcome is unknown", named)
		kit.DeepEqual(t, got, want, named)
	}
}
