package file

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/bmatcuk/doublestar/v4"

	"toolpost/strictjson"
	"toolpost/tool"
)

// What one listing may cost. Beyond a bound it fails and says how to ask for less: half a listing would
// be taken for a whole one.
const (
	maxEntries  = 100_000   // in the result
	maxVisited  = 1_000_000 // looked at
	maxDepth    = 128       // folders below each other
	maxResult   = 10 << 20  // bytes of all paths
	maxPattern  = 256
	maxBranches = 16 // braces and commas of a pattern: matching tries every combination of alternatives
)

type listArgs struct {
	Path      string `json:"path"`
	Recursive bool   `json:"recursive"`
	Pattern   string `json:"pattern"`
}

// An entry is one line of a listing.
type entry struct {
	Path string `json:"path"`
	Size int64  `json:"size"`
	Type string `json:"type"`
}

func (r *Runner) list(ctx context.Context, args listArgs) (json.RawMessage, error) {
	if err := checkPattern(args.Pattern); err != nil {
		return nil, err
	}
	l := &listing{args: args, shown: args.Path, prefix: strings.TrimRight(args.Path, "/") + "/", entries: []entry{}}
	if args.Path == "" {
		l.shown, l.prefix = ".", ""
	}
	f, at, err := r.open(l.shown)
	if err != nil {
		return nil, err
	}
	l.at = at
	if err := l.start(ctx, f); err != nil {
		return nil, err
	}
	slices.SortFunc(l.entries, func(a, b entry) int { return strings.Compare(a.Path, b.Path) })
	return strictjson.Marshal(l.entries)
}

func checkPattern(p string) error {
	switch {
	case len(p) > maxPattern || strings.Count(p, "{")+strings.Count(p, ",") > maxBranches:
		return tool.Errorf(tool.CodeInvalidInput, "the pattern is too long or has too many alternatives; use a shorter one")
	case !doublestar.ValidatePattern(p):
		return tool.Errorf(tool.CodeInvalidInput, "the pattern %q is malformed; close every bracket and brace", p)
	}
	return nil
}

// A listing is one walk over a folder.
type listing struct {
	args    listArgs
	shown   string // the folder as the caller wrote it
	prefix  string // what comes before an entry's own path
	at      place
	entries []entry
	visited int
	bytes   int
}

func (l *listing) start(ctx context.Context, f *os.File) error {
	info, err := f.Stat()
	if err == nil && !info.IsDir() {
		err = tool.Errorf(tool.CodeInvalidInput, "%s is not a folder; use %s", l.shown, readName)
	}
	if err != nil {
		f.Close()
		return err
	}
	return l.folder(ctx, f, "", 1)
}

// folder lists f, which is rel below the start, and closes it.
func (l *listing) folder(ctx context.Context, f *os.File, rel string, depth int) error {
	folders, err := l.readFolder(ctx, f, rel)
	f.Close()
	if err != nil || !l.args.Recursive {
		return err
	}
	for _, name := range folders {
		if err := l.descend(ctx, path.Join(rel, name), depth+1); err != nil {
			return err
		}
	}
	return nil
}

// descend lists a folder below. One that has gone meanwhile, or that may not be
// read, has no entries.
func (l *listing) descend(ctx context.Context, rel string, depth int) error {
	if depth > maxDepth {
		return l.tooMuch("has folders nested deeper than %d", maxDepth)
	}
	below := place{l.at.root, path.Join(l.at.rel, rel)}
	f, err := below.open(l.prefix+rel, syscall.O_DIRECTORY)
	switch tool.CodeOf(err) {
	case "":
		return l.folder(ctx, f, rel, depth)
	case tool.CodeNotFound, tool.CodeAccessDenied:
		return nil
	}
	return err
}

// readFolder takes the entries of one folder in batches, so that a huge folder is not held in memory. It
// gives the names of the folders in it.
func (l *listing) readFolder(ctx context.Context, f *os.File, rel string) (folders []string, err error) {
	for {
		batch, err := f.ReadDir(1024)
		for _, e := range batch {
			if err := l.visit(ctx, path.Join(rel, e.Name()), e); err != nil {
				return nil, err
			}
			if e.IsDir() {
				folders = append(folders, e.Name())
			}
		}
		if errors.Is(err, io.EOF) {
			return folders, nil
		}
		if err != nil {
			return nil, failed(ctx, l.prefix+rel, err)
		}
	}
}

func (l *listing) visit(ctx context.Context, rel string, e fs.DirEntry) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if l.visited++; l.visited > maxVisited {
		return l.tooMuch("has more than %d entries below it", maxVisited)
	}
	if sensitiveName(e.Name()) || !l.matches(rel) {
		return nil
	}
	info, err := e.Info()
	if err != nil {
		return err
	}
	// A name need not be UTF-8, but JSON is.
	shown := strings.ToValidUTF8(l.prefix+rel, "\uFFFD")
	if l.bytes += len(shown); l.bytes > maxResult {
		return l.tooMuch("gives more than %d bytes of paths", maxResult)
	}
	if len(l.entries) == maxEntries {
		return l.tooMuch("gives more than %d entries", maxEntries)
	}
	l.entries = append(l.entries, newEntry(shown, info))
	return nil
}

func (l *listing) tooMuch(what string, limit int) *tool.Error {
	return tool.Errorf(tool.CodeInvalidInput, "%s "+what+"; list a smaller folder or give a pattern", l.shown, limit).Because("too_large")
}

func (l *listing) matches(rel string) bool {
	if l.args.Pattern == "" {
		return true
	}
	subject := rel
	if !strings.Contains(l.args.Pattern, "/") && !strings.Contains(l.args.Pattern, "**") {
		subject = path.Base(rel)
	}
	return doublestar.MatchUnvalidated(l.args.Pattern, subject)
}

func newEntry(shown string, info fs.FileInfo) entry {
	switch mode := info.Mode(); {
	case mode.IsRegular():
		return entry{shown, info.Size(), "file"}
	case mode.IsDir():
		return entry{shown, 0, "directory"}
	case mode&fs.ModeSymlink != 0:
		return entry{shown, 0, "symlink"}
	}
	return entry{shown, 0, "other"}
}
