package mcpadd

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toolpost/internal/kit"
	"toolpost/tool"
)

func TestVolumesThatShowTooMuchAreRefused(t *testing.T) {
	top := kit.Must(filepath.EvalSymlinks(t.TempDir()))(t)
	home, data := filepath.Join(top, "home", "ada"), filepath.Join(top, "home", "ada", "data")
	for _, dir := range []string{data, home + "/.ssh", top + "/other"} {
		kit.OK(t, os.MkdirAll(dir, 0o700))
	}
	kit.OK(t, os.Symlink(home, top+"/link"))
	kit.OK(t, os.Symlink(top, data+"/up"))
	t.Setenv("HOME", top+"/link") // a home behind a link
	t.Chdir(data)
	socket := kit.Must(net.Listen("unix", filepath.Join(top, "other", "s")))(t)
	defer socket.Close()
	const isHome, hidden, leaves = "your home folder; mount the folder that it needs", "a hidden folder of your home", "a socket through which"
	for words, want := range map[string]string{
		"-v " + home + ":/h":           isHome,
		"-v=" + home + "/:/h:ro":       isHome,
		"--volume " + top + "/home:/h": isHome,
		"-v /:/h":                      isHome,
		"-v ..:/h":                     isHome,
		"-v ~:/h":                      isHome,
		"-v " + top + "/link:/h":       isHome,
		"-v " + data + "/up:/h":        isHome,
		"-v /proc/self/root:/h":        isHome,
		"--mount type=bind,src=" + home + ",target=/h":                                                     isHome,
		`--mount type=bind,"source=` + home + `",target=/h`:                                                isHome,
		`--mount "type=bind","SRC=` + home + `","target=/h"`:                                               isHome,
		`--mount type=bind,src=..,target=/h`:                                                               isHome,
		`--mount type=bind,src="` + home + `,target=/h`:                                                    isHome, // no CSV
		"--mount type=volume,volume-opt=type=none,volume-opt=o=bind,volume-opt=device=" + home + ",dst=/h": isHome,
		"-v ~/.ssh:/h":                                           hidden,
		"-v " + top + "/link/.ssh/id:/h":                         hidden,
		"-v " + home + "/.new:/h":                                hidden,
		"-v /var/run/docker.sock:/s":                             leaves,
		"--mount type=bind,src=/run/podman/podman.sock,target=/": leaves,
		"-v /run:/h":                                             leaves,
		"-v /run/user/1000/podman:/h":                            leaves,
		"-v " + top + "/other/s:/s":                              leaves,
		"-v " + data + ":/root":                                  "",
		"-v .:/root":                                             "",
		"-v ./.cache:/root":                                      "",
		"-v " + top + "/other:/root":                             "",
		"-v volume:/root":                                        "",
		"-w /":                                                   "",
		"--mount type=volume,src=volume,target=/":                "",
		"--mount type=bind,src=" + data + ",target=/root":        "",
	} {
		_, _, err := parseBoxed(append(append([]string{"docker", "run"}, strings.Fields(words)...), "image"))
		if want == "" {
			kit.Check(t, err, words)
		} else {
			kit.Refused(t, err, tool.CodeAccessDenied, "would show the server "+want, words)
		}
	}
}
