package breaker

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/wire/bounded"
)

// A subject is a tool behind its breaker.
type subject struct {
	h      tool.Handler
	answer func(context.Context) (*tool.Result, error)
	runs   int
}

func newSubject(o Options) *subject {
	s := &subject{}
	s.h = o.For(&tool.Spec{Name: "greet"})(tool.HandlerFunc(func(
		ctx context.Context, _ *tool.Call, _ tool.Sink,
	) (*tool.Result, error) {
		s.runs++
		return s.answer(ctx)
	}))
	return s
}

func (s *subject) call() (*tool.Result, error) {
	return s.h.Invoke(context.Background(), &tool.Call{Tool: "greet"}, tool.Discard)
}

func fails(err error) func(context.Context) (*tool.Result, error) {
	return func(context.Context) (*tool.Result, error) { return nil, err }
}

func gives(r *tool.Result) func(context.Context) (*tool.Result, error) {
	return func(context.Context) (*tool.Result, error) { return r, nil }
}

// opened returns a subject whose breaker is open.
func opened(t *testing.T, o Options) *subject {
	t.Helper()
	s := newSubject(o)
	s.answer = fails(tool.Errorf(tool.CodeCrash, "exit status 7"))
	for range 5 {
		kit.Refused(t, kit.Err(s.call()), tool.CodeCrash, "", "the error of the tool is not passed on")
	}
	return s
}

func TestABrokenToolIsLeftAloneForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := opened(t, Options{})
		time.Sleep(10 * time.Second)
		_, err := s.call()
		kit.Equal(t, tool.NotRun(err), true, "a call that is refused has done nothing")
		e := tool.AsError(err)
		if e.Code != tool.CodeBreakerOpen || s.runs != 5 || e.Retry() != 20*time.Second {
			t.Fatalf("%v after %d runs, to be tried again in %v", err, s.runs, e.Retry())
		}
		for _, words := range []string{"greet failed 5 times in a row", "(last: crash)", "the next call is tried in 20s"} {
			kit.Contains(t, e.Message, words)
		}
		if strings.Contains(e.Message, "exit status 7") {
			t.Errorf("%q tells what another caller's call said", e.Message)
		}
		time.Sleep(20 * time.Second)
		s.answer = gives(&tool.Result{OK: true})
		for range 2 {
			kit.Check(t, kit.Err(s.call()), "after its time")
		}
	})
}

func TestFailedTrialReopensTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := opened(t, Options{Open: time.Minute})
		for range 3 {
			time.Sleep(time.Minute)
			kit.Refused(t, kit.Err(s.call()), tool.CodeCrash, "", "no call is tried")
			if _, err := s.call(); tool.CodeOf(err) != tool.CodeBreakerOpen || tool.AsError(err).Retry() != time.Minute {
				t.Errorf("the breaker is not open: %v", err)
			}
		}
	})
}

func TestOneTrialAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := opened(t, Options{})
		time.Sleep(30 * time.Second)
		s.answer = func(context.Context) (*tool.Result, error) {
			time.Sleep(time.Hour)
			return &tool.Result{OK: true}, nil
		}
		go func() { _, _ = s.call() }()
		synctest.Wait()
		_, err := s.call()
		if tool.CodeOf(err) != tool.CodeBreakerOpen || !strings.Contains(err.Error(), "being tried now") ||
			tool.AsError(err).Retry() != time.Second {
			t.Errorf("a second call is tried: %v", err)
		}
		time.Sleep(30 * time.Second) // a call that takes hours does not hold up all others
		s.answer = gives(&tool.Result{OK: true})
		kit.Check(t, kit.Err(s.call()))
		time.Sleep(time.Hour)
	})
}

func TestErrorsThatAreNotTheToolsFaultAreNotCounted(t *testing.T) {
	for name, err := range map[string]error{
		"a timeout":            tool.Errorf(tool.CodeTimeout, "too slow"),
		"the caller's own":     context.DeadlineExceeded,
		"a cancelled call":     tool.Errorf(tool.CodeCancelled, "not needed"),
		"invalid input":        tool.Errorf(tool.CodeInvalidInput, "no such field"),
		"a reply too long":     tool.Errorf(tool.CodeProtocol, "the reply: %w", &bounded.LimitError{What: "it", Max: 5}),
		"a full queue":         tool.Errorf(tool.CodeUnavailable, "full").RetryAfter(time.Second),
		"a breaker behind":     tool.Errorf(tool.CodeBreakerOpen, "open").RetryAfter(time.Second),
		"an error of our own":  errors.New("bug"),
		"what was not allowed": tool.Errorf(tool.CodeAccessDenied, "no"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSubject(Options{Failures: 2})
				s.answer = fails(err)
				for range 9 {
					if _, got := s.call(); got != err {
						t.Fatalf("got %v", got)
					}
				}
				s = opened(t, Options{})
				time.Sleep(30 * time.Second)
				s.answer = fails(err)
				for range 3 { // it was tried, and the state of the tool is still unknown
					if _, got := s.call(); got != err {
						t.Fatalf("got %v", got)
					}
				}
			})
		})
	}
}

func TestCrashesInvalidRepliesAndAbsenceCount(t *testing.T) {
	for _, code := range []tool.Code{tool.CodeCrash, tool.CodeProtocol, tool.CodeUnavailable} {
		s := newSubject(Options{Failures: 2})
		s.answer = fails(tool.Errorf(code, "broken"))
		for range 2 {
			_, _ = s.call()
		}
		kit.Refused(t, kit.Err(s.call()), tool.CodeBreakerOpen, "", code)
	}
}

func TestResultResetsTheFailureCount(t *testing.T) {
	for name, c := range map[string]struct {
		result *tool.Result
		opens  bool
	}{
		"success":               {&tool.Result{OK: true}, false},
		"a failure of the tool": {tool.Failed("ValueError", "no"), false},
		"from memory":           {&tool.Result{OK: true, Trace: tool.Trace{Cached: true}}, true},
	} {
		s := newSubject(Options{Failures: 2})
		for range 4 {
			s.answer = fails(tool.Errorf(tool.CodeCrash, "exit status 7"))
			_, _ = s.call()
			s.answer = gives(c.result)
			_, _ = s.call()
		}
		if _, err := s.call(); (tool.CodeOf(err) == tool.CodeBreakerOpen) != c.opens {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPanicInATrialAllowsTheNextTrial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := opened(t, Options{})
		time.Sleep(30 * time.Second)
		s.answer = func(context.Context) (*tool.Result, error) { panic("bug") }
		func() {
			defer func() { _ = recover() }()
			_, _ = s.call()
		}()
		s.answer = gives(&tool.Result{OK: true})
		kit.Check(t, kit.Err(s.call()))
	})
}

func TestABreakerCanBeOff(t *testing.T) {
	if (Options{Off: true}).For(&tool.Spec{Name: "greet"}) != nil {
		t.Error("there is a stage")
	}
}
