package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"toolpost/internal/kit"
	"toolpost/tool/tooltest"
)

// program returns toolpost in a folder with these files, ready to be started.
func program(t *testing.T, files map[string]string, args ...string) *exec.Cmd {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		kit.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	self := kit.Must(os.Executable())(t)
	cmd := exec.Command(self, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), asProgram+"=1", "TOOLPOST_CONFIG=", "NO_COLOR=", "TERM=xterm")
	return cmd
}

var slowTool = map[string]string{
	"toolpost.yaml": "sources: [{name: slow, protocol: narratoria, command: [sh, slow.sh], walls: {write: [.]}}]",
	"slow.sh": `
event() { echo "{\"version\":\"0\",\"type\":$1}"; }
event '"log","level":"info","message":"working \u001b[2J"'
touch started
while ! test -e go; do sleep 0.05; done
event '"done","ok":true,"summary":"ready","output":{"answer":"\u009b42"}'
`,
}

// openTerminal opens a pseudo-terminal.
func openTerminal(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skip("no pseudo-terminals here: ", err)
	}
	ours = os.NewFile(uintptr(fd), "ptmx")
	t.Cleanup(func() { ours.Close() })
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Skip("no pseudo-terminals here: ", err)
	}
	theirs, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no pseudo-terminals here: ", err)
	}
	return ours, theirs
}

func TestOnATerminalACallIsSeenAtWork(t *testing.T) {
	tooltest.NoLeaks(t)
	ours, theirs := openTerminal(t)
	cmd := program(t, slowTool, "call", "slow")
	cmd.Stdout, cmd.Stderr = theirs, theirs
	kit.OK(t, cmd.Start())
	theirs.Close()
	var screen strings.Builder
	buf := make([]byte, 4096)
	released := false
	for {
		n, err := ours.Read(buf)
		screen.Write(buf[:n])
		if !released && strings.Contains(screen.String(), "slow 0.") && strings.Contains(screen.String(), "working") {
			released = true
			kit.OK(t, os.WriteFile(filepath.Join(cmd.Dir, "go"), nil, 0o600))
		}
		if err != nil { // EIO: the other end is closed
			break
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%q", err, screen.String())
	}
	for _, want := range []string{
		"\x1b[2minfo: working \\u001b[2J\x1b[0m", // dim, and harmless
		"\r\x1b[2K",                              // the moving line is removed again
		"\"answer\": \"\\u009b42",                // the result, harmless
		"✓",
		"slow ready (",
	} {
		kit.Contains(t, screen.String(), want, "the screen")
	}
}

// A table fits a terminal of 80 columns, and is whole elsewhere.
func TestTablesFitTheTerminal(t *testing.T) {
	long := strings.Repeat("very-", 10) + "long.txt"
	cmd := program(t, map[string]string{long: "text", "toolpost.yaml": "sources: [{name: files, protocol: builtin}]"}, "call", "readFile", "path="+long)
	kit.OK(t, cmd.Run())
	log := func() *exec.Cmd {
		again := exec.Command(cmd.Path, "audit", "log")
		again.Dir, again.Env = cmd.Dir, append(cmd.Env, "NO_COLOR=1")
		return again
	}
	whole := kit.Must(log().Output())(t)
	kit.Contains(t, string(whole), long)
	ours, theirs := openTerminal(t)
	shown := log()
	shown.Stdout = theirs
	kit.OK(t, shown.Start())
	theirs.Close()
	text, _ := io.ReadAll(ours)
	kit.OK(t, shown.Wait())
	for line := range strings.Lines(strings.ReplaceAll(string(text), "\r", "")) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	kit.Contains(t, string(text), "readFile")
	kit.Contains(t, string(text), "…")
}

func TestNoColorDisablesColour(t *testing.T) {
	ours, theirs := openTerminal(t)
	cmd := program(t, nil, "call", "nobody")
	cmd.Env = append(cmd.Env, "NO_COLOR=1")
	cmd.Stdout, cmd.Stderr = theirs, theirs
	kit.OK(t, cmd.Start())
	theirs.Close()
	text, _ := io.ReadAll(ours)
	_ = cmd.Wait()
	if strings.Contains(string(text), "\x1b[3") || !strings.Contains(string(text), "no tool named") {
		t.Errorf("%q", text)
	}
}

func TestCtrlCCancelsTheCall(t *testing.T) {
	tooltest.NoLeaks(t)
	cmd := program(t, slowTool, "call", "slow")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	kit.OK(t, cmd.Start())
	kit.Until(t, func() error { return kit.Err(os.Stat(filepath.Join(cmd.Dir, "started"))) })
	kit.OK(t, cmd.Process.Signal(os.Interrupt))
	var status *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &status) || status.ExitCode() != int(exitCancelled) {
		t.Errorf("ended with %v, want exit code %d", err, exitCancelled)
	}
	kit.Contains(t, stderr.String(), "cancelled")
}

// hearHangUps lets programs that the test starts receive SIGHUP when a terminal is closed. Under nohup they would ignore
// it, as the test does, unless the test listens for it.
func hearHangUps(t *testing.T) {
	t.Helper()
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(hup) })
}

// serveIn starts a server that leads a session of its own, with a terminal or without, and waits until it serves.
func serveIn(t *testing.T, theirs *os.File) (*exec.Cmd, *lines) {
	t.Helper()
	hearHangUps(t)
	cmd := program(t, map[string]string{"toolpost.yaml": "store: {url: none}\n"}, "serve", "--listen", "127.0.0.1:0")
	said := &lines{}
	cmd.Stdout, cmd.Stderr = said, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if theirs != nil {
		cmd.Stdin, cmd.SysProcAttr.Setctty = theirs, true
	}
	kit.OK(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	said.wait(t, "serving on")
	return cmd, said
}

// lines is the output of a program so far.
type lines struct{ kit.Buffer }

func (l *lines) wait(t *testing.T, want string) {
	t.Helper()
	kit.Until(t, func() error {
		if text := l.String(); !strings.Contains(text, want) {
			return fmt.Errorf("%q was not said: %s", want, text)
		}
		return nil
	})
}

func TestAClosedTerminalEndsTheServer(t *testing.T) {
	ours, theirs := openTerminal(t)
	cmd, said := serveIn(t, theirs)
	theirs.Close()
	ours.Close() // like a closed window
	if err := cmd.Wait(); err != nil || strings.Contains(said.String(), "reloaded") {
		t.Errorf("%v\n%s", err, said)
	}
	said.wait(t, "shutting down")
}

func TestALinkToTheConsoleIsForATerminalAlone(t *testing.T) {
	ours, theirs := openTerminal(t)
	_, said := serveIn(t, theirs) // from a terminal, with its output elsewhere
	said.wait(t, "/mcp")
	if strings.Contains(said.String(), "signin") {
		t.Errorf("a link is printed to no terminal: %s", said)
	}
	cmd := program(t, map[string]string{"toolpost.yaml": "store: {url: none}\n"}, "serve", "--listen", "127.0.0.1:0")
	cmd.Stdout = theirs
	kit.OK(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	shown := &lines{}
	go func() { _, _ = io.Copy(shown, ours) }()
	shown.wait(t, "/#/signin?code=")
}

func TestWithoutATerminalAHangUpReloads(t *testing.T) {
	cmd, said := serveIn(t, nil)
	kit.OK(t, cmd.Process.Signal(syscall.SIGHUP))
	said.wait(t, "config reloaded")
	kit.OK(t, cmd.Process.Signal(syscall.SIGTERM))
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, said)
	}
}

// idOf returns the id of the first approval in a text.
func idOf(text string) string { return regexp.MustCompile("apr_[a-z2-7]{20}").FindString(text) }

// A call of an agent is put to the person at the terminal of the server, who decides with a word; the agent's next call runs.
func TestServerAsksAtItsTerminal(t *testing.T) {
	hearHangUps(t)
	ours, theirs := openTerminal(t)
	cmd := program(t, map[string]string{"a.txt": "old\n", "toolpost.yaml": "sources: [{name: files, protocol: builtin, roots: [{path: ., write: true}]}]\n" +
		"policy: {rules: [{effect: ask, tools: writeFile, reason: be careful}]}\n"}, "serve", "--listen", "127.0.0.1:0")
	cmd.Stdin, cmd.Stdout = theirs, theirs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	here := []string{"--config", filepath.Join(cmd.Dir, "toolpost.yaml")}
	calls := func(content string) string {
		agent := program(t, nil, append(here, "as", "mcp", "--caller", "pen")...)
		agent.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"owner","version":"1"}}}` + "\n" +
			`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"writeFile","arguments":{"path":"a.txt","content":"` + content + `"}}}` + "\n")
		return string(kit.Must(agent.Output())(t))
	}
	early := calls("early")
	kit.Contains(t, early, "`toolpost approve "+idOf(early)+" "+strings.Join(here, " ")+"`", "its user may be in any folder")
	kit.OK(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	said := &lines{}
	go func() { _, _ = io.Copy(said, ours) }()
	said.wait(t, "+early")
	if where, question := strings.Index(said.String(), "serving on"), strings.Index(said.String(), "for agent/pen"); where < 0 || where > question {
		t.Errorf("it asks before it says where it serves: %s", said)
	}
	_ = kit.Must(program(t, nil, append(here, "deny", idOf(early))...).Output())(t)
	said.wait(t, "denied elsewhere")
	said.wait(t, "/mcp")
	_ = kit.Must(io.WriteString(ours, "yes\n"))(t) // typed before anything was asked: it approves nothing
	kit.Contains(t, calls("new"), "has to be approved", "the agent was not told")
	said.wait(t, "-old")
	said.wait(t, "+new")
	said.wait(t, "type call, session, arguments, hour, always, or no and a reason")
	_ = kit.Must(io.WriteString(ours, "always\n"))(t)
	said.wait(t, "{caller: agent/pen, tool: files.writeFile, rules: ")
	_ = kit.Must(io.WriteString(ours, "n\n"))(t)
	said.wait(t, "the call still waits")
	_ = kit.Must(io.WriteString(ours, "perhaps\n"))(t)
	said.wait(t, `"perhaps" is no answer; the call still waits`)
	kit.Contains(t, calls("other"), "has to be approved", "the agent was not told")
	_ = kit.Must(io.WriteString(ours, "\n"))(t)
	kit.Eventually(t, "it is shown again, and the second one waits", func() bool { return strings.Count(said.String(), "+new") == 2 })
	_, later, _ := strings.Cut(said.String(), "denied elsewhere")
	_ = kit.Must(program(t, nil, append(here, "deny", idOf(later))...).Output())(t)
	kit.Eventually(t, "it is settled", func() bool {
		return strings.Count(said.String(), "denied elsewhere by local: writeFile for agent/pen") == 2
	})
	said.wait(t, "+other")
	_ = kit.Must(io.WriteString(ours, "no too short\n"))(t)
	kit.Eventually(t, "it is denied", func() bool { return regexp.MustCompile(`(?m)^denied\r?$`).MatchString(said.String()) })
	kit.Contains(t, calls("other"), "denied it: too short", "the agent was not told why")
	kit.Contains(t, calls("third"), "has to be approved", "the agent was not told")
	said.wait(t, "+third")
	_ = kit.Must(io.WriteString(ours, "yes\n"))(t)
	said.wait(t, "it runs when agent/pen makes the call again")
	kit.Contains(t, calls("third"), "bytes_written", "the approved call did not run")
	said.wait(t, "ok in ")
}

func TestHelpOfFlagsFitsTheTerminal(t *testing.T) {
	tooltest.NoLeaks(t)
	s := sit(t, program(t, nil, "call", "--help"), 40, 70)
	s.ends(0)
	_, flags, _ := strings.Cut(paint.ReplaceAllString(s.said.String(), ""), "\nFlags:")
	if !strings.Contains(flags, "--resume") {
		t.Fatal(s.said.String())
	}
	for line := range strings.SplitSeq(flags, "\r\n") {
		if len(line) > 70 {
			t.Errorf("%d characters: %s", len(line), line)
		}
	}
}
