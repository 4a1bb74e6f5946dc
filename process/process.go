// Package process runs children: it starts them with exactly what they were given, reads what they
// say within bounds, keeps warm ones in pools, and ends whole trees of them.
package process

import (
	"io"
	"os"
	"syscall"
	"time"
)

// A Command says what to start. Nothing is inherited: not the environment, not a descriptor, not the
// terminal.
type Command struct {
	Argv  []string   // the program and its arguments; a program without a slash is looked up on our PATH
	Dir   string     // working folder; empty: ours
	Env   []string   // the whole environment, NAME=value
	Files []*os.File // become descriptors 3, 4, ... of the child; the caller keeps and closes its own

	// Stderr is called for every line of the child's standard error, in order, from one goroutine. It
	// may block: the child then waits. Nil: only the tail is kept.
	Stderr func(line []byte)
	// StderrLimit is how many bytes are handed to Stderr at the most; what comes after is only kept as
	// the tail. 0: 1 MiB.
	StderrLimit int
}

// A Child is a started process and everything that it starts in turn.
type Child struct {
	Stdin  *os.File // write end of a pipe; see Feed and CloseStdin
	Stdout *os.File // read end of a pipe
}

// Start starts a child in a session of its own. The error of a failed start explains itself: which
// path, what is wrong with it (missing, a folder, not executable, a missing interpreter, a foreign
// binary), and what to do.
func Start(cmd Command) (*Child, error) { panic("todo") }

// Pid is the child's process id.
func (c *Child) Pid() int { panic("todo") }

// Feed writes data to the child's standard input and closes it, in the background. A child that does
// not read it is not an error.
func (c *Child) Feed(data []byte) { panic("todo") }

// CloseStdin closes the child's standard input. It may be called twice.
func (c *Child) CloseStdin() { panic("todo") }

// Exited is closed when the child itself has exited; processes that it left may still run until Wait,
// Stop or Kill.
func (c *Child) Exited() <-chan struct{} { panic("todo") }

// Tail is the end of what the child wrote to standard error, at most 4 KiB of valid UTF-8.
func (c *Child) Tail() string { panic("todo") }

// Wait waits until the child has exited, then ends everything that it left behind, and tells how it ended.
func (c *Child) Wait() Exit { panic("todo") }

// Stop is the ladder: close stdin, wait; SIGTERM to the group, wait; SIGKILL to the whole tree.
func (c *Child) Stop(l Ladder) Exit { panic("todo") }

// Kill ends the whole tree at once.
func (c *Child) Kill() Exit { panic("todo") }

// Sweep ends everything that the child started and leaves the child itself alone: what a warm worker
// gets between two calls.
func (c *Child) Sweep() { panic("todo") }

// A Ladder says how long Stop waits on each step.
type Ladder struct {
	Stdin time.Duration // after stdin was closed; 0: this step is skipped
	Term  time.Duration // after SIGTERM; 0: this step is skipped
}

// An Exit tells how a child ended.
type Exit struct {
	Code   int            // -1 when a signal ended it
	Signal syscall.Signal // 0 when it exited by itself
}

// String says it in words: "exit status 3", "killed by SIGSEGV (segmentation fault)".
func (e Exit) String() string { panic("todo") }

// Lines reads newline-terminated lines within bounds.
type Lines struct{}

// LineLimits bounds what Lines reads.
type LineLimits struct {
	Line  int   // bytes of one line; 0: 4 MiB
	Total int64 // bytes of all lines; 0: no limit
}

// NewLines reads lines from r.
func NewLines(r io.Reader, l LineLimits) *Lines { panic("todo") }

// Next gives the next line without its newline, valid until the next call. A last line without a newline
// comes with io.ErrUnexpectedEOF; the clean end is io.EOF; a bound that was exceeded is a *LimitError.
func (l *Lines) Next() ([]byte, error) { panic("todo") }

// Number is the number of the line that Next returned last, from 1.
func (l *Lines) Number() int { panic("todo") }

// ReadDocument reads r to its end, at most max bytes; beyond that the error is a *LimitError.
func ReadDocument(r io.Reader, max int) ([]byte, error) { panic("todo") }

// A LimitError says which bound was exceeded: "line 7 is longer than 4194304 bytes".
type LimitError struct {
	What string // "line 7", "the output", "the document"
	Max  int64
}

func (e *LimitError) Error() string { panic("todo") }
