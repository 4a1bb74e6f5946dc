// Package notice detects changes of files by polling.
//
// Polling was chosen over notifications (inotify, by fsnotify, as the index of a codebase uses): it works on every file
// system, including those without notifications, such as a folder of the host that is mounted into a container; a file
// behind a link, one that is renamed into place and a missing one need no special care; no watch can run out or be lost;
// and one number bounds the cost for a tree of any shape. Polling the few hundred files that a source starts from takes a
// millisecond.
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

// A Sight is the state of some files at a moment. As long as two are equal, nothing has changed.
type Sight struct {
	sum uint64
	// Cut is set if there were more than Most names: changes in the rest are not noticed.
	Cut bool
}

// seed makes sums comparable within one process.
var seed = maphash.MakeSeed()

// A mark identifies a state of a file. It includes the path, so that the sum of all marks does not depend on the order in
// which a folder lists them.
type mark struct {
	path     string
	mode     fs.FileMode
	size     int64
	modified int64
	file     uint64
}

// Look looks at files, and at folders with everything in them. Missing paths are included: they may appear later. Folders
// are read breadth first, so that a tree that is too large is seen near its top.
//
// A link to a folder is followed if it is one of the paths, or lies directly in one of them, as with a skill that is kept
// elsewhere. Further down a link is not followed, so that a cycle cannot make the tree endless.
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
	depth int // 0 for a requested path
}

// passed reports whether a path is skipped because people do not write it by hand: files that interpreters, installers
// and editors leave. They would take more time than all the rest, and importing a tool would seem to change it. A hidden
// file is included if it is requested by name.
func passed(path string) bool {
	name := filepath.Base(path)
	return slices.Contains([]string{"__pycache__", "node_modules", ".venv"}, name) ||
		strings.HasSuffix(name, ".pyc") || strings.HasSuffix(name, "~") || strings.HasPrefix(name, "#")
}

// at looks at one path. An empty file counts as missing: it is about to be written, or is a placeholder in a room.
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

// read looks at the contents of a folder. It opens it as a folder, even if something else has taken its place: opening a
// pipe would block.
func (l *look) read(dir folder) {
	f, err := os.OpenFile(dir.path, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer f.Close()
	names, _ := f.Readdirnames(Most - l.names + 1) // the part that could be read counts
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
