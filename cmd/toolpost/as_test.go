package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"toolpost/internal/kit"
)

// A quietPlace is a folder with a tool that reads, and one that logs while it works.
type quietPlace struct {
	t   *testing.T
	dir string
}

func newQuietPlace(t *testing.T) quietPlace {
	p := quietPlace{t, t.TempDir()}
	for name, text := range map[string]string{
		"a.txt": "hello\n",
		"tell.sh": "read request\n" + strings.Repeat(`echo '{"version":"0","type":"log","level":"info","message":"at work"}'
`, 100) + `echo '{"version":"0","type":"done","ok":true}'`,
		"toolpost.yaml": `sources:
- {name: files, protocol: builtin, roots: [{path: .}]}
- {name: tell, protocol: narratoria, command: [sh, tell.sh], tool: tell, input: {type: object}, effects: {reads: true}}
`,
	} {
		kit.OK(t, os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o600))
	}
	return p
}

func (p quietPlace) toolpost(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(p.t.Context(), os.Args[0], args...)
	cmd.Dir, cmd.Env = p.dir, append(os.Environ(), asProgram+"=1", "GORACE=atexit_sleep_ms=0")
	return cmd
}

// leave starts a program whose reader leaves after the first line; then is the last request that it gets.
func (p quietPlace) leave(cmd *exec.Cmd, first, then string) (line string) {
	p.t.Helper()
	var said strings.Builder
	cmd.Stderr = &said
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if inErr != nil || outErr != nil || cmd.Start() != nil {
		p.t.Fatal(inErr, outErr)
	}
	_, _ = io.WriteString(in, first)
	line, _ = bufio.NewReaderSize(out, 16).ReadString('\n')
	_ = out.Close()
	_, _ = io.WriteString(in, then)
	_ = cmd.Wait() // it may report that its last answer had no reader
	if strings.Count(said.String(), "\n") > 1 {
		p.t.Errorf("it said %s", said.String())
	}
	return line
}

// recorded checks how many calls of a tool are in the log.
func (p quietPlace) recorded(tool string, want int) {
	p.t.Helper()
	log, err := p.toolpost("audit", "log", "--json").Output()
	if n := strings.Count(string(log), `"tool": "`+tool+`"`); err != nil || n != want {
		p.t.Errorf("%d calls of %d are in the log, %v:\n%s", n, want, err, log)
	}
}

const readRequest = `{"aid":"AID.FILES.READFILE.v1","inputs":{"path":"a.txt"}}` + "\n"

// A host that is gone reads no answers. The program ends in good order nevertheless: the log has what it did.
func TestCallsAreRecordedAfterTheHostIsGone(t *testing.T) {
	p := newQuietPlace(t)
	answer := p.leave(p.toolpost("as", "machina", "--serve", "files"), readRequest, readRequest)
	kit.Contains(t, answer, "hello", "the answer")
	p.recorded("readFile", 2)
}

// The same holds when the terminal is closed from which it was started.
func TestCallsAreRecordedAfterTheTerminalCloses(t *testing.T) {
	p := newQuietPlace(t)
	hearHangUps(t)
	host := p.toolpost("as", "machina", "--serve", "files")
	in, inErr := host.StdinPipe()
	out, outErr := host.StdoutPipe()
	if inErr != nil || outErr != nil || host.Start() != nil {
		t.Fatal(inErr, outErr)
	}
	_, _ = io.WriteString(in, readRequest)
	answer, _ := bufio.NewReader(out).ReadString('\n')
	if err := host.Process.Signal(syscall.SIGHUP); err != nil || !strings.Contains(answer, "hello") {
		t.Errorf("it answered %q, %v", answer, err)
	}
	kit.Check(t, host.Wait(), "it did not end in good order")
	p.recorded("readFile", 1)
}

func TestCallIsRecordedWhenItsEventsAreNotRead(t *testing.T) {
	p := newQuietPlace(t)
	kit.Contains(t, p.leave(p.toolpost("call", "--events", "tell", "{}"), "", ""), "at work")
	p.recorded("tell", 1)
}
