package namel3ss

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/pelletier/go-toml/v2"

	"toolpost/process"
	"toolpost/tool"
)

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
	bindings map[string]*binding
	settings settings
	notes    []string
}

// settings are what namel3ss.toml says that concerns tools.
type settings struct {
	Unsafe bool `toml:"allow_unsafe_execution"`
	Python struct {
		Timeout *float64 `toml:"timeout_seconds"`
		Unsafe  bool     `toml:"allow_unsafe_execution"`
	} `toml:"python_tools"`
}

// loadApp reads the files of an app. Each of them may be absent.
func loadApp(root string) (*app, error) {
	a := &app{root: root, declared: map[string]*declaration{}, bindings: map[string]*binding{}}
	if info, err := os.Stat(root); err != nil || !info.IsDir() {
		return nil, tool.Errorf(tool.CodeUnavailable, "the app %s is not a folder; check `app`", root)
	}
	for _, read := range []func() error{a.readDeclarations, a.readBindings, a.readSettings} {
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
	const name = ".namel3ss/tools.yaml"
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
func (a *app) read(name string) ([]byte, error) {
	path := filepath.Join(a.root, name)
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

// names lists every tool of the app, declared or bound.
func (a *app) names() []string {
	var names []string
	for name := range a.declared {
		names = append(names, name)
	}
	for name := range a.bindings {
		if a.declared[name] == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
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

// whyNot says why a tool of the app cannot be run by this build, or nil.
func whyNot(name, kind string, b *binding) error {
	switch {
	case kind != "python":
		return tool.Errorf(tool.CodeUnsupported, "it is implemented using %s, which this version cannot run yet", kind)
	case b.Runner != "" && b.Runner != "local":
		return tool.Errorf(tool.CodeUnsupported, "its runner is %s, which this version does not have yet; bind it with runner: local", b.Runner)
	case b.Entry == "":
		return tool.Errorf(tool.CodeUnavailable, "it is declared in app.ai but bound to no function; add %q with an entry to .namel3ss/tools.yaml", name)
	}
	return checkEntry(b.Entry)
}

func checkEntry(entry string) error {
	if !entryForm.MatchString(entry) {
		return tool.Errorf(tool.CodeInvalidInput, "its entry %.80q is not of the form module:function, such as tools.greet:run", entry)
	}
	return nil
}
