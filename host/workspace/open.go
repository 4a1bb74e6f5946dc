package workspace

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"toolpost/config/offlimits"
	"toolpost/kernel"
	"toolpost/tool"
)

// A File is an open file or folder below a root. It is not for several goroutines at once, except ReadAt.
type File struct {
	fd    int
	root  *root
	abs   string // its real path; empty if the entry knows it
	shown string
	entry *Entry
	stat  unix.Stat_t // when it was opened
}

// Fd returns the descriptor, which the File still owns.
func (f *File) Fd() int { return f.fd }

// ProcPath returns a name that refers to this open file alone, for as long as it is open. A child uses it as its working
// folder.
func (f *File) ProcPath() string {
	path, err := kernel.Again(f.fd)
	if err != nil {
		return f.Abs()
	}
	return path
}

// Abs returns the real path of the file, links resolved.
func (f *File) Abs() string {
	if f.entry != nil {
		return f.entry.Abs()
	}
	return f.abs
}

// Shown returns the path as the caller wrote it.
func (f *File) Shown() string {
	if f.entry != nil {
		return f.entry.Shown()
	}
	return f.shown
}

// Size returns the size of the file in bytes when it was opened.
func (f *File) Size() int64 { return f.stat.Size }

// Info describes the file as it was when it was opened.
func (f *File) Info() fs.FileInfo { return fileInfo{path.Base(f.Abs()), f.stat} }

// Stamp returns the state of the file when it was opened.
func (f *File) Stamp() Stamp { return stampOf(&f.stat) }

// Restat returns the current state of the open file.
func (f *File) Restat() (Stamp, error) {
	var st unix.Stat_t
	if err := retry(func() error { return unix.Fstat(f.fd, &st) }); err != nil {
		return Stamp{}, explain(f.Shown(), err)
	}
	return stampOf(&st), nil
}

// Read implements io.Reader.
func (f *File) Read(p []byte) (n int, err error) {
	err = retry(func() error { n, err = unix.Read(f.fd, p); return err })
	return f.read(n, len(p), err)
}

// ReadAt implements io.ReaderAt.
func (f *File) ReadAt(p []byte, off int64) (n int, err error) {
	for n < len(p) && err == nil {
		var m int
		err = retry(func() error { m, err = unix.Pread(f.fd, p[n:], off+int64(n)); return err })
		m, err = f.read(m, len(p)-n, err)
		n += m
	}
	return n, err
}

// ReadAll reads the rest of the file, but never more than limit bytes: a file may grow while it is read, or report size 0
// and be endless.
func (f *File) ReadAll(limit int64) ([]byte, error) {
	if f.stat.Size > limit {
		return nil, f.TooLarge(limit)
	}
	room := f.stat.Size + 1 // one more than its size: the last read sees the end
	if room == 1 {
		room = 512 // files of the kernel report size 0
	}
	content := make([]byte, 0, room)
	for {
		n, err := f.Read(content[len(content):cap(content)])
		content = content[:len(content)+n]
		switch {
		case int64(len(content)) > limit:
			return nil, f.TooLarge(limit)
		case err == io.EOF:
			return content, nil
		case err != nil:
			return nil, err
		case len(content) == cap(content):
			content = slices.Grow(content, 4096)
		}
	}
}

// TooLarge returns the error about a file that is larger than the limit.
func (f *File) TooLarge(limit int64) *tool.Error {
	return tool.Errorf(tool.CodeInvalidInput,
		"%s is larger than %d bytes; max_file of the source says how much is read", f.Shown(), limit).
		Because("too_large")
}

func (f *File) read(n, want int, err error) (int, error) {
	switch {
	case err != nil:
		return 0, tool.Errorf(tool.CodeInternal, "%s: %w", f.Shown(), err)
	case n == 0 && want > 0:
		return 0, io.EOF
	}
	return n, nil
}

// Close closes the file. A second call does nothing.
func (f *File) Close() error {
	if f.fd < 0 {
		return nil
	}
	fd := f.fd
	f.fd = -1
	return unix.Close(fd)
}

// A Stamp identifies the state of a file: which file it is, its size, and when it was changed.
type Stamp struct {
	Dev, Ino     uint64
	Size         int64
	MTime, CTime unix.Timespec
}

func stampOf(st *unix.Stat_t) Stamp {
	return Stamp{Dev: kernel.Device(st), Ino: st.Ino, Size: st.Size, MTime: st.Mtim, CTime: st.Ctim}
}

// Flags for opening files for reading: never wait for the writer of a FIFO, never acquire a terminal.
const readFlags = unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC

// Open opens a regular file for reading, in the first root that has it.
func (v *View) Open(path string) (*File, error) {
	return v.open(path, (*File).checkRegular)
}

func (f *File) checkRegular() error {
	switch typeOf(f.stat.Mode) {
	case 0:
		return nil
	case fs.ModeDir:
		return tool.Errorf(tool.CodeInvalidInput, "%s is a folder, not a file", f.Shown()).Because("folder")
	}
	return notRegular(f.Shown())
}

// OpenDir opens a folder, in the first root that has it.
func (v *View) OpenDir(path string) (*File, error) {
	return v.open(path, func(f *File) error {
		if typeOf(f.stat.Mode) != fs.ModeDir {
			return tool.Errorf(tool.CodeInvalidInput, "%s is not a folder", path).Because("not_a_folder")
		}
		return nil
	})
}

// WorkDir opens a folder as the working folder of a child. An empty path means the first root.
func (v *View) WorkDir(path string) (*File, error) {
	return v.OpenDir(cmp.Or(path, "."))
}

// open opens a path for reading, in the first root that has it, if policy allows the file that was really opened, and if
// check accepts it.
func (v *View) open(path string, check func(*File) error) (*File, error) {
	return first(v, path, func(p Place) (*File, error) {
		f, err := v.ws.openFile(p, readFlags)
		if err != nil {
			return nil, err
		}
		if err = v.allowed(f.abs, path, false); err == nil {
			err = check(f)
		}
		if err != nil {
			f.Close()
		}
		return f, err
	})
}

// openFile opens a place and examines what it really opened.
func (w *Workspace) openFile(p Place, flags int) (*File, error) {
	if w.sensitive.path(p.Rel) {
		return nil, deniedSensitive(p.Shown)
	}
	fd, abs, err := w.openBelow(p, flags)
	if err != nil {
		return nil, err
	}
	f := &File{fd: fd, root: p.root, abs: abs, shown: p.Shown}
	err = f.load()
	if ban := w.checker.At(abs); err == nil && ban == offlimits.Secret {
		err = offLimitsError(p.Shown, ban)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// load reads the state of the open file.
func (f *File) load() error {
	if err := retry(func() error { return unix.Fstat(f.fd, &f.stat) }); err != nil {
		return explain(f.Shown(), err)
	}
	err := f.root.checkLinks(&f.stat, f.Shown)
	if err == nil && f.ban() == offlimits.Secret {
		return offLimitsError(f.Shown(), offlimits.Secret)
	}
	return err
}

// ban returns the ban on the file by its identity. A file with one name is already covered by that.
func (f *File) ban() offlimits.Ban {
	id := offlimits.ID{Dev: kernel.Device(&f.stat), Ino: f.stat.Ino}
	switch {
	case typeOf(f.stat.Mode) == fs.ModeDir:
		return f.root.checker.Folder(id)
	case f.stat.Nlink > 1:
		return f.root.checker.Linked(id)
	}
	return offlimits.Free
}

// checkLinks refuses a file that has a second name: it may be a file from outside that was linked into the root.
func (r *root) checkLinks(st *unix.Stat_t, shown func() string) error {
	if st.Mode&unix.S_IFMT == unix.S_IFREG && st.Nlink > 1 && r.options.HardLinks != "allow" {
		return denied(shown(), "the file has another name (a hard link), which may be outside the offered folders; "+
			"`hard_links: allow` of the root lets it through").Because("hard_link")
	}
	return nil
}

// allowed checks policy for the real name of a file.
func (v *View) allowed(abs, shown string, write bool) error {
	if v.scope == nil {
		return nil
	}
	err := v.scope.Path(abs, write)
	if err == nil {
		return nil
	}
	e := *tool.AsError(err)
	if abs != shown && !strings.Contains(e.Message, shown) {
		e.Message = shown + ": " + e.Message
	}
	return &e
}

// openBelow opens a place and returns its real path. The fast way is for a path without links, whose real path is known;
// it falls back to the slow way when it meets a link.
func (w *Workspace) openBelow(p Place, flags int) (fd int, abs string, err error) {
	if !w.noFast {
		fd, err = openNoLinks(p.fd, p.Rel, flags)
		switch {
		case err == nil:
			return fd, p.Abs(), nil
		case !needsSlowWay(err):
			return -1, "", explain(p.Shown, err)
		}
	}
	return w.openByLinks(p, flags)
}

func openNoLinks(dir int, rel string, flags int) (fd int, err error) {
	err = retry(func() error { fd, err = kernel.Open(dir, rel, flags, kernel.Beneath|kernel.NoLinks); return err })
	return fd, err
}

// openName opens a name in an open folder; it does not follow a link.
func openName(dir int, name string, flags int, mode uint32) (fd int, err error) {
	err = retry(func() error { fd, err = unix.Openat(dir, name, flags|unix.O_NOFOLLOW, mode); return err })
	return fd, err
}

// needsSlowWay reports whether a link was met, or this system has no openat2 (some filters return EPERM).
func needsSlowWay(err error) bool {
	return errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) ||
		errors.Is(err, unix.EXDEV)
}

// openByLinks follows links that stay in the root, and checks the name of the file that was really opened: a link with a
// harmless name may lead to a file with a sensitive one.
func (w *Workspace) openByLinks(p Place, flags int) (fd int, abs string, err error) {
	f, err := p.dir.OpenFile(p.Rel, flags&^unix.O_CLOEXEC, 0) // os.Root closes on exec anyway
	if err != nil {
		return -1, "", explain(p.Shown, tool.WithoutPath(err))
	}
	defer f.Close()
	if fd, err = unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0); err != nil {
		return -1, "", explain(p.Shown, err)
	}
	if abs, err = w.checkReal(p, fd); err != nil {
		unix.Close(fd)
		return -1, "", err
	}
	return fd, abs, nil
}

func (w *Workspace) checkReal(p Place, fd int) (abs string, err error) {
	// The kernel reports the path of an open file. If we asked before opening, the answer could be about another file.
	if abs, err = kernel.PathOf(fd); err != nil {
		return "", tool.Errorf(tool.CodeUnavailable, "%s: cannot tell which file it is: %w; is /proc mounted?", p.Shown,
			tool.WithoutPath(err))
	}
	rel, ok := below(p.Dir, abs)
	if !ok {
		rel = abs // the root itself was moved
	}
	if w.sensitive.path(rel) {
		return "", deniedSensitive(p.Shown)
	}
	return abs, nil
}

// retry repeats a system call that was interrupted by a signal or by a change of the tree. The number of tries is
// bounded: a process that keeps renaming must not block us for ever.
func retry(call func() error) error {
	for range 64 {
		if err := call(); err != syscall.EINTR && err != syscall.EAGAIN {
			return err
		}
	}
	return unix.EBUSY
}

// fileInfo describes a file as an fs.FileInfo.
type fileInfo struct {
	name string
	stat unix.Stat_t
}

func (i fileInfo) Name() string       { return i.name }
func (i fileInfo) Size() int64        { return i.stat.Size }
func (i fileInfo) IsDir() bool        { return i.Mode().IsDir() }
func (i fileInfo) Sys() any           { return &i.stat }
func (i fileInfo) ModTime() time.Time { return time.Unix(i.stat.Mtim.Unix()) }

func (i fileInfo) Mode() fs.FileMode {
	return fs.FileMode(i.stat.Mode&0o777) | typeOf(i.stat.Mode)
}

// typeOf converts the type bits of a mode to those of io/fs.
func typeOf[Mode uint16 | uint32](mode Mode) fs.FileMode {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return 0
	case unix.S_IFDIR:
		return fs.ModeDir
	case unix.S_IFLNK:
		return fs.ModeSymlink
	}
	return fs.ModeIrregular
}
