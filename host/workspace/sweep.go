package workspace

import (
	"io/fs"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	maxSwept = 10_000
	staleAge = time.Minute // much longer than a temporary file lives without its lock
)

// sweeps removes what writers that were killed left behind, once in each folder.
type sweeps struct {
	mu   sync.Mutex
	done map[[2]uint64]bool
}

// once sweeps a folder that is about to be written, unless that was done.
func (s *sweeps) once(dir *File) {
	key := [2]uint64{dir.stat.Dev, dir.stat.Ino}
	s.mu.Lock()
	if len(s.done) >= maxSwept || s.done == nil {
		s.done = map[[2]uint64]bool{}
	}
	seen := s.done[key]
	s.done[key] = true
	s.mu.Unlock()
	if !seen {
		sweep(dir)
	}
}

// sweep reads the folder by a descriptor of its own, since the place in a folder belongs to the descriptor.
func sweep(dir *File) {
	fd, err := unix.Openat(dir.fd, ".", readFlags|unix.O_DIRECTORY, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	buf := make([]byte, 32<<10)
	for {
		n, err := unix.Getdents(fd, buf)
		if err != nil || n <= 0 {
			return
		}
		for _, it := range appendItems(nil, fd, buf[:n]) {
			if strings.HasPrefix(it.name, TempPrefix) && strings.HasSuffix(it.name, tempSuffix) {
				removeStale(fd, it.name)
			}
		}
	}
}

// removeStale removes a temporary file that nobody holds any more: it is old, and its lock is free.
func removeStale(dir int, name string) {
	fd, err := unix.Openat(dir, name, readFlags|unix.O_NOFOLLOW, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || typeOf(st.Mode) != fs.FileMode(0) ||
		time.Since(time.Unix(st.Mtim.Unix())) < staleAge {
		return
	}
	if unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) == nil {
		_ = unix.Unlinkat(dir, name, 0)
	}
}
