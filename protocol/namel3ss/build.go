package namel3ss

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"toolpost/process"
	"toolpost/tool"
)

// A builder makes the runner of a source from its options and the files of its app.
type builder struct {
	Options
	dir string
	app *app
	log *slog.Logger
}

func (b *builder) runner(ctx context.Context) (*Runner, error) {
	r := &Runner{tools: map[string]*localTool{}, names: b.app.names()}
	if b.Tool != "" {
		r.names = []string{b.Tool}
	}
	runnable := false
	for _, name := range r.names {
		t, err := b.tool(name)
		if err != nil {
			return nil, err
		}
		r.tools[name] = t
		runnable = runnable || t.problem == nil
	}
	return r, b.equip(ctx, r, runnable)
}

// equip gives the tools what they run on. An app without a tool that could run needs no Python.
func (b *builder) equip(ctx context.Context, r *Runner, runnable bool) (err error) {
	var python interpreter
	if runnable {
		if python, err = findPython(ctx, b.app.root, b.python(), process.Environment(b.Env, b.PassEnv)); err != nil {
			return err
		}
	}
	if r.host, err = openHost(); err != nil {
		return err
	}
	for _, t := range r.tools {
		t.python, t.host = python, r.host
	}
	return nil
}

// python is the interpreter that the user asked for; one with a slash in it starts in the config's folder.
func (b *builder) python() string {
	if strings.Contains(b.Interpreter, "/") {
		return under(b.dir, b.Interpreter)
	}
	return b.Interpreter
}

func (b *builder) tool(name string) (*localTool, error) {
	declared := cmp.Or(b.app.declared[name], &declaration{})
	bound := cmp.Or(b.app.bindings[name], &binding{})
	if b.Entry != "" {
		bound = &binding{Kind: "python", Entry: b.Entry}
	} else if b.app.declared[name] == nil && b.app.bindings[name] == nil {
		return nil, tool.Errorf(tool.CodeNotFound, "the app %s has no tool %q; give its function with `entry`", b.app.root, name)
	}
	timeout, err := b.app.timeout(declared, bound)
	if err != nil {
		return nil, err
	}
	kind := cmp.Or(bound.Kind, declared.kind, "python")
	if declared.kind != "" && bound.Kind != "" && declared.kind != bound.Kind {
		return nil, tool.Errorf(tool.CodeInvalidInput, "tool %q is implemented using %s in app.ai, but bound as %s", name, declared.kind, bound.Kind)
	}
	t := &localTool{
		root: b.app.root, entry: bound.Entry, kind: kind, purity: cmp.Or(bound.Purity, declared.purity),
		sandbox: cmp.Or(b.Sandbox, bound.Sandbox), unsafe: b.AllowUnsafeExecution || b.app.unsafe(),
		problem: whyNot(name, kind, bound), deps: b.app.depsSource(), env: b.env(bound), redact: b.redact(bound),
		log: b.log.With("tool", name), mode: cmp.Or(b.Mode, modeWarm),
	}
	t.spec = b.spec(name, declared, t.purity, cmp.Or(time.Duration(b.Timeout), timeout))
	if t.mode == modeWarm && t.problem == nil {
		t.pool = process.NewPool(t.startWorker, process.PoolOptions{Name: "its interpreter", Max: b.Workers})
	}
	return t, nil
}

func (b *builder) spec(name string, d *declaration, purity string, timeout time.Duration) *tool.Spec {
	s := &tool.Spec{
		Name: name, Description: b.Description, Input: bytes.Clone(b.Input), Output: bytes.Clone(b.Output),
		Effects: b.Effects, Tier: b.Tier, Timeout: timeout, Guarantees: b.Guarantees,
	}
	if s.Input == nil {
		s.Input = d.input.open()
	}
	if s.Output == nil {
		s.Output = d.output.schema()
	}
	if purity == "pure" { // the same input gives the same output: calling it twice does no harm
		s.Effects.Idempotent = true
	}
	return s
}

// open is the schema of a shape, or one that takes any object.
func (s *shape) open() json.RawMessage {
	if s == nil {
		return json.RawMessage(`{"type":"object"}`)
	}
	return s.schema()
}

// env is what a tool gets to see: the usual few, what its binding and the user's config say, and the app
// in front of everything else that Python can import.
func (b *builder) env(bound *binding) []string {
	vars := b.vars(bound)
	path := b.app.root
	if more := vars["PYTHONPATH"]; more != "" {
		path += string(filepath.ListSeparator) + more
	}
	vars["PYTHONPATH"] = path
	return process.Environment(vars, nil)
}

// vars are the variables that somebody chose for a tool. The user's word goes before the app's.
func (b *builder) vars(bound *binding) map[string]string {
	vars := map[string]string{}
	for _, name := range b.PassEnv {
		if value, ok := os.LookupEnv(name); ok {
			vars[name] = value
		}
	}
	maps.Copy(vars, bound.Env)
	maps.Copy(vars, b.Env)
	return vars
}

// redact takes the values that were passed to a tool out of what it prints: they may be secrets. Short
// ones are words of any text.
func (b *builder) redact(bound *binding) *strings.Replacer {
	var pairs []string
	for name, value := range b.vars(bound) {
		if len(value) >= 8 && name != "PYTHONPATH" {
			pairs = append(pairs, value, "["+name+"]")
		}
	}
	return strings.NewReplacer(pairs...)
}
