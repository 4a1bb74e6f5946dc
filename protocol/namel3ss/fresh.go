package namel3ss

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"toolpost/host/process"
	"toolpost/tool"
)

// An ending is all that came of one run of a tool's code.
type ending struct {
	reply []byte
	exit  process.Exit
	why   string // it ended like that, where more is known than the status
}

// fresh runs a call in an interpreter of its own. The reply comes on standard output, as the contract
// says; what the tool itself prints comes through two pipes beside it.
func (t *localTool) fresh(ctx context.Context, request []byte, inv *invocation) (ending, error) {
	l := inv.logs
	confine, saw, err := t.confined(t.around, inv)
	if err != nil {
		return ending{}, err
	}
	out, err := newPipes(ctx, 2)
	if err != nil {
		return ending{}, err
	}
	defer out.close()
	child, err := t.start(process.Command{
		Argv: t.hostCommand("fresh"), Dir: t.root, Env: inv.call.TraceEnv(t.environment(inv.held)), Confine: confine,
		Files:  append([]*os.File{t.host}, out.w...),
		Stderr: func(line []byte) { l.line("stderr", line) }, StderrLimit: maxLog,
	}, inv.held)
	if err != nil {
		return ending{}, err
	}
	defer child.Close()
	closeAll(out.w)
	child.Feed(request)

	var e ending
	var readers sync.WaitGroup
	readers.Go(func() { e.reply = readReply(child.Stdout, l) })
	readers.Go(func() { l.read("stdout", out.reader(0)) })
	readers.Go(func() { l.read("stderr", out.reader(1)) })
	e.exit = await(ctx, child)
	_ = child.Stdout.SetReadDeadline(time.Now().Add(drainTime))
	out.drain()
	readers.Wait()
	e.why = reached(child, e.exit)
	saw(child)
	return e, nil
}

// start starts a process of the tool, with the secrets that it may have.
func (f *facts) start(cmd process.Command, g tool.Guarantees) (*process.Child, error) {
	given, err := f.grant.Give(&cmd, g.SecretsAllowed)
	if err != nil {
		return nil, err
	}
	defer given()
	return process.Start(cmd)
}

// readReply reads a reply to its end. One that is too long ends the call.
func readReply(r io.Reader, l *logs) []byte {
	b, err := process.ReadDocument(r, maxDocument)
	var limit *process.LimitError
	if errors.As(err, &limit) {
		l.stop(tool.Errorf(tool.CodeProtocol, "%s: the reply is longer than %d MiB", l.tool, maxDocument>>20))
	}
	return b
}
