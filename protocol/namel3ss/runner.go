package namel3ss

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"toolpost/config"
	"toolpost/config/offlimits"
	"toolpost/host/forks"
	"toolpost/host/process"
	"toolpost/host/sandbox"
	"toolpost/host/spawn"
	"toolpost/host/walls"
	"toolpost/protocol/namel3ss/appfile"
	"toolpost/protocol/namel3ss/pack"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// Options are the fields of a source of this protocol. A source is a whole app, or a single tool if Tool is set. The options
// apply to each of its tools and override the app's own files.
type Options struct {
	App         string      `yaml:"app" kind:"path" doc:"the app's folder, relative to dir; default: dir"`
	Tool        string      `yaml:"tool" doc:"offer only this tool"`
	Kind        string      `yaml:"kind" schema:"enum=python|node default=python" doc:"language of the tool's function"`
	Entry       string      `yaml:"entry" doc:"the tool's function, as module:function"`
	Runner      string      `yaml:"runner" schema:"enum=local|service|container" doc:"where the tool runs; default: container if container.image is set, otherwise local"`
	URL         string      `yaml:"url" doc:"the service's URL, such as http://127.0.0.1:8787/tools"`
	TokenEnv    string      `yaml:"token_env" doc:"environment variable with the service's token"`
	Handshake   bool        `yaml:"service_handshake_required" doc:"ask the service what it enforces even if no guarantee needs it"`
	Image       string      `yaml:"image" doc:"image for a single tool; takes precedence over container.image"`
	Command     []string    `yaml:"command" doc:"what to run in the container; default: the image's own command"`
	Description string      `yaml:"description" doc:"what the tool does, for the model or person that chooses it"`
	Input       config.JSON `yaml:"input" doc:"JSON Schema of the tool's arguments"`
	Output      config.JSON `yaml:"output" doc:"JSON Schema of the tool's result"`
	Interpreter string      `yaml:"python" doc:"the Python to use; default: the app's .venv, then python3"`
	Node        string      `yaml:"node" doc:"the Node.js to use; default: node"`
	Mode        string      `yaml:"mode" schema:"enum=warm|fresh default=warm" doc:"warm: fork a clean child for each call; fresh: start an interpreter for each call"`
	Workers     int         `yaml:"workers" schema:"default=16" doc:"interpreters per tool at most; further calls wait, see limits.queue"`

	spawn.Options // the default timeout is the app's, or else 10s

	PackKeys []string     `yaml:"pack_keys" kind:"path" doc:"public key files; installed packs signed by one of these keys are run"`
	Trusted  []string     `yaml:"trusted_packs" doc:"ids of installed packs to run without such a signature"`
	Effects  tool.Effects `yaml:"effects" doc:"what the tools do to the world"`
	Tier     *int         `yaml:"tier" doc:"0 (safe) to 3 (dangerous); default: from the effects, and 1 if nothing is known of them"`
	Sandbox  *bool        `yaml:"sandbox" doc:"whether requests to the tools say sandbox: true"`

	AllowUnsafeExecution bool `yaml:"allow_unsafe_execution" doc:"run even if a guarantee cannot be enforced here"`
}

const (
	modeWarm  = "warm"
	modeFresh = "fresh"
)

// A Runner runs the tools of one source.
type Runner struct {
	host  *os.File
	names []string
	tools map[string]*boundTool
}

var (
	_ tool.Runner = (*Runner)(nil)
	_ tool.Source = (*Runner)(nil)
)

// A localTool is a Python function that we run ourselves.
type localTool struct {
	*facts
	python  interpreter
	deps    string
	vars    map[string]string // configured for it
	imports string            // the folders that it imports from first
	fields  string            // the names of its arguments as JSON; null if they are unknown
	host    *os.File
	around  *walls.Walls

	mode   string
	pools  *pools                                     // nil if it is never warm
	fork   func(call sandbox.Profile) ([]byte, error) // returns how a fork of a server confines itself for a call
	forced atomic.Pointer[forced]
}

// forced records why a tool that should be warm must not be, as long as these files are unchanged.
type forced struct {
	reason string
	files  []stamp
}

// Open reads the app of a source and prepares its tools.
func Open(ctx context.Context, src config.Source, log *slog.Logger) (tool.Runner, error) {
	o, err := optionsOf(src)
	if err != nil {
		return nil, err
	}
	return tool.Opened(New(ctx, src.Dir, o, log))
}

func optionsOf(src config.Source) (Options, error) {
	o := Options{Options: spawn.Of(src)}
	return o, src.Decode(&o)
}

// New is Open with decoded options. Their relative paths are relative to dir.
func New(ctx context.Context, dir string, o Options, log *slog.Logger) (*Runner, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.Runner == "" && o.Container.Image != "" {
		o.Runner = appfile.RunnerContainer
	}
	root, err := filepath.Abs(offlimits.Under(o.Folder(dir), o.App))
	if err != nil {
		return nil, tool.Errorf(tool.CodeUnavailable, "the app's folder: %w", err)
	}
	if strings.ContainsRune(root, os.PathListSeparator) {
		return nil, tool.Errorf(tool.CodeInvalidInput, "Python cannot import from %s: its name has a colon", root)
	}
	a, err := loadApp(root)
	if err != nil {
		return nil, err
	}
	b := &builder{Options: o, dir: dir, app: a, log: log}
	return b.runner(ctx)
}

func (o Options) check() error {
	choices := appfile.CheckChoices(appfile.Choice{Name: "mode", Value: o.Mode, Known: []string{modeWarm, modeFresh}},
		appfile.Choice{Name: "kind", Value: o.Kind, Known: appfile.Kinds()},
		appfile.Choice{Name: "runner", Value: o.Runner, Known: appfile.RunnerNames()})
	switch {
	case choices != nil:
		return tool.Errorf(tool.CodeInvalidInput, "%w", choices)
	case o.Workers < 0:
		return tool.Errorf(tool.CodeInvalidInput, "workers cannot be negative")
	case tool.CheckTier(o.Tier) != nil:
		return tool.CheckTier(o.Tier)
	case o.Tool == "" &&
		(o.Entry != "" || o.Kind != "" || o.Image != "" || o.Command != nil || o.Description != "" || o.Input != nil ||
			o.Output != nil):
		return tool.Errorf(tool.CodeInvalidInput,
			"entry, kind, image, command, description, input and output belong to a single tool; name it with `tool`")
	case o.Entry != "":
		return appfile.CheckEntry(o.Kind, o.Entry)
	}
	return o.Options.Check()
}

// Tools implements tool.Source.
func (r *Runner) Tools(context.Context) ([]*tool.Spec, error) {
	var specs []*tool.Spec
	for _, name := range r.names {
		specs = append(specs, r.tools[name].spec)
	}
	return specs, nil
}

// Unavailable returns why a tool of the app cannot be called, or nil. The app's other tools are not affected.
func (r *Runner) Unavailable(name string) error {
	if t := r.tools[name]; t != nil {
		return t.problem
	}
	return nil
}

// Places returns how many calls of a tool run at once: as many as it has interpreters, even if each call starts its own.
func (r *Runner) Places(name string) (pool string, calls int) {
	if t := r.tools[name]; t != nil && t.problem == nil && t.runner == appfile.RunnerLocal {
		return name, t.workers
	}
	return "", 0
}

// Close implements tool.Runner.
func (r *Runner) Close(ctx context.Context) error {
	err := atOnce(r.names, func(name string) error {
		if t := r.tools[name]; t.problem == nil {
			return t.way.close(ctx)
		}
		return nil
	})
	return errors.Join(err, r.host.Close())
}

// Invoke implements tool.Handler.
func (r *Runner) Invoke(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	t := r.tools[c.Tool]
	switch {
	case t == nil:
		return nil, tool.Errorf(tool.CodeNotFound, "no tool named %q in this app", c.Tool)
	case t.problem != nil:
		return nil, about(c.Tool, t.problem)
	}
	args := strictjson.OrEmpty(c.Args)
	if kind := strictjson.KindOf(args); kind != "object" {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s takes an object, not %s", c.Tool, kind)
	}
	return t.invoke(ctx, c, args, out)
}

func (t *localTool) describe(tr *trace) {
	tr.set("python_env", t.python.env)
	tr.set("python_path", t.python.path)
	tr.set("deps_source", t.deps)
}

func (t *localTool) close(ctx context.Context) error {
	if t.pools == nil {
		return nil
	}
	return t.pools.close(ctx)
}

// environment returns the variables that a tool sees beside its secrets: the usual few, and those of its binding and the
// user's config.
func (t *localTool) environment(g tool.Guarantees) []string {
	vars := allowed(t.vars, g)
	vars["PYTHONPATH"] = t.imports
	return t.around.Environment(process.Environment(vars, nil))
}

func (t *localTool) run(ctx context.Context, inv *invocation) (*reply, error) {
	return t.runCode(ctx, inv, t)
}

// execute runs the tool's code in the configured mode, or in a fresh interpreter if it cannot be warm.
func (t *localTool) execute(ctx context.Context, doc []byte, inv *invocation) (ending, error) {
	if t.around.Stand(tool.Guarantees{}) {
		inv.held.Sandbox = false // it is sandboxed already: keep no further interpreters for such calls
	}
	if t.mode == modeFresh {
		inv.trace.set("mode", modeFresh)
		return t.fresh(ctx, doc, inv)
	}
	if f := t.forced.Load(); f != nil && !changed(f.files) {
		return t.instead(ctx, f.reason, doc, inv)
	}
	p, unfit, err := t.pools.take(ctx, inv)
	switch {
	case err != nil:
		return ending{}, err
	case p == nil:
		return t.instead(ctx, unfit, doc, inv)
	}
	defer t.pools.leave(p)
	for {
		e, err := t.warm(ctx, p, doc, inv)
		if !errors.Is(err, forks.ErrGone) {
			return e, err
		}
	}
}

// warm runs a call on a fork server.
func (t *localTool) warm(ctx context.Context, p *pool, doc []byte, inv *invocation) (ending, error) {
	w, err := p.worker(ctx)
	if err != nil {
		return ending{}, err
	}
	switch {
	case !w.hello.Ready:
		p.Retire(w)
		inv.trace.set("mode", modeWarm)
		w.enforced(inv)
		return ending{reply: encodeReply(&reply{Error: w.hello.Error}, protocolVersion)}, nil
	case w.hello.Unsafe != "":
		p.Retire(w)
		t.forced.Store(&forced{reason: w.hello.Unsafe, files: w.hello.Files})
		return t.instead(ctx, w.hello.Unsafe, doc, inv)
	}
	inv.trace.set("mode", modeWarm)
	if p.late {
		inv.trace.set("mode_reason", "its code is imported in each call: no_subprocess holds for that too")
	}
	e, healthy, err := w.call(ctx, doc, inv)
	switch {
	case errors.Is(err, forks.ErrStale) || w.worn():
		p.Retire(w)
	default:
		if healthy {
			w.Prepare()
		}
		p.Put(w, healthy)
	}
	return e, err
}

// instead runs a call in a fresh interpreter although a warm one was wanted, and records why.
func (t *localTool) instead(ctx context.Context, why string, doc []byte, inv *invocation) (ending, error) {
	inv.trace.set("mode", modeFresh)
	inv.trace.set("mode_reason", why)
	return t.fresh(ctx, doc, inv)
}

// whyEnded returns why toolpost ended a call.
func whyEnded(ctx context.Context, name string) error {
	cause := context.Cause(ctx)
	if known, ok := errors.AsType[*tool.Error](cause); ok {
		return known
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return tool.Errorf(tool.CodeTimeout, "%s ran out of time and was ended: %w", name, cause)
	}
	return tool.Errorf(tool.CodeCancelled, "%s was cancelled: %w", name, cause)
}

// about puts the tool's name in front of an error.
func about(name string, err error) error {
	e := *tool.AsError(err)
	e.Message = name + ": " + e.Message
	return &e
}

// outcome interprets an ending by the rules of the contract: a valid reply counts whatever the exit status; no reply and a
// bad end is a crash; everything else breaks the protocol.
func (e ending) outcome(name, stderr string) (*reply, error) {
	if stderr != "" {
		stderr = "; the last it wrote to stderr: " + stderr
	}
	if e.exit.Code == noReply {
		stderr += "; it may have closed the descriptor of its reply"
	}
	bad := e.exit != process.Exit{}
	empty := len(strings.TrimSpace(string(e.reply))) == 0
	switch {
	case e.exit.Code == forks.NoWalls:
		return nil, tool.Errorf(tool.CodeUnavailable, "%s was not run: its walls could not be built%s", name,
			stderr).Because(sandbox.CoverageMissing)
	case empty && bad:
		return nil, tool.Errorf(tool.CodeCrash, "%s crashed: %s%s", name, cmp.Or(e.why, e.exit.String()), stderr)
	case empty:
		return nil, tool.Errorf(tool.CodeProtocol, "%s ended with exit status 0 and no reply%s", name, stderr)
	}
	rep, err := parseReply(e.reply)
	switch {
	case err != nil && bad:
		return nil, tool.Errorf(tool.CodeCrash, "%s crashed: %s, and what it had written is not a reply: %w%s", name,
			cmp.Or(e.why, e.exit.String()), err, stderr)
	case err != nil:
		return nil, tool.Errorf(tool.CodeProtocol, "%s broke the protocol: %w", name, err)
	}
	return rep, nil
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Claim returns the files that a configured source starts from, and those that its tools may change. In an app, the former
// decide which code runs and how. Its tools can also import from the rest of its folder, which takes precedence over
// Python's own library.
func Claim(src config.Source) (offlimits.Claim, error) {
	o, err := optionsOf(src)
	o.Container.Image = cmp.Or(o.Image, o.Container.Image)
	c := o.Granted(src.Dir)
	c.Stays = o.Mode != modeFresh
	app := offlimits.Under(o.Folder(src.Dir), o.App)
	if o.Runner == appfile.RunnerService {
		return c, err
	}
	c.Starts = offlimits.Given(app, appfile.DeclarationsFile, ".namel3ss/", "tools/", pack.LocalFolder+"/", ".venv/",
		settingsFile)
	c.Starts = append(c.Starts, offlimits.Given(src.Dir, o.PackKeys...)...)
	c.Starts = append(c.Starts, o.Container.Starts(src.Dir)...)
	c.Homes = append(append(c.Homes, filepath.Clean(app)+"/"), o.Homes(app, nil, c.Writes)...)
	for _, program := range []string{cmp.Or(o.Interpreter, "python3"), cmp.Or(o.Node, "node")} {
		c.Starts = append(c.Starts, offlimits.Argv(src.Dir, []string{program}, nil)...)
		c.Homes = append(c.Homes, o.Homes(src.Dir, []string{program}, c.Writes)...)
	}
	if home, err := os.UserHomeDir(); err == nil { // packages that the user installed for Python, see systemInterpreter
		c.Homes = append(c.Homes, offlimits.Given(home, ".local/lib/")...)
	}
	return withModules(c, app, o.Entry), err
}

// withModules adds the code of functions that are named by their modules: by the source's own entry and by the app's
// bindings. A module that does not exist here comes from elsewhere, and an empty one must not hide it.
func withModules(c offlimits.Claim, app string, entry string) offlimits.Claim {
	entries := []string{entry}
	data, _ := appfile.Read(app, bindingsFile) // an unreadable file starts nothing
	bindings, _ := appfile.ParseBindings(bindingsFile, data)
	for _, b := range bindings {
		entries = append(entries, b.Entry)
	}
	for _, e := range entries {
		module, _, _ := strings.Cut(e, ":")
		top, _, _ := strings.Cut(module, ".")
		for _, file := range []string{module, top, top + ".py", top + ".mjs", top + ".js"} {
			path := offlimits.Under(app, file)
			if _, err := os.Lstat(path); err == nil && module != "" {
				c.Starts = append(c.Starts, path)
			}
		}
	}
	return c
}
