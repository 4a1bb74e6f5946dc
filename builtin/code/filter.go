package code

import (
	"path"
	"path/filepath"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"toolpost/tool"
	"toolpost/workspace"
)

// A filter says of the paths that an index gives whether a walk of the same call would come to them.
type filter struct {
	start   int // how many bytes of a path lead to where the walk would start
	hidden  bool
	globs   *globs
	root    string
	scope   tool.Scope
	folders map[string]bool // what was said about folders
}

// wants asks about the file, and about each folder on the way to it.
func (f *filter) wants(rel string) bool {
	below := rel[f.start:]
	if !f.hidden && (below[0] == '.' || strings.Contains(below, "/.")) {
		return false
	}
	return f.globs.wants(below) && f.enters(path.Dir(rel))
}

// enters reports whether the walk would go down into a folder: one that the policy denies hides all that is in it, and so does one that
// a pattern leaves out.
func (f *filter) enters(folder string) bool {
	if folder == "." || len(folder) <= f.start {
		return true
	}
	ok, known := f.folders[folder]
	if !known {
		ok = f.enters(path.Dir(folder)) && !f.globs.leavesOut(folder[f.start:]) &&
			(f.scope == nil || f.scope.Path(filepath.Join(f.root, folder), false) == nil)
		f.folders[folder] = ok
	}
	return ok
}

// globs are the patterns of a grep, as a walk of the workspace reads them.
type globs struct{ include, exclude []string }

func newGlobs(patterns []string) (*globs, error) {
	if len(patterns) > workspace.MaxGlobs {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%d globs are given; at most %d make sense", len(patterns), workspace.MaxGlobs)
	}
	g := &globs{}
	for _, p := range patterns {
		p, exclude := strings.CutPrefix(p, "!")
		if err := workspace.CheckGlob(p); err != nil {
			return nil, err
		}
		if exclude {
			g.exclude = append(g.exclude, p)
		} else {
			g.include = append(g.include, p)
		}
	}
	return g, nil
}

func (g *globs) wants(below string) bool {
	return (len(g.include) == 0 || matchAny(g.include, below)) && !g.leavesOut(below)
}

func (g *globs) leavesOut(below string) bool { return matchAny(g.exclude, below) }

// matchAny matches a pattern with a slash against the path, another one against the name.
func matchAny(patterns []string, below string) bool {
	for _, p := range patterns {
		subject := below
		if !strings.Contains(p, "/") && !strings.Contains(p, "**") {
			subject = path.Base(below)
		}
		if doublestar.MatchUnvalidated(p, subject) {
			return true
		}
	}
	return false
}
