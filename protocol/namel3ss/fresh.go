package namel3ss

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"toolpost/process"
	"toolpost/tool"
)

// drainTime is how long we wait for the end of what a call wrote, once everyone who could write is dead.
const drainTime = 5 * time.Second

// An ending is all that came of one run of a tool's code.
type ending struct {
	reply []byte
	exit  process.Exit
}

// fresh runs a call in an interpreter of its own. The reply comes on standard output, as the contract
// says; what the tool itself prints comes through two pipes beside it.
func (t *localTool) fresh(ctx context.Context, request []byte, l *logs) (ending, error) {
	out, err := newPipes(2)
	if err != nil {
		return ending{}, err
	}
	defer out.close()
	child, err := process.Start(process.Command{
		Argv: t.hostCommand("fresh"), Dir: t.root, Env: t.env,
		Files:  append([]*os.File{t.host}, out.w...),
		Stderr: func(line []byte) { l.line("stderr", line) }, StderrLimit: maxLog,
	})
	if err != nil {
		return ending{}, err
	}
	defer child.Close()
	closeAll(out.w)
	child.Feed(request)

	var e ending
	var readers sync.WaitGroup
	readers.Go(func() { e.reply = readReply(child.Stdout, l) })
	readers.Go(func() { l.read("stdout", out.r[0]) })
	readers.Go(func() { l.read("stderr", out.r[1]) })
	select {
	case <-child.Exited():
		e.exit = child.Wait()
	case <-ctx.Done():
		e.exit = child.Kill()
	}
	out.drain()
	readers.Wait()
	return e, nil
}

// readReply reads a reply to its end. One that is too long ends the call.
func readReply(r *os.File, l *logs) []byte {
	b, err := process.ReadDocument(r, maxDocument)
	var limit *process.LimitError
	if errors.As(err, &limit) {
		l.stop(tool.Errorf(tool.CodeProtocol, "the reply is longer than %d MiB", maxDocument>>20))
	}
	return b
}

// pipes are some pipes of one call.
type pipes struct{ r, w []*os.File }

func newPipes(n int) (*pipes, error) {
	p := &pipes{}
	for range n {
		r, w, err := os.Pipe()
		if err != nil {
			p.close()
			return nil, tool.Errorf(tool.CodeUnavailable, "no more pipes for the call: %w", err)
		}
		p.r, p.w = append(p.r, r), append(p.w, w)
	}
	return p, nil
}

// drain bounds how long readers wait for an end that must come, since every writer is dead.
func (p *pipes) drain() {
	for _, r := range p.r {
		_ = r.SetReadDeadline(time.Now().Add(drainTime))
	}
}

func (p *pipes) close() {
	closeAll(p.r)
	closeAll(p.w)
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}
