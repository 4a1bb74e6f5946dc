// Package container runs programs in containers: those of podman and docker, and folders that package sandbox makes the
// root of a program. It is independent of the protocols of the programs.
package container

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"toolpost/config/offlimits"
	"toolpost/host/process"
	"toolpost/host/walls"
	"toolpost/tool"
)

// Options configure the containers of a source's programs. Zero values are the defaults.
type Options struct {
	Image   string   `yaml:"image" kind:"path" doc:"the image to run the tools in; with runtime sandbox: the folder that becomes their root"`
	Runtime string   `yaml:"runtime" kind:"path" doc:"podman, docker, or a path to one of them; or sandbox: no container engine, a folder as the root; default: podman or docker, whichever is found"`
	Memory  string   `yaml:"memory" schema:"default=512m" doc:"memory of one container"`
	CPUs    float64  `yaml:"cpus" schema:"default=1" doc:"CPUs of one container"`
	PIDs    int      `yaml:"pids" schema:"default=128" doc:"processes and threads of one container"`
	Network string   `yaml:"network" schema:"default=none" doc:"none, or the name of a network for tools without no_network; runtime sandbox only supports none and host"`
	OCI     string   `yaml:"oci_runtime" doc:"what runs the container for podman or docker, such as runc, crun or runsc (gVisor); default: the engine's choice"`
	Args    []string `yaml:"args" doc:"extra options for 'podman run' or 'docker run'"`
}

const (
	sandboxName = "sandbox"
	networkHost = "host"

	// searchPath is the PATH for programs in a folder, as in other containers.
	searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	// endTime is how long an engine may take to end a container.
	endTime = 20 * time.Second
	// engineFailed is the exit status of run that comes from the engine, not from the program.
	engineFailed = 125
)

// Own reports whether there is no engine: we build the room around a folder ourselves. A config that names bwrap means
// that too, since bwrap once built those rooms.
func (o Options) Own() bool { return o.Runtime == sandboxName || filepath.Base(o.Runtime) == "bwrap" }

// Check finds mistakes that would otherwise only show, or mislead, when a tool is called.
func (o Options) Check() error {
	dashed := func(s string) bool { return strings.HasPrefix(s, "-") }
	switch {
	case o.CPUs < 0 || o.PIDs < 0:
		return invalid("container: cpus and pids cannot be negative")
	case slices.ContainsFunc([]string{o.Memory, o.Network, o.Runtime, o.OCI}, dashed):
		return invalid("container: runtime, oci_runtime, memory and network cannot start with a dash")
	case !o.Own():
		return nil
	case o.OCI != "":
		return invalid("container: oci_runtime is for podman and docker; without an engine nothing reads it")
	case len(o.Args) > 0:
		return invalid("container: args are options of podman and docker; without an engine, " +
			"name what the tools may read and change with walls: {read: ..., write: ...}")
	case !slices.Contains([]string{"", "none", networkHost}, o.Network):
		return invalid("container: without an engine there are the networks none and host, and none named %.80q; "+
			"use podman or docker for it", o.Network)
	}
	_, err := memoryOf(o.Memory)
	return err
}

func invalid(format string, args ...any) error {
	return tool.Errorf(tool.CodeInvalidInput, format, args...)
}

// Starts lists the files that containers start from, for a config in base.
func (o Options) Starts(base string) []string {
	var starts []string
	if strings.Contains(o.Runtime, "/") {
		starts = append(starts, offlimits.Under(base, o.Runtime))
	}
	if o.Own() && filepath.IsAbs(o.Image) && filepath.Clean(o.Image) != "/" {
		starts = append(starts, filepath.Clean(o.Image)+"/")
	}
	return starts
}

// Walls returns the walls of a container that we build ourselves, given those of the config. Without a network it has a
// loopback of its own, as other containers have.
func (o Options) Walls(w walls.Options) (walls.Options, error) {
	if !filepath.IsAbs(o.Image) {
		return w, invalid("its image %.80q is no absolute path; without an engine it is the folder that becomes the "+
			"root", o.Image)
	}
	memory, err := memoryOf(o.Memory)
	w.Root, w.Off, w.Machine = filepath.Clean(o.Image), false, true
	w.Memory, w.CPU, w.Processes = memory, cmp.Or(o.CPUs, 1), cmp.Or(o.PIDs, 128)
	switch {
	case o.Network == networkHost:
		w.Network = walls.Network{"all"}
	case o.Network == "none" || len(w.Network) == 0:
		w.Network = walls.Network{"loopback"}
	}
	return w, err
}

// memoryOf parses a size as docker and podman write it: 512m, 1g. An empty text means the default.
func memoryOf(text string) (int64, error) {
	text = cmp.Or(text, "512m")
	unit := strings.TrimLeft(text, "0123456789")
	shift, known := map[string]uint{"": 0, "b": 0, "k": 10, "m": 20, "g": 30}[strings.ToLower(unit)]
	n, err := strconv.ParseInt(strings.TrimSuffix(text, unit), 10, 64)
	if !known || err != nil || n <= 0 || n > math.MaxInt64>>shift {
		return 0, invalid("container: memory is a number with b, k, m or g, such as 512m, not %.40q", text)
	}
	return n << shift, nil
}

// Uncovered lists the given guarantees that no container enforces: its files and variables are its own, and it may start
// the programs that it has.
func Uncovered(g tool.Guarantees) []string {
	held := []string{"no_network", "no_filesystem_write", "no_env_write", "secrets_allowed", "sandbox"}
	return slices.DeleteFunc(g.Asked(), func(name string) bool { return slices.Contains(held, name) })
}

// Environment returns the environment of a program in a folder: as in other containers, it has nothing of ours. If a
// variable has several values, the last one counts.
func Environment(given []string) []string {
	return append([]string{"PATH=" + searchPath, "HOME=/"}, given...)
}

// A Box is an image with the engine that runs it. Each start is a new container.
type Box struct {
	Options
	Engine  string // docker or podman
	Mount   string // a folder of this machine that it also sees, at the same path, read-only; empty if there is none
	path    string // of the engine's command
	dir     string // its working folder
	env     []string
	checker *offlimits.Checker
	log     *slog.Logger
}

// Open finds the engine of an image. The paths of its options start in dir, and nothing off limits is mounted.
func (o Options) Open(dir string, checker *offlimits.Checker, log *slog.Logger) (*Box, error) {
	if strings.HasPrefix(o.Image, "-") || strings.ContainsAny(o.Image, " \t\n\x00") {
		return nil, invalid("its image %.80q is not the name of an image", o.Image)
	}
	asked := o.Runtime
	if strings.Contains(asked, "/") {
		asked = offlimits.Under(dir, asked)
	}
	path, err := findEngine(asked)
	if err != nil {
		return nil, err
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	env := process.Environment(nil, []string{
		"DOCKER_HOST", "DOCKER_CONFIG", "CONTAINERS_CONF", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME",
	})
	return &Box{Options: o, Engine: filepath.Base(path), path: path, dir: dir, env: env, checker: checker, log: log}, nil
}

// findEngine finds the requested engine, or whichever is installed.
func findEngine(asked string) (string, error) {
	names, install := []string{"podman", "docker"}, "podman or docker"
	if asked != "" {
		names, install = []string{asked}, "it"
	}
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", tool.Errorf(tool.CodeUnavailable, "it runs in a container, and %s cannot be run; install %s, "+
		"or set container.runtime", strings.Join(names, " or "), install)
}

// Enclose returns the engine's command for a program in a new container. The given command is the program's own: its
// arguments, its folder there and its variables, which are all that it has of this machine. The caller starts the result,
// or calls its End.
func (b *Box) Enclose(cmd process.Command, g tool.Guarantees) (process.Command, error) {
	if len(cmd.Files) > 0 {
		return cmd, invalid("secret_files cannot be given to a container of %s; name them in secrets", b.Engine)
	}
	if err := b.mayMount(); err != nil {
		return cmd, err
	}
	variables, err := variables(cmd.Env)
	if err != nil {
		return cmd, err
	}
	name := "toolpost-" + tool.NewID()
	cmd.Argv = b.arguments(name, variables, cmd, g)
	cmd.Dir, cmd.Env, cmd.Claim = b.dir, b.env, name
	cmd.End = func(killed bool) {
		if killed { // only the client was killed
			b.end(name)
		}
		if variables != "" {
			_ = os.RemoveAll(filepath.Dir(variables))
		}
	}
	return cmd, nil
}

// arguments returns those of the engine's run command. The container has nothing of this machine: no files, no
// capabilities, no network unless the user gives it one.
func (b *Box) arguments(name, variables string, cmd process.Command, g tool.Guarantees) []string {
	network := cmp.Or(b.Network, "none")
	if g.NoNetwork {
		network = "none"
	}
	memory := cmp.Or(b.Memory, "512m")
	args := []string{
		b.path, "run", "--rm", "-i", "--name", name, "--pull", "missing", "--network", network,
		"--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--memory", memory, "--memory-swap",
		memory,
		"--cpus", strconv.FormatFloat(cmp.Or(b.CPUs, 1), 'f', -1, 64), "--pids-limit",
		strconv.Itoa(cmp.Or(b.PIDs, 128)),
	}
	if b.Engine == "podman" {
		args = append(args, "--read-only-tmpfs=false") // it would make several folders writable again
	}
	if !g.NoFilesystemWrite {
		args = append(args, "--tmpfs", "/tmp:size=64m") // gone with the container
	}
	for _, option := range []struct{ name, value string }{
		{"--env-file", variables}, {"--workdir", cmd.Dir}, {"--runtime", b.OCI},
	} {
		if option.value != "" {
			args = append(args, option.name, option.value)
		}
	}
	if b.Mount != "" {
		args = append(args, "--mount", "type=bind,readonly,source="+b.Mount+",target="+b.Mount)
	}
	return slices.Concat(args, b.Args, []string{b.Image}, cmd.Argv)
}

// variables puts those of a container into a file, since every user of the machine can read a command line. It returns ""
// if there are none. The caller removes the folder of the file.
func variables(env []string) (string, error) {
	if len(env) == 0 {
		return "", nil
	}
	for _, v := range env {
		if name, value, _ := strings.Cut(v, "="); strings.ContainsAny(value, "\n\r") {
			return "", invalid("the variable %s has several lines, which no container can be given", name)
		}
	}
	dir, err := process.TempDir("container")
	file := filepath.Join(dir, "variables")
	if err == nil {
		if err = os.WriteFile(file, []byte(strings.Join(env, "\n")+"\n"), 0o600); err == nil {
			return file, nil
		}
		_ = os.RemoveAll(dir)
	}
	return "", tool.Errorf(tool.CodeUnavailable, "no file for the container's variables: %w", err)
}

// end removes a container, running or not. A container that is about to be created does not exist yet, so end tries
// twice.
func (b *Box) end(name string) {
	for range 2 {
		ctx, cancel := context.WithTimeout(context.Background(), endTime)
		remove := process.Command{Argv: []string{b.path, "rm", "-f", name}, Env: b.env}
		_, exit, _, err := process.Run(ctx, remove, 1<<20)
		late := ctx.Err() != nil
		cancel()
		if err != nil && !late {
			b.log.Warn("the container could not be ended", "name", name, "error", err)
			return
		}
		if exit != (process.Exit{}) {
			b.log.Debug("the engine ended no container", "name", name, "exit", exit.String())
		}
	}
}

// Unstarted returns the error of an engine that did not start the program, given how its command ended and its last
// output. It returns nil if the program itself ended that way.
func (b *Box) Unstarted(exit process.Exit, said string) error {
	if exit.Code != engineFailed {
		return nil
	}
	var with string
	if b.OCI != "" {
		with = " with oci_runtime " + b.OCI + ", which " + b.Engine + " must know and this machine must have"
	}
	return tool.Errorf(tool.CodeUnavailable, "%s could not start the image %s%s: %s", b.Engine, b.Image, with, said)
}

// A volume is a path of the host that the config's own options mount in a container.
type volume struct {
	path     string
	readOnly bool
}

// volumes finds the volumes in the options of podman and docker.
func volumes(args []string) []volume {
	var all []volume
	for i, arg := range args {
		name, value, joined := strings.Cut(arg, "=")
		if !joined && i+1 < len(args) {
			value = args[i+1]
		}
		switch {
		case slices.Contains([]string{"-v", "--volume"}, name):
			path, rest, _ := strings.Cut(value, ":")
			_, modes, _ := strings.Cut(rest, ":")
			all = append(all, volume{path, slices.Contains(strings.Split(modes, ","), "ro")})
		case name == "--mount":
			all = append(all, mountOption(value))
		}
	}
	// a name is the engine's own volume
	return slices.DeleteFunc(all, func(v volume) bool { return !filepath.IsAbs(v.path) })
}

// mountFields are the fields of --mount that are understood. The engines know more, such as volume-opt=device=/path, and
// read them as CSV with quotes: what is not understood could name any folder.
const mountFields = "type source src target destination dst ro readonly bind-propagation tmpfs-size tmpfs-mode relabel"

// oddMount returns a value of --mount that is not understood, or "".
func oddMount(args []string) string {
	for i, arg := range args {
		name, value, joined := strings.Cut(arg, "=")
		if !joined && i+1 < len(args) {
			value = args[i+1]
		}
		for field := range strings.SplitSeq(value, ",") {
			key, _, _ := strings.Cut(field, "=")
			if name == "--mount" && (strings.Contains(field, `"`) || !slices.Contains(strings.Fields(mountFields), key)) {
				return value
			}
		}
	}
	return ""
}

func mountOption(text string) volume {
	var v volume
	for field := range strings.SplitSeq(text, ",") {
		switch name, value, _ := strings.Cut(field, "="); name {
		case "source", "src":
			v.path = value
		case "ro", "readonly":
			v.readOnly = value != "false"
		}
	}
	return v
}

// mayMount refuses to mount a path that is hidden from tools, or that tools could have replaced by a link: an engine
// takes the names of folders, and resolves them by itself.
func (b *Box) mayMount() error {
	if odd := oddMount(b.Args); odd != "" {
		return tool.Errorf(tool.CodeAccessDenied, "container.args: --mount %s has a field that is not understood here; write "+
			"type=bind,source=FOLDER,target=PLACE", odd)
	}
	list, all := b.checker.Now(), volumes(b.Args)
	if b.Mount != "" {
		all = append(all, volume{path: b.Mount, readOnly: true})
	}
	for _, v := range all {
		at, err := offlimits.Open(v.path, list)
		if err != nil {
			return tool.Errorf(tool.CodeUnavailable, "container.args: %w", err)
		}
		at.Close()
		ban := max(b.checker.At(at.Path), b.checker.Inside(at.Path))
		if ban == offlimits.Free && b.checker.LoadedBy(at.Path) != "" {
			ban = offlimits.Fixed
		}
		if ban == offlimits.Fixed && v.readOnly {
			ban = offlimits.Free
		}
		switch {
		case ban != offlimits.Free:
			return tool.Errorf(tool.CodeAccessDenied,
				"container.args mounts %s, which has files of this installation, or what the config starts from; "+
					"mount a folder without them, or read-only", v.path).Because("off_limits")
		case list.Exposed(at.Path) && !slices.Contains(list.Roots(), at.Path):
			return tool.Errorf(tool.CodeAccessDenied, "container.args mounts %s, which lies in a folder that tools "+
				"may change: it could be another one by then; mount one that lies elsewhere",
				v.path).Because("off_limits")
		}
	}
	return nil
}
