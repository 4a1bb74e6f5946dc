package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"toolpost/builtin/health"
	"toolpost/cmd/toolpost/terminal"
	"toolpost/engine/calls"
	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// serves starts a server in a folder with these files, and returns the folder, its address and its token.
func serves(t *testing.T, files map[string]string) (dir, url, token string) {
	t.Helper()
	cmd := program(t, files, "serve", "--listen", "127.0.0.1:0")
	r := &running{cmd: cmd, ready: make(chan struct{})}
	out, err := cmd.StdoutPipe()
	if err == nil {
		cmd.Stderr = r
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		r.closed.Wait()
	})
	r.closed.Go(func() { r.read(out) })
	<-r.ready
	for line := range strings.Lines(r.String()) {
		if after, ok := strings.CutPrefix(line, "serving on "); ok && url == "" {
			url = strings.TrimSpace(after)
		}
		if after, ok := strings.CutPrefix(line, "token "); ok {
			token = strings.TrimSpace(after)
		}
	}
	if url == "" || token == "" {
		t.Fatal(r.String())
	}
	return cmd.Dir, url, token
}

// A seat is a program at a terminal of its own, with its output so far.
type seat struct {
	t    *testing.T
	ours *os.File
	cmd  *exec.Cmd
	done sync.WaitGroup
	said kit.Buffer
}

func sit(t *testing.T, cmd *exec.Cmd, rows, columns uint16) *seat {
	t.Helper()
	ours, theirs := openTerminal(t)
	s := &seat{t: t, ours: ours, cmd: cmd}
	s.resize(rows, columns)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	kit.OK(t, cmd.Start())
	theirs.Close()
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }) // if it has not ended
	s.done.Go(func() {
		buf := make([]byte, 4096)
		for {
			n, err := ours.Read(buf)
			_, _ = s.said.Write(buf[:n])
			if err != nil { // EIO: the other end is closed
				return
			}
		}
	})
	return s
}

func (s *seat) resize(rows, columns uint16) {
	kit.OK(s.t, unix.IoctlSetWinsize(int(s.ours.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns}))
}

// frame returns what a full screen shows last, line by line, without its colours.
func (s *seat) frame() []string {
	frames := strings.Split(s.said.String(), "\x1b[H")
	whole := frames[len(frames)-1]
	if !strings.Contains(whole, "\x1b[J") && len(frames) > 1 { // it is still being written
		whole = frames[len(frames)-2]
	}
	whole, _, _ = strings.Cut(whole, "\x1b[J")
	return strings.Split(paint.ReplaceAllString(whole, ""), "\r\n")
}

var paint = regexp.MustCompile("\x1b\\[[0-9;]*[mK]")

// until waits for a condition of the screen.
func (s *seat) until(what string, so func() bool) {
	s.t.Helper()
	kit.Until(s.t, func() error {
		if so() {
			return nil
		}
		text := s.said.String()
		return fmt.Errorf("%s is not on the screen: %q", what, text[max(0, len(text)-2000):])
	})
}

func (s *seat) ends(code int) {
	s.t.Helper()
	_ = s.cmd.Wait()
	s.done.Wait()
	if got := s.cmd.ProcessState.ExitCode(); got != code {
		s.t.Errorf("ended with %d, want %d: %q", got, code, s.said.String())
	}
}

func TestOnATerminalTopTakesTheScreenAndGivesItBack(t *testing.T) {
	tooltest.NoLeaks(t)
	dir, url, token := serves(t, slowTool)
	ask := func(args ...string) *exec.Cmd {
		cmd := program(t, nil, append(args, "--server", url)...)
		cmd.Env = append(cmd.Env, "TOOLPOST_TOKEN="+token)
		return cmd
	}
	call := ask("call", "slow")
	kit.OK(t, call.Start())
	s := sit(t, ask("top", "--interval", "200ms"), 24, 100)
	shows := func(text string) func() bool {
		return func() bool { return strings.Contains(strings.Join(s.frame(), "\n"), text) }
	}
	s.until("the call, harmless", shows(`working \u001b[2J`))
	s.until("a rate", shows("1 in flight   0.0 calls/s"))
	s.until("a source", shows("slow    narratoria  open   1      -"))
	if !strings.HasPrefix(s.said.String(), terminal.Enter) {
		t.Errorf("%q", s.said.String()[:40])
	}
	s.resize(6, 30)
	s.until("a smaller frame", func() bool {
		f := s.frame()
		if !shows("IN FLIGHT")() { // the most important part
			return false
		}
		for _, line := range f {
			if len([]rune(line)) > 30 {
				return false
			}
		}
		return len(f) <= 6
	})
	kit.OK(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))
	kit.Check(t, call.Wait())
	s.until("the end of the call", shows("0 in flight"))
	kit.OK(t, kit.Err(s.ours.WriteString("xq")))
	s.ends(0)
	if !strings.HasSuffix(s.said.String(), terminal.Leave) {
		t.Errorf("the terminal is left as %q", s.said.String())
	}
	// Ctrl-C restores the screen too.
	s = sit(t, ask("top", "--interval", "200ms"), 24, 100)
	s.until("a source", shows("narratoria"))
	kit.OK(t, kit.Err(s.ours.WriteString("\x03")))
	s.ends(0)
	if !strings.HasSuffix(s.said.String(), terminal.Leave) {
		t.Errorf("the terminal is left as %q", s.said.String())
	}
	// Followed lines work too; they are coloured there, and harmless.
	s = sit(t, ask("logs", "-f", "--tool", "slow"), 24, 100)
	s.until("a line", func() bool { return strings.Contains(s.said.String(), `info  slow: working \u001b[2J`) })
	kit.OK(t, kit.Err(s.ours.WriteString("\x03")))
	s.ends(0)
	if strings.Contains(s.said.String(), "\x1b[2J") {
		t.Errorf("%q", s.said.String())
	}
}

func TestTheScreenIsSharedByTheTables(t *testing.T) {
	f := kit.Must(os.CreateTemp(t.TempDir(), "screen"))(t)
	defer f.Close()
	l := &health.Load{Time: time.Now(), Window: 1, InFlight: 30}
	for range 30 {
		c := calls.Running{ID: "c", Tool: "evil\x1b[2J", Since: l.Time, Last: &calls.Sign{Progress: 3, Total: 4}}
		l.Calls = append(l.Calls, c)
		l.Tools = append(l.Tools, health.Rate{Tool: "t"})
	}
	l.Sources = []health.Source{{Name: "s", Workers: &tool.Workers{Alive: 3, Busy: 1, Calls: 4, Wait: 2}}}
	full := &fullScreen{app: &app{out: &screen{File: f}}, last: l}
	for _, height := range []int{1, 3, 5, 10, 24, 60, 200} {
		lines := full.fitted(height)
		text := strings.Join(lines, "\n")
		if len(lines) > height || strings.Contains(text, "\x1b") {
			t.Errorf("%d lines of %d: %q", len(lines), height, text)
		}
		for _, want := range map[int][]string{
			24:  {"… 26 more", `evil\u001b[2J`, "████████░░ 75%", "1/3 busy, 4 calls, 2 wait"},
			200: {"1/3 busy, 4 calls, 2 wait"},
		}[height] {
			kit.Contains(t, text, want, "of %d lines", height)
		}
		if height == 200 && strings.Contains(text, "more") {
			t.Error(text)
		}
	}
}

// steppingTool reports its progress: a step of forty every tenth of a second, and the last ones when it may.
func steppingTool() map[string]string {
	return map[string]string{
		"toolpost.yaml": "sources: [{name: steps, protocol: narratoria, command: [sh, steps.sh], walls: {write: [.]}}]",
		"steps.sh": `
step() { echo "{\"version\":\"0\",\"type\":\"log\",\"level\":\"info\",\"message\":\"evil \\u001b[2J\",\"fields\":{\"progress\":$1,\"total\":40}}"; }
n=0
while ! test -e go; do n=$((n+1)); test $n -gt 39 || step $n; sleep 0.1; done
echo '{"version":"0","type":"done","ok":true,"summary":"ready"}'
`,
	}
}

var (
	movingBar = regexp.MustCompile(`steps \d+\.\ds █+░+ \d+% \d+/40 [\d.]+/s \d+s left evil \\u001b\[2J`)
	plainLine = regexp.MustCompile(`(?m)^steps: \d+% \d+/40 [\d.]+/s \d+s left evil \\u001b\[2J$`)
)

func TestProgressIsABarOnATerminalAndPlainLinesElsewhere(t *testing.T) {
	tooltest.NoLeaks(t)
	release := func(cmd *exec.Cmd) {
		kit.OK(t, os.WriteFile(filepath.Join(cmd.Dir, "go"), nil, 0o600))
	}
	cmd := program(t, steppingTool(), "call", "steps")
	s := sit(t, cmd, 24, 120)
	s.until("a bar", func() bool { return movingBar.MatchString(s.said.String()) })
	release(cmd)
	s.ends(0)

	cmd = program(t, steppingTool(), "call", "steps")
	said := &running{cmd: cmd}
	cmd.Stderr = said
	kit.OK(t, cmd.Start())
	kit.Eventually(t, "a plain line", func() bool { return plainLine.MatchString(said.String()) })
	release(cmd)
	if err := cmd.Wait(); err != nil || strings.ContainsAny(said.String(), "\r\x1b█") {
		t.Errorf("%v: %q", err, said.String())
	}
}
