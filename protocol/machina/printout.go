package machina

import (
	"context"
	"errors"

	"toolpost/host/process"
)

// A printout is what a program, a toolhost or a policy, printed, and how it ended.
type printout struct {
	doc  []byte
	err  error // why doc is not all
	exit process.Exit
	last string // its end, and the last it wrote to standard error, in words

	layers []string // the walls that stood around it
}

func (p *printout) tooLong() bool {
	_, ok := errors.AsType[*process.LimitError](p.err)
	return ok
}

// printed runs a program to its end, or until ctx ends, and gives what it printed, max bytes at the most. The error is
// for a program that could not be started.
func printed(ctx context.Context, stdin []byte, max int, start func() (*process.Child, error)) (*printout, error) {
	child, err := start()
	if err != nil {
		return nil, err
	}
	defer child.Close()
	defer context.AfterFunc(ctx, func() { child.Kill() })()
	child.Feed(stdin)
	ended := make(chan process.Exit, 1)
	go func() { ended <- child.Wait() }() // ends whatever else holds Stdout, and with it the reading
	o := printout{layers: child.Layers()}
	if o.doc, o.err = process.ReadDocument(child.Stdout, max); o.err != nil {
		child.Kill()
	}
	o.exit = <-ended
	o.last = child.Describe(o.exit)
	return &o, nil
}
