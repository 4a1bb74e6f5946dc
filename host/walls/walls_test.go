package walls

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toolpost/host/process"
	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
	"toolpost/wire/bounded"
)

// The guarantees that hold around every call are those that take nothing more from a tool.
func TestWallsListTheGuaranteesTheyAlreadyHold(t *testing.T) {
	needs := Needs{Dir: "/", Read: []string{"/usr"}}
	for name, c := range map[string]struct {
		o    Options
		want string
	}{
		"the default":   {Options{}, "no_network no_env_write sandbox"},
		"no folder":     {Options{Tmp: -1}, "no_filesystem_write no_network no_env_write sandbox"},
		"a network":     {Options{Network: Network{"loopback"}}, "no_env_write sandbox"},
		"Unix sockets":  {Options{Unix: true}, "no_env_write sandbox"},
		"a folder":      {Options{Tmp: -1, Write: []string{"/srv"}}, "no_network no_env_write sandbox"},
		"none at all":   {Options{Off: true}, ""},
		"hosts by name": {Options{Network: Network{"example.com"}}, "no_env_write sandbox"},
	} {
		w := kit.Must(c.o.Around(needs))(t)
		kit.Equal(t, strings.Join(w.Holds().Asked(), " "), c.want, name)
	}
}

// If the walls are off there are none; a guarantee still builds the walls that it needs, and holds in full.
func TestGuaranteesHoldWithWallsOff(t *testing.T) {
	tooltest.NoLeaks(t)
	dir, outside := t.TempDir(), t.TempDir()
	kit.OK(t, os.WriteFile(filepath.Join(dir, "own"), []byte("own"), 0o600))
	kit.OK(t, os.WriteFile(filepath.Join(outside, "other"), []byte("other"), 0o600))
	w := kit.Must(Options{Off: true}.Around(Needs{Dir: dir, Read: []string{dir}, Run: []string{dir}}))(t)
	kit.Equal(t, w.String(), "none", "it calls itself %q", w)
	for name, c := range map[string]struct {
		g    tool.Guarantees
		want string
	}{
		"nothing is asked for":   {tool.Guarantees{}, "own other wrote"},
		"secrets alone":          {tool.Guarantees{SecretsAllowed: []string{}}, "own other wrote"},
		"no_network":             {tool.Guarantees{NoNetwork: true}, "own other wrote"},
		"no_filesystem_write":    {tool.Guarantees{NoFilesystemWrite: true}, "own other"},
		"no_filesystem_read":     {tool.Guarantees{NoFilesystemRead: true}, "own wrote"},
		"a sandbox":              {tool.Guarantees{Sandbox: true}, "own"},
		"a strict sandbox":       {tool.Guarantees{Sandbox: true, NoFilesystemRead: true}, "own"},
		"no files in either way": {tool.Guarantees{NoFilesystemRead: true, NoFilesystemWrite: true}, "own"},
	} {
		t.Run(name, func(t *testing.T) {
			confine := kit.Must(w.Confine("it", c.g, nil))(t)
			kit.Equal(t, (confine != nil), w.Stand(c.g), "walls: %v", confine != nil)
			child := kit.Must(process.Start(process.Command{
				Argv: []string{"/bin/sh", "-c", `cat own; echo; cat "$0/other"; echo; touch "$0/new" && echo wrote`, outside},
				Dir:  dir, Env: []string{"PATH=/usr/bin:/bin"}, Confine: confine,
			}))(t)
			defer child.Close()
			child.CloseStdin()
			said := kit.Must(bounded.ReadDocument(child.Stdout, 1<<10))(t)
			child.Wait()
			kit.Equal(t, strings.Join(strings.Fields(string(said)), " "), c.want)
			_ = os.Remove(filepath.Join(outside, "new"))
		})
	}
}

func TestWallsDescribeThemselves(t *testing.T) {
	w, err := Options{
		Read: []string{"maps", "/data/x", "/data/x/y"}, Write: []string{"out"}, Memory: 1 << 30, Processes: -1,
		Network: Network{"a.example", "10.0.0.7:80"},
	}.Around(Needs{Dir: "/base", Read: []string{"/base/tool"}})
	kit.OK(t, err)
	kit.Equal(t, w.String(), "reads /base/tool, /base/maps, /data/x; changes /base/out; "+
		"network a.example, 10.0.0.7:80; 1024 MiB")
	for _, bad := range []Network{{"none", "a.example"}, {"a b"}, {"127.1"}, {""}} {
		kit.Refused(t, kit.Err((Options{Network: bad}).Around(Needs{})), tool.CodeInvalidInput, "", bad)
	}
}

// The files that a program needs are found around it, and nothing else.
func TestCodeFilesOfAProgramAreFound(t *testing.T) {
	home := t.TempDir()
	for _, folder := range []string{"opt/py/bin", "opt/py/lib", "opt/py/share", "venv/bin", "venv/lib"} {
		kit.OK(t, os.MkdirAll(filepath.Join(home, folder), 0o755))
	}
	kit.OK(t, os.WriteFile(filepath.Join(home, "opt/py/bin/python3"), nil, 0o755))
	kit.OK(t, os.WriteFile(filepath.Join(home, "venv/pyvenv.cfg"), nil, 0o644))
	kit.OK(t, os.Symlink(filepath.Join(home, "opt/py/bin/python3"), filepath.Join(home, "venv/bin/python")))
	var want []string
	for _, part := range []string{"venv/bin", "venv/lib", "venv/pyvenv.cfg", "opt/py/bin", "opt/py/lib"} {
		want = append(want, filepath.Join(home, part))
	}
	kit.EqualSlices(t, Code(filepath.Join(home, "venv/bin/python")), want)
	if got := Code("/usr/bin/env"); got != nil {
		t.Errorf("%q", got)
	}
}
