package process

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Marker is the one variable that Start adds to a child's environment. Its value names the tree, and
// whatever the child starts inherits it.
const Marker = "TOOLPOST_TREE"

// Start starts a child in a session of its own. The error of a failed start explains itself: which
// path, what is wrong with it (missing, a folder, not executable, a missing interpreter, a foreign
// binary), and what to do.
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
	closeAll(p.theirs[:])
	if err != nil {
		closeAll(p.ours[:])
		return nil, Diagnose(cmd.Argv, cmd.Dir, err)
	}
	c.stderr = newStderr(p.ours[2], cmd.Stderr, cmd.StderrLimit)
	go c.watch()
	return c, nil
}

// Run runs a command to its end, with nothing on its standard input. It gives what the command wrote, at most max bytes,
// how it ended, and that in words; an error: it did not start, wrote more, or did not end before ctx did.
func Run(ctx context.Context, cmd Command, max int) (out []byte, exit Exit, words string, err error) {
	child, err := Start(cmd)
	if err != nil {
		return nil, exit, "", err
	}
	defer child.Close()
	child.CloseStdin()
	stop := context.AfterFunc(ctx, func() { child.Kill() })
	defer stop()
	if out, err = ReadDocument(child.Stdout, max); err != nil && ctx.Err() == nil {
		return nil, exit, "", err
	}
	if exit = child.Wait(); ctx.Err() != nil {
		return nil, exit, "", context.Cause(ctx)
	}
	return out, exit, child.Describe(exit), nil
}

// lookup finds the program. One that runs in a root of its own is looked for there, when its room is built.
func (cmd Command) lookup() (string, error) {
	switch {
	case len(cmd.Argv) == 0:
		return "", errors.New("no program")
	case strings.Contains(cmd.Argv[0], "/"), cmd.Confine != nil && cmd.Confine.Root != "":
		return cmd.Argv[0], nil
	}
	return exec.LookPath(cmd.Argv[0])
}

// environment is env with the marker, and never with somebody else's.
func environment(env []string, marker string) []string {
	all := slices.DeleteFunc(slices.Clone(env), func(v string) bool { return strings.HasPrefix(v, Marker+"=") })
	return append(all, Marker+"="+marker)
}

// Environment builds what a tool gets to see of the environment: PATH, HOME, LANG and TMPDIR as we have
// them, the variables named by pass, and those given by set, which win. Our own environment may hold
// secrets of others, so nothing else is passed on.
func Environment(set map[string]string, pass []string) []string {
	var env []string
	for _, name := range append([]string{"PATH", "HOME", "LANG", "TMPDIR"}, pass...) {
		value, have := os.LookupEnv(name)
		if _, given := set[name]; have && !given {
			env = append(env, name+"="+value)
		}
	}
	for name, value := range set {
		env = append(env, name+"="+value)
	}
	slices.Sort(env)
	return slices.Compact(env)
}

// pipes are the two sides of standard input, output and error.
type pipes struct{ ours, theirs [3]*os.File }

func newPipes() (p pipes, err error) {
	for i := range p.ours {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(p.ours[:i])
			closeAll(p.theirs[:i])
			return p, err
		}
		if p.ours[i], p.theirs[i] = r, w; i == 0 {
			p.ours[i], p.theirs[i] = w, r
		}
	}
	return p, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// awaitExit waits until the process of a pidfd has exited, all threads of it, and leaves it a zombie.
func awaitExit(pidfd *os.File) {
	conn, err := pidfd.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Read(func(fd uintptr) bool {
		n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0
	})
}
