// Package code brings the built-in tools that look into code: grepCode finds lines by a pattern, searchCode functions
// by what they are for, the symbol and dependency tools names and imports, and listCodebases says where there is
// something to look into. They are a thin layer over package codesearch: arguments in, results out.
package code

import (
	"cmp"
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

// timeout is how long one question may take.
const timeout = 30 * time.Second

// Tools are the code tools over a workspace, which stays its owner's.
type Tools struct {
	define.PathSet
	library *codesearch.Library
}

// New makes the tools. What they keep lies in stateDir, a folder for each codebase.
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

// where are the arguments that say where a call looks. The second codebase is the contract's other name for it.
type where struct {
	Path      string `json:"path" schema:"minLength=1" doc:"A folder or a file to look into, relative to the codebase. Left out: everything."`
	Codebase  string `json:"codebase_id" schema:"minLength=1" doc:"Which codebase to look into, by its id of listCodebases. Left out: all of them."`
	Codebase2 string `json:"codebaseId" schema:"minLength=1" doc:"The same as codebase_id."`
}

func (w where) at() codesearch.Where {
	return codesearch.Where{Codebase: cmp.Or(w.Codebase, w.Codebase2), Path: w.Path}
}

// looks says whether a call looks into anything.
func (w where) looks() bool { return true }

// A place is the arguments of a tool that looks somewhere.
type place interface {
	at() codesearch.Where
	looks() bool
}

// asks defines a tool that asks the library something. It touches what it looks into.
func asks[A place, O any](
	t *Tools, spec tool.Spec, run func(context.Context, *define.Call, A) (O, error),
) define.Tool {
	spec.Timeout, spec.Effects = timeout, tool.Effects{Reads: true, Idempotent: true}
	return define.Touching(spec, run, func(c *tool.Call, a A) (tool.Touches, error) {
		if !a.looks() {
			return tool.Touches{}, nil
		}
		reads, err := t.library.Locate(c, a.at())
		return tool.Touches{Reads: reads}, err
	})
}

type grepArgs struct {
	Pattern     string   `json:"pattern" schema:"required minLength=1 maxLength=1000" doc:"The regular expression. It is matched within one line; ^ and $ are the line's ends. Example: func \\w+Handler\\("`
	IgnoreCase  bool     `json:"ignore_case" schema:"default=false" doc:"Whether upper and lower case are the same."`
	IgnoreCase2 bool     `json:"ignoreCase" doc:"The same as ignore_case."`
	Before      int      `json:"context_before" schema:"minimum=0 maximum=100 default=0" doc:"How many lines before each match to give as well."`
	After       int      `json:"context_after" schema:"minimum=0 maximum=100 default=0" doc:"How many lines after each match to give as well."`
	Globs       []string `json:"globs" schema:"items.minLength=1 items.maxLength=256 maxItems=64" doc:"Which files to look into, such as *.go or src/**/*.ts; with ! in front, which to leave out."`
	Hidden      bool     `json:"hidden" schema:"default=false" doc:"Also look into files and folders whose names begin with a dot."`
	Ignored     bool     `json:"ignored" schema:"default=false" doc:"Also look into what ignore files name."`
	Limit       int      `json:"limit" schema:"minimum=1 default=1000" doc:"How many lines to give at most."`
	Stream      bool     `json:"stream" schema:"default=false" doc:"Also give the lines as output events, path:line:content, as soon as they are found."`
	where
}

func (t *Tools) grep(ctx context.Context, c *define.Call, a grepArgs) ([]codesearch.Line, error) {
	var each func([]codesearch.Line) error
	if a.Stream {
		each = func(lines []codesearch.Line) error { return stream(c.Out, lines) }
	}
	lines, stats, err := t.library.Grep(ctx, c.Call, codesearch.GrepQuery{
		Where: a.at(), Pattern: a.Pattern, IgnoreCase: a.IgnoreCase || a.IgnoreCase2, Before: a.Before, After: a.After,
		Globs: a.Globs, Hidden: a.Hidden, Ignored: a.Ignored, Limit: a.Limit,
	}, each)
	c.Details = map[string]any{"grep": stats}
	c.Summary = count(stats.Matches, "line")
	if stats.More {
		c.Summary += "; there are more: narrow the pattern or the path, or give a larger limit"
	}
	if stats.TooLarge > 0 {
		c.Summary += fmt.Sprintf("; %d files were left out because they are too large", stats.TooLarge)
	}
	return lines, err
}

// stream gives the lines of a file as an event.
func stream(out tool.Sink, lines []codesearch.Line) error {
	var text strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&text, "%s:%d:%s\n", l.Path, l.Line, l.Content)
	}
	return out.Emit(tool.NewEvent(tool.KindOutput, tool.Output{Stream: "matches", Text: text.String()}))
}

type searchArgs struct {
	Query string   `json:"query" schema:"required minLength=1 maxLength=1000" doc:"What the code does, in plain words or with names that may be in it."`
	Limit int      `json:"limit" schema:"minimum=1 maximum=100 default=10" doc:"How many hits to give at most."`
	Least float64  `json:"min_similarity" schema:"minimum=0 maximum=1 default=0" doc:"Leave out hits that are less similar than this."`
	Globs []string `json:"globs" schema:"items.minLength=1 items.maxLength=256 maxItems=64" doc:"Which files to look into, such as *.go; with ! in front, which to leave out."`
	where
}

func (t *Tools) search(ctx context.Context, c *define.Call, a searchArgs) ([]codesearch.Hit, error) {
	found, err := t.library.Search(ctx, c.Call, codesearch.SearchQuery{
		Where: a.at(), Query: a.Query, Limit: a.Limit, Globs: a.Globs, Least: a.Least,
	})
	if err != nil {
		return nil, err
	}
	c.Details = map[string]any{"search": found.Stats}
	c.Summary = strings.Join(append([]string{count(len(found.Hits), "hit")}, found.Notes...), "; ")
	return found.Hits, nil
}

type codebasesArgs struct {
	Pattern  string `json:"pattern" schema:"minLength=1 maxLength=256" doc:"Which files to list, such as *.ex or src/**/*.ts."`
	Language string `json:"language" schema:"minLength=1 maxLength=64" doc:"Only files of this language, such as elixir or typescript."`
	where
}

// looks is false without arguments: these are for the list of codebases.
func (a codebasesArgs) looks() bool { return a != (codebasesArgs{}) }

// list is one tool for two things because a subject of the known client is: tools.code.list.
func (t *Tools) list(ctx context.Context, c *define.Call, a codebasesArgs) (any, error) {
	if !a.looks() {
		return t.library.Codebases(c.Call), nil
	}
	q := codesearch.FileQuery{Where: a.at(), Pattern: a.Pattern, Language: a.Language}
	files, err := t.library.Files(ctx, c.Call, q)
	c.Summary = count(len(files), "file")
	return files, err
}

// limited are the arguments that all questions about symbols have.
type limited struct {
	Limit int `json:"limit" schema:"minimum=1 maximum=1000 default=100" doc:"How many to give at most."`
	where
}

type findArgs struct {
	Name string `json:"name" schema:"required minLength=1 maxLength=200" doc:"The name, or a part of it. Example: parseHeader"`
	Kind string `json:"kind" schema:"enum=function|type|section|variable" doc:"Only definitions of this kind."`
	limited
}

func (t *Tools) find(ctx context.Context, c *define.Call, a findArgs) ([]codesearch.Definition, error) {
	q := codesearch.SymbolQuery{Where: a.at(), Name: a.Name, Kind: a.Kind, Limit: a.Limit}
	list, more, err := t.library.Find(ctx, c.Call, q)
	c.Summary = listed(len(list), "definitions", more)
	return list, err
}

type referencesArgs struct {
	Name string `json:"name" schema:"required minLength=1 maxLength=200" doc:"The name. Example: parseHeader"`
	limited
}

func (t *Tools) references(ctx context.Context, c *define.Call, a referencesArgs) ([]codesearch.Reference, error) {
	q := codesearch.SymbolQuery{Where: a.at(), Name: a.Name, Limit: a.Limit}
	list, more, err := t.library.References(ctx, c.Call, q)
	c.Summary = listed(len(list), "references", more)
	return list, err
}

type symbolsArgs struct {
	Kind string `json:"kind" schema:"enum=function|type|section|variable" doc:"Only definitions of this kind."`
	limited
}

func (t *Tools) symbols(ctx context.Context, c *define.Call, a symbolsArgs) ([]codesearch.Definition, error) {
	q := codesearch.SymbolQuery{Where: a.at(), Kind: a.Kind, Limit: a.Limit}
	list, more, err := t.library.Symbols(ctx, c.Call, q)
	c.Summary = listed(len(list), "definitions", more)
	return list, err
}

func (t *Tools) dependencies(ctx context.Context, c *define.Call, a limited) ([]codesearch.Dependencies, error) {
	list, more, err := t.library.Dependencies(ctx, c.Call, a.at(), a.Limit)
	c.Summary = listed(len(list), "files with dependencies", more)
	return list, err
}

type graphArgs struct {
	Level    string `json:"level" schema:"enum=folder|file default=folder" doc:"What the nodes are."`
	External bool   `json:"external" schema:"default=false" doc:"Also give what is not in the codebase."`
	limited
}

func (t *Tools) graph(ctx context.Context, c *define.Call, a graphArgs) (codesearch.Graph, error) {
	q := codesearch.GraphQuery{Where: a.at(), Files: a.Level == "file", External: a.External}
	g, err := t.library.Graph(ctx, c.Call, q)
	c.Summary = fmt.Sprintf("%d nodes, %d edges", len(g.Nodes), len(g.Edges))
	return g, err
}

// listed says how long a list is.
func listed(n int, what string, more bool) string {
	s := fmt.Sprintf("%d %s", n, what)
	if more {
		s += "; there are more: narrow the path, or give a larger limit"
	}
	return s
}

// count says how many there are.
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
