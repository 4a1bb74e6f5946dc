// Command bench measures Toolpost's promises about speed, each number against a reference from the same run, and prints
// one table. It exits with 1 if a target is missed. `make bench` runs it.
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
	"toolpost/bench/curves"
	"toolpost/host/sandbox"
)

// A lab is the state that measurements share. A failure ends a measurement, as in a test, so that its steps need not
// handle errors; see package attempt.
type lab struct {
	dir      string // for the files of this run; removed at its end
	toolpost string // the binary
	events   int
	huge     bool            // also measure growth up to sizes that take minutes to make
	made     map[string]bool // paths that rows share
	points   []point         // of the curves of growth
	scaled   curves.Sheet    // the curves of a fleet
	ends     []func() error  // of everything that the measurement opened
}

// atEnd registers a function for the end of the measurement; the last one runs first.
func (l *lab) atEnd(end func() error) { l.ends = append(l.ends, end) }

// once makes a file or a folder that several rows need, and returns its path.
func (l *lab) once(name string, build func(path string)) (path string) {
	path = filepath.Join(l.dir, name)
	if l.made[path] {
		return path
	}
	attempt.Check(os.RemoveAll(path)) // an incomplete one, if a row has failed
	build(path)
	if l.made == nil {
		l.made = map[string]bool{}
	}
	l.made[path] = true
	return path
}

// attempt measures, closes what the measurement opened, and returns its error.
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
	images := flag.String("pictures", "", "draw the curves of growth, and of a fleet, into this folder if all of their part were measured")
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
		ok, err = measure(ctx, l, *only, *file, *images)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

// untilInterrupted returns a context that ends with Ctrl-C. The processes of a row are then ended as usual, so that no
// process and no folder is left behind; a second interrupt kills the bench at once.
func untilInterrupted() context.Context {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx
}

// measure takes the chosen measurements and reports the results. It returns false if a target is missed.
func measure(ctx context.Context, l *lab, only, file, images string) (ok bool, err error) {
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
	for _, s := range []curves.Sheet{growth(l.points), l.scaled} {
		if images != "" && rep.whole(s.Name) {
			err = errors.Join(err, s.Draw(images))
		}
	}
	return rep.met(), err
}

// run measures row by row and prints its progress. A row that misses its target, or cannot be measured, does not stop the
// others.
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
