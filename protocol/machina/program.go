package machina

import (
	"context"
	"errors"
	"slices"

	"toolpost/host/process"
	"toolpost/host/sandbox"
	"toolpost/host/secret"
	"toolpost/tool"
)

// A program is something to run: a toolhost or a policy.
type program struct {
	argv []string
	dir  string
	env  []string // all of its environment
	max  int      // bytes that it may print

	confine *sandbox.Confinement // nil: not at all
	grant   secret.Grant
	allowed []string // of its secrets
}

// A printout is what a program printed, and how it ended.
type printout struct {
	doc  []byte
	err  error // why doc is not all
	exit process.Exit
	last string // its end, and the last it wrote to standard error, in words

	layers []string // the walls that stood around it
}

func (p *printout) tooLong() bool {
	var limit *process.LimitError
	return errors.As(p.err, &limit)
}

// start starts the program, with its secrets, behind its walls.
func (p *program) start(args []string, stderr func([]byte), limit int) (*process.Child, error) {
	cmd := process.Command{
		Argv: slices.Concat(p.argv, args), Dir: p.dir, Env: p.env, Confine: p.confine, Stderr: stderr, StderrLimit: limit,
	}
	given, err := p.grant.Give(&cmd, p.allowed)
	if err != nil {
		return nil, err
	}
	defer given()
	return process.Start(cmd)
}

// run runs the program to its end, or until ctx ends. Its standard error becomes log events. The error is
// for a program that could not be started.
func (p *program) run(ctx context.Context, args []string, stdin []byte, out tool.Sink) (*printout, error) {
	child, err := p.start(args, func(line []byte) { _ = out.Emit(logged(line)) }, 0) // a sink that fails ends ctx itself
	if err != nil {
		return nil, err
	}
	defer child.Close()
	defer context.AfterFunc(ctx, func() { child.Kill() })()
	child.Feed(stdin)
	ended := make(chan process.Exit, 1)
	go func() { ended <- child.Wait() }() // ends whatever else holds Stdout, and with it the reading
	o := printout{layers: child.Layers()}
	if o.doc, o.err = process.ReadDocument(child.Stdout, p.max); o.err != nil {
		child.Kill()
	}
	o.exit = <-ended
	o.last = child.Describe(o.exit)
	return &o, nil
}
