package namel3ss

import (
	"context"
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"toolpost/host/forks"
	"toolpost/host/walls"
	"toolpost/protocol/namel3ss/appfile"
	"toolpost/tool"
)

// An interpreter is the Python that runs the tools of an app.
type interpreter struct {
	path string
	env  string   // venv or system: the words of the trace
	code []string // what running it takes besides the system
}

// findPython finds the interpreter of an app: the one that was asked for, that of its .venv, or python3.
func findPython(ctx context.Context, root, asked string, env []string) (interpreter, error) {
	venv := filepath.Join(root, ".venv")
	switch entries, _ := os.ReadDir(venv); {
	case asked != "":
		return systemInterpreter(ctx, root, asked, env)
	case len(entries) > 0: // an empty folder is none: it may only hold the place
		path := filepath.Join(venv, "bin", "python")
		if _, err := exec.LookPath(path); err != nil {
			return interpreter{}, tool.Errorf(tool.CodeUnavailable,
				"%s exists, but %s cannot be run; make it again with `python3 -m venv .venv`: %w", venv, path, err)
		}
		// The app brings it, so it is not run to be asked: its files tell.
		return interpreter{path, "venv", append(walls.Code(path), copiedFrom(venv)...)}, nil
	}
	return systemInterpreter(ctx, root, "python3", env)
}

// systemInterpreter finds a program, and looks through a script that only chooses a Python and starts it, so
// that calls do not pay for the choice. What the user installed for it at home belongs to it.
func systemInterpreter(ctx context.Context, root, name string, env []string) (interpreter, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return interpreter{}, tool.Errorf(tool.CodeUnavailable,
			"no Python: %s cannot be run; install python3, or set `python`: %w", name, err)
	}
	argv, code, err := walls.Find(ctx, []string{path}, root, env)
	if err != nil {
		return interpreter{}, err
	}
	for _, entry := range env {
		if home, ok := strings.CutPrefix(entry, "HOME="); ok && filepath.IsAbs(home) {
			own, _ := filepath.Glob(filepath.Join(home, ".local/lib/python3*/site-packages"))
			code = append(code, own...)
		}
	}
	return interpreter{argv[0], "system", code}, nil
}

// copiedFrom returns the code of the Python that a .venv with a copy of its program was made from.
func copiedFrom(venv string) []string {
	text, _ := appfile.Read(venv, "pyvenv.cfg")
	for line := range strings.Lines(string(text)) {
		key, home, _ := strings.Cut(line, "=")
		path := filepath.Join(strings.TrimSpace(home), "python3")
		if strings.TrimSpace(key) != "home" || !filepath.IsAbs(path) {
			continue
		}
		if _, err := exec.LookPath(path); err == nil {
			return walls.Code(path)
		}
	}
	return nil
}

// hostSource is the Python side: the same few functions for a fresh and for a warm interpreter.
//
//go:embed python/host.py
var hostSource []byte

// hostCommand starts the Python side. -B: running a tool writes nothing into its app, and an edited
// file is never taken for an older compiled one.
func (t *localTool) hostCommand(mode string, args ...string) []string {
	return append([]string{t.python.path, "-B", "-c", forks.Bootstrap, mode, t.imports, t.fields}, args...)
}

// noReply is the exit status with which the Python side says that it found no way to reply.
const noReply = 70
