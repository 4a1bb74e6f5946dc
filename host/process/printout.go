package process

import (
	"context"
	"errors"
)

// A Printout is what a program printed, and how it ended.
type Printout struct {
	Doc  []byte
	Err  error // why Doc is not all
	Exit Exit
	Last string // its end, and the last it wrote to standard error, in words

	Layers []string // the walls that stood around it
}

// TooLong reports whether it printed more than it may.
func (p *Printout) TooLong() bool {
	_, ok := errors.AsType[*LimitError](p.Err)
	return ok
}

// Printed runs a program to its end, or until ctx ends, and gives what it printed, most bytes at the most. The error is
// for a program that could not be started.
func Printed(ctx context.Context, stdin []byte, most int, start func() (*Child, error)) (*Printout, error) {
	child, err := start()
	if err != nil {
		return nil, err
	}
	defer child.Close()
	defer context.AfterFunc(ctx, func() { child.Kill() })()
	child.Feed(stdin)
	ended := make(chan Exit, 1)
	go func() { ended <- child.Wait() }() // ends whatever else holds Stdout, and with it the reading
	p := Printout{Layers: child.Layers()}
	if p.Doc, p.Err = ReadDocument(child.Stdout, most); p.Err != nil {
		child.Kill()
	}
	p.Exit = <-ended
	p.Last = child.Describe(p.Exit)
	return &p, nil
}
