package namel3ss

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"toolpost/config"
	"toolpost/tool"
)

// A binding says where the code of a tool is. It is an entry of .namel3ss/tools.yaml.
type binding struct {
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

func (b *binding) timeout() time.Duration {
	if b.TimeoutMS == nil {
		return 0
	}
	return time.Duration(*b.TimeoutMS * float64(time.Millisecond))
}

// The forms of an entry. To compile them takes as long as all else at the start of the program, so it waits
// until somebody needs them.
var (
	pythonEntry = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[\pL_][\pL\pN_]*(\.[\pL_][\pL\pN_]*)*:[\pL_][\pL\pN_]*$`)
	})
	nodeEntry = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[\pL\pN_@][\pL\pN_@./-]*:[\pL_$][\pL\pN_$]*$`)
	})
)

// checkEntry holds an entry to the form of its language. A node module is a path below the app, or the
// same with dots.
func checkEntry(kind, entry string) error {
	form := pythonEntry
	if kind == "node" {
		form = nodeEntry
	}
	if module, _, _ := strings.Cut(entry, ":"); !form().MatchString(entry) || slices.Contains(strings.Split(module, "/"), "..") {
		return tool.Errorf(tool.CodeInvalidInput, "its entry %.80q is not of the form module:function, such as tools.greet:run", entry)
	}
	return nil
}

// check holds a binding to the values that the contract knows.
func (b *binding) check() error {
	b.Kind = strings.ToLower(b.Kind)
	for _, f := range []struct {
		name, value string
		known       []string
	}{
		{"kind", b.Kind, []string{"python", "node"}},
		{"runner", b.Runner, []string{"local", "service", "container"}},
		{"purity", b.Purity, []string{"pure", "impure"}},
		{"enforcement", b.Enforcement, []string{"declared", "verified"}},
	} {
		if f.value != "" && !slices.Contains(f.known, f.value) {
			return fmt.Errorf("%s is one of %q, not %.40q", f.name, f.known, f.value)
		}
	}
	if b.TimeoutMS != nil {
		if _, err := fromSeconds(*b.TimeoutMS / 1000); err != nil {
			return fmt.Errorf("timeout_ms: %w", err)
		}
	}
	return nil
}

// UnmarshalText reads a binding that is an entry alone.
func (b *binding) UnmarshalText(entry []byte) error {
	b.Entry = string(entry)
	return nil
}

// A boundTo is a binding as a file has it. What is wrong with it is wrong with its tool alone.
type boundTo struct {
	*binding
	problem error
}

// parseBindings reads a tools.yaml: a mapping `tools` of names to bindings, or to entries alone.
func parseBindings(file string, data []byte) (map[string]boundTo, error) {
	var doc struct {
		Tools map[string]config.Fallible[binding] `yaml:"tools"`
	}
	if err := config.DecodeYAML(file, data, &doc); err != nil {
		return nil, err
	}
	return checkBindings(file, data, "", doc.Tools), nil
}

// checkBindings holds each of the bindings of a file to the contract.
func checkBindings(file string, data []byte, field string, parts map[string]config.Fallible[binding]) map[string]boundTo {
	all := map[string]boundTo{}
	for name, part := range parts {
		b := boundTo{binding: &part.Value}
		if part.Err != nil {
			b.problem = config.Explain(file, data, part.Err)
		} else if err := b.check(); err != nil {
			b.problem = tool.Errorf(tool.CodeInvalidInput, "%s: %stool %q: %w", file, field, name, err)
		}
		all[name] = b
	}
	return all
}
