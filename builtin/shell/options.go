package shell

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"toolpost/config"
	"toolpost/host/walls"
	"toolpost/tool"
)

// Options are the field shell of a source with protocol builtin. The short form is enough to begin with:
// shell: {allow: [ls, git]}.
type Options struct {
	Allow     []string          `yaml:"allow" doc:"what may run: a program (git), or a program with its first words and options (git status, go test); use an absolute path for a program that is not on the path"`
	Deny      []string          `yaml:"deny" doc:"what may not run, written the same way; deny wins over allow: git push --force"`
	Rules     []Rule            `yaml:"rules" doc:"detailed rules for a program's arguments; a program with a rule is allowed"`
	Env       map[string]string `yaml:"env" doc:"variables for every command"`
	CallerEnv []string          `yaml:"caller_env" doc:"variables that a caller may set; default: none"`
	Path      []string          `yaml:"path" kind:"path" doc:"folders in which programs are looked up; default: the absolute folders on PATH that are not world-writable"`
	Timeout   config.Duration   `yaml:"timeout" schema:"default=60s" doc:"time limit of one call; a caller can only ask for less"`
	MaxOutput int               `yaml:"max_output" kind:"bytes" schema:"default=1048576" doc:"bytes of stdout, and of stderr, in a result"`
	Walls     walls.Options     `yaml:"walls" doc:"what commands may do outside the offered folders; default: start programs, 512 MiB, 128 processes, 10 minutes of CPU time, and the network if a rule allows it"`
	Line      bool              `yaml:"line" doc:"also offer runLine, a tool for shell lines; every command in a line is judged like a command of its own"`
}

// A Rule has more settings for one program.
type Rule struct {
	Program     string   `yaml:"program" doc:"its name, or an absolute path"`
	Subcommands []string `yaml:"subcommands" doc:"allow only these subcommands"`
	AllowArgs   []string `yaml:"allow_args" doc:"arguments to allow in addition to those known to be harmless; * and ? are wildcards; paths in them are still checked"`
	DenyArgs    []string `yaml:"deny_args" doc:"arguments to refuse, written the same way"`
	MaxArgs     int      `yaml:"max_args" schema:"default=1000" doc:"how many arguments there may be"`
	Code        Code     `yaml:"code" schema:"enum=none|tree|any" doc:"code that an interpreter or build tool may run: none; tree: files below an offered folder; any: also code in arguments and on stdin"`
	Network     bool     `yaml:"network" doc:"allow what is known to use the network, such as git fetch"`
	Trust       bool     `yaml:"trust" doc:"allow all arguments; paths in them are still checked"`
}

// A Code is the level of code that an interpreter or a build tool may run.
type Code string

// The levels. The empty one leaves it to the program.
const (
	CodeNone Code = "none"
	CodeTree Code = "tree"
	CodeAny  Code = "any"
)

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *Code) UnmarshalText(text []byte) error {
	switch v := Code(text); v {
	case CodeNone, CodeTree, CodeAny:
		*c = v
		return nil
	}
	return fmt.Errorf("code is %q; none, tree and any are known", text)
}

// covers reports whether c allows code of level need.
func (c Code) covers(need Code) bool {
	order := []Code{CodeNone, CodeTree, CodeAny}
	return slices.Index(order, c) >= slices.Index(order, need) // an empty level comes first
}

const (
	defaultTimeout   = 60 * time.Second
	defaultMaxOutput = 1 << 20
	defaultMaxArgs   = 1000
	maxArgBytes      = 128 << 10 // of all arguments together; what the kernel takes for one
)

func (o Options) withDefaults() Options {
	o.Timeout = cmp.Or(o.Timeout, config.Duration(defaultTimeout))
	o.MaxOutput = cmp.Or(o.MaxOutput, defaultMaxOutput)
	o.Walls.CPUTime = cmp.Or(o.Walls.CPUTime, config.Duration(10*time.Minute))
	return o
}

// check rejects settings that make no sense.
func (o Options) check() error {
	if o.MaxOutput < 0 {
		return wrong("shell: max_output cannot be negative; leave it out for its default")
	}
	for _, folder := range o.Path {
		if !filepath.IsAbs(folder) {
			return wrong("shell.path: %q is not absolute; a relative folder would depend on where a command runs", folder)
		}
	}
	for _, name := range o.CallerEnv {
		if why := badVariable(name); why != "" {
			return wrong("shell.caller_env: %s %s; set it for every command with shell.env, if it must be", name, why)
		}
	}
	for name, value := range o.Env {
		if !isVariable(name) || strings.ContainsRune(value, 0) {
			return wrong("shell.env: %q cannot be a variable; expected letters, digits and _, and no NUL in its value", name)
		}
	}
	return cmp.Or(
		each(slices.Concat(o.Allow, o.Deny), func(entry string) error { return checkProgram(programOf(entry)) }),
		each(o.Rules, func(r Rule) error { return checkProgram(r.Program) }))
}

func checkProgram(name string) error {
	switch {
	case name == "":
		return wrong("shell: a rule without a program; name one, such as git")
	case strings.Contains(name, "/") && !(filepath.IsAbs(name) && filepath.Clean(name) == name):
		return wrong("shell: the program %q; give its name, or its whole path without . and ..", name)
	}
	return nil
}

func wrong(format string, args ...any) error {
	return tool.Errorf(tool.CodeInvalidInput, format, args...)
}

// rule returns the config's rule for a program, which may be empty.
func (o *Options) rule(program string) Rule {
	if i := slices.IndexFunc(o.Rules, func(r Rule) bool { return r.Program == program }); i >= 0 {
		return o.Rules[i]
	}
	return Rule{Program: program}
}

// RunsCode reports whether a command that is allowed may run code, whose files no rule judges.
func (o *Options) RunsCode() bool {
	programs := slices.Clone(o.Allow)
	for _, r := range o.Rules {
		programs = append(programs, r.Program)
	}
	return slices.ContainsFunc(programs, func(words string) bool {
		name := programOf(words)
		p, code := programAt(name), o.rule(name).Code
		return !p.known() || cmp.Or(code, CodeNone) != CodeNone || p.in("run code") && code == ""
	})
}
