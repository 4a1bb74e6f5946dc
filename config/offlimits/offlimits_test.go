package offlimits

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"toolpost/internal/kit"
)

// ground returns a folder with others in it.
func ground(t *testing.T, folders ...string) string {
	t.Helper()
	dir := kit.Must(filepath.EvalSymlinks(t.TempDir()))(t)
	for _, folder := range folders {
		kit.OK(t, os.MkdirAll(filepath.Join(dir, folder), 0o755))
	}
	return dir
}

func TestLinksThatToolsMayHaveMadeAreNotFollowed(t *testing.T) {
	dir := ground(t, "work/inner", "work/venv/bin", "work/home/lib", "work/home/open/lib", "work/both", "real/deep", "out")
	for link, target := range map[string]string{
		"own": "real", "own2": dir + "/own/deep", "towork": "work", "work/theirs": "../out", "work/inner/up": "../../out",
		"work/venv/bin/python": dir + "/real", "work/home/python": dir + "/real", "work/both/link": dir + "/real", "loop": "loop",
	} {
		kit.OK(t, os.Symlink(target, filepath.Join(dir, link)))
	}
	kit.OK(t, os.Symlink("lib", dir+"/work/home/lib64"))
	kit.OK(t, os.Symlink("lib", dir+"/work/home/open/lib64"))
	list := &List{
		Writable: []Owned{{Path: dir + "/towork"}, {Path: dir + "/work/home/open"}, {Path: dir + "/work/both"}},
		ReadOnly: []string{dir + "/work/venv/"}, Homes: []Owned{{Path: dir + "/work/home/."}, {Path: dir + "/work/both/"}},
	}
	for path, want := range map[string]string{
		"real/deep": "real/deep", "own/deep": "real/deep", "own2": "real/deep", "towork/inner": "work/inner",
		"work/venv/bin/python/deep": "real/deep", "towork/venv/bin/python": "real",
		"work/home/lib64": "work/home/lib", "work/home/python": "real", // a virtual environment of a program
	} {
		a, err := Open(filepath.Join(dir, path), list)
		if err != nil || a.Path != filepath.Join(dir, want) {
			t.Errorf("%s: %+v, %v", path, a, err)
			continue
		}
		a.Close()
	}
	for _, path := range []string{"work/theirs", "towork/theirs", "work/theirs/none", "work/inner/up", "towork/inner/up/..",
		"work/home/open/lib64", "work/both/link"} {
		var link *LinkError
		if a, err := Open(dir+"/"+path, list); !errors.As(err, &link) && path != "towork/inner/up/.." {
			t.Errorf("%s was opened: %+v, %v", path, a, err)
		}
	}
	kit.Fails(t, kit.Err(Open(filepath.Join(dir, "loop"), list)), "", "a loop was opened")
	if _, err := Open(filepath.Join(dir, "own/none"), list); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what is not there: %v", err)
	}
	kit.Fails(t, kit.Err(Open(dir+"/work/theirs", nil, dir+"/work")),
		"", "a link in a folder that is named beside the list was followed")
}

func TestMakeCreatesOnlyMissingPaths(t *testing.T) {
	dir := ground(t, "work/there")
	kit.OK(t, os.Symlink("/", filepath.Join(dir, "work/link")))
	list := &List{Writable: []Owned{{Path: dir + "/work"}}}
	for path, folder := range map[string]bool{"work/a/b/": true, "work/there/": true, "work/c/file": false} {
		thing := kit.Must(Find(filepath.Join(dir, path)+map[bool]string{true: "/"}[folder], list))(t)
		there, err := thing.Make(true)
		if info, statErr := os.Stat(filepath.Join(dir, path)); err != nil || !there || statErr != nil || info.IsDir() != folder {
			t.Errorf("%s: %v, %v, %v", path, there, err, statErr)
		}
	}
	kit.Fails(t, kit.Err(Find(dir+"/work/link/x", list)), "", "a link was followed to what is missing")
	thing := kit.Must(Find(dir+"/work/new/x/", list))(t)
	kit.OK(t, os.Symlink("/tmp", filepath.Join(dir, "work/new")))
	if there, err := thing.Make(true); there || err == nil {
		t.Error("a link that came in between was followed")
	}
}

func TestStrictestBanWins(t *testing.T) {
	dir := ground(t, "state", "real")
	kit.OK(t, os.Symlink("real", filepath.Join(dir, "link")))
	kit.OK(t, os.WriteFile(dir+"/state/token", nil, 0o600))
	checker := NewChecker(&List{Absent: []string{dir + "/state/", dir + "/link/key"}, Config: dir + "/config", ReadOnly: []string{dir + "/app/tools/", dir + "/state"}})
	for path, want := range map[string]Ban{
		"state": Secret, "state/x/y": Secret, "statement": Free, "real/key": Secret, "link/key": Secret, "config": Config, "app": Free, "app/tools": Fixed, "app/tools/x": Fixed, "app/toolsx": Free,
	} {
		kit.Equal(t, checker.At(filepath.Join(dir, path)), want, path)
	}
	for path, want := range map[string]Ban{"": Secret, "app": Fixed, "real": Secret, "state": Free, "app/tools": Free} {
		kit.Equal(t, checker.Inside(filepath.Join(dir, path)), want, path)
	}
	a := kit.Must(Open(dir+"/state/token", nil))(t)
	defer a.Close()
	if checker.Linked(a.ID) != Secret || checker.Folder(a.ID) != Free || (*Checker)(nil).At("/") != Free {
		t.Error("files are not known by what they are")
	}
}

func TestAProgramIsStartedAgainOnlyIfItsRoomIsOutOfDate(t *testing.T) {
	dir := ground(t, "data", "work", "other")
	kit.OK(t, os.Symlink("data", filepath.Join(dir, "link")))
	before := &List{Absent: []string{dir + "/state/"}, Config: dir + "/config"}
	room := Claim{Source: "a", Writes: []string{dir + "/data"}, Stays: true}
	for what, c := range map[string]struct {
		room Claim
		more Claim // of a source more
		want bool
	}{
		"nothing":                            {room, Claim{}, false},
		"a program elsewhere":                {room, Claim{Starts: []string{dir + "/other/main.py"}, Homes: []string{dir + "/other"}, Writes: []string{dir + "/work"}}, false},
		"a program that it may write":        {room, Claim{Starts: []string{dir + "/data/main.py"}}, true},
		"the same by a link":                 {room, Claim{Starts: []string{dir + "/link/main.py"}}, true},
		"a home that it may write":           {room, Claim{Homes: []string{dir + "/data/lib"}}, true},
		"a home around what it may write":    {room, Claim{Homes: []string{dir}}, true},
		"a folder that it may move away":     {room, Claim{Shows: []string{dir + "/data/shown"}}, true},
		"a secret that it may see":           {room, Claim{Keeps: []string{dir + "/other/key"}}, true},
		"a secret that was hidden before":    {room, Claim{Keeps: []string{dir + "/state/secrets/key"}}, false},
		"a room that ends with its call":     {Claim{Writes: room.Writes}, Claim{Starts: []string{dir + "/data/main.py"}}, false},
		"a program without walls":            {Claim{Stays: true, Bare: true}, Claim{Starts: []string{dir + "/other/main.py"}}, true},
		"a room that may write the config":   {Claim{Stays: true, Writes: []string{dir}}, Claim{}, true},
		"a room in which nothing is written": {Claim{Stays: true}, Claim{Starts: []string{dir + "/data/main.py"}, Homes: []string{dir}}, false},
	} {
		now := *before
		now.Add(c.more)
		kit.Equal(t, c.room.Outdates(before, &now), c.want, what)
		kit.Equal(t, c.room.Outdates(&now, before), c.want, what, "goes")
	}
}

// A room is refused if such a link is on the path, but the server itself reads its target.
func TestTargetOfAToolsLinkIsOffLimits(t *testing.T) {
	dir := ground(t, "vault/deep", "state")
	for link, target := range map[string]string{"key": "via/key", "via": "vault/deep", ".toolpost": dir + "/state", "later": "vault/later", "loop": "loop"} {
		kit.OK(t, os.Symlink(target, filepath.Join(dir, link)))
	}
	kit.OK(t, os.WriteFile(dir+"/vault/deep/key", nil, 0o600))
	checker := NewChecker(&List{Absent: []string{dir + "/key", dir + "/.toolpost/", dir + "/loop"},
		ReadOnly: []string{dir + "/later"}, Writable: []Owned{{Path: dir}}})
	for path, want := range map[string]Ban{
		"key": Secret, "via": Secret, "vault/deep/key": Secret, "vault/deep": Free, ".toolpost": Secret, "state/token": Secret, "later": Fixed, "vault/later": Fixed, "loop": Secret,
	} {
		kit.Equal(t, checker.At(filepath.Join(dir, path)), want, path)
	}
	kit.Equal(t, checker.Inside(dir+"/vault"), Secret, "the folder that a link leads to may be moved")
}

func TestTheFoldersThatARunnerLoadsCodeFrom(t *testing.T) {
	dir := ground(t, "srv", "data")
	for argv, want := range map[string][]string{
		"uv run --directory srv server":          {"srv/"},
		"/usr/bin/uv --project=srv run mcp":      {"srv/"},
		"npm --prefix srv start":                 {"srv/"},
		"make -C later -s":                       {"later/"},
		"uvx --from ./srv server":                {"srv/"},
		"uvx --from mcp-server-git server":       nil,
		"npx server --directory":                 nil,
		"mcp-server-filesystem --directory data": {"data/"}, // it may be code, unless the source says that it is data
		"mcp-server-filesystem -v . srv":         {"/."},
	} {
		got := slices.Compact(Homes(dir, strings.Fields(argv), nil, true))
		for i, home := range want {
			want[i] = dir + "/" + strings.TrimPrefix(home, "/")
		}
		kit.EqualSlices(t, got, want, argv)
	}
}

func TestStartFilesOfACommand(t *testing.T) {
	dir := ground(t, "pkg", "out", "code", "run")
	for _, name := range []string{"script", "data.txt", "out.db", "mod.py", "run/__main__.py"} {
		kit.OK(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	for _, c := range []struct{ argv, want []string }{
		{[]string{"interpreter", "script", "data.txt", "none"}, []string{"script", "data.txt"}},
		{[]string{"./bin/host", "--flag", "later.py", "https://x.example/y.py"}, []string{"bin/host", "later.py"}},
		{[]string{"interpreter", "-m", "pkg.main", "out.db"}, []string{"pkg/"}},
		{[]string{"interpreter", "-m", "mod"}, []string{"mod.py", "mod/"}},
		{[]string{"interpreter", "-mpkg.main"}, []string{"pkg/"}},
		{[]string{"interpreter", "-Bm", "pkg.main"}, []string{"pkg/"}},
		{[]string{"interpreter", "-Impkg"}, []string{"pkg/"}},
		{[]string{"interpreter", "-m", "json.tool"}, nil}, // it is Python's own, and an empty json.py would hide it
		{[]string{"interpreter", "-u", "run", "pkg"}, []string{"run/"}},
		{[]string{"interpreter", "script", "run"}, []string{"script"}},
		{[]string{"interpreter", "code/", "", "out/"}, []string{"code/"}},
		{[]string{"interpreter", "--require=./first.js", "--max=3", "-v", "script"}, []string{"first.js", "script"}},
		{[]string{"interpreter"}, nil},
	} {
		want := Given(dir, c.want...)
		kit.EqualSlices(t, Argv(dir, c.argv, []string{dir + "/out.db", dir + "/out"}), want, c.argv)
	}
}

func TestTheFoldersOfArguments(t *testing.T) {
	dir := ground(t, "lib", "data", "app", "bin")
	for _, name := range []string{"app/run.plx", "app/index.js", "data/x.db", "lib/hook.js", "real/tool"} {
		kit.OK(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		kit.OK(t, os.WriteFile(filepath.Join(dir, name), nil, 0o755))
	}
	kit.OK(t, os.Symlink("../real/tool", filepath.Join(dir, "bin/tool")))
	t.Setenv("PATH", dir+"/bin:"+os.Getenv("PATH"))
	for _, c := range []struct {
		argv string
		own  bool
		want []string
	}{
		{"interpreter -s app/run.plx", true, []string{"app/"}},
		{"interpreter app/index", true, []string{"app/"}},
		{"interpreter app/index.js data/x.db", false, []string{"app/", "data/"}},
		{"interpreter app/index.js data/x.db", true, []string{"app/"}},
		{"interpreter app/index.js lib", false, []string{"app/", "lib/"}},
		{"interpreter -Ilib -Xlib app/index.js", true, []string{"lib/", "app/"}},
		{"interpreter --require=./lib/hook.js app/run.plx", true, []string{"lib/", "app/"}},
		{"interpreter -cp lib:app Main", false, []string{"lib/", "app/"}},
		{"interpreter --see https://x.example/lib.js", false, nil},
		{"tool", false, []string{"bin/", "real/"}},
	} {
		kit.EqualSlices(t, slices.Compact(Homes(dir, strings.Fields(c.argv), nil, c.own)), Given(dir, c.want...), c.argv)
	}
	if got := Homes(dir, []string{"interpreter", "app/index.js", "data/x.db", "lib"}, Given(dir, "data", "lib"), false); !slices.Equal(got, Given(dir, "app/")) {
		t.Errorf("what a source may write is data: %q", got)
	}
	set := map[string]string{"HOOK": "--require ./lib/hook.js", "DATA": "data", "MODE": "fast", "BASE": dir}
	got := Variables(dir, set, map[string]string{"PYTHONPATH": "app:later"}, Given(dir, "data"))
	slices.Sort(got)
	kit.EqualSlices(t, got, []string{dir + "/.", dir + "/app", dir + "/later", dir + "/lib/"}, "variables")
}

func TestCodeInAnArgument(t *testing.T) {
	for _, c := range []struct {
		want bool
		argv []string
	}{
		{true, []string{"sh", "-c", "cd work && ./run"}},
		{true, []string{"env", "bash", "-lc", "run {x} | sort"}},
		{true, []string{"python3", "-cimport html"}},
		{true, []string{"node", "--eval=require('x')"}},
		{true, []string{"node", "-p", "require('x')"}},
		{true, []string{"awk", `BEGIN { "cd files && ./run" | getline }`}},
		{true, []string{"env", "sed", "-n", "1e ./run x"}},
		{false, []string{"docker", "run", "-e", "TOKEN", "image"}},
		{false, []string{"server", "-c", "config.yaml"}},
		{false, []string{"npx", "remote", "https://x.example", "--header", "Authorization: Bearer x"}},
		{false, []string{"sh", "run.sh", "a b"}},
		{false, nil},
	} {
		kit.Equal(t, Inline(c.argv), c.want, c.argv)
	}
}
