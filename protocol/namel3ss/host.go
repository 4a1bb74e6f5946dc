package namel3ss

import (
	_ "embed"
	"os"

	"golang.org/x/sys/unix"

	"toolpost/tool"
)

// hostSource is the Python side: the same few functions for a fresh and for a warm interpreter.
//
//go:embed python/host.py
var hostSource []byte

// bootstrap runs the Python side from descriptor 3, the first that is handed down. Its name is not a
// path: a traceback that wants to show a line of it must not open whatever descriptor 3 has become.
const bootstrap = `exec(compile(open("/dev/fd/3").read(), "<toolpost>", "exec"))`

// hostCommand starts the Python side. -B: running a tool writes nothing into its app, and an edited
// file is never taken for an older compiled one.
func (t *localTool) hostCommand(args ...string) []string {
	return append([]string{t.python.path, "-B", "-c", bootstrap}, args...)
}

// noReply is the exit status with which the Python side says that it found no way to reply.
const noReply = 70

// openHost puts the Python side into memory that nobody can change, so that no file of ours has to be on
// the disk, or can be tampered with there.
func openHost() (*os.File, error) {
	fd, err := unix.MemfdCreate("namel3ss-host", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, tool.Errorf(tool.CodeUnavailable, "no memory file for the Python side: %w", err)
	}
	f := os.NewFile(uintptr(fd), "namel3ss-host")
	if _, err := f.Write(hostSource); err != nil {
		_ = f.Close()
		return nil, tool.Errorf(tool.CodeUnavailable, "no memory for the Python side: %w", err)
	}
	const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		_ = f.Close()
		return nil, tool.Errorf(tool.CodeUnavailable, "the Python side cannot be sealed: %w", err)
	}
	return f, nil
}
