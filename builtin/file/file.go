// Package file brings the built-in tools for files: readFile, writeFile, editFile, deleteFile, moveFile, listFiles,
// globFiles, statFile and makeFolder, below the folders of a workspace and nowhere else.
package file

import (
	"cmp"
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"

	"toolpost/host/workspace"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// Options say how much the tools take on. The zero value has useful limits and no cache.
type Options struct {
	MaxFile int64        `yaml:"max_file" doc:"bytes of the largest file that is read or written as a whole; default: 10 MiB"`
	Cache   CacheOptions `yaml:"cache" doc:"keep what was read in memory, and notice when it changes"`
}

const defaultMaxFile = 10 << 20

// Tools are the file tools over a workspace, which stays its owner's.
type Tools struct {
	ws      *workspace.Workspace
	maxFile int64
	cache   *cache // nil: none
	ops     map[string]operation
}

var (
	_ tool.Runner  = (*Tools)(nil)
	_ tool.Source  = (*Tools)(nil)
	_ tool.Toucher = (*Tools)(nil)
)

// New makes the tools. Those that write are there only where a root may be written.
func New(ws *workspace.Workspace, o Options) (*Tools, error) {
	switch {
	case o.MaxFile < 0:
		return nil, tool.Errorf(tool.CodeInvalidInput, "max_file is %d; give a number of bytes, or leave it out for %d", o.MaxFile, defaultMaxFile)
	case o.Cache.Size < 0:
		return nil, tool.Errorf(tool.CodeInvalidInput, "cache.size is %d; give a number of bytes, or leave it out for none", o.Cache.Size)
	case o.MaxFile == 0:
		o.MaxFile = defaultMaxFile
	}
	t := &Tools{ws: ws, maxFile: o.MaxFile, cache: newCache(o.Cache), ops: map[string]operation{}}
	t.add(t.reading()...)
	if slices.ContainsFunc(ws.Roots(), func(r workspace.Root) bool { return r.Write }) {
		t.add(t.writing()...)
	}
	return t, nil
}

func (t *Tools) add(ops ...operation) {
	for _, op := range ops {
		t.ops[op.spec.Name] = op
	}
}

func (t *Tools) reading() []operation {
	return []operation{
		newOperation(readSpec(), t.read, func(a readArgs) touched { return touched{reads: []string{a.Path}} }),
		newOperation(listSpec(), t.list, func(a listArgs) touched { return touched{reads: []string{orRoot(a.Path)}} }),
		newOperation(globSpec(), t.glob, func(a globArgs) touched { return touched{reads: []string{orRoot(a.Path)}} }),
		newOperation(statSpec(), t.stat, func(a pathArgs) touched { return touched{reads: []string{a.Path}} }),
	}
}

func (t *Tools) writing() []operation {
	return []operation{
		newOperation(writeSpec(), t.write, func(a writeArgs) touched { return touched{writes: []string{a.Path}} }),
		newOperation(editSpec(), t.edit, func(a editArgs) touched { return touched{reads: []string{a.Path}, writes: []string{a.Path}} }),
		newOperation(deleteSpec(), t.remove, func(a pathArgs) touched { return touched{writes: []string{a.Path}} }),
		newOperation(moveSpec(), t.move, func(a moveArgs) touched {
			return touched{reads: []string{a.From}, writes: []string{a.From, a.To}} // under its new name it can be read
		}),
		newOperation(folderSpec(), t.makeFolder, func(a pathArgs) touched { return touched{writes: []string{a.Path}} }),
	}
}

func orRoot(path string) string {
	if path == "" {
		return "."
	}
	return path
}

// A request is one call, with what it sees of the workspace.
type request struct {
	context.Context
	*workspace.View
	out tool.Sink
}

// touched are the paths that a call names.
type touched struct {
	reads, writes []string
	outside       error // why it is refused all the same
}

// An operation is one tool: how it runs and what it touches come from one reading of its arguments.
type operation struct {
	spec    *tool.Spec
	run     func(r *request, args json.RawMessage) (any, error)
	touches func(v *workspace.View, args json.RawMessage) (touched, error)
}

// arguments are those of a tool, with the paths among them.
type arguments[A any] interface {
	*A
	paths() []*string
}

func newOperation[A any, P arguments[A]](
	spec *tool.Spec, run func(*request, A) (any, error), touches func(A) touched,
) operation {
	read := func(v *workspace.View, raw json.RawMessage, means func(*workspace.View, string) string) (args A, err error) {
		err = decode(raw, &args)
		for _, path := range P(&args).paths() {
			*path = means(v, *path)
		}
		return args, err
	}
	return operation{
		spec: spec,
		run: func(r *request, raw json.RawMessage) (any, error) {
			args, err := read(r.View, raw, found)
			if err != nil {
				return nil, err
			}
			return run(r, args)
		},
		touches: func(v *workspace.View, raw json.RawMessage) (touched, error) {
			var outside error
			args, err := read(v, raw, func(v *workspace.View, path string) string {
				means := fromCodebase(v, path)
				if means != path && found(v, path) == path {
					_, outside = v.Locate(path)
				}
				return means
			})
			all := touches(args)
			all.outside = outside
			return all, err
		},
	}
}

// fromCodebase gives what an absolute path that is below no root may mean: /lib is what the contract calls the folder
// lib of a codebase, and what the code tools call it in their answers. It goes by the letters alone: policy judges this
// path whether or not it is there, so that nobody learns what is in a folder that is closed to them.
func fromCodebase(v *workspace.View, path string) string {
	clean := filepath.Clean(path)
	if !filepath.IsAbs(path) || clean == "/" {
		return path
	}
	if _, err := v.Locate(path); tool.CodeOf(err) != tool.CodeAccessDenied {
		return path
	}
	return "." + clean
}

// found gives what a path means: what fromCodebase says, where that is there. Everything else stays as it is and is
// refused: who asks for /etc/passwd, or wants to make a file there, means that one.
func found(v *workspace.View, path string) string {
	means := fromCodebase(v, path)
	if means == path {
		return path
	}
	if _, err := v.Stat(means); err != nil {
		return path
	}
	return means
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
	if err := ctx.Err(); err != nil {
		return nil, tool.AsError(err)
	}
	op, err := t.operation(c)
	if err != nil {
		return nil, err
	}
	output, err := op.run(&request{ctx, t.ws.View(c), out}, c.Args)
	if err != nil {
		return nil, tool.AsError(err)
	}
	raw, ok := output.(json.RawMessage)
	if !ok {
		if raw, err = strictjson.Marshal(output); err != nil {
			return nil, tool.AsError(err)
		}
	}
	return &tool.Result{OK: true, Output: raw}, nil
}

func (t *Tools) operation(c *tool.Call) (operation, error) {
	op, ok := t.ops[c.Spec.Name]
	if !ok {
		return op, tool.Errorf(tool.CodeNotFound, "%q is no file tool that is offered; tools that write need a root with `write: true`", c.Spec.Name)
	}
	return op, nil
}

// Touches implements tool.Toucher. A relative path may be in any root, so each is named.
func (t *Tools) Touches(c *tool.Call) (tool.Touches, error) {
	op, err := t.operation(c)
	if err != nil {
		return tool.Touches{}, err
	}
	v := t.ws.View(c)
	paths, err := op.touches(v, c.Args)
	if err != nil {
		return tool.Touches{}, err
	}
	reads, err := locate(v, paths.reads)
	if err != nil {
		return tool.Touches{}, err
	}
	writes, err := locate(v, paths.writes)
	return tool.Touches{Reads: reads, Writes: writes}, cmp.Or(err, paths.outside)
}

func locate(v *workspace.View, paths []string) (all []string, err error) {
	for _, path := range paths {
		places, err := v.LocateAll(path)
		if err != nil {
			return nil, err
		}
		for _, p := range places {
			all = append(all, p.Abs)
		}
	}
	return all, nil
}

// Close implements tool.Runner. The workspace is its owner's to close.
func (t *Tools) Close(context.Context) error { return nil }
