package namel3ss

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"toolpost/host/spawn"
	"toolpost/host/walls"
	"toolpost/internal/kit"
	"toolpost/internal/rounds"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// reply is the descriptor on which the host will reply; hostile tools look for it.
const hostileCode = `
import os, signal, stat, sys, time

def reply():
    for fd in range(3, 64):
        try:
            if stat.S_ISFIFO(os.fstat(fd).st_mode):
                return fd
        except OSError:
            pass

def bomb(n):
    for _ in range(n):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.setsid()
            time.sleep(600)
            os._exit(0)

def flood(fd, line, mib):
    piece = line * ((1 << 16) // len(line))
    for _ in range((mib << 20) // len(piece)):
        os.write(fd, piece)

def run(payload):
    return eval(payload["do"], globals())

def prints(mib):
    line = "x" * 65535
    for _ in range((mib << 20) // 65536):
        print(line)

def deaf():
    for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(s, signal.SIG_IGN)
    while True:
        time.sleep(600)

def reopen():
    os.closerange(0, 256)
    for n in range(64):
        os.open(f"victim{n}", os.O_CREAT | os.O_WRONLY)
    return "into a file"
`

type hostile struct {
	name, do string
	code     tool.Code // empty for a result
	want     string    // in the output or the error
}

func hostiles() []hostile {
	// Sizes in MiB, all beyond the memory bound whatever the number of rounds. A kept line takes at least 16 bytes even if
	// it is empty, so a few MiB of empty lines, each of which is work, are enough.
	printed, much, empty := rounds.Of(80, 1024), rounds.Of(80, 128), rounds.Of(8, 128)
	const ok = `b'{"ok":true,"protocol_version":1,"result":1}'`
	return []hostile{
		{fmt.Sprintf("prints %d MiB", printed), fmt.Sprintf("prints(%d)", printed), "", "null"},
		{fmt.Sprintf("writes %d MiB without a newline", much), fmt.Sprintf(`flood(1, b"x", %d)`, much), "", "null"},
		{fmt.Sprintf("writes %d MiB of empty lines to stderr", empty), fmt.Sprintf(`flood(2, b"\n", %d)`, empty), "", "null"},
		{fmt.Sprintf("replies with %d MiB", much), fmt.Sprintf(`flood(reply(), b"x", %d)`, much), tool.CodeProtocol, "longer than 8 MiB"},
		{"returns 9 MiB", `"x" * (9 << 20)`, tool.CodeProtocol, "longer than 8 MiB"},
		{"returns 7 MiB", `"x" * (7 << 20)`, "", "xxx"},
		{"replies with invalid UTF-8", `os.write(reply(), b'{"ok":true,"result":"\xff"}') and os._exit(0)`, tool.CodeProtocol, "UTF-8"},
		{"replies twice", `os.write(reply(), ` + ok + `)`, tool.CodeProtocol, "not one JSON object"},
		{"crashes in the middle of its reply", `os.write(reply(), ` + ok + `[:20]) and os.abort()`, tool.CodeCrash, "SIGABRT"},
		{"exits without a reply", `os._exit(0)`, tool.CodeProtocol, "no reply"},
		{"exits with a status and without a reply", `os._exit(5)`, tool.CodeCrash, "exit status 5"},
		{"kills itself", `os.kill(os.getpid(), 9)`, tool.CodeCrash, "SIGKILL"},
		{"kills its group and all it may", `os.killpg(0, 9)`, tool.CodeCrash, "SIGKILL"},
		{"closes every descriptor", `os.closerange(0, 256)`, tool.CodeCrash, "exit status 70; it may have closed"},
		{"closes every descriptor and opens files", `reopen()`, tool.CodeCrash, "exit status 70; it may have closed"},
		{"leaves 50 children in sessions of their own", `bomb(50)`, "", "null"},
		{"starts 50 such children and never returns", `(bomb(50), time.sleep(600))`, tool.CodeTimeout, "longer than its 1s"},
		{"ignores every polite signal", `deaf()`, tool.CodeTimeout, "longer than its 1s"},
		{"spins", `[0 for _ in iter(int, 1)]`, tool.CodeTimeout, "longer than its 1s"},
	}
}

// Each ends in time with a clear outcome, in bounded memory, leaves nothing, and harms no later call.
func TestHostileTools(t *testing.T) {
	for _, mode := range modes() {
		t.Run(mode, func(t *testing.T) {
			tooltest.NoLeaks(t)
			root := write(t, map[string]string{"code.py": hostileCode})
			r := open(t, root, Options{Tool: "t", Entry: "code:run", Mode: mode, Options: spawn.Options{Walls: walls.Options{Write: []string{root}}}})
			for _, c := range hostiles() {
				t.Run(c.name, func(t *testing.T) {
					if testing.Short() && (strings.HasPrefix(c.do, "flood") || strings.HasPrefix(c.do, "prints")) {
						t.Skip("a flood takes its time")
					}
					c.try(t, r, root)
				})
			}
		})
	}
}

// try runs the case once.
func (c hostile) try(t *testing.T, r *Runner, root string) {
	r.tools["t"].spec.Timeout = patience
	if c.code == tool.CodeTimeout {
		must(t, r, "t", `{"do":"1"}`) // the import is not timed
		r.tools["t"].spec.Timeout = time.Second
	}
	stop := watchMemory(t, 64<<20)
	res, err := call(r, "t", fmt.Sprintf(`{"do":%q}`, c.do), tool.Discard)
	stop()
	checkHostile(t, c, res, err)
	checkVictims(t, root)
	if !soon(func() bool { return onlyServer(t, r) }) {
		t.Errorf("it left %v", pythons(os.Getpid()))
	}
	r.tools["t"].spec.Timeout = patience
	if res := must(t, r, "t", `{"do":"'well'"}`); string(res.Output) != `"well"` {
		t.Errorf("the call after it got %s", res.Output)
	}
}

// onlyServer reports whether the tool's fork server is the only running interpreter.
func onlyServer(t *testing.T, r *Runner) bool {
	left := pythons(os.Getpid())
	return len(left) == 0 || len(left) == 1 && localOf(r, "t").mode == modeWarm && left[0] == server(t, r).Child.Pid()
}

// pythons lists the interpreters below a process.
func pythons(pid int) []int {
	return slices.DeleteFunc(tooltest.Descendants(pid), func(pid int) bool {
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		return !strings.HasPrefix(string(name), "python") && !strings.HasPrefix(string(name), "tp:") // the fork of a call
	})
}

func checkHostile(t *testing.T, c hostile, res *tool.Result, err error) {
	t.Helper()
	kit.MustEqual(t, tool.CodeOf(err), c.code, res, err)
	said := ""
	if err != nil {
		said = err.Error()
	} else {
		said = string(res.Output)
	}
	kit.Contains(t, said, c.want)
}

// checkVictims checks that nothing was written into files that took the reply's descriptor.
func checkVictims(t *testing.T, root string) {
	t.Helper()
	victims, _ := filepath.Glob(filepath.Join(root, "victim*"))
	for _, v := range victims {
		if b, _ := os.ReadFile(v); len(b) > 0 {
			t.Errorf("%s has %q", filepath.Base(v), b)
		}
	}
}

// watchMemory fails the test when the heap grows by more than limit before the returned function is called.
func watchMemory(t *testing.T, limit uint64) (stop func()) {
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapInuse
	}
	runtime.GC()
	before := heap()
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			if now := heap(); now > before+limit {
				t.Errorf("the heap grew by %d MiB", (now-before)>>20)
				return
			}
			select {
			case <-done:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	return func() { close(done); <-stopped }
}

// Without walls a warm tool can reach its fork server. That ends the server, and has no other effect.
func TestAToolThatAttacksItsForkServerHarmsOnlyItself(t *testing.T) {
	for name, do := range map[string]string{
		"kills it": `os.kill(os.getppid(), 9)`, "stops it": `os.kill(os.getppid(), signal.SIGSTOP)`,
	} {
		t.Run(name, func(t *testing.T) {
			tooltest.NoLeaks(t)
			r := python(t, hostileCode, Options{Options: spawn.Options{Walls: walls.Options{Off: true}}})
			must(t, r, "t", `{"do":"1"}`)
			r.tools["t"].spec.Timeout = time.Second
			_, err := call(r, "t", fmt.Sprintf(`{"do":%q}`, do), tool.Discard)
			if code := tool.CodeOf(err); name == "stops it" && code != tool.CodeTimeout {
				t.Errorf("got %v", err)
			}
			r.tools["t"].spec.Timeout = patience
			must(t, r, "t", `{"do":"1"}`)
		})
	}
}

func TestAForkServerThatDiedBetweenTwoCallsIsReplaced(t *testing.T) {
	tooltest.NoLeaks(t)
	r := python(t, "def run(p):\n    return 1\n", Options{})
	for range 7 { // more crashes than a pool tolerates
		must(t, r, "t", `{}`)
		pid := server(t, r).Child.Pid()
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil || !goneSoon(pid) {
			t.Fatal(pid, err)
		}
	}
}

func TestACrashWhileImportingIsACrashUntilTheBreakerOpens(t *testing.T) {
	tooltest.NoLeaks(t)
	r := python(t, "import os, sys\nprint('going down', file=sys.stderr)\nsys.stderr.flush()\nos._exit(7)\n", Options{})
	for n := range 5 {
		if _, err := call(r, "t", `{}`, tool.Discard); tool.CodeOf(err) != tool.CodeCrash || !strings.Contains(err.Error(), "exit status 7") || !strings.Contains(err.Error(), "going down") {
			t.Fatalf("call %d: %v", n, err)
		}
	}
	kit.Refused(t, kit.Err(call(r, "t", `{}`, tool.Discard)), tool.CodeBreakerOpen, "")
}

func TestATimeoutWhileImportingEndsTheInterpreter(t *testing.T) {
	tooltest.NoLeaks(t)
	r := python(t, "import time\ntime.sleep(600)\n", Options{})
	r.tools["t"].spec.Timeout = time.Second
	kit.Refused(t, kit.Err(call(r, "t", `{}`, tool.Discard)), tool.CodeTimeout, "")
}

func TestAToolThatNeverReadsItsRequestIsFine(t *testing.T) {
	tooltest.NoLeaks(t)
	r := python(t, "", Options{Mode: modeFresh})
	path := filepath.Join(t.TempDir(), "deaf")
	kit.OK(t, os.WriteFile(path, []byte("#!/bin/sh\necho '{\"ok\":true,\"result\":1}'\n"), 0o755))
	localOf(r, "t").python.path = path
	must(t, r, "t", `{"big":"`+strings.Repeat("x", 4<<20)+`"}`)
}

func TestLongLinesComeInPiecesAndWholeCharacters(t *testing.T) {
	both(t, "def run(p):\n    print('日本' * 5000)\n", func(t *testing.T, r *Runner) {
		var got tooltest.Collect
		kit.Must(call(r, "t", `{}`, &got))(t)
		if logs := got.Logs(); len(logs) < 2 || strings.Join(logs, "") != strings.Repeat("日本", 5000) {
			t.Errorf("%d pieces, %d bytes", len(logs), len(strings.Join(logs, "")))
		}
	})
}

// hangVariable makes the test binary call a tool that hangs, in both modes, and print the tools' output.
const hangVariable = "NAMEL3SS_TEST_HANG"

func hangFor(root string) {
	out := tool.SinkFunc(func(e tool.Event) error {
		_, err := fmt.Printf("%s\n", e.Data)
		return err
	})
	var calls sync.WaitGroup
	for _, mode := range modes() {
		r, err := New(context.Background(), root, Options{Tool: "t", Entry: "code:run", Mode: mode}, quiet())
		if err != nil {
			panic(err)
		}
		calls.Go(func() { _, _ = call(r, "t", `{}`, out) })
	}
	calls.Wait()
}

// startAgain starts the test binary as another program, which the test kills, and returns its output.
func startAgain(t *testing.T, variable string) (*exec.Cmd, io.Reader) {
	t.Helper()
	self := kit.Must(os.Executable())(t)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), variable)
	out := kit.Must(cmd.StdoutPipe())(t)
	kit.OK(t, cmd.Start())
	return cmd, out
}

func TestToolsDieWithAProgramThatIsKilled(t *testing.T) {
	root := write(t, map[string]string{"code.py": "import time\ndef run(p):\n    print('running')\n    time.sleep(600)\n"})
	cmd, out := startAgain(t, hangVariable+"="+root)
	lines := bufio.NewScanner(out)
	for range modes() {
		if lines.Scan(); !strings.Contains(lines.Text(), "running") {
			t.Errorf("%q", lines.Text())
		}
	}
	pids := pythons(cmd.Process.Pid)
	kit.Equal(t, len(pids), 3, "an interpreter, a fork server and its fork should run, and %v do", pids)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	for _, pid := range pids {
		if !goneSoon(pid) {
			t.Errorf("process %d goes on", pid)
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

func goneSoon(pid int) bool {
	return soon(func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(stat), ") Z ")
	})
}

// soon waits until a condition holds, and returns false if it never does.
func soon(holds func() bool) bool {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if holds() {
			return true
		}
	}
	return false
}
