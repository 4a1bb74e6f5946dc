// Package packages installs packages of npm and PyPI, each once and into a folder of its own, so that programs started from
// them later need no network and do not change.
package packages

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"toolpost/host/process"
	"toolpost/tool"
	"toolpost/wire/bounded"
)

// An Index is where packages come from. It is also the name of the folder that holds them.
type Index string

// The indexes of packages.
const (
	NPM  Index = "npm"
	PyPI Index = "pypi"
)

// A Request describes a package to install.
type Request struct {
	Index   Index
	Spec    string // as npm or pip reads it: a name with or without a version, an archive, a folder
	Bin     string // which of the package's programs; empty means its only one, or the one named like the package
	Dir     string // the folder of the package; its parent is created
	Base    string // the folder for relative paths in Spec
	Scripts bool   // run code of the package while it is installed: install scripts of npm, and builds of Python
}

// A Package is an installed package.
type Package struct {
	Name, Version string
	Argv          []string // starts its program, from Dir
	Scripts       []string // packages whose install scripts were not run
}

const (
	timeout   = 10 * time.Minute
	maxOutput = 1 << 20
	maxDoc    = 8 << 20
	maxSaid   = 4 // lines of an installer's errors that are shown
)

// Install installs a package with the npm, uv or pip of this machine. Dir must not exist, and appears only when the package
// is complete.
func Install(ctx context.Context, r Request) (*Package, error) {
	if strings.HasPrefix(r.Spec, "-") || r.Spec == "" {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%q is not the name of a package", r.Spec)
	}
	if isPath(r.Spec) && !filepath.IsAbs(r.Spec) {
		r.Spec = filepath.Join(r.Base, r.Spec)
	}
	if err := os.MkdirAll(filepath.Dir(r.Dir), 0o700); err != nil {
		return nil, tool.Errorf(tool.CodeUnavailable, "the folder of packages: %w", err)
	}
	stage, err := os.MkdirTemp(filepath.Dir(r.Dir), ".new-*") // 0700
	if err != nil {
		return nil, tool.Errorf(tool.CodeUnavailable, "the folder of packages: %w", err)
	}
	defer os.RemoveAll(stage)
	install := fromNPM
	if r.Index == PyPI {
		install = fromPyPI
	}
	p, err := install(ctx, stage, r)
	if err != nil {
		return nil, err
	}
	if err := os.Rename(stage, r.Dir); err != nil {
		return nil, tool.Errorf(tool.CodeUnavailable, "the package cannot be put in its place: %w", err)
	}
	return p, nil
}

// isPath reports whether an installer would treat a spec as a file or folder.
func isPath(spec string) bool {
	archive := strings.HasSuffix(spec, ".tgz") || strings.HasSuffix(spec, ".whl") || strings.HasSuffix(spec, ".tar.gz")
	return strings.HasPrefix(spec, ".") || strings.HasPrefix(spec, "/") || archive && !strings.Contains(spec, "://")
}

func look(program, install string) (string, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return "", tool.Errorf(tool.CodeUnavailable, "%s is not on PATH; install %s", program, install)
	}
	return filepath.Abs(path)
}

// run runs an installer. It is the user's own, with the user's settings and environment: a user who requests a package
// would have typed this. The lines of its errors start with the mark.
func run(ctx context.Context, r Request, dir, installer, mark string, argv []string) error {
	late := tool.Errorf(tool.CodeTimeout, "%s did not install %s within %v: its index is slow or cannot be reached; "+
		"check the network and the proxy, and try again", installer, r.Spec, timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, late)
	defer cancel()
	var said []string
	hint := ""
	_, exit, words, err := process.Run(ctx, process.Command{
		Argv: argv, Dir: dir, Env: append(os.Environ(), "NO_UPDATE_NOTIFIER=1", "PIP_DISABLE_PIP_VERSION_CHECK=1"),
		Stderr: func(line []byte) {
			if strings.Contains(string(line), "after connection broken by") { // pip then says that there is no such package
				hint = "; its index cannot be reached: check the network and the proxy"
			}
			text, ok := strings.CutPrefix(string(line), mark)
			if ok && len(said) < maxSaid && !strings.Contains(text, "complete log of this run") {
				said = append(said, strings.TrimSpace(text))
			}
		},
	}, maxOutput)
	if err != nil {
		return err
	}
	if exit != (process.Exit{}) {
		return tool.Errorf(tool.CodeUnavailable, "%s could not install %s: %s%s", installer, r.Spec,
			cmp.Or(strings.Join(said, "; "), words), hint)
	}
	return nil
}

// choose returns one of the programs of a package, as npx and uvx do; a single one may have no name. The hint is the
// command that names one.
func choose(programs map[string]string, name, bin, hint string) (string, error) {
	own := name[strings.LastIndex(name, "/")+1:]
	names := slices.Sorted(maps.Keys(programs))
	switch {
	case len(names) == 0:
		return "", tool.Errorf(tool.CodeInvalidInput, "the package %s has no program to start, so it is no server", name)
	case bin != "" && (programs[bin] != "" || bin == own && programs[""] != ""):
		return programs[bin] + programs[""], nil
	case bin == "" && len(names) == 1:
		return programs[names[0]], nil
	case bin == "" && programs[own] != "":
		return programs[own], nil
	}
	return "", tool.Errorf(tool.CodeInvalidInput, "the package %s has the programs %s; name one of them: `%s PROGRAM`",
		name, strings.Join(names, ", "), fmt.Sprintf(hint, name))
}

// readFile reads a file of a package.
func readFile(root *os.Root, name string) ([]byte, error) {
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return bounded.ReadDocument(f, maxDoc)
}
