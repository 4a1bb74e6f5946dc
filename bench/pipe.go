package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"toolpost/bench/attempt"
)

// A pipe is a program that answers each line with a line.
type pipe struct {
	in  io.WriteCloser
	out *bufio.Reader
}

// start starts the program. At the end of the measurement it is let end, and waited for.
func (l *lab) start(ctx context.Context, dir string, argv ...string) *pipe {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	in, out := attempt.Must(cmd.StdinPipe()), attempt.Must(cmd.StdoutPipe())
	attempt.Check(cmd.Start())
	l.atEnd(func() error { return errors.Join(in.Close(), cmd.Wait()) })
	return &pipe{in, bufio.NewReaderSize(out, 64<<10)}
}

// turns sends a line n times and waits for each answer, which must have want in it.
func (p *pipe) turns(n int, line, want string) error {
	for range n {
		if _, err := io.WriteString(p.in, line); err != nil {
			return err
		}
		if err := p.answer(want); err != nil {
			return err
		}
	}
	return nil
}

// pipelined sends a line n times without waiting for the answers.
func (p *pipe) pipelined(n int, line, want string) error {
	written := make(chan error, 1)
	go func() {
		w := bufio.NewWriter(p.in)
		for range n {
			_, _ = w.WriteString(line) // Flush gives its error
		}
		written <- w.Flush()
	}()
	for range n {
		if err := p.answer(want); err != nil {
			return errors.Join(err, p.in.Close(), <-written)
		}
	}
	return <-written
}

func (p *pipe) answer(want string) error {
	line, err := p.out.ReadSlice('\n')
	if err == nil && !bytes.Contains(line, []byte(want)) {
		err = fmt.Errorf("unexpected answer %q", line)
	}
	return err
}
