package mcpadd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"toolpost/cmd/toolpost/packages"
	"toolpost/config"
	"toolpost/config/offlimits"
	"toolpost/host/secret"
	"toolpost/protocol/mcp/runner"
	"toolpost/tool"
	"toolpost/wire/nearest"
)

// An Edit changes the config in one step: nothing of it is visible until it is written.
type Edit struct {
	own    *config.Own
	screen Screen

	Config *config.Config // as it is
	Added  []string       // names of sources

	text []byte   // as it will be
	made []string // files and folders to remove if the change is abandoned
	gone []string // those to remove once it is written
}

// A Screen shows a person what happens.
type Screen struct {
	Warn func(text string)
	// Progress shows a text, and then the progress of an operation until done is called.
	Progress func(text, name string) (done func())
}

// Open opens the config for a change.
func Open(cfg *config.Config, screen Screen) (*Edit, error) {
	own, err := config.OpenOwn(cfg.Path)
	if err != nil {
		return nil, err
	}
	return &Edit{own: own, Config: cfg, text: own.Text, screen: screen}, nil
}

// Close releases the config, and removes what was made for a change that was not written.
func (e *Edit) Close() {
	e.own.Close()
	e.takeBack(0)
}

// takeBack removes what was made, except for the first n.
func (e *Edit) takeBack(n int) {
	for _, path := range slices.Backward(e.made[n:]) {
		_ = os.RemoveAll(path)
	}
	e.made = e.made[:n]
}

// Parsed returns the config as it will be.
func (e *Edit) Parsed() (*config.Config, error) {
	cfg, err := config.Parse(e.Config.Path, e.text)
	if err != nil {
		return nil, err
	}
	return cfg, cfg.KeepStateIn(e.Config.StateDir())
}

// written returns a path of the state folder as the config spells it.
func (e *Edit) written(path string) string {
	return strings.TrimPrefix(fromConfig(e.Config, path), "./")
}

// Write puts the change into effect. A running server notices it.
func (e *Edit) Write() error {
	if _, err := e.Parsed(); err != nil {
		return err
	}
	if err := e.own.Replace(e.text, e.own.Mode); err != nil {
		return err
	}
	e.made = nil
	for _, path := range e.gone {
		if err := os.RemoveAll(path); err != nil {
			e.screen.Warn(fmt.Sprintf("%s is left: %s", path, tool.AsError(err).Message))
		}
	}
	return nil
}

// Taken reports whether a source has the name.
func (e *Edit) Taken(name string) bool {
	return slices.Contains(e.Config.SourceNames(), name) || slices.Contains(e.Added, name)
}

// Add adds a server: its package, its secrets, and its source.
func (e *Edit) Add(ctx context.Context, s *Server, dry bool) error {
	if e.Taken(s.Name) {
		return tool.Errorf(tool.CodeConflict, "there is a source %q already; --replace replaces it, and --name NAME adds this one "+
			"beside it", s.Name)
	}
	if err := e.install(ctx, s, dry); err != nil {
		return err
	}
	if err := e.keepSecrets(ctx, s, dry); err != nil {
		return err
	}
	text, err := config.AddSource(e.Config.Path, e.text, s.note, s.Source())
	if err != nil {
		return err
	}
	e.text, e.Added = text, append(e.Added, s.Name)
	return nil
}

// AddOther adds a source that is no MCP server.
func (e *Edit) AddOther(name string, source config.Fields) (err error) {
	if e.Taken(name) {
		return tool.Errorf(tool.CodeConflict, "there is a source %q already; give this one another name", name)
	}
	if e.text, err = config.AddSource(e.Config.Path, e.text, "", source); err == nil {
		e.Added = append(e.Added, name)
	}
	return err
}

// SecretsDir holds imported values, each in a file of its own. No tool sees the state folder.
func (e *Edit) SecretsDir() string { return filepath.Join(e.Config.StateDir(), "secrets") }

// keepSecrets stores the secret values of a server, and names them in the config.
func (e *Edit) keepSecrets(ctx context.Context, s *Server, dry bool) error {
	for i := range s.secrets {
		if err := e.keepSecret(ctx, s, &s.secrets[i], dry); err != nil {
			return err
		}
	}
	return nil
}

func (e *Edit) keepSecret(ctx context.Context, s *Server, one *secretValue, dry bool) error {
	var known map[string]secret.From
	now, err := e.Parsed()
	if err == nil {
		err = now.Secrets.Decode(&known)
	}
	if err != nil {
		return err
	}
	for _, name := range []string{one.variable, secretName(s.Name + "_" + one.variable)} {
		one.name = name
		from, there := known[name]
		if !there {
			return e.newSecret(one, dry)
		}
		vault := secret.Open(ctx, e.Config.Dir, map[string]secret.From{name: from}, nil)
		if value, err := vault.Secret(name); err == nil && value == one.value && one.env == "" || from.Env == one.env && one.env != "" {
			return nil
		}
	}
	return tool.Errorf(tool.CodeConflict, "the config has the secrets %s and %s already, with other values; rename one of them",
		one.variable, one.name)
}

// newSecret writes a value to a file of its own, or names the variable that provides it.
func (e *Edit) newSecret(one *secretValue, dry bool) (err error) {
	from := config.Fields{{Name: "env", Value: one.env}}
	if one.env == "" {
		path := unused(filepath.Join(e.SecretsDir(), one.name))
		from = config.Fields{{Name: "file", Value: e.written(path)}}
		if !dry {
			if err := e.writeSecret(path, one.value); err != nil {
				return err
			}
		}
	}
	e.text, err = config.AddEntry(e.Config.Path, e.text, "secrets", one.name, from)
	return err
}

// unused returns a path that does not exist yet: an existing file may be needed until the change is written.
func unused(path string) string {
	return numbered(path, func(try string) bool { _, err := os.Lstat(try); return !errors.Is(err, fs.ErrNotExist) })
}

// numbered returns the first of name, name-2, name-3 and so on that is not taken.
func numbered(name string, taken func(string) bool) string {
	try := name
	for i := 2; taken(try); i++ {
		try = fmt.Sprintf("%s-%d", name, i)
	}
	return try
}

func (e *Edit) writeSecret(path, value string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return tool.Errorf(tool.CodeUnavailable, "the folder of secrets: %w", err)
	}
	f, err := config.OpenOwn(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Replace([]byte(value+"\n"), 0o600); err != nil {
		return err
	}
	e.made = append(e.made, path)
	return nil
}

// install installs the package of a server into the state folder, or fetches its image, and makes the server start from
// there.
func (e *Edit) install(ctx context.Context, s *Server, dry bool) error {
	switch {
	case s.box != nil && !dry:
		s.note = "from " + tool.VisibleName(s.box.image)
		defer e.screen.Progress("fetching "+tool.VisibleName(s.box.image)+" once", "fetching")()
		return s.box.pin(ctx)
	case s.pkg == nil:
		return nil
	}
	dir := unused(filepath.Join(e.Config.StateDir(), string(s.pkg.index), s.Name))
	s.dir = e.written(dir)
	if dry {
		s.note = fmt.Sprintf("from %s: %s", s.pkg.index, tool.VisibleName(s.pkg.spec))
		s.command = append([]string{"(the program of " + s.pkg.spec + ")"}, s.pkg.args...)
		return nil
	}
	base, err := os.Getwd()
	if err != nil {
		return err
	}
	name := tool.VisibleName(s.pkg.spec)
	done := e.screen.Progress(fmt.Sprintf("installing %s once, into %s%s", name, dir,
		map[bool]string{false: ", without its install scripts", true: ""}[s.scripts]), "installing "+name) // installers report nothing
	p, err := packages.Install(ctx, packages.Request{
		Index: s.pkg.index, Spec: s.pkg.spec, Bin: s.pkg.bin, Dir: dir, Base: base, Scripts: s.scripts,
	})
	done()
	if err != nil {
		return err
	}
	e.made = append(e.made, dir)
	s.note = fmt.Sprintf("from %s: %s", s.pkg.index, tool.VisibleName(p.Name+" "+p.Version)) // in the package's own words
	s.command = slices.Concat(p.Argv, s.pkg.args)
	if len(p.Scripts) > 0 {
		s.Remarks = append(s.Remarks, fmt.Sprintf("the install scripts of %s were not run; if it does not work without them, "+
			"remove it and add it again with --scripts", strings.Join(p.Scripts, ", ")))
	}
	return nil
}

// Remove removes a server and what was kept for it alone, and returns the names of its secrets.
func (e *Edit) Remove(name string) (secrets []string, err error) {
	src, err := Source(e.Config, name)
	if err != nil {
		return nil, err
	}
	if secrets, err = e.Forget(src); err != nil {
		return nil, err
	}
	e.gone = append(e.gone, runner.TokenFile(src))
	return secrets, e.Write()
}

// Forget removes a source and what was kept for it alone: its package, and its secrets, whose names it returns.
func (e *Edit) Forget(src config.Source) (secrets []string, err error) {
	known, err := e.onlyOf(src.Name)
	if err != nil {
		return nil, err
	}
	if e.text, err = config.RemoveSource(e.Config.Path, e.text, src.Name); err != nil {
		return nil, err
	}
	var o runner.SourceOptions
	if err := src.Decode(&o); err == nil && e.installed(src.Dir, o.Dir) {
		e.gone = append(e.gone, offlimits.Under(src.Dir, o.Dir))
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		without, err := config.RemoveEntry(e.Config.Path, e.text, "secrets", name)
		if err != nil {
			return nil, err
		}
		if mentions(without, name) { // another part of the config uses it
			continue
		}
		e.text, secrets, e.gone = without, append(secrets, name), append(e.gone, known[name])
	}
	e.Config, err = e.Parsed()
	return secrets, err
}

// onlyOf returns the secrets that only this source mentions, and whose values are files of ours or variables: a map of names
// to files. The entry of a variable holds no value that could be lost.
func (e *Edit) onlyOf(source string) (map[string]string, error) {
	var known map[string]secret.From
	if err := e.Config.Secrets.Decode(&known); err != nil {
		return nil, err
	}
	only := map[string]string{}
	for name, from := range known {
		path := offlimits.Under(e.Config.Dir, from.File)
		switch {
		case from.Env != "":
			path = ""
		case from.File == "" || filepath.Dir(path) != e.SecretsDir():
			continue
		}
		var users []string
		for _, s := range e.Config.Sources {
			if mentions(s.JSON(), name) {
				users = append(users, s.Name)
			}
		}
		if slices.Equal(users, []string{source}) {
			only[name] = path
		}
	}
	return only, nil
}

func mentions(text []byte, name string) bool {
	return regexp.MustCompile(`\b` + name + `\b`).Match(text)
}

// has reports whether the config has the server already, under the name that it would get.
func (e *Edit) has(s *Server, name string) bool {
	src, err := Source(e.Config, name)
	var o runner.SourceOptions
	if err != nil || src.Decode(&o) != nil {
		return false
	}
	switch {
	case s.URL != "":
		return o.URL == s.URL
	case s.pkg == nil:
		return slices.Equal(o.Command, s.command) && (o.Container.Image == "") == (s.box == nil)
	}
	where := filepath.Join("node_modules", s.pkg.name())
	if s.pkg.index == packages.PyPI {
		where = strings.ReplaceAll(s.pkg.name(), "-", "_") + "-*.dist-info"
	}
	found, err := filepath.Glob(filepath.Join(offlimits.Under(src.Dir, o.Dir), where))
	return err == nil && len(found) > 0 && slices.Equal(o.Command[min(2, len(o.Command)):], s.pkg.args)
}

// installed reports whether a folder holds an installed package.
func (e *Edit) installed(base, dir string) bool {
	parent := filepath.Dir(offlimits.Under(base, dir))
	return slices.ContainsFunc([]packages.Index{packages.NPM, packages.PyPI}, func(i packages.Index) bool {
		return parent == filepath.Join(e.Config.StateDir(), string(i))
	})
}

// Source returns the source of an MCP server.
func Source(cfg *config.Config, name string) (config.Source, error) {
	var names []string
	for _, s := range cfg.Sources {
		switch {
		case s.Protocol != Protocol && s.Name == name:
			return s, tool.Errorf(tool.CodeNotFound, "the source %q is not an MCP server, but of the protocol %s", name, s.Protocol)
		case s.Protocol != Protocol:
		case s.Name == name:
			return s, nil
		default:
			names = append(names, s.Name)
		}
	}
	known := "; the config has none"
	if len(names) > 0 {
		known = "; there are " + strings.Join(names, ", ")
	}
	return config.Source{}, tool.Errorf(tool.CodeNotFound, "no MCP server is called %q%s", name, nearest.Suggest(name, names, known))
}
