package namel3ss

import (
	"cmp"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"toolpost/protocol/namel3ss/appfile"
	"toolpost/protocol/namel3ss/pack"
	"toolpost/tool"
)

// The files of an app, apart from its declarations.
const (
	bindingsFile = ".namel3ss/tools.yaml" // binds its tools to their code
	settingsFile = "namel3ss.toml"
)

// defaultTimeout is the contract's default, for tools without a timeout of their own.
const defaultTimeout = 10 * time.Second

// timeoutVariable is the last place that is searched for a default timeout.
const timeoutVariable = "N3_PYTHON_TOOL_TIMEOUT_SECONDS"

// An app is the content of an app's files.
type app struct {
	root     string
	declared map[string]*appfile.Declaration
	bindings map[string]appfile.Bound
	packs    []*pack.Pack
	disputed map[string]error // tools with two origins, by name
	settings settings
}

// settings are the parts of namel3ss.toml that concern tools.
type settings struct {
	Unsafe bool `toml:"allow_unsafe_execution"`
	Python struct {
		Timeout    *float64 `toml:"timeout_seconds"`
		Unsafe     bool     `toml:"allow_unsafe_execution"`
		ServiceURL string   `toml:"service_url"`
		Handshake  bool     `toml:"service_handshake_required"`
	} `toml:"python_tools"`
}

// loadApp reads the files of an app. Each of them may be absent.
func loadApp(root string) (*app, error) {
	if info, err := os.Stat(root); err != nil || !info.IsDir() {
		return nil, tool.Errorf(tool.CodeUnavailable, "the app %s is not a folder; check `app`", root)
	}
	files := map[string][]byte{}
	var err error
	for _, name := range []string{appfile.DeclarationsFile, bindingsFile, settingsFile} {
		if files[name], err = appfile.Read(root, name); err != nil {
			return nil, err
		}
	}
	a := &app{root: root, disputed: map[string]error{}}
	if a.declared, err = appfile.Parse(files[appfile.DeclarationsFile]); err != nil {
		return nil, err
	}
	if a.bindings, err = appfile.ParseBindings(bindingsFile, files[bindingsFile]); err != nil {
		return nil, err
	}
	if a.settings, err = parseSettings(settingsFile, files[settingsFile]); err != nil {
		return nil, err
	}
	a.packs, err = pack.Read(root)
	return a, err
}

func parseSettings(name string, data []byte) (settings, error) {
	var s settings
	err := toml.Unmarshal(data, &s)
	var where *toml.DecodeError
	switch {
	case errors.As(err, &where):
		line, column := where.Position()
		return s, tool.Errorf(tool.CodeInvalidInput, "%s:%d:%d: %w", name, line, column, err)
	case err != nil:
		return s, tool.Errorf(tool.CodeInvalidInput, "%s: %w", name, err)
	}
	if n := s.Python.Timeout; n != nil {
		if _, err := appfile.FromSeconds(*n); err != nil {
			return s, tool.Errorf(tool.CodeInvalidInput, "%s: [python_tools] timeout_seconds: %w", name, err)
		}
	}
	return s, nil
}

// problem returns why a tool of the app cannot be used, whatever its code is. It affects no other tool.
func (a *app) problem(name string) error {
	if err := a.disputed[name]; err != nil {
		return err
	}
	if d := a.declared[name]; d != nil && d.Problem != nil {
		return d.Problem
	}
	if p := a.pack(name); p != nil {
		return cmp.Or(p.Refused, p.Has[name].Problem)
	}
	return a.bindings[name].Problem
}

// discovered returns the binding of an unbound Python tool: the file in tools/ with the tool's name. The entry is its
// function "run", or the function with the tool's name. It returns nil if there is no such file.
func (a *app) discovered(name string) *appfile.Binding {
	module := appfile.Slug(name)
	text, err := appfile.Read(a.root, "tools/"+module+".py")
	if err != nil || text == nil {
		return nil
	}
	defines := func(function string) bool {
		const defined = `(?m)^((async\s+)?def|class)\s+F\b|^F\s*[:=]|^(from|import)\b.*\bF\b`
		found, _ := regexp.Match(strings.ReplaceAll(defined, "F", function), text)
		return found
	}
	function := "run"
	if !defines(function) && defines(module) {
		function = module
	}
	return &appfile.Binding{Kind: appfile.KindPython, Entry: "tools." + module + ":" + function}
}

// names lists every tool of the app: declared, bound, or brought by a pack.
func (a *app) names() []string {
	all := slices.AppendSeq(slices.Collect(maps.Keys(a.declared)), maps.Keys(a.bindings))
	for _, p := range a.packs {
		all = slices.AppendSeq(all, maps.Keys(p.Has))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// timeout returns how long the app lets a tool run. It tries the binding, the declaration, namel3ss.toml, the environment,
// and falls back to ten seconds.
func (a *app) timeout(d *appfile.Declaration, b *appfile.Binding) (time.Duration, error) {
	fallback := time.Duration(0)
	if n := a.settings.Python.Timeout; n != nil {
		fallback, _ = appfile.FromSeconds(*n) // checked when it was read
	} else if s := os.Getenv(timeoutVariable); s != "" {
		var err error
		if fallback, err = appfile.Seconds(s); err != nil {
			return 0, tool.Errorf(tool.CodeInvalidInput, "%s: %w", timeoutVariable, err)
		}
	}
	return cmp.Or(b.Timeout(), d.Timeout, fallback, defaultTimeout), nil
}

func (a *app) unsafe() bool { return a.settings.Unsafe || a.settings.Python.Unsafe }

// depsSource names the file that lists the app's dependencies.
func (a *app) depsSource() string {
	for _, f := range []struct{ file, name string }{{"pyproject.toml", "pyproject"},
		{"requirements.txt", "requirements"}} {
		if _, err := os.Stat(filepath.Join(a.root, f.file)); err == nil {
			return f.name
		}
	}
	return "none"
}

// settle makes sure that every name has one origin. A pack that cannot be run disputes no name: otherwise an untrusted pack
// could disable a tool of the app.
func (a *app) settle() {
	origin := map[string]string{}
	for name := range a.bindings {
		origin[name] = bindingsFile
	}
	slices.SortStableFunc(a.packs, func(x, y *pack.Pack) int { return strings.Compare(state(x), state(y)) })
	for _, p := range a.packs {
		for name := range p.Has {
			switch other := origin[name]; {
			case p.Refused != nil && (other != "" || a.discovered(name) != nil):
				delete(p.Has, name)
			case other != "":
				a.disputed[name] = tool.Errorf(tool.CodeConflict,
					"the tool %q is in %s and in %s; remove it from one of them", name, other, p.Where)
			default:
				origin[name] = p.Where
			}
		}
	}
}

// state is a sort key: packs that can be run come before the others.
func state(p *pack.Pack) string {
	if p.Refused != nil {
		return "refused"
	}
	return "good"
}

// pack returns the pack that brings a tool, or nil.
func (a *app) pack(name string) *pack.Pack {
	for _, p := range a.packs {
		if p.Has[name] != nil {
			return p
		}
	}
	return nil
}
