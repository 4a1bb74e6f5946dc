package run

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"sync"

	"toolpost/config/offlimits"
	"toolpost/host/process"
	"toolpost/host/sandbox"
	"toolpost/host/walls"
	"toolpost/tool"
)

// A language runs programs, each in a clean process of a warm interpreter.
type language struct {
	t       *Tools
	name    string
	program string // the interpreter
	setting string // of the config, that names the interpreter
	open    func(*interpreter) pool

	mu     sync.Mutex
	pools  map[int]pool // by the depth of the calls
	closed bool
}

// An interpreter is the program that runs programs, as it can be started behind walls.
type interpreter struct {
	path   string
	around *walls.Walls
}

// A pool keeps processes of an interpreter warm.
type pool interface {
	take(ctx context.Context) (worker, error)
	Workers() tool.Workers
	close(ctx context.Context) error
}

// A worker runs one program, and then returns to its pool.
type worker interface {
	run(ctx context.Context, p *program) (ending, error)
}

// An ending is the outcome of one run of a program.
type ending struct {
	said   *said  // its final message; nil if it ended without one
	broken error  // why its channel was cut off
	exit   string // how its process ended, in words; empty if normally
	why    string // why it ended, if a limit of its walls was the reason
	layers []string
	checks []walls.Check
	again  bool // nothing was run, and another worker may be tried
}

// get returns a worker for a call of this depth. Each depth has its own workers: a program that waits for another that it
// has called holds its worker, and if all did so, none would get another. Waiting for a worker, and starting it, does not
// count as the program's time.
func (l *language) get(ctx context.Context, depth int) (worker, error) {
	defer tool.Waiting(ctx)()
	p, err := l.pool(ctx, depth)
	if err != nil {
		return nil, err
	}
	w, err := p.take(ctx)
	switch {
	case ctx.Err() != nil:
		return nil, tool.Ended(ctx)
	case err != nil:
		return nil, tool.AsError(err)
	}
	return w, nil
}

func (l *language) pool(ctx context.Context, depth int) (pool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return nil, tool.Errorf(tool.CodeUnavailable, "%s has been shut down", l.name)
	case l.pools[depth] != nil:
		return l.pools[depth], nil
	}
	i, err := l.find(ctx)
	if err != nil {
		return nil, err
	}
	if l.pools == nil {
		l.pools = map[int]pool{}
	}
	l.pools[depth] = l.open(i)
	return l.pools[depth], nil
}

// find finds the interpreter, and what it needs to run.
func (l *language) find(ctx context.Context) (*interpreter, error) {
	name := l.program
	if strings.Contains(name, "/") {
		name = offlimits.Under(l.t.Dir, name)
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return nil, tool.Errorf(tool.CodeUnavailable, "%s runs no %s: %s cannot be run; install it, or name another one "+
			"with `code: {run: {%s: ...}}` of its source, or write the program in another language: %w", Name, l.name, name,
			l.setting, err).Because("no_interpreter")
	}
	argv, code, err := walls.Find(ctx, []string{path}, l.t.Dir, process.Environment(nil, nil))
	if err != nil {
		return nil, err
	}
	around, err := l.t.walls(code)
	if err != nil {
		return nil, err
	}
	return &interpreter{argv[0], around}, nil
}

// confine returns the walls of a program, and of its interpreter before it. They do not have /proc either.
func (i *interpreter) confine(watch *walls.Watch) (*sandbox.Confinement, error) {
	c, err := i.around.Confine(Name, guarantees(), watch)
	if err != nil {
		return nil, err
	}
	c.Proc, c.Name = sandbox.ProcNone, "tp:"+Name
	return c, nil
}

func (l *language) all() []pool {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []pool
	for _, p := range l.pools {
		all = append(all, p)
	}
	return all
}

func (l *language) workers() (n tool.Workers) {
	for _, p := range l.all() {
		n = n.Plus(p.Workers())
	}
	return n
}

func (l *language) close(ctx context.Context) error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	var errs []error
	for _, p := range l.all() {
		errs = append(errs, p.close(ctx))
	}
	return errors.Join(errs...)
}

// follow attributes blocked attempts to a program from now on.
func follow(watch *walls.Watch, p *program) {
	watch.Follow(p.events, walls.Sources(guarantees(), guarantees()))
}
