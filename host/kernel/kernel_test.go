package kernel_test

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"toolpost/host/kernel"
)

// folder returns an open folder with a file, a folder, and links to both and out of it.
func folder(t *testing.T) *os.File {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	must(t, os.Mkdir(filepath.Join(dir, "in"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "in", "file"), []byte("text"), 0o600))
	must(t, os.Symlink("file", filepath.Join(dir, "in", "link")))
	must(t, os.Symlink("in", filepath.Join(dir, "way")))
	f, err := os.Open(dir)
	must(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
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
		if (err == nil) != c.opens {
			t.Errorf("%s, refusing %b: %v", c.path, c.refuse, err)
		}
	}
}

func TestALinkCanBeOpenedItself(t *testing.T) {
	dir := folder(t)
	fd, err := kernel.Open(int(dir.Fd()), "way", unix.O_NOFOLLOW|kernel.PathOnly, 0)
	must(t, err)
	defer unix.Close(fd)
	if to, err := kernel.ReadLink(fd, int(dir.Fd()), "way"); err != nil || to != "in" {
		t.Errorf("%q, %v", to, err)
	}
}

func TestPathOfNamesAnOpenFile(t *testing.T) {
	dir := folder(t)
	if path, err := kernel.PathOf(int(dir.Fd())); err != nil || path != dir.Name() {
		t.Errorf("%q, %v; want %s", path, err, dir.Name())
	}
	again, err := kernel.Again(int(dir.Fd()))
	must(t, err)
	if text, err := os.ReadFile(again + "/in/file"); err != nil || string(text) != "text" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestASealedFileCannotBeChanged(t *testing.T) {
	f, err := kernel.Sealed("secret", func(w io.Writer) error { _, err := io.WriteString(w, "value"); return err })
	must(t, err)
	defer f.Close()
	if text, err := io.ReadAll(f); err != nil || string(text) != "value" {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := f.WriteAt([]byte("V"), 0); err == nil {
		t.Error("it was written")
	}
	if err := f.Truncate(0); err == nil {
		t.Error("it was emptied")
	}
	broken := errors.New("no")
	if _, err := kernel.Sealed("secret", func(io.Writer) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("%v, want the error of who fills it", err)
	}
}

func TestANameThatIsTakenIsNotReplaced(t *testing.T) {
	dir := folder(t)
	at := int(dir.Fd())
	must(t, kernel.MakeFile(at, "new", 0o600))
	if err := kernel.MakeFile(at, "new", 0o600); !errors.Is(err, unix.EEXIST) {
		t.Errorf("a file was made twice: %v", err)
	}
	if err := kernel.Rename(at, "new", at, "in/file", false); !errors.Is(err, unix.EEXIST) {
		t.Errorf("a file was replaced: %v", err)
	}
	must(t, kernel.Rename(at, "new", at, "in/file", true))
	if info, err := os.Stat(filepath.Join(dir.Name(), "in", "file")); err != nil || info.Size() != 0 {
		t.Errorf("it was not replaced: %v", err)
	}
}

func TestALockIsSeenAndEndsWithItsFile(t *testing.T) {
	ours := folder(t)
	theirs, err := os.Open(ours.Name())
	must(t, err)
	defer theirs.Close()
	must(t, kernel.Lock(ours, 7))
	for at, want := range map[int64]bool{7: true, 8: false} {
		if got, err := kernel.Locked(theirs, at); err != nil || got != want {
			t.Errorf("byte %d: %v, %v", at, got, err)
		}
	}
	ours.Close()
	if got, err := kernel.Locked(theirs, 7); err != nil || got {
		t.Errorf("after the end: %v, %v", got, err)
	}
}

func TestWaitingCountsUnreadBytes(t *testing.T) {
	r, w, err := os.Pipe()
	must(t, err)
	defer r.Close()
	defer w.Close()
	_, err = w.WriteString("four")
	must(t, err)
	if n, err := kernel.Waiting(int(r.Fd())); err != nil || n != 4 {
		t.Errorf("%d, %v", n, err)
	}
}

func TestTheOtherEndOfASocketIsKnown(t *testing.T) {
	fds, err := kernel.SocketPair()
	must(t, err)
	for _, fd := range fds {
		defer unix.Close(fd)
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("a child would inherit it: %x, %v", flags, err)
		}
	}
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", path)
	must(t, err)
	defer ln.Close()
	conn, err := net.Dial("unix", path)
	must(t, err)
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	must(t, err)
	must(t, raw.Control(func(fd uintptr) {
		if uid, gid, pid, err := kernel.Peer(int(fd)); err != nil || int(uid) != os.Getuid() || int(gid) != os.Getgid() ||
			int(pid) != os.Getpid() {
			t.Errorf("%d %d %d, %v", uid, gid, pid, err)
		}
	}))
}
