package namel3ss

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"toolpost/config"
	"toolpost/config/offlimits"
	"toolpost/host/container"
	"toolpost/host/process"
	"toolpost/host/sandbox"
	"toolpost/host/secret"
	"toolpost/host/spawn"
	"toolpost/host/walls"
	"toolpost/internal/kit"
	"toolpost/protocol/namel3ss/appfile"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// needRooms skips a test if no room with these limits can be built, unless everything must be tested.
func needRooms(t *testing.T) {
	t.Helper()
	o := Options{Tool: "t", Runner: appfile.RunnerContainer, Image: "/", Command: []string{"true"}, Options: spawn.Options{Container: container.Options{Runtime: "sandbox"}}}
	_, err := call(open(t, t.TempDir(), o), "t", `{}`, tool.Discard)
	if e := tool.AsError(err); e.Reason == sandbox.CoverageMissing {
		missing(t, "no rooms with limits can be built here: %v", err)
	}
}

// folderPython is found once: it takes a while.
var folderPython = sync.OnceValues(func() (string, error) {
	p, err := findPython(context.Background(), "/", "", process.Environment(nil, nil))
	return p.path, err
})

// rooted opens the tool of testdata/folder with this machine's own root.
func rooted(t *testing.T, dir string, o Options) *Runner {
	t.Helper()
	code := kit.Must(os.ReadFile("testdata/folder/tool.py"))(t)
	o.Tool, o.Runner, o.Image, o.Container.Runtime = "t", appfile.RunnerContainer, "/", "sandbox"
	python := kit.Must(folderPython())(t)
	o.Command = []string{python, "-c", string(code)}
	if o.Timeout == 0 {
		o.Timeout = config.Duration(time.Minute)
	}
	return open(t, dir, o)
}

// A machineAround is the part of the host that no tool should reach.
type machineAround struct {
	dir     string // of the config; it is in no folder that is hidden as a whole
	request string
}

const folderCanary = "canary-3f1c77"

func around(t *testing.T) machineAround {
	t.Helper()
	t.Setenv("FOLDER_TEST_CANARY", folderCanary)
	dir := kit.Must(os.MkdirTemp("/var/tmp", "toolpost"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for name, text := range map[string]string{".toolpost/token": "t", "key": "k", "other": "o"} {
		path := filepath.Join(dir, name)
		kit.Write(t, path, text)
	}
	doc, _ := json.Marshal(map[string]any{
		"do": "look", "canary": folderCanary, "pid": os.Getpid(),
		"port": listen(t, "tcp", "127.0.0.1:0").Addr().(*net.TCPAddr).Port, "socket": listen(t, "unix", filepath.Join(dir, "s")).Addr().String(),
		"change": []string{
			filepath.Join(dir, "other"), filepath.Join(dir, "new"), "/dev/file", "/dev/shm/file", "/tmp/file", "/proc/sys/kernel/core_pattern", "/proc/self/oom_score_adj",
		},
		"read": []string{filepath.Join(dir, "other"), filepath.Join(dir, "key"), filepath.Join(dir, ".toolpost/token")},
	})
	return machineAround{dir, string(doc)}
}

// listen accepts connections and does nothing with them.
func listen(t *testing.T, network, address string) net.Listener {
	t.Helper()
	l := kit.Must(net.Listen(network, address))(t)
	t.Cleanup(func() { _ = l.Close() }) // the kernel keeps unaccepted connections
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
	kit.OK(t, json.Unmarshal(must(t, r, "t", request).Output, &v))
	return v
}

// contract(namel3ss): container runner: `container_runtime`, `image`, `command`
func TestAFolderHasNothingOfThisMachine(t *testing.T) {
	needRooms(t)
	tooltest.NoLeaks(t)
	m := around(t)
	grant := secret.Grant{Secrets: []string{"SECRET"}, Vault: tooltest.Vault{"SECRET": "value-of-secret"}}
	kept := walls.Options{OffLimits: offlimits.NewChecker(&offlimits.List{Absent: []string{filepath.Join(m.dir, ".toolpost") + "/", filepath.Join(m.dir, "key")}})}
	r := rooted(t, m.dir, Options{Options: spawn.Options{Env: map[string]string{"GREETING": "hello\nthere"}, Grant: grant, Walls: kept}})
	want := view{
		Greeting: "hello\nthere", Secret: "value-of-secret", Kill: "No such process", Network: "Connection refused", Unix: "Permission denied",
		Unshare: "Operation not permitted", Folder: "/", Processes: 2, Descriptors: 3,
		Changed: []string{"/dev/shm/file", "/tmp/file"}, Readable: []string{filepath.Join(m.dir, "other")},
	}
	kit.Equal(t, cmp.Diff(want, look(t, r, m.request)), "")
	guarded := rooted(t, m.dir, Options{
		Options: spawn.Options{Env: map[string]string{"GREETING": "hello"}, Grant: grant, Walls: kept, Container: container.Options{Network: "host"}, Guarantees: tool.Guarantees{NoNetwork: true, NoFilesystemWrite: true, NoEnvWrite: true, SecretsAllowed: []string{}}},
	})
	want.Greeting, want.Secret, want.Network, want.Changed = "", "", "Permission denied", []string{}
	kit.Equal(t, cmp.Diff(want, look(t, guarded, m.request)), "", "with guarantees")
	res := must(t, r, "t", `{"do":"greet","name":"Ada"}`)
	kit.Equal(t, string(res.Output), `"hello Ada"`)
	for field, want := range map[string]any{"runner": "container", "container_runtime": "sandbox", "image": "/", "container_enforcement": "verified"} {
		kit.Equal(t, res.Trace.Details[field], want, "trace field %s", field)
	}
}

func TestFolderHasHostNetworkIfConfigured(t *testing.T) {
	needRooms(t)
	m := around(t)
	v := look(t, rooted(t, m.dir, Options{Options: spawn.Options{Container: container.Options{Network: "host"}}}), m.request)
	if v.Network != "done" || v.Unix != "Permission denied" {
		t.Errorf("got %+v", v)
	}
}

func TestAFolderRefusesGuaranteesThatItCannotHold(t *testing.T) {
	needRooms(t)
	for _, name := range []string{"no_subprocess", "no_filesystem_read", "no_env_read"} {
		_, err := call(rooted(t, t.TempDir(), Options{Options: spawn.Options{Guarantees: only(name)}}), "t", `{"do":"greet","name":"Ada"}`, tool.Discard)
		if e := tool.AsError(err); e == nil || e.Reason != sandbox.CoverageMissing || !strings.Contains(e.Message, name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAFolderHoldsLimits(t *testing.T) {
	needRooms(t)
	tooltest.NoLeaks(t)
	for do, want := range map[string]string{
		"hog": "reached its limit of memory (64 MiB)", "bomb": "reached its limit of processes (20)", "fill": "No space left on device",
	} {
		r := rooted(t, t.TempDir(), Options{Options: spawn.Options{Container: container.Options{Memory: "64m", PIDs: 20}}})
		if do == "fill" {
			r = rooted(t, t.TempDir(), Options{})
		}
		_, err := call(r, "t", `{"do":"`+do+`"}`, tool.Discard)
		kit.Refused(t, err, tool.CodeCrash, want, do)
	}
	noGroups(t)
}

// noGroups waits until no cgroup of this program is left.
func noGroups(t *testing.T) {
	t.Helper()
	own := fmt.Sprintf("toolpost-%d-", os.Getpid())
	kit.Until(t, func() error {
		sandbox.Leave()
		return filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), own) {
				return fmt.Errorf("the cgroup %s is left", path)
			}
			return nil
		})
	})
}

func TestAFolderIsEndedWithAllThatItStarted(t *testing.T) {
	needRooms(t)
	tooltest.NoLeaks(t)
	const value = "value-of-the-variable"
	r := rooted(t, t.TempDir(), Options{Options: spawn.Options{Env: map[string]string{"GREETING": value}}})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var events tooltest.Collect
	shown := make(chan []string, 1)
	go func() {
		_ = events.WaitLog(ctx, "hanging")
		shown <- showing(value)
		cancel()
	}()
	kit.Refused(t, kit.Err(r.Invoke(ctx, &tool.Call{Tool: "t", Args: []byte(`{"do":"hang"}`)}, &events)), tool.CodeCancelled, "")
	if lines := <-shown; len(lines) > 0 {
		t.Errorf("others can see the variable: %q", lines)
	}
	soon := rooted(t, t.TempDir(), Options{Options: spawn.Options{Timeout: config.Duration(time.Second)}})
	kit.Refused(t, kit.Err(call(soon, "t", `{"do":"hang"}`, tool.Discard)), tool.CodeTimeout, "")
	noGroups(t)
}

// showing lists the command lines below this program that contain text.
func showing(text string) []string {
	var lines []string
	for _, pid := range tooltest.Descendants(os.Getpid()) {
		if line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); bytes.Contains(line, []byte(text)) {
			lines = append(lines, string(line))
		}
	}
	return lines
}

func TestAFolderWithoutTheProgramSaysSo(t *testing.T) {
	needRooms(t)
	o := Options{Tool: "t", Runner: appfile.RunnerContainer, Image: "/", Command: []string{"no-such-program"}, Options: spawn.Options{Container: container.Options{Runtime: "sandbox"}}}
	_, err := call(open(t, t.TempDir(), o), "t", `{}`, tool.Discard)
	kit.Refused(t, err, tool.CodeUnavailable, "no-such-program was not found in /")
	o.Env = map[string]string{"A": "1\x002"}
	if _, err = call(open(t, t.TempDir(), o), "t", `{}`, tool.Discard); tool.CodeOf(err) != tool.CodeUnavailable || !strings.Contains(err.Error(), "NUL") {
		t.Errorf("got %v", err)
	}
	o.Env, o.Container.Runtime, o.Container.Args = nil, "bwrap", []string{"--ro-bind", "/a", "/a"}
	kit.Refused(t, kit.Err(New(t.Context(), t.TempDir(), o, slog.New(slog.DiscardHandler))), tool.CodeInvalidInput, "walls:", "options of bwrap")
}

func TestFolderMustBeChosenByTheUser(t *testing.T) {
	needRooms(t)
	app, outside := t.TempDir(), t.TempDir()
	for _, folder := range []string{"root", "bare"} {
		for _, dir := range []string{app, outside} {
			kit.OK(t, os.MkdirAll(filepath.Join(dir, folder), 0o755))
		}
	}
	kit.OK(t, os.Symlink(outside, filepath.Join(app, "link")))
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
		"the name of an image":  {"alpine:3", "", run, "no such file"},
		"a folder that is not":  {outside + "/none", "", run, "no such file"},
		"without any folder":    {outside + "/bare", "", run, ""},
		"a file":                {"/etc/passwd", "", run, "is not a folder"},
		"nothing to run":        {outside + "/root", "", nil, "set command"},
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{App: app, Tool: "t", Runner: appfile.RunnerContainer, Image: c.image, Command: c.command, Options: spawn.Options{Container: container.Options{Runtime: "sandbox"}}}
			binding := "tools:\n  t: {kind: python, runner: container, image: \"" + c.binding + "\"}\n"
			kit.OK(t, os.MkdirAll(filepath.Join(app, ".namel3ss"), 0o755))
			kit.OK(t, os.WriteFile(filepath.Join(app, ".namel3ss/tools.yaml"), []byte(binding), 0o644))
			err := open(t, app, o).Unavailable("t")
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// An unpacked image: only the content of the folder exists.
func TestAFolderCanBeAnUnpackedImage(t *testing.T) {
	needRooms(t)
	root := t.TempDir()
	build := exec.Command("go", "build", "-o", filepath.Join(root, "tool"), "testdata/container/main.go")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	o := Options{Tool: "t", Runner: appfile.RunnerContainer, Image: root, Command: []string{"/tool", "a", "b c"}, Options: spawn.Options{Container: container.Options{Runtime: "sandbox"}}}
	out := string(must(t, open(t, t.TempDir(), o), "t", `{"do":"look"}`).Output)
	for _, part := range []string{`"host":false`, `"args":["a","b c"]`, `"tmp":"written"`, `read-only file system`, `CapBnd:\t0000000000000000`, `NoNewPrivs:\t1`} {
		kit.Contains(t, out, part)
	}
}
