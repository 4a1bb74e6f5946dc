package walls

import (
	"os"
	"path/filepath"
	"testing"

	"toolpost/config/offlimits"
	"toolpost/internal/kit"
	"toolpost/tool"
)

func TestConfigCannotExposeHiddenPaths(t *testing.T) {
	dir := t.TempDir()
	kit.OK(t, os.MkdirAll(filepath.Join(dir, ".toolpost/sub"), 0o755))
	kit.OK(t, os.MkdirAll(filepath.Join(dir, "free"), 0o755))
	kit.OK(t, os.Symlink(".toolpost/sub", filepath.Join(dir, "link")))
	checker := offlimits.NewChecker(&offlimits.List{Absent: []string{dir + "/.toolpost/", dir + "/key"}})
	for path, refused := range map[string]bool{
		".toolpost": true, ".toolpost/sub": true, ".toolpost/none": true, "link": true, "key": true, "free": false, ".": false,
	} {
		for _, o := range []Options{{Read: []string{path}}, {Write: []string{path}}, {Run: []string{path}}} {
			o.OffLimits = checker
			w, err := o.Around(Needs{Dir: dir, Read: []string{dir}})
			kit.OK(t, err)
			_, err = w.Confine("tool", tool.Guarantees{}, nil)
			kit.Equal(t, tool.CodeOf(err) == tool.CodeAccessDenied, refused, o, err)
		}
	}
}
