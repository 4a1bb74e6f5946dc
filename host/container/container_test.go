package container

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"toolpost/host/process"
	"toolpost/host/walls"
	"toolpost/internal/kit"
	"toolpost/tool"
)

// The parts that need no engine: the command line, which sets up the walls.
func TestArguments(t *testing.T) {
	o := Options{Image: "img", Memory: "1g", CPUs: 0.5, PIDs: 7, Network: "mine", OCI: "runsc", Args: []string{"--user", "nobody"}}
	b := &Box{Options: o, Engine: "docker", path: "/usr/bin/docker", Mount: "/srv/skill"}
	cmd := process.Command{Argv: []string{"run", "me"}, Dir: "/work"}
	want := "/usr/bin/docker run --rm -i --name n --pull missing --network mine --read-only --cap-drop ALL --security-opt no-new-privileges " +
		"--memory 1g --memory-swap 1g --cpus 0.5 --pids-limit 7 --tmpfs /tmp:size=64m --env-file vars --workdir /work --runtime runsc " +
		"--mount type=bind,readonly,source=/srv/skill,target=/srv/skill --user nobody img run me"
	kit.Equal(t, cmp.Diff(want, strings.Join(b.arguments("n", "vars", cmd, tool.Guarantees{}), " ")), "")
	b = &Box{Options: Options{Image: "img", Network: "mine"}, Engine: "podman", path: "/usr/bin/podman"}
	want = "/usr/bin/podman run --rm -i --name n --pull missing --network none --read-only --cap-drop ALL --security-opt no-new-privileges " +
		"--memory 512m --memory-swap 512m --cpus 1 --pids-limit 128 --read-only-tmpfs=false img"
	g := tool.Guarantees{NoFilesystemWrite: true, NoNetwork: true}
	kit.Equal(t, cmp.Diff(want, strings.Join(b.arguments("n", "", process.Command{}, g), " ")), "")
}

func TestVariablesAreInAFileThatOnlyWeCanRead(t *testing.T) {
	b := &Box{Options: Options{Image: "img"}, Engine: "podman", path: "/usr/bin/podman"}
	cmd := kit.Must(b.Enclose(process.Command{Env: []string{"A=1", "KEY=value-of-key"}}, tool.Guarantees{}))(t)
	line := strings.Join(cmd.Argv, " ")
	file := cmd.Argv[len(cmd.Argv)-2]
	text, err := os.ReadFile(file)
	if err != nil || string(text) != "A=1\nKEY=value-of-key\n" || strings.Contains(line, "value-of-key") || len(cmd.Env) > 0 {
		t.Errorf("%q, %v in %s", text, err, line)
	}
	kit.Equal(t, kit.Must(os.Stat(file))(t).Mode().Perm(), 0o600)
	cmd.End(false)
	kit.Fails(t, kit.Err(os.Stat(filepath.Dir(file))), "", "the file is left")
	if cmd, err := b.Enclose(process.Command{}, tool.Guarantees{}); err != nil || strings.Contains(strings.Join(cmd.Argv, " "), "--env-file") {
		t.Errorf("without variables: %q, %v", cmd.Argv, err)
	}
	for name, cmd := range map[string]process.Command{
		"several lines": {Env: []string{"B=two\nlines"}}, "a file": {Files: []*os.File{os.Stdin}},
	} {
		kit.Refused(t, kit.Err(b.Enclose(cmd, tool.Guarantees{})), tool.CodeInvalidInput, "", name)
	}
}

func TestInvalidOptionsAreRefused(t *testing.T) {
	for want, o := range map[string]Options{
		"networks none and host":       {Runtime: "sandbox", Network: "mine"},
		"oci_runtime is for podman":    {Runtime: "sandbox", OCI: "runsc"},
		`such as 512m, not "lots"`:     {Runtime: "sandbox", Memory: "lots"},
		`such as 512m, not "0m"`:       {Runtime: "sandbox", Memory: "0m"},
		`such as 512m, not "1t"`:       {Runtime: "sandbox", Memory: "1t"},
		`not "9999999999999g"`:         {Runtime: "sandbox", Memory: "9999999999999g"},
		"walls: {read: ..., write: ..": {Runtime: "bwrap", Args: []string{"--ro-bind", "/a", "/a"}},
		"cannot be negative":           {PIDs: -1},
		"start with a dash":            {Network: "--privileged"},
	} {
		kit.Refused(t, o.Check(), tool.CodeInvalidInput, want, o)
	}
	for text, want := range map[string]int64{"": 512 << 20, "7": 7, "7b": 7, "2K": 2 << 10, "512m": 512 << 20, "3g": 3 << 30} {
		if n, err := memoryOf(text); n != want || err != nil {
			t.Errorf("%s: %d, %v", text, n, err)
		}
	}
	for _, bad := range []string{"--privileged", "a b", "-v"} {
		kit.Refused(t, kit.Err((Options{Image: bad}).Open("/", nil, nil)), tool.CodeInvalidInput, "", bad)
	}
	_, err := (Options{Image: "x", Runtime: "no-such-engine"}).Open("/", nil, nil)
	kit.Refused(t, err, tool.CodeUnavailable, "no-such-engine cannot be run")
}

// A config that says bwrap, which once built rooms around folders, means the same folders.
func TestAFolderBecomesWalls(t *testing.T) {
	for _, runtime := range []string{"sandbox", "bwrap", "/usr/bin/bwrap"} {
		o := Options{Image: "/srv/image/", Runtime: runtime, Memory: "1g", CPUs: 2, PIDs: 9, Network: "host"}
		got, err := o.Walls(walls.Options{Off: true, Read: []string{"/data"}})
		want := walls.Options{
			Root: "/srv/image", Read: []string{"/data"}, Machine: true, Memory: 1 << 30, CPU: 2, Processes: 9, Network: walls.Network{"all"},
		}
		if d := cmp.Diff(want, got); !o.Own() || err != nil || d != "" {
			t.Errorf("%s: %v: %s", runtime, err, d)
		}
	}
	hosts := walls.Options{Network: walls.Network{"api.example.com"}}
	for network, want := range map[string]string{"": "api.example.com", "none": "loopback"} {
		got, err := Options{Image: "/", Network: network}.Walls(hosts)
		if err != nil || got.Network[0] != want {
			t.Errorf("%s: %v, %v", network, got.Network, err)
		}
	}
	kit.Refused(t, kit.Err((Options{Image: "alpine:3"}).Walls(walls.Options{})),
		tool.CodeInvalidInput, "", "the name of an image")
}

// The program that runs containers, and the folder that becomes the root of one, are off limits like any other file that
// a source starts from: a tool that could change them could run anything.
func TestStartsListsRuntimeAndRootFolder(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want []string
	}{
		{Options{Runtime: "podman", Image: "python:3"}, nil},
		{Options{Runtime: "bin/podman", Image: "python:3"}, []string{"/cfg/bin/podman"}},
		{Options{Runtime: "bwrap", Image: "/srv/root/"}, []string{"/srv/root/"}},
		{Options{Runtime: "bwrap", Image: "/"}, nil},
	} {
		kit.EqualSlices(t, c.o.Starts("/cfg"), c.want, c.o)
	}
}
