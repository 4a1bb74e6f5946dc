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
	env  string   // venv or system, as the trace reports it
	code []string // files that it needs besides the system's
}

// findPython finds the interpreter of an app: the configured one, that of its .venv, or python3.
func findPython(ctx context.Context, root, asked string, env []string) (interpreter, error) {
	venv := filepath.Join(root, ".venv")
	switch entries, _ := os.ReadDir(venv); {
	case asked != "":
		return systemInterpreter(ctx, root, asked, env)
	case len(entries) > 0: // an empty folder does not count: it may only be a placeholder
		path := filepath.Join(venv, "bin", "python")
		if _, err := exec.LookPath(path); err != nil {
			return interpreter{}, tool.Errorf(tool.CodeUnavailable,
				"%s exists, but %s cannot be run; make it again with `python3 -m venv .venv`: %w", venv, path, err)
		}
		// The app brings it, so we read its files instead of running it.
		return interpreter{path, "venv", append(walls.Code(path), copiedFrom(venv)...)}, nil
	}
	return systemInterpreter(ctx, root, "python3", env)
}

// systemInterpreter finds a program. It looks through a script that only selects and starts a Python, so that calls do not
// pay for the selection. Packages that the user installed at home belong to the interpreter.
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

// copiedFrom returns the code of the Python from which a .venv was made, if the .venv holds a copy of the program.
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

// hostSource is the Python side: the same few functions serve fresh and warm interpreters.
//
//go:embed python/host.py
var hostSource []byte

// hostCommand returns the command line of the Python side. With -B running a tool writes nothing into its app, and an edited
// file is never mistaken for an older compiled one.
func (t *localTool) hostCommand(mode string, args ...string) []string {
	return append([]string{t.python.path, "-B", "-c", forks.Bootstrap, mode, t.imports, t.fields}, args...)
}

// noReply is the exit status by which the Python side reports that it could not reply.
const noReply = 70
