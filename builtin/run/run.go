// Package run brings the built-in tools runCode, which runs a program that calls tools, and describe_tools, which explains
// how to call them from one.
//
// A program runs in a clean process of a warm interpreter, in a room without network, files, environment or other processes.
// It can only compute, print, and call tools over one channel. A call on the channel consists of the tool's name and the
// arguments, and nothing else: who calls, on whose behalf and under which id is decided here, from the call that the program
// runs for. So each of its calls passes the whole engine as if its caller had made it, and a program can do no more than its
// caller can.
package run

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"toolpost/builtin/define"
	"toolpost/codesearch/toolfind"
	"toolpost/config"
	"toolpost/config/offlimits"
	"toolpost/host/process"
	"toolpost/host/walls"
	"toolpost/tool"
	"toolpost/wire/typeschema"
)

// The names of the tools.
const (
	Name         = "runCode"
	describeName = "describe_tools"
)

// A Setting is the environment of the tools.
type Setting struct {
	Engine    config.Engine      // runs the calls of programs, and has the catalogue
	Dir       string             // the folder of the config
	Source    string             // its name
	OffLimits *offlimits.Checker // what no tool sees
	Log       *slog.Logger
}

// Tools runs programs.
type Tools struct {
	*define.Set
	Setting
	o         Options
	spec      *tool.Spec // of runCode
	languages map[string]*language
	finder    toolfind.Finder
}

// New makes the tools.
func New(s Setting, o Options) (*Tools, error) {
	t := &Tools{Setting: s, o: o.withDefaults()}
	around, err := t.walls(nil)
	if err != nil {
		return nil, err
	}
	t.languages = map[string]*language{
		python:     {t: t, name: "Python", program: t.o.Python, setting: "python", open: t.openPython},
		javascript: {t: t, name: "JavaScript", program: t.o.Node, setting: "node", open: t.openNode},
	}
	t.Set = define.NewSet(t.tools(around)...)
	return t, nil
}

// guarantees hold around every program, whatever the caller asks for.
func guarantees() tool.Guarantees {
	return tool.Guarantees{
		NoFilesystemRead: true, NoFilesystemWrite: true, NoNetwork: true, NoSubprocess: true, NoEnvRead: true,
		NoEnvWrite: true, SecretsAllowed: []string{}, Sandbox: true,
	}
}

// The languages.
const (
	python     = "python"
	javascript = "javascript"
)

type runArgs struct {
	Language string  `json:"language" schema:"required enum=python|javascript" doc:"The language of the program."`
	Code     string  `json:"code" schema:"required maxLength=1048576" doc:"The program. It may use await and return at top level."`
	Timeout  float64 `json:"timeout" schema:"exclusiveMinimum=0" doc:"How many seconds it may take."`
}

// An output is the result of a program.
type output struct {
	Result    json.RawMessage `json:"result" doc:"What the program returned."`
	Stdout    string          `json:"stdout" doc:"What it printed."`
	Stderr    string          `json:"stderr" doc:"What it printed to standard error."`
	Truncated bool            `json:"truncated" doc:"Whether it printed more than is given here."`
	Calls     int             `json:"calls" doc:"How many calls it made."`
}

// tools defines the tools.
//
// runCode has tier 0 although it runs programs: a lease covers what a tool can do by itself, and a program can do nothing by
// itself. Each of its calls needs the lease of the tool that it calls.
func (t *Tools) tools(around *walls.Walls) []define.Tool {
	most := time.Duration(t.o.Timeout).String()
	t.spec = &tool.Spec{
		Name: Name, Title: "Run a program that calls tools", Aliases: []string{"code.run"},
		Description: "Runs a program of yours that calls tools as functions, and returns its result and its output. Use it for many " +
			"calls, loops and data that you need not see. Python: await tools.SOURCE.NAME(path=...), side by side with " +
			"asyncio.gather; JavaScript: await tools.SOURCE.NAME({path: ...}), with Promise.all; also tools[\"name\"](...). " +
			"A call that fails raises ToolError with code and message. return gives the result, as JSON. There are no files " +
			"and no network, and only packages installed for the interpreter can be imported. " + describeName +
			" gives the functions that there are.",
		Effects: tool.Effects{Exec: true}, Timeout: time.Duration(t.o.Timeout) + process.LastBreath, Guarantees: guarantees(),
		Input: define.Input[runArgs](func(p *typeschema.Object) {
			p.At("timeout").Set("description", "How many seconds it may take; at most "+most+", which is also the default.")
		}),
	}
	t.spec.Declare(new(int), tool.TierTool)
	around.Publish(t.spec)
	t.spec.Room = &tool.Room{Fixed: true}
	return []define.Tool{
		define.New(*t.spec, t.run),
		define.New(tool.Spec{
			Name: describeName, Title: "Show how to call tools from a program", Aliases: []string{"code.describe"},
			Description: "Describes the tools that you may call as typed functions in " + Name + ": Python stubs, or " +
				"TypeScript declarations. Name some tools, or search for what they do; without either, it describes all.",
			Effects: tool.Effects{Reads: true, Idempotent: true},
		}, t.describe),
	}
}

// walls returns the walls around programs whose interpreter needs this code besides the system's. Programs get nothing that
// a config grants to other tools.
func (t *Tools) walls(code []string) (*walls.Walls, error) {
	o := walls.Options{Memory: t.o.Memory, Processes: maxThreads, OffLimits: t.OffLimits, Source: t.Source}
	return o.Around(walls.Needs{Dir: t.Dir, Run: code})
}

// maxThreads is how many processes and threads a room has, including the interpreter's own.
const maxThreads = 64

// run runs a program.
func (t *Tools) run(ctx context.Context, c *define.Call, a runArgs) (output, error) {
	limit, more := time.Duration(t.o.Timeout), "`code: {run: {timeout: ...}}` of its source gives it more"
	if asked := time.Duration(a.Timeout * float64(time.Second)); 0 < asked && asked < limit {
		limit, more = asked, "ask for a longer timeout"
	}
	worker, err := t.languages[a.Language].get(ctx, c.Depth)
	if err != nil {
		return output{}, err
	}
	late := tool.Errorf(tool.CodeTimeout,
		"the program did not end within %v, and was ended with all that it had called; %s", limit, more)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, late)
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	events := tool.NewRelay(c.Out, stop)
	defer events.Close()
	p := &program{
		t: t, call: c.Call, code: a.Code, events: events,
		stdout: define.NewStream("stdout", events, t.o.MaxOutput), stderr: define.NewStream("stderr", events, t.o.MaxOutput),
	}
	e, err := worker.run(ctx, p)
	for tool.CodeOf(err) == "" && e.again { // the interpreter had ended before it got the program
		if worker, err = t.languages[a.Language].get(ctx, c.Depth); err == nil {
			e, err = worker.run(ctx, p)
		}
	}
	c.Details = map[string]any{"language": a.Language, "calls": p.made}
	walls.Enforced(c.Call, c.Details, guarantees(), e.layers, e.checks)
	switch {
	case events.Err() != nil:
		return output{}, events.Err()
	case ctx.Err() != nil && e.said == nil:
		return output{}, tool.Ended(ctx)
	case err != nil:
		return output{}, err
	}
	return p.outcome(c, e)
}

// Workers implements tool.Staffed.
func (t *Tools) Workers() (n tool.Workers) {
	for _, l := range t.languages {
		n = n.Plus(l.workers())
	}
	return n
}

// Close implements tool.Runner.
func (t *Tools) Close(ctx context.Context) error {
	var failed error
	for _, l := range t.languages {
		if err := l.close(ctx); err != nil {
			failed = err
		}
	}
	return failed
}
