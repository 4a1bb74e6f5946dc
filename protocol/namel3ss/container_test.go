package namel3ss

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"toolpost/config"
	"toolpost/host/container"
	"toolpost/host/spawn"
	"toolpost/internal/kit"
	"toolpost/protocol/namel3ss/appfile"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// missing skips a test because something is missing, unless everything must be tested.
func missing(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// image makes an image with the test's tool. Without an engine the test is skipped.
func image(t *testing.T) (engine, name string) {
	t.Helper()
	engine, err := exec.LookPath("podman")
	if err != nil {
		if engine, err = exec.LookPath("docker"); err != nil {
			missing(t, "no container engine: %v", err)
		}
	}
	dir := t.TempDir()
	if os.Getenv("CONTAINERS_CONF") == "" {
		conf := "[containers]\ndefault_ulimits=[\"nofile=1024:1024\",\"nproc=512:512\"]\n"
		if _, err := exec.LookPath("runc"); err == nil {
			conf += "[engine]\nruntime=\"runc\"\n"
		}
		path := filepath.Join(dir, "containers.conf")
		kit.OK(t, os.WriteFile(path, []byte(conf), 0o644))
		t.Setenv("CONTAINERS_CONF", path)
	}
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "tool"), "testdata/container/main.go")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := exec.Command("tar", "-C", dir, "-cf", dir+"/image.tar", "tool").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	name = "localhost/toolpost-test-" + tool.NewID() + ":latest"
	if out, err := exec.Command(engine, "import", "--change", `ENTRYPOINT ["/tool"]`, dir+"/image.tar", name).CombinedOutput(); err != nil {
		missing(t, "%s cannot make an image: %v: %s", engine, err, out)
	}
	t.Cleanup(func() { _ = exec.Command(engine, "rmi", "-f", name).Run() })
	return engine, name
}

func boxed(t *testing.T, image string, o Options) *Runner {
	t.Helper()
	o.Tool, o.Runner, o.Image = "t", appfile.RunnerContainer, image
	return open(t, t.TempDir(), o)
}

// contract(namel3ss): container runner: `container_runtime`, `image`, `command`
// contract(namel3ss): container enforcement: `container_enforcement`
func TestContainerHasNothingOfThisMachine(t *testing.T) {
	engine, name := image(t)
	r := boxed(t, name, Options{Command: []string{"a", "b c"}, Options: spawn.Options{Env: map[string]string{"GREETING": "hello there"}, Timeout: config.Duration(time.Minute)}})
	res := must(t, r, "t", `{"do":"look"}`)
	var got struct {
		Write, TMP, Greeting, Runner, Status string
		Interfaces                           int
		Args                                 []string
		Host                                 bool
	}
	kit.OK(t, json.Unmarshal(res.Output, &got))
	if !strings.Contains(got.Write, "read-only file system") || got.TMP != "written" || got.Interfaces != 1 || got.Host || got.Greeting != "hello there" ||
		got.Runner != "container" || !slices.Equal(got.Args, []string{"a", "b c"}) {
		t.Errorf("got %s", res.Output)
	}
	for _, line := range []string{"CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1"} {
		kit.Contains(t, got.Status, line)
	}
	for field, want := range map[string]any{
		"runner": "container", "container_runtime": filepath.Base(engine), "image": name, "command": []string{"a", "b c"}, "container_enforcement": "verified",
	} {
		kit.Equal(t, cmp.Diff(want, res.Trace.Details[field]), "", "trace field %s", field)
	}
	walled := boxed(t, name, Options{Options: spawn.Options{Env: map[string]string{"GREETING": "hello"}, Guarantees: tool.Guarantees{NoNetwork: true, NoFilesystemWrite: true, SecretsAllowed: []string{}}, Container: container.Options{Network: "host"}, Timeout: config.Duration(time.Minute)}})
	out := string(must(t, walled, "t", `{"do":"look"}`).Output)
	if !strings.Contains(out, `"interfaces":1`) || strings.Contains(out, `"written"`) || !strings.Contains(out, `"greeting":""`) {
		t.Errorf("got %s", out)
	}
}

func TestContainerIsEndedAndNotOnlyItsClient(t *testing.T) {
	tooltest.NoLeaks(t)
	engine, name := image(t)
	r := boxed(t, name, Options{Options: spawn.Options{Timeout: config.Duration(time.Minute)}})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var events tooltest.Collect
	go func() {
		_ = events.WaitLog(ctx, "hanging")
		cancel()
	}()
	kit.Refused(t, kit.Err(r.Invoke(ctx, &tool.Call{Tool: "t", Args: []byte(`{"do":"hang"}`)}, &events)), tool.CodeCancelled, "")
	soon := boxed(t, name, Options{Options: spawn.Options{Timeout: config.Duration(time.Second)}})
	kit.Refused(t, kit.Err(call(soon, "t", `{"do":"hang"}`, tool.Discard)), tool.CodeTimeout, "")
	out, err := exec.Command(engine, "ps", "-a", "--filter", "ancestor="+name, "--format", "{{.Names}}").CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "" {
		t.Errorf("left behind: %s, %v", out, err)
	}
}

func TestContainerThatCannotRunSaysWhy(t *testing.T) {
	_, name := image(t)
	_, err := call(boxed(t, name, Options{Options: spawn.Options{Timeout: config.Duration(time.Minute)}}), "t", `{"do":"crash"}`, tool.Discard)
	if tool.CodeOf(err) != tool.CodeCrash || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "the last words") {
		t.Errorf("got %v", err)
	}
	_, err = call(boxed(t, "localhost/toolpost-none-such:latest", Options{Options: spawn.Options{Timeout: config.Duration(time.Minute)}}), "t", `{}`, tool.Discard)
	kit.Refused(t, err, tool.CodeUnavailable, "could not start the image")
	gvisor := Options{Options: spawn.Options{Container: container.Options{OCI: "no-such-runtime"}, Timeout: config.Duration(time.Minute)}}
	_, err = call(boxed(t, name, gvisor), "t", `{}`, tool.Discard)
	kit.Refused(t, err, tool.CodeUnavailable, "with oci_runtime no-such-runtime, which")
	asked := Options{Options: spawn.Options{Guarantees: tool.Guarantees{NoNetwork: true, NoSubprocess: true}, Timeout: config.Duration(time.Minute)}}
	_, err = call(boxed(t, name, asked), "t", `{}`, tool.Discard)
	if e := tool.AsError(err); e == nil || e.Reason != "coverage_missing" || !strings.Contains(e.Message, "no_subprocess cannot be enforced by a container") || strings.Contains(e.Message, "no_network") {
		t.Errorf("got %v", err)
	}
	asked.AllowUnsafeExecution = true
	if d := must(t, boxed(t, name, asked), "t", `{}`).Trace.Details; d["unsafe_override"] != true || d["container_enforcement"] != "declared" {
		t.Errorf("trace %v", d)
	}
}
