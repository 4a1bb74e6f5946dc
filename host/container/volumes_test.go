package container

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toolpost/config/offlimits"
	"toolpost/internal/kit"
)

func TestContainersMountNothingThatIsOffLimits(t *testing.T) {
	dir := kit.Must(filepath.EvalSymlinks(t.TempDir()))(t)
	for _, folder := range []string{"work/sub", "work/app/tools", "state", "free", "code/tools"} {
		kit.OK(t, os.MkdirAll(filepath.Join(dir, folder), 0o755))
	}
	kit.OK(t, os.Symlink("/", filepath.Join(dir, "work/link")))
	checker := offlimits.NewChecker(&offlimits.List{
		Absent: []string{dir + "/state/"}, ReadOnly: []string{dir + "/code/tools/"},
		Writable: []offlimits.Owned{{Path: dir + "/work"}},
	})
	for args, want := range map[string]string{
		"-v $/free:/data": "", "--volume=$/work:/data": "", "-v name:/data": "", "--mount type=bind,src=$/free,target=/x": "",
		"-v $:/data:ro": "off limits", "-v $/state:/data:ro": "off limits",
		`--mount type=bind,"source=$",target=/x`: "not understood", "--mount type=bind,SOURCE=$,target=/x": "not understood",
		"--mount=type=volume,volume-opt=device=$,target=/x": "not understood",
		"--mount type=bind,source=$,target=/x":              "off limits",
		"-v $/code:/data":                                   "off limits", "-v $/code:/data:ro": "",
		"-v $/work/sub:/data": "tools may change", "-v $/work/link:/data": "symbolic link",
	} {
		c := &Box{checker: checker, Options: Options{Args: strings.Fields(strings.ReplaceAll(args, "$", dir))}}
		err := c.mayMount()
		if want == "off limits" {
			want = "files of this installation"
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", args, err)
		}
	}
}
