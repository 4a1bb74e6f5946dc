package namel3ss

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"toolpost/process"
	"toolpost/tool"
)

// An interpreter is the Python that runs the tools of an app.
type interpreter struct {
	path string
	env  string // venv or system: the words of the trace
}

// findPython finds the interpreter of an app: the one that was asked for, that of its .venv, or python3.
func findPython(ctx context.Context, root, asked string, env []string) (interpreter, error) {
	venv := filepath.Join(root, ".venv")
	switch _, err := os.Stat(venv); {
	case asked != "":
		path, err := resolveShim(ctx, root, asked, env)
		return interpreter{path, "system"}, err
	case err == nil:
		path := filepath.Join(venv, "bin", "python")
		if _, err := exec.LookPath(path); err != nil {
			return interpreter{}, tool.Errorf(tool.CodeUnavailable,
				"%s exists, but %s cannot be run; make it again with `python3 -m venv .venv`: %w", venv, path, err)
		}
		return interpreter{path, "venv"}, nil
	}
	path, err := resolveShim(ctx, root, "python3", env)
	return interpreter{path, "system"}, err
}

// resolveShim finds a program, and looks through a script that only chooses a Python and starts it, so
// that calls do not pay for the choice.
func resolveShim(ctx context.Context, root, name string, env []string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", tool.Errorf(tool.CodeUnavailable, "no Python: %s cannot be run; install python3, or set `python`: %w", name, err)
	}
	if !isScript(path) {
		return path, nil
	}
	child, err := process.Start(process.Command{
		Argv: []string{path, "-c", "import sys; print(sys.executable)"}, Dir: root, Env: env,
	})
	if err != nil {
		return "", err
	}
	defer child.Close()
	child.CloseStdin()
	select {
	case <-child.Exited():
	case <-ctx.Done():
		return "", tool.Errorf(tool.CodeUnavailable, "%s did not say which Python it starts: %w", path, context.Cause(ctx))
	}
	exit := child.Wait()
	out, _ := process.ReadDocument(child.Stdout, 64<<10)
	found := strings.TrimSpace(string(out))
	if exit != (process.Exit{}) || !filepath.IsAbs(found) {
		return "", tool.Errorf(tool.CodeUnavailable, "%s does not start a Python: %s", path, child.Describe(exit))
	}
	return found, nil
}

func isScript(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var start [2]byte
	_, err = io.ReadFull(f, start[:])
	return err == nil && string(start[:]) == "#!"
}
