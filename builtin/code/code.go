// Package code brings the built-in tools that look into code: grepCode finds lines by a pattern, searchCode functions by what they are
// for, the symbol and dependency tools names and imports, and listCodebases says where there is something to look into. A codebase is a root of the workspace; a caller sees its own and no others.
package code

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"toolpost/codesearch/meaning"
	"toolpost/host/workspace"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// Options say how much the tools take on. The zero value has useful limits.
type Options struct {
	Rate     int           `yaml:"rate" doc:"expensive operations that a caller may do in a minute on a codebase; default: 100; -1: any number"`
	MaxFile  int64         `yaml:"max_file" doc:"bytes of the largest file that is searched; default: 64 MiB"`
	MaxLines int           `yaml:"max_lines" doc:"lines that one grep may give, whatever its limit says; default: 10,000"`
	Index    IndexOptions  `yaml:"index" doc:"the index that makes searching fast"`
	Search   SearchOptions `yaml:"search" doc:"search by meaning"`
}

// IndexOptions are the quotas of a codebase.
type IndexOptions struct {
	Off      bool  `yaml:"off" doc:"search without an index, and write nothing"`
	MaxFiles int   `yaml:"max_files" doc:"files and folders of a codebase; with more it has no index; default: 1,000,000"`
	MaxBytes int64 `yaml:"max_bytes" doc:"bytes of a codebase that are indexed; the rest is searched each time; default: 4 GiB"`
}

const (
	defaultRate     = 100
	defaultMaxLines = 10_000
)

// Tools are the code tools over a workspace, which stays its owner's.
type Tools struct {
	ws       *workspace.Workspace
	o        Options
	stateDir string
	log      *slog.Logger
	rates    *rates
	indexes  indexes
	meanings meanings
	embedder *meaning.Service // nil: the table that comes with the program
	reranker *meaning.Service // nil: none
	ops      map[string]operation
	closers  []func() error // of what the tools opened, last first
}

var (
	_ tool.Runner  = (*Tools)(nil)
	_ tool.Source  = (*Tools)(nil)
	_ tool.Toucher = (*Tools)(nil)
)

// New makes the tools. What they keep lies in stateDir, a folder for each codebase.
func New(ws *workspace.Workspace, o Options, stateDir string, log *slog.Logger) (*Tools, error) {
	if o.Rate < -1 || o.MaxFile < 0 || o.MaxLines < 0 || o.Index.MaxFiles < 0 || o.Index.MaxBytes < 0 {
		return nil, tool.Errorf(tool.CodeInvalidInput, "a limit of the code tools is negative; give a positive number, or leave it out")
	}
	if o.Rate == 0 {
		o.Rate = defaultRate
	}
	if o.MaxLines == 0 {
		o.MaxLines = defaultMaxLines
	}
	t := &Tools{ws: ws, o: o, stateDir: stateDir, log: log, rates: newRates(o.Rate), ops: map[string]operation{}}
	t.closers = append(t.closers, t.indexes.close, t.meanings.close)
	var err error
	if t.embedder, err = o.Search.Embeddings.service("embeddings"); err != nil {
		return nil, err
	}
	if t.reranker, err = o.Search.Reranker.service("reranker"); err != nil {
		return nil, err
	}
	for _, op := range t.operations() {
		t.ops[op.spec.Name] = op
	}
	return t, nil
}

// operations lists the tools.
func (t *Tools) operations() []operation {
	return []operation{
		newOperation(grepSpec(), t.grep, t.grepTouches),
		newOperation(codebasesSpec(), t.listCodebases, t.codebasesTouches),
		newOperation(searchSpec(), t.search, t.searchTouches),
		newOperation(findSymbolSpec(), t.findSymbol, t.symbolTouches),
		newOperation(findReferencesSpec(), t.findReferences, t.symbolTouches),
		newOperation(listSymbolsSpec(), t.listSymbols, t.symbolTouches),
		newOperation(getDependenciesSpec(), t.getDependencies, t.symbolTouches),
		newOperation(dependencyGraphSpec(), t.dependencyGraph, func(v *workspace.View, a graphArgs) ([]string, error) { return t.symbolTouches(v, a.symbolArgs) }),
	}
}

// A request is one call, with what it sees of the workspace.
type request struct {
	context.Context
	call *tool.Call
	view *workspace.View
	out  tool.Sink
}

// An operation is one tool: how it runs and what it touches come from one reading of its arguments.
type operation struct {
	spec    *tool.Spec
	run     func(*request, json.RawMessage) (*tool.Result, error)
	touches func(*workspace.View, json.RawMessage) ([]string, error)
}

// newOperation makes an operation of functions over its decoded arguments. Touches gives the absolute paths that it is going to
// read; nil: none.
func newOperation[A any](spec *tool.Spec, run func(*request, A) (*tool.Result, error), touches func(*workspace.View, A) ([]string, error)) operation {
	return operation{
		spec: spec,
		run: func(r *request, raw json.RawMessage) (*tool.Result, error) {
			var args A
			if err := decode(raw, &args); err != nil {
				return nil, err
			}
			return run(r, args)
		},
		touches: func(v *workspace.View, raw json.RawMessage) ([]string, error) {
			var args A
			if err := decode(raw, &args); err != nil || touches == nil {
				return nil, err
			}
			return touches(v, args)
		},
	}
}

func decode(args json.RawMessage, into any) error {
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	if err := strictjson.UnmarshalClosed(args, into); err != nil {
		return tool.Errorf(tool.CodeInvalidInput, "the arguments: %w", err)
	}
	return nil
}

// Tools implements tool.Source.
func (t *Tools) Tools(context.Context) ([]*tool.Spec, error) {
	specs := make([]*tool.Spec, 0, len(t.ops))
	for _, op := range t.ops {
		specs = append(specs, op.spec)
	}
	slices.SortFunc(specs, func(a, b *tool.Spec) int { return strings.Compare(a.Name, b.Name) })
	return specs, nil
}

// Invoke implements tool.Handler.
func (t *Tools) Invoke(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	op, err := t.operation(c)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, tool.AsError(err)
	}
	r, err := op.run(&request{ctx, c, t.ws.View(c), out}, c.Args)
	if err != nil {
		return nil, tool.AsError(err)
	}
	return r, nil
}

// Touches implements tool.Toucher.
func (t *Tools) Touches(c *tool.Call) (tool.Touches, error) {
	op, err := t.operation(c)
	if err != nil {
		return tool.Touches{}, err
	}
	reads, err := op.touches(t.ws.View(c), c.Args)
	return tool.Touches{Reads: reads}, err
}

func (t *Tools) operation(c *tool.Call) (operation, error) {
	op, ok := t.ops[c.Spec.Name]
	if !ok {
		return operation{}, tool.Errorf(tool.CodeNotFound, "%q is not a code tool", c.Spec.Name)
	}
	return op, nil
}

// Close implements tool.Runner. The workspace is its owner's to close.
func (t *Tools) Close(context.Context) error {
	var errs []error
	for _, c := range slices.Backward(t.closers) {
		errs = append(errs, c())
	}
	return errors.Join(errs...)
}

// count says how many there are.
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
