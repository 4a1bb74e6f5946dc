package codesearch

import (
	"path"
	"path/filepath"
	"strings"

	"toolpost/host/workspace"
	"toolpost/tool"
)

// A filter says of the paths that an index gives whether a walk of the same call would come to them.
type filter struct {
	start   int // how many bytes of a path lead to where the walk would start
	hidden  bool
	globs   *workspace.Globs
	root    string
	scope   tool.Scope
	folders map[string]bool // what was said about folders
}

func newFilter(r *asked, at target, g *workspace.Globs) filter {
	return filter{start: len(at.below()), globs: g, root: at.root.Dir, scope: r.call.Scope, folders: map[string]bool{}}
}

// wants asks about the file, and about each folder on the way to it.
func (f *filter) wants(rel string) bool {
	below := rel[f.start:]
	if !f.hidden && (below[0] == '.' || strings.Contains(below, "/.")) {
		return false
	}
	return f.globs.Want(below) && f.enters(path.Dir(rel))
}

// enters reports whether the walk would go down into a folder: one that the policy denies hides all that is in it,
// and so does one that a pattern leaves out.
func (f *filter) enters(folder string) bool {
	if folder == "." || len(folder) <= f.start {
		return true
	}
	ok, known := f.folders[folder]
	if !known {
		ok = f.enters(path.Dir(folder)) && !f.globs.LeaveOut(folder[f.start:]) &&
			(f.scope == nil || f.scope.Path(filepath.Join(f.root, folder), false) == nil)
		f.folders[folder] = ok
	}
	return ok
}
