package alphahuman

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"toolpost/config/offlimits"
)

// sdkFolder is where hosts of packages keep the library that all packages import: ROOT/dev, beside ROOT/skills.
const sdkFolder = "dev"

// lookAround finds what a package sees beside its own folder, as it does under its host: ROOT, the parent of the folder of
// skills. The entries are listed one by one, so that other skills, secrets and files that tools may change stay hidden. The
// SDK counts as code, which no guarantee takes away; no tool may change it, see Claim.
func (l *launch) lookAround(skill string, checker *offlimits.Checker) {
	if l.root == "" {
		return
	}
	parent, list := filepath.Dir(skill), checker.Now()
	if sdk := sdkIn(l.root); sdk != "" {
		l.code = append(l.code, sdk)
	}
	l.withheld = map[string]string{}
	for _, folder := range []string{l.root, parent} {
		entries, err := os.ReadDir(folder)
		none := err != nil || isShared(folder) || len(entries) > 256 // a host has a few dozen
		for _, e := range entries {
			path := filepath.Join(folder, e.Name())
			module := strings.ReplaceAll(strings.TrimPrefix(strings.TrimSuffix(path, ".py"), l.root+"/"), "/", ".")
			switch {
			case path == skill, path == parent, slices.Contains(l.code, path), strings.HasPrefix(e.Name(), "."),
				checker.At(path) == offlimits.Secret:
			case none, e.Type()&^fs.ModeDir != 0, isSkill(path), e.IsDir() && almost(path) != nil,
				list.Exposed(path): // tools may change it, or it is a link that they may have made
				l.withheld[module] = path
			default:
				l.reads = append(l.reads, path)
			}
		}
	}
}

// sdkIn returns the SDK of a ROOT, or "" if it has none.
func sdkIn(root string) string {
	sdk := filepath.Join(root, sdkFolder)
	if info, err := os.Lstat(sdk); err != nil || !info.IsDir() || isShared(root) {
		return ""
	}
	return sdk
}

// isShared reports whether a folder is not a project of its own: a user's home, a folder above it, or one that the system
// shares among all. It may contain a folder of skills, but its other entries have nothing to do with skills.
func isShared(folder string) bool {
	home, err := os.UserHomeDir()
	return err == nil && offlimits.Within(filepath.Clean(home), folder) || slices.Contains(strings.Fields(
		"/ /etc /home /media /mnt /opt /root /srv /tmp /usr /usr/local /var /var/lib /var/tmp"), folder)
}
