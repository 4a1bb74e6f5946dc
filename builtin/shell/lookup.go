package shell

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"toolpost/host/offlimits"
	"toolpost/host/workspace"
	"toolpost/tool"
)

// searchPath gives the folders in which programs are looked up: the configured ones, or those of our own PATH
// where not everybody can put a program.
func searchPath(configured []string, roots []workspace.Root) []string {
	if len(configured) > 0 {
		return configured
	}
	var path []string
	for _, folder := range filepath.SplitList(os.Getenv("PATH")) {
		real, err := filepath.EvalSymlinks(folder)
		if err != nil || !filepath.IsAbs(folder) || slices.Contains(path, folder) || writableRoot(roots, real) != "" {
			continue
		}
		if info, err := os.Stat(real); err == nil && info.IsDir() && info.Mode().Perm()&0o002 == 0 {
			path = append(path, folder)
		}
	}
	return path
}

// writableRoot names the writable root that a path is in.
func writableRoot(roots []workspace.Root, real string) string {
	for _, r := range roots {
		if r.Write && offlimits.Within(real, r.Dir) {
			return r.Name
		}
	}
	return ""
}

// lookup finds the file of a program that is allowed. A program that lies where tools can write is refused: it
// may be one that a tool wrote.
func (t *Tools) lookup(name string) (file string, err error) {
	if !t.o.mentions(name) || t.o.listed(t.o.Deny, name, words{}) {
		return "", denied(name)
	}
	folders := t.path
	switch {
	case filepath.IsAbs(name):
		folders = []string{""}
	case strings.Contains(name, "/") || name == "." || name == "..":
		folders = nil
	}
	for _, folder := range folders {
		candidate := filepath.Join(folder, name)
		info, err := os.Stat(candidate)
		if err != nil || info.IsDir() || info.Mode().Perm()&0o111 == 0 {
			continue
		}
		real, err := filepath.EvalSymlinks(candidate)
		if err != nil {
			continue
		}
		if root := writableRoot(t.ws.Roots(), real); root != "" {
			return "", tool.Errorf(tool.CodeAccessDenied, "Command '%s' is not allowed by security policy: it lies in %s, where tools can write", name, root).Because("command_denied")
		}
		return candidate, nil
	}
	return "", tool.Errorf(tool.CodeNotFound, "%s was not found (looked in %s): install it, or add its folder to shell.path", name, strings.Join(t.path, ", "))
}
