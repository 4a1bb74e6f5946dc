// Command bench measures what Toolpost promises about speed, each number against a reference of the same
// run, and ends with one table. It exits with 1 when a target is missed. `make bench` runs it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"toolpost/bench/attempt"
	"toolpost/host/sandbox"
)

// A lab is what the measurements share. What goes wrong in one of them ends it, as in a test, so that none of them has
// to look; see package attempt.
type lab struct {
	dir      string // for the files of this run; removed at its end
	toolpost string // the binary
	events   int
	huge     bool            // whether growth is measured up to sizes that take minutes to make
	made     map[string]bool // what rows share, by its path
	points   []point         // of the curves of growth
	ends     []func() error  // of what the measurement opened
}

// atEnd notes what is to be done at the end of the measurement, the last first.
func (l *lab) atEnd(end func() error) { l.ends = append(l.ends, end) }

// once makes a file or a folder that several rows need, and gives its path.
func (l *lab) once(name string, build func(path string)) (path string) {
	path = filepath.Join(l.dir, name)
	if l.made[path] {
		return path
	}
	attempt.Check(os.RemoveAll(path)) // half of it, where a row has failed
	build(path)
	if l.made == nil {
		l.made = map[string]bool{}
	}
	l.made[path] = true
	return path
}

// attempt measures, ends what was opened for that, and says what went wrong.
func (l *lab) attempt(measure func()) error {
	err := attempt.Do(measure)
	for _, end := range slices.Backward(l.ends) {
		err = errors.Join(err, end())
	}
	l.ends = nil
	return err
}

func main() {
	if sandbox.Main() { // this is the stage of another bench, which forks its confined children
		return
	}
	l := new(lab)
	flag.StringVar(&l.toolpost, "toolpost", "bin/toolpost", "the binary that is measured")
	flag.IntVar(&l.events, "events", 1_000_000, "how many Narratoria events are pushed through the runner")
	only := flag.String("only", "", "run only this part, or only this row of it: `PART[: ROW]`")
	file := flag.String("json", "", "write the table to this file too, as JSON")
	flag.BoolVar(&l.huge, "huge", false, "measure growth up to 10,000,000 rows in the store too (many minutes)")
	image := flag.String("picture", "", "draw the curves of growth to this file, where all of them were measured")
	var old older
	flag.StringVar(&old.bench, "old", "", "the bench of an earlier tree, to take turns with")
	flag.StringVar(&old.toolpost, "old-toolpost", "", "the program of that tree")
	turns := flag.Int("turns", 3, "how many turns both take")
	flag.Parse()
	ok, err := true, error(nil)
	switch ctx := untilInterrupted(); {
	case flag.NArg() > 0:
		err = l.attempt(func() { role(context.Background(), l, flag.Args()) }) // started by another bench
	case old.bench != "":
		err = l.attempt(func() { versus(ctx, old, l, attempt.Must(chosen(*only)), *turns, os.Stdout) })
	default:
		ok, err = measure(ctx, l, *only, *file, *image)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

// untilInterrupted gives a context that ends with Ctrl-C. What a row has started is ended then as it always is, so that
// no process and no folder stays behind; whoever does not want to wait for that interrupts again.
func untilInterrupted() context.Context {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx
}

// measure takes the chosen measurements and reports what came of them; not ok: a row is not met.
func measure(ctx context.Context, l *lab, only, file, image string) (ok bool, err error) {
	rows, err := chosen(only)
	if err != nil {
		return false, err
	}
	rep, err := run(ctx, l, rows, os.Stderr)
	if err != nil {
		return false, err
	}
	rep.table(os.Stdout)
	if ctx.Err() != nil {
		return false, fmt.Errorf("interrupted after %d of %d rows; nothing was saved", len(rep.Rows), len(rows))
	}
	if file != "" {
		err = rep.save(file)
	}
	if image != "" && rep.whole("growth") {
		err = errors.Join(err, draw(image, l.points))
	}
	return rep.met(), err
}

// run measures row by row and says which one it is at. A row that is missed, or that could not be measured, does not
// keep the others from being measured.
func run(interrupted context.Context, l *lab, chosen []measurement, progress io.Writer) (rep *report, err error) {
	ctx, cancel := context.WithTimeout(interrupted, 40*time.Minute)
	defer cancel()
	if l.dir, err = os.MkdirTemp("", "toolpost-bench-"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(l.dir)) }()
	rep = newReport()
	for i, m := range chosen {
		fmt.Fprintf(progress, "[%d of %d] %s ... ", i+1, len(chosen), m.id())
		var r row
		began := time.Now()
		failed := l.attempt(func() { r = m.run(ctx, l) })
		if interrupted.Err() != nil {
			fmt.Fprintln(progress, "interrupted")
			break
		}
		rep.add(m, r, failed, time.Since(began))
		fmt.Fprintln(progress, rep.Rows[i].Verdict)
	}
	return rep, nil
}
