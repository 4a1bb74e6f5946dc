package namel3ss

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"toolpost/host/offlimits"
	"toolpost/host/process"
	"toolpost/tool"
)

// ContainerOptions say how the containers of a source are run. Zero values are the defaults.
type ContainerOptions struct {
	Runtime string   `yaml:"runtime" doc:"podman, docker or bwrap, or a path to one of them; podman or docker, whichever is there, where it is left out"`
	Memory  string   `yaml:"memory" doc:"memory of one call; 512m where it is left out"`
	CPUs    float64  `yaml:"cpus" doc:"processors of one call; 1 where it is left out"`
	PIDs    int      `yaml:"pids" doc:"processes and threads of one call; 128 where it is left out"`
	Network string   `yaml:"network" doc:"none (default), or the name of a network for tools without no_network; bwrap knows host alone"`
	OCI     string   `yaml:"oci_runtime" doc:"what runs the container for docker or podman: runc, crun, runsc (gVisor) or another that it knows; its own choice where it is left out"`
	Args    []string `yaml:"args" doc:"more options for the runtime's run command, or for bwrap"`
}

func (o ContainerOptions) check() error {
	switch {
	case o.CPUs < 0 || o.PIDs < 0:
		return tool.Errorf(tool.CodeInvalidInput, "container: cpus and pids cannot be negative")
	case slices.ContainsFunc([]string{o.Memory, o.Network, o.Runtime, o.OCI}, func(s string) bool { return strings.HasPrefix(s, "-") }):
		return tool.Errorf(tool.CodeInvalidInput, "container: runtime, oci_runtime, memory and network cannot start with a dash")
	case o.bwrap():
		return o.checkBwrap()
	}
	return nil
}

// endTime is how long an engine may take to end a container.
const endTime = 20 * time.Second

// engineFailed is the exit status of run that is the engine's own, and not the tool's.
const engineFailed = 125

// An engine is a docker, podman or bwrap command.
type engine struct {
	path string
	name string // docker, podman or bwrap
}

// findEngine finds the engine that was asked for, or whichever is there.
func findEngine(asked string) (*engine, error) {
	names, install := []string{"podman", "docker"}, "podman or docker"
	if asked != "" {
		names, install = []string{asked}, "it"
	}
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return &engine{path, filepath.Base(name)}, nil
		}
	}
	return nil, tool.Errorf(tool.CodeUnavailable,
		"its runner is container, and %s cannot be run; install %s, or set container.runtime", strings.Join(names, " or "), install)
}

// A containerTool is an image that is started for each call.
type containerTool struct {
	*facts
	ContainerOptions
	engine  *engine
	image   string
	command []string
	vars    map[string]string
	env     []string // of the engine's command
	book    *offlimits.Book
}

func (b *builder) container(f *facts, bound *binding) (way, error) {
	switch {
	case bound.Image == "":
		return nil, tool.Errorf(tool.CodeUnavailable, "its runner is container and it has no image; set image in its binding")
	case b.Container.bwrap():
		return b.bwrap(f, bound)
	case strings.HasPrefix(bound.Image, "-") || strings.ContainsAny(bound.Image, " \t\n\x00"):
		return nil, tool.Errorf(tool.CodeInvalidInput, "its image %.80q is not the name of an image", bound.Image)
	}
	t, err := b.contained(f, bound)
	if err != nil {
		return nil, err
	}
	t.env = process.Environment(nil, []string{"DOCKER_HOST", "DOCKER_CONFIG", "CONTAINERS_CONF", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME"})
	return t, nil
}

// contained is what containers of every engine have in common.
func (b *builder) contained(f *facts, bound *binding) (*containerTool, error) {
	if b.engine == nil {
		found, err := findEngine(b.program(b.Container.Runtime))
		if err != nil {
			return nil, err
		}
		b.engine = found
	}
	return &containerTool{
		facts: f, ContainerOptions: b.Container, engine: b.engine, image: bound.Image, command: bound.Command, vars: b.vars(bound),
		book: b.Walls.Book(b.dir),
	}, nil
}

func (t *containerTool) describe(tr *trace) {
	tr.set("container_runtime", t.engine.name)
	tr.set("image", t.image)
	tr.set("command", slices.Clone(t.command))
	tr.set("container_enforcement", "verified") // the walls around it are ours, not the image's word
}

func (t *containerTool) close(context.Context) error { return nil }

// covers reports whether a container without host files, capabilities and network is that wall.
func covers(guarantee string) bool {
	switch guarantee {
	case "no_network", "no_filesystem_write", "no_env_write", "secrets_allowed", "sandbox":
		return true
	}
	return false
}

// covered refuses a call that asks for more than a container can hold.
func (t *containerTool) covered(j *job) error {
	if err := t.mayMount(); err != nil {
		return err
	}
	missing := slices.DeleteFunc(j.walls.Asked(), covers)
	if len(missing) == 0 {
		return nil
	}
	if err := t.uncovered(j, missing, "cannot be enforced by a container"); err != nil {
		return err
	}
	j.trace.set("container_enforcement", "declared")
	return nil
}

func (t *containerTool) run(ctx context.Context, j *job) (*reply, error) {
	if err := t.covered(j); err != nil {
		return nil, err
	}
	doc, err := t.document(j)
	if err != nil {
		return nil, err
	}
	e, err := t.execute(ctx, "toolpost-"+tool.NewID(), doc, j)
	if err != nil {
		return nil, about(t.spec.Name, err)
	}
	if e.exit.Code == engineFailed && len(e.reply) == 0 {
		return nil, t.unstarted(j)
	}
	return e.outcome(t.spec.Name, j.logs.last())
}

// unstarted is the error of an engine that did not come to the tool.
func (t *containerTool) unstarted(j *job) error {
	var with string
	if t.OCI != "" {
		with = " with oci_runtime " + t.OCI + ", which " + t.engine.name + " must know and this machine must have"
	}
	return tool.Errorf(tool.CodeUnavailable, "%s: %s could not start the image %s%s: %s", t.spec.Name, t.engine.name, t.image, with, j.logs.last())
}

// arguments are those of the engine's run command. The container has nothing of this machine: no files, no
// capabilities, no network unless the user gives it one.
func (t *containerTool) arguments(name, variables string, walls tool.Guarantees) []string {
	network := cmp.Or(t.Network, "none")
	if walls.NoNetwork {
		network = "none"
	}
	args := []string{
		t.engine.path, "run", "--rm", "-i", "--name", name, "--pull", "missing",
		"--network", network, "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges",
		"--memory", cmp.Or(t.Memory, "512m"), "--memory-swap", cmp.Or(t.Memory, "512m"),
		"--cpus", strconv.FormatFloat(cmp.Or(t.CPUs, 1), 'f', -1, 64), "--pids-limit", strconv.Itoa(cmp.Or(t.PIDs, 128)),
	}
	if t.engine.name == "podman" {
		args = append(args, "--read-only-tmpfs=false") // it would make several folders writable again
	}
	if !walls.NoFilesystemWrite {
		args = append(args, "--tmpfs", "/tmp:size=64m") // gone with the container
	}
	if variables != "" {
		args = append(args, "--env-file", variables)
	}
	if t.OCI != "" {
		args = append(args, "--runtime", t.OCI)
	}
	args = append(args, t.Args...)
	return append(append(args, t.image), t.command...)
}

// given lists the variables of the container, its secrets among them.
func (t *containerTool) given(j *job) ([]string, error) {
	var given process.Command
	done, err := t.grant.Give(&given, j.walls.SecretsAllowed)
	if err != nil {
		return nil, err
	}
	defer done()
	if len(given.Files) > 0 {
		return nil, tool.Errorf(tool.CodeInvalidInput, "secret_files cannot be given to a container; name them in secrets")
	}
	vars := given.Env
	for name, value := range allowed(t.vars, j.walls) {
		vars = append(vars, name+"="+value)
	}
	slices.Sort(vars)
	return j.call.TraceEnv(vars), nil
}

// variables puts those of the container into a file: what stands on a command line everybody on the machine can read.
// Empty: it has none. The file is to be removed.
func (t *containerTool) variables(j *job) (string, error) {
	vars, err := t.given(j)
	if err != nil || len(vars) == 0 {
		return "", err
	}
	for _, v := range vars {
		if name, value, _ := strings.Cut(v, "="); strings.ContainsAny(value, "\n\r") {
			return "", tool.Errorf(tool.CodeInvalidInput, "the variable %s has several lines, which no container can be given", name)
		}
	}
	dir, err := process.TempDir("container")
	if err != nil {
		return "", tool.Errorf(tool.CodeUnavailable, "no file for the container's variables: %w", err)
	}
	file := filepath.Join(dir, "variables")
	if err := os.WriteFile(file, []byte(strings.Join(vars, "\n")+"\n"), 0o600); err != nil {
		_ = os.RemoveAll(dir)
		return "", tool.Errorf(tool.CodeUnavailable, "no file for the container's variables: %w", err)
	}
	return file, nil
}

// execute runs a call in a container of that name. When ctx ends it is the container that is ended: the
// engine's command is only its client.
func (t *containerTool) execute(ctx context.Context, name string, request []byte, j *job) (ending, error) {
	variables, err := t.variables(j)
	if err != nil {
		return ending{}, err
	}
	if variables != "" {
		defer os.RemoveAll(filepath.Dir(variables))
	}
	child, err := process.Start(process.Command{
		Argv: t.arguments(name, variables, j.walls), Dir: t.root, Env: t.env, Claim: name,
		Stderr: func(line []byte) { j.logs.line("stderr", line) }, StderrLimit: maxLog,
	})
	if err != nil {
		return ending{}, err
	}
	defer child.Close()
	child.Feed(request)

	var e ending
	var readers sync.WaitGroup
	readers.Go(func() { e.reply = readReply(child.Stdout, j.logs) })
	select {
	case <-child.Exited():
		e.exit = child.Wait()
	case <-ctx.Done():
		t.end(name)
		e.exit = child.Kill()
	}
	_ = child.Stdout.SetReadDeadline(time.Now().Add(drainTime))
	readers.Wait()
	return e, nil
}

// end removes a container, running or not. One that is about to be created is not there yet, so it is
// asked for twice.
func (t *containerTool) end(name string) {
	for range 2 {
		child, err := process.Start(process.Command{Argv: []string{t.engine.path, "rm", "-f", name}, Env: t.env})
		if err != nil {
			t.log.Warn("the container could not be ended", "name", name, "error", err)
			return
		}
		child.CloseStdin()
		ctx, cancel := context.WithTimeout(context.Background(), endTime)
		exit := await(ctx, child)
		cancel()
		child.Close()
		if exit != (process.Exit{}) {
			t.log.Debug("the engine ended no container", "name", name, "exit", exit.String())
		}
	}
}
