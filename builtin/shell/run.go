package shell

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"

	"toolpost/builtin/define"
	"toolpost/host/process"
	"toolpost/host/sandbox"
	"toolpost/host/walls"
	"toolpost/host/workspace"
	"toolpost/tool"
)

// A session is one call while it runs: its commands share an output, a deadline and a place.
type session struct {
	*Tools
	*output
	ctx  context.Context
	stop context.CancelCauseFunc
	view *workspace.View
	work *workplace
	env  map[string]string

	guarantees tool.Guarantees
	walls      *sandbox.Confinement // around each command; nil if there are none
	watch      walls.Watch
	built      sync.Once // guards layers: the commands of a pipe are started at once
	layers     []string  // the walls around the first command
}

// fail ends the whole call.
func (s *session) fail(err error) int {
	s.stop(err)
	return 126
}

// do runs a node and returns its exit code. It starts nothing once the call has ended.
func (s *session) do(n *node, in io.Reader, out, errs io.Writer) int {
	if s.ctx.Err() != nil {
		return 126
	}
	switch n.op {
	case "&&", "||":
		if code := s.do(n.x, in, out, errs); (code == 0) != (n.op == "&&") {
			return code
		}
		return s.do(n.y, in, out, errs)
	case ";":
		s.do(n.x, in, out, errs)
		return s.do(n.y, in, out, errs)
	case "!":
		if s.do(n.x, in, out, errs) == 0 {
			return 1
		}
		return 0
	case "|":
		return s.pipe(n, in, out, errs)
	}
	return s.redirected(n.command, in, out, errs)
}

// pipe runs two nodes concurrently.
func (s *session) pipe(n *node, in io.Reader, out, errs io.Writer) int {
	r, w := io.Pipe()
	var first sync.WaitGroup
	first.Go(func() {
		s.do(n.x, in, w, errs)
		_ = w.Close()
	})
	code := s.do(n.y, r, out, errs)
	_ = r.Close() // the writer gets an error: there is no reader any more
	first.Wait()
	return code
}

// run runs one command.
func (s *session) run(c *command, in io.Reader, out, errs io.Writer) int {
	closed, err := s.closed(c.verdict)
	if err == nil {
		err = s.guard(c.verdict, &closed)
	}
	if err == nil && c.unpack != nil {
		err = s.unpacks(c)
	}
	if err != nil {
		return s.fail(err)
	}
	child, err := s.start(c.argv, c.dir, c.verdict, closed, define.Lines(errs))
	if err != nil {
		return s.fail(err)
	}
	defer child.Close()
	kill := context.AfterFunc(s.ctx, func() { child.Kill() })
	defer kill()
	var copies sync.WaitGroup
	copies.Go(func() {
		if in != nil {
			_, _ = io.Copy(child.Stdin, in) // a child that does not read it is not an error
		}
		child.CloseStdin()
	})
	copies.Go(func() {
		w, r := struct{ io.Writer }{out}, struct{ io.Reader }{child.Stdout}
		if _, err := io.CopyBuffer(w, r, make([]byte, 32<<10)); err != nil {
			_ = child.Stdout.Close() // there is no reader any more: the child is told so, as in any pipe
		}
	})
	exit := child.Wait()
	if pipe, ok := in.(*io.PipeReader); ok {
		_ = pipe.Close() // the writer of our input may stop
	}
	copies.Wait()
	if exit.Signal != 0 {
		return 128 + int(exit.Signal)
	}
	return exit.Code
}

// start starts a program in a folder, behind the walls of the call.
func (s *session) start(
	argv []string, dir *workspace.File, v *verdict, closed workspace.Closed, stderr func([]byte),
) (*process.Child, error) {
	child, err := process.Start(process.Command{
		Argv: argv, Dir: dir.ProcPath(), Env: s.environment(v, s.work, s.env), Confine: s.room(v, closed),
		Stderr: stderr, StderrLimit: s.o.MaxOutput + 64<<10,
	})
	if err != nil {
		return nil, err
	}
	s.built.Do(func() { s.layers = child.Layers() })
	return child, nil
}

// output collects what the commands of a call write, and passes it on as it comes.
type output struct{ stdout, stderr *define.Stream }

func newOutput(events tool.Sink, most int) *output {
	return &output{define.NewStream("stdout", events, most), define.NewStream("stderr", events, most)}
}

func (o *output) result(code int) result {
	return result{
		Stdout: o.stdout.Text(), Stderr: o.stderr.Text(), ExitCode: code,
		Truncated: o.stdout.Truncated() || o.stderr.Truncated(),
	}
}

// A redirect is a source or target of a command's input or output.
type redirect struct {
	fd     int    // 0, 1, 2
	same   int    // for 2>&1: the descriptor that it becomes; 0 for a file or a text
	both   bool   // for &>: standard error goes there too
	path   string // absolute; empty for the text, or /dev/null
	text   string // what is read
	append bool
}

// maxRedirected bounds what a command may write to a file: the output is kept until the command has ended, and the file is
// then written as a whole.
const maxRedirected = 10 << 20

var errTooMuch = errors.New("more than 10 MiB were written to it")

// redirected runs a command with its redirections.
func (s *session) redirected(c *command, in io.Reader, out, errs io.Writer) int {
	writers := [3]io.Writer{nil, out, errs}
	var files []*target
	for _, r := range c.redirects {
		switch {
		case r.fd == 0 && r.path == "":
			in = strings.NewReader(r.text)
		case r.fd == 0:
			file, err := s.view.Open(r.path)
			if err != nil {
				return s.fail(err)
			}
			defer file.Close()
			in = file
		case r.same > 0:
			writers[r.fd] = writers[r.same]
		case r.path == "":
			writers[r.fd] = io.Discard
		default:
			file := &target{redirect: r}
			files = append(files, file)
			writers[r.fd] = file
		}
		if r.both {
			writers[2] = writers[1]
		}
	}
	code := s.run(c, in, writers[1], writers[2])
	for _, f := range files {
		if err := f.save(s.view); err != nil && s.ctx.Err() == nil {
			return s.fail(err)
		}
	}
	return code
}

// A target is a file that receives a command's output.
type target struct {
	redirect
	mu      sync.Mutex // both streams may go to it
	content bytes.Buffer
	over    bool
}

// Write implements io.Writer.
func (t *target) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.content.Len()+len(p) > maxRedirected {
		t.over = true
		return 0, errTooMuch
	}
	return t.content.Write(p)
}

func (t *target) save(view *workspace.View) error {
	if t.over {
		return tool.Errorf(tool.CodeInvalidInput, "%s was not written: %w", t.path, errTooMuch)
	}
	if !t.append {
		return view.Write(t.path, t.content.Bytes(), workspace.WriteOptions{})
	}
	err := view.Edit(t.path, maxRedirected, func(old []byte) ([]byte, error) {
		return append(bytes.Clone(old), t.content.Bytes()...), nil
	})
	if tool.CodeOf(err) == tool.CodeNotFound {
		return view.Write(t.path, t.content.Bytes(), workspace.WriteOptions{})
	}
	return err
}
