package appfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"toolpost/config"
	"toolpost/tool"
	"toolpost/wire/bounded"
	"toolpost/wire/regex"
)

// A Binding names the code of a tool. It is an entry of .namel3ss/tools.yaml.
type Binding struct {
	Description string            `yaml:"description"`
	Kind        string            `yaml:"kind"`
	Entry       string            `yaml:"entry"`
	Runner      string            `yaml:"runner"`
	URL         string            `yaml:"url"`
	Image       string            `yaml:"image"`
	Command     []string          `yaml:"command"`
	Env         map[string]string `yaml:"env"`
	Purity      string            `yaml:"purity"`
	TimeoutMS   *float64          `yaml:"timeout_ms"`
	Sandbox     *bool             `yaml:"sandbox"`
	Enforcement string            `yaml:"enforcement"`
}

// Timeout returns how long the tool may run, or 0 if the binding does not say.
func (b *Binding) Timeout() time.Duration {
	if b.TimeoutMS == nil {
		return 0
	}
	return time.Duration(*b.TimeoutMS * float64(time.Millisecond))
}

// The forms of an entry.
var (
	pythonEntry = regex.Lazy(`^[\pL_][\pL\pN_]*(\.[\pL_][\pL\pN_]*)*:[\pL_][\pL\pN_]*$`)
	nodeEntry   = regex.Lazy(`^[\pL\pN_@][\pL\pN_@./-]*:[\pL_$][\pL\pN_$]*$`)
)

// CheckEntry checks that an entry has the form of its language. A node module is a path below the app, or the same with
// dots.
func CheckEntry(kind, entry string) error {
	form := pythonEntry
	if kind == KindNode {
		form = nodeEntry
	}
	if module, _, _ := strings.Cut(entry, ":"); !form().MatchString(entry) ||
		slices.Contains(strings.Split(module, "/"), "..") {
		return tool.Errorf(tool.CodeInvalidInput,
			"its entry %.80q is not of the form module:function, such as tools.greet:run", entry)
	}
	return nil
}

// A Choice is a field that has one of a few values, or none.
type Choice struct {
	Name, Value string
	Known       []string
}

// CheckChoices reports a field whose value is not among its known ones.
func CheckChoices(fields ...Choice) error {
	for _, f := range fields {
		if f.Value != "" && !slices.Contains(f.Known, f.Value) {
			return fmt.Errorf("%s is one of %s, not %.40q", f.Name, strings.Join(f.Known, ", "), f.Value)
		}
	}
	return nil
}

// check checks the fields of a binding against the values that the contract knows.
func (b *Binding) check() error {
	b.Kind = strings.ToLower(b.Kind)
	if err := CheckChoices(Choice{"kind", b.Kind, Kinds()}, Choice{"runner", b.Runner, RunnerNames()},
		Choice{"purity", b.Purity, []string{"pure", "impure"}},
		Choice{"enforcement", b.Enforcement, []string{"declared", "verified"}}); err != nil {
		return err
	}
	if b.TimeoutMS != nil {
		if _, err := FromSeconds(*b.TimeoutMS / 1000); err != nil {
			return fmt.Errorf("timeout_ms: %w", err)
		}
	}
	return nil
}

// UnmarshalText reads a binding that consists of an entry alone.
func (b *Binding) UnmarshalText(entry []byte) error {
	b.Entry = string(entry)
	return nil
}

// A Bound is a binding as a file has it. A Problem affects its own tool alone.
type Bound struct {
	*Binding
	Problem error
}

// ParseBindings reads a tools.yaml: a mapping `tools` of names to bindings, or to entries alone.
func ParseBindings(file string, data []byte) (map[string]Bound, error) {
	var doc struct {
		Tools map[string]config.Fallible[Binding] `yaml:"tools"`
	}
	if err := config.DecodeYAML(file, data, &doc); err != nil {
		return nil, err
	}
	return CheckBindings(file, data, "", doc.Tools), nil
}

// CheckBindings checks each binding of a file against the contract.
func CheckBindings(file string, data []byte, field string, parts map[string]config.Fallible[Binding]) map[string]Bound {
	all := map[string]Bound{}
	for name, part := range parts {
		b := Bound{Binding: &part.Value}
		if part.Err != nil {
			b.Problem = config.Explain(file, data, part.Err)
		} else if err := b.check(); err != nil {
			b.Problem = tool.Errorf(tool.CodeInvalidInput, "%s: %stool %q: %w", file, field, name, err)
		}
		all[name] = b
	}
	return all
}

// The languages and the runners of the contract.
const (
	KindPython = "python"
	KindNode   = "node"

	RunnerLocal     = "local"
	RunnerService   = "service"
	RunnerContainer = "container"
)

// Kinds lists the languages.
func Kinds() []string { return []string{KindPython, KindNode} }

// RunnerNames lists the runners.
func RunnerNames() []string { return []string{RunnerLocal, RunnerService, RunnerContainer} }

// maxFile bounds each file of an app.
const maxFile = 1 << 20

// Read returns the content of a file of an app or a pack, or nil if the file does not exist.
func Read(dir, name string) ([]byte, error) {
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
	data, err := bounded.ReadDocument(f, maxFile)
	if err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "%s: %w", name, err)
	}
	return data, nil
}

// Slug turns the name of a tool into the name of a Python module.
func Slug(name string) string {
	s := strings.Trim(notWord().ReplaceAllString(strings.ToLower(name), "_"), "_")
	switch {
	case s == "":
		return "tool"
	case s[0] >= '0' && s[0] <= '9':
		return "tool_" + s
	}
	return s
}

var notWord = regex.Lazy(`[^a-z0-9]+`)
