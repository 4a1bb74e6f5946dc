package workspace

import (
	"path"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"toolpost/tool"
)

// What patterns may cost.
const (
	MaxGlob     = 256 // bytes of one
	MaxGlobs    = 64  // of one walk
	maxBranches = 16  // braces and commas of one: matching tries every combination of alternatives
)

// Globs decide which files of a tree are wanted, by their paths below where a walk starts. The zero value wants all.
type Globs struct {
	include, exclude []glob
}

type glob struct {
	pattern string
	byPath  bool // it has a slash: it is about the path below the start, else about the name
}

// NewGlobs reads patterns; those with ! in front leave out what they match. One with a slash is about the path, another
// one about the name.
func NewGlobs(patterns []string) (*Globs, error) {
	if len(patterns) > MaxGlobs {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%d patterns are given; at most %d make sense", len(patterns),
			MaxGlobs)
	}
	g := &Globs{}
	for _, p := range patterns {
		p, exclude := strings.CutPrefix(p, "!")
		if err := CheckGlob(p); err != nil {
			return nil, err
		}
		one := glob{p, strings.Contains(p, "/") || strings.Contains(p, "**")}
		if exclude {
			g.exclude = append(g.exclude, one)
		} else {
			g.include = append(g.include, one)
		}
	}
	return g, nil
}

// CheckGlob reports whether a pattern is well formed and cheap enough.
func CheckGlob(p string) error {
	switch {
	case p == "":
		return tool.Errorf(tool.CodeInvalidInput, "a pattern is empty; write one such as *.go")
	case len(p) > MaxGlob || strings.Count(p, "{")+strings.Count(p, ",") > maxBranches:
		return tool.Errorf(tool.CodeInvalidInput,
			"the pattern is too long or has too many alternatives; use a shorter one")
	case !doublestar.ValidatePattern(p):
		return tool.Errorf(tool.CodeInvalidInput, "the pattern %q is malformed; close every bracket and brace", p)
	}
	return nil
}

// LeaveOut reports whether an entry, and a folder with all that is in it, is left out.
func (g *Globs) LeaveOut(below string) bool { return matchAny(g.exclude, below) }

// Want reports whether a file is wanted.
func (g *Globs) Want(below string) bool {
	return (len(g.include) == 0 || matchAny(g.include, below)) && !g.LeaveOut(below)
}

func matchAny(list []glob, below string) bool {
	for _, g := range list {
		subject := below
		if !g.byPath {
			subject = path.Base(below)
		}
		if doublestar.MatchUnvalidated(g.pattern, subject) {
			return true
		}
	}
	return false
}
