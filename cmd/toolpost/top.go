package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"toolpost/builtin/health"
	"toolpost/cmd/toolpost/format"
	"toolpost/cmd/toolpost/progress"
	"toolpost/cmd/toolpost/terminal"
	"toolpost/engine/calls"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

func (a *app) topCommand() *cobra.Command {
	var once bool
	c := takes[health.LoadArgs](a, "--interval=interval_ms:1s", "print each measurement as a JSON object on a line", &cobra.Command{
		Use: "top", Short: "Show the load of a server, live",
		Long: "Shows the load of the running server, or of --server URL: the calls in flight, the calls per second and\n" +
			"how long they take, by tool, and the sources and their workers. On a terminal it uses the whole screen,\n" +
			"until q or Ctrl-C; elsewhere it prints a line for each interval. Percentiles are estimates. Only\n" +
			"operators may use it: the owner and the user of the command line.",
		Example: "  toolpost top\n" +
			"  toolpost top --once --json --server https://tools.example.org",
	}, func(ctx context.Context, args map[string]any) error {
		if once {
			args["count"] = 2
		}
		return a.top(ctx, following{own{"watchLoad", "see the load", sources}, args, false, once})
	})
	c.Flags().BoolVar(&once, "once", false, "measure for one interval, print the result, and exit")
	return c
}

func (a *app) top(ctx context.Context, load following) error {
	show := a.topPrinter(load.once)
	if a.out.terminal && !a.json && !load.once {
		full := &fullScreen{app: a}
		whole, quit, err := terminal.Full(ctx, a.in, a.out, full.draw)
		if err != nil {
			return err
		}
		ctx, show = whole, full.load
		defer quit()
	} else {
		if err := a.locate(ctx); err != nil {
			return err
		}
		a.alone()
	}
	return a.followOwn(ctx, load, func(log tool.Log) (int64, error) {
		var l health.Load
		if err := strictjson.Unmarshal(log.Fields, &l); err != nil {
			return 0, tool.Errorf(tool.CodeProtocol, "what came tells nothing of the load: %w", err)
		}
		return 1, show(&l, log)
	})
}

// topPrinter prints the load without a screen to draw on. The first sample has no rates, so once prints the second.
func (a *app) topPrinter(once bool) func(*health.Load, tool.Log) error {
	return func(l *health.Load, log tool.Log) (err error) {
		switch {
		case l.Window == 0:
		case a.json:
			_, err = fmt.Fprintln(a.out, cleanLines(string(log.Fields)))
		case once:
			for _, line := range a.topLines(l) {
				fmt.Fprintln(a.out, line)
			}
		default:
			_, err = fmt.Fprintf(a.out, "%s %s\n", l.Time.Local().Format(time.TimeOnly), clean(l.String()))
		}
		return err
	}
}

// topLines lays out the load.
func (a *app) topLines(l *health.Load) []string {
	all := a.topHead(l)
	for _, part := range a.topParts(l) {
		all = append(append(all, ""), part...)
	}
	return all
}

func (a *app) topHead(l *health.Load) []string {
	rates := "measuring"
	if r := l.All; l.Window > 0 {
		rates = fmt.Sprintf("%.1f calls/s   %.1f bad/s   p50 %s   p95 %s   p99 %s", r.Rate, float64(r.Bad)/l.Window,
			millis(r.P50), millis(r.P95), millis(r.P99))
	}
	up := format.Roughly(time.Duration(l.Up * float64(time.Second)))
	head := []string{
		a.out.bold("toolpost") + "  " + clean(a.server.url) + "  up " + up + "  " + l.Time.Local().Format(time.TimeOnly),
		fmt.Sprintf("%d in flight   %s   %d calls since the start", l.InFlight, rates, l.All.Total),
	}
	for _, hub := range l.Missing {
		head = append(head, a.out.amber("the hub "+clean(hub)+" did not answer; its calls are not counted"))
	}
	return head
}

// topParts are the tables: calls, tools and sources.
func (a *app) topParts(l *health.Load) [][]string {
	return [][]string{
		columns("in_flight=tool caller door "+inFleet(l.Calls)+"for call last", cells[calls.Running]{
			"for": func(c calls.Running) string { return format.Roughly(l.Time.Sub(c.Since)) }, "last": lastOf,
		}).lines(a.out, l.Calls),
		columns("tool source calls/s bad p50 p95 p99 total", cells[health.Rate]{
			"calls/s": func(r health.Rate) string { return fmt.Sprintf("%.1f", r.Rate) },
			"p50":     func(r health.Rate) string { return millis(r.P50) },
			"p95":     func(r health.Rate) string { return millis(r.P95) },
			"p99":     func(r health.Rate) string { return millis(r.P99) },
		}).lines(a.out, l.Tools),
		columns("source=name protocol state tools workers error", cells[health.Source]{
			"workers": func(s health.Source) string { return workers(s.Workers) },
		}).lines(a.out, l.Sources),
	}
}

// lastOf describes the last sign of life of a call, with a bar if it reports progress.
func lastOf(c calls.Running) string {
	if c.Last != nil && c.Last.Total > 0 {
		return progress.Bar(c.Last.Progress/c.Last.Total, 10) + " " + heard(c.Last)
	}
	return heard(c.Last)
}

func workers(w *tool.Workers) string {
	if w == nil {
		return "-"
	}
	text := fmt.Sprintf("%d/%d busy", w.Busy, w.Alive)
	if w.Calls > w.Busy {
		text += fmt.Sprintf(", %d calls", w.Calls)
	}
	if w.Wait > 0 {
		text += fmt.Sprintf(", %d wait", w.Wait)
	}
	if w.Ahead > 0 {
		text += fmt.Sprintf(", %d ready", w.Ahead)
	}
	return text
}

func millis(ms float64) string { return format.Tidy(time.Duration(ms * float64(time.Millisecond))) }

// A fullScreen is the terminal while it shows nothing but the load.
type fullScreen struct {
	*app
	mu   sync.Mutex
	last *health.Load
}

// load shows a new sample.
func (f *fullScreen) load(l *health.Load, _ tool.Log) error {
	f.mu.Lock()
	f.last = l
	f.mu.Unlock()
	return f.draw()
}

// draw shows the last sample, at the current size of the terminal.
func (f *fullScreen) draw() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last == nil {
		return nil
	}
	return terminal.Draw(f.out, f.fitted(f.out.height()))
}

// fitted lays out the last sample in this many lines, none longer than the terminal is wide. The tables share the lines
// below the head; if there are few, the first tables take precedence. Rows that do not fit are counted.
func (f *fullScreen) fitted(height int) []string {
	lines := append(f.topHead(f.last), f.out.dim("q quits"))
	parts := f.topParts(f.last)
	for i, part := range parts {
		left := height - len(lines) - 1 // an empty line precedes each
		room := max((left+1)/(len(parts)-i)-1, min(left, 3))
		if room < 2 {
			continue
		}
		if more := len(part) - room; more > 0 {
			part = append(part[:room-1:room-1], f.out.dim(fmt.Sprintf("… %d more", more+1)))
		}
		lines = append(append(lines, ""), part...)
	}
	for i, line := range lines {
		lines[i] = f.out.cut(line)
	}
	return lines[:min(len(lines), height)]
}
