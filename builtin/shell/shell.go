// Package shell brings the built-in tool execShell, which runs one program with its arguments and never a shell, and
// runLine, which runs a line of commands that were each judged beforehand.
//
// A list of names is not a boundary: git, find and tar run whatever their arguments name. So every word of a command that
// could name a file is judged as that file, the options that run other programs are refused, and the walls around the
// command hold for what no word says. Programs that are not known are refused, and the error names the setting that would
// allow them.
package shell

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"toolpost/builtin/define"
	"toolpost/config/offlimits"
	"toolpost/host/process"
	"toolpost/host/walls"
	"toolpost/host/workspace"
	"toolpost/tool"
)

// Tools runs commands in a workspace.
type Tools struct {
	define.PathSet
	base string // the folder of the config
	ws   *workspace.Workspace
	o    Options
	path []string

	mu    sync.Mutex
	state string // a folder of our own, created on first use
}

// New makes the tools, for a config in the folder base. They do not own the workspace.
func New(base string, ws *workspace.Workspace, o Options) (*Tools, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	t := &Tools{base: base, ws: ws, o: o.withDefaults(), path: searchPath(o.Path, ws.Roots())}
	tools, err := t.tools()
	if err != nil {
		return nil, err
	}
	t.Set = define.NewSet(tools...)
	return t, nil
}

// Close implements tool.Runner.
func (t *Tools) Close(context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state == "" {
		return nil
	}
	return process.RemoveTree(t.state)
}

func (t *Tools) stateDir() (dir string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state == "" {
		t.state, err = process.TempDir("shell")
	}
	return t.state, err
}

// carryOut runs a plan.
func (t *Tools) carryOut(ctx context.Context, c *define.Call, p *plan) (result, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	late := tool.Errorf(tool.CodeTimeout,
		"%s did not end within %v; it was ended with everything that it had started; `shell: {timeout: ...}` of its "+
			"source gives it more, and timeout_ms asks for less", p.shown, p.timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, p.timeout, late)
	defer cancel()
	events := tool.NewRelay(c.Out, stop)
	defer events.Close()
	switch g := c.Tightened(tool.Guarantees{}); { // walls would not hold them: a command runs in its folder, and we write its output
	case g.NoFilesystemRead:
		return result{}, walls.Blocked(c.Call, "no_filesystem_read")
	case g.NoFilesystemWrite && p.saves():
		return result{}, walls.Blocked(c.Call, "no_filesystem_write")
	}
	work, err := t.workplace(c.Caller.ID)
	if err != nil {
		return result{}, tool.Errorf(tool.CodeUnavailable, "no folder could be made for %s to work in: %w", p.shown, err)
	}
	defer func() { _ = process.RemoveTree(work.dir) }()
	s := &session{
		Tools: t, ctx: ctx, stop: stop, view: t.ws.View(c.Call), work: work, env: p.env,
		output: newOutput(events, t.o.MaxOutput),
	}
	if err := s.confine(c.Call, events); err != nil {
		return result{}, err
	}
	code := s.do(p.node, p.stdin, s.stdout, s.stderr)
	switch {
	case events.Err() != nil:
		return result{}, events.Err()
	case ctx.Err() != nil:
		return result{}, context.Cause(ctx)
	}
	c.Details = map[string]any{}
	walls.Enforced(c.Call, c.Details, s.guarantees, s.layers, s.watch.Checks())
	if blocked := s.watch.Blocked(); code != 0 && len(blocked) > 0 { // a failing command is a result, not an error
		c.Summary = fmt.Sprintf("exit status %d%s", code, walls.Hint(c.Spec, blocked, ""))
	}
	return s.result(code), nil
}

// timeout returns the timeout of a call: the caller's, within the config's limit.
func (t *Tools) timeout(ms int64) (time.Duration, error) {
	most := time.Duration(t.o.Timeout)
	switch {
	case ms < 0:
		return 0, tool.Errorf(tool.CodeInvalidInput, "timeout_ms is %d; give a number of milliseconds", ms)
	case ms == 0 || ms > most.Milliseconds():
		return most, nil
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// A workplace holds the folders of one call.
type workplace struct {
	dir, home, tmp, cache, gitconfig, gitignore string
	ceilings                                    []string // folders above the roots, which git does not look into
}

// gitIdentity is the committer if a repository does not name one.
const gitIdentity = "[user]\n\tname = Toolpost\n\temail = toolpost@localhost\n"

func (t *Tools) workplace(caller string) (*workplace, error) {
	state, err := t.stateDir()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(state, "call-")
	if err != nil {
		return nil, err
	}
	w := &workplace{
		dir: dir, home: filepath.Join(dir, "home"), tmp: filepath.Join(dir, "tmp"),
		gitconfig: filepath.Join(dir, "gitconfig"), gitignore: filepath.Join(dir, "gitignore"),
		cache: filepath.Join(state, fmt.Sprintf("cache-%.8x", sha256.Sum256([]byte(caller)))),
	}
	roots := t.ws.Roots()
	for _, r := range roots {
		above := filepath.Dir(r.Dir)
		if !slices.ContainsFunc(roots, func(o workspace.Root) bool { return offlimits.Within(above, o.Dir) }) {
			w.ceilings = append(w.ceilings, above)
		}
	}
	return w, errors.Join(os.Mkdir(w.home, 0o700), os.Mkdir(w.tmp, 0o700), os.MkdirAll(w.cache, 0o700),
		os.WriteFile(w.gitconfig, []byte(gitIdentity+"[core]\n\texcludesFile = "+w.gitignore+"\n"), 0o600))
}
