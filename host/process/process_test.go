package process

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"toolpost/host/sandbox"
	"toolpost/internal/kit"
	"toolpost/tool/tooltest"
	"toolpost/wire/bounded"
)

const hang = time.Minute // bounds waits that only guard against a hang

// parentOnly, in the environment, makes the test binary a program that starts one child and waits.
const parentOnly = "PROCESS_TEST_PARENT"

func TestMain(m *testing.M) {
	if sandbox.Main() {
		return
	}
	if os.Getenv(parentOnly) != "" {
		beParent()
		return
	}
	if _, err := unix.Dup(0); err != nil { // a descriptor that a careless parent might leave open for us
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

func beParent() {
	c, err := Start(command("stubborn"))
	if err != nil {
		fmt.Println(err)
		return
	}
	bounded.NewLines(c.Stdout, bounded.LineLimits{}).Next()
	fmt.Println(c.Pid())
	c.Wait()
}

// python returns the interpreter itself: python3 may be a script that adds to the environment.
var python = sync.OnceValue(func() string {
	out, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		panic("the tests of package process need python3 on PATH: " + err.Error())
	}
	return strings.TrimSpace(string(out))
})

// command returns the command for testdata/peer.py with a given behaviour.
func command(behaviour string, args ...string) Command {
	script, _ := filepath.Abs("testdata/peer.py")
	return Command{
		Argv: append([]string{python(), "-I", "-S", script, behaviour}, args...),
		Env:  []string{"PATH=" + os.Getenv("PATH")},
	}
}

// A peer is a running peer.py and its output.
type peer struct {
	*Child
	t     *testing.T
	lines *bounded.Lines
}

func start(t *testing.T, cmd Command) *peer {
	t.Helper()
	c := kit.Must(Start(cmd))(t)
	t.Cleanup(c.Close)
	c.Stdout.SetReadDeadline(time.Now().Add(hang))
	return &peer{Child: c, t: t, lines: bounded.NewLines(c.Stdout, bounded.LineLimits{})}
}

// next returns the next line of the peer's output.
func (p *peer) next() string {
	p.t.Helper()
	line, err := p.lines.Next()
	if err != nil {
		p.t.Fatalf("the peer says nothing: %v; stderr: %s", err, p.Tail())
	}
	return string(line)
}

// pids reads n lines that are pids.
func (p *peer) pids(n int) []int {
	p.t.Helper()
	var pids []int
	for range n {
		pid := kit.Must(strconv.Atoi(p.next()))(p.t)
		pids = append(pids, pid)
	}
	return pids
}

// runs reports whether a process exists and is not a zombie.
func runs(pid int) bool {
	s, ok := ours.proc.stat(pid)
	return ok && !s.dead()
}

func mustBeGone(t *testing.T, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		if runs(pid) {
			t.Errorf("process %d still runs", pid)
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

func mustRun(t *testing.T, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		if !runs(pid) {
			t.Errorf("process %d does not run any more", pid)
		}
	}
}

// carrying lists all processes that have a child's marker.
func carrying(c *Child) []int {
	return slices.DeleteFunc(ours.proc.numbers(""), func(pid int) bool {
		return !slices.Contains(ours.proc.markers(pid), c.marker)
	})
}

func TestChildInheritsNothingElse(t *testing.T) {
	tooltest.NoLeaks(t)
	dir, _ := filepath.EvalSymlinks(t.TempDir())
	t.Setenv("SECRET", "not for tools")
	inherited := kit.Must(os.Open(os.DevNull))(t) // a descriptor of ours that must not be inherited
	defer inherited.Close()
	cmd := command("report", "a b", "ü")
	cmd.Dir = dir
	cmd.Env = []string{"A=1", "B=x=y", "EMPTY=", Marker + "=forged"}
	cmd.Files = []*os.File{inherited, inherited}
	p := start(t, cmd)
	var got struct {
		Env            map[string]string
		Fds            []int
		Pid, Sid, Pgid int
		Cwd            string
		Argv           []string
	}
	kit.OK(t, json.Unmarshal([]byte(p.next()), &got))
	kit.Equal(t, p.Wait(), Exit{}, "it ended with")
	delete(got.Env, "LC_CTYPE") // python sets this one itself
	kit.Equal(t, cmp.Diff(map[string]string{"A": "1", "B": "x=y", "EMPTY": "", Marker: p.marker}, got.Env),
		"", "the environment differs")
	kit.Equal(t, cmp.Diff([]int{0, 1, 2, 3, 4}, got.Fds), "", "the descriptors differ")
	if got.Pid != p.Pid() || got.Sid != p.Pid() || got.Pgid != p.Pid() {
		t.Errorf("it is not alone in a session and a group of its own: %+v", got)
	}
	if got.Cwd != dir || !slices.Equal(got.Argv, []string{"a b", "ü"}) {
		t.Errorf("working folder or arguments differ: %+v", got)
	}
}

func TestARelativeProgramStartsFromTheWorkingFolder(t *testing.T) {
	tooltest.NoLeaks(t)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "hello"), "#!/bin/sh\necho hello\n", 0o755)
	p := start(t, Command{Argv: []string{"./hello"}, Dir: dir})
	kit.Equal(t, p.next(), "hello")
	p.Wait()
}

func TestTheLadder(t *testing.T) {
	const long, short = hang, 50 * time.Millisecond
	for _, test := range []struct {
		behaviour string
		ladder    Ladder
		want      Exit
	}{
		{"until-eof", Ladder{Stdin: long, Term: long}, Exit{Code: 7}},
		{"until-term", Ladder{Stdin: short, Term: long}, Exit{Code: 8}},
		{"until-term", Ladder{Term: long}, Exit{Code: 8}},
		{"stubborn", Ladder{Stdin: short, Term: short}, Exit{Code: -1, Signal: syscall.SIGKILL}},
		{"until-eof", Ladder{}, Exit{Code: -1, Signal: syscall.SIGKILL}},
	} {
		t.Run(fmt.Sprintf("%s %v", test.behaviour, test.ladder), func(t *testing.T) {
			tooltest.NoLeaks(t)
			p := start(t, command(test.behaviour))
			p.next()
			kit.Equal(t, p.Stop(test.ladder), test.want, "it ended with")
			mustBeGone(t, p.Pid())
		})
	}
}

func TestConcurrentEndsReportTheSameExit(t *testing.T) {
	tooltest.NoLeaks(t)
	p := start(t, command("stubborn"))
	p.next()
	exits := make(chan Exit)
	go func() { exits <- p.Wait() }()
	go func() { exits <- p.Kill() }()
	go func() { exits <- p.Stop(Ladder{Stdin: time.Millisecond, Term: time.Millisecond}) }()
	go func() { p.Sweep(); p.Feed([]byte("x")); p.CloseStdin(); exits <- p.Wait() }()
	for range 4 {
		if e := <-exits; e.Signal != syscall.SIGKILL {
			t.Errorf("it ended with %v", e)
		}
	}
	p.Sweep()
	if e := p.Kill(); e.Signal != syscall.SIGKILL {
		t.Errorf("later it ended with %v", e)
	}
}

func TestRunEndsLeftoverProcesses(t *testing.T) {
	tooltest.NoLeaks(t)
	ctx := kit.Context(t)
	out, exit, _, err := Run(ctx, Command{Argv: []string{"sh", "-c", "sleep 1000 & echo said"}}, 1<<10)
	if err != nil || string(out) != "said\n" || exit != (Exit{}) {
		t.Errorf("%q, %v, %v", out, exit, err)
	}
	_, _, _, err = Run(ctx, Command{Argv: []string{"sh", "-c", "yes"}}, 1<<10)
	if !errors.As(err, new(*bounded.LimitError)) {
		t.Errorf("a command that says too much: %v", err)
	}
}

func TestOutputIsReadableAfterTheExit(t *testing.T) {
	tooltest.NoLeaks(t)
	for name, end := range map[string]func(*Child) Exit{"wait": (*Child).Wait, "kill": (*Child).Kill} {
		t.Run(name, func(t *testing.T) {
			p := start(t, Command{Argv: []string{"sh", "-c", "echo first; echo last"}})
			<-p.Exited()
			end(p.Child)
			if _, err := p.Stdin.WriteString("x"); !errors.Is(err, os.ErrClosed) {
				t.Errorf("stdin is open after the end: %v", err)
			}
			got, err := io.ReadAll(p.Stdout)
			if string(got) != "first\nlast\n" || err != nil {
				t.Errorf("read %q, %v", got, err)
			}
			p.Close()
			if _, err := p.Stdout.Read(make([]byte, 1)); err == nil || err == io.EOF {
				t.Errorf("stdout is open after Close: %v", err)
			}
		})
	}
}

func TestFeedReachesAChildThatReads(t *testing.T) {
	tooltest.NoLeaks(t)
	p := start(t, command("copy"))
	sent := bytes.Repeat([]byte("0123456789abcde\n"), 1<<16)
	p.Feed(sent)
	got, err := bounded.ReadDocument(p.Stdout, len(sent))
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d bytes came back, %v", len(got), err)
	}
	kit.Equal(t, p.Wait(), Exit{})
}

func TestFeedToAChildThatNeverReads(t *testing.T) {
	for name, end := range map[string]func(*Child) Exit{
		"it is killed": (*Child).Kill,
		"it exits":     (*Child).Wait,
	} {
		t.Run(name, func(t *testing.T) {
			tooltest.NoLeaks(t)
			argv := map[string][]string{"it is killed": {"sleep", "1000"}, "it exits": {"true"}}[name]
			p := start(t, Command{Argv: argv})
			p.Feed(make([]byte, 1<<20))
			end(p.Child)
			p.Feed([]byte("too late"))
		})
	}
}

func TestAChildOutlivesTheThreadThatAskedForIt(t *testing.T) {
	tooltest.NoLeaks(t)
	var p *peer
	thread := os.Getpid()
	for thread == os.Getpid() { // the first thread of a program never ends: use another
		done := make(chan struct{})
		go func() {
			defer close(done)
			runtime.LockOSThread() // and never unlock: the thread ends with this goroutine
			if thread = unix.Gettid(); thread != os.Getpid() {
				p = start(t, command("until-eof"))
				p.next()
			}
		}()
		<-done
	}
	kit.Eventually(t, "the thread ends", func() bool {
		_, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", thread))
		return err != nil
	})
	p.CloseStdin()
	if e := p.Wait(); e.Code != 7 {
		t.Errorf("it ended with %v", e)
	}
}

func TestAChildDiesWithUs(t *testing.T) {
	tooltest.NoLeaks(t)
	self := kit.Must(os.Executable())(t)
	parent := exec.Command(self)
	parent.Env = append(os.Environ(), parentOnly+"=1")
	out := kit.Must(parent.StdoutPipe())(t)
	kit.OK(t, parent.Start())
	line, _ := bufio.NewReader(out).ReadString('\n')
	child, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatalf("the parent says %q", line)
	}
	mustRun(t, child)
	_ = parent.Process.Kill()
	_ = parent.Wait()
	kit.Eventually(t, "the child dies", func() bool { return !runs(child) })
	start(t, Command{Argv: []string{"true"}}).Wait() // reaps it, in case we inherited it
}

func write(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()
	kit.OK(t, os.WriteFile(path, []byte(content), mode))
	kit.OK(t, os.Chmod(path, mode))
}

// A client is ended after the program that it started, and its files are not on this machine.
func TestTheEndOfAClientIsTold(t *testing.T) {
	tooltest.NoLeaks(t)
	for script, want := range map[string]bool{"exit 0": false, "exec sleep 1000": true} {
		told := make(chan bool, 2)
		child := kit.Must(Start(Command{
			Argv: []string{"/bin/sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"},
			End: func(killed bool) { told <- killed },
		}))(t)
		kit.Fails(t, kit.Err(child.Open("/", "etc/passwd")), "", "a file of a container was opened here")
		if !want {
			child.Wait()
		}
		child.Close()
		child.Close()
		if killed := <-told; killed != want || len(told) > 0 {
			t.Errorf("%s: killed %v, and told %d times more", script, killed, len(told))
		}
	}
}
