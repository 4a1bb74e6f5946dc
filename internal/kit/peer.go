package kit

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// A Peer is a program in another language. It answers in lines, and ends when its input does.
type Peer struct {
	t     testing.TB
	in    io.WriteCloser
	lines *bufio.Reader
}

// Start starts a peer, which ends with the test and must not fail.
func Start(t testing.TB, cmd *exec.Cmd) *Peer {
	t.Helper()
	if cmd.Stderr == nil {
		cmd.Stderr = os.Stderr
	}
	p := &Peer{t: t, in: Must(cmd.StdinPipe())(t), lines: bufio.NewReader(Must(cmd.StdoutPipe())(t))}
	OK(t, cmd.Start())
	guard := time.AfterFunc(2*Hang, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() {
		_ = p.in.Close()
		Check(t, cmd.Wait(), cmd)
		guard.Stop()
	})
	return p
}

// Line waits for the next line, and returns it without its end.
func (p *Peer) Line() string {
	p.t.Helper()
	return strings.TrimSuffix(Must(p.lines.ReadString('\n'))(p.t), "\n")
}

// Ask sends an order as a line of JSON, and returns the answer.
func (p *Peer) Ask(order any) string {
	p.t.Helper()
	OK(p.t, json.NewEncoder(p.in).Encode(order))
	return p.Line()
}
