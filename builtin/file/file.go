// Package file brings the built-in tools for files: readFile, writeFile, editFile, deleteFile, moveFile, listFiles,
// globFiles, statFile and makeFolder, only below the folders of a workspace.
package file

import (
	"cmp"
	"context"
	"slices"

	"toolpost/builtin/define"
	"toolpost/host/workspace"
	"toolpost/tool"
)

// Options limit the tools. The zero value has useful limits and no cache.
type Options struct {
	MaxFile int64        `yaml:"max_file" kind:"bytes" schema:"default=10485760" doc:"size limit, in bytes, of a file that is read or written in one piece"`
	Cache   CacheOptions `yaml:"cache" doc:"keep files in memory after they were read, until they change"`
}

const defaultMaxFile = 10 << 20

// Tools are the file tools over a workspace, which they do not own.
type Tools struct {
	define.PathSet
	ws      *workspace.Workspace
	maxFile int64
	cache   *cache // nil if there is none
}

// New makes the tools. Those that write exist only if a root is writable.
func New(ws *workspace.Workspace, o Options) (*Tools, error) {
	switch {
	case o.MaxFile < 0:
		return nil, tool.Errorf(tool.CodeInvalidInput, "max_file is %d; give a number of bytes, or leave it out for %d",
			o.MaxFile, defaultMaxFile)
	case o.Cache.Size < 0:
		return nil, tool.Errorf(tool.CodeInvalidInput, "cache.size is %d; give a number of bytes, or leave it out for none",
			o.Cache.Size)
	}
	t := &Tools{ws: ws, maxFile: cmp.Or(o.MaxFile, defaultMaxFile), cache: newCache(o.Cache)}
	tools := t.reading()
	if slices.ContainsFunc(ws.Roots(), func(r workspace.Root) bool { return r.Write }) {
		tools = append(tools, t.writing()...)
	}
	t.Set = define.NewSet(tools...)
	return t, nil
}

// A request is one call, with its view of the workspace.
type request struct {
	context.Context
	*workspace.View
	out tool.Sink
}

// arguments are those of a tool, with the paths among them.
type arguments[A any] interface {
	*A
	paths() []*string
}

// over defines a tool over the workspace: how it runs and what it touches come from one reading of its arguments, in which
// each path has the meaning that it has for the caller.
func over[A, O any, P arguments[A]](
	t *Tools, spec tool.Spec, run func(*request, A) (O, error), touches func(A) tool.Touches,
) define.Tool {
	return define.Touching(spec,
		func(ctx context.Context, c *define.Call, args A) (O, error) {
			r := struct { // one allocation, as readFile is called often
				request
				args A
			}{request{ctx, t.ws.View(c.Call), c.Out}, args}
			for _, path := range P(&r.args).paths() {
				r.Follow(*path, spec.Effects.Writes)
			}
			return run(&r.request, r.args)
		},
		func(c *tool.Call, args A) (tool.Touches, error) {
			v := t.ws.View(c)
			var outside error // why it is refused nevertheless
			for _, path := range P(&args).paths() {
				means, denied := v.Meant(*path, spec.Effects.Writes)
				*path, outside = means, cmp.Or(outside, denied)
			}
			all := touches(args)
			err := cmp.Or(locate(v, &all.Reads, &all.MayRead, false), locate(v, &all.Writes, &all.MayWrite, true))
			if err != nil {
				return tool.Touches{}, err
			}
			return all, outside
		})
}

// locate makes paths absolute. A relative path may be in any root: others receives the alternatives.
func locate(v *workspace.View, paths, others *[]string, write bool) error {
	var all []string
	for _, path := range *paths {
		here, also, err := v.Here(path, write)
		if err != nil {
			return err
		}
		all, *others = append(all, here), append(*others, also...)
	}
	*paths = all
	return nil
}
