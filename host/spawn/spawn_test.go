package spawn_test

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"toolpost/host/container"
	"toolpost/host/process"
	"toolpost/host/sandbox"
	"toolpost/host/secret"
	"toolpost/host/spawn"
	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
	"toolpost/wire/bounded"
)

func TestMain(m *testing.M) {
	if sandbox.Main() {
		return
	}
	os.Exit(m.Run())
}

// missing skips a test because of a missing requirement, unless everything must be tested.
func missing(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// root makes a folder with the test program, which needs nothing else.
func root(t *testing.T) string {
	t.Helper()
	dir := kit.Must(filepath.EvalSymlinks(t.TempDir()))(t)
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "peer"), "testdata/peer/main.go")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// image makes an image of a folder for podman.
func image(t *testing.T, root string) string {
	t.Helper()
	if _, err := exec.LookPath("podman"); err != nil {
		missing(t, "no container engine: %v", err)
	}
	dir := t.TempDir()
	conf := "[containers]\ndefault_ulimits=[\"nofile=1024:1024\",\"nproc=512:512\"]\n"
	if _, err := exec.LookPath("runc"); err == nil {
		conf += "[engine]\nruntime=\"runc\"\n"
	}
	if os.Getenv("CONTAINERS_CONF") == "" {
		kit.OK(t, os.WriteFile(dir+"/containers.conf", []byte(conf), 0o644))
		t.Setenv("CONTAINERS_CONF", dir+"/containers.conf")
	}
	name := "localhost/toolpost-test-" + tool.NewID() + ":latest"
	script := `tar -C "$1" -cf "$2/image.tar" peer && podman import "$2/image.tar" "$3"`
	if out, err := exec.Command("sh", "-c", script, "sh", root, dir, name).CombinedOutput(); err != nil {
		missing(t, "podman cannot make an image: %v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("podman", "rmi", "-f", name).Run() })
	return name
}

// A view is what the program sees.
type view struct {
	Args                     []string
	Dir, Given, Secret, Home string
	Host                     bool
}

func look(t *testing.T, p *spawn.Program, r spawn.Run) (v view) {
	t.Helper()
	child := kit.Must(p.Start(t.Context(), r))(t)
	defer child.Close()
	child.CloseStdin()
	text, err := bounded.ReadDocument(child.Stdout, 1<<20)
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	if exit := child.Wait(); err != nil || exit != (process.Exit{}) {
		t.Fatalf("%s: %v, %s", text, err, child.Describe(exit))
	}
	return v
}

// The same options give a program its folder, its environment and its secrets, whatever is around it.
func TestOptionsAreTheSameBehindWallsAndInContainers(t *testing.T) {
	tooltest.NoLeaks(t)
	t.Setenv("HOME", "/home/of/ours")
	dir := root(t)
	o := spawn.Options{
		Dir: dir, Env: map[string]string{"GIVEN": "g"},
		Grant: secret.Grant{Secrets: []string{"SECRET"}, Vault: tooltest.Vault{"SECRET": "value-of-secret"}},
	}
	for _, c := range []struct {
		name    string
		options func() spawn.Options
		program string
		want    view
	}{
		{"walls", func() spawn.Options { return o }, "./peer", view{Dir: dir, Home: "/home/of/ours", Host: true}},
		{"a folder", func() spawn.Options {
			o := o
			o.Dir, o.Container = "/tmp", container.Options{Image: dir, Runtime: "sandbox"}
			return o
		}, "/peer", view{Dir: "/tmp", Home: "/"}},
		{"podman", func() spawn.Options {
			o := o
			o.Dir, o.Container = "/tmp", container.Options{Image: image(t, dir), Runtime: "podman"}
			return o
		}, "/peer", view{Dir: "/tmp", Home: "/"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := c.options()
			kit.OK(t, o.Check())
			p, err := o.Program(t.TempDir(), spawn.Command{Argv: []string{c.program, "a"}})
			kit.OK(t, err)
			c.want.Args, c.want.Given, c.want.Secret = []string{"a", "b c"}, "g", "value-of-secret"
			got := look(t, p, spawn.Run{Name: "peer", Args: []string{"b c"}})
			if c.name == "podman" {
				got.Host, got.Home = false, c.want.Home // engines make some files of /etc, and choose a home
			}
			kit.Equal(t, cmp.Diff(c.want, got), "")
			without := look(t, p, spawn.Run{Name: "peer", Guarantees: tool.Guarantees{SecretsAllowed: []string{}}})
			kit.Equal(t, without.Secret, "", "it got a secret that it may not have")
			if c.name == "walls" {
				return
			}
			_, err = p.Start(t.Context(), spawn.Run{
				Name: "peer", Guarantees: tool.Guarantees{NoNetwork: true, NoSubprocess: true},
			})
			if e := tool.AsError(err); e == nil || e.Reason != sandbox.CoverageMissing ||
				!strings.Contains(e.Message, "peer was not run: no_subprocess cannot") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A room has a /tmp of its own. Files that a command names in this machine's /tmp are still there, and nothing else is.
func TestContainerSeesFilesNamedInTmp(t *testing.T) {
	tooltest.NoLeaks(t)
	dir := kit.Must(os.MkdirTemp("/tmp", "named"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	for name, text := range map[string]string{
		"tool": "#!/bin/sh\nexec sh " + dir + "/script\n", "script": "cd " + dir + " && echo *\n", "other": "",
		"own/script": "echo \"$PWD\" *\n",
	} {
		kit.OK(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		kit.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755))
	}
	for want, o := range map[string]struct {
		dir  string
		argv []string
	}{
		"script tool":       {"/", []string{dir + "/tool", dir + "/script"}},
		"script":            {"/", []string{"sh", dir + "/script"}},
		dir + "/own script": {dir + "/own", []string{"sh", "script"}},
	} {
		in := spawn.Options{Dir: o.dir, Container: container.Options{Image: "/", Runtime: "sandbox"}}
		p := kit.Must(in.Program("/", spawn.Command{Argv: o.argv}))(t)
		child := kit.Must(p.Start(t.Context(), spawn.Run{Name: "tool"}))(t)
		child.CloseStdin()
		got, err := io.ReadAll(child.Stdout)
		if exit := child.Wait(); err != nil || strings.TrimSpace(string(got)) != want {
			t.Errorf("%q says %q, not %q: %v, %s", o.argv, got, want, err, child.Describe(exit))
		}
		child.Close()
	}
	image := filepath.Join(dir, "image")
	kit.OK(t, os.MkdirAll(image+"/tmp", 0o755))
	kit.OK(t, os.WriteFile(image+"/tmp/tool", nil, 0o755))
	o := spawn.Options{Dir: "/tmp", Container: container.Options{Image: image, Runtime: "sandbox"}}
	kit.Fails(t, kit.Err(o.Program("/", spawn.Command{Argv: []string{"./tool"}})),
		"names /tmp/tool", "a program in the /tmp of an image")
}

// When a program in a container is ended, the container ends, and not only the engine's client.
func TestAContainerEndsWithItsProgram(t *testing.T) {
	tooltest.NoLeaks(t)
	name := image(t, root(t))
	o := spawn.Options{Container: container.Options{Image: name, Runtime: "podman"}}
	p := kit.Must(o.Program(t.TempDir(), spawn.Command{Argv: []string{"/peer", "hang"}}))(t)
	hanging := make(chan struct{})
	said := sync.OnceFunc(func() { close(hanging) })
	child := kit.Must(p.Start(context.Background(), spawn.Run{Name: "peer", Stderr: func([]byte) { said() }}))(t)
	select {
	case <-hanging:
	case <-child.Exited():
		t.Fatal(child.Describe(child.Wait()))
	}
	child.Close()
	out, err := exec.Command("podman", "ps", "-a", "--filter", "ancestor="+name, "--format", "{{.Names}}").CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "" {
		t.Errorf("left behind: %s, %v", out, err)
	}
}

func TestInvalidOptionsAreRefused(t *testing.T) {
	for want, o := range map[string]spawn.Options{
		`"A=B" cannot be the name`: {Env: map[string]string{"A=B": "c"}},
		`"" cannot be the name`:    {Env: map[string]string{"": "c"}},
		"timeout cannot be":        {Timeout: -1},
		"cannot be negative":       {Container: container.Options{CPUs: -1}},
	} {
		kit.Refused(t, o.Check(), tool.CodeInvalidInput, want, want)
	}
	in := container.Options{Image: "/", Runtime: "sandbox"}
	for want, c := range map[string]struct {
		o    spawn.Options
		argv []string
	}{
		"must be an absolute path": {spawn.Options{Dir: "sub", Container: in}, []string{"true"}},
		"set command":              {spawn.Options{Container: in}, nil},
	} {
		kit.Fails(t, kit.Err(c.o.Program("/", spawn.Command{Argv: c.argv})), want, want)
	}
}
