package file

import (
	"cmp"
	"io/fs"

	"toolpost/host/workspace"
	"toolpost/tool"
)

// The bounds of one listing. Beyond a bound it fails and explains how to ask for less: half a listing would be mistaken for
// a whole one.
const (
	maxEntries = 100_000   // in the result
	maxVisited = 1_000_000 // looked at
	maxDepth   = 128       // folders below each other
	maxResult  = 10 << 20  // bytes of all paths
)

type listArgs struct {
	Path      string `json:"path" schema:"minLength=1" doc:"The folder, relative to an offered folder, or absolute below one. Left out: the first offered folder."`
	Recursive bool   `json:"recursive" schema:"default=false" doc:"Also list everything below the folder."`
	Pattern   string `json:"pattern" schema:"minLength=1 maxLength=256" doc:"A glob. Without a slash it is matched against the name, such as *.go; with a slash against the path below the folder, such as src/**/*.{ts,tsx}."`
	Ignore    bool   `json:"ignore" schema:"default=false" doc:"Leave out what .gitignore and .ignore files name, and .git."`
}

func (a *listArgs) paths() []*string { return []*string{&a.Path} }

// An entry is one line of a listing.
type entry struct {
	Path string `json:"path" doc:"The path as given in the call; for an entry of a folder, the folder as given, a slash, and the name of the entry."`
	Size int64  `json:"size" schema:"minimum=0" doc:"Bytes of a file; 0 for everything else."`
	Type string `json:"type" schema:"enum=file|directory|symlink|other"`
}

func (t *Tools) list(r *request, a listArgs) ([]entry, error) {
	entries := []entry{}
	o := workspace.WalkOptions{Recursive: a.Recursive, Ignore: a.Ignore, Hidden: true, Globs: patterns(a.Pattern)}
	err := r.walk(a.Path, o, func(e *workspace.Entry, shown string) (bool, error) {
		info, err := e.Info()
		if err == nil {
			entries = append(entries, newEntry(shown, info))
		}
		if tool.CodeOf(err) == tool.CodeNotFound { // it was removed meanwhile
			return false, nil
		}
		return err == nil, err
	})
	return entries, err
}

// walk visits the entries below a folder, up to the bounds of a listing; list decides which entries are listed.
func (r *request) walk(
	path string, o workspace.WalkOptions, list func(e *workspace.Entry, shown string) (listed bool, err error),
) error {
	o.MaxEntries, o.MaxDepth = maxVisited, maxDepth
	l := &listing{shown: cmp.Or(path, ".")}
	err := r.Walk(r, path, o, func(e *workspace.Entry) error {
		shown := e.Shown()
		if listed, err := list(e, shown); err != nil || !listed {
			return err
		}
		return l.count(shown)
	})
	return advise(err, "not_a_folder", readName)
}

func patterns(p string) []string {
	if p == "" {
		return nil
	}
	return []string{p}
}

type globArgs struct {
	Pattern string `json:"pattern" schema:"required minLength=1 maxLength=256" doc:"Without a slash it is matched against the name, such as *.go; with a slash against the path below the folder, such as src/**/*.{ts,tsx}. With ! in front: everything else."`
	Path    string `json:"path" schema:"minLength=1" doc:"The folder to look in. Left out: the first offered folder."`
	Ignored bool   `json:"ignored" schema:"default=false" doc:"Also what ignore files name."`
	Hidden  bool   `json:"hidden" schema:"default=false" doc:"Also names that begin with a dot."`
}

func (a *globArgs) paths() []*string { return []*string{&a.Path} }

// glob returns the paths of files. A search by name means the files of the project, so it omits what ignore files name,
// unless asked to include it.
func (t *Tools) glob(r *request, a globArgs) ([]string, error) {
	if err := workspace.CheckGlob(a.Pattern); err != nil {
		return nil, err
	}
	paths := []string{}
	o := workspace.WalkOptions{Recursive: true, Ignore: !a.Ignored, Hidden: a.Hidden, Globs: patterns(a.Pattern)}
	err := r.walk(a.Path, o, func(e *workspace.Entry, shown string) (bool, error) {
		if e.Type.IsDir() {
			return false, nil
		}
		paths = append(paths, shown)
		return true, nil
	})
	return paths, err
}

// A listing counts its entries.
type listing struct {
	shown          string // the folder as the caller wrote it
	entries, bytes int
}

func (l *listing) count(path string) error {
	l.entries++
	if l.bytes += len(path); l.bytes > maxResult {
		return l.tooMuch("gives more than %d bytes of paths", maxResult)
	}
	if l.entries > maxEntries {
		return l.tooMuch("gives more than %d entries", maxEntries)
	}
	return nil
}

func (l *listing) tooMuch(what string, limit int) *tool.Error {
	return tool.Errorf(tool.CodeInvalidInput,
		"%s "+what+"; take a smaller folder or give a pattern", l.shown, limit).Because("too_large")
}

func newEntry(shown string, info fs.FileInfo) entry {
	e := entry{Path: shown, Type: typeName(info.Mode())}
	if info.Mode().IsRegular() {
		e.Size = info.Size()
	}
	return e
}

func typeName(mode fs.FileMode) string {
	switch {
	case mode.IsRegular():
		return "file"
	case mode.IsDir():
		return "directory"
	case mode&fs.ModeSymlink != 0:
		return "symlink"
	}
	return "other"
}
