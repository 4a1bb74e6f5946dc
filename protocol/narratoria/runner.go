package narratoria

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"toolpost/config"
	"toolpost/config/offlimits"
	"toolpost/host/process"
	"toolpost/host/spawn"
	"toolpost/host/walls"
	"toolpost/tool"
	"toolpost/wire/bounded"
)

// Options configure how a tool is run. Only Tool and Command are needed.
type Options struct {
	Tool        string      `yaml:"tool" doc:"name of the tool; default: the source's name"`
	Title       string      `yaml:"title" doc:"display name"`
	Description string      `yaml:"description" doc:"what the tool does and when to use it"`
	Command     []string    `yaml:"command" kind:"path" doc:"program and arguments; the program is looked up on PATH or, if it contains a slash, relative to dir"`
	Operation   string      `yaml:"operation" schema:"default=run" doc:"value of operation in the request"`
	Input       config.JSON `yaml:"input" doc:"JSON Schema of the arguments"`
	Output      config.JSON `yaml:"output" doc:"JSON Schema of the result"`

	spawn.Options
	Effects tool.Effects `yaml:"effects" doc:"what the tool does to the world"`
	Tier    *int         `yaml:"tier" doc:"0 (safe) to 3 (dangerous); default: from the effects, and 1 if nothing is known of them"`

	Lenient   bool            `yaml:"lenient" doc:"report malformed lines and unknown event types as warnings and carry on; a missing version counts as 0"`
	Grace     config.Duration `yaml:"grace" schema:"default=2s" doc:"how long the program may take to exit after done"`
	MaxLine   int             `yaml:"max_line" kind:"bytes" schema:"default=4194304" doc:"bytes of one event"`
	MaxOutput int64           `yaml:"max_output" kind:"bytes" schema:"default=268435456" doc:"bytes of all events of one call"`
}

func (o Options) withDefaults() Options {
	o.Operation = cmp.Or(o.Operation, "run")
	o.Grace = cmp.Or(o.Grace, config.Duration(2*time.Second))
	o.MaxLine = cmp.Or(o.MaxLine, bounded.MaxLine)
	o.MaxOutput = cmp.Or(o.MaxOutput, 256<<20)
	return o
}

// check finds errors that would otherwise only show, or mislead, when the tool is called.
func (o Options) check() error {
	switch {
	case o.Tool == "":
		return tool.Errorf(tool.CodeInvalidInput, "a narratoria source needs a tool: the name to call it by")
	case slices.Equal(o.Command, []string{""}) || len(o.Command) == 0 && o.Container.Image == "":
		return tool.Errorf(tool.CodeInvalidInput, "%s needs a command: the program to run and its arguments", o.Tool)
	case tool.CheckTier(o.Tier) != nil:
		return tool.Errorf(tool.CodeInvalidInput, "%s: %s", o.Tool, tool.AsError(tool.CheckTier(o.Tier)).Message)
	case o.Grace < 0 || o.MaxLine < 0 || o.MaxOutput < 0:
		return tool.Errorf(tool.CodeInvalidInput, "%s: grace, max_line and max_output cannot be negative", o.Tool)
	}
	return o.Options.Check()
}

// A Runner runs one tool, a fresh process for every call. It owns nothing between calls.
type Runner struct {
	o       Options
	spec    *tool.Spec
	program *spawn.Program
}

var (
	_ tool.Runner = (*Runner)(nil)
	_ tool.Source = (*Runner)(nil)
)

// Open makes the runner of a configured source.
func Open(_ context.Context, src config.Source, _ *slog.Logger) (tool.Runner, error) {
	o, err := optionsOf(src)
	if err != nil {
		return nil, err
	}
	return tool.Opened(New(src.Dir, o))
}

func optionsOf(src config.Source) (Options, error) {
	o := Options{Tool: src.Name, Options: spawn.Of(src)}
	return o, src.Decode(&o)
}

// Claim returns the files that a configured source starts from, and those that its tool may change.
func Claim(src config.Source) (offlimits.Claim, error) {
	o, err := optionsOf(src)
	c := o.Claim(src.Dir, o.Command)
	c.Stays = false
	return c, err
}

// New makes a runner. Nothing is started until it is called. Relative paths are relative to base, the folder of the config.
func New(base string, o Options) (*Runner, error) {
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	p, err := o.Program(base, spawn.Command{Argv: o.Command, Scratch: true})
	if err != nil {
		return nil, err
	}
	r := &Runner{o: o, spec: o.spec(), program: p}
	r.program.Publish(r.spec)
	return r, nil
}

func (o Options) spec() *tool.Spec {
	s := &tool.Spec{
		Name: o.Tool, Title: o.Title, Description: o.Description,
		Input: json.RawMessage(o.Input), Output: json.RawMessage(o.Output),
		Effects: o.Effects, Timeout: time.Duration(o.Timeout), Guarantees: o.Guarantees,
	}
	s.Declare(o.Tier, tool.TierConfig)
	return s
}

// Tools implements tool.Source: it returns the one tool.
func (r *Runner) Tools(context.Context) ([]*tool.Spec, error) { return []*tool.Spec{r.spec}, nil }

// Unavailable returns why the tool cannot be called at present: its program or its folder is missing.
func (r *Runner) Unavailable(string) error { return r.program.Unavailable() }

// Close implements tool.Runner. Every call has ended what it started.
func (r *Runner) Close(context.Context) error { return nil }

// Invoke implements tool.Handler.
func (r *Runner) Invoke(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	request, err := encodeRequest(r.o.Tool, r.o.Operation, c)
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
	run := &call{
		o: &r.o, Call: c, events: events, decoder: newDecoder(r.o.Lenient), guarantees: c.Tightened(r.spec.Guarantees),
	}
	run.watch.Follow(events, walls.Sources(r.spec.Guarantees, run.guarantees))
	child, err := r.program.Start(ctx, spawn.Run{
		Name: r.o.Tool, Call: c, Guarantees: run.guarantees, Watch: &run.watch, Look: true, Stderr: events.Stderr,
	})
	if err != nil {
		return nil, err
	}
	defer child.Close()
	child.Feed(request)
	run.child, run.reaper, run.assets = child, process.Reap(ctx, child, time.Duration(r.o.Grace)), assets{
		dir: r.program.Dir, open: child.OpenFile,
	}
	run.read(ctx)
	<-run.reaper.Ended
	return run.outcome(ctx)
}

// interrupted returns the error of a call whose context ended.
func interrupted(ctx context.Context, name, tail string) *tool.Error {
	e := tool.Ended(ctx)
	e.Message = fmt.Sprintf("%s was ended: %s%s", name, e.Message, tail)
	return e
}
