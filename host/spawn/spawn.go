// Package spawn starts the programs of a source of tools. The settings of every program, whatever its protocol, are one
// struct here, and one function turns them into a command: its folder, its environment and secrets, and the walls or the
// container around it.
package spawn

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"toolpost/config"
	"toolpost/config/offlimits"
	"toolpost/host/container"
	"toolpost/host/process"
	"toolpost/host/sandbox"
	"toolpost/host/secret"
	"toolpost/host/walls"
	"toolpost/tool"
	"toolpost/wire/regex"
)

// Options are the fields of every source whose programs we start, whatever its protocol. They are embedded in the
// protocol's own.
type Options struct {
	Dir     string            `yaml:"dir" kind:"path" doc:"folder in which programs are found and run, relative to the config; in a container: the working folder there; default: the config's folder"`
	Env     map[string]string `yaml:"env" doc:"environment variables, in addition to PATH, HOME, LANG and TMPDIR"`
	PassEnv []string          `yaml:"pass_env" doc:"names of our own environment variables to pass on"`
	secret.Grant
	Timeout    config.Duration   `yaml:"timeout" doc:"time limit of one call; default: the protocol's own, otherwise limits.timeout"`
	Guarantees tool.Guarantees   `yaml:"guarantees" doc:"what the tools must not be able to do"`
	Walls      walls.Options     `yaml:"walls" doc:"what the tools may do; default: read their own folder, start programs, 512 MiB, 128 processes, no network"`
	Container  container.Options `yaml:"container" doc:"run the tools in this container, if it names an image"`
}

// Of returns the options of a configured source before they are decoded: its secrets, and what is hidden from its tools.
func Of(src config.Source) Options {
	o := Options{Grant: secret.Grant{Vault: src.Secrets}, Walls: walls.Options{OffLimits: src.OffLimits, Source: src.Name}}
	if in, ok := src.Injector.(*walls.Injector); ok {
		o.Walls.Injector, o.Connections = in, in
	}
	return o
}

// Check finds mistakes that would otherwise only show, or mislead, when a tool is called.
func (o Options) Check() error {
	for name := range o.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			return tool.Errorf(tool.CodeInvalidInput, "%q cannot be the name of an environment variable", name)
		}
	}
	if o.Timeout < 0 {
		return tool.Errorf(tool.CodeInvalidInput, "timeout cannot be negative")
	}
	return o.Container.Check()
}

func (o Options) contained() bool { return o.Container.Image != "" }

// Folder returns the folder in which programs are found and run, for a config in base.
func (o Options) Folder(base string) string { return offlimits.Under(base, o.Dir) }

// Claim returns the files that a command starts from, and those that its program may change, for a config in base.
func (o Options) Claim(base string, argv []string) offlimits.Claim {
	c, dir := o.Granted(base), o.Folder(base)
	// Also in a container: its root may be ours, and protecting a file of the same path elsewhere does no harm.
	c.Starts = append(o.Container.Starts(base), offlimits.Argv(dir, argv, c.Writes)...)
	c.Homes = append(c.Homes, o.Homes(dir, argv, c.Writes)...)
	switch {
	case o.inImage():
	case o.Dir != "" || offlimits.Inline(argv):
		c.Homes = append(c.Homes, dir+"/")
	case !o.contained():
		c.Homes = append(c.Homes, dir+"/.") // folders for data are to be expected beside the config
	}
	return c
}

// Homes lists the folders that a command in dir loads code from, if its source may change what writes names.
func (o Options) Homes(dir string, argv, writes []string) []string {
	if o.inImage() {
		return nil
	}
	homes := offlimits.Homes(dir, argv, writes, o.Dir != "")
	for _, program := range argv[:min(1, len(argv))] {
		homes = append(homes, walls.Installed(dir, program)...)
	}
	return append(homes, offlimits.Variables(dir, o.Env, o.Given(), writes)...)
}

// inImage reports whether the code of the programs is in the image of a container.
func (o Options) inImage() bool {
	return o.contained() && !(o.Container.Own() && filepath.Clean(o.Container.Image) == "/")
}

// Granted returns what programs may change, and what code in them would gain, for a config in base.
func (o Options) Granted(base string) offlimits.Claim {
	c := o.Walls.Claim(base)
	if secrets := slices.Concat(o.Secrets, o.SecretFiles, o.PassEnv); len(secrets) > 0 && !o.Walls.Off {
		c.Gains = "with secrets (" + strings.Join(secrets, ", ") + ")"
	}
	return c
}

// Given returns the variables that were configured for the programs, by name.
func (o Options) Given() map[string]string {
	return process.Variables(o.Env, o.PassEnv)
}

// A Command is a protocol's description of a program, besides the options.
type Command struct {
	Argv     []string          // the program, on PATH or, with a slash, from Dir; and its arguments; empty means the image's own
	Dir      string            // absolute: its working folder; empty means that of the options
	Own      string            // a folder that it sees, also in a container; empty means the working folder, in a container none
	Code     []string          // files and folders that it also runs, such as a plugin
	Reads    []string          // files and folders that it also sees; not in a container
	Withheld map[string]string // modules that it would find without walls, see tool.Room
	PassEnv  []string          // names of more variables that are passed on
	Scratch  bool              // its HOME, its TMPDIR and /var/tmp are private, like /tmp: for a program that serves one call
	Log      *slog.Logger      // gets a line for each container that could not be ended; nil means no log
}

// A Program is a command that is started behind walls, or in a container. Its requirements are determined at the first
// start: a config may have many programs that are never called.
type Program struct {
	Argv []string
	Dir  string         // absolute: its working folder, in its container if it has one; empty means the image's own
	Box  *container.Box // the engine's container around it; nil if there is none

	o     Options
	env   []string          // without secrets
	kept  map[string]string // modules that are withheld
	walls *walls.Walls      // nil if its engine provides the walls of its container

	path atomic.Pointer[string] // where it was last found; every call of a warm program looks there first

	mu    sync.Mutex
	found *found
}

// found is how a program is started, once that is known.
type found struct {
	argv  []string
	walls *walls.Walls
}

// Program returns a program with the options' folder, environment, secrets, and walls or container. Relative paths
// start in base, the folder of the config.
func (o Options) Program(base string, c Command) (_ *Program, err error) {
	p := &Program{Argv: slices.Clone(c.Argv), o: o, kept: c.Withheld}
	dir := cmp.Or(c.Dir, o.Dir)
	switch {
	case !o.contained():
		err = p.behindWalls(base, c)
	case dir != "" && !filepath.IsAbs(dir):
		err = tool.Errorf(tool.CodeInvalidInput,
			"dir is a folder of the container and must be an absolute path, not %.80q", dir)
	case o.Container.Own():
		p.Dir = cmp.Or(dir, "/")
		err = p.inFolder(base, c)
	case o.Walls.Injector.Intercepts():
		err = tool.Errorf(tool.CodeInvalidInput, "it runs in a container of %s, where no proxy of ours adds the keys of connections: run "+
			"it behind walls, or set `expose: true` in the connection", o.Container.Image)
	default:
		p.Dir, p.env = dir, process.Assigned(o.given(c))
		p.Box, err = o.Container.Open(base, o.Walls.Checker(base), c.Log)
	}
	if err != nil {
		return nil, err
	}
	if p.Box != nil {
		p.Box.Mount = c.Own
	}
	return p, nil
}

func (o Options) given(c Command) map[string]string {
	o.PassEnv = slices.Concat(o.PassEnv, c.PassEnv)
	return o.Given()
}

// distinct keeps the last of several values of a variable: programs would use the first.
func distinct(env []string) []string {
	var all []string
	for i, v := range env {
		name, _, _ := strings.Cut(v, "=")
		if !slices.ContainsFunc(env[i+1:], func(later string) bool { return strings.HasPrefix(later, name+"=") }) {
			all = append(all, v)
		}
	}
	return all
}

func (p *Program) behindWalls(base string, c Command) error {
	dir, err := filepath.Abs(cmp.Or(c.Dir, p.o.Folder(base)))
	if err != nil {
		return tool.Errorf(tool.CodeUnavailable, "its folder %s: %w", p.o.Dir, err)
	}
	if p.Dir = dir; strings.Contains(p.Argv[0], "/") {
		p.Argv[0] = offlimits.Under(dir, p.Argv[0])
	}
	env := process.Environment(p.o.Env, slices.Concat(p.o.PassEnv, c.PassEnv))
	needs := walls.Needs{Dir: base, Read: append([]string{cmp.Or(c.Own, dir)}, c.Reads...), Run: c.Code}
	if c.Scratch {
		needs.Scratch = scratch(env)
	}
	if p.walls, err = p.o.Walls.Around(needs); err != nil {
		return err
	}
	p.env = p.walls.Environment(env)
	return nil
}

// scratch lists the folders for temporary files, besides /tmp.
func scratch(env []string) []string {
	paths := []string{"/var/tmp"}
	for _, v := range env {
		if name, path, _ := strings.Cut(v, "="); (name == "HOME" || name == "TMPDIR") && filepath.IsAbs(path) {
			paths = append(paths, path)
		}
	}
	return paths
}

// inFolder makes a container that needs no engine: walls in which an image replaces this machine's files.
func (p *Program) inFolder(base string, c Command) error {
	if len(p.Argv) == 0 {
		return tool.Errorf(tool.CodeUnavailable,
			"it runs in a folder and has no command: a folder has none of its own; set command")
	}
	needs := walls.Needs{Dir: base}
	if c.Own != "" {
		needs.Read = []string{c.Own}
	}
	var err error
	if needs.Run, err = p.inTmp(); err != nil {
		return err
	}
	around, err := p.o.Container.Walls(p.o.Walls)
	if err != nil {
		return err
	}
	if p.walls, err = around.Around(needs); err != nil {
		return err
	}
	p.found = &found{argv: p.Argv, walls: p.walls} // the image has everything that it needs
	p.env = p.walls.Environment(container.Environment(process.Assigned(p.o.given(c))))
	return nil
}

// inTmp lists the paths of the command in the /tmp of its image. The room has a /tmp of its own, which would hide them:
// if the image is this machine's root, the room gets these files at their own paths; those of another image are refused.
func (p *Program) inTmp() (named []string, err error) {
	const tmp = "/tmp"
	image := filepath.Clean(p.o.Container.Image)
	for _, arg := range slices.Concat(p.Argv, walls.Code(p.Argv[0]), offlimits.Argv(p.Dir, p.Argv, nil), []string{p.Dir}) {
		path := offlimits.Under(p.Dir, arg)
		info, err := os.Stat(filepath.Join(image, path))
		switch {
		case err != nil || path == tmp || !offlimits.Within(path, tmp):
		case image == "/":
			named = append(named, path)
		case info.Mode().IsRegular():
			return nil, tool.Errorf(tool.CodeInvalidInput, "its command names %s, which its own empty %s would hide; "+
				"move the file to another folder of the image %s", path, tmp, image)
		}
	}
	return named, nil
}

// String describes what the program may do.
func (p *Program) String() string {
	if p.walls == nil {
		return "a container of " + p.Box.Image + " (" + p.Box.Engine + "); network " + cmp.Or(p.Box.Network, "none")
	}
	return p.walls.String()
}

// Publish adds what the program may do to the spec of its tool.
func (p *Program) Publish(s *tool.Spec) {
	s.Walls, s.Held = p.String(), p.Holds()
	switch {
	case p.walls != nil:
		if s.Room = p.walls.Room(); s.Room != nil {
			s.Room.Withheld = p.kept
		}
	case p.Box != nil:
		s.Room = &tool.Room{Network: []string{cmp.Or(p.Box.Network, "none")}, Box: true, Engine: true}
	}
}

// Holds returns the guarantees that hold around every call, requested or not.
func (p *Program) Holds() tool.Guarantees {
	if p.walls == nil {
		return tool.Guarantees{Sandbox: true}
	}
	return p.walls.Holds()
}

// Unavailable returns why the program cannot be started now: it or its folder is missing.
func (p *Program) Unavailable() error {
	if p.o.contained() {
		return nil
	}
	if info, err := os.Stat(p.Dir); err != nil || !info.IsDir() {
		return tool.Errorf(tool.CodeUnavailable, "its folder %s is not there", p.Dir)
	}
	if path := p.path.Load(); path != nil {
		if _, err := exec.LookPath(*path); err == nil {
			return nil
		}
	}
	path, err := exec.LookPath(p.Argv[0])
	if err != nil {
		return process.Diagnose(p.Argv, p.Dir, err)
	}
	p.path.Store(&path)
	return nil
}

// Missing returns an error if the program of a source, its script, its folder, or a folder that it may write is missing,
// without building the source. It is for protocols whose sources have a command.
func Missing(src config.Source) error {
	var o struct {
		Command   []string `yaml:"command" kind:"path"`
		Dir       string   `yaml:"dir" kind:"path"`
		Container struct {
			Image string `yaml:"image"`
		} `yaml:"container"`
		Walls walls.Options `yaml:"walls"`
	}
	if err := src.Peek(&o); err != nil || o.Container.Image != "" {
		return nil // there is nothing to find, or the decoder of the options reports the mistake
	}
	for _, path := range o.Walls.Write {
		if _, err := os.Stat(offlimits.Under(src.Dir, path)); errors.Is(err, fs.ErrNotExist) {
			return tool.Errorf(tool.CodeUnavailable, "walls.write names %s, which does not exist; make it", path)
		}
	}
	if len(o.Command) == 0 || o.Command[0] == "" {
		return nil
	}
	p := Program{Argv: slices.Clone(o.Command), Dir: offlimits.Under(src.Dir, o.Dir)}
	if p.fetches() && o.Walls.NoNetwork() {
		return tool.Errorf(tool.CodeUnavailable, "%s fetches what it runs, and behind its walls it has no network: `toolpost mcp "+
			"add -- %s` installs the server once and writes the source", o.Command[0], strings.Join(o.Command, " "))
	}
	if strings.Contains(p.Argv[0], "/") {
		p.Argv[0] = offlimits.Under(p.Dir, p.Argv[0])
	}
	if err := p.Unavailable(); err != nil || len(p.Argv) == 1 || !script().MatchString(p.Argv[1]) {
		return err
	}
	if _, err := os.Stat(offlimits.Under(p.Dir, p.Argv[1])); errors.Is(err, fs.ErrNotExist) {
		return tool.Errorf(tool.CodeUnavailable, "its command names %s, which does not exist in %s", p.Argv[1], p.Dir)
	}
	return nil
}

// fetches reports whether the program is a package runner, which fetches at each start what is not installed beside it.
func (p *Program) fetches() bool {
	if _, always := Fetches(p.Argv[0]); !always {
		return false
	}
	return !slices.ContainsFunc(p.Argv[1:], func(word string) bool {
		_, missing := os.Stat(filepath.Join(p.Dir, "node_modules", ".bin", word))
		return slices.Contains([]string{"--no", "--no-install", "--offline"}, word) || missing == nil && !strings.HasPrefix(word, ".")
	})
}

// Fetches reports whether a program may fetch what it runs at each start, and whether that is all it does.
func Fetches(program string) (may, always bool) {
	always, may = map[string]bool{
		"npx": true, "uvx": true, "bunx": true, "pnpx": true, "uv": false, "pipx": false, "pnpm": false, "yarn": false, "bun": false,
		"deno": false, "docker": false, "podman": false,
	}[filepath.Base(program)]
	return may, always
}

// script matches an argument behind an interpreter that is a file.
var script = regex.Lazy(`^[^-].*\.(py|js|mjs|cjs|ts|sh|rb|pl)$`)

// A Run is one start of a program.
type Run struct {
	Name       string            // of the tool, for messages
	Args       []string          // after those of the command
	Env        map[string]string // more variables
	Call       *tool.Call        // whose trace it continues; nil if there is none
	Guarantees tool.Guarantees   // that hold for it
	Watch      *walls.Watch      // sees what the walls stop; may be nil

	Look        bool // see process.Command, as for those below
	Stderr      func(line []byte)
	StderrLimit int
	Redraws     bool
}

// Start starts the program, with its secrets, behind its walls or in its container. A guarantee that cannot be enforced
// is an error with the reason coverage_missing.
func (p *Program) Start(ctx context.Context, r Run) (*process.Child, error) {
	cmd := process.Command{
		Argv: p.Argv, Dir: p.Dir, Env: distinct(slices.Concat(p.env, process.Assigned(r.Env))),
		Look: r.Look, Stderr: r.Stderr, StderrLimit: r.StderrLimit, Redraws: r.Redraws,
	}
	if r.Call != nil {
		cmd.Env = r.Call.TraceEnv(cmd.Env)
	}
	if err := p.confine(ctx, &cmd, r); err != nil {
		return nil, err
	}
	cmd.Argv = slices.Concat(cmd.Argv, r.Args)
	given, err := p.o.Give(&cmd, r.Guarantees.SecretsAllowed)
	if err != nil {
		return nil, err
	}
	defer given()
	if p.Box != nil {
		if cmd, err = p.Box.Enclose(cmd, r.Guarantees); err != nil {
			return nil, err
		}
	}
	child, err := process.Start(cmd)
	if err != nil && cmd.End != nil {
		cmd.End(false)
	}
	return child, err
}

// confine puts the walls around a command, and refuses guarantees that no container enforces.
func (p *Program) confine(ctx context.Context, cmd *process.Command, r Run) error {
	if missing := container.Uncovered(r.Guarantees); p.o.contained() && len(missing) > 0 {
		return tool.Errorf(tool.CodeUnsupported, "%s was not run: %s cannot be enforced by a container; "+
			"drop the guarantee, or run it without a container", r.Name,
			strings.Join(missing, ", ")).Because(sandbox.CoverageMissing)
	}
	if p.walls == nil {
		return nil
	}
	found, err := p.find(ctx)
	if err != nil {
		return err
	}
	cmd.Argv = found.argv
	cmd.Confine, err = found.walls.Confine(r.Name, r.Guarantees, r.Watch)
	return err
}

// find determines how the program is started. The result is kept.
func (p *Program) find(ctx context.Context) (*found, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.found == nil {
		argv, code, err := walls.Find(ctx, p.Argv, p.Dir, p.env)
		if err != nil {
			return nil, err
		}
		p.found = &found{argv: argv, walls: p.walls.With(code)}
	}
	return p.found, nil
}
