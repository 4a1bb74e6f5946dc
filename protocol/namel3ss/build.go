package namel3ss

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

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

// A builder makes the runner of a source from its options and the files of its app.
type builder struct {
	Options
	dir    string
	app    *app
	log    *slog.Logger
	python *interpreter // found once, when a tool needs it
	node   string       // likewise
	nodeIn *walls.Walls // around its tools
	host   *os.File
}

func (b *builder) runner(ctx context.Context) (_ *Runner, err error) {
	var keys []string
	for _, path := range b.PackKeys {
		keys = append(keys, offlimits.Under(b.dir, path))
	}
	if err := pack.Trust(b.app.packs, keys, b.Trusted); err != nil {
		return nil, err
	}
	b.app.settle()
	r := &Runner{tools: map[string]*boundTool{}, names: b.app.names()}
	if b.Tool != "" {
		r.names = []string{b.Tool}
	}
	if r.host, err = forks.Sealed(slices.Concat([]byte(forks.Python()), hostSource)); err != nil {
		return nil, err
	}
	b.host = r.host
	for _, name := range r.names {
		if r.tools[name], err = b.tool(ctx, name); err != nil {
			_ = r.host.Close() // nothing else runs before the first call
			return nil, err
		}
	}
	return r, nil
}

// tool binds one tool. A tool that cannot run gets a problem; a fault of the whole source is an error.
func (b *builder) tool(ctx context.Context, name string) (*boundTool, error) {
	declared := cmp.Or(b.app.declared[name], &appfile.Declaration{})
	if b.Entry != "" && declared.Problem != nil {
		declared = &appfile.Declaration{} // it describes other code than the user's
	}
	bound, from, err := b.bound(name)
	if err != nil {
		return nil, err
	}
	timeout, err := b.app.timeout(declared, bound)
	if err != nil {
		return nil, err
	}
	f := &facts{
		root: b.app.root, entry: bound.Entry, kind: cmp.Or(bound.Kind, declared.Kind, appfile.KindPython),
		purity: cmp.Or(bound.Purity, declared.Purity), runner: cmp.Or(bound.Runner, appfile.RunnerLocal),
		source: "binding", pack: from, asked: b.Guarantees, grant: b.Grant, workers: cmp.Or(b.Workers, defaultWorkers),
		sandbox: cmp.Or(b.Sandbox, bound.Sandbox), unsafe: b.AllowUnsafeExecution || b.app.unsafe(),
		cover: sandbox.Cover, redact: b.redact(bound), log: b.log.With("tool", name),
	}
	f.spec = b.spec(name, declared, f.purity, cmp.Or(time.Duration(b.Timeout), timeout))
	f.spec.Description = cmp.Or(b.Description, bound.Description, declared.Description)
	if from != nil {
		f.source = from.Source
		f.spec.Guarantees = f.asked.Tighten(from.Has[name].Needs.Guarantees())
		f.spec.Description = cmp.Or(f.spec.Description, from.Description)
	}
	t := &boundTool{facts: f}
	if f.problem = b.problem(name, declared, bound); f.problem == nil {
		t.way, f.problem = b.way(ctx, f, bound)
	}
	if all, ok := errors.AsType[sourceError](f.problem); ok {
		return nil, all.error
	}
	if f.problem == nil {
		t.known = t.traced()
	}
	return t, nil
}

// problem returns why a tool cannot be run, as far as its files show. If the user gave the code, the app's problems do not
// apply.
func (b *builder) problem(name string, declared *appfile.Declaration, bound *appfile.Binding) error {
	switch {
	case b.Entry != "":
		return nil
	case declared.Kind != "" && bound.Kind != "" && declared.Kind != bound.Kind:
		return tool.Errorf(tool.CodeInvalidInput, "tool %q is implemented using %s in app.ai, but bound as %s",
			name, declared.Kind, bound.Kind)
	}
	return b.app.problem(name)
}

// A sourceError concerns a whole source rather than one of its tools.
type sourceError struct{ error }

// bound finds the code of a tool: in the user's config, a pack, or the app's bindings.
func (b *builder) bound(name string) (*appfile.Binding, *pack.Pack, error) {
	found, from := b.app.bindings[name].Binding, b.app.pack(name)
	if from != nil {
		found = from.Has[name].Bound
	}
	image := cmp.Or(b.Image, b.Container.Image)
	own := b.Entry != "" || b.URL != "" || image != "" || b.Runner == appfile.RunnerService
	kind := cmp.Or(b.Kind, cmp.Or(b.app.declared[name], &appfile.Declaration{}).Kind, appfile.KindPython)
	if found == nil && !own && kind == appfile.KindPython {
		found = b.app.discovered(name)
	}
	switch {
	case b.Entry != "":
		found, from = nil, nil // the user's code, not the app's: the app's settings do not apply to it
	case found == nil && !own && b.app.declared[name] == nil:
		return nil, nil, tool.Errorf(tool.CodeNotFound, "the app %s has no tool %q; give its function with `entry`",
			b.app.root, name)
	}
	c := *cmp.Or(found, &appfile.Binding{})
	c.Kind = cmp.Or(b.Kind, c.Kind)
	c.Entry = cmp.Or(b.Entry, c.Entry)
	c.Runner = cmp.Or(b.Runner, c.Runner)
	c.URL = cmp.Or(b.URL, c.URL)
	c.Image = cmp.Or(image, c.Image)
	if b.Command != nil {
		c.Command = b.Command
	}
	return &c, from, nil
}

// way prepares the runner of one tool, or returns why the tool cannot be run.
func (b *builder) way(ctx context.Context, f *facts, bound *appfile.Binding) (way, error) {
	switch f.runner {
	case appfile.RunnerService:
		return b.service(f, bound)
	case appfile.RunnerContainer:
		return b.container(f, bound)
	}
	if f.entry == "" {
		return nil, tool.Errorf(tool.CodeUnavailable,
			"it is declared in app.ai but bound to no function; write tools/%s.py with a function run, or add %q "+
				"with an entry to %s",
			appfile.Slug(f.spec.Name), f.spec.Name, bindingsFile)
	}
	if err := appfile.CheckEntry(f.kind, f.entry); err != nil {
		return nil, err
	}
	if f.kind == appfile.KindNode {
		return b.nodeTool(f, bound)
	}
	return b.local(ctx, f, bound)
}

func (b *builder) local(ctx context.Context, f *facts, bound *appfile.Binding) (way, error) {
	if b.python == nil {
		python, err := findPython(ctx, b.app.root, b.program(b.Interpreter), process.Environment(b.Env, b.PassEnv))
		if err != nil {
			return nil, sourceError{err}
		}
		b.python = &python
	}
	t := &localTool{
		facts: f, python: *b.python, deps: b.app.depsSource(), vars: b.vars(bound), host: b.host,
		mode: cmp.Or(b.Mode, modeWarm), fork: forks.Script,
	}
	t.imports, t.fields = importPath(f, t.vars["PYTHONPATH"]), fieldsOf(f.spec.Input)
	var err error
	if t.around, err = b.around(b.python.code, filepath.SplitList(t.vars["PYTHONPATH"])...); err != nil {
		return nil, err
	}
	t.around.Publish(f.spec)
	if t.mode == modeWarm {
		t.pools = &pools{tool: t, workers: f.workers}
	}
	return t, nil
}

// program returns the interpreter that the user asked for; a relative path is relative to the config's folder.
func (b *builder) program(asked string) string {
	if strings.Contains(asked, "/") {
		return offlimits.Under(b.dir, asked)
	}
	return asked
}

func (b *builder) spec(name string, d *appfile.Declaration, purity string, timeout time.Duration) *tool.Spec {
	s := &tool.Spec{
		Name: name, Input: bytes.Clone(b.Input), Output: bytes.Clone(b.Output),
		Effects: b.Effects, Timeout: timeout, Guarantees: b.Guarantees,
	}
	s.Declare(b.Tier, tool.TierConfig)
	if s.Input == nil {
		s.Input = d.Input.Arguments()
	}
	if s.Output == nil {
		s.Output = d.Output.Schema()
	}
	if purity == "pure" { // the same input gives the same output, so a second call does no harm
		s.Effects.Idempotent = true
		s.Effects.Pure = b.Container.Image == "" && b.Walls.ChangeNothing() // the kernel holds it to that
	}
	return s
}

// fieldsOf lists the arguments that a schema names as JSON, or null if it names none.
func fieldsOf(input json.RawMessage) string {
	var s struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if strictjson.Unmarshal(input, &s) != nil || s.Properties == nil {
		return "null"
	}
	b, _ := strictjson.Marshal(slices.Sorted(maps.Keys(s.Properties))) // these names were decoded from JSON
	return string(b)
}

// importPath returns the folders that Python searches first: the pack if the tool is from a pack, then the app, then the
// folders in more.
func importPath(f *facts, more string) string {
	path := []string{f.root}
	if f.pack != nil {
		path = []string{f.pack.Dir, f.root}
	}
	if more != "" {
		path = append(path, more)
	}
	return strings.Join(path, string(filepath.ListSeparator))
}

// vars are the configured variables of a tool. The user's values override the app's.
func (b *builder) vars(bound *appfile.Binding) map[string]string {
	vars := spawn.Options{PassEnv: b.PassEnv}.Given()
	maps.Copy(vars, bound.Env)
	maps.Copy(vars, b.Env)
	return vars
}

// redact removes the values that were passed to a tool from its output: they may be secrets. Short values are kept, because
// they occur in any text.
func (b *builder) redact(bound *appfile.Binding) *strings.Replacer {
	var pairs []string
	for name, value := range b.vars(bound) {
		if len(value) >= 8 && name != "PYTHONPATH" {
			pairs = append(pairs, value, "["+name+"]")
		}
	}
	return strings.NewReplacer(pairs...)
}
