// Package notice tells whether files have changed, by looking at them every now and then.
//
// Looking was chosen over being told (inotify, by fsnotify, as the index of a codebase does): it is the same on every
// file system, also on those that tell nothing, such as a folder of the host that is mounted into a container; a file
// behind a link, one that is renamed into place and one that is not there yet need no care of their own; no watch can
// run out or be lost; and one number bounds what a tree of any shape costs. A look at the few hundred files that a
// source starts from takes a millisecond.
package notice

import (
	"hash/maphash"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Most bounds how many names one look reads.
const Most = 4096

// A Sight is what some files looked like at a moment. As long as two are equal, nothing has changed.
type Sight struct {
	sum uint64
	// Cut says that there was more than Most: what changes in the rest is not noticed.
	Cut bool
}

// seed makes sums comparable, within one process.
var seed = maphash.MakeSeed()

// A mark is what tells a file from what it was. Its place is part of it, so that the sum of all marks does not depend
// on the order in which a folder lists them.
type mark struct {
	path     string
	mode     fs.FileMode
	size     int64
	modified int64
	file     uint64
}

// Look looks at files, and at folders with all that is in them. Paths that are not there are looked at too: they may
// come to be. Folders are read breadth first, so that what lies near the top is seen of a tree that is too large.
//
// A link to a folder is followed where it is one of the paths, or lies in one of them, as a skill does that is kept
// elsewhere; further down it is no more than a link, so that nobody is led around in a tree without end.
func Look(paths []string) Sight {
	l := look{}
	for _, path := range paths {
		if path = filepath.Clean(path); !passed(path) {
			l.at(path, 0)
		}
	}
	for len(l.folders) > 0 && !l.Cut {
		next := l.folders[0]
		l.folders = l.folders[1:]
		l.read(next)
	}
	return l.Sight
}

type look struct {
	Sight
	names   int
	folders []folder // to be read
}

type folder struct {
	path  string
	depth int // 0: it was asked for
}

// passed says what nobody writes by hand: what interpreters, installers and editors leave. A look would be longer for
// it than for all the rest, and a tool that is imported would seem to have changed. What is hidden is seen where it is
// asked for by name.
func passed(path string) bool {
	name := filepath.Base(path)
	return slices.Contains([]string{"__pycache__", "node_modules", ".venv"}, name) ||
		strings.HasSuffix(name, ".pyc") || strings.HasSuffix(name, "~") || strings.HasPrefix(name, "#")
}

// at looks at one path. An empty file is as good as none: it is about to be written, or holds a place in a room.
func (l *look) at(path string, depth int) {
	info, err := os.Lstat(path)
	if err != nil {
		return
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		l.note(path, info)
		if info, err = os.Stat(path); err != nil || info.IsDir() && depth > 1 {
			return
		}
	}
	switch {
	case info.IsDir():
		l.folders = append(l.folders, folder{path, depth})
	case info.Size() > 0:
		l.note(path, info)
	}
}

func (l *look) note(path string, info fs.FileInfo) {
	m := mark{path: path, mode: info.Mode(), size: info.Size(), modified: info.ModTime().UnixNano()}
	if own, ok := info.Sys().(*syscall.Stat_t); ok {
		m.file = own.Ino
	}
	l.sum += maphash.Comparable(seed, m)
}

// read looks at what is in a folder. It is opened as one, whatever has taken its place since: opening a pipe would
// wait.
func (l *look) read(dir folder) {
	f, err := os.OpenFile(dir.path, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer f.Close()
	names, _ := f.Readdirnames(Most - l.names + 1) // what could be read of it is what it has
	for _, name := range names {
		if l.names++; l.names > Most {
			l.Cut = true
			return
		}
		if path := filepath.Join(dir.path, name); !passed(path) && !strings.HasPrefix(name, ".") {
			l.at(path, dir.depth+1)
		}
	}
}
