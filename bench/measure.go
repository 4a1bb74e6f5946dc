package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"toolpost/bench/attempt"
	"toolpost/config"
	"toolpost/node"
	"toolpost/tool"
)

// A timed does something once and says how long that took.
type timed func() (time.Duration, error)

// compare runs both by turns, so that whatever the machine does meanwhile meets both alike, and gives the
// medians. One run of each before that warms up and does not count.
func compare(rounds int, measured, reference timed) (m, r time.Duration) {
	var ms, rs []time.Duration
	for range rounds + 1 {
		ms = append(ms, attempt.Must(measured()))
		took, err := reference()
		if err != nil {
			attempt.Check(fmt.Errorf("the reference: %w", err))
		}
		rs = append(rs, took)
	}
	return median(ms[1:]), median(rs[1:])
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// alone is compare for what has no reference that could be run.
func alone(rounds int, measured timed) time.Duration {
	m, _ := compare(rounds, measured, func() (time.Duration, error) { return 0, nil })
	return m
}

// clock times one run of do.
func clock(do func() error) timed { return batch(1, do) }

// batch times one of many runs of do, where a single one is too short for the clock.
func batch(size int, do func() error) timed {
	return func() (time.Duration, error) {
		began := time.Now()
		for range size {
			if err := do(); err != nil {
				return 0, err
			}
		}
		return time.Since(began) / time.Duration(size), nil
	}
}

// storm lets so many callers do something at the same time, each so many times.
func storm(callers, each int, do func() error) func() error {
	return func() error {
		var g errgroup.Group
		for range callers {
			g.Go(func() error { _, err := batch(each, do)(); return err })
		}
		return g.Wait()
	}
}

// asLong is a row whose target is less than so many times the time of the reference.
func asLong(m, r time.Duration, show func(time.Duration) string, limit float64) row {
	one := longer(m, r, show)
	one.target, one.pass = fmt.Sprintf("< %gx", limit), float64(m)/float64(r) < limit
	return one
}

// longer is a row that shows how many times as long as the reference something takes, and has no target.
func longer(m, r time.Duration, show func(time.Duration) string) row {
	return row{
		measured: show(m), reference: show(r), ratio: fmt.Sprintf("%.2fx as long", float64(m)/float64(r)), target: noTarget,
		pass: true,
	}
}

// ofTheRate is a row whose target is at least so much of the reference's rate, where both did n things.
func ofTheRate(n int, m, r time.Duration, least float64) row {
	return share(rate(n, m), rate(n, r), float64(r)/float64(m), least)
}

// noTarget stands where a row is only shown.
const noTarget = "-"

// need ends the measurement where a program is missing.
func need(program string) {
	if _, err := exec.LookPath(program); err != nil {
		attempt.Check(fmt.Errorf("%s is missing; `make setup` installs it", program))
	}
}

// share is a row whose target is at least so much of the reference; with 0 there is none.
func share(measured, reference string, ratio, least float64) row {
	one := row{
		measured: measured, reference: reference, ratio: fmt.Sprintf("%.2f of the rate", ratio), target: noTarget,
		pass: ratio >= least,
	}
	if least > 0 {
		one.target = fmt.Sprintf(">= %g", least)
	}
	return one
}

// over is a row whose target is less than so much more time than the reference.
func over(m, r, limit time.Duration) row {
	return row{
		measured: us(m), reference: us(r), ratio: "+" + us(m-r), pass: m-r < limit,
		target: fmt.Sprintf("< %d µs", limit.Microseconds()),
	}
}

func rate(n int, d time.Duration) string { return thousands(float64(n)/d.Seconds()) + "/s" }

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond)) }

func us(d time.Duration) string { return fmt.Sprintf("%.1f µs", float64(d)/float64(time.Microsecond)) }

// openNode writes a folder, toolpost.yaml among its files, and opens Toolpost over it, as `toolpost serve`
// does: with every stage of the engine, but without a store where the config does not name one: what records cost
// is a row of its own. Beside the protocols of the build there are two, echo and many.
func (l *lab) openNode(ctx context.Context, dir string, files map[string]string, o node.Options) *node.Node {
	writeFiles(dir, files)
	text := files["toolpost.yaml"]
	if !strings.Contains(text, "store:") {
		text += "store: {url: none}\n"
	}
	cfg := attempt.Must(config.Parse(filepath.Join(dir, "toolpost.yaml"), []byte(text)))
	brings := func(name string, r tool.Runner) node.Protocol {
		return node.Protocol{Name: name, Open: func(context.Context, config.Source, *slog.Logger) (tool.Runner, error) {
			return r, nil
		}}
	}
	o.Protocols = append(node.Protocols(), brings("echo", echo{}), brings("many", many{}))
	n := attempt.Must(node.Open(ctx, cfg, o))
	steady := func() {}
	if o.Listen == "" { // as every program that answers many calls; Serve does it itself
		steady = node.Steady()
	}
	l.atEnd(func() error {
		defer steady()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		return n.Close(ctx)
	})
	return n
}

func writeFiles(dir string, files map[string]string) {
	for name, text := range files {
		path := filepath.Join(dir, name)
		attempt.Check(os.MkdirAll(filepath.Dir(path), 0o755))
		attempt.Check(os.WriteFile(path, []byte(text), 0o644))
	}
}

// open opens a node and gives what runs its calls.
func (l *lab) open(ctx context.Context, dir string, files map[string]string) tool.Handler {
	return l.openNode(ctx, dir, files, node.Options{}).Handler()
}

// greet gives the call of a tool that greets Ada.
func greet(ctx context.Context, h tool.Handler, name string) func() error {
	call := &tool.Call{Tool: name, Args: []byte(`{"name":"Ada"}`)}
	return func() error { return wantHello(invoke(ctx, h, call)) }
}

// invoke makes one call and insists that the tool succeeded.
func invoke(ctx context.Context, h tool.Handler, c *tool.Call) ([]byte, error) {
	r, err := h.Invoke(ctx, c, tool.Discard)
	if err != nil {
		return nil, err
	}
	if !r.OK {
		return nil, r.Failure
	}
	return r.Output, nil
}

// echoConfig has the tool with nothing to it, so that what is left is the way there.
const echoConfig = `sources: [{name: bench, protocol: echo}]
`

// echo is a source with the tool echo, and with look, which only reads; in this process.
type echo struct{}

var (
	_ tool.Runner = echo{}
	_ tool.Source = echo{}
)

func (echo) Tools(context.Context) ([]*tool.Spec, error) {
	return []*tool.Spec{
		{Name: "echo", Input: []byte(`{"type":"object"}`)},
		{Name: "look", Input: []byte(`{"type":"object"}`), Effects: tool.Effects{Reads: true}},
	}, nil
}

func (echo) Invoke(_ context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
	return &tool.Result{OK: true, Output: bytes.Clone(c.Args)}, nil
}

func (echo) Close(context.Context) error { return nil }
