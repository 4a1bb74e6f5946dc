package main

import (
	"fmt"
	"os"
	"sync"
	"time"

	"toolpost/cmd/toolpost/progress"
)

// A teller is told what happens.
type teller interface {
	log(format string, args ...any)
	// steps begins something that takes so many steps. It ends before the next such thing begins.
	steps(name string, total int) (step, end func())
}

// A display shows to people what happens: lines, and below them how far it is.
type display struct {
	begun time.Time

	mu   sync.Mutex
	line *progress.Line // nil: nothing long is under way
}

func (d *display) log(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	write := func() error {
		_, err := fmt.Fprintf(os.Stderr, "%5.0fs "+format+"\n", append([]any{time.Since(d.begun).Seconds()}, args...)...)
		return err
	}
	if d.line != nil {
		_ = d.line.Above(write)
		return
	}
	_ = write()
}

func (d *display) steps(name string, total int) (step, end func()) {
	line, done := progress.New(progress.To(os.Stderr), name), 0
	show := func(l *progress.Line) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.line = l
	}
	show(line)
	step = func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		done++
		line.Set(float64(done), float64(total), "")
	}
	return step, func() { show(nil); line.End() }
}
