package codesearch

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"toolpost/codesearch/grep"
	"toolpost/codesearch/trigram"
	"toolpost/host/workspace"
	"toolpost/tool"
)

// Defaults and limits of a grep.
const (
	defaultLimit = 1000
	maxContext   = 100
)

// A GrepQuery asks for the lines that match a pattern.
type GrepQuery struct {
	Pattern     string   `json:"pattern" schema:"required minLength=1 maxLength=1000" doc:"The regular expression. It is matched within one line; ^ and $ are the line's ends. Example: func \\w+Handler\\("`
	IgnoreCase  bool     `json:"ignore_case" schema:"default=false" doc:"Whether upper and lower case are the same."`
	IgnoreCase2 bool     `json:"ignoreCase" doc:"The same as ignore_case."`
	Before      int      `json:"context_before" schema:"minimum=0 maximum=100 default=0" doc:"How many lines before each match to give as well."`
	After       int      `json:"context_after" schema:"minimum=0 maximum=100 default=0" doc:"How many lines after each match to give as well."`
	Globs       []string `json:"globs" schema:"items.minLength=1 items.maxLength=256 maxItems=64" doc:"Which files to look into, such as *.go or src/**/*.ts; with ! in front, which to leave out."`
	Hidden      bool     `json:"hidden" schema:"default=false" doc:"Also look into files and folders whose names begin with a dot."`
	Ignored     bool     `json:"ignored" schema:"default=false" doc:"Also look into what ignore files name."`
	Limit       int      `json:"limit" schema:"minimum=1 default=1000" doc:"How many lines to give at most."`
	Where
}

// A Line is a line that matches.
type Line struct {
	Path    string   `json:"path"`
	Line    int      `json:"line" schema:"minimum=1"`
	Content string   `json:"content" doc:"The line. A very long one is cut around the match, with … where something is missing."`
	Before  []string `json:"before,omitzero"`
	After   []string `json:"after,omitzero"`
}

// GrepStats report how a grep went.
type GrepStats struct {
	grep.Stats
	Indexed    bool `json:"indexed"`              // the index chose the files
	Candidates int  `json:"candidates,omitempty"` // files that the index chose
	Changed    int  `json:"changed,omitempty"`    // files that changed since they were indexed
}

// Grep finds lines, sorted by path. It passes the lines of a file to each as soon as they are found; each may be nil.
func (l *Library) Grep(
	ctx context.Context, c Call, q GrepQuery, each func([]Line) error,
) ([]Line, GrepStats, error) {
	g, err := l.newGrep(l.ask(ctx, c), q, each)
	if err != nil {
		return nil, GrepStats{}, err
	}
	err = eachTarget(g.view, q.Where, func(at target) error {
		if err := g.one(at); err != nil || !g.search.Stats().More {
			return err
		}
		return errEnough
	})
	g.stats.Stats = g.search.Stats()
	return g.lines, g.stats, err
}

// A grepping is one grep in progress.
type grepping struct {
	*asked
	library *Library
	q       GrepQuery
	each    func([]Line) error
	need    grep.Need
	search  *grep.Search
	globs   *workspace.Globs
	lines   []Line
	stats   GrepStats // those of the search, set at the end
}

func (l *Library) newGrep(r *asked, q GrepQuery, each func([]Line) error) (*grepping, error) {
	if q.Before < 0 || q.After < 0 || q.Before > maxContext || q.After > maxContext || q.Limit < 0 {
		return nil, tool.Errorf(tool.CodeInvalidInput, "context_before and context_after are 0 to %d, and limit is at "+
			"least 1", maxContext)
	}
	p, err := grep.Compile(q.Pattern, q.IgnoreCase || q.IgnoreCase2)
	if err != nil {
		return nil, err
	}
	globs, err := workspace.NewGlobs(q.Globs)
	if err != nil {
		return nil, err
	}
	g := &grepping{asked: r, library: l, q: q, each: each, need: p.Need(), globs: globs, lines: []Line{}}
	g.search = grep.NewSearch(r, p, grep.Options{
		Shape: grep.Shape{Before: q.Before, After: q.After}, Limit: min(cmp.Or(q.Limit, defaultLimit), l.o.MaxLines),
		MaxFile: l.o.MaxFile,
	}, g.emit)
	return g, nil
}

// one searches one target.
func (g *grepping) one(t target) error {
	isFolder, err := g.library.enter(g.asked, t)
	if err != nil {
		return err
	}
	if !isFolder {
		f, err := t.view.Open(t.name)
		if err != nil {
			return err
		}
		open := func(int) (*workspace.File, []grep.Part) { return f, nil }
		return g.search.Files(1, open, func(int) string { return t.path })
	}
	if picks, ok := g.selected(t); ok {
		open := func(i int) (*workspace.File, []grep.Part) { return t.pick(picks[i]) }
		return g.search.Files(len(picks), open, func(i int) string { return t.shown(picks[i].Path[len(t.below()):]) })
	}
	walk := workspace.WalkOptions{Recursive: true, Ignore: !g.q.Ignored, Hidden: g.q.Hidden, Globs: g.q.Globs}
	return g.search.Walk(t.view, t.name, walk, t.shown)
}

// pick opens a file that the index chose. A file behind a link is another file, which a walk would not reach.
func (t target) pick(p trigram.Pick) (*workspace.File, []grep.Part) {
	f, err := t.view.Open(p.Path)
	if err != nil {
		return nil, nil
	}
	if f.Abs() != t.root.Dir+"/"+p.Path {
		f.Close()
		return nil, nil
	}
	return f, p.Parts(f)
}

// selected asks the index which files of a folder may match. It returns false if the folder has to be walked.
func (g *grepping) selected(t target) (picks []trigram.Pick, ok bool) {
	x := g.library.index(g.call, t.root)
	if x == nil || g.q.Ignored {
		return nil, false
	}
	sel, err := x.Select(g, strings.TrimSuffix(t.below(), "/"), g.need)
	if err != nil {
		return nil, false
	}
	g.stats.Indexed = true
	g.stats.Candidates += sel.Candidates
	g.stats.Changed += sel.Changed
	f := newFilter(g.asked, t, g.globs)
	f.hidden = g.q.Hidden
	return slices.DeleteFunc(sel.Picks, func(p trigram.Pick) bool { return !f.wants(p.Path) }), true
}

// emit adds the lines of a file.
func (g *grepping) emit(f grep.File) error {
	first := len(g.lines)
	for _, m := range f.Matches {
		l := Line{Path: f.Path, Line: m.Line, Content: m.Content}
		if m.Around != nil {
			l.Before, l.After = m.Around.Before, m.Around.After
		}
		g.lines = append(g.lines, l)
	}
	if g.each == nil {
		return nil
	}
	return g.each(g.lines[first:])
}
