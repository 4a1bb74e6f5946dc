package workspace

import (
	"io"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"

	"toolpost/host/workspace/ignore"
)

// maxIgnoreFile bounds an ignore file. A larger one was not written by a person, and is skipped.
const maxIgnoreFile = 1 << 20

// rules are the ignore files that apply to a folder. They are immutable, and shared with all folders below that have no
// ignore file of their own.
type rules struct {
	dots []scoped // .ignore files, the nearest first; they precede git's
	gits []scoped // .gitignore files up to the top of the repository, the nearest first, then its info/exclude
}

// scoped is a list and its folder, as the length of the path prefix to remove before matching.
type scoped struct {
	list *ignore.List
	base int
}

// ignores reports whether an item of a folder is left out. The first list with a matching rule decides.
func (r *rules) ignores(d *folder, it item) bool {
	if r == nil {
		return false
	}
	rel := ""
	for _, lists := range [2][]scoped{r.dots, r.gits} {
		for _, l := range lists {
			path := it.name
			if l.list.NeedsPath() {
				if rel == "" {
					rel = d.child(it.name)
				}
				path = rel[l.base:]
			}
			if v := l.list.Match(path, it.name, it.typ.IsDir()); v != ignore.None {
				return v == ignore.Ignored
			}
		}
	}
	return false
}

// with returns the rules that apply to a folder, given those of its parent.
func (r *rules) with(d *folder, items []item) *rules {
	for _, it := range items {
		switch it.name {
		case ".gitignore", ".ignore", ".git":
			return r.load(d.fd, d.rel)
		}
	}
	return r
}

// load reads the ignore files of an open folder; rel is its path below the root.
func (r *rules) load(fd int, rel string) *rules {
	next := &rules{}
	if r != nil {
		*next = *r
	}
	base := len(rel)
	if base > 0 {
		base++
	}
	nearest := func(name string, lists []scoped) []scoped {
		if l := readRules(fd, name); l != nil {
			return append([]scoped{{l, base}}, lists...)
		}
		return lists
	}
	if _, err := statAt(fd, ".git"); err == nil { // the top of a repository: the rules above belong to another
		next.gits = nearest(".git/info/exclude", nil)
	}
	next.gits, next.dots = nearest(".gitignore", next.gits), nearest(".ignore", next.dots)
	return next
}

// rulesAbove reads the ignore files of the folders above rel, from the root down.
func rulesAbove(root int, rel string) *rules {
	if rel == "" {
		return nil
	}
	r := (*rules)(nil).load(root, "")
	for i := range len(rel) {
		if rel[i] != '/' {
			continue
		}
		if fd, err := openSteps(root, rel[:i]); err == nil {
			r = r.load(fd, rel[:i])
			unix.Close(fd)
		}
	}
	return r
}

// readRules reads an ignore file; it returns nil if the file is missing, unreadable or too large. Links are not followed:
// they could lead out, and git does not follow them either.
func readRules(dir int, name string) *ignore.List {
	fd, err := openSteps(dir, name)
	if err != nil {
		return nil
	}
	f := &File{fd: fd}
	defer f.Close()
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || typeOf(st.Mode) != fs.FileMode(0) || st.Size > maxIgnoreFile {
		return nil
	}
	content, err := io.ReadAll(io.LimitReader(f, maxIgnoreFile))
	if err != nil {
		return nil
	}
	return ignore.Parse(content)
}

// openSteps opens a path below an open folder, step by step, following no link.
func openSteps(dir int, path string) (fd int, err error) {
	name, rest, more := strings.Cut(path, "/")
	if fd, err = openName(dir, name, readFlags, 0); err != nil || !more {
		return fd, err
	}
	defer unix.Close(fd)
	return openSteps(fd, rest)
}
