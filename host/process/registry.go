package process

import (
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"toolpost/host/sandbox"
)

// ours is the one registry of this program. It is package-level state because it mirrors such state: the kernel keeps one
// list of children for each process.
var ours = &registry{
	proc:    "/proc",
	leaders: map[int]*Child{},
	marked:  map[string]*Child{},
}

// A registry knows the children that Start started, the leaders. So it can distinguish the processes that they left
// behind from the children of other code in this program.
type registry struct {
	proc  procfs
	once  sync.Once
	unfit error // why this machine cannot run children, if so

	// mu is held while a leader is started, while one is reaped, and while the table is read and acted upon. So a reader
	// of the table meets no half-started leader, and no entry vanishes during the reading: it sees every process that
	// existed when the reading began, alive or as a zombie.
	mu      sync.Mutex
	leaders map[int]*Child    // by pid; a leader's pid is taken until it is reaped
	marked  map[string]*Child // by marker

	starting sync.Mutex // guards users and starter
	users    int
	starter  *starter
}

// start starts a leader and registers it.
func (r *registry) start(path string, cmd Command, attr *os.ProcAttr, c *Child) error {
	if r.once.Do(r.adopt); r.unfit != nil {
		return r.unfit
	}
	starter := r.hold()
	var err error
	if cmd.Confine == nil {
		err = starter.do(func() error { return r.plain(path, cmd.Argv, attr, c) })
	} else {
		err = r.confined(path, cmd, attr, c)
	}
	if err != nil {
		r.release()
	}
	return err
}

// register makes a process a leader, with a handle that reports its exit. The caller holds mu.
func (r *registry) register(c *Child, proc *os.Process, handle *os.File) {
	c.proc, c.handle = proc, handle
	r.leaders[proc.Pid], r.marked[c.marker] = c, c
}

// confined starts a child in a sandbox. It is our child like any other; its orphans go to the sandbox's init. It is
// registered before it leaves our session, so that it is never taken for a stray, and no other start has to wait while
// its sandbox is built.
func (r *registry) confined(path string, cmd Command, attr *os.ProcAttr, c *Child) error {
	born := func(pid int) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		handle, err := openHandle(pid)
		if err != nil {
			return err
		}
		proc, err := os.FindProcess(pid)
		if err != nil {
			_ = handle.Close()
			return err
		}
		r.register(c, proc, handle)
		return nil
	}
	spawn := sandbox.Spawn{
		Path: path, Argv: cmd.Argv, Dir: cmd.Dir, Env: attr.Env, Files: attr.Files, Look: cmd.Look, Born: born,
		Confinement: *cmd.Confine,
	}
	room, err := sandbox.Start(spawn)
	// An editor has just replaced a file such as the config. On a busy machine the next attempt may meet the next save.
	for try := 1; try < 5 && sandbox.Moved(err); try++ {
		r.forget(c)
		room, err = sandbox.Start(spawn)
	}
	if err != nil {
		r.forget(c)
		return err
	}
	c.room, c.window = room, room.Window
	return nil
}

// forget removes the registration of a child that was not started after all, and is reaped.
func (r *registry) forget(c *Child) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.proc != nil {
		delete(r.leaders, c.proc.Pid)
		delete(r.marked, c.marker)
		_ = c.proc.Release()
		_ = c.handle.Close()
		c.proc, c.handle = nil, nil
	}
}

// reap takes the exit status of a leader that has exited and forgets it.
func (r *registry) reap(c *Child) Exit {
	r.mu.Lock()
	state, err := c.proc.Wait()
	delete(r.leaders, c.proc.Pid)
	delete(r.marked, c.marker)
	r.mu.Unlock()
	r.release()
	if err != nil { // it was reaped elsewhere, which no code in this program may do
		return Exit{Code: -1}
	}
	status := state.Sys().(syscall.WaitStatus)
	e := Exit{Code: status.ExitStatus()} // -1 when a signal ended it
	if status.Signaled() {
		e.Signal = status.Signal()
	}
	return e
}

// signal sends a signal to a leader's process group: all descendants that did not leave it. The group's id is the
// leader's pid, which cannot be reused before the leader is reaped.
func (r *registry) signal(c *Child, sig syscall.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leaders[c.proc.Pid] == c {
		_ = unix.Kill(-c.proc.Pid, sig)
	}
}

// hold returns the starter, which lives until release has been called as often as hold.
func (r *registry) hold() *starter {
	r.starting.Lock()
	defer r.starting.Unlock()
	if r.users++; r.users == 1 {
		r.starter = &starter{jobs: make(chan func()), done: make(chan struct{})}
		go r.starter.run(r.reapOrphans)
	}
	return r.starter
}

func (r *registry) release() {
	r.starting.Lock()
	defer r.starting.Unlock()
	if r.users--; r.users == 0 {
		close(r.starter.jobs)
		<-r.starter.done
	}
}

// A starter is a goroutine that stays on one thread while there are leaders. They are started on that thread because the
// kernel ends a child with Pdeathsig when the thread that started it ends, and any other thread may end. The starter also
// reaps orphans as they die.
type starter struct {
	jobs chan func() // closed when it is over
	done chan struct{}
}

// do runs f on the starter's thread.
func (s *starter) do(f func() error) error {
	result := make(chan error, 1)
	s.jobs <- func() { result <- f() }
	return <-result
}

// reapDelay combines many deaths into one reading of the table. A zombie costs next to nothing.
const reapDelay = 100 * time.Millisecond

func (s *starter) run(reapOrphans func()) {
	defer close(s.done)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	deaths := make(chan os.Signal, 1)
	signal.Notify(deaths, syscall.SIGCHLD)
	defer signal.Stop(deaths)
	var due <-chan time.Time
	for {
		select {
		case job, ok := <-s.jobs:
			if !ok {
				return
			}
			job()
		case <-deaths:
			if due == nil {
				due = time.After(reapDelay)
			}
		case <-due:
			due = nil
			reapOrphans()
		}
	}
}
