package shell

import (
	"context"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"toolpost/host/workspace"
	"toolpost/tool"
)

const (
	maxStdin = 1 << 20
	maxLine  = 16 << 10 // the parser takes a quarter of a second for the worst line of this size
)

// A plan is what a call runs. It is made by judging and it is all that running knows, so that what was judged
// is what runs.
type plan struct {
	shown   string // for messages
	node    *node
	stdin   io.Reader
	env     map[string]string
	timeout time.Duration
	folders []*workspace.File // open for as long as the plan lasts
}

func (p *plan) close() {
	for _, f := range p.folders {
		f.Close()
	}
}

// A node is a command, or two nodes and what is between them.
type node struct {
	op   string // "", "&&", "||", ";", "|", "!"
	x, y *node
	*command
}

// A command is one that was judged, and where it starts.
type command struct {
	*verdict
	dir       *workspace.File
	redirects []redirect
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
	dir    *workspace.File // where the next command starts

	commands int // of a line, so far
}

// makePlan makes a plan by what a function puts into it, which starts in a folder.
func (t *Tools) makePlan(
	ctx context.Context, c *tool.Call, cwd string, timeoutMS int64, fill func(*planner) (*node, error),
) (*plan, error) {
	timeout, err := t.timeout(timeoutMS)
	if err != nil {
		return nil, err
	}
	p := &planner{Tools: t, ground: place{ctx, t.ws.View(c), c.Scope}, plan: &plan{timeout: timeout}}
	if err := p.enter(cwd); err != nil {
		return nil, err
	}
	if p.plan.node, err = fill(p); err != nil {
		p.plan.close()
		return nil, err
	}
	return p.plan, nil
}

// enter makes a folder the one where the next command starts. A relative one starts at the one before.
func (p *planner) enter(path string) error {
	if p.dir != nil && !filepath.IsAbs(path) {
		path = filepath.Join(p.dir.Abs(), path)
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
			return nil, tool.Errorf(tool.CodeAccessDenied, "the variable %s is not allowed: shell.caller_env of the source names those that are", name)
		}
	}
	if !t.o.mentions(args.Command) { // before anything else is told
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
