package engine_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"toolpost/engine"
	"toolpost/internal/kit"
	"toolpost/tool"
)

// before makes a stage that calls do for each call and passes it on.
func before(do func(*tool.Call)) engine.Stage {
	return func(*tool.Spec) tool.Middleware {
		return func(next tool.Handler) tool.Handler {
			return tool.HandlerFunc(func(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
				do(c)
				return next.Invoke(ctx, c, out)
			})
		}
	}
}

func TestACallPassesTheStagesInTheOrderOfTheChain(t *testing.T) {
	var passed []string
	o := engine.Options{Stages: map[string]engine.Stage{}}
	want := []string{"calls", "redact", "telemetry", "answers", "idempotency", "quota", "ask", "lease", "cache", "session", "redact"}
	for _, name := range want {
		o.Stages[name] = before(func(c *tool.Call) {
			kit.Equal(t, c.Spec == nil, len(passed) < 3, "%s, after %v, was given the spec %v", name, passed, c.Spec)
			passed = append(passed, name)
		})
	}
	if _, err := call(t, start(t, o, bind("one", source(echo, "a"))), "a", ``); err != nil || !slices.Equal(passed, want) {
		t.Errorf("%v, %v", passed, err)
	}
}

func TestStageMaySkipATool(t *testing.T) {
	passed := 0
	o := engine.Options{Stages: map[string]engine.Stage{"quota": func(s *tool.Spec) tool.Middleware {
		if s.Name == "free" {
			return nil
		}
		return before(func(*tool.Call) { passed++ })(s)
	}}}
	e := start(t, o, bind("one", source(echo, "free", "dear")))
	for _, name := range []string{"free", "dear"} {
		if _, err := call(t, e, name, ``); err != nil {
			t.Error(err)
		}
	}
	kit.Equal(t, passed, 1, "calls passed the stage, of the one tool that has it")
}

// A stage may fail like everything else: the stages outside of it, and the door, see one error with a code.
func TestAPanicOfAnyStageIsAnInternalError(t *testing.T) {
	for _, name := range []string{"redact", "telemetry", "quota", "session"} {
		o := engine.Options{Stages: map[string]engine.Stage{name: before(func(*tool.Call) { panic("stage") })}}
		_, err := call(t, start(t, o, bind("one", source(echo, "a"))), "a", ``)
		if err == nil || err.Code != tool.CodeInternal || !strings.Contains(err.Message, "the log has the details") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAStageWithoutAPlaceInTheChainIsNotIgnored(t *testing.T) {
	defer func() {
		if p, _ := recover().(string); !strings.Contains(p, "no place for a stage named qouta") {
			t.Errorf("%q", p)
		}
	}()
	engine.New(engine.Options{Stages: map[string]engine.Stage{"qouta": before(func(*tool.Call) {})}})
}
