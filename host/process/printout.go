package process

import (
	"context"
	"errors"

	"toolpost/wire/bounded"
)

// A Printout is the output of a program, and how it ended.
type Printout struct {
	Doc  []byte
	Err  error // why Doc is incomplete
	Exit Exit
	Last string // how it ended and the end of its standard error, in words

	Layers []string // the sandbox layers around it
}

// TooLong reports whether it printed more than allowed.
func (p *Printout) TooLong() bool {
	_, ok := errors.AsType[*bounded.LimitError](p.Err)
	return ok
}

// Printed runs a program to its end, or until ctx ends, and returns its output, up to most bytes. The error is for a
// program that could not be started.
func Printed(ctx context.Context, stdin []byte, most int, start func() (*Child, error)) (*Printout, error) {
	child, err := start()
	if err != nil {
		return nil, err
	}
	defer child.Close()
	defer context.AfterFunc(ctx, func() { child.Kill() })()
	child.Feed(stdin)
	ended := make(chan Exit, 1)
	go func() { ended <- child.Wait() }() // also ends any other process that holds Stdout, and so the reading
	p := Printout{Layers: child.Layers()}
	if p.Doc, p.Err = bounded.ReadDocument(child.Stdout, most); p.Err != nil {
		child.Kill()
	}
	p.Exit = <-ended
	p.Last = child.Describe(p.Exit)
	return &p, nil
}
