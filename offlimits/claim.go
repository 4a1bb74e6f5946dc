package offlimits

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A Claim is what one source says about files: each protocol knows its own. Paths are absolute.
type Claim struct {
	Keeps  []string // private to us: keys, what a source stores
	Starts []string // what it starts from
	Writes []string // folders that its tools may change
	// Stays says that rooms of the source may outlive a call. What covers a file in a room goes when somebody outside puts
	// another file in its place, as editors do: such rooms are built anew when the config changes.
	Stays bool
}

// Add puts a claim on the list.
func (l *List) Add(c Claim) {
	l.Absent = append(l.Absent, c.Keeps...)
	l.Writable = append(l.Writable, c.Writes...)
	for _, path := range c.Starts {
		if !slices.Contains(l.ReadOnly, path) {
			l.ReadOnly = append(l.ReadOnly, path)
		}
	}
}

// Same reports whether two lists keep the same things.
func (l *List) Same(o *List) bool {
	return l == o || l != nil && o != nil &&
		same(l.Hidden(), o.Hidden()) && same(l.Fixed(), o.Fixed()) && same(l.Writable, o.Writable)
}

func same(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// Outdates reports whether a change of the config leaves a source with rooms that were built for another list, or that may
// change the config now.
func (c Claim) Outdates(before, now *List) bool {
	open := func(folder string) bool { return now.Config != "" && Within(now.Config, filepath.Clean(folder)) }
	return c.Stays && (!now.Same(before) || slices.ContainsFunc(c.Writes, open))
}

// Under gives a path of a config, clean; a relative one starts in dir.
func Under(dir, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}

// Given lists those of some paths that are not empty, absolute. One that ends with a slash still does.
func Given(dir string, paths ...string) []string {
	var all []string
	for _, path := range paths {
		if path == "" {
			continue
		}
		full := Under(dir, path)
		if strings.HasSuffix(path, "/") && full != "/" {
			full += "/"
		}
		all = append(all, full)
	}
	return all
}

// Argv lists what a command starts from: its program, where that is named by a path, and the files among its arguments. An
// argument that names no file yet is one if it looks like code: a tool must not be able to put it there. What the source
// may change is its own business.
func Argv(dir string, argv, writes []string) []string {
	var files []string
	for i, arg := range argv {
		if i == 0 && !strings.Contains(arg, "/") || strings.HasPrefix(arg, "-") || strings.Contains(arg, "://") {
			continue
		}
		paths := Given(dir, arg)
		if i > 1 && argv[i-1] == "-m" { // a module of Python
			top, _, _ := strings.Cut(arg, ".")
			paths = Given(dir, top+".py", top+"/")
		}
		for _, path := range paths {
			info, err := os.Stat(path)
			started := i == 0 || err == nil && (info.Mode().IsRegular() || strings.HasSuffix(path, "/")) || err != nil && isCode(path)
			if started && !slices.Contains(writes, filepath.Clean(path)) {
				files = append(files, path)
			}
		}
	}
	return files
}

// isCode reports whether a name is one of code.
func isCode(path string) bool {
	const code = " .py .pyz .js .mjs .cjs .ts .sh .bash .rb .pl .php .lua .jar .so .wasm "
	ext := strings.ToLower(filepath.Ext(path))
	return ext != "" && strings.Contains(code, " "+ext+" ")
}
