// Command bench measures what Toolpost promises about speed, each number against a reference of the same
// run, and prints one table. It exits with 1 when a target is missed. `make bench` runs it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"toolpost/bench/attempt"
	"toolpost/host/sandbox"
)

// A row is what came of one promise.
type row struct {
	measured  string
	reference string
	ratio     string
	target    string
	pass      bool
}

// A lab is what the measurements share. What goes wrong in one of them ends it, as in a test, so that none of them has
// to look; see package attempt.
type lab struct {
	dir      string // for the files of this run; removed at its end
	toolpost string // the binary
	events   int
	ends     []func() error // of what the measurement opened
}

// atEnd notes what is to be done at the end of the measurement, the last first.
func (l *lab) atEnd(end func() error) { l.ends = append(l.ends, end) }

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
	flag.StringVar(&l.toolpost, "toolpost", "bin/toolpost", "the binary whose start is measured")
	flag.IntVar(&l.events, "events", 1_000_000, "how many Narratoria events are pushed through the runner")
	only := flag.String("only", "", "run only the measurements with this text in their name")
	var old older
	flag.StringVar(&old.bench, "old", "", "the bench of an earlier tree, to take turns with")
	flag.StringVar(&old.toolpost, "old-toolpost", "", "the program of that tree")
	turns := flag.Int("turns", 3, "how many turns both take")
	flag.Parse()
	ok, err := true, error(nil)
	switch ctx := context.Background(); {
	case flag.NArg() > 0:
		err = l.attempt(func() { part(ctx, l, flag.Args()) }) // started by another bench
	case old.bench != "":
		err = l.attempt(func() { versus(ctx, old, l, chosen(*only), *turns, os.Stdout) })
	default:
		ok, err = run(ctx, l, chosen(*only), os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

func run(ctx context.Context, l *lab, chosen []measurement, out io.Writer) (ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Minute)
	defer cancel()
	if l.dir, err = os.MkdirTemp("", "toolpost-bench-"); err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(l.dir)) }()
	fmt.Fprintf(out, "%s %s/%s, %d CPUs; medians of interleaved runs\n\n", runtime.Version(), runtime.GOOS,
		runtime.GOARCH, runtime.NumCPU())
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAME\tMEASURED\tREFERENCE\tRATIO\tTARGET\t")
	ok = true
	for _, m := range chosen {
		var r row
		if err := l.attempt(func() { r = m.run(ctx, l) }); err != nil {
			return false, fmt.Errorf("%s: %w", m.name, err)
		}
		verdict := map[bool]string{true: "pass", false: "MISSED"}[r.pass]
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", m.name, r.measured, r.reference, r.ratio, r.target, verdict)
		ok = ok && r.pass
	}
	return ok, table.Flush()
}

// A measurement holds one promise against a reference.
type measurement struct {
	name string
	run  func(context.Context, *lab) row
}

// chosen gives the measurements with a text in their name.
func chosen(only string) []measurement {
	return slices.DeleteFunc(measurements(), func(m measurement) bool { return !strings.Contains(m.name, only) })
}

func measurements() []measurement {
	return []measurement{
		{"warm namel3ss call / python3 per call", warmCall},
		{"warm Python call / bare fork, one caller", warmAlone},
		{"warm Python calls / bare loop that forks, 64 callers", warmCrowd},
		{"narratoria events / bare loop", events},
		{"engine overhead of a built-in call", overhead},
		{"start of toolpost version / hello world", start},
		{"NATS door to an echo tool / bare responder, 64 callers", natsDoor},
		{"warm skill call / bare pipe round trip", skillCall},
		{"machina --serve, one at a time / bare loop", machinaTurns},
		{"machina --serve, pipelined / bare loop", machinaPipelined},
		{"namel3ss service call / bare HTTP round trip", serviceCall},
		{"MCP server over HTTP through the engine / called directly", mcpOverHTTP},
		{"MCP server over stdio through the engine / called directly", mcpOverStdio},
		{"confined spawn of /bin/true / bwrap", confinedSpawn},
		{"confined spawn of /bin/true / bwrap, as an ordinary user", confinedSpawnAsNobody},
		{"confined warm namel3ss call / unconfined", walledCall},
		{"confined warm namel3ss call / unconfined, as an ordinary user", walledCallAsNobody},
		{"readFile through the engine / reading the file", readThrough},
		{"grep of 50,000 files / ripgrep", grepCold},
		{"grep with the index / ripgrep", grepWarm},
		{"indexing 50,000 files", indexing},
		{"search by meaning over 100,000 chunks", searching},
		{"search of 10,000 tools", findingTools},
		{"calls with audit / without, 64 callers", auditedCalls},
		{"1,000 no-op tools in a parallel plan / called directly, over HTTP", planned(plansOverHTTP, 0.8)},
		{"1,000 no-op tools in a parallel plan / called directly, in one process", planned(plansInside, 0)},
		{"1,000 calls of a Python program / of an HTTP client", codeCalls("python")},
		{"1,000 calls of a JavaScript program / of an HTTP client", codeCalls("javascript")},
		{"audit rows, 64 writers / one", auditRows},
		{"audit top over 1,000,000 rows / plain scan", auditTop},
		{"MCP tools/call / the SDK's server, 1 caller", mcpCalls(1, "none", sdkServer, 5)},
		{"MCP tools/call / the SDK's server, 8 callers", mcpCalls(8, "none", sdkServer, 5)},
		{"MCP tools/call / the SDK's server, 64 callers", mcpCalls(64, "none", sdkServer, 5)},
		{"MCP tools/call / bare net/http, 1 caller", mcpCalls(1, "none", bareServer, 0.5)},
		{"MCP tools/call / bare net/http, 8 callers", mcpCalls(8, "none", bareServer, 0.5)},
		{"MCP tools/call / bare net/http, 64 callers", mcpCalls(64, "none", bareServer, 0.5)},
		{"MCP tools/call with the record / bare net/http, 1 caller", mcpCalls(1, recorded, bareServer, 0)},
		{"MCP tools/call with the record / bare net/http, 8 callers", mcpCalls(8, recorded, bareServer, 0)},
		{"MCP tools/call with the record / bare net/http, 64 callers", mcpCalls(64, recorded, bareServer, 0)},
		{"MCP tools/list of 10,000 tools", mcpList},
		{"console from request to usable page / bare page of its size", consolePage},
		{"click on a filter of the console, 100 calls a second / none", consoleClick},
	}
}

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
