package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"toolpost/internal/kit"
	"toolpost/tool"
)

// require skips a test if a program is missing; in CI the test fails.
func require(t *testing.T, programs ...string) {
	t.Helper()
	for _, program := range programs {
		if _, err := exec.LookPath(program); err == nil {
			continue
		}
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s is missing; `make setup` installs it", program)
		}
		t.Skipf("%s is missing; `make setup` installs it", program)
	}
}

// wheel writes a package in the form of PyPI.
func wheel(t *testing.T, name, version, about string, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	info := strings.ReplaceAll(name, "-", "_") + "-" + version + ".dist-info/"
	files[info+"METADATA"] = fmt.Sprintf("Metadata-Version: 2.1\nName: %s\nVersion: %s\n%s", name, version, about)
	files[info+"WHEEL"] = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
	record := ""
	for path, text := range files {
		kit.Must(kit.Must(z.Create(path))(t).Write([]byte(text)))(t)
		record += path + ",,\n"
	}
	kit.Must(kit.Must(z.Create(info + "RECORD"))(t).Write([]byte(record)))(t)
	kit.OK(t, z.Close())
	return b.Bytes()
}

// newIndex serves wheels by file name as PyPI does, and returns its address.
func newIndex(t *testing.T, wheels map[string][]byte) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if file, ok := wheels[strings.TrimPrefix(q.URL.Path, "/files/")]; ok {
			_, _ = w.Write(file)
			return
		}
		name := strings.ReplaceAll(strings.Trim(strings.TrimPrefix(q.URL.Path, "/simple"), "/"), "-", "_")
		page := ""
		for file, data := range wheels {
			if strings.HasPrefix(file, name+"-") {
				page += fmt.Sprintf(`<a href="/files/%s#sha256=%x">%[1]s</a>`, file, sha256.Sum256(data))
			}
		}
		if page == "" {
			http.NotFound(w, q)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, "<!DOCTYPE html><html><body>%s</body></html>", page)
	}))
	t.Cleanup(s.Close)
	return s
}

// pythonServer is an MCP server with one dependency. It reports what its walls let it do.
const pythonServer = `import errno, json, os, socket, sys
def attempt(f):
    try:
        return str(f() or "yes")
    except OSError as e:
        return errno.errorcode.get(e.errno, str(e))
def network():
    socket.create_connection(("127.0.0.1", 1), 1)
def main():
    import dep
    tools = {"own": lambda: open(__file__).read() and "yes", "dep": lambda: dep.word, "args": lambda: ",".join(sys.argv[1:]),
             "home": lambda: open(os.environ["SEEN"]).read(), "state": lambda: open("../../toolpost.db").read(),
             "write": lambda: open(os.path.join(os.path.dirname(__file__), "x"), "w").close(), "network": network}
    for line in sys.stdin:
        m = json.loads(line)
        if "id" not in m:
            continue
        answer = {"error": {"code": -32601, "message": "no such method"}}
        if m["method"] == "initialize":
            answer = {"result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "p", "version": "1"}}}
        elif m["method"] == "tools/list":
            answer = {"result": {"tools": [{"name": n, "inputSchema": {"type": "object"}} for n in tools]}}
        elif m["method"] == "tools/call":
            text = attempt(tools[m["params"]["name"]])
            answer = {"result": {"content": [{"type": "text", "text": text}], "structuredContent": {"result": text}}}
        print(json.dumps({"jsonrpc": "2.0", "id": m["id"], **answer}), flush=True)
`

// standIn is written from uv's documentation: the two commands that are used here, with the pip of this machine.
const standIn = `#!/bin/sh
set -e
case "$1 $2" in
"python find") exec python3 -c 'import sys; print(sys.executable)' ;;
"pip install") shift 2; [ "$1" = --compile-bytecode ] && [ "$2" = --python ]; python=$3; shift 3
  exec "$python" -m pip install "$@" ;;
esac
echo "error: there is no subcommand $1 $2" >&2
exit 2
`

// A package of PyPI is installed once, at the version of that day, and runs behind walls without the user's home.
func TestAServerFromPyPIIsInstalledOnceAndRunsBehindWalls(t *testing.T) {
	require(t, "python3")
	if out, err := exec.Command("python3", "-m", "pip", "--version").CombinedOutput(); err != nil && os.Getenv("CI") != "true" {
		t.Skipf("python3 has no pip: %s", out)
	}
	script := "[console_scripts]\nmcp-server-demo = mcp_server_demo:main\nother = mcp_server_demo:nothing\n"
	demo := func(version string) []byte {
		return wheel(t, "mcp-server-demo", version, "Requires-Dist: dep (>=1)\n", map[string]string{
			"mcp_server_demo/__init__.py": pythonServer, "mcp_server_demo-" + version + ".dist-info/entry_points.txt": script,
		})
	}
	wheels := map[string][]byte{
		"mcp_server_demo-1.2.3-py3-none-any.whl": demo("1.2.3"), "mcp_server_demo-1.3.0-py3-none-any.whl": demo("1.3.0"),
		"dep-1.0-py3-none-any.whl":   wheel(t, "dep", "1.0", "", map[string]string{"dep.py": "word = 'fetched'\n"}),
		"plain-1.0-py3-none-any.whl": wheel(t, "plain", "1.0", "", map[string]string{"plain.py": ""}),
		"source-1.0.tar.gz":          []byte("not a wheel"),
	}
	for _, installer := range []string{"pip", "uv"} {
		t.Run(installer, func(t *testing.T) {
			index := newIndex(t, wheels)
			n := newNewcomer(t)
			n.env = append(n.env, "PIP_INDEX_URL="+index.URL+"/simple", "PIP_RETRIES=0")
			if installer == "uv" {
				bin := t.TempDir()
				kit.OK(t, os.WriteFile(filepath.Join(bin, "uv"), []byte(standIn), 0o700))
				n.env = append(n.env, "PATH="+bin+":"+os.Getenv("PATH"))
			}
			secret := filepath.Join(n.home, "secret")
			kit.Write(t, secret, "private")
			n.toolpost("init")
			before := kit.Read(t, filepath.Join(n.dir, "toolpost.yaml"))
			told := n.toolpost("mcp", "add", "--env", "SEEN="+secret, "--", "uvx", "mcp-server-demo@1.2.3", "a", "b")
			kit.Contains(t, told, "added demo")
			text := kit.Read(t, filepath.Join(n.dir, "toolpost.yaml"))
			kit.Contains(t, text, "- name: demo # from pypi: mcp-server-demo 1.2.3\n")
			kit.Contains(t, text, "dir: .toolpost/pypi/demo\n")
			index.Close() // later starts fetch nothing
			for name, want := range map[string]string{
				"own": "yes", "dep": "fetched", "args": "a,b", "home": "ENOENT", "state": "ENOENT", "write": "EROFS", "network": "EACCES ENETUNREACH",
			} {
				got := n.toolpost("call", "demo."+name)
				if !strings.Contains(got, strings.Fields(want)[0]) && !strings.Contains(got, strings.Fields(want)[len(strings.Fields(want))-1]) {
					t.Errorf("%s: %s", name, got)
				}
			}
			n.toolpost("mcp", "remove", "demo")
			kit.Equal(t, kit.Read(t, filepath.Join(n.dir, "toolpost.yaml")), before)
			if left, _ := os.ReadDir(filepath.Join(n.dir, ".toolpost/pypi")); len(left) > 0 {
				t.Errorf("%v is left", left)
			}
		})
	}
	index := newIndex(t, wheels)
	n := newNewcomer(t)
	n.env = append(n.env, "PIP_INDEX_URL="+index.URL+"/simple", "PIP_RETRIES=0")
	n.toolpost("init")
	n.toolpost("mcp", "add", "--", "uvx", "--from", "mcp-server-demo", "mcp-server-demo") // the latest version
	kit.Contains(t, kit.Read(t, filepath.Join(n.dir, "toolpost.yaml")), "# from pypi: mcp-server-demo 1.3.0\n")
	for words, want := range map[string]string{
		"uvx --from mcp-server-demo nosuch":  "has the programs mcp-server-demo, other; name one of them: `uvx --from mcp-server-demo PROGRAM`",
		"uvx plain":                          "has no program to start",
		"uvx nosuch":                         "pip could not install nosuch",
		"uvx source":                         "pip could not install source", // building it would run its code
		"uvx ./source-1.0.tar.gz":            "would be built here, which runs its code without walls; --scripts allows that",
		"pipx run git+https://example.com/x": "would be built here",
		"uvx --python 3.12 plain":            "uvx --python is not understood here; write `uvx PACKAGE ARGUMENTS`",
		"uv tool run":                        "uv tool run has no package to run",
	} {
		kit.Contains(t, n.try(append([]string{"mcp", "add", "--name", "x", "--"}, strings.Fields(words)...)...), want)
	}
	n.env = append(n.env, "PIP_INDEX_URL=http://127.0.0.1:1/simple", "PIP_RETRIES=1")
	kit.Contains(t, n.try("mcp", "add", "--", "uvx", "mcp-server-far"), "its index cannot be reached: check the network")
	if left, _ := os.ReadDir(filepath.Join(n.dir, ".toolpost/pypi")); len(left) != 1 {
		t.Errorf("%v is left", left)
	}
}

// boxServer is the program of a container image: an MCP server whose tool reports what it has of the machine.
const boxServer = `package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
)

func main() {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var m struct {
			ID     json.RawMessage
			Method string
		}
		if json.Unmarshal(lines.Bytes(), &m) != nil || m.ID == nil {
			continue
		}
		_, seen := os.Stat(os.Getenv("SEEN"))
		interfaces, _ := net.Interfaces()
		text := fmt.Sprintf("args=%s key=%d seen=%v write=%v interfaces=%d", strings.Join(os.Args[1:], ","), len(os.Getenv("BOX_KEY")),
			seen == nil, os.WriteFile("/x", nil, 0o600) == nil, len(interfaces))
		result := map[string]any{"content": []any{map[string]any{"type": "text", "text": text}}}
		if m.Method == "initialize" {
			result = map[string]any{"protocolVersion": "2025-11-25", "capabilities": map[string]any{"tools": map[string]any{}},
				"serverInfo": map[string]any{"name": "box", "version": "1"}}
		} else if m.Method == "tools/list" {
			result = map[string]any{"tools": []any{map[string]any{"name": "look", "inputSchema": map[string]any{"type": "object"}}}}
		}
		b, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": m.ID, "result": result})
		fmt.Println(string(b))
	}
}
`

// boxImage makes an image of boxServer.
func boxImage(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	kit.Write(t, dir+"/main.go", boxServer)
	if os.Getenv("CONTAINERS_CONF") == "" { // podman must run if limits cannot be raised
		kit.Write(t, dir+"/containers.conf", "[containers]\ndefault_ulimits=[\"nofile=1024:1024\",\"nproc=512:512\"]\n[engine]\nruntime=\"runc\"\n")
		t.Setenv("CONTAINERS_CONF", dir+"/containers.conf")
	}
	name := "localhost/mcp-server-box-" + strings.ToLower(tool.NewID()) + ":latest"
	for _, argv := range [][]string{
		{"go", "build", "-buildvcs=false", "-o", dir + "/server", dir + "/main.go"},
		{"tar", "-C", dir, "-cf", dir + "/image.tar", "server"},
		{"podman", "import", "--change", `ENTRYPOINT ["/server"]`, dir + "/image.tar", name},
	} {
		cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil && (argv[0] != "podman" || os.Getenv("CI") == "true") {
			t.Fatalf("%v: %v: %s", argv, err, out)
		} else if err != nil {
			t.Skipf("podman does not work here: %s", out)
		}
	}
	t.Cleanup(func() { _ = exec.Command("podman", "rmi", "-f", name).Run() }) // a leftover test image is not a failure
	return name
}

// A `podman run` becomes a source with a container: its image pinned, with nothing of this machine.
func TestAServerInAContainerIsPinnedAndHasNothingOfThisMachine(t *testing.T) {
	require(t, "podman", "runc")
	image := boxImage(t)
	n := newNewcomer(t)
	n.dir = filepath.Join(n.home, "project")
	kit.OK(t, os.Mkdir(n.dir, 0o700))
	n.env = append(n.env, "CONTAINERS_CONF="+os.Getenv("CONTAINERS_CONF"), "BOX_KEY=hunter2-hunter2")
	secret := filepath.Join(n.home, "secret")
	kit.Write(t, secret, "private")
	n.toolpost("init")
	before := kit.Read(t, filepath.Join(n.dir, "toolpost.yaml"))
	told := n.toolpost("mcp", "add", "--name", "box", "--", "podman", "run", "-i", "--rm", "--network=none", "-e", "BOX_KEY", "-e", "SEEN="+secret, image, "a", "b")
	kit.Contains(t, told, "added box")
	kit.Contains(t, told, "container: it has nothing of this machine and no network")
	text := kit.Read(t, filepath.Join(n.dir, "toolpost.yaml"))
	kit.Contains(t, text, "- name: box # from "+image+"\n")
	id := regexp.MustCompile(`image: "?((?:sha256:)?[0-9a-f]{64})\b`).FindStringSubmatch(text)
	if id == nil || strings.Contains(text, "hunter2") {
		t.Fatal(text)
	}
	t.Cleanup(func() { _ = exec.Command("podman", "rmi", "-f", id[1]).Run() })
	n.env = n.env[:len(n.env)-1]                                                         // the secret is kept
	if out, err := exec.Command("podman", "untag", image).CombinedOutput(); err != nil { // the name means nothing any more
		t.Fatalf("%v: %s", err, out)
	}
	kit.Contains(t, n.toolpost("call", "box.look"), "args=a,b key=15 seen=false write=false interfaces=1")
	n.toolpost("mcp", "remove", "box")
	kit.Equal(t, kit.Read(t, filepath.Join(n.dir, "toolpost.yaml")), before)
	for words, want := range map[string]string{
		"podman run --privileged x":                      "podman run --privileged is not supported",
		"docker run --network host x":                    "docker run --network is not supported",
		"docker run -v " + n.home + ":/home x":           "would show the server your home folder; mount the folder that it needs",
		"docker run -v ..:/home x":                       "would show the server your home folder",
		"docker run --mount type=bind,src=/,target=/r x": "would show the server your home folder",
		"docker run -e API_TOKEN=x x":                    "export API_TOKEN in your shell and write -e API_TOKEN alone",
		"docker run -i --rm":                             "docker run has no image",
		"docker compose up":                              "docker may fetch what it runs",
		"podman run localhost/toolpost-none-such":        "podman pull: ",
	} {
		kit.Contains(t, n.try(append([]string{"mcp", "add", "--name", "y", "--"}, strings.Fields(words)...)...), want)
	}
	kit.Contains(t, n.try("mcp", "add", "--network", "example.com", "--", "podman", "run", "x"), "write --network all, or leave it out")
}
