package namel3ss

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"toolpost/config"
	"toolpost/host/offlimits"
	"toolpost/host/process"
	"toolpost/host/sandbox"
	"toolpost/host/secret"
	"toolpost/host/walls"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// needBwrap skips a test where bwrap cannot do its work, except where everything must be tested.
func needBwrap(t *testing.T) {
	t.Helper()
	if out, err := exec.Command(bwrapName, "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "true").CombinedOutput(); err != nil {
		missing(t, "bwrap does not run here: %v: %s", err, out)
	}
	group, err := sandbox.Limit(sandbox.Limits{CPU: 1})
	if err != nil {
		missing(t, "no limits can be held here: %v", err)
	}
	group.Remove()
}

// bwrapPython is found once: it takes a while.
var bwrapPython = sync.OnceValues(func() (string, error) {
	p, err := findPython(context.Background(), "/", "", process.Environment(nil, nil))
	return p.path, err
})

// rooted is the tool of testdata/bwrap with this machine's own root.
func rooted(t *testing.T, dir string, o Options) *Runner {
	t.Helper()
	code, err := os.ReadFile("testdata/bwrap/tool.py")
	if err != nil {
		t.Fatal(err)
	}
	o.Tool, o.Runner, o.Image, o.Container.Runtime = "t", runnerContainer, "/", bwrapName
	python, err := bwrapPython()
	if err != nil {
		t.Fatal(err)
	}
	o.Command = []string{python, "-c", string(code)}
	if o.Timeout == 0 {
		o.Timeout = config.Duration(time.Minute)
	}
	return open(t, dir, o)
}

// A machineAround is what the host has and no tool should get at.
type machineAround struct {
	dir     string // of the config; it is in no folder that is taken away as a whole
	request string
}

const bwrapCanary = "canary-3f1c77"

func around(t *testing.T) machineAround {
	t.Helper()
	t.Setenv("BWRAP_TEST_CANARY", bwrapCanary)
	dir, err := os.MkdirTemp("/var/tmp", "toolpost")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for name, text := range map[string]string{".toolpost/token": "t", "key": "k", "other": "o"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	doc, _ := json.Marshal(map[string]any{
		"do": "look", "canary": bwrapCanary, "pid": os.Getpid(),
		"port": listen(t, "tcp", "127.0.0.1:0").Addr().(*net.TCPAddr).Port, "socket": listen(t, "unix", filepath.Join(dir, "s")).Addr().String(),
		"change": []string{
			filepath.Join(dir, "other"), filepath.Join(dir, "new"), "/dev/file", "/dev/shm/file", "/tmp/file", "/proc/sys/kernel/core_pattern", "/proc/self/oom_score_adj",
		},
		"read": []string{filepath.Join(dir, "other"), filepath.Join(dir, "key"), filepath.Join(dir, ".toolpost/token")},
	})
	return machineAround{dir, string(doc)}
}

// listen takes connections and does nothing with them.
func listen(t *testing.T, network, address string) net.Listener {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // the kernel takes what is not accepted
	return l
}

// A view is what the tool found.
type view struct {
	Canary, Parent                       bool
	Greeting, Secret                     string
	Kill, Network, Unix, Unshare, Folder string
	Processes, Descriptors               int
	Changed, Readable                    []string
}

func look(t *testing.T, r *Runner, request string) (v view) {
	t.Helper()
	if err := json.Unmarshal(must(t, r, "t", request).Output, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// contract(namel3ss): container runner: `container_runtime`, `image`, `command`
func TestBwrapHasNothingOfThisMachine(t *testing.T) {
	needBwrap(t)
	tooltest.NoLeaks(t)
	m := around(t)
	grant := secret.Grant{Secrets: []string{"SECRET"}, Vault: vault{"SECRET": "value-of-secret"}}
	kept := walls.Options{OffLimits: offlimits.NewBook(&offlimits.List{Absent: []string{filepath.Join(m.dir, ".toolpost") + "/", filepath.Join(m.dir, "key")}})}
	r := rooted(t, m.dir, Options{Env: map[string]string{"GREETING": "hello\nthere"}, Grant: grant, Walls: kept})
	want := view{
		Greeting: "hello\nthere", Secret: "value-of-secret", Kill: "No such process", Network: "Connection refused", Unix: "Permission denied",
		Unshare: "Operation not permitted", Folder: "/", Processes: 2, Descriptors: 3,
		Changed: []string{"/dev/shm/file", "/tmp/file"}, Readable: []string{filepath.Join(m.dir, "other")},
	}
	if d := cmp.Diff(want, look(t, r, m.request)); d != "" {
		t.Error(d)
	}
	guarded := rooted(t, m.dir, Options{
		Env: map[string]string{"GREETING": "hello"}, Grant: grant, Walls: kept, Container: ContainerOptions{Network: networkHost},
		Guarantees: tool.Guarantees{NoNetwork: true, NoFilesystemWrite: true, NoEnvWrite: true, SecretsAllowed: []string{}},
	})
	want.Greeting, want.Secret, want.Network, want.Changed = "", "", "Permission denied", []string{}
	if d := cmp.Diff(want, look(t, guarded, m.request)); d != "" {
		t.Errorf("with guarantees: %s", d)
	}
	res := must(t, r, "t", `{"do":"greet","name":"Ada"}`)
	if string(res.Output) != `"hello Ada"` {
		t.Errorf("got %s", res.Output)
	}
	for field, want := range map[string]any{"runner": "container", "container_runtime": "bwrap", "image": "/", "container_enforcement": "verified"} {
		if res.Trace.Details[field] != want {
			t.Errorf("trace field %s: %v", field, res.Trace.Details[field])
		}
	}
}

func TestBwrapHasTheNetworkOfTheHostWhereItIsSaid(t *testing.T) {
	needBwrap(t)
	m := around(t)
	v := look(t, rooted(t, m.dir, Options{Container: ContainerOptions{Network: networkHost}}), m.request)
	if v.Network != "done" || v.Unix != "Permission denied" {
		t.Errorf("got %+v", v)
	}
}

func TestBwrapRefusesGuaranteesThatItCannotHold(t *testing.T) {
	needBwrap(t)
	for _, name := range []string{"no_subprocess", "no_filesystem_read", "no_env_read"} {
		_, err := call(rooted(t, t.TempDir(), Options{Guarantees: only(name)}), "t", `{"do":"greet","name":"Ada"}`, tool.Discard)
		if e := tool.AsError(err); e == nil || e.Reason != sandbox.CoverageMissing || !strings.Contains(e.Message, name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestBwrapHoldsLimits(t *testing.T) {
	needBwrap(t)
	tooltest.NoLeaks(t)
	for do, want := range map[string]string{
		"hog": "reached its limit of memory (64 MiB)", "bomb": "reached its limit of processes (20)", "fill": "No space left on device",
	} {
		r := rooted(t, t.TempDir(), Options{Container: ContainerOptions{Memory: "64m", PIDs: 20}})
		if do == "fill" {
			if !r.tools["t"].way.(*bwrapTool).sized {
				continue // then the limit of memory ends it
			}
			r = rooted(t, t.TempDir(), Options{})
		}
		_, err := call(r, "t", `{"do":"`+do+`"}`, tool.Discard)
		if tool.CodeOf(err) != tool.CodeCrash || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", do, err)
		}
	}
	noGroups(t)
}

// noGroups waits until no cgroup of this program is left.
func noGroups(t *testing.T) {
	t.Helper()
	own := fmt.Sprintf("toolpost-%d-", os.Getpid())
	var left []string
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		sandbox.Leave()
		left = nil
		_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), own) {
				left = append(left, path)
			}
			return nil
		})
		if len(left) == 0 {
			return
		}
	}
	t.Errorf("cgroups are left: %q", left)
}

func TestBwrapIsEndedWithAllThatItStarted(t *testing.T) {
	needBwrap(t)
	tooltest.NoLeaks(t)
	const value = "value-of-the-variable"
	r := rooted(t, t.TempDir(), Options{Env: map[string]string{"GREETING": value}})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var events tooltest.Collect
	shown := make(chan []string, 1)
	go func() {
		_ = events.WaitLog(ctx, "hanging")
		shown <- showing(value)
		cancel()
	}()
	if _, err := r.Invoke(ctx, &tool.Call{Tool: "t", Args: []byte(`{"do":"hang"}`)}, &events); tool.CodeOf(err) != tool.CodeCancelled {
		t.Errorf("got %v", err)
	}
	if lines := <-shown; len(lines) > 0 {
		t.Errorf("others can see the variable: %q", lines)
	}
	soon := rooted(t, t.TempDir(), Options{Timeout: config.Duration(time.Second)})
	if _, err := call(soon, "t", `{"do":"hang"}`, tool.Discard); tool.CodeOf(err) != tool.CodeTimeout {
		t.Errorf("got %v", err)
	}
	noGroups(t)
}

// showing lists the command lines below this program that have a text in them, and those of the bwraps that have it in their
// environment: bwrap is outside, and must not be told what to load.
func showing(text string) []string {
	var lines []string
	for _, pid := range tooltest.Descendants(os.Getpid()) {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		seen := line
		if name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); string(name) == bwrapName+"\n" {
			environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
			seen = append(slices.Clone(line), environ...)
		}
		if bytes.Contains(seen, []byte(text)) {
			lines = append(lines, string(line))
		}
	}
	return lines
}

func TestBwrapThatCannotRunSaysWhy(t *testing.T) {
	needBwrap(t)
	o := Options{Tool: "t", Runner: runnerContainer, Image: "/", Command: []string{"no-such-program"}, Container: ContainerOptions{Runtime: bwrapName}}
	_, err := call(open(t, t.TempDir(), o), "t", `{}`, tool.Discard)
	if tool.CodeOf(err) != tool.CodeUnavailable || !strings.Contains(err.Error(), "bwrap could not start the image /: bwrap: execvp no-such-program: No such file or directory") {
		t.Errorf("got %v", err)
	}
	o.Command, o.Container.Args = []string{"true"}, []string{"--no-such-option"}
	_, err = call(open(t, t.TempDir(), o), "t", `{}`, tool.Discard)
	if tool.CodeOf(err) != tool.CodeUnavailable || !strings.Contains(err.Error(), "--no-such-option") {
		t.Errorf("got %v", err)
	}
	o.Container.Args, o.Env = nil, map[string]string{"A": "1\x00--bind\x00/\x00/"}
	if _, err = call(open(t, t.TempDir(), o), "t", `{}`, tool.Discard); tool.CodeOf(err) != tool.CodeInvalidInput || !strings.Contains(err.Error(), "NUL") {
		t.Errorf("got %v", err)
	}
}

func TestBwrapImageIsAFolderThatTheUserChose(t *testing.T) {
	needBwrap(t)
	app, outside := t.TempDir(), t.TempDir()
	for _, folder := range []string{"root/dev", "root/proc", "root/tmp", "bare"} {
		for _, dir := range []string{app, outside} {
			if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Symlink(outside, filepath.Join(app, "link")); err != nil {
		t.Fatal(err)
	}
	run := []string{"/tool"}
	for name, c := range map[string]struct {
		image   string // of the config
		binding string
		command []string
		want    string
	}{
		"the user's":            {outside + "/root", "", run, ""},
		"the app's":             {"", app + "/root", run, ""},
		"outside of the app":    {"", outside + "/root", run, "lies outside of the app"},
		"a link out of the app": {"", app + "/link/root", run, "lies outside of the app"},
		"this machine's, by it": {"", "/", run, "lies outside of the app"},
		"the name of an image":  {"alpine:3", "", run, "no absolute path"},
		"a folder that is not":  {outside + "/none", "", run, "no such file"},
		"without the folders":   {outside + "/bare", "", run, "has no folder dev"},
		"a file":                {"/etc/passwd", "", run, "has no folder dev"},
		"nothing to run":        {outside + "/root", "", nil, "set command"},
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{App: app, Tool: "t", Runner: runnerContainer, Image: c.image, Command: c.command, Container: ContainerOptions{Runtime: bwrapName}}
			binding := "tools:\n  t: {kind: python, runner: container, image: \"" + c.binding + "\"}\n"
			if err := os.MkdirAll(filepath.Join(app, ".namel3ss"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(app, ".namel3ss/tools.yaml"), []byte(binding), 0o644); err != nil {
				t.Fatal(err)
			}
			err := open(t, app, o).Unavailable("t")
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// An unpacked image: there is nothing but what is in the folder.
func TestBwrapRunsAnUnpackedImage(t *testing.T) {
	needBwrap(t)
	root := t.TempDir()
	for _, folder := range []string{"dev", "proc", "tmp"} {
		if err := os.Mkdir(filepath.Join(root, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.Command("go", "build", "-o", filepath.Join(root, "tool"), "testdata/container/main.go")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	o := Options{Tool: "t", Runner: runnerContainer, Image: root, Command: []string{"/tool", "a", "b c"}, Container: ContainerOptions{Runtime: bwrapName}}
	out := string(must(t, open(t, t.TempDir(), o), "t", `{"do":"look"}`).Output)
	for _, part := range []string{`"host":false`, `"args":["a","b c"]`, `"tmp":"written"`, `read-only file system`, `CapBnd:\t0000000000000000`, `NoNewPrivs:\t1`} {
		if !strings.Contains(out, part) {
			t.Errorf("%s is not in %s", part, out)
		}
	}
}

// What needs no bwrap: its command line, and what is refused before there is one.
func TestBwrapArguments(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"kept/token", "key"} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	book := offlimits.NewBook(&offlimits.List{Absent: []string{filepath.Join(root, "kept"), filepath.Join(root, "key"), filepath.Join(root, "none"), "/etc/passwd"}})
	c := &bwrapTool{sized: true, binds: true, containerTool: &containerTool{
		facts: &facts{}, book: book, engine: &engine{"/usr/bin/bwrap", "bwrap"}, image: root, command: []string{"run", "me"},
		ContainerOptions: ContainerOptions{Network: "host", Args: []string{"--hostname", "box"}},
	}}
	begin := "/usr/bin/bwrap --unshare-all --die-with-parent --new-session --cap-drop ALL --ro-bind-fd 7 / --proc /proc --dev /dev --chdir / --info-fd 3 --block-fd 4 --seccomp 5 --args 6 "
	want := begin + "--share-net --tmpfs /kept --remount-ro /kept --ro-bind /dev/null /key --ro-bind /dev/null /none --size 67108864 --tmpfs /tmp " +
		"--size 67108864 --tmpfs /dev/shm --remount-ro /dev --remount-ro /proc --hostname box -- run me"
	if d := cmp.Diff(want, strings.Join(c.arguments(tool.Guarantees{}), " ")); d != "" {
		t.Error(d)
	}
	c.sized, c.binds, c.book, c.Args = false, false, nil, nil
	want = strings.Replace(begin, "--ro-bind-fd 7", "--ro-bind /proc/self/fd/7", 1) + "--tmpfs /tmp --remount-ro /tmp --remount-ro /dev --remount-ro /proc -- run me"
	if d := cmp.Diff(want, strings.Join(c.arguments(tool.Guarantees{NoNetwork: true, NoFilesystemWrite: true}), " ")); d != "" {
		t.Error(d)
	}
	for want, o := range map[string]ContainerOptions{
		"networks none and host":    {Runtime: "bwrap", Network: "mine"},
		"oci_runtime is for podman": {Runtime: "/usr/bin/bwrap", OCI: "runsc"},
		`such as 512m, not "lots"`:  {Runtime: "bwrap", Memory: "lots"},
		`such as 512m, not "0m"`:    {Runtime: "bwrap", Memory: "0m"},
		`such as 512m, not "1t"`:    {Runtime: "bwrap", Memory: "1t"},
		`not "9999999999999g"`:      {Runtime: "bwrap", Memory: "9999999999999g"},
	} {
		if err := o.check(); tool.CodeOf(err) != tool.CodeInvalidInput || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	for text, want := range map[string]int64{"7": 7, "7b": 7, "2K": 2 << 10, "512m": 512 << 20, "3g": 3 << 30} {
		if n, err := memoryOf(text); n != want || err != nil {
			t.Errorf("%s: %d, %v", text, n, err)
		}
	}
}
