package namel3ss

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"toolpost/host/process"
	"toolpost/tool"
)

// bindingsFile is where an app says where the code of its tools is.
const bindingsFile = ".namel3ss/tools.yaml"

// maxFile bounds each of the files of an app.
const maxFile = 1 << 20

// defaultTimeout is the contract's, for tools of which nobody says anything.
const defaultTimeout = 10 * time.Second

// timeoutVariable is the last place where a default timeout is looked for.
const timeoutVariable = "N3_PYTHON_TOOL_TIMEOUT_SECONDS"

// An app is what the files of an app say.
type app struct {
	root     string
	declared map[string]*declaration
	bindings map[string]boundTo
	packs    []*pack
	disputed map[string]error // tools that are in two places, by name
	settings settings
	notes    []string
}

// settings are what namel3ss.toml says that concerns tools.
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
	a := &app{root: root, declared: map[string]*declaration{}, disputed: map[string]error{}}
	if info, err := os.Stat(root); err != nil || !info.IsDir() {
		return nil, tool.Errorf(tool.CodeUnavailable, "the app %s is not a folder; check `app`", root)
	}
	for _, read := range []func() error{a.readDeclarations, a.readBindings, a.readSettings, a.readPacks} {
		if err := read(); err != nil {
			return nil, err
		}
	}
	return a, nil
}

func (a *app) readDeclarations() error {
	data, err := a.read(declarationsFile)
	if err != nil {
		return err
	}
	tools, notes, err := parseAppAI(data)
	if err != nil {
		return err
	}
	a.notes = notes
	for _, d := range tools {
		a.declared[d.name] = d
	}
	return nil
}

func (a *app) readBindings() error {
	const name = bindingsFile
	data, err := a.read(name)
	if err != nil {
		return err
	}
	a.bindings, err = parseBindings(name, data)
	return err
}

func (a *app) readSettings() error {
	const name = "namel3ss.toml"
	data, err := a.read(name)
	if err != nil {
		return err
	}
	a.settings, err = parseSettings(name, data)
	return err
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
		if _, err := fromSeconds(*n); err != nil {
			return s, tool.Errorf(tool.CodeInvalidInput, "%s: [python_tools] timeout_seconds: %w", name, err)
		}
	}
	return s, nil
}

// read gives the content of a file of the app, or nothing where there is none.
func (a *app) read(name string) ([]byte, error) { return readFile(a.root, name) }

func readFile(dir, name string) ([]byte, error) {
	path := filepath.Join(dir, name)
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err == nil && !info.Mode().IsRegular():
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s is not a regular file", name)
	case err != nil:
		return nil, tool.Errorf(tool.CodeUnavailable, "%s cannot be read: %w", name, err)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, tool.Errorf(tool.CodeUnavailable, "%s cannot be read: %w", name, err)
	}
	defer f.Close()
	data, err := process.ReadDocument(f, maxFile)
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s: %w", name, err)
	}
	return data, nil
}

// problem says why a tool of the app cannot be used, whatever its code is. It is no other's problem.
func (a *app) problem(name string) error {
	if err := a.disputed[name]; err != nil {
		return err
	}
	if d := a.declared[name]; d != nil && d.problem != nil {
		return d.problem
	}
	if p := a.pack(name); p != nil {
		return cmp.Or(p.refused, p.tools[name].problem)
	}
	return a.bindings[name].problem
}

// discovered is the binding of a Python tool that nobody binds: the file in tools/ that is called like it. Its function
// is run, or that which is called like the tool. Nil: there is no such file.
func (a *app) discovered(name string) *binding {
	module := slug(name)
	text, err := a.read("tools/" + module + ".py")
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
	return &binding{Kind: kindPython, Entry: "tools." + module + ":" + function}
}

// slug is the name of a tool as that of a Python module.
func slug(name string) string {
	s := strings.Trim(notWord().ReplaceAllString(strings.ToLower(name), "_"), "_")
	switch {
	case s == "":
		return "tool"
	case s[0] >= '0' && s[0] <= '9':
		return "tool_" + s
	}
	return s
}

var notWord = lazily(`[^a-z0-9]+`)

// names lists every tool of the app: declared, bound, or brought by a pack.
func (a *app) names() []string {
	all := map[string]bool{}
	for name := range a.declared {
		all[name] = true
	}
	for name := range a.bindings {
		all[name] = true
	}
	for _, p := range a.packs {
		for name := range p.tools {
			all[name] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// timeout is the app's own word on how long a tool may run: binding, declaration, namel3ss.toml,
// environment, ten seconds.
func (a *app) timeout(d *declaration, b *binding) (time.Duration, error) {
	fallback := time.Duration(0)
	if n := a.settings.Python.Timeout; n != nil {
		fallback, _ = fromSeconds(*n) // checked when it was read
	} else if s := os.Getenv(timeoutVariable); s != "" {
		var err error
		if fallback, err = seconds(s); err != nil {
			return 0, tool.Errorf(tool.CodeInvalidInput, "%s: %w", timeoutVariable, err)
		}
	}
	return cmp.Or(b.timeout(), d.timeout, fallback, defaultTimeout), nil
}

func (a *app) unsafe() bool { return a.settings.Unsafe || a.settings.Python.Unsafe }

// depsSource says where the dependencies of the app are written down.
func (a *app) depsSource() string {
	for _, f := range []struct{ file, name string }{{"pyproject.toml", "pyproject"}, {"requirements.txt", "requirements"}} {
		if _, err := os.Stat(filepath.Join(a.root, f.file)); err == nil {
			return f.name
		}
	}
	return "none"
}
