// Package builtin combines the tools that Toolpost brings, for files, code and commands, into one source over one workspace.
package builtin

import (
	"context"
	"errors"
	"log/slog"

	"toolpost/builtin/code"
	"toolpost/builtin/define"
	"toolpost/builtin/file"
	"toolpost/builtin/run"
	"toolpost/builtin/shell"
	"toolpost/codesearch"
	"toolpost/config"
	"toolpost/config/offlimits"
	"toolpost/host/walls"
	"toolpost/host/workspace"
	"toolpost/tool"
)

// Options are the fields of a source with protocol builtin. The zero value offers the config's folder, read-only.
type Options struct {
	Roots     []workspace.RootOptions `yaml:"roots" doc:"folders to offer; default: the config's folder, read-only"`
	Sensitive workspace.Sensitive     `yaml:"sensitive" doc:"names of files and folders to hide, in addition to the known names of secrets"`
	file.Options
	Shell *shell.Options `yaml:"shell" doc:"which commands may run below the roots; default: none, and no tool for commands"`
	Code  CodeOptions    `yaml:"code" doc:"how code is searched and run"`

	OffLimits *offlimits.Checker `yaml:"-"` // what no tool sees or changes; nil means the state beside the config
	Engine    config.Engine      `yaml:"-"` // what programs call; nil means that no tool runs programs
	Name      string             `yaml:"-"` // of the source
}

// CodeOptions are the field code of a source.
type CodeOptions struct {
	codesearch.Options
	Run run.Options `yaml:"run" schema:"default=on" doc:"programs that call tools: off, or their limits"`
}

// A Source holds all built-in tools over one workspace.
type Source struct {
	define.PathSet
	ws     *workspace.Workspace
	walled *define.Set // those that run behind walls; nil if there are none
	opened []tool.Runner

	programs *run.Tools // nil if it runs none
}

var (
	_ tool.Runner    = (*Source)(nil)
	_ tool.Source    = (*Source)(nil)
	_ tool.Previewer = (*Source)(nil)
	_ tool.Toucher   = (*Source)(nil)
	_ tool.Staffed   = (*Source)(nil)
)

// Preview implements tool.Previewer.
func (s *Source) Preview(c *tool.Call, path string, limit int64) ([]byte, error) {
	f, err := s.ws.View(c).Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.ReadAll(limit)
}

// Open binds a configured source.
func Open(ctx context.Context, src config.Source, log *slog.Logger) (tool.Runner, error) {
	o := Options{OffLimits: src.OffLimits, Engine: src.Engine, Name: src.Name}
	if err := src.Decode(&o); err != nil {
		return nil, err
	}
	s, err := New(ctx, src.Dir, src.StateDir("code", src.Name), o, log)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Claim returns the folders that the tools of a configured source may change.
func Claim(src config.Source) (offlimits.Claim, error) {
	var o Options
	err := src.Decode(&o)
	var c offlimits.Claim
	for _, r := range o.Roots {
		to := &c.Shows
		if r.Write {
			to = &c.Writes
		}
		*to = append(*to, offlimits.Under(src.Dir, r.Path))
	}
	if o.Shell != nil {
		c.Writes = append(c.Writes, o.Shell.Walls.Claim(src.Dir).Writes...)
	}
	return c, err
}

// New opens the roots, relative ones from dir, and makes the tools over them. Their data, such as the index of a codebase,
// is kept in state.
func New(ctx context.Context, dir, state string, o Options, log *slog.Logger) (*Source, error) {
	ws, err := workspace.Open(dir, workspace.Options{Roots: o.Roots, Sensitive: o.Sensitive, OffLimits: o.OffLimits})
	if err != nil {
		return nil, err
	}
	s := &Source{ws: ws}
	if err := s.open(dir, state, o, log); err != nil {
		return nil, errors.Join(err, s.Close(ctx))
	}
	if err := s.Lacks(); err != nil {
		log.Warn("a root is not there; its source goes on without it until it is", "error", err)
	}
	return s, nil
}

func (s *Source) open(dir, state string, o Options, log *slog.Logger) error {
	files, err := file.New(s.ws, o.Options)
	if err != nil {
		return err
	}
	codes, err := code.New(s.ws, o.Code.Options, state, log)
	if err != nil {
		return err
	}
	s.opened = append(s.opened, codes)
	sets := []*define.Set{files.Set, codes.Set}
	if o.Shell != nil {
		o.Shell.Walls.OffLimits, o.Shell.Walls.Source = o.OffLimits, o.Name
		commands, err := shell.New(dir, s.ws, *o.Shell)
		if err != nil {
			return err
		}
		s.opened = append(s.opened, commands)
		s.walled = commands.Set
		sets = append(sets, commands.Set)
	}
	if o.Engine != nil && !o.Code.Run.Off {
		programs, err := run.New(run.Setting{Engine: o.Engine, Dir: dir, Source: o.Name, OffLimits: o.OffLimits, Log: log}, o.Code.Run)
		if err != nil {
			return err
		}
		s.opened, s.programs = append(s.opened, programs), programs
		sets = append(sets, programs.Set)
	}
	s.Set = define.Join(sets...)
	return nil
}

// Workers implements tool.Staffed: the interpreters that wait for programs, and those that run them.
func (s *Source) Workers() tool.Workers {
	if s.programs == nil {
		return tool.Workers{}
	}
	return s.programs.Workers()
}

// Lacks reports which roots are missing, or nil.
func (s *Source) Lacks() error { return s.ws.Lacks() }

// Invoke implements tool.Handler.
func (s *Source) Invoke(ctx context.Context, c *tool.Call, out tool.Sink) (*tool.Result, error) {
	if s.walled == nil || !s.walled.Has(c) {
		if err := keeps(c); err != nil {
			return nil, err
		}
	}
	return s.Set.Invoke(ctx, c, out)
}

// keeps refuses a call that must not do what its tool does. These tools are code of this program: they reach no network,
// start no program, read no variable, and access no files outside the workspace; access to files is their purpose.
func keeps(c *tool.Call) error {
	g, does := c.Tightened(tool.Guarantees{}), c.Spec.Effects
	switch {
	case g.NoFilesystemRead && does.Reads:
		return walls.Blocked(c, "no_filesystem_read")
	case g.NoFilesystemWrite && does.Writes:
		return walls.Blocked(c, "no_filesystem_write")
	}
	return nil
}

// Close implements tool.Runner.
func (s *Source) Close(ctx context.Context) error {
	var errs []error
	for _, r := range s.opened {
		errs = append(errs, r.Close(ctx))
	}
	return errors.Join(append(errs, s.ws.Close())...)
}
