package walls

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"toolpost/host/offlimits"
	"toolpost/host/process"
	"toolpost/tool"
)

// Find finds a program as a confined child can run it: its absolute path, with any script that only chooses a Python
// looked through, since what such a script needs is not in the room; and what running it takes besides the system: the
// folders of its installation, and the files that its arguments name, such as a script.
//
// A program that is not there is no error: starting it will say so.
func Find(ctx context.Context, argv []string, dir string, env []string) (found, code []string, err error) {
	path := argv[0]
	switch onPath, err := exec.LookPath(path); {
	case strings.Contains(path, "/") && !filepath.IsAbs(path):
		path = filepath.Join(dir, path)
	case err != nil:
		return argv, nil, nil
	default:
		path = onPath
	}
	if strings.HasPrefix(filepath.Base(path), "python") && isScript(path) {
		if path, err = throughShim(ctx, path, dir, env); err != nil {
			return nil, nil, err
		}
	}
	code = Code(path)
	for _, arg := range argv[1:] {
		if info, err := os.Stat(arg); filepath.IsAbs(arg) && err == nil && info.Mode().IsRegular() {
			code = append(code, arg)
		}
	}
	return append([]string{path}, argv[1:]...), code, nil
}

// Code lists what running a program takes besides the system: the folders of the installation that it belongs to,
// and of those that it is a link to.
func Code(path string) []string {
	var all []string
	for range 10 {
		for _, part := range installation(path) {
			if !slices.Contains(all, part) {
				all = append(all, part)
			}
		}
		target, err := os.Readlink(path)
		if err != nil {
			break
		}
		path = offlimits.Under(filepath.Dir(path), target)
	}
	return all
}

// installation lists the folders of code around a program PREFIX/bin/NAME that is not the system's. The rest of PREFIX
// is left out: it may be someone's home.
func installation(path string) []string {
	bin := filepath.Dir(path)
	prefix := filepath.Dir(bin)
	if filepath.Base(bin) != "bin" || slices.Contains([]string{"/", "/usr"}, prefix) {
		return nil
	}
	var parts []string
	for _, name := range []string{"bin", "lib", "lib64", "libexec", "include", "pyvenv.cfg"} {
		part := filepath.Join(prefix, name)
		if _, err := os.Lstat(part); err == nil {
			parts = append(parts, part)
		}
	}
	return parts
}

// throughShim looks through a script that only chooses a Python and starts it.
func throughShim(ctx context.Context, path, dir string, env []string) (string, error) {
	out, exit, words, err := process.Run(ctx, process.Command{
		Argv: []string{path, "-c", "import sys; print(sys.executable)"}, Dir: dir, Env: env,
	}, 64<<10)
	if err != nil {
		return "", tool.AsError(err)
	}
	found := strings.TrimSpace(string(out))
	if exit != (process.Exit{}) || !filepath.IsAbs(found) {
		return "", tool.Errorf(tool.CodeUnavailable, "%s does not start a Python: %s", path, words)
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
