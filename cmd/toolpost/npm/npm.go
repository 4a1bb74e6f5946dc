// Package npm installs Node.js packages, each once and into a folder of its own, so that programs started from them later
// need no network and do not change.
package npm

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"toolpost/host/process"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// A Request describes a package to install.
type Request struct {
	Spec    string // as npm reads it: a name with or without a version, a tarball, a folder
	Bin     string // which of the package's programs; empty means its only one, or the one named like the package
	Dir     string // the folder of the package; its parent is created
	Base    string // the folder for relative paths in Spec
	Scripts bool   // run the install scripts of the package and its dependencies
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
	maxSaid   = 4 // lines of npm's errors that are shown
)

// Install installs a package with the npm of this machine. Dir must not exist, and appears only when the package is
// complete.
func Install(ctx context.Context, r Request) (*Package, error) {
	node, err := look("node")
	if err != nil {
		return nil, err
	}
	npm, err := look("npm")
	if err != nil {
		return nil, err
	}
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
	if err := run(ctx, npm, stage, r); err != nil {
		return nil, err
	}
	p, err := read(stage, node, r)
	if err != nil {
		return nil, err
	}
	if err := os.Rename(stage, r.Dir); err != nil {
		return nil, tool.Errorf(tool.CodeUnavailable, "the package cannot be put in its place: %w", err)
	}
	return p, nil
}

func look(program string) (string, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return "", tool.Errorf(tool.CodeUnavailable, "%s, which installs and runs packages of Node.js, is not on PATH; install "+
			"Node.js, such as with `apt install nodejs npm`", program)
	}
	return filepath.Abs(path)
}

// isPath reports whether npm would treat a spec as a file or folder.
func isPath(spec string) bool {
	return strings.HasPrefix(spec, ".") || strings.HasPrefix(spec, "/") || strings.HasSuffix(spec, ".tgz") && !strings.Contains(spec, "://")
}

// run runs npm to install the package. It is the user's own npm, with the user's settings and environment: a user who
// requests a package would have typed this.
func run(ctx context.Context, npm, stage string, r Request) error {
	if err := os.WriteFile(filepath.Join(stage, "package.json"), []byte("{\"private\": true}\n"), 0o600); err != nil {
		return tool.Errorf(tool.CodeUnavailable, "the folder of packages: %w", err)
	}
	argv := []string{npm, "install", "--save-exact", "--install-links", "--no-audit", "--no-fund", "--loglevel=error"}
	if !r.Scripts {
		argv = append(argv, "--ignore-scripts")
	}
	late := tool.Errorf(tool.CodeTimeout, "npm did not install %s within %v", r.Spec, timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, late)
	defer cancel()
	var said []string
	_, exit, words, err := process.Run(ctx, process.Command{
		Argv: append(argv, "--", r.Spec), Dir: stage, Env: append(os.Environ(), "NO_UPDATE_NOTIFIER=1"),
		Stderr: func(line []byte) {
			text, ok := strings.CutPrefix(string(line), "npm error ")
			if ok && len(said) < maxSaid && !strings.Contains(text, "complete log of this run") {
				said = append(said, strings.TrimSpace(text))
			}
		},
	}, maxOutput)
	if err != nil {
		return err
	}
	if exit != (process.Exit{}) {
		return tool.Errorf(tool.CodeUnavailable, "npm could not install %s: %s", r.Spec, cmp.Or(strings.Join(said, "; "), words))
	}
	return nil
}

// A manifest is the part of a package.json that we need.
type manifest struct {
	Name         string            `json:"name"`
	Version      string            `json:"version"`
	Bin          bins              `json:"bin"`
	Dependencies map[string]string `json:"dependencies"`
}

// bins are the programs of a package by name; a single one may have no name.
type bins map[string]string

// UnmarshalJSON implements json.Unmarshaler.
func (b *bins) UnmarshalJSON(data []byte) error {
	var one string
	if strictjson.Unmarshal(data, &one) == nil {
		*b = bins{"": one}
		return nil
	}
	return strictjson.Unmarshal(data, (*map[string]string)(b))
}

// read determines what npm has installed, and how its program is started.
func read(stage, node string, r Request) (*Package, error) {
	root, err := os.OpenRoot(stage) // whatever the package says, it refers to nothing outside of its folder
	if err != nil {
		return nil, err
	}
	defer root.Close()
	var top, m manifest
	if err := readDoc(root, "package.json", &top); err != nil {
		return nil, tool.Errorf(tool.CodeProtocol, "what npm installed for %s cannot be read: %w", r.Spec, err)
	}
	if len(top.Dependencies) != 1 {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s is %d packages; name one", r.Spec, len(top.Dependencies))
	}
	name := slices.Collect(maps.Keys(top.Dependencies))[0]
	dir := path.Join("node_modules", name)
	if err := readDoc(root, path.Join(dir, "package.json"), &m); err != nil {
		return nil, tool.Errorf(tool.CodeProtocol, "the package %s: %w", name, err)
	}
	script, err := m.program(r.Bin)
	if err != nil {
		return nil, err
	}
	script = path.Join(dir, path.Clean("/" + script)[1:])
	isScript, err := forNode(root, script)
	if err != nil {
		return nil, tool.Errorf(tool.CodeProtocol, "the program of %s, %s, is not there: %w", m.Name, script, err)
	}
	p := &Package{Name: m.Name, Version: m.Version, Argv: []string{"./" + script}}
	if isScript {
		p.Argv = []string{node, script}
	}
	if !r.Scripts {
		p.Scripts = withScripts(root)
	}
	return p, nil
}

// readDoc reads a JSON file.
func readDoc(root *os.Root, name string, into any) error {
	f, err := root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	text, err := process.ReadDocument(f, maxDoc)
	if err == nil {
		err = strictjson.Unmarshal(text, into)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// program chooses among the programs of a package, as npx does.
func (m manifest) program(bin string) (string, error) {
	own := m.Name[strings.LastIndex(m.Name, "/")+1:]
	names := slices.Sorted(maps.Keys(m.Bin))
	switch {
	case len(names) == 0:
		return "", tool.Errorf(tool.CodeInvalidInput, "the package %s has no program to start, so it is no server", m.Name)
	case bin != "" && (m.Bin[bin] != "" || bin == own && m.Bin[""] != ""):
		return m.Bin[bin] + m.Bin[""], nil
	case bin == "" && len(names) == 1:
		return m.Bin[names[0]], nil
	case bin == "" && m.Bin[own] != "":
		return m.Bin[own], nil
	}
	return "", tool.Errorf(tool.CodeInvalidInput, "the package %s has the programs %s; name one of them: `npx -p %s PROGRAM`",
		m.Name, strings.Join(names, ", "), m.Name)
}

// forNode reports whether Node runs a file: by its name, or by its first line.
func forNode(root *os.Root, name string) (bool, error) {
	f, err := root.Open(name)
	if err != nil {
		return false, err
	}
	defer f.Close()
	start := make([]byte, 128)
	n, _ := f.Read(start) // an empty file is not for Node
	line, _, _ := strings.Cut(string(start[:n]), "\n")
	return slices.Contains([]string{".js", ".mjs", ".cjs"}, path.Ext(name)) ||
		strings.HasPrefix(line, "#!") && strings.Contains(line, "node"), nil
}

// withScripts lists the packages that have install scripts, according to the lock file.
func withScripts(root *os.Root) (names []string) {
	var lock struct {
		Packages map[string]struct {
			HasInstallScript bool `json:"hasInstallScript"`
		} `json:"packages"`
	}
	if readDoc(root, "package-lock.json", &lock) != nil {
		return nil
	}
	for name, p := range lock.Packages {
		if p.HasInstallScript {
			names = append(names, name[strings.LastIndex(name, "node_modules/")+len("node_modules/"):])
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
