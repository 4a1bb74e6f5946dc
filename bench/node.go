package main

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"toolpost/bench/attempt"
	"toolpost/config"
	"toolpost/node"
	"toolpost/tool"
)

// openNode writes a folder, toolpost.yaml among its files, and opens Toolpost over it, as `toolpost serve`
// does: with every stage of the engine, but without a store where the config does not name one: what records cost
// is measured apart. Beside the protocols of the build there are two, echo and many.
func (l *lab) openNode(ctx context.Context, dir string, files map[string]string, o node.Options) *node.Node {
	for name, text := range files {
		path := filepath.Join(dir, name)
		attempt.Check(os.MkdirAll(filepath.Dir(path), 0o755))
		attempt.Check(os.WriteFile(path, []byte(text), 0o644))
	}
	text := files["toolpost.yaml"]
	if !strings.Contains(text, "store:") {
		text += "store: {url: none}\n" // what records cost is a row of its own
	}
	cfg := attempt.Must(config.Parse(filepath.Join(dir, "toolpost.yaml"), []byte(text)))
	open := func(context.Context, config.Source, *slog.Logger) (tool.Runner, error) { return echo{}, nil }
	lots := func(context.Context, config.Source, *slog.Logger) (tool.Runner, error) { return many{}, nil }
	o.Protocols = append(node.Protocols(), node.Protocol{Name: "echo", Open: open}, node.Protocol{Name: "many", Open: lots})
	n := attempt.Must(node.Open(ctx, cfg, o))
	l.atEnd(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		return n.Close(ctx)
	})
	return n
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
