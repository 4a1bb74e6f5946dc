package codesearch

import (
	"context"
	"slices"

	"toolpost/codesearch/grep"
	"toolpost/codesearch/trigram"
	"toolpost/host/workspace"
	"toolpost/tool"
)

// What a grep gives where its arguments say nothing, and what they may ask for.
const (
	defaultLimit = 1000
	maxContext   = 100
)

// A GrepQuery asks for lines.
type GrepQuery struct {
	Where
	Pattern         string // a regular expression of RE2
	IgnoreCase      bool
	Before, After   int      // lines around each match that are given too
	Globs           []string // which files to look into; with ! in front, which not
	Hidden, Ignored bool     // also what is hidden, or what ignore files name
	Limit           int      // lines; 0: 1000
}

// A Line is one that matches.
type Line struct {
	Path    string   `json:"path"`
	Line    int      `json:"line" schema:"minimum=1"`
	Content string   `json:"content" doc:"The line. A very long one is cut around the match, with … where something is missing."`
	Before  []string `json:"before,omitzero"`
	After   []string `json:"after,omitzero"`
}

// GrepStats tell how a grep went.
type GrepStats struct {
	grep.Stats
	Indexed    bool `json:"indexed"`              // the index said where to look
	Candidates int  `json:"candidates,omitempty"` // files that it named
	Changed    int  `json:"changed,omitempty"`    // files that it did not know as they are
}

// Grep finds lines, sorted by path. Each is given the lines of a file as soon as they are found; nil: nobody wants them
// before the end.
func (l *Library) Grep(
	ctx context.Context, c *tool.Call, q GrepQuery, each func([]Line) error,
) ([]Line, GrepStats, error) {
	g, err := l.newGrep(l.ask(ctx, c), q, each)
	if err != nil {
		return nil, GrepStats{}, err
	}
	err = eachTarget(g.view, q.Where, func(at target) error {
		if err := g.one(at); err != nil || !g.stats.More {
			return err
		}
		return errEnough
	})
	return g.lines, g.stats, err
}

// A grepping is one grep under way.
type grepping struct {
	*asked
	library *Library
	q       GrepQuery
	each    func([]Line) error
	pattern *grep.Pattern
	o       grep.Options
	globs   *workspace.Globs
	lines   []Line
	bytes   int // of lines
	stats   GrepStats
}

func (l *Library) newGrep(r *asked, q GrepQuery, each func([]Line) error) (*grepping, error) {
	if q.Before < 0 || q.After < 0 || q.Before > maxContext || q.After > maxContext || q.Limit < 0 {
		return nil, tool.Errorf(tool.CodeInvalidInput, "context_before and context_after are 0 to %d, and limit is at "+
			"least 1", maxContext)
	}
	p, err := grep.Compile(q.Pattern, q.IgnoreCase)
	if err != nil {
		return nil, err
	}
	globs, err := workspace.NewGlobs(q.Globs)
	if err != nil {
		return nil, err
	}
	if q.Limit == 0 {
		q.Limit = defaultLimit
	}
	o := grep.Options{
		Shape: grep.Shape{Before: q.Before, After: q.After}, Limit: min(q.Limit, l.o.MaxLines), MaxFile: l.o.MaxFile,
	}
	return &grepping{asked: r, library: l, q: q, each: each, pattern: p, o: o, globs: globs, lines: []Line{}}, nil
}

// one searches a target.
func (g *grepping) one(t target) error {
	folder, err := t.view.OpenDir(t.name)
	isFile := err != nil && tool.AsError(err).Reason == "not_a_folder"
	if err != nil && !isFile {
		return err
	}
	if err := g.library.rates.charge(g.call.Caller.ID, t.root.Codebase); err != nil {
		return err
	}
	o, emit := g.left()
	if isFile {
		return g.done(g.file(t, o, emit))
	}
	folder.Close()
	if picks, ok := g.selected(t); ok {
		return g.done(grep.Files(g, picked{t, picks}, g.pattern, o, emit))
	}
	walk := workspace.WalkOptions{Recursive: true, Ignore: !g.q.Ignored, Hidden: g.q.Hidden, Globs: g.q.Globs}
	return g.done(grep.Walk(g, t.view, t.name, walk, t.shown, g.pattern, o, emit))
}

// left returns what the targets before have left to the next. Where that is nothing it only has to be seen whether
// there is more.
func (g *grepping) left() (o grep.Options, emit func(grep.File) error) {
	o = g.o
	o.MaxBytes = max(1, grep.DefaultMaxBytes-g.bytes)
	if o.Limit -= len(g.lines); o.Limit > 0 {
		return o, g.emit
	}
	o.Limit = 1
	return o, func(grep.File) error {
		g.stats.More = true
		g.stats.Matches-- // it is not given
		return nil
	}
}

// file searches the one file that a target is.
func (g *grepping) file(t target, o grep.Options, emit func(grep.File) error) (grep.Stats, error) {
	f, err := t.view.Open(t.name)
	if err != nil {
		return grep.Stats{}, err
	}
	return grep.Files(g, oneFile{f, t.path}, g.pattern, o, emit)
}

// oneFile is a file that is open.
type oneFile struct {
	file *workspace.File
	path string
}

func (o oneFile) Len() int                                       { return 1 }
func (o oneFile) Open(int) (*workspace.File, []grep.Part, error) { return o.file, nil, nil }
func (o oneFile) Shown(int) string                               { return o.path }

// picked are the files that the index named.
type picked struct {
	target
	picks []trigram.Pick
}

func (p picked) Len() int           { return len(p.picks) }
func (p picked) Shown(i int) string { return p.shown(p.picks[i].Path[len(p.below()):]) }

// Open opens one of them. One that a link leads to now is another file: a walk would not come to it.
func (p picked) Open(i int) (*workspace.File, []grep.Part, error) {
	rel := p.picks[i].Path
	f, err := p.view.Open(rel)
	if err != nil {
		return nil, nil, err
	}
	if f.Abs() != p.root.Dir+"/"+rel {
		f.Close()
		return nil, nil, tool.Errorf(tool.CodeNotFound, "%s is a link", rel)
	}
	return f, p.picks[i].Parts(f), nil
}

// selected asks the index which files of a folder may match. It is not ok where the folder has to be walked.
func (g *grepping) selected(t target) (picks []trigram.Pick, ok bool) {
	x := g.library.index(g.call, t.root)
	if x == nil || g.q.Ignored {
		return nil, false
	}
	sel, err := x.Select(g, t.folder(), g.pattern.Need())
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

// emit takes the lines of a file.
func (g *grepping) emit(f grep.File) error {
	first := len(g.lines)
	for _, m := range f.Matches {
		l := Line{Path: f.Path, Line: m.Line, Content: m.Content}
		if m.Around != nil {
			l.Before, l.After = m.Around.Before, m.Around.After
		}
		g.lines = append(g.lines, l)
		g.bytes += m.Size()
	}
	if g.each == nil {
		return nil
	}
	return g.each(g.lines[first:])
}

// done adds up what came of a target.
func (g *grepping) done(st grep.Stats, err error) error {
	g.stats.Files += st.Files
	g.stats.Bytes += st.Bytes
	g.stats.Binary += st.Binary
	g.stats.TooLarge += st.TooLarge
	g.stats.Matches += st.Matches
	g.stats.More = g.stats.More || st.More
	return err
}
