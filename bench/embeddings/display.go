package main

import (
	"fmt"
	"os"
	"sync"
	"time"

	"toolpost/cmd/toolpost/progress"
)

// A teller reports progress.
type teller interface {
	log(format string, args ...any)
	// steps begins a task with a number of steps. It must end before the next task begins.
	steps(name string, total int) (step, end func())
}

// A display shows progress to people: lines, and below them the progress of the current task.
type display struct {
	begun time.Time

	mu   sync.Mutex
	line *progress.Line // nil if no long task is in progress
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
