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
	"toolpost/bench/curves"
	"toolpost/config"
	"toolpost/node"
	"toolpost/tool"
)

// A timed does something once and returns how long it took.
type timed func() (time.Duration, error)

// compare runs both in turns, so that other load on the machine affects both alike, and returns the medians. A first run
// of each warms up and does not count.
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

// alone is compare for a measurement without a reference that could be run.
func alone(rounds int, measured timed) time.Duration {
	m, _ := compare(rounds, measured, func() (time.Duration, error) { return 0, nil })
	return m
}

// clock times one run of do.
func clock(do func() error) timed { return batch(1, do) }

// batch times one of many runs of do, for runs that are too short for the clock.
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

// storm lets a number of callers do something concurrently, each the given number of times.
func storm(callers, each int, do func() error) func() error {
	return func() error {
		var g errgroup.Group
		for range callers {
			g.Go(func() error { _, err := batch(each, do)(); return err })
		}
		return g.Wait()
	}
}

// asLong returns a row whose target is less than limit times the time of the reference.
func asLong(m, r time.Duration, show func(time.Duration) string, limit float64) row {
	one := longer(m, r, show)
	one.target, one.pass = fmt.Sprintf("< %gx", limit), float64(m)/float64(r) < limit
	return one
}

// longer returns a row without a target that shows the time as a multiple of the reference's.
func longer(m, r time.Duration, show func(time.Duration) string) row {
	return row{
		measured: show(m), reference: show(r), ratio: fmt.Sprintf("%.2fx as long", float64(m)/float64(r)), target: noTarget,
		pass: true,
	}
}

// within gives a row the target that the measured time is less than limit.
func within(m, limit time.Duration, one row) row {
	one.measured, one.target, one.pass = ms(m), fmt.Sprintf("< %d ms", limit.Milliseconds()), m < limit
	return one
}

// ofTheRate returns a row whose target is at least a share of the reference's rate, if both did n things.
func ofTheRate(n int, m, r time.Duration, least float64) row {
	return share(rate(n, m), rate(n, r), float64(r)/float64(m), least)
}

// noTarget is the target of a row that is only shown.
const noTarget = "-"

// need ends the measurement if a program is missing.
func need(program string) {
	if _, err := exec.LookPath(program); err != nil {
		attempt.Check(fmt.Errorf("%s is missing; `make setup` installs it", program))
	}
}

// share returns a row whose target is at least a share of the reference; 0 means no target.
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

// over returns a row whose target is less than limit more time than the reference.
func over(m, r, limit time.Duration) row {
	return row{
		measured: us(m), reference: us(r), ratio: "+" + us(m-r), pass: m-r < limit,
		target: fmt.Sprintf("< %d µs", limit.Microseconds()),
	}
}

func rate(n int, d time.Duration) string { return curves.Thousands(float64(n)/d.Seconds()) + "/s" }

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond)) }

func us(d time.Duration) string { return fmt.Sprintf("%.1f µs", float64(d)/float64(time.Microsecond)) }

// openNode writes a folder with the files, including toolpost.yaml, and opens Toolpost there, as `toolpost serve` does:
// with every stage of the engine, but without a store unless the config names one, since the cost of records is a row of
// its own. It adds three protocols to those of the build: echo, many and waits.
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
	o.Protocols = append(node.Protocols(), brings("echo", echo{}), brings("many", many{}), brings("waits", waits{}))
	n := attempt.Must(node.Open(ctx, cfg, o))
	release := func() {}
	if o.Listen == "" { // as every program that answers many calls does; Serve does it itself
		release = node.GCBallast()
	}
	l.atEnd(func() error {
		defer release()
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

// open opens a node and returns its handler.
func (l *lab) open(ctx context.Context, dir string, files map[string]string) tool.Handler {
	return l.openNode(ctx, dir, files, node.Options{}).Handler()
}

// greet returns a call of a tool that greets Ada.
func greet(ctx context.Context, h tool.Handler, name string) func() error {
	call := &tool.Call{Tool: name, Args: []byte(`{"name":"Ada"}`)}
	return func() error { return wantHello(invoke(ctx, h, call)) }
}

// invoke makes one call and fails unless the tool succeeded.
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

// echoConfig has a tool that does nothing, so that only the overhead is left.
const echoConfig = `sources: [{name: bench, protocol: echo}]
`

// echo is an in-process source with the tool echo, and with look, which only reads.
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
