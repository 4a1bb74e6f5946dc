package namel3ss

import (
	_ "embed"
	"os"

	"toolpost/host/secret"
	"toolpost/tool"
)

// hostSource is the Python side: the same few functions for a fresh and for a warm interpreter.
//
//go:embed python/host.py
var hostSource []byte

// bootstrap runs the Python side from descriptor 3, the first that is handed down. It is read where it is:
// there may be no path that leads to it, and others read it at the same time. Its name is not a path: a
// traceback that wants to show a line of it must not open whatever descriptor 3 has become.
const bootstrap = `import posix; exec(compile(posix.pread(3, posix.fstat(3).st_size, 0), "<toolpost>", "exec"))`

// hostCommand starts the Python side. -B: running a tool writes nothing into its app, and an edited
// file is never taken for an older compiled one.
func (t *localTool) hostCommand(mode string, args ...string) []string {
	return append([]string{t.python.path, "-B", "-c", bootstrap, mode, t.imports, t.fields}, args...)
}

// The exit statuses with which the Python side says why there is no reply.
const (
	noReply = 70 // it found no way to reply
	noWalls = 71 // the walls around a forked call could not be built, so it was not run
)

// sealed puts something for the Python side into memory that nobody can change, so that no file of ours has
// to be on the disk, or can be tampered with there.
func sealed(content []byte) (*os.File, error) {
	f, err := secret.Sealed("namel3ss", string(content))
	if err != nil {
		return nil, tool.Errorf(tool.CodeUnavailable, "no memory file for the Python side: %w", err)
	}
	return f, nil
}
