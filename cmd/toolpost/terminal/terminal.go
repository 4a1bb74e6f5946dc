// Package terminal talks to the person at a terminal: it reads what the person types, and can take the whole screen.
package terminal

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"toolpost/kernel"
	"toolpost/tool"
)

// set changes the mode of a terminal until restore is called. The error is a *tool.Error if the terminal refuses, and
// another one if the file is no terminal.
func set(f *os.File, change func(*unix.Termios)) (restore func(), err error) {
	was, err := unix.IoctlGetTermios(int(f.Fd()), kernel.TermGet)
	if err != nil {
		return nil, err
	}
	now := *was
	change(&now)
	if err := unix.IoctlSetTermios(int(f.Fd()), kernel.TermSetLater, &now); err != nil {
		return nil, tool.Errorf(tool.CodeUnavailable, "the mode of the terminal cannot be changed: %w", err)
	}
	return func() { _ = unix.IoctlSetTermios(int(f.Fd()), kernel.TermSet, was) }, nil
}

// A Reader reads lines that a person types. A read cannot be interrupted, so a goroutine of its own reads; it ends with the
// program.
type Reader struct {
	in     *os.File
	prompt io.Writer // nil for a script, whose author does not look
	lines  chan string
	next   chan struct{}
	due    bool  // a line was asked for, and not taken yet: its question is over
	err    error // why there are no more lines
}

// NewReader reads lines from in on request, and prompts for them unless prompt is nil.
func NewReader(in *os.File, prompt io.Writer) *Reader {
	r := &Reader{in: in, prompt: prompt, lines: make(chan string), next: make(chan struct{})}
	go func() {
		buffer := bufio.NewReader(in)
		for range r.next {
			line, err := buffer.ReadString('\n')
			if err != nil && line == "" {
				r.err = err
				close(r.lines)
				return
			}
			r.lines <- strings.TrimRight(line, "\r\n")
		}
	}()
	return r
}

// ErrNotAnswered is the end of the input: the person does not answer.
var ErrNotAnswered = tool.Errorf(tool.CodeCancelled, "the question was not answered").Because("not_answered")

// Fresh drops what was typed already: it was not meant for the next question.
func (r *Reader) Fresh() {
	select {
	case _, ok := <-r.lines:
		r.due = !ok // at the end there is nothing to ask for
	default:
	}
	if now, err := unix.IoctlGetTermios(int(r.in.Fd()), kernel.TermGet); err == nil {
		_ = unix.IoctlSetTermios(int(r.in.Fd()), kernel.TermSetFresh, now)
	}
}

// Line reads a line.
func (r *Reader) Line(ctx context.Context) (string, error) { return r.answer(ctx, "> ") }

// Agreed asks for consent. Only y and yes give it.
func (r *Reader) Agreed(ctx context.Context, question string) (bool, error) {
	line, err := r.answer(ctx, question+"? [y/N] ")
	if errors.Is(err, ErrNotAnswered) {
		return false, nil
	}
	return slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(line))), err
}

// answer reads the line that answers a prompt.
func (r *Reader) answer(ctx context.Context, prompt string) (string, error) {
	r.show(prompt)
	if !r.due {
		select {
		case r.next <- struct{}{}:
			r.due = true
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
	select {
	case line, ok := <-r.lines:
		if ok {
			r.due = false
			return line, nil
		}
		r.show("\n")
		if !errors.Is(r.err, io.EOF) {
			return "", tool.Errorf(tool.CodeCancelled, "the answer cannot be read: %w", r.err)
		}
		return "", ErrNotAnswered
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

func (r *Reader) show(text string) {
	if r.prompt != nil {
		fmt.Fprint(r.prompt, text)
	}
}

// Secret reads a line without echo.
func (r *Reader) Secret(ctx context.Context) (string, error) {
	restore, err := set(r.in, func(t *unix.Termios) {
		t.Lflag &^= unix.ECHO
		t.Lflag |= unix.ICANON | unix.ISIG
	})
	if err != nil {
		return "", tool.Errorf(tool.CodeUnavailable, "the terminal cannot be made to hide what is typed: %w", err)
	}
	defer r.show("\n")
	defer restore()
	return r.Line(ctx)
}

// Enter and Leave are escape sequences: keep the terminal's content for later and hide the cursor, and the reverse.
const (
	Enter = "\x1b[?1049h\x1b[?25l\x1b[2J"
	Leave = "\x1b[?25h\x1b[?1049l"
)

// Full takes over the terminal, until quit restores it. It calls draw when the size of the terminal changes. The context
// that it returns ends when the person types q. If in is a terminal, it delivers keys one by one, without echo; Ctrl-C
// keeps its meaning.
func Full(ctx context.Context, in io.Reader, out io.Writer, draw func() error) (_ context.Context, quit func(), err error) {
	restore := func() {}
	keys, ok := in.(*os.File)
	if ok {
		// A read gives up after a tenth of a second, so that no goroutine is left reading at the end.
		single, err := set(keys, func(t *unix.Termios) {
			t.Lflag &^= unix.ECHO | unix.ICANON
			t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 0, 1
		})
		if refused, is := errors.AsType[*tool.Error](err); is {
			return nil, nil, refused
		}
		if ok = err == nil; ok {
			restore = single
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	var tasks sync.WaitGroup
	if ok {
		tasks.Go(func() { waitForQ(ctx, keys, cancel) })
	}
	tasks.Go(func() {
		for {
			select {
			case <-resized:
				_ = draw()
			case <-ctx.Done():
				return
			}
		}
	})
	fmt.Fprint(out, Enter)
	return ctx, func() {
		cancel()
		signal.Stop(resized)
		tasks.Wait()
		fmt.Fprint(out, Leave)
		restore()
	}, nil
}

// waitForQ calls cancel when the user types q, or the terminal is gone.
func waitForQ(ctx context.Context, keys *os.File, cancel func()) {
	buf := make([]byte, 16)
	for ctx.Err() == nil {
		n, err := keys.Read(buf)
		if slices.Contains(buf[:n], 'q') || err != nil && !errors.Is(err, io.EOF) { // EOF: no key within the time
			cancel()
		}
	}
}

// Draw shows lines on the whole screen. It overwrites the old content and does not erase it first, which would flicker.
func Draw(out io.Writer, lines []string) error {
	_, err := io.WriteString(out, "\x1b[H"+strings.Join(lines, "\x1b[K\n")+"\x1b[K\x1b[J")
	return err
}
