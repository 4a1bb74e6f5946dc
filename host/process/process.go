// Package process runs child processes. It starts them with an explicit environment and set of files, reads their output
// within bounds, keeps warm ones in pools, and ends whole process trees.
//
// The program that uses it becomes a "child subreaper": it is the parent of every process that its children leave behind,
// and ends and reaps those. Children that other code starts with os/exec are left alone as long as they stay in the
// program's own session.
package process

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"toolpost/config/offlimits"
	"toolpost/host/sandbox"
	"toolpost/kernel"
	"toolpost/tool"
	"toolpost/wire/bounded"
	"toolpost/wire/regex"
)

// A Command describes a process to start. The process inherits nothing: no environment, no descriptor, no terminal.
type Command struct {
	Argv  []string   // the program and its arguments; a program without a slash is looked up on our PATH
	Dir   string     // working folder; empty means ours. A relative program with a slash starts from here
	Env   []string   // the whole environment, NAME=value; only Marker is added to it
	Files []*os.File // become descriptors 3, 4, ... of the child; the caller keeps and closes its own

	// Claim is a text that appears only on the command lines of this child's own daemons, such as the name of a container
	// on that of its monitor. These daemons belong to the child's tree although they keep nothing of the environment that
	// they were started with. Empty if there are none.
	Claim string
	// End, if not nil, is called once when the child is ended, before the kill if it has not exited by itself. It is for
	// a command that is only the client of what it started, such as docker run. The files of such a command are not on
	// this machine, so Child.Open opens none.
	End func(killed bool)

	// Confine puts the child, and everything that it starts, in a sandbox. Nil means no sandbox.
	Confine *sandbox.Confinement

	// Look keeps the files of a confined child accessible to Child.Open until Close.
	Look bool

	// Stderr is called for every line of the child's standard error, in order, from one goroutine. The line is valid
	// UTF-8 without its line end, and may be used until Stderr returns. A line longer than 8 KiB comes in pieces. Stderr
	// may block: the child then waits. It is not called after Wait, Stop or Kill has returned; these wait for it a short
	// while. If nil, only the tail is kept.
	Stderr func(line []byte)
	// StderrLimit is the maximum number of bytes passed to Stderr, by default 1 MiB. Later output is kept only as the
	// tail.
	StderrLimit int
	// Redraws makes a carriage return end a line of standard error too, for programs that redraw their progress. Empty
	// lines are then left out.
	Redraws bool
}

// A Child is a started process together with all its descendants. The caller of Start must call Wait, Stop, Kill or Close
// in the end. All methods may be called more than once and from several goroutines.
type Child struct {
	Stdin *os.File // write end of a pipe; see Feed and CloseStdin

	// Stdout is the read end of a pipe and belongs to the reader. Wait, Stop and Kill leave it open: the rest of the
	// child's output can still be read, followed by EOF, since every process that held the other end is dead. (If the
	// child passed its end to a process outside its tree, a read after Stop or Kill returns os.ErrDeadlineExceeded after
	// a while.) Close closes it.
	Stdout *os.File

	marker string
	claim  string
	end    func(killed bool) // see Command.End
	proc   *os.Process
	handle *os.File // reports when it exits
	stderr *stderr
	room   *sandbox.Confined // nil if it is not confined
	window *sandbox.Window   // for Open; nil if it was started without Look, or is closed

	mu     sync.Mutex
	over   bool // nothing more is fed
	feeder sync.WaitGroup

	exited  chan struct{} // closed by watch: the child itself has exited
	settled chan struct{} // closed by settle: the tree is ended, the child may be reaped
	reaped  chan struct{} // closed by watch: status is known
	status  Exit
	reached []sandbox.Violation // the limits of its sandbox that it reached; set together with status
	killed  atomic.Bool         // it did not exit before we killed it
	settle  func() Exit
}

// Limits shared by the children of all protocols.
const (
	// for a child to exit by itself after SIGTERM or the end of its input
	LastBreath = 500 * time.Millisecond
	// bytes of standard error of a child that serves many calls, over its whole life
	LifeLog = 64 << 20
)

const (
	drainTime = 2 * time.Second // for the last of standard error, once no writer is left
	reapTime  = 5 * time.Second // for a killed child to exit
	readTime  = 5 * time.Second // for the reader of Stdout after Stop and Kill
)

// Pid returns the child's process id.
func (c *Child) Pid() int { return c.proc.Pid }

// Feed writes data to the child's standard input and closes it, in the background. A child that does not read its input
// is not an error. Data must not be changed before the child has ended.
func (c *Child) Feed(data []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return
	}
	c.feeder.Go(func() {
		_, _ = c.Stdin.Write(data) // ends with an error when the child exits or stdin is closed
		c.CloseStdin()
	})
}

// CloseStdin closes the child's standard input. It may be called twice.
func (c *Child) CloseStdin() { _ = c.Stdin.Close() }

// Exited returns a channel that is closed when the child itself has exited. Processes that it left behind may still run,
// and hold Stdout, until Wait, Stop or Kill.
func (c *Child) Exited() <-chan struct{} { return c.exited }

// Tail returns the end of the child's standard error, at most 4 KiB of valid UTF-8.
func (c *Child) Tail() string { return c.stderr.tail() }

func (c *Child) runs() bool {
	select {
	case <-c.exited:
		return false
	default:
		return true
	}
}

// Wait waits until the child has exited, ends everything that it left behind, and returns how it ended.
func (c *Child) Wait() Exit {
	<-c.exited
	return c.settle()
}

// Stop ends the child in steps: close stdin, wait; SIGTERM to the group, wait; SIGKILL to the whole tree.
func (c *Child) Stop(l Ladder) Exit {
	if l.Stdin > 0 {
		c.CloseStdin()
	}
	if !c.exits(l.Stdin) && l.Term > 0 {
		ours.signal(c, syscall.SIGTERM)
		c.exits(l.Term)
	}
	return c.Kill()
}

// exits reports whether the child exits within the given time.
func (c *Child) exits(within time.Duration) bool {
	if within <= 0 {
		return false
	}
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-c.exited:
		return true
	case <-timer.C:
		return false
	}
}

// Kill ends the whole tree at once.
func (c *Child) Kill() Exit {
	e := c.settle()
	_ = c.Stdout.SetReadDeadline(time.Now().Add(readTime))
	return e
}

// Close is Kill for a caller that has no more to read: it closes Stdout too. It is meant to be deferred.
func (c *Child) Close() {
	c.settle()
	_ = c.Stdout.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.window.Close()
	c.window = nil
}

// Open opens a file named by the child for reading; a relative path starts in its working folder, dir. A confined child
// must have been started with Look: Open then opens only files that the child could have read itself.
func (c *Child) Open(dir, path string) (*os.File, error) {
	switch {
	case c.end != nil:
		return nil, errors.New("it is a file of a container, which cannot be opened from outside")
	case c.room == nil:
		return os.OpenFile(offlimits.Under(dir, path), os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.window == nil {
		return nil, os.ErrClosed
	}
	return c.window.Open(dir, path)
}

// OpenFile is Open for regular files only. It refuses files that the kernel generates for each reader, since they would
// show us more than the child may see. Its errors complete a sentence that begins with the path.
func (c *Child) OpenFile(dir, path string) (*os.File, error) {
	f, err := c.Open(dir, path)
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", tool.WithoutPath(err))
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() || kernel.MadeUp(int(f.Fd())) {
		_ = f.Close()
		return nil, errors.New("is not a regular file")
	}
	return f, nil
}

// Sweep ends everything that the child started but not the child itself. A warm worker is swept between two calls.
func (c *Child) Sweep() {
	if c.room == nil || !c.room.Alone() { // no process can leave a sandbox, so the kernel's count is complete
		ours.end(c)
	}
}

// finish does the work of settle, once: it ends the tree, then our own goroutines that served it.
func (c *Child) finish() Exit {
	if c.runs() {
		c.killed.Store(true)
	}
	if c.end != nil {
		c.end(c.killed.Load())
	}
	ours.signal(c, syscall.SIGKILL)
	c.exits(reapTime)
	c.endRest()
	c.stopFeeding()
	c.stderr.stop(drainTime)
	close(c.settled)
	select {
	case <-c.reaped:
		return c.status
	case <-time.After(reapTime): // stuck in the kernel; watch reaps it when it comes out
		return Exit{Code: -1, Signal: syscall.SIGKILL}
	}
}

// endRest ends the processes that the child left. No process can leave a sandbox, and one with an init process ends all
// at once when the init is killed; watch waits until all of it is gone.
func (c *Child) endRest() {
	if c.room != nil && c.room.Init != 0 {
		c.room.Kill()
		return
	}
	ours.end(c)
}

func (c *Child) stopFeeding() {
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
	c.CloseStdin()
	c.feeder.Wait()
}

// watch owns the child as the kernel knows it. The child stays a zombie until its tree is ended, so that its pid, which
// is also the id of its group and session, is not reused before that.
func (c *Child) watch() {
	awaitExit(c.handle)
	close(c.exited)
	<-c.settled
	_ = c.handle.Close()
	c.status = ours.reap(c)
	if c.room != nil {
		c.reached = c.room.Reached()
		c.room.End()
	}
	close(c.reaped)
}

// Layers returns the names of the sandbox layers around the child, or none if it is not confined.
func (c *Child) Layers() []string {
	if c.room == nil {
		return nil
	}
	return c.room.Layers
}

// A Ladder sets how long Stop waits on each step.
type Ladder struct {
	Stdin time.Duration // after stdin was closed; 0 skips this step
	Term  time.Duration // after SIGTERM; 0 skips this step
}

// Marker is the one variable that Start adds to a child's environment. Its value identifies the tree, and all descendants
// of the child inherit it.
const Marker = "TOOLPOST_TREE"

// Start starts a child in a session of its own. The error of a failed start explains the cause: which path, what is wrong
// with it (missing, a folder, not executable, a missing interpreter, a foreign binary), and what to do.
func Start(cmd Command) (*Child, error) {
	path, err := cmd.lookup()
	if err != nil {
		return nil, Diagnose(cmd.Argv, cmd.Dir, err)
	}
	p, err := newPipes()
	if err != nil {
		return nil, Diagnose(cmd.Argv, cmd.Dir, err)
	}
	c := &Child{
		Stdin: p.ours[0], Stdout: p.ours[1], marker: rand.Text(), claim: cmd.Claim, end: cmd.End,
		exited: make(chan struct{}), settled: make(chan struct{}), reaped: make(chan struct{}),
	}
	c.settle = sync.OnceValue(c.finish)
	attr := &os.ProcAttr{Dir: cmd.Dir, Env: environment(cmd.Env, c.marker), Files: append(p.theirs[:], cmd.Files...)}
	err = ours.start(path, cmd, attr, c)
	CloseAll(p.theirs[:])
	if err != nil {
		CloseAll(p.ours[:])
		return nil, Diagnose(cmd.Argv, cmd.Dir, err)
	}
	c.stderr = newStderr(p.ours[2], cmd)
	go c.watch()
	return c, nil
}

// Run runs a command to its end, with empty standard input. It returns the output, at most max bytes, how the command
// ended, and a description of that in words. It fails if the command did not start, wrote more than max, or outlived ctx.
func Run(ctx context.Context, cmd Command, max int) (out []byte, exit Exit, words string, err error) {
	child, err := Start(cmd)
	if err != nil {
		return nil, exit, "", err
	}
	defer child.Close()
	child.CloseStdin()
	stop := context.AfterFunc(ctx, func() { child.Kill() })
	defer stop()
	ended := make(chan Exit, 1)
	go func() { ended <- child.Wait() }() // it ends what the command leaves behind, which may hold its output open
	if out, err = bounded.ReadDocument(child.Stdout, max); err != nil {
		child.Kill()
	}
	exit = <-ended
	switch {
	case ctx.Err() != nil:
		return nil, exit, "", context.Cause(ctx)
	case err != nil:
		return nil, exit, "", err
	}
	return out, exit, child.Describe(exit), nil
}

// lookup finds the program. A program in a root of its own is looked up there, when its sandbox is built.
func (cmd Command) lookup() (string, error) {
	switch {
	case len(cmd.Argv) == 0:
		return "", errors.New("no program")
	case strings.Contains(cmd.Argv[0], "/"), cmd.Confine != nil && cmd.Confine.Root != "":
		return cmd.Argv[0], nil
	}
	return exec.LookPath(cmd.Argv[0])
}

// environment returns env with our marker in place of any other.
func environment(env []string, marker string) []string {
	all := slices.DeleteFunc(slices.Clone(env), func(v string) bool { return strings.HasPrefix(v, Marker+"=") })
	return append(all, Marker+"="+marker)
}

// Environment builds the environment of a tool: PATH, HOME, LANG and TMPDIR from ours, the variables named by pass, and
// those given by set, which win. Our own environment may hold secrets that are not the tool's, so nothing else is passed
// on.
func Environment(set map[string]string, pass []string) []string {
	return Assigned(Variables(set, append([]string{"PATH", "HOME", "LANG", "TMPDIR"}, pass...)))
}

// Variables returns those given by set, which win, and those of our environment named by pass.
func Variables(set map[string]string, pass []string) map[string]string {
	vars := map[string]string{}
	for _, name := range pass {
		if value, ok := os.LookupEnv(name); ok {
			vars[name] = value
		}
	}
	maps.Copy(vars, set)
	return vars
}

// Assigned lists variables as NAME=value, sorted by name.
func Assigned(vars map[string]string) (env []string) {
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		env = append(env, name+"="+vars[name])
	}
	return env
}

// pipes are the two sides of standard input, output and error.
type pipes struct{ ours, theirs [3]*os.File }

func newPipes() (p pipes, err error) {
	for i := range p.ours {
		r, w, err := os.Pipe()
		if err != nil {
			CloseAll(p.ours[:i])
			CloseAll(p.theirs[:i])
			return p, err
		}
		if p.ours[i], p.theirs[i] = r, w; i == 0 {
			p.ours[i], p.theirs[i] = w, r
		}
	}
	return p, nil
}

// CloseAll closes files.
func CloseAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// An Exit describes how a child ended.
type Exit struct {
	Code   int            // -1 when a signal ended it
	Signal syscall.Signal // 0 when it exited by itself
}

// String returns it in words: "exit status 3", "killed by SIGSEGV (segmentation fault)".
func (e Exit) String() string {
	if e.Signal == 0 {
		return fmt.Sprintf("exit status %d", e.Code)
	}
	if name := unix.SignalName(e.Signal); name != "" {
		return fmt.Sprintf("killed by %s (%v)", name, e.Signal)
	}
	return fmt.Sprintf("killed by signal %d", int(e.Signal))
}

var missingLibrary = regex.Lazy(`error while loading shared libraries: ([^:\s]+): cannot open shared object`)

// Describe returns how the child ended and, if known, why, for error messages.
func (c *Child) Describe(e Exit) string {
	select {
	case <-c.reaped:
		if len(c.reached) == 0 {
			break
		}
		var met []string
		for _, l := range c.reached {
			met = append(met, l.Capability+" ("+l.Target+")")
		}
		return fmt.Sprintf("%s: it reached its limit of %s, set by walls.%s", e, // named as a config names it
			strings.Join(met, " and of "), c.reached[0].Capability) + c.LastWords()
	default: // its limits are known once it has ended
	}
	return describe(e, c.Tail(), c.killed.Load())
}

// Reached describes the end of a confined child that reached a limit of its sandbox, or returns "" if none is known. The
// child must have been waited for. The text leaves out the child's output: only the caller knows what must be redacted.
func (c *Child) Reached(e Exit) string {
	said, _, _ := strings.Cut(c.Describe(e), "; the last it wrote")
	if len(c.Layers()) == 0 || !strings.Contains(said, "reached its limit") {
		return ""
	}
	return said
}

func describe(e Exit, tail string, killed bool) string {
	said := e.String()
	switch library := missingLibrary().FindStringSubmatch(tail); {
	case e.Code == 127 && library != nil:
		return said + ": the shared library " + library[1] + " is missing: install the package that brings it"
	case e.Signal == syscall.SIGKILL && killed:
		said += " by toolpost"
	case e.Signal == syscall.SIGKILL:
		said += ", but not by toolpost: the machine may have run out of memory"
	}
	return said + lastWords(tail)
}

// LastWords completes a message with the end of the program's standard error, safe for any terminal and log.
func (c *Child) LastWords() string { return lastWords(c.Tail()) }

func lastWords(tail string) string {
	if last := LastLines(tail); last != "" {
		return "; the last it wrote to stderr: " + last
	}
	return ""
}

// namesError finds the line of a crash that names the error: "TypeError: x", "Error [CODE]: x", "error: x".
var namesError = regex.Lazy(`(?i)\b\w*error\b[^:]{0,60}: `)

// LastLines returns at most three lines and 500 bytes of a text, as one line without control characters. Node prints the
// stack trace below the error: if none of the last three lines names an error, the last line that does is returned
// instead.
func LastLines(text string) string {
	const lines, size = 3, 500
	var last []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(strings.Map(printable, line)); line != "" {
			last = append(last, line)
		}
	}
	from, to := max(0, len(last)-lines), len(last)
	if i := lastNamed(last); 0 <= i && i < from {
		from, to = i, i+1
	}
	joined := strings.Join(last[from:to], " | ")
	if len(joined) > size {
		joined = "..." + strings.ToValidUTF8(joined[len(joined)-size:], "")
	}
	return joined
}

// lastNamed returns the index of the last line that names an error, or -1 if none does.
func lastNamed(lines []string) int {
	for i, line := range slices.Backward(lines) {
		if namesError().MatchString(line) {
			return i
		}
	}
	return -1
}

func printable(r rune) rune {
	switch {
	case r == '\t':
		return ' '
	case unicode.IsPrint(r):
		return r
	}
	return -1
}
