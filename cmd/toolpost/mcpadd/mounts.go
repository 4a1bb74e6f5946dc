package mcpadd

import (
	"encoding/csv"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"toolpost/config/offlimits"
)

// exposed says in words what a volume would show that a server must not have, or "" if there is nothing. The user's keys and
// settings are in hidden folders of the home, and who can talk to an engine's socket can mount anything.
func exposed(flag, value string) string {
	home, err := os.UserHomeDir()
	if err != nil {
		return "" // there is none to show
	}
	for _, path := range mounted(flag, value, home) {
		path, home := resolved(path), resolved(home)
		below, inside := strings.CutPrefix(path, home+"/")
		info, err := os.Stat(path)
		switch {
		case offlimits.Within(home, path):
			return "your home folder"
		case inside && strings.HasPrefix(below, "."):
			return "a hidden folder of your home, where programs keep keys and settings"
		case err == nil && info.Mode()&os.ModeSocket != 0, slices.ContainsFunc(engineFiles(), func(socket string) bool {
			return offlimits.Within(path, socket) || offlimits.Within(socket, path)
		}):
			return "a socket through which it could leave its container"
		}
	}
	return ""
}

// engineFiles returns where engines have their sockets, which need not be there now.
func engineFiles() (paths []string) {
	for _, dir := range []string{"/run", "/var/run"} {
		for _, name := range []string{"docker.sock", "docker", "podman", "containerd", "user"} {
			paths = append(paths, resolved(filepath.Join(dir, name)))
		}
	}
	return paths
}

// mounted returns the paths of this machine that the value of a --volume or a --mount names.
func mounted(flag, value, home string) (paths []string) {
	from, _, _ := strings.Cut(value, ":")
	named := []string{from}
	if flag == "--mount" {
		named = sources(value)
	}
	for _, path := range named {
		if rest, ok := strings.CutPrefix(path, "~"); ok && (rest == "" || rest[0] == '/') { // a shell may have left it as it is
			path = home + rest
		}
		if path = strings.Join(absolute([]string{path}), ""); filepath.IsAbs(path) { // others are names of volumes
			paths = append(paths, path)
		}
	}
	return paths
}

// sources returns the values in a --mount other than its target. Engines read it as a line of CSV, so that fields can be in
// quotes, and an option of a volume (volume-opt=device=/etc) can be a path as well.
func sources(value string) (values []string) {
	fields, err := csv.NewReader(strings.NewReader(value)).Read()
	if err != nil {
		return []string{"/"} // an engine may read it in another way: nothing is known about it
	}
	for _, field := range fields {
		key, _, _ := strings.Cut(field, "=")
		if !slices.Contains([]string{"target", "dst", "destination"}, strings.ToLower(strings.TrimSpace(key))) {
			values = append(values, strings.TrimSpace(field[strings.LastIndexByte(field, '=')+1:]))
		}
	}
	return values
}

// resolved resolves the links in a path, as far as it exists: an engine makes the folders that are missing.
func resolved(path string) string {
	path = filepath.Clean(path)
	if found, err := filepath.EvalSymlinks(path); err == nil {
		return found
	}
	if path == "/" || path == "." {
		return path
	}
	return filepath.Join(resolved(filepath.Dir(path)), filepath.Base(path))
}
