// Package code brings the built-in tools for searching code: grepCode finds lines by a pattern, searchCode functions by
// their purpose, the symbol and dependency tools names and imports, and listCodebases lists what can be searched. They are a
// thin layer over package codesearch: arguments in, results out.
package code

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"toolpost/builtin/define"
	"toolpost/codesearch"
	"toolpost/host/workspace"
	"toolpost/tool"
)

// timeout bounds one query.
const timeout = 30 * time.Second

// Tools are the code tools over a workspace, which they do not own.
type Tools struct {
	define.PathSet
	library *codesearch.Library
}

// New makes the tools. They keep their data in stateDir, a folder for each codebase.
func New(ws *workspace.Workspace, o codesearch.Options, stateDir string, log *slog.Logger) (*Tools, error) {
	library, err := codesearch.Open(ws, o, stateDir, log)
	if err != nil {
		return nil, err
	}
	t := &Tools{library: library}
	t.Set = define.NewSet(t.tools()...)
	return t, nil
}

// Close implements tool.Runner.
func (t *Tools) Close(context.Context) error { return t.library.Close() }

// A place is the arguments of a tool that searches somewhere.
type place interface {
	Looks() codesearch.Where
}

// asks defines a tool that queries the library. It touches what it searches.
func asks[A place, O any](
	t *Tools, spec tool.Spec, run func(context.Context, *define.Call, A) (O, error),
) define.Tool {
	spec.Timeout, spec.Effects = timeout, tool.Effects{Reads: true, Idempotent: true}
	return define.Touching(spec, run, func(c *tool.Call, a A) (tool.Touches, error) {
		reads, others, err := t.library.Locate(c, a.Looks())
		return tool.Touches{Reads: reads, MayRead: others}, err
	})
}

// asking converts a call to the library's form.
func asking(c *define.Call) codesearch.Call { return codesearch.Call{Call: c.Call, Out: c.Out} }

// lists defines a tool that queries the library for a list, which may be cut.
func lists[A place, O any](
	t *Tools, spec tool.Spec, what string, ask func(context.Context, codesearch.Call, A) ([]O, bool, error),
) define.Tool {
	return asks(t, spec, func(ctx context.Context, c *define.Call, a A) ([]O, error) {
		list, more, err := ask(ctx, asking(c), a)
		c.Summary = fmt.Sprintf("%d %s", len(list), what)
		if more {
			c.Summary += "; there are more: narrow the path, or give a larger limit"
		}
		return list, err
	})
}

type grepArgs struct {
	codesearch.GrepQuery
	Stream bool `json:"stream" schema:"default=false" doc:"Also give the lines as output events, path:line:content, as soon as they are found."`
}

func (t *Tools) grep(ctx context.Context, c *define.Call, a grepArgs) ([]codesearch.Line, error) {
	var each func([]codesearch.Line) error
	if a.Stream {
		each = func(lines []codesearch.Line) error { return stream(c.Out, lines) }
	}
	lines, stats, err := t.library.Grep(ctx, asking(c), a.GrepQuery, each)
	c.Details = map[string]any{"grep": stats}
	c.Summary = define.Count(stats.Matches, "line")
	if stats.More {
		c.Summary += "; there are more: narrow the pattern or the path, or give a larger limit"
	}
	if stats.TooLarge > 0 {
		c.Summary += fmt.Sprintf("; %d files were left out because they are too large", stats.TooLarge)
	}
	return lines, err
}

// stream emits the lines of a file as an event.
func stream(out tool.Sink, lines []codesearch.Line) error {
	var text strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&text, "%s:%d:%s\n", l.Path, l.Line, l.Content)
	}
	return out.Emit(tool.NewEvent(tool.KindOutput, tool.Output{Stream: "matches", Text: text.String()}))
}

func (t *Tools) search(ctx context.Context, c *define.Call, q codesearch.SearchQuery) ([]codesearch.Hit, error) {
	found, err := t.library.Search(ctx, asking(c), q)
	if err != nil {
		return nil, err
	}
	c.Details = map[string]any{"search": found.Stats}
	c.Summary = strings.Join(append([]string{define.Count(len(found.Hits), "hit")}, found.Notes...), "; ")
	return found.Hits, nil
}

func (t *Tools) codebases(_ context.Context, c *define.Call, _ struct{}) ([]codesearch.Codebase, error) {
	return t.library.Codebases(c.Call), nil
}

func (t *Tools) files(ctx context.Context, c *define.Call, q codesearch.FileQuery) ([]codesearch.File, error) {
	files, err := t.library.Files(ctx, c.Call, q)
	c.Summary = define.Count(len(files), "file")
	return files, err
}

func (t *Tools) graph(ctx context.Context, c *define.Call, q codesearch.GraphQuery) (codesearch.Graph, error) {
	g, err := t.library.Graph(ctx, asking(c), q)
	c.Summary = define.Count(len(g.Nodes), "node") + ", " + define.Count(len(g.Edges), "edge")
	return g, err
}
