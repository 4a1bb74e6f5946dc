package alphahuman

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"toolpost/host/offlimits"
	"toolpost/host/workspace"
)

// sdkFolder is where the hosts of packages have the library that all of them import: ROOT/dev, beside ROOT/skills.
const sdkFolder = "dev"

// maxAround bounds how much of a folder a package is given, one by one. ROOT of a host has a few dozen entries.
const maxAround = 256

// surroundings are what a package sees beside its own folder, as it does under its host: ROOT, the folder above the
// folder of skills. The entries are given one by one, so other skills, secrets and what belongs to other sources stay
// outside its room, and nothing that is put there later is imported.
type surroundings struct {
	code     []string          // the SDK: no guarantee takes that
	reads    []string          // the rest
	withheld map[string]string // modules that are kept from it, by name, and where they are
}

func (s *surroundings) same(o surroundings) bool {
	return slices.Equal(s.code, o.code) && slices.Equal(s.reads, o.reads)
}

// surroundings looks at ROOT and at the folder of skills. What is off limits by then is in the book.
func (l *launch) surroundings(skill string, book *offlimits.Book) (s surroundings) {
	if l.root == "" {
		return s
	}
	s.withheld = map[string]string{}
	parent, list := filepath.Dir(skill), book.Now()
	if sdk := sdkIn(l.root); sdk != "" {
		s.code = []string{sdk}
	}
	s.look(l.root, "", append(s.code, parent), book, func(path string) bool {
		inside := func(root string) bool { return offlimits.Within(filepath.Clean(root), path) }
		return max(book.At(path), book.Inside(path)) == offlimits.Free && list.Exposed([]string{path}) == "" &&
			!slices.ContainsFunc(list.Roots(), inside)
	})
	s.look(parent, filepath.Base(parent)+".", []string{skill}, book, func(path string) bool {
		return !isSkill(path) && (!isFolder(path) || almost(path) == nil)
	})
	return s
}

// look takes what may be given of a folder, except for some paths. Links are left out: a tool may have made them.
func (s *surroundings) look(folder, prefix string, except []string, book *offlimits.Book, may func(string) bool) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return // what cannot be listed gives nothing
	}
	none := isShared(folder) || len(entries) > maxAround
	for _, e := range entries {
		path := filepath.Join(folder, e.Name())
		switch {
		case slices.Contains(except, path), strings.HasPrefix(e.Name(), "."), workspace.Hides(e.Name()),
			book.At(path) == offlimits.Secret:
		case none || e.Type()&^fs.ModeDir != 0 || !may(path):
			s.withheld[prefix+strings.TrimSuffix(e.Name(), ".py")] = path
		default:
			s.reads = append(s.reads, path)
		}
	}
}

// sdkIn returns the SDK of a ROOT; empty: it has none.
func sdkIn(root string) string {
	if sdk := filepath.Join(root, sdkFolder); !isShared(root) && isFolder(sdk) {
		return sdk
	}
	return ""
}

// sdks lists the SDKs that the packages of a source import: no tool may change them.
func (o *Options) sdks(dir string) (all []string) {
	skills, _ := o.read(dir) // what cannot be read starts nothing
	for _, s := range skills {
		if s.Manifest == nil || s.Err != nil {
			continue
		}
		l, err := s.Manifest.launch(s.Dir)
		if sdk := sdkIn(l.root); err == nil && l.root != "" && sdk != "" && !slices.Contains(all, sdk) {
			all = append(all, sdk)
		}
	}
	return all
}

func isFolder(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir()
}

// isShared reports whether a folder is no project of its own: somebody's home, one above it, or a folder that the
// system shares among all. A folder of skills may lie there, and what lies beside it has nothing to do with skills.
func isShared(folder string) bool {
	home, err := os.UserHomeDir()
	return err == nil && offlimits.Within(filepath.Clean(home), folder) || slices.Contains([]string{
		"/", "/etc", "/home", "/media", "/mnt", "/opt", "/root", "/srv", "/tmp", "/usr", "/usr/local", "/var", "/var/lib", "/var/tmp",
	}, folder)
}
