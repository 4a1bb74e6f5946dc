package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"toolpost/bench/attempt"
)

// An older is the bench of an earlier tree and the program that it measures. Each bench links the packages of its own
// tree, so both have to be run. They take turns row by row, so that other load on the machine affects both alike.
type older struct {
	bench, toolpost string
}

// versus prints the results of both for each measurement, turn by turn, and judges nothing: the spread between the turns
// of one bench shows how much of a difference is noise.
func versus(ctx context.Context, old older, l *lab, chosen []measurement, turns int, out io.Writer) {
	self := attempt.Must(os.Executable())
	l.dir = attempt.Must(os.MkdirTemp("", "toolpost-bench-"))
	l.atEnd(func() error { return os.RemoveAll(l.dir) })
	fmt.Fprintf(out, "%-40s  %-38s  %s\n", "ROW", "BEFORE", "NOW")
	for _, m := range chosen {
		var before, now []string
		for turn := range turns {
			fmt.Fprintf(os.Stderr, "turn %d of %d, before: ", turn+1, turns)
			before = append(before, l.oneRow(ctx, old.bench, old.toolpost, m.id()))
			fmt.Fprintf(os.Stderr, "turn %d of %d, now: ", turn+1, turns)
			now = append(now, l.oneRow(ctx, self, l.toolpost, m.id()))
		}
		fmt.Fprintf(out, "%-40s  %-38s  %s\n", m.id(), strings.Join(before, ", "), strings.Join(now, ", "))
	}
}

// oneRow lets a bench measure one row. It returns the ratio, or the measured value if there is no ratio, or "none" if
// the bench does not know the row or could not measure it.
func (l *lab) oneRow(ctx context.Context, bench, toolpost, id string) string {
	file := filepath.Join(l.dir, "row.json")
	attempt.Check(os.RemoveAll(file))
	cmd := exec.CommandContext(ctx, bench, "-toolpost", toolpost, "-only", id, "-json", file)
	cmd.Stderr = os.Stderr
	// It has its own processes and folder, which it removes if it is told once to end, so the terminal must not signal it
	// too.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	_ = cmd.Run() // it exits with 1 if a target is missed, and does not write what it could not measure
	if ctx.Err() != nil {
		attempt.Check(errors.New("interrupted"))
	}
	told, err := read(file)
	switch {
	case err != nil || len(told.Rows) != 1 || told.Rows[0].Verdict == broken:
		return "none"
	case told.Rows[0].Ratio == "" || told.Rows[0].Ratio == "-":
		return told.Rows[0].Measured
	}
	return strings.Fields(told.Rows[0].Ratio)[0]
}
