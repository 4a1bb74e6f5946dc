package command

import (
	"context"
	"log/slog"
	"os"
	"slices"

	"toolpost/config"
	"toolpost/config/offlimits"
	"toolpost/host/process"
	"toolpost/host/spawn"
	"toolpost/host/walls"
	"toolpost/tool"
)

// A Runner runs the tools of one source, a fresh process for every call. It owns nothing between calls.
type Runner struct {
	forms []*form // in the order of the config
	own   tool.Guarantees
}

var (
	_ tool.Runner  = (*Runner)(nil)
	_ tool.Source  = (*Runner)(nil)
	_ tool.Toucher = (*Runner)(nil)
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
	o := Options{Tool: Tool{Name: src.Name}, Options: spawn.Of(src)}
	return o, src.Decode(&o)
}

// Claim returns the files that a configured source starts from, and those that its tools may change.
func Claim(src config.Source) (offlimits.Claim, error) {
	o, err := optionsOf(src)
	if err != nil {
		return offlimits.Claim{}, err
	}
	return o.claim(src.Dir)
}

// New makes a runner. Nothing is started until it is called. Relative paths are relative to base, the folder of the config.
func New(base string, o Options) (*Runner, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	tools, err := o.all()
	if err != nil {
		return nil, err
	}
	r := &Runner{own: o.Guarantees}
	for _, t := range tools {
		f, err := o.form(base, t)
		if err != nil {
			e := *tool.AsError(err)
			e.Message = t.Name + ": " + e.Message
			return nil, &e
		}
		r.forms = append(r.forms, f)
	}
	return r, nil
}

// Tools implements tool.Source.
func (r *Runner) Tools(context.Context) (specs []*tool.Spec, err error) {
	for _, f := range r.forms {
		specs = append(specs, f.spec)
	}
	return specs, nil
}

// find returns the tool with a name.
func (r *Runner) find(name string) (*form, error) {
	i := slices.IndexFunc(r.forms, func(f *form) bool { return f.Name == name })
	if i < 0 {
		return nil, tool.Errorf(tool.CodeNotFound, "the source has no tool named %q", name)
	}
	return r.forms[i], nil
}

// Unavailable returns why a tool cannot be called at present: its program or its folder is missing.
func (r *Runner) Unavailable(name string) error {
	f, err := r.find(name)
	if err != nil {
		return err
	}
	return f.program.Unavailable()
}

// Close implements tool.Runner. Every call has ended what it started.
func (r *Runner) Close(context.Context) error { return nil }

// Touches implements tool.Toucher: the command line, and the files that its paths name.
func (r *Runner) Touches(c *tool.Call) (tool.Touches, error) {
	f, err := r.find(c.Tool)
	if err != nil {
		return tool.Touches{}, err
	}
	p, err := f.prepare(c)
	if err != nil {
		return tool.Touches{}, err
	}
	t := tool.Touches{Reads: p.values.paths, Commands: [][]string{p.argv}}
	if f.Effects.Writes || f.Effects.Destructive {
		t.Writes = p.values.paths
	}
	return t, nil
}

// prepared is a decoded call, before anything runs.
type prepared struct {
	values *values
	argv   []string
	stdin  []byte
	assets []string // patterns
}

func (f *form) prepare(c *tool.Call) (*prepared, error) {
	v, err := readValues(c.Args, f.about, f.program.Dir)
	if err != nil {
		return nil, err
	}
	p := &prepared{values: v}
	if p.argv, err = render(f.Command, v); err != nil {
		return nil, err
	}
	if p.stdin, err = v.input(f.Stdin, c.Args); err != nil {
		return nil, err
	}
	p.assets, err = v.patterns(f.Assets)
	return p, err
}

// Invoke implements tool.Handler.
func (r *Runner) Invoke(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	f, err := r.find(c.Tool)
	if err != nil {
		return nil, err
	}
	p, err := f.prepare(c)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, f.interrupted(ctx, "")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	events := tool.NewRelay(out, cancel)
	defer events.Close()
	run := &call{asked: c, form: f, prepared: p, events: events, guarantees: c.Tightened(r.own)}
	run.meter = f.progress.meter(p.values, events)
	run.watch.Follow(events, walls.Sources(r.own, run.guarantees))
	if len(p.assets) > 0 {
		root, err := os.OpenRoot(f.program.Dir)
		if err != nil {
			return nil, tool.Errorf(tool.CodeUnavailable, "the folder of %s: %w", f.Name, err)
		}
		defer root.Close()
		if run.made, err = watchFiles(root, p.assets); err != nil {
			return nil, err
		}
	}
	child, err := f.program.Start(ctx, spawn.Run{
		Name: f.Name, Call: c, Args: p.argv[f.lead:], Guarantees: run.guarantees, Watch: &run.watch, Look: len(p.assets) > 0,
		Stderr: run.stderr, StderrLimit: int(f.MaxOutput), Redraws: f.progress != nil,
	})
	if err != nil {
		return nil, err
	}
	defer child.Close()
	child.Feed(p.stdin)
	run.child, run.reaper = child, process.Reap(ctx, child, lastRead)
	output, fault := run.read()
	<-run.reaper.Ended
	return run.outcome(ctx, output, fault)
}
