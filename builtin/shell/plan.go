package shell

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"toolpost/config/offlimits"
	"toolpost/host/workspace"
	"toolpost/tool"
)

const (
	maxStdin = 1 << 20
	maxLine  = 16 << 10 // the parser takes a quarter of a second for the worst line of this size
)

// A plan is what a call runs. Judging makes it, and running knows nothing else, so that what was judged is what runs.
type plan struct {
	shown   string // for messages
	node    *node
	stdin   io.Reader
	env     map[string]string
	timeout time.Duration
	folders []*workspace.File // open until the plan ends
}

func (p *plan) close() {
	for _, f := range p.folders {
		f.Close()
	}
}

// A node is a command, or two nodes and the operator between them.
type node struct {
	op   string // "", "&&", "||", ";", "|", "!"
	x, y *node
	*command
}

// A command is a judged command, and the folder in which it starts.
type command struct {
	*verdict
	dir       *workspace.File
	redirects []redirect
}

// saves reports whether the plan redirects output to a file.
func (p *plan) saves() (saves bool) {
	p.node.each(func(c *command) {
		saves = saves || slices.ContainsFunc(c.redirects, func(r redirect) bool { return r.fd != 0 && r.path != "" })
	})
	return saves
}

// touches lists what the plan reads, writes and runs.
func (p *plan) touches() tool.Touches {
	var t tool.Touches
	p.node.each(func(c *command) {
		t.Commands = append(t.Commands, c.argv)
		t.Reads = append(t.Reads, c.reads...)
		t.Writes = append(t.Writes, c.writes...)
	})
	t.Reads = slices.Compact(slices.Sorted(slices.Values(t.Reads)))
	t.Writes = slices.Compact(slices.Sorted(slices.Values(t.Writes)))
	return t
}

func (n *node) each(visit func(*command)) {
	if n == nil {
		return
	}
	if n.command != nil {
		visit(n.command)
	}
	n.x.each(visit)
	n.y.each(visit)
}

// A planner makes the plan of one call.
type planner struct {
	*Tools
	ground place
	plan   *plan
	dir    *workspace.File // start folder of the next command

	commands int // of a line, so far
}

// makePlan makes a plan that starts in a folder and is filled in by a function.
func (t *Tools) makePlan(
	ctx context.Context, c *tool.Call, cwd string, timeoutMS int64, fill func(*planner) (*node, error),
) (*plan, error) {
	timeout, err := t.timeout(timeoutMS)
	if err != nil {
		return nil, err
	}
	p := &planner{Tools: t, ground: place{ctx, t.ws.View(c), c.Scope, cwd == ""}, plan: &plan{timeout: timeout}}
	if err := p.enter(cwd); err != nil {
		return nil, err
	}
	if p.plan.node, err = fill(p); err != nil {
		p.plan.close()
		return nil, err
	}
	return p.plan, nil
}

// enter changes the folder in which the next command starts. A relative path starts at the previous one.
func (p *planner) enter(path string) error {
	p.ground.anywhere = p.ground.anywhere && p.dir == nil
	if p.dir != nil && !filepath.IsAbs(path) {
		path = filepath.Join(p.dir.Abs(), path)
	}
	if means, denied := p.ground.view.Meant(path, false); denied == nil {
		path = means
	}
	dir, err := p.ground.view.WorkDir(path)
	if err != nil {
		return err
	}
	p.plan.folders = append(p.plan.folders, dir)
	p.dir = dir
	return nil
}

func (t *Tools) planCommand(ctx context.Context, c *tool.Call, args execArgs) (*plan, error) {
	if len(args.Stdin) > maxStdin {
		return nil, tool.Errorf(tool.CodeInvalidInput, "stdin has %d bytes; at most %d are taken", len(args.Stdin), maxStdin)
	}
	for name, value := range args.Env {
		if !slices.Contains(t.o.CallerEnv, name) || strings.ContainsRune(value, 0) {
			return nil, tool.Errorf(tool.CodeAccessDenied,
				"the variable %s is not allowed: shell.caller_env of the source names those that are", name)
		}
	}
	if !t.o.mentions(args.Command) { // before any other answer
		return nil, denied(args.Command)
	}
	return t.makePlan(ctx, c, args.Cwd, args.TimeoutMS, func(p *planner) (*node, error) {
		p.plan.shown, p.plan.env, p.plan.stdin = args.Command, args.Env, strings.NewReader(args.Stdin)
		cmd, err := p.command(args.Command, args.Args)
		return &node{command: cmd}, err
	})
}

// command judges a program with its arguments.
func (p *planner) command(name string, args []string) (*command, error) {
	file, err := p.lookup(name)
	if err != nil {
		return nil, err
	}
	v, err := p.o.judge(p.ground, name, file, p.dir.Abs(), args)
	if err != nil {
		return nil, err
	}
	return &command{verdict: v, dir: p.dir}, nil
}

// searchPath returns the folders in which programs are looked up: the configured ones, or those of our own PATH that are not
// world-writable and not in a writable root.
func searchPath(configured []string, roots []workspace.Root) []string {
	if len(configured) > 0 {
		return configured
	}
	var path []string
	for _, folder := range filepath.SplitList(os.Getenv("PATH")) {
		real, err := filepath.EvalSymlinks(folder)
		if err != nil || !filepath.IsAbs(folder) || slices.Contains(path, folder) || writableRoot(roots, real) != "" {
			continue
		}
		if info, err := os.Stat(real); err == nil && info.IsDir() && info.Mode().Perm()&0o002 == 0 {
			path = append(path, folder)
		}
	}
	return path
}

// writableRoot names the writable root that contains a path.
func writableRoot(roots []workspace.Root, real string) string {
	for _, r := range roots {
		if r.Write && offlimits.Within(real, r.Dir) {
			return r.Name
		}
	}
	return ""
}

// lookup finds the file of an allowed program. A program in a place that tools can write is refused: a tool may have written
// it.
func (t *Tools) lookup(name string) (file string, err error) {
	if !t.o.mentions(name) || slices.Contains(t.o.Deny, name) {
		return "", denied(name)
	}
	folders := t.path
	switch {
	case filepath.IsAbs(name):
		folders = []string{""}
	case strings.Contains(name, "/") || name == "." || name == "..":
		folders = nil
	}
	for _, folder := range folders {
		candidate := filepath.Join(folder, name)
		info, err := os.Stat(candidate)
		if err != nil || info.IsDir() || info.Mode().Perm()&0o111 == 0 {
			continue
		}
		real, err := filepath.EvalSymlinks(candidate)
		if err != nil {
			continue
		}
		if root := writableRoot(t.ws.Roots(), real); root != "" {
			return "", tool.Errorf(tool.CodeAccessDenied,
				"Command '%s' is not allowed by security policy: it lies in %s, where tools can write", name,
				root).Because("command_denied")
		}
		if t.ws.Exposed(real) {
			return "", tool.Errorf(tool.CodeAccessDenied, "Command '%s' is not allowed by security policy: another source can "+
				"write the folder that it lies in", name).Because("command_denied")
		}
		return candidate, nil
	}
	return "", tool.Errorf(tool.CodeNotFound,
		"%s was not found (looked in %s): install it, or add its folder to shell.path", name, strings.Join(t.path, ", "))
}
