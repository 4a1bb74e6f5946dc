package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"toolpost/config/offlimits"
	"toolpost/kernel"
	"toolpost/store/database"
	"toolpost/tool"
)

// files are the files of one store: the database, and those that SQLite keeps beside it while it is open.
type files struct {
	path string

	pages int // pages of the log before they are copied; used by the writer alone

	mu    sync.Mutex
	dir   *os.File         // the folder of the database: programs lock a byte of it
	first map[string]inode // the files as they were first found
}

// An inode identifies a file, whatever its name.
type inode struct{ device, number uint64 }

// claim lists the files of the store at a path, which come and go. Some are beside the target of a link.
func claim(path string) (c offlimits.Claim) {
	if real, err := filepath.EvalSymlinks(path); err == nil && real != filepath.Clean(path) {
		c.Keeps = filesOf(real)
	}
	c.Keeps = append(c.Keeps, filesOf(path)...)
	return c
}

// filesOf lists the files of the store at a path: no other program has any business with them.
func filesOf(path string) []string {
	return []string{path, path + "-wal", path + "-shm", path + "-journal"}
}

// folder opens the folder of the database. Like SQLite, it uses the folder that a link leads to.
func (f *files) folder() (*os.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dir != nil {
		return f.dir, nil
	}
	path, err := filepath.EvalSymlinks(f.path)
	if err != nil {
		return nil, err
	}
	f.dir, err = os.Open(filepath.Dir(path))
	return f.dir, err
}

// enter locks the byte of the folder at a program's number, for as long as the folder is open: the kernel releases it
// when the program ends, however it ends, and not before. A file for the purpose would be one more that can be deleted
// or be on a full disk. All programs that use the database are on this machine, or SQLite itself would not work.
func (f *files) enter(ctx context.Context, conn *sql.Conn, number int64) error {
	f.pages = 0 // the connection is new
	f.bound(ctx, conn)
	dir, err := f.folder()
	if err == nil {
		err = kernel.Lock(dir, number)
	}
	if err != nil {
		return tool.Errorf(tool.CodeUnavailable,
			"the folder of the store cannot be locked: %w; keep the store on a disk of this machine", err)
	}
	return nil
}

// lives reports whether a program holds the lock of its number.
func (f *files) lives(_ context.Context, _ database.RowQuerier, number int64) (bool, error) {
	dir, err := f.folder()
	if err != nil {
		return false, err
	}
	return kernel.Locked(dir, number)
}

// leave releases the lock.
func (f *files) leave() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dir == nil {
		return nil
	}
	dir := f.dir
	f.dir = nil
	return dir.Close()
}

// same returns an error if the open files are no longer those at their paths: whatever is written then is invisible to
// others, and lost at the end.
func (f *files) same() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, path := range filesOf(f.path)[:3] {
		now, err := inodeOf(path)
		first, known := f.first[path]
		switch {
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return tool.Errorf(tool.CodeUnavailable, "the file of the store cannot be inspected: %w",
				err).Because("store")
		case known && now != first && (path == f.path || isOpen(first)):
			return replaced(path, now)
		case err == nil:
			f.first[path] = now
		}
	}
	return nil
}

func replaced(path string, now inode) error {
	what := "deleted"
	if now != (inode{}) {
		what = "replaced"
	}
	return tool.Errorf(tool.CodeUnavailable, "%s was %s while the store was open, so it is no longer read or written; "+
		"put the file back that was there, or restart to go on with what is there now", path,
		what).Because("store_replaced")
}

func inodeOf(path string) (inode, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return inode{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return inode{kernel.Device(&st), st.Ino}, nil
}

// isOpen reports whether this program has a file open. The last program to close the database removes the files beside
// it, so it is normal for a file that is not open to be gone.
func isOpen(file inode) bool {
	entries, err := os.ReadDir(kernel.Descriptors)
	if err != nil {
		return true
	}
	for _, e := range entries {
		var st unix.Stat_t
		if fd, err := strconv.Atoi(e.Name()); err == nil && unix.Fstat(fd, &st) == nil &&
			(inode{kernel.Device(&st), st.Ino}) == file {
			return true
		}
	}
	return false
}
