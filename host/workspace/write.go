package workspace

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"hash/fnv"
	"io/fs"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"toolpost/kernel"
	"toolpost/tool"
)

// WriteOptions configure how a file is written.
type WriteOptions struct {
	CreateOnly bool
	Mode       fs.FileMode // the permissions; 0 means those of the replaced file, or the usual ones for a new file
	Unchanged  *Stamp      // the file must still be in this state, in which the caller read it
}

// Write creates or replaces a file atomically: every reader, at any moment and even after a crash, sees all of the old
// content or all of the new. It makes missing folders, and keeps the permissions and, if the system allows it, the owner.
func (v *View) Write(path string, content []byte, o WriteOptions) error {
	if strings.HasSuffix(path, "/") {
		return tool.Errorf(tool.CodeInvalidInput, "%s ends with a slash; name a file", path)
	}
	s, err := v.newSpot(path)
	if err != nil {
		return err
	}
	defer s.close()
	defer v.ws.lock(s)()
	return v.ws.write(s, content, o)
}

// Edit reads a file of at most limit bytes, applies change, and writes it back. Edits and writes of one file wait for
// each other; if another process changed it meanwhile, nothing is written.
func (v *View) Edit(path string, limit int64, change func(old []byte) ([]byte, error)) error {
	s, err := v.changeable(path)
	if err != nil {
		return err
	}
	defer s.close()
	defer v.ws.lock(s)()
	old, stamp, err := v.readSpot(s, limit)
	if err != nil {
		return err
	}
	content, err := change(old)
	if err != nil {
		return err
	}
	return v.ws.write(s, content, WriteOptions{Unchanged: &stamp})
}

func (v *View) readSpot(s *spot, limit int64) ([]byte, Stamp, error) {
	if err := v.allowed(s.abs(), s.Shown, false); err != nil {
		return nil, Stamp{}, err
	}
	f, err := openEntry(s.dir.fd, s.name, File{root: s.root, abs: s.abs(), shown: s.Shown})
	if err != nil {
		return nil, Stamp{}, err
	}
	defer f.Close()
	content, err := f.ReadAll(limit)
	return content, f.Stamp(), err
}

// lock takes the lock for a spot. Two spots may share one.
func (w *Workspace) lock(s *spot) (unlock func()) {
	h := fnv.New32a()
	_, _ = h.Write([]byte(s.abs())) // it never fails
	mu := &w.changes[h.Sum32()%uint32(len(w.changes))]
	mu.Lock()
	return mu.Unlock
}

func (w *Workspace) write(s *spot, content []byte, o WriteOptions) error {
	old, err := s.replaceable(o)
	if err != nil {
		return err
	}
	w.sweeps.once(s.dir)
	t, err := newTemp(s, old, o)
	if err != nil {
		return explain(s.Shown, err)
	}
	defer t.drop()
	if err := t.fill(content); err != nil {
		return explain(s.Shown, err)
	}
	if _, err := s.replaceable(o); err != nil { // filling took some time
		return err
	}
	return t.commit(s, o)
}

// replaceable returns the state of the file to be replaced, or nil if there is none.
func (s *spot) replaceable(o WriteOptions) (*unix.Stat_t, error) {
	st, err := s.stat()
	if tool.CodeOf(err) == tool.CodeNotFound {
		if o.Unchanged != nil {
			return nil, changed(s.Shown)
		}
		return nil, nil //nolint:nilnil // nothing there, and nothing wrong
	}
	if err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s is a folder, not a file", s.Shown).Because("folder")
	}
	if err := s.checkFree(!o.CreateOnly); err != nil {
		return nil, err
	}
	if err := s.checkLinks(&st, func() string { return s.Shown }); err != nil {
		return nil, err
	}
	if o.Unchanged != nil && *o.Unchanged != stampOf(&st) {
		return nil, changed(s.Shown)
	}
	if err := unix.Faccessat(s.dir.fd, s.name, unix.W_OK, unix.AT_EACCESS); err != nil {
		return nil, explain(s.Shown, err)
	}
	return &st, nil
}

func changed(shown string) *tool.Error {
	return tool.Errorf(tool.CodeConflict, "%s was changed by someone else meanwhile; read it again",
		shown).Because("changed")
}

// A temp is an unfinished file in the folder of its final name. It is locked while its writer lives.
type temp struct {
	dir, fd int
	name    string
	mode    uint32
	owner   *unix.Stat_t // whose owner it gets; nil means ours
}

const tempSuffix = ".tmp"

func newTemp(s *spot, old *unix.Stat_t, o WriteOptions) (*temp, error) {
	var random [8]byte
	_, _ = rand.Read(random[:]) // it never fails
	t := &temp{
		dir: s.dir.fd, name: TempPrefix + hex.EncodeToString(random[:]) + tempSuffix,
		mode: uint32(o.Mode.Perm()), owner: old,
	}
	create := uint32(0o666) // reduced by the umask
	if old != nil {
		create = 0o600
		if t.mode == 0 {
			t.mode = uint32(old.Mode & 0o777) //nolint:unconvert // uint16 on macOS
		}
	}
	var err error
	if t.fd, err = openName(t.dir, t.name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, create); err != nil {
		return nil, err
	}
	_ = unix.Flock(t.fd, unix.LOCK_EX|unix.LOCK_NB) // a file system without locks relies on the age of a stale file
	return t, nil
}

// fill writes the content, sets owner and mode, and syncs the file before it gets its name.
func (t *temp) fill(content []byte) error {
	for len(content) > 0 {
		var n int
		if err := retry(func() (err error) { n, err = unix.Write(t.fd, content); return err }); err != nil {
			return err
		}
		content = content[n:]
	}
	if t.owner != nil {
		_ = unix.Fchown(t.fd, int(t.owner.Uid), int(t.owner.Gid)) // only root may give files away; otherwise it stays ours
	}
	if t.mode != 0 {
		if err := unix.Fchmod(t.fd, t.mode); err != nil {
			return err
		}
	}
	return unix.Fsync(t.fd)
}

// commit renames the file, and syncs the folder.
func (t *temp) commit(s *spot, o WriteOptions) error {
	if err := rename(t.dir, t.name, s, !o.CreateOnly); err != nil {
		return err
	}
	t.name = ""
	// EINVAL: folders of this file system need no sync
	if err := unix.Fsync(s.dir.fd); err != nil && !errors.Is(err, unix.EINVAL) {
		return explain(s.Shown, err)
	}
	return nil
}

// drop closes the file, and removes it if it did not get its name.
func (t *temp) drop() {
	if t.name != "" {
		_ = unix.Unlinkat(t.dir, t.name, 0)
	}
	unix.Close(t.fd)
}

const (
	maxSwept = 10_000
	staleAge = time.Minute // much longer than a temporary file lives without its lock
)

// sweeps removes the leftovers of killed writers, once in each folder.
type sweeps struct {
	mu   sync.Mutex
	done map[[2]uint64]bool
}

// once sweeps a folder that is about to be written, unless it was swept before.
func (s *sweeps) once(dir *File) {
	key := [2]uint64{kernel.Device(&dir.stat), dir.stat.Ino}
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

// sweep reads the folder through its own descriptor, since the read position belongs to the descriptor.
func sweep(dir *File) {
	fd, err := unix.Openat(dir.fd, ".", readFlags|unix.O_DIRECTORY, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	buf := make([]byte, 32<<10)
	for {
		n, err := unix.ReadDirent(fd, buf)
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

// removeStale removes an abandoned temporary file: it is old, and its lock is free.
func removeStale(dir int, name string) {
	fd, err := openName(dir, name, readFlags, 0)
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
