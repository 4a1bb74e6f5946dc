package namel3ss

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"toolpost/host/spawn"
	"toolpost/host/walls"
	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// waiter calls the tool `t` until a child waits for the next call, for a limited time, and returns its pid.
func waiter(t testing.TB, r *Runner, args string) (pid int) {
	t.Helper()
	found := soon(func() bool {
		must(t, r, "t", args)
		time.Sleep(50 * time.Millisecond) // calls at this pace make a child wait for the next one
		if localOf(r, "t").pools.count().Ahead != 1 {
			return false
		}
		below := tooltest.Descendants(server(t, r).Child.Pid())
		if len(below) == 1 {
			pid = below[0]
		}
		return len(below) == 1
	})
	if !found {
		t.Fatal("no child waits for a call")
	}
	return pid
}

// inside returns the pid of a process in its own namespace.
func inside(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0 // it waited too long and is gone
	}
	for line := range strings.Lines(string(status)) {
		if ids, ok := strings.CutPrefix(line, "NSpid:"); ok {
			all := strings.Fields(ids)
			n, _ := strconv.Atoi(all[len(all)-1])
			return n
		}
	}
	t.Skip("this kernel does not say who is who")
	return 0
}

// The child that waits runs the next call, and no other.
func TestTheChildThatWaitsTakesTheCall(t *testing.T) {
	tooltest.NoLeaks(t)
	r := obedient(t, modeWarm, obedience(t), Options{})
	taken := soon(func() bool { // a child that has waited too long is gone
		pid := inside(t, waiter(t, r, `{"do":"1"}`))
		first, second := string(must(t, r, "t", `{"do":"os.getpid()"}`).Output), string(must(t, r, "t", `{"do":"os.getpid()"}`).Output)
		if first == second {
			t.Errorf("two calls ran in process %s", first)
		}
		return first == strconv.Itoa(pid)
	})
	if !taken {
		t.Error("it never had the call")
	}
}

func TestWaitingChildrenEndWhenIdle(t *testing.T) {
	tooltest.NoLeaks(t)
	r := obedient(t, modeWarm, obedience(t), Options{})
	must(t, r, "t", `{"do":"1"}`)
	kit.Equal(t, localOf(r, "t").pools.count().Ahead, 0, "children that wait after one call")
	waiter(t, r, `{"do":"1"}`)
	before := server(t, r)
	if !soon(func() bool { return localOf(r, "t").pools.count().Ahead == 0 && onlyServer(t, r) }) {
		t.Errorf("%v are still there", pythons(os.Getpid()))
	}
	if must(t, r, "t", `{"do":"1"}`); server(t, r) != before {
		t.Error("the end of the wait ended the server")
	}
}

// A call that finds a waiting child finds nothing of earlier calls, and nothing that the children share.
func TestWaitingChildKeepsNothingOfEarlierCalls(t *testing.T) {
	tooltest.NoLeaks(t)
	const code = `
import os, random, secrets, signal, tempfile, uuid
state = []
def run(payload):
    state.append(1)
    seen = {"state": len(state), "left": os.environ.get("LEFT"), "cwd": os.getcwd(), "files": os.listdir("/tmp"),
            "stdin": os.readlink("/proc/self/fd/0"), "blocked": len(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
            "usr1": signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL, "mask": os.umask(0o22)}
    unique = [random.random(), uuid.uuid4().hex, uuid.uuid1().hex, secrets.token_hex(), next(tempfile._get_candidate_names()), os.getpid()]
    os.environ["LEFT"] = "x"
    os.chdir("/")
    os.umask(0)
    random.seed(1)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    return {"seen": seen, "unique": [str(u) for u in unique]}
`
	r := python(t, code, Options{})
	var first any
	known := map[string]bool{}
	for n := range 8 {
		if n > 0 {
			waiter(t, r, `{}`)
		}
		var got struct {
			Seen   any
			Unique []string
		}
		kit.OK(t, json.Unmarshal(must(t, r, "t", `{}`).Output, &got))
		if n == 0 {
			first = got.Seen // there was nothing before it
		}
		kit.DeepEqual(t, got.Seen, first, "call %d finds", n)
		for _, u := range got.Unique {
			if known[u] {
				t.Errorf("call %d has %s, which another one had", n, u)
			}
			known[u] = true
		}
	}
}

// pipesOf lists the open pipes and sockets of a process.
func pipesOf(t *testing.T, pid int) (all []string) {
	t.Helper()
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil || len(links) == 0 {
		t.Skipf("the descriptors of process %d are not for us to see", pid)
	}
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && strings.Contains(target, ":[") {
			all = append(all, target)
		}
	}
	return all
}

// A waiting child holds its own four pipes, which no other process below us has, and nothing of another call.
func TestWaitingChildHoldsNothingOfAnotherCall(t *testing.T) {
	tooltest.NoLeaks(t)
	r := python(t, "import os, time\ndef run(p):\n    time.sleep(p.get('s', 0))\n", Options{})
	slept, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = r.Invoke(slept, &tool.Call{Tool: "t", Args: []byte(`{"s":600}`)}, tool.Discard)
	}()
	defer func() { stop(); <-ended }()
	if !soon(func() bool { return localOf(r, "t").pools.count().Busy == 1 && len(pythons(os.Getpid())) == 2 }) {
		t.Fatal("the call does not run")
	}
	checked := soon(func() bool {
		pid := waiter(t, r, `{}`)
		mine := pipesOf(t, pid)
		if len(mine) != 4 {
			return false // it is still entering its room
		}
		for _, other := range pythons(os.Getpid()) {
			for _, pipe := range pipesOf(t, other) {
				if other != pid && slices.Contains(mine, pipe) {
					t.Errorf("process %d has %s too", other, pipe)
				}
			}
		}
		return true
	})
	if !checked {
		t.Error("it does not hold four pipes")
	}
}

// A child that dies while it waits had no call: the next caller does not notice.
func TestAChildThatDiesWhileItWaitsIsReplaced(t *testing.T) {
	tooltest.NoLeaks(t)
	r := obedient(t, modeWarm, obedience(t), Options{})
	for range 7 { // more crashes than a pool tolerates
		pid := waiter(t, r, `{"do":"1"}`)
		before := server(t, r)
		_ = syscall.Kill(pid, syscall.SIGKILL)
		if !goneSoon(pid) {
			t.Fatalf("process %d goes on", pid)
		}
		if must(t, r, "t", `{"do":"1"}`); server(t, r) != before {
			t.Error("its server was replaced too")
		}
	}
}

// Nor does it if the child dies after it was given the call and before it has read it.
func TestUnreadCallIsRunByAnotherChild(t *testing.T) {
	tooltest.NoLeaks(t)
	r := obedient(t, modeWarm, obedience(t), Options{})
	pid := waiter(t, r, `{"do":"1"}`)
	_ = syscall.Kill(pid, syscall.SIGSTOP)
	stopped := func() bool { // until then it still reads
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(stat), ") T ")
	}
	if !soon(stopped) {
		t.Fatal("it does not stop")
	}
	done := make(chan error, 1)
	go func() {
		_, err := call(r, "t", `{"do":"1"}`, tool.Discard)
		done <- err
	}()
	told := func() bool { // the call has the child, and its request is in the pipe
		return localOf(r, "t").pools.count().Busy == 1 && localOf(r, "t").pools.count().Ahead == 0
	}
	if !soon(told) {
		t.Fatal("nobody took it")
	}
	time.Sleep(50 * time.Millisecond) // whether the request has arrived by then must not matter
	_ = syscall.Kill(pid, syscall.SIGKILL)
	kit.Check(t, <-done)
}

// A call that was read is never run twice, however its child ends.
func TestACallThatWasReadIsRunOnce(t *testing.T) {
	tooltest.NoLeaks(t)
	root := obedience(t)
	r := obedient(t, modeWarm, root, Options{Options: spawn.Options{Walls: walls.Options{Write: []string{root}}}})
	for n := range 3 {
		waiter(t, r, `{"do":"1"}`)
		_, err := call(r, "t", `{"do":"open('ran', 'a').write('x') and os.kill(os.getpid(), 9)"}`, tool.Discard)
		ran, _ := os.ReadFile(filepath.Join(root, "ran"))
		if tool.CodeOf(err) != tool.CodeCrash || len(ran) != n+1 {
			t.Errorf("call %d: %v, and it ran %d times in all", n+1, err, len(ran))
		}
	}
}

// The time of a call begins with the call. At its end the child ends too, and serves no other call.
func TestTimeoutEndsAWaitingChild(t *testing.T) {
	tooltest.NoLeaks(t)
	r := obedient(t, modeWarm, obedience(t), Options{})
	pid := waiter(t, r, `{"do":"1"}`)
	r.tools["t"].spec.Timeout = time.Second
	_, err := call(r, "t", `{"do":"__import__('time').sleep(600)"}`, tool.Discard)
	if tool.CodeOf(err) != tool.CodeTimeout || !goneSoon(pid) {
		t.Errorf("got %v", err)
	}
	r.tools["t"].spec.Timeout = patience
	must(t, r, "t", `{"do":"1"}`)
}

func TestAnEditEndsTheChildThatWaits(t *testing.T) {
	tooltest.NoLeaks(t)
	root := write(t, map[string]string{"code.py": "value = 1\ndef run(p):\n    return value\n"})
	r := open(t, root, Options{Tool: "t", Entry: "code:run"})
	for n := 2; n < 5; n++ {
		pid := waiter(t, r, `{}`)
		kit.OK(t, os.WriteFile(filepath.Join(root, "code.py"), fmt.Appendf(nil, "value = %d\ndef run(p):\n    return value\n", n*100), 0o644))
		if res := must(t, r, "t", `{}`); string(res.Output) != fmt.Sprint(n*100) || !goneSoon(pid) {
			t.Errorf("edit %d: the tool still says %s", n, res.Output)
		}
	}
}

// A call cannot change its server's limits through the server's pid: they would apply to every later call.
func TestACallCannotChangeTheLimitsOfItsServer(t *testing.T) {
	tooltest.NoLeaks(t)
	r := obedient(t, modeWarm, obedience(t), Options{})
	for _, do := range []string{
		"__import__('resource').prlimit(os.getppid(), 1, (1024, 1024))", "os.setpriority(os.PRIO_PROCESS, os.getppid(), 19) or 1",
		"os.sched_setaffinity(os.getppid(), os.sched_getaffinity(0)) or 1",
	} {
		if res := tell(t, r, do, tool.Guarantees{}, tool.Discard); res.OK {
			t.Errorf("%s gave %s", do, res.Output)
		}
	}
	for _, do := range []string{ // it may change its own
		"__import__('resource').setrlimit(1, (1024, 1024)) or 1", "os.setpriority(os.PRIO_PROCESS, 0, 19) or 1",
	} {
		if res := tell(t, r, do, tool.Guarantees{}, tool.Discard); !res.OK {
			t.Errorf("%s: %v", do, res.Failure)
		}
	}
}

// idleVariable makes the test binary call a tool until a child waits for the next call, report that, and do nothing more.
const idleVariable = "NAMEL3SS_TEST_IDLE"

func idleFor(root string) {
	r, err := New(context.Background(), root, Options{Tool: "t", Entry: "code:run"}, quiet())
	if err != nil {
		panic(err)
	}
	for localOf(r, "t").pools.count().Ahead == 0 {
		if _, err := call(r, "t", `{}`, tool.Discard); err != nil {
			panic(err)
		}
		time.Sleep(time.Second) // so that the child waits for a long time
	}
	fmt.Println("waiting")
	time.Sleep(time.Hour)
}

func TestWaitingChildrenDieWithAKilledServer(t *testing.T) {
	root := write(t, map[string]string{"code.py": "def run(p):\n    return 1\n"})
	cmd, out := startAgain(t, idleVariable+"="+root)
	kit.Equal(t, kit.Must(bufio.NewReader(out).ReadString('\n'))(t), "waiting\n")
	pids := pythons(cmd.Process.Pid)
	kit.Equal(t, len(pids), 2, "a fork server and the child that waits should run, and %v do", pids)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	for _, pid := range pids {
		if !goneSoon(pid) {
			t.Errorf("process %d goes on", pid)
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}
