package kernel_test

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"toolpost/internal/kit"
	"toolpost/kernel"
)

// folder returns an open folder with a file, a folder, and links to both and out of it.
func folder(t *testing.T) *os.File {
	t.Helper()
	dir := kit.Must(filepath.EvalSymlinks(t.TempDir()))(t)
	kit.OK(t, os.Mkdir(filepath.Join(dir, "in"), 0o755))
	kit.OK(t, os.WriteFile(filepath.Join(dir, "in", "file"), []byte("text"), 0o600))
	kit.OK(t, os.Symlink("file", filepath.Join(dir, "in", "link")))
	kit.OK(t, os.Symlink("in", filepath.Join(dir, "way")))
	f := kit.Must(os.Open(dir))(t)
	t.Cleanup(func() { f.Close() })
	return f
}

func TestOpenHonoursResolveFlags(t *testing.T) {
	dir := folder(t)
	for _, c := range []struct {
		path   string
		refuse kernel.Resolve
		opens  bool
	}{
		{"in/file", 0, true},
		{"in/link", 0, true},
		{"in/file", kernel.NoLinks, true},
		{"in/link", kernel.NoLinks, false},
		{"way/file", kernel.NoLinks, false},
		{"in/file", kernel.Beneath | kernel.NoLinks, true},
		{"in/../in/../../" + filepath.Base(dir.Name()) + "/in/file", kernel.Beneath | kernel.NoLinks, false},
		{dir.Name() + "/in/file", kernel.Beneath | kernel.NoLinks, false},
	} {
		fd, err := kernel.Open(int(dir.Fd()), c.path, unix.O_RDONLY, c.refuse)
		if err == nil {
			unix.Close(fd)
		}
		kit.Equal(t, (err == nil), c.opens, "%s, refusing %b: %v", c.path, c.refuse, err)
	}
}

func TestALinkCanBeOpenedItself(t *testing.T) {
	dir := folder(t)
	fd := kit.Must(kernel.Open(int(dir.Fd()), "way", unix.O_NOFOLLOW|kernel.PathOnly, 0))(t)
	defer unix.Close(fd)
	kit.Equal(t, kit.Must(kernel.ReadLink(fd, int(dir.Fd()), "way"))(t), "in")
}

func TestPathOfNamesAnOpenFile(t *testing.T) {
	dir := folder(t)
	kit.Equal(t, kit.Must(kernel.PathOf(int(dir.Fd())))(t), dir.Name())
	again := kit.Must(kernel.Again(int(dir.Fd())))(t)
	kit.Equal(t, string(kit.Must(os.ReadFile(again+"/in/file"))(t)), "text")
}

func TestASealedFileCannotBeChanged(t *testing.T) {
	f, err := kernel.Sealed("secret", func(w io.Writer) error { _, err := io.WriteString(w, "value"); return err })
	kit.OK(t, err)
	defer f.Close()
	kit.Equal(t, string(kit.Must(io.ReadAll(f))(t)), "value")
	kit.Fails(t, kit.Err(f.WriteAt([]byte("V"), 0)), "", "it was written")
	kit.Fails(t, f.Truncate(0), "", "it was emptied")
	broken := errors.New("no")
	if _, err := kernel.Sealed("secret", func(io.Writer) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("%v, want the error of who fills it", err)
	}
}

func TestANameThatIsTakenIsNotReplaced(t *testing.T) {
	dir := folder(t)
	at := int(dir.Fd())
	kit.OK(t, kernel.MakeFile(at, "new", 0o600))
	if err := kernel.MakeFile(at, "new", 0o600); !errors.Is(err, unix.EEXIST) {
		t.Errorf("a file was made twice: %v", err)
	}
	if err := kernel.Rename(at, "new", at, "in/file", false); !errors.Is(err, unix.EEXIST) {
		t.Errorf("a file was replaced: %v", err)
	}
	kit.OK(t, kernel.Rename(at, "new", at, "in/file", true))
	kit.Equal(t, kit.Must(os.Stat(filepath.Join(dir.Name(), "in", "file")))(t).Size(), 0, "it was not replaced")
}

func TestALockIsSeenAndEndsWithItsFile(t *testing.T) {
	ours := folder(t)
	theirs := kit.Must(os.Open(ours.Name()))(t)
	defer theirs.Close()
	kit.OK(t, kernel.Lock(ours, 7))
	for at, want := range map[int64]bool{7: true, 8: false} {
		kit.Equal(t, kit.Must(kernel.Locked(theirs, at))(t), want, "byte %d", at)
	}
	ours.Close()
	if got, err := kernel.Locked(theirs, 7); err != nil || got {
		t.Errorf("after the end: %v, %v", got, err)
	}
}

func TestWaitingCountsUnreadBytes(t *testing.T) {
	r, w, err := os.Pipe()
	kit.OK(t, err)
	defer r.Close()
	defer w.Close()
	_, err = w.WriteString("four")
	kit.OK(t, err)
	kit.Equal(t, kit.Must(kernel.Waiting(int(r.Fd())))(t), 4)
}

func TestTheOtherEndOfASocketIsKnown(t *testing.T) {
	fds := kit.Must(kernel.SocketPair())(t)
	for _, fd := range fds {
		defer unix.Close(fd)
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("a child would inherit it: %x, %v", flags, err)
		}
	}
	path := filepath.Join(t.TempDir(), "s")
	ln := kit.Must(net.Listen("unix", path))(t)
	defer ln.Close()
	conn := kit.Must(net.Dial("unix", path))(t)
	defer conn.Close()
	raw := kit.Must(conn.(*net.UnixConn).SyscallConn())(t)
	kit.OK(t, raw.Control(func(fd uintptr) {
		if uid, gid, pid, err := kernel.Peer(int(fd)); err != nil || int(uid) != os.Getuid() || int(gid) != os.Getgid() ||
			int(pid) != os.Getpid() {
			t.Errorf("%d %d %d, %v", uid, gid, pid, err)
		}
	}))
}
