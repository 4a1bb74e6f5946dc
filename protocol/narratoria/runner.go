package narratoria

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"toolpost/config"
	"toolpost/host/offlimits"
	"toolpost/host/process"
	"toolpost/host/secret"
	"toolpost/host/walls"
	"toolpost/tool"
)

// Options says how a tool is run. Only Tool and Command are needed.
type Options struct {
	Tool        string      `yaml:"tool" doc:"name of the tool; default: the name of the source"`
	Title       string      `yaml:"title" doc:"name for people"`
	Description string      `yaml:"description" doc:"what the tool does and when to use it"`
	Command     []string    `yaml:"command" doc:"the program, on PATH or, with a slash, from dir; and its arguments"`
	Operation   string      `yaml:"operation" doc:"what the request says as operation; default: run"`
	Input       config.JSON `yaml:"input" doc:"JSON Schema of the arguments"`
	Output      config.JSON `yaml:"output" doc:"JSON Schema of the result"`

	Dir     string            `yaml:"dir" doc:"working folder, from the folder of the config, which is the default"`
	Env     map[string]string `yaml:"env" doc:"environment beside PATH, HOME, LANG and TMPDIR"`
	PassEnv []string          `yaml:"pass_env" doc:"names of environment variables that are passed on"`
	secret.Grant

	Effects    tool.Effects    `yaml:"effects" doc:"what the tool does to the world"`
	Tier       int             `yaml:"tier" doc:"0 safe .. 3 dangerous"`
	Guarantees tool.Guarantees `yaml:"guarantees" doc:"what the tool must not be able to do"`
	Walls      walls.Options   `yaml:"walls" doc:"what the tool may do; default: read its folder, start programs, 512 MiB, 128 processes, no network"`

	Lenient   bool            `yaml:"lenient" doc:"report bad lines and unknown event types as warnings and go on; a missing version is 0"`
	Timeout   config.Duration `yaml:"timeout" doc:"of one call; default: limits.timeout"`
	Grace     config.Duration `yaml:"grace" doc:"how long the tool may take to exit after done; default: 2s"`
	MaxLine   int             `yaml:"max_line" doc:"bytes of one event; default: 4 MiB"`
	MaxOutput int64           `yaml:"max_output" doc:"bytes of all events of a call; default: 256 MiB"`
}

func (o Options) withDefaults() Options {
	if o.Operation == "" {
		o.Operation = "run"
	}
	if o.Grace == 0 {
		o.Grace = config.Duration(2 * time.Second)
	}
	if o.MaxLine == 0 {
		o.MaxLine = process.MaxLine
	}
	if o.MaxOutput == 0 {
		o.MaxOutput = 256 << 20
	}
	return o
}

// check finds what would otherwise only fail, or mislead, when the tool is called.
func (o Options) check() error {
	switch {
	case o.Tool == "":
		return tool.Errorf(tool.CodeInvalidInput, "a narratoria source needs a tool: the name to call it by")
	case len(o.Command) == 0 || o.Command[0] == "":
		return tool.Errorf(tool.CodeInvalidInput, "%s needs a command: the program to run and its arguments", o.Tool)
	case o.Tier < 0 || o.Tier > 3:
		return tool.Errorf(tool.CodeInvalidInput, "%s: tier must be 0, 1, 2 or 3, not %d", o.Tool, o.Tier)
	case o.Grace < 0 || o.Timeout < 0 || o.MaxLine < 0 || o.MaxOutput < 0:
		return tool.Errorf(tool.CodeInvalidInput, "%s: timeout, grace, max_line and max_output cannot be negative", o.Tool)
	}
	for name := range o.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			return tool.Errorf(tool.CodeInvalidInput, "%s: %q cannot be the name of an environment variable", o.Tool, name)
		}
	}
	return nil
}

// A Runner runs one tool, a fresh process for every call. It owns nothing between calls.
type Runner struct {
	o    Options
	spec *tool.Spec
	argv []string
	dir  string // absolute

	program *walls.Program
}

var (
	_ tool.Runner = (*Runner)(nil)
	_ tool.Source = (*Runner)(nil)
)

// Open makes the runner of a configured source.
func Open(_ context.Context, src config.Source, _ *slog.Logger) (tool.Runner, error) {
	o := Options{Tool: src.Name, Grant: secret.Grant{Vault: src.Secrets}, Walls: walls.Options{OffLimits: src.OffLimits}}
	if err := src.Decode(&o); err != nil {
		return nil, err
	}
	o.Dir = offlimits.Under(src.Dir, o.Dir)
	return New(src.Dir, o)
}

// Claim says which files a configured source starts from, and which its tool may change.
func Claim(src config.Source) (offlimits.Claim, error) {
	var o Options
	err := src.Decode(&o)
	c := o.Walls.Claim(src.Dir)
	c.Starts = offlimits.Argv(offlimits.Under(src.Dir, o.Dir), o.Command, c.Writes)
	return c, err
}

// New makes a runner. Nothing is started until it is called. Relative paths of the walls start in base, the folder of
// the config.
func New(base string, o Options) (*Runner, error) {
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, tool.Errorf(tool.CodeUnavailable, "%s: its folder %s: %w", o.Tool, o.Dir, err)
	}
	argv := slices.Clone(o.Command)
	if strings.Contains(argv[0], "/") {
		argv[0] = offlimits.Under(dir, argv[0])
	}
	needs, err := walls.NeedsOf(base, dir)
	if err != nil {
		return nil, err
	}
	r := &Runner{o: o, spec: o.spec(), argv: argv, dir: dir}
	if r.program, err = o.Walls.Program(needs, argv, dir, process.Environment(o.Env, o.PassEnv)); err != nil {
		return nil, err
	}
	r.spec.Walls, r.spec.Held = r.program.String(), r.program.Holds()
	return r, nil
}

func (o Options) spec() *tool.Spec {
	return &tool.Spec{
		Name: o.Tool, Title: o.Title, Description: o.Description,
		Input: json.RawMessage(o.Input), Output: json.RawMessage(o.Output),
		Effects: o.Effects, Tier: o.Tier, Timeout: time.Duration(o.Timeout), Guarantees: o.Guarantees,
	}
}

// Tools implements tool.Source: there is the one tool.
func (r *Runner) Tools(context.Context) ([]*tool.Spec, error) { return []*tool.Spec{r.spec}, nil }

// Unavailable says why the tool cannot be called as things are now: its program or its folder is missing.
func (r *Runner) Unavailable(string) error {
	if info, err := os.Stat(r.dir); err != nil || !info.IsDir() {
		return tool.Errorf(tool.CodeUnavailable, "its folder %s is not there", r.dir)
	}
	if _, err := exec.LookPath(r.argv[0]); err != nil {
		return process.Diagnose(r.argv, r.dir, err)
	}
	return nil
}

// Close implements tool.Runner. Every call has ended what it started.
func (r *Runner) Close(context.Context) error { return nil }

// Invoke implements tool.Handler.
func (r *Runner) Invoke(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	request, err := encodeRequest(c.ID, r.o.Tool, r.o.Operation, c.Args)
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "the arguments of %s cannot be sent: %w", r.o.Tool, err)
	}
	if ctx.Err() != nil {
		return nil, interrupted(ctx, r.o.Tool, "")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	events := tool.NewRelay(out, cancel)
	defer events.Close()
	run := &call{o: &r.o, Call: c, events: events, decoder: newDecoder(r.o.Lenient), guarantees: c.Tightened(r.spec.Guarantees)}
	run.watch.Follow(events, walls.Sources(r.spec.Guarantees, run.guarantees))
	child, err := run.start(ctx, r)
	if err != nil {
		return nil, err
	}
	defer child.Close()
	child.Feed(request)
	run.child, run.keeper, run.assets = child, keep(ctx, child, time.Duration(r.o.Grace)), assets{dir: r.dir, open: child.Open}
	run.read(ctx)
	<-run.keeper.ended
	return run.outcome(ctx)
}

// start starts the tool, with its secrets, behind its walls.
func (c *call) start(ctx context.Context, r *Runner) (*process.Child, error) {
	start, err := r.program.Find(ctx)
	if err != nil {
		return nil, err
	}
	confine, err := start.Walls.Confine(r.o.Tool, c.guarantees, &c.watch)
	if err != nil {
		return nil, err
	}
	cmd := process.Command{Argv: start.Argv, Dir: r.dir, Env: c.TraceEnv(start.Env), Stderr: c.events.Stderr, Confine: confine, Look: true}
	given, err := r.o.Give(&cmd, c.guarantees.SecretsAllowed)
	if err != nil {
		return nil, err
	}
	defer given()
	return process.Start(cmd)
}

// interrupted is the error of a call whose context ended.
func interrupted(ctx context.Context, name, tail string) *tool.Error {
	e := *tool.AsError(context.Cause(ctx))
	if e.Code == tool.CodeInternal { // a cause without a class: the context knows which of the two it was
		e.Code = tool.AsError(ctx.Err()).Code
	}
	e.Op, e.Err = "narratoria", context.Cause(ctx)
	e.Message = fmt.Sprintf("%s was ended: %s%s", name, e.Message, tail)
	return &e
}
