package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"text/tabwriter"

	"toolpost/bench/attempt"
)

// An older is the bench of an earlier tree and the program that it measures. Each bench links the packages of its own
// tree, so that both have to be run; taking turns row by row lets whatever the machine does meanwhile meet both alike.
type older struct {
	bench, toolpost string
}

// versus prints what both say of each measurement, turn by turn, and judges nothing: how much of a difference is noise
// shows in how far the turns of one of them lie apart.
func versus(ctx context.Context, old older, l *lab, chosen []measurement, turns int, out io.Writer) {
	self := attempt.Must(os.Executable())
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAME\tBEFORE\tNOW")
	for _, m := range chosen {
		var before, now []string
		for range turns {
			before = append(before, oneRow(ctx, old.bench, old.toolpost, m.name))
			now = append(now, oneRow(ctx, self, l.toolpost, m.name))
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", m.name, strings.Join(before, ", "), strings.Join(now, ", "))
	}
	attempt.Check(table.Flush())
}

// oneRow lets a bench measure one thing. It gives the ratio, or what was measured where there is none.
func oneRow(ctx context.Context, bench, toolpost, name string) string {
	cmd := exec.CommandContext(ctx, bench, "-toolpost", toolpost, "-only", name)
	cmd.Stderr = os.Stderr
	text, _ := cmd.Output() // it exits with 1 where a target is missed
	columns := regexp.MustCompile(` {2,}`)
	for line := range strings.Lines(string(text)) {
		if row := columns.Split(strings.TrimSpace(line), -1); row[0] == name && len(row) > 3 {
			if row[3] == "-" {
				return row[1]
			}
			return strings.Fields(row[3])[0]
		}
	}
	attempt.Check(fmt.Errorf("%s: %s does not say; it printed %q", name, bench, text))
	return ""
}
