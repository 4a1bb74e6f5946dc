// Package file brings the built-in tools readFile and listFiles: reading below configured folders, and
// nowhere else.
//
// A path is opened through os.Root, which resolves it step by step from an open folder: what is checked
// is what is opened, also while somebody swaps folders and links.
package file

import (
	"context"
	"encoding/json"
	"log/slog"

	"toolpost/config"
	"toolpost/strictjson"
	"toolpost/tool"
)

// Options are the fields of a source with protocol builtin. The zero value offers the config's folder.
type Options struct {
	Roots   []RootOptions `yaml:"roots" doc:"folders that are offered; default: the folder of the config"`
	MaxFile int64         `yaml:"max_file" doc:"bytes of the largest file that readFile gives; default: 10 MiB"`
}

// RootOptions is one folder that is offered.
type RootOptions struct {
	Path  string `yaml:"path" doc:"the folder; a relative one starts at the folder of the config"`
	Write bool   `yaml:"write" doc:"whether tools may write below it; readFile and listFiles never do"`
}

const defaultMaxFile = 10 << 20

// A Runner runs the file tools over its roots.
type Runner struct {
	roots   []*root
	maxFile int64
}

var (
	_ tool.Runner = (*Runner)(nil)
	_ tool.Source = (*Runner)(nil)
)

// Open binds a configured source.
func Open(_ context.Context, src config.Source, log *slog.Logger) (tool.Runner, error) {
	var o Options
	if err := src.Decode(&o); err != nil {
		return nil, err
	}
	for _, r := range o.Roots {
		if r.Write {
			log.Warn("the root says write: true, but no built-in tool writes yet", "source", src.Name, "path", r.Path)
		}
	}
	return New(src.Dir, o)
}

// New opens the roots; relative ones start at dir.
func New(dir string, o Options) (*Runner, error) {
	if o.MaxFile < 0 {
		return nil, tool.Errorf(tool.CodeInvalidInput, "max_file is %d; give a number of bytes, or leave it out for %d", o.MaxFile, defaultMaxFile)
	}
	if o.MaxFile == 0 {
		o.MaxFile = defaultMaxFile
	}
	if len(o.Roots) == 0 {
		o.Roots = []RootOptions{{Path: "."}}
	}
	r := &Runner{maxFile: o.MaxFile}
	for _, ro := range o.Roots {
		root, err := openRoot(dir, ro.Path)
		if err != nil {
			r.closeRoots()
			return nil, err
		}
		r.roots = append(r.roots, root)
	}
	return r, nil
}

// Tools implements tool.Source.
func (r *Runner) Tools(context.Context) ([]*tool.Spec, error) {
	return []*tool.Spec{listSpec(), readSpec()}, nil
}

// Invoke implements tool.Handler.
func (r *Runner) Invoke(ctx context.Context, c *tool.Call, _ tool.Sink) (*tool.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, tool.AsError(err)
	}
	output, err := r.dispatch(ctx, c)
	if err != nil {
		return nil, tool.AsError(err)
	}
	return &tool.Result{OK: true, Output: output}, nil
}

func (r *Runner) dispatch(ctx context.Context, c *tool.Call) (json.RawMessage, error) {
	switch c.Spec.Name {
	case readName:
		var args readArgs
		if err := decode(c.Args, &args); err != nil {
			return nil, err
		}
		return r.read(ctx, args)
	case listName:
		var args listArgs
		if err := decode(c.Args, &args); err != nil {
			return nil, err
		}
		return r.list(ctx, args)
	}
	return nil, tool.Errorf(tool.CodeNotFound, "%q is not a file tool; there are %s and %s", c.Spec.Name, readName, listName)
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

// Close implements tool.Runner.
func (r *Runner) Close(context.Context) error {
	r.closeRoots()
	return nil
}

func (r *Runner) closeRoots() {
	for _, root := range r.roots {
		root.dir.Close()
	}
}
