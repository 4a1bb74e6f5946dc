package code

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"toolpost/codesearch/grep"
	"toolpost/codesearch/trigram"
	"toolpost/host/workspace"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// What a grep gives where its arguments say nothing, and what they may ask for.
const (
	defaultLimit = 1000
	maxContext   = 100
	grepTimeout  = 30 * time.Second
)

type grepArgs struct {
	Pattern     string   `json:"pattern"`
	Path        string   `json:"path"`
	IgnoreCase  bool     `json:"ignore_case"`
	IgnoreCase2 bool     `json:"ignoreCase"`
	Before      int      `json:"context_before"`
	After       int      `json:"context_after"`
	Globs       []string `json:"globs"`
	Hidden      bool     `json:"hidden"`
	Ignored     bool     `json:"ignored"`
	Limit       int      `json:"limit"`
	Stream      bool     `json:"stream"`
	Codebase    string   `json:"codebase_id"`
	Codebase2   string   `json:"codebaseId"`
}

func (a grepArgs) codebase() string {
	if a.Codebase != "" {
		return a.Codebase
	}
	return a.Codebase2
}

// A line is one line of the answer.
type line struct {
	Path    string   `json:"path"`
	Line    int      `json:"line"`
	Content string   `json:"content"`
	Before  []string `json:"before,omitzero"`
	After   []string `json:"after,omitzero"`
}

func grepSpec() *tool.Spec {
	return &tool.Spec{
		Name:  "grepCode",
		Title: "Find lines by a pattern",
		Description: "Finds the lines that match a regular expression (RE2 syntax, as in Go), in all text files of a codebase or of a folder in it, and gives path, " +
			"line number and content, sorted by path. Files that ignore files such as .gitignore name, hidden files and binary files are left out.",
		Aliases: []string{"code.grep"},
		Timeout: grepTimeout,
		Input: json.RawMessage(`{
  "type": "object",
  "properties": {
    "pattern": {"type": "string", "minLength": 1, "maxLength": 1000, "description": "The regular expression. It is matched within one line; ^ and $ are the line's ends. Example: func \\w+Handler\\("},
    "ignore_case": {"type": "boolean", "default": false, "description": "Whether upper and lower case are the same."},
    "ignoreCase": {"type": "boolean", "description": "The same as ignore_case."},
    "context_before": {"type": "integer", "minimum": 0, "maximum": 100, "default": 0, "description": "How many lines before each match to give as well."},
    "context_after": {"type": "integer", "minimum": 0, "maximum": 100, "default": 0, "description": "How many lines after each match to give as well."},
    "globs": {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 256}, "maxItems": 64, "description": "Which files to look into, such as *.go or src/**/*.ts; with ! in front, which to leave out."},
    "hidden": {"type": "boolean", "default": false, "description": "Also look into files and folders whose names begin with a dot."},
    "ignored": {"type": "boolean", "default": false, "description": "Also look into what ignore files name."},
    "limit": {"type": "integer", "minimum": 1, "default": 1000, "description": "How many lines to give at most."},
    "stream": {"type": "boolean", "default": false, "description": "Also give the lines as output events, path:line:content, as soon as they are found."},` + targetSchema + `
  },
  "required": ["pattern"],
  "additionalProperties": false
}`),
		Output: json.RawMessage(`{
  "type": "array",
  "items": {
    "type": "object",
    "properties": {
      "path": {"type": "string"},
      "line": {"type": "integer", "minimum": 1},
      "content": {"type": "string", "description": "The line. A very long one is cut around the match, with … where something is missing."},
      "before": {"type": "array", "items": {"type": "string"}},
      "after": {"type": "array", "items": {"type": "string"}}
    },
    "required": ["path", "line", "content"]
  }
}`),
		Effects: tool.Effects{Reads: true, Idempotent: true},
	}
}

func (t *Tools) grepTouches(v *workspace.View, a grepArgs) ([]string, error) {
	return abs(targets(v, a.codebase(), a.Path))
}

func (t *Tools) grep(r *request, a grepArgs) (*tool.Result, error) {
	g, err := t.newGrep(r, a)
	if err != nil {
		return nil, err
	}
	err = eachTarget(r.view, a.codebase(), a.Path, func(at target) error {
		if err := g.one(at); err != nil || !g.stats.More {
			return err
		}
		return errEnough
	})
	if err != nil {
		return nil, err
	}
	output, err := strictjson.Marshal(g.lines)
	if err != nil {
		return nil, err
	}
	return &tool.Result{OK: true, Output: output, Summary: g.summary(), Trace: tool.Trace{Details: map[string]any{"grep": g.stats}}}, nil
}

// A grepping is one grep under way.
type grepping struct {
	*request
	tools   *Tools
	args    grepArgs
	pattern *grep.Pattern
	o       grep.Options
	globs   *workspace.Globs
	lines   []line
	bytes   int // of lines
	stats   grepStats
}

// grepStats tell how a grep went.
type grepStats struct {
	grep.Stats
	Indexed    bool `json:"indexed"`              // the index said where to look
	Candidates int  `json:"candidates,omitempty"` // files that it named
	Changed    int  `json:"changed,omitempty"`    // files that it did not know as they are
}

func (t *Tools) newGrep(r *request, a grepArgs) (*grepping, error) {
	if a.Before < 0 || a.After < 0 || a.Before > maxContext || a.After > maxContext || a.Limit < 0 {
		return nil, tool.Errorf(tool.CodeInvalidInput, "context_before and context_after are 0 to %d, and limit is at least 1", maxContext)
	}
	p, err := grep.Compile(a.Pattern, a.IgnoreCase || a.IgnoreCase2)
	if err != nil {
		return nil, err
	}
	globs, err := workspace.NewGlobs(a.Globs)
	if err != nil {
		return nil, err
	}
	if a.Limit == 0 {
		a.Limit = defaultLimit
	}
	o := grep.Options{Shape: grep.Shape{Before: a.Before, After: a.After}, Limit: min(a.Limit, t.o.MaxLines), MaxFile: t.o.MaxFile}
	return &grepping{request: r, tools: t, args: a, pattern: p, o: o, globs: globs, lines: []line{}}, nil
}

func (g *grepping) summary() string {
	s := count(g.stats.Matches, "line")
	if g.stats.More {
		s += "; there are more: narrow the pattern or the path, or give a larger limit"
	}
	if g.stats.TooLarge > 0 {
		s += fmt.Sprintf("; %d files were left out because they are too large", g.stats.TooLarge)
	}
	return s
}

// one searches a target.
func (g *grepping) one(t target) error {
	folder, err := t.view.OpenDir(t.name)
	isFile := err != nil && tool.AsError(err).Reason == "not_a_folder"
	if err != nil && !isFile {
		return err
	}
	if err := g.tools.rates.charge(g.call.Caller.ID, t.root.Codebase); err != nil {
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
	walk := workspace.WalkOptions{Recursive: true, Ignore: !g.args.Ignored, Hidden: g.args.Hidden, Globs: g.args.Globs}
	return g.done(grep.Walk(g, t.view, t.name, walk, t.shown, g.pattern, o, emit))
}

// left gives what the targets before have left to the next. Where that is nothing it only has to be seen whether there is more.
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
	x := g.tools.index(g.call, t.root)
	if x == nil || g.args.Ignored {
		return nil, false
	}
	sel, err := x.Select(g, t.folder(), g.pattern.Need())
	if err != nil {
		return nil, false
	}
	g.stats.Indexed = true
	g.stats.Candidates += sel.Candidates
	g.stats.Changed += sel.Changed
	f := filter{start: len(t.below()), hidden: g.args.Hidden, globs: g.globs, root: t.root.Dir, scope: g.call.Scope, folders: map[string]bool{}}
	return slices.DeleteFunc(sel.Picks, func(p trigram.Pick) bool { return !f.wants(p.Path) }), true
}

// emit takes the lines of a file.
func (g *grepping) emit(f grep.File) error {
	var text strings.Builder
	for _, m := range f.Matches {
		l := line{Path: f.Path, Line: m.Line, Content: m.Content}
		if m.Around != nil {
			l.Before, l.After = m.Around.Before, m.Around.After
		}
		g.lines = append(g.lines, l)
		g.bytes += m.Size()
		if g.args.Stream {
			fmt.Fprintf(&text, "%s:%d:%s\n", f.Path, m.Line, m.Content)
		}
	}
	if !g.args.Stream {
		return nil
	}
	return g.out.Emit(tool.NewEvent(tool.KindOutput, tool.Output{Stream: "matches", Text: text.String()}))
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
