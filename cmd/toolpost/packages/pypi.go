package packages

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"

	"toolpost/host/process"
	"toolpost/tool"
	"toolpost/wire/regex"
)

// starter is the file of an installed package that starts its program. Python looks for modules in the folder of the file
// that it runs, so the program finds its own modules wherever the folder lies.
const starter = "__main__.py"

// fromPyPI installs a package of PyPI into a folder. Building a package runs its code, without walls, so only packages
// that are built already are taken unless the request allows scripts.
func fromPyPI(ctx context.Context, stage string, r Request) (*Package, error) {
	built := strings.HasSuffix(r.Spec, ".whl") || !isPath(r.Spec) && !strings.Contains(r.Spec, "://")
	if !r.Scripts && !built {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s would be built here, which runs its code without walls; --scripts "+
			"allows that", r.Spec)
	}
	python, installer, argv, err := pythonInstaller(ctx, stage)
	if err != nil {
		return nil, err
	}
	argv = append(argv, "--target", stage)
	if !r.Scripts {
		argv = append(argv, "--only-binary", ":all:")
	}
	if err := run(ctx, r, stage, installer, "ERROR: ", append(argv, "--", pinned(r.Spec))); err != nil {
		return nil, err
	}
	return readPyPI(stage, python, r)
}

// pythonInstaller returns the Python that runs packages, and the command that installs one for it: that of uv if this
// machine has it, otherwise pip.
func pythonInstaller(ctx context.Context, dir string) (python, installer string, argv []string, err error) {
	uv, missing := exec.LookPath("uv")
	find := []string{uv, "python", "find"}
	if missing != nil {
		python3, err := look("python3", "uv, or Python with pip, such as with `apt install python3-pip`")
		if err != nil {
			return "", "", nil, err
		}
		find = []string{python3, "-c", "import sys; print(sys.executable)"}
	}
	python, err = findPython(ctx, dir, find, time.Minute)
	switch {
	case err != nil:
		return "", "", nil, err
	case missing == nil:
		return python, "uv", []string{uv, "pip", "install", "--compile-bytecode", "--python", python}, nil
	}
	return python, "pip", []string{python, "-m", "pip", "install", "--no-input"}, nil
}

// findPython runs a command that prints the path of Python. It looks at this machine only, so it has less time than an
// installer.
func findPython(ctx context.Context, dir string, find []string, most time.Duration) (string, error) {
	late := tool.Errorf(tool.CodeTimeout, "%s did not find a Python within %v; run `%s` to see why", find[0], most, strings.Join(find, " "))
	ctx, cancel := context.WithTimeoutCause(ctx, most, late)
	defer cancel()
	out, exit, words, err := process.Run(ctx, process.Command{Argv: find, Dir: dir, Env: os.Environ()}, maxOutput)
	python := strings.TrimSpace(string(out))
	if err == nil && (exit != (process.Exit{}) || !filepath.IsAbs(python)) {
		err = tool.Errorf(tool.CodeUnavailable, "%s found no Python: %s", find[0], words)
	}
	return python, err
}

// anExact matches NAME@VERSION, as uvx has it; aScript a line of entry_points.txt, NAME = MODULE:FUNCTION.
var (
	anExact = regex.Lazy(`^([A-Za-z0-9._-]+(?:\[[^]]*\])?)@([^/]+)$`)
	aScript = regex.Lazy(`(?m)^\s*([A-Za-z0-9._-]+)\s*=\s*([A-Za-z0-9_.]+):([A-Za-z0-9_.]+)`)
)

// pinned writes NAME@VERSION in the form of pip.
func pinned(spec string) string {
	if m := anExact().FindStringSubmatch(spec); m != nil && m[2] == "latest" {
		return m[1]
	} else if m != nil {
		return m[1] + "==" + m[2]
	}
	return spec
}

// readPyPI determines what was installed, and writes the file that starts its program. Installers mark the package that
// was asked for, and none of those that it needs, with a file REQUESTED.
func readPyPI(stage, python string, r Request) (*Package, error) {
	root, err := os.OpenRoot(stage) // whatever the package says, it refers to nothing outside of its folder
	if err != nil {
		return nil, err
	}
	defer root.Close()
	marks, err := filepath.Glob(filepath.Join(stage, "*.dist-info", "REQUESTED"))
	if err != nil || len(marks) != 1 {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s is %d packages; name one", r.Spec, len(marks))
	}
	info := filepath.Base(filepath.Dir(marks[0])) // NAME-VERSION.dist-info
	name, version, _ := strings.Cut(strings.TrimSuffix(info, ".dist-info"), "-")
	p := &Package{Name: strings.ReplaceAll(name, "_", "-"), Version: version, Argv: []string{python, starter}}
	text, err := readFile(root, path.Join(info, "entry_points.txt"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, tool.Errorf(tool.CodeProtocol, "the package %s: %w", p.Name, err)
	}
	_, section, _ := strings.Cut(string(text), "[console_scripts]")
	section, _, _ = strings.Cut(section, "\n[")
	programs := map[string]string{}
	for _, m := range aScript().FindAllStringSubmatch(section, -1) {
		programs[m[1]] = fmt.Sprintf("import sys\n\nimport %s\n\nsys.argv[0] = %q\nsys.exit(%[1]s.%[3]s())\n", m[2], m[1], m[3])
	}
	start, err := choose(programs, p.Name, r.Bin, "uvx --from %s")
	if err != nil {
		return nil, err
	}
	if err := root.WriteFile(starter, []byte(start), 0o600); err != nil {
		return nil, tool.Errorf(tool.CodeUnavailable, "the folder of packages: %w", err)
	}
	return p, nil
}
