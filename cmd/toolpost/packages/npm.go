package packages

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// fromNPM installs a package of npm into a folder.
func fromNPM(ctx context.Context, stage string, r Request) (*Package, error) {
	const install = "Node.js, such as with `apt install nodejs npm`"
	node, err := look("node", install)
	if err != nil {
		return nil, err
	}
	npm, err := look("npm", install)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(stage, "package.json"), []byte("{\"private\": true}\n"), 0o600); err != nil {
		return nil, tool.Errorf(tool.CodeUnavailable, "the folder of packages: %w", err)
	}
	argv := []string{npm, "install", "--save-exact", "--install-links", "--no-audit", "--no-fund", "--loglevel=error"}
	if !r.Scripts {
		argv = append(argv, "--ignore-scripts")
	}
	if err := run(ctx, r, stage, "npm", "npm error ", append(argv, "--", r.Spec)); err != nil {
		return nil, err
	}
	return readNPM(stage, node, r)
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

// readNPM determines what npm has installed, and how its program is started.
func readNPM(stage, node string, r Request) (*Package, error) {
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
	script, err := choose(m.Bin, m.Name, r.Bin, "npx -p %s")
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
	text, err := readFile(root, name)
	if err == nil {
		err = strictjson.Unmarshal(text, into)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
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
