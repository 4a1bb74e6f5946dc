//go:build linux

package sandbox_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"toolpost/config/offlimits"
	"toolpost/host/process"
	"toolpost/host/sandbox"
	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// image makes a folder with everything that a shell needs, like an unpacked container image.
func image(t *testing.T) string {
	t.Helper()
	root := kit.Must(filepath.EvalSymlinks(t.TempDir()))(t)
	for _, folder := range []string{"usr/bin", "data", "kept"} {
		kit.OK(t, os.MkdirAll(filepath.Join(root, folder), 0o755))
	}
	kit.OK(t, os.Symlink("usr/bin", root+"/bin"))
	kit.OK(t, os.Symlink("/usr/bin/sh", root+"/usr/bin/there")) // resolved within the image
	kit.OK(t, os.WriteFile(root+"/data/file", []byte("of the image\n"), 0o644))
	kit.OK(t, os.WriteFile(root+"/kept/key", []byte(canary), 0o644))
	busybox(t, root)
	return root
}

// busybox puts a shell into an image, with the libraries that it was linked with.
func busybox(t *testing.T, root string) {
	t.Helper()
	libraries, err := exec.Command("sh", "-c", `ldd "$(command -v sh)" "$(command -v cat)" "$(command -v ls)" | grep -o '/[^ ]*[.]so[^ ]*' | sort -u`).Output()
	kit.OK(t, err)
	for file := range strings.FieldsSeq(string(libraries)) {
		kit.OK(t, os.MkdirAll(root+filepath.Dir(file), 0o755))
		copyFile(t, file, root+file, 0o755)
	}
	for _, name := range []string{"sh", "cat", "ls"} {
		path := kit.Must(exec.LookPath(name))(t)
		copyFile(t, path, root+"/usr/bin/"+name, 0o755)
	}
}

// inImage runs a line of shell in an image.
func inImage(t *testing.T, p sandbox.Profile, line string) string {
	t.Helper()
	p.Subprocess = true
	out, exit := run(t, process.Command{
		Argv: []string{"sh", "-c", "{ " + line + "; } 2>&1; exit 0"}, Dir: "/", Env: []string{"PATH=/usr/local/bin:/bin"}, Confine: &sandbox.Confinement{Profile: p},
	})
	kit.Equal(t, exit, process.Exit{}, "%s: %v: %s", line, exit, out)
	return out
}

func TestARoomWithAnImageHasNothingElse(t *testing.T) {
	tooltest.NoLeaks(t)
	root := image(t)
	p := sandbox.Profile{Root: root, Tmp: 1 << 20, Proc: sandbox.ProcOwn}
	for line, want := range map[string]string{
		"cat /data/file":       "of the image\n",
		"there -c 'echo ok'":   "ok\n",
		"ls /etc":              "ls: cannot access '/etc': No such file or directory\n",
		"echo x >/data/file":   "sh: 1: cannot create /data/file: Read-only file system\n",
		"echo x >/new":         "sh: 1: cannot create /new: Read-only file system\n",
		"echo x >/tmp/a":       "",
		"echo x >/dev/shm/a":   "",
		"ls /dev":              "fd\nfull\nnull\nrandom\nshm\nstderr\nstdin\nstdout\nurandom\nzero\n",
		"echo /proc/[0-9]*":    "/proc/1 /proc/2\n",
		"cat " + root + "/key": "cat: " + root + "/key: No such file or directory\n",
	} {
		kit.Equal(t, inImage(t, p, line), want, line)
	}
	p.Tmp = 0
	kit.Contains(t, inImage(t, p, "ls /tmp; echo x >/tmp/a"), "Read-only file system", "without a /tmp of its own")
}

// A path that is off limits is also hidden under the name that the image gives it. A file of the image that only has the
// same name as a hidden file of the host is another file.
func TestAnImageHidesWhatIsOffLimits(t *testing.T) {
	root := image(t)
	p := sandbox.Profile{Root: root, Off: &offlimits.List{Absent: []string{root + "/kept/", root + "/none", "/data/file"}}}
	kit.Equal(t, inImage(t, p, "ls /kept; cat /none; cat /data/file"), "cat: /none: No such file or directory\nof the image\n")
}

func TestRoomWithImageAlsoHasReadablePaths(t *testing.T) {
	root, host := image(t), t.TempDir()
	kit.OK(t, os.WriteFile(host+"/file", []byte("of the host\n"), 0o644))
	p := sandbox.Profile{Root: root, Readable: []string{host}}
	kit.Equal(t, inImage(t, p, "cat "+host+"/file"), "of the host\n")
}

func TestAProgramThatTheImageDoesNotHaveIsNamed(t *testing.T) {
	root := image(t)
	kit.OK(t, os.Symlink("/etc/passwd", root+"/usr/bin/out"))
	for name, c := range map[string]struct{ root, program, want string }{
		"not there":            {root, "python3", "python3 was not found in " + root},
		"a link to the host's": {root, "out", "out was not found in " + root},
		"no image":             {root + "/none", "sh", "no such file or directory"},
		"a file":               {root + "/data/file", "sh", "it is not a folder"},
	} {
		_, err := process.Start(process.Command{
			Argv: []string{c.program}, Env: []string{"PATH=/bin"}, Confine: &sandbox.Confinement{Profile: sandbox.Profile{Root: c.root}},
		})
		kit.Refused(t, err, tool.CodeUnavailable, c.want, name)
	}
}
