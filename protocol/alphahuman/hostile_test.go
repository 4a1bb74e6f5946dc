package alphahuman

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"toolpost/config"
	"toolpost/host/spawn"
	"toolpost/host/worker"
	"toolpost/internal/kit"
	"toolpost/internal/rounds"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

const short = 400 * time.Millisecond // the timeout of calls that are never answered

// Whatever a skill does wrong in one call, there is a clear error, quickly, and the next call works.
func TestMisbehavingCallDoesNotAffectTheNext(t *testing.T) {
	tooltest.NoLeaks(t)
	for _, c := range []struct {
		mode  string
		code  tool.Code // empty if the call works
		words []string
	}{
		// contract(alphahuman): stdout lines that are not JSON are logged and skipped; blank lines too.
		// contract(alphahuman): A reply with `id:null` answers a notification: drop it.
		{"garbage", "", nil},
		{"prints first", tool.CodeTimeout, nil}, // its tool `bad` never answers
		{"twice", "", nil},
		{"string id", "", nil},
		{"utf8", tool.CodeProtocol, []string{"the answer of hostile is not valid", "UTF-8"}},
		{"duplicate keys", tool.CodeProtocol, []string{"not valid", "content"}},
		{"too deep", tool.CodeProtocol, []string{"not valid", "deeper than 256"}},
		{"huge line", tool.CodeProtocol, []string{"hostile broke the protocol", "longer than 1048576 bytes"}},
		{"half a line", tool.CodeCrash, []string{"exit status 0"}},
		{"no content", tool.CodeProtocol, []string{"no content"}},
		{"wrong types", tool.CodeProtocol, []string{"isError"}},
		{"result is text", tool.CodeProtocol, []string{"not an object but string"}},
		{"asks without end", tool.CodeTimeout, nil},
		{"never", tool.CodeTimeout, nil},
		{"dies", tool.CodeCrash, []string{"hostile crashed", "exit status 7", "my last words"}},
		{"closes stdout", tool.CodeProtocol, []string{"closed its output"}},
		{"hangs", tool.CodeTimeout, nil},
		{"child holds stdout", tool.CodeCrash, []string{"exit status 1"}},
	} {
		t.Run(c.mode, func(t *testing.T) {
			t.Parallel()
			r, _ := hostile(t, c.mode, Options{MaxLine: 1 << 20})
			says(t, r, "ok", `{}`, `"answer to {}"`)
			limit := patience
			if c.code == tool.CodeTimeout {
				limit = short
			}
			result, err := callWithin(t, r, "bad", `{}`, limit)
			switch {
			case c.code != "":
				refused(t, err, c.code, c.words...)
			case err != nil || string(result.Output) != `"answer to {}"`:
				t.Errorf("got %+v, %v", result, err)
			}
			says(t, r, "ok", `{"after":1}`, `"answer to {\"after\": 1}"`)
		})
	}
}

func TestNonObjectErrorIsReportedAsText(t *testing.T) {
	tooltest.NoLeaks(t)
	r, _ := hostile(t, "error is text", Options{})
	result, err := call(t, r, "bad", `{}`)
	if err != nil || result.OK || !strings.Contains(result.Failure.Message, "went wrong") {
		t.Errorf("got %+v, %v", result, err)
	}
}

func TestGarbageIsLoggedAndTheSecondAnswerIsDropped(t *testing.T) {
	tooltest.NoLeaks(t)
	r, log := hostile(t, "garbage", Options{})
	says(t, r, "bad", `{}`, `"answer to {}"`)
	for _, words := range []string{"Traceback", "is not JSON", "not a message", "to a notification", "unknown request", "to nobody"} {
		kit.Contains(t, log.String(), words)
	}
	r, log = hostile(t, "twice", Options{})
	says(t, r, "bad", `{}`, `"answer to {}"`)
	says(t, r, "ok", `{}`, `"answer to {}"`)
	kit.Contains(t, log.String(), "unknown request", "the second answer is not in the log:\n%s", log)
	r, log = hostile(t, fmt.Sprintf("%d lines", rounds.Of(100_000, 1_000_000)), Options{})
	says(t, r, "bad", `{}`, `"answer to {}"`)
	says(t, r, "ok", `{"after":1}`, `"answer to {\"after\": 1}"`)
	if n := strings.Count(log.String(), "\n"); n > 100 {
		t.Errorf("%d lines of log", n)
	}
}

func TestAnswersOutOfOrderReachTheirCalls(t *testing.T) {
	tooltest.NoLeaks(t)
	r, _ := hostile(t, "out of order", Options{})
	var all sync.WaitGroup
	for n := range 9 {
		all.Go(func() { says(t, r, "bad", fmt.Sprintf(`{"n":%d}`, n), fmt.Sprintf(`"answer to {\"n\": %d}"`, n)) })
	}
	all.Wait()
}

func TestASkillThatDoesNotStartSaysWhy(t *testing.T) {
	tooltest.NoLeaks(t)
	for _, c := range []struct {
		mode  string
		start time.Duration // its start timeout
		code  tool.Code
		words []string
	}{
		{"crashes on start", time.Minute, tool.CodeCrash, []string{"hostile crashed", "exit status 1", "cannot find my files"}},
		{"silent start", time.Second, tool.CodeTimeout, []string{"did not answer initialize within 1s"}},
		{"answers initialize with text", time.Minute, tool.CodeProtocol, []string{"the answer to initialize"}},
		{"does not know anything", time.Minute, tool.CodeProtocol, []string{"neither initialize nor tools/list"}},
	} {
		t.Run(c.mode, func(t *testing.T) {
			t.Parallel()
			r, _ := hostile(t, c.mode, Options{StartTimeout: config.Duration(c.start)})
			_, err := r.Tools(t.Context())
			refused(t, err, c.code, c.words...)
		})
	}
}

func TestToolsThatMakeNoSenseAreLeftOut(t *testing.T) {
	tooltest.NoLeaks(t)
	r, log := hostile(t, "odd tools", Options{})
	specs, err := r.Tools(t.Context())
	if err != nil || len(specs) != 3 { // ok, bad, n
		t.Errorf("got %d tools, %v", len(specs), err)
	}
	if n := strings.Count(log.String(), "is not offered"); n != 7 {
		t.Errorf("%d tools are said to be left out:\n%s", n, log)
	}
}

// contract(alphahuman): Hooks: 10 s each, errors and timeouts isolated, logged, never fatal.
func TestHooksThatFailOrHangHarmNothing(t *testing.T) {
	tooltest.NoLeaks(t)
	for _, mode := range []string{"hook fails", "slow hook"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			r, log := hostile(t, mode, Options{HookTimeout: config.Duration(200 * time.Millisecond)})
			says(t, r, "ok", `{}`, `"answer to {}"`)
			kit.Contains(t, log.String(), "a hook of the skill failed", "not in the log:\n%s", log)
		})
	}
	t.Run("hangs in a hook", func(t *testing.T) { // it can do nothing more: the error names the hook
		t.Parallel()
		r, _ := hostile(t, "hangs in a hook", Options{HookTimeout: config.Duration(200 * time.Millisecond)})
		kit.Must(r.Tools(t.Context()))(t)
		_, err := callWithin(t, r, "ok", `{}`, short)
		refused(t, err, tool.CodeTimeout, "has not answered lifecycle/onLoad either")
	})
	t.Run("hangs when a session starts", func(t *testing.T) {
		t.Parallel()
		r, _ := hostile(t, "hangs in a hook", Options{HookTimeout: config.Duration(200 * time.Millisecond), Options: spawn.Options{Env: map[string]string{"HOOK": "lifecycle/onSessionStart"}}})
		says(t, r, "ok", `{}`, `"answer to {}"`)
		ctx, cancel := context.WithTimeout(t.Context(), 2*short)
		defer cancel()
		_, err := r.Invoke(ctx, &tool.Call{Tool: "ok", Session: "s"}, tool.Discard)
		refused(t, err, tool.CodeTimeout, "onSessionStart")
		says(t, r, "ok", `{}`, `"answer to {}"`)
	})
	var usual Options
	usual.setDefaults()
	kit.Equal(t, usual.HookTimeout, config.Duration(10*time.Second), "a hook has 10 s")
}

// contract(alphahuman): Ticks: at least 1 s apart, never overlapping; `tick_interval` in the manifest, 60 s otherwise, and none where it is 0.
func TestATickThatHangsIsNotFollowedByAnother(t *testing.T) {
	tooltest.NoLeaks(t)
	dir := filepath.Join(t.TempDir(), "sk")
	copySkill(t, "hostile", dir)
	kit.Write(t, filepath.Join(dir, manifestFile), `{"runtime":"python","entry":"skill.py","tick_interval":1}`)
	r, log := open(t, Options{
		Skill: dir, HookTimeout: config.Duration(100 * time.Millisecond),
		Options: spawn.Options{Env: map[string]string{"MODE": "hangs in a hook", "HOOK": "lifecycle/onTick"}},
	})
	kit.Must(r.Tools(t.Context()))(t)
	kit.Until(t, func() error {
		if strings.Contains(log.String(), "lifecycle/onTick") {
			return nil
		}
		return errors.New("no tick came")
	})
	w := r.current(t)
	time.Sleep(1200 * time.Millisecond) // the next would have come by now
	if hooks := w.Unanswered(); !slices.Equal(hooks, []string{"lifecycle/onTick"}) || strings.Count(log.String(), "lifecycle/onTick") != 1 {
		t.Errorf("unanswered are %q; the log:\n%s", hooks, log)
	}
}

// An abandoned call harms no other: running and later calls are answered.
func TestACallThatIsGivenUpHarmsNoOther(t *testing.T) {
	tooltest.NoLeaks(t)
	r, _ := hostile(t, "threads", Options{})
	first := r.current(t)
	slow := make(chan struct{})
	go func() {
		defer close(slow)
		says(t, r, "ok", `{"sleep":6}`, `"answer to {\"sleep\": 6}"`)
	}()
	kit.Until(t, func() error { return busy(r, 1) })
	_, err := callWithin(t, r, "ok", `{"sleep":7}`, 200*time.Millisecond)
	refused(t, err, tool.CodeTimeout)
	says(t, r, "ok", `{}`, `"answer to {}"`) // held for the grace, then on a new worker: the old one answered nothing
	if r.current(t) == first {
		t.Error("the worker that does not answer is still used")
	}
	<-slow
	<-first.Dead() // once no caller waits for it
}

// A worker that goes on answering others is kept, and the late answer is dropped.
func TestALateAnswerIsDropped(t *testing.T) {
	tooltest.NoLeaks(t)
	r, _ := hostile(t, "threads", Options{Grace: config.Duration(patience)})
	first := r.current(t)
	_, err := callWithin(t, r, "ok", `{"sleep":0.5}`, 100*time.Millisecond)
	refused(t, err, tool.CodeTimeout)
	says(t, r, "ok", `{}`, `"answer to {}"`) // held until the late answer shows that the worker is alive
	kit.Equal(t, r.current(t), first, "the worker was replaced")
	kit.Check(t, busy(r, 0))
}

func busy(r *Runner, want int) error {
	if w := r.programs[0].Current(); w == nil || w.Pending() != want {
		return fmt.Errorf("not %d calls on their way", want)
	}
	return nil
}

func (r *Runner) current(t testing.TB) *worker.Worker {
	t.Helper()
	kit.Must(r.Tools(t.Context()))(t)
	return r.programs[0].Current()
}

// kill ends a worker from outside.
func kill(t testing.TB, w *worker.Worker) {
	t.Helper()
	kit.OK(t, syscall.Kill(w.Pid(), syscall.SIGKILL))
}

// contract(alphahuman): A crashed worker is restarted with backoff; after five fast crashes the breaker opens and calls fail at once with the reason.
func TestFiveFastCrashesOpenTheBreaker(t *testing.T) {
	tooltest.NoLeaks(t)
	flag := filepath.Join(t.TempDir(), "flag")
	r, _ := hostile(t, "crashes later", Options{Options: spawn.Options{Env: map[string]string{"FLAG": flag}}})
	w := r.current(t)
	kit.Write(t, flag, "")
	kill(t, w)
	var err error
	kit.Until(t, func() error {
		if _, err = call(t, r, "ok", `{}`); tool.CodeOf(err) != tool.CodeBreakerOpen {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
	refused(t, err, tool.CodeBreakerOpen, "hostile failed 5 times in a row", "cannot find my files", "the next start is tried in 30s")
}

func TestACrashedSkillComesBackByItself(t *testing.T) {
	tooltest.NoLeaks(t)
	r, _ := hostile(t, "fine", Options{})
	w := r.current(t)
	kill(t, w)
	kit.Until(t, func() error {
		if now := r.programs[0].Current(); now == nil || now == w {
			return errors.New("it did not come back")
		}
		return nil
	})
}

// A worker that dies fails all running calls, and none of them is repeated.
func TestAllCallsOfAWorkerThatDiesFail(t *testing.T) {
	tooltest.NoLeaks(t)
	r, _ := hostile(t, "threads", Options{})
	w := r.current(t)
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			_, err := call(t, r, "ok", `{"sleep":1000}`)
			refused(t, err, tool.CodeCrash, "hostile crashed")
		})
	}
	kit.Until(t, func() error { return busy(r, 10) })
	kill(t, w)
	all.Wait()
}

// A skill that stops reading fills its pipe. It does not block callers, and it is replaced; a call that could not be sent to
// it goes to the new one.
func TestSkillThatStopsReadingDoesNotBlockCallers(t *testing.T) {
	tooltest.NoLeaks(t)
	r, _ := hostile(t, "stops reading", Options{})
	w := r.current(t)
	says(t, r, "ok", `{}`, `"answer to {}"`)
	big := `{"s":"` + strings.Repeat("x", 1<<20) + `"}`
	start := time.Now()
	var all sync.WaitGroup
	all.Go(func() {
		_, err := callWithin(t, r, "ok", big, short)
		refused(t, err, tool.CodeTimeout)
	})
	kit.Until(t, func() error { return filled(w.Pid()) })
	all.Go(func() { says(t, r, "ok", `{"n":2}`, `"answer to {\"n\": 2}"`) })
	kit.Until(t, func() error {
		if n := w.Pending(); n != 2 {
			return fmt.Errorf("%d requests wait", n)
		}
		return nil
	})
	all.Wait()
	if took := time.Since(start); took > patience/2 {
		t.Errorf("it took %v", took)
	}
}

// filled checks that the standard input of a process is full.
func filled(pid int) error {
	f, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/0", pid), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	n, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCINQ)
	if err == nil && n < 32<<10 {
		err = fmt.Errorf("%d bytes are in the pipe", n)
	}
	return err
}

// contract(alphahuman): Shutdown: `shutdown`, wait, SIGTERM, wait, SIGKILL, whole tree.
func TestASkillThatIgnoresShutdownIsEnded(t *testing.T) {
	tooltest.NoLeaks(t)
	for _, mode := range []string{"ignores shutdown", "hangs", "ignores SIGTERM"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			r, _ := hostile(t, mode, Options{})
			if mode == "ignores shutdown" {
				says(t, r, "ok", `{}`, `"answer to {}"`)
			} else {
				_, _ = callWithin(t, r, "bad", `{}`, short)
			}
		})
	}
}

func TestCloseIsBoundByItsContext(t *testing.T) {
	tooltest.NoLeaks(t)
	r, _ := hostile(t, "ignores shutdown", Options{})
	says(t, r, "ok", `{}`, `"answer to {}"`)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	start := time.Now()
	kit.Check(t, r.Close(ctx))
	if took := time.Since(start); took > patience/2 {
		t.Errorf("it took %v", took)
	}
	_, err := call(t, r, "ok", `{}`)
	refused(t, err, tool.CodeUnavailable, "shut down")
}

// Two sessions run at once on a skill that takes both: a callback that does not name its call is refused.
func TestNoSessionSeesTheStateOfAnother(t *testing.T) {
	tooltest.NoLeaks(t)
	r, _ := open(t, Options{Skill: "testdata/second", Concurrency: 2})
	w := r.current(t)
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	go func() { // the fourth request, after the hello, the list and the hook; it is never answered
		_, _ = w.Ask(ctx, methodToolsCall, []byte(`{"name":"silent","arguments":{}}`), &scope{inside: true, state: []byte(`{"skills":{"second":{"secret":1}}}`)})
	}()
	kit.Until(t, func() error { return busy(r, 1) })
	c := &tool.Call{Tool: "ask", Session: "mine", Args: []byte(`{"method":"state/get"}`)}
	result, err := r.Invoke(t.Context(), c, tool.Discard)
	if err != nil || result.OK || !strings.Contains(result.Failure.Message, "callId") {
		t.Errorf("got %+v, %v", result, err)
	}
	c.Args = []byte(`{"method":"state/get","params":{"callId":7}}`) // after the session's hook and the first call
	if result, err := r.Invoke(t.Context(), c, tool.Discard); err != nil || !result.OK {
		t.Errorf("got %+v, %v", result, err)
	}
}
