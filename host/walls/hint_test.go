package walls_test

import (
	"strings"
	"testing"

	"toolpost/host/walls"
	"toolpost/tool"
)

func TestHintNamesAConfigLine(t *testing.T) {
	room := &tool.Room{
		Base: "/home/ada/tools", Write: []string{"data"}, Reads: []string{"/home/ada/tools"}, Memory: 64 << 20, Tasks: 8,
	}
	hosts := &tool.Room{Base: "/c", Network: []string{"*.example.org"}}
	wrote := func(path string) tool.Blocked {
		return tool.Blocked{Capability: "filesystem_write", Target: path, By: "engine"}
	}
	for name, c := range map[string]struct {
		room    *tool.Room
		blocked []tool.Blocked
		said    string
		want    string // how it ends; empty if nothing is added
	}{
		"nothing": {room, nil, "it did not work", ""},
		"a file":  {room, []tool.Blocked{wrote("/home/ada/tools/out/a.txt")}, "", "`walls: {write: [data, ./out]}`"},
		"twice":   {room, []tool.Blocked{wrote("/home/ada/tools/out/a"), wrote("/home/ada/tools/out/b")}, "", ": `walls: {write: [data, ./out]}`"},
		"beside":  {room, []tool.Blocked{wrote("/home/ada/tools/a")}, "", "`walls: {write: [data, .]}`"},
		"away":    {room, []tool.Blocked{wrote("/srv/x y/a")}, "", "`walls: {write: [data, \"/srv/x y\"]}`"},
		"a name that looks like a folder of the config": {
			room, []tool.Blocked{wrote("/home/ada/tools2/a")}, "", "[data, /home/ada/tools2]}`",
		},
		"what Python compiled": {room, []tool.Blocked{wrote("/home/ada/tools/__pycache__")}, "no", ""},
		"a line in a path":     {room, []tool.Blocked{wrote("/x/a`\n\x1b[2J/b")}, "", "\"/x/a`\\n\\u001b[2J\"]}`"},
		"a host, behind those of the config": {
			hosts, []tool.Blocked{{Capability: "network", Target: "api.example.com:443", By: "engine"}}, "",
			"`walls: {network: [\"*.example.org\", api.example.com]}`",
		},
		"a port":    {room, []tool.Blocked{{Capability: "network", Target: "[2001:db8::1]:8443", By: "engine"}}, "", "`walls: {network: [\"[2001:db8::1]:8443\"]}`"},
		"processes": {room, []tool.Blocked{{Capability: "processes", Target: "8", By: "engine"}}, "", "`walls: {processes: 16}`"},
		"a container": {
			&tool.Room{Box: true, Memory: 64 << 20, Tasks: 8}, []tool.Blocked{
				{Capability: "memory", Target: "64 MiB", By: "engine"}, {Capability: "processes", Target: "8", By: "engine"},
			}, "", "`container: {memory: 128m, pids: 16}`",
		},
		"a policy": {room, []tool.Blocked{{Capability: "network", Target: "x:1", By: "policy"}}, "", "see `toolpost policy explain t`"},
		"a folder that is offered": {
			&tool.Room{Base: "/c", Key: "shell", Roots: []string{"/c/docs"}}, []tool.Blocked{wrote("/c/docs/a"), wrote("/d/a")}, "",
			"`roots: [{path: ./docs, write: true}]` and `shell: {walls: {write: [/d]}}`",
		},
		"nobody knows the room": {nil, []tool.Blocked{wrote("/a/b")}, "", "`walls: {write: [/a]}`"},

		"a network that may be walled":   {room, nil, "curl: (6) Could not resolve host: example.com", "it may be the walls of source \"s\"; if so, this allows it (`network: all` for a program that ignores HTTPS_PROXY): `walls: {network: [HOST]}`"},
		"a network that is not":          {&tool.Room{Network: []string{"all"}}, nil, "Could not resolve host: example.com", ""},
		"a file that may be walled":      {room, nil, "open '/srv/in.csv': ENOENT", "`walls: {read: [/srv/in.csv]}`"},
		"a file that is not":             {room, nil, "/home/ada/tools/in.csv: No such file or directory", ""},
		"a file of the system":           {room, nil, "/usr/lib/x.so: No such file or directory", ""},
		"a file behind a program":        {room, nil, "/opt/py/python3: can't open file '/home/ada/tools/no.py': [Errno 2] No such file or directory", ""},
		"another behind a program":       {room, nil, "/usr/bin/cat: /srv/in.csv: No such file or directory", "`walls: {read: [/srv/in.csv]}`"},
		"a page":                         {room, nil, "http://x/srv/in.csv: No such file or directory", ""},
		"a read-only folder":             {room, nil, "mkdir: cannot create '/srv/a': Read-only file system", "`walls: {write: [data, /srv]}`"},
		"memory":                         {room, nil, "MemoryError", "`walls: {memory: 134217728}`"},
		"threads":                        {room, nil, "RuntimeError: can't start new thread", "`walls: {processes: 16}`"},
		"files":                          {room, nil, "OSError: [Errno 24] Too many open files", "`walls: {files: MORE}`"},
		"an engine's container":          {&tool.Room{Box: true, Engine: true}, nil, "Network is unreachable", "`container: {network: NAME}`"},
		"a word that has another in it":  {room, nil, "MyENOENTx /srv/a", ""},
		"what was seen goes before that": {room, []tool.Blocked{wrote("/a/b")}, "MemoryError", "`walls: {write: [data, /a]}`"},
	} {
		got := walls.Hint(&tool.Spec{Name: "t", Source: "s", Room: c.room}, c.blocked, c.said)
		if c.want == "" && got != "" || !strings.HasSuffix(got, c.want) || strings.ContainsAny(got, "\n\x1b") {
			t.Errorf("%s: %q and not ...%q", name, got, c.want)
		}
	}
}

// Endless attempts of a tool do not make an endless message.
func TestHintIsBounded(t *testing.T) {
	var all []tool.Blocked
	for i := range 200 {
		path := "/" + strings.Repeat("x", i*20) + "/a"
		all = append(all, tool.Blocked{Capability: "filesystem_write", Target: path, By: "engine"},
			tool.Blocked{Capability: "filesystem_write", Target: path, By: "policy"})
	}
	if got := walls.Hint(&tool.Spec{Name: "t", Source: "s"}, all, ""); len(got) > 4<<10 {
		t.Errorf("it has %d bytes", len(got))
	}
}
