package main

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"toolpost/config"
	"toolpost/node"
	"toolpost/tool"
)

// openNode writes a folder, toolpost.yaml among its files, and opens Toolpost over it, as `toolpost serve`
// does: with every stage of the engine, but without a store where the config does not name one: what records cost
// is measured apart. Beside the protocols of the build there is one named echo.
func openNode(ctx context.Context, dir string, files map[string]string, with ...node.Options) (*node.Node, error) {
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	text := files["toolpost.yaml"]
	if !strings.Contains(text, "store:") {
		text += "store: {url: none}\n" // what records cost is a row of its own
	}
	cfg, err := config.Parse(filepath.Join(dir, "toolpost.yaml"), []byte(text))
	if err != nil {
		return nil, err
	}
	open := func(context.Context, config.Source, *slog.Logger) (tool.Runner, error) { return echo{}, nil }
	var o node.Options
	if len(with) > 0 {
		o = with[0]
	}
	o.Protocols = append(node.Protocols(), node.Protocol{Name: "echo", Open: open})
	return node.Open(ctx, cfg, o)
}

func closeNode(n *node.Node) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return n.Close(ctx)
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

// echo is a source with the one tool echo, in this process.
type echo struct{}

var (
	_ tool.Runner = echo{}
	_ tool.Source = echo{}
)

func (echo) Tools(context.Context) ([]*tool.Spec, error) {
	return []*tool.Spec{{Name: "echo", Input: []byte(`{"type":"object"}`)}}, nil
}

func (echo) Invoke(_ context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
	return &tool.Result{OK: true, Output: bytes.Clone(c.Args)}, nil
}

func (echo) Close(context.Context) error { return nil }
