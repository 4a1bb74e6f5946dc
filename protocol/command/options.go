// Package command runs any program as a tool without any code: the config describes how to build the command line from the
// arguments, and how to interpret the program's output and exit code.
//
// A command line is a list of words and never a text: there is no shell, and an argument stays one argument, whatever its
// value. It cannot choose the program, become an option, or be code that an interpreter runs; a path stays below the working
// folder.
package command

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"toolpost/config"
	"toolpost/config/offlimits"
	"toolpost/host/spawn"
	"toolpost/tool"
)

// Options are a configured source: one tool, or several that share everything except their own fields.
type Options struct {
	Tool
	Tools []Tool `yaml:"tools" doc:"several tools of one source, each with fields of its own, from tool to tier"`
	spawn.Options
}

// A Tool is a program as a tool. Only Command is needed.
type Tool struct {
	Name        string      `yaml:"tool" doc:"name of the tool; default: the name of the source"`
	Title       string      `yaml:"title" doc:"name for people"`
	Description string      `yaml:"description" doc:"what the tool does and when to use it"`
	Command     []Piece     `yaml:"command" kind:"path" doc:"the program, on PATH or, with a slash, from dir; and its arguments. {name} stands for an argument; a list within the list is there only when its arguments are given"`
	Arguments   config.JSON `yaml:"arguments" doc:"the arguments by name, each with a JSON Schema or a type alone: string, integer, number, boolean, array, or path, which is below dir; default: all that command and stdin name, as strings"`
	Input       config.JSON `yaml:"input" doc:"JSON Schema of the arguments, in place of arguments"`
	Stdin       Piece       `yaml:"stdin" doc:"what the program reads: a text with {name}; {*} stands for all arguments, as JSON; default: nothing"`

	Output    Output      `yaml:"output" schema:"enum=text|lines|json|jsonl default=text" doc:"how stdout is read; jsonl is one JSON value per line"`
	Result    config.JSON `yaml:"result" doc:"JSON Schema of the result"`
	Exits     []Exit      `yaml:"exits" doc:"what exit codes mean; default: 0 is a success, all others are failures"`
	Progress  Progress    `yaml:"progress" doc:"how progress is read: a regular expression with the groups percent, or done and total, and message; or lines"`
	Assets    []Word      `yaml:"assets" doc:"files that the program makes, as patterns below dir, such as out/*.png or {name}.pdf"`
	MaxOutput int64       `yaml:"max_output" kind:"bytes" schema:"default=16777216" doc:"bytes of stdout"`

	Effects tool.Effects `yaml:"effects" doc:"what the tool does to the world"`
	Tier    *int         `yaml:"tier" doc:"0 (safe) to 3 (dangerous); default: from the effects, and 1 if nothing is known of them"`
}

// Output is the format of standard output.
type Output string

// The formats.
const (
	Text  Output = "text"  // the result is a string
	Lines Output = "lines" // a list of strings
	JSON  Output = "json"  // the JSON value that was written
	JSONL Output = "jsonl" // a list of such values, one per line
)

// UnmarshalText implements encoding.TextUnmarshaler.
func (o *Output) UnmarshalText(b []byte) error {
	*o = Output(b)
	if known := []Output{Text, Lines, JSON, JSONL}; !slices.Contains(known, *o) {
		return fmt.Errorf("output is text, lines, json or jsonl, not %q", b)
	}
	return nil
}

// schema returns the schema of results in this format.
func (o Output) schema() json.RawMessage {
	switch o {
	case Lines:
		return json.RawMessage(`{"type":"array","items":{"type":"string"}}`)
	case JSONL:
		return json.RawMessage(`{"type":"array"}`)
	case JSON:
		return nil
	}
	return json.RawMessage(`{"type":"string"}`)
}

// An Exit is the meaning of an exit code.
type Exit struct {
	Code    int    `yaml:"code" doc:"the exit code, from 0 to 255"`
	OK      bool   `yaml:"ok" doc:"whether it is a success"`
	Reason  string `yaml:"reason" doc:"name of the failure, for programs"`
	Message string `yaml:"message" doc:"what it means, for people; default: what the program wrote to stderr"`
}

// Validate checks an exit; the config calls it after decoding one.
func (e Exit) Validate() error {
	switch {
	case e.Code < 0 || e.Code > 255:
		return fmt.Errorf("an exit code is from 0 to 255, not %d", e.Code)
	case e.OK && e.Reason != "":
		return fmt.Errorf("a success has no reason; leave it out, or leave out ok")
	}
	return nil
}

// A form is a checked tool, from which its calls are made.
type form struct {
	Tool
	program  *spawn.Program
	lead     int // how many words of the template the program already has
	about    map[string]*argument
	required []string
	progress *progress // nil if none is read
	spec     *tool.Spec
}

// all returns the tools of the source.
func (o Options) all() ([]Tool, error) {
	if len(o.Tools) == 0 {
		return []Tool{o.Tool}, nil
	}
	if len(o.Command) > 0 {
		return nil, tool.Errorf(tool.CodeInvalidInput, "command belongs to one tool; with tools, each of them has its own")
	}
	seen := map[string]bool{}
	for _, t := range o.Tools {
		switch {
		case t.Name == "":
			return nil, tool.Errorf(tool.CodeInvalidInput, "each of several tools needs a name: tool")
		case seen[t.Name]:
			return nil, tool.Errorf(tool.CodeInvalidInput, "two tools are called %q; give one of them another name", t.Name)
		}
		seen[t.Name] = true
	}
	return o.Tools, nil
}

// claim returns the files that the source starts from, and those that its tools may change, for a config in base.
func (o Options) claim(base string) (offlimits.Claim, error) {
	tools, err := o.all()
	c := o.Claim(base, nil)
	c.Stays = false
	for _, t := range tools {
		if argv := literals(t.Command, true); len(argv) > 0 {
			one := o.Claim(base, argv)
			c.Starts, c.Homes = append(c.Starts, one.Starts...), append(c.Homes, one.Homes...)
		}
	}
	return c, err
}

// form checks a tool for errors that would otherwise only show, or mislead, when the tool is called.
func (o Options) form(base string, t Tool) (*form, error) {
	t.MaxOutput = cmp.Or(t.MaxOutput, 16<<20)
	f := &form{Tool: t}
	switch err := f.arguments(); {
	case err != nil:
		return nil, err
	case tool.CheckTier(t.Tier) != nil:
		return nil, tool.CheckTier(t.Tier)
	case t.MaxOutput < 0:
		return nil, tool.Errorf(tool.CodeInvalidInput, "max_output cannot be negative")
	case len(t.Assets) > 0 && o.Container.Image != "":
		return nil, tool.Errorf(tool.CodeInvalidInput, "the files of a container cannot be opened from outside; "+
			"leave out assets, or run it without a container")
	}
	if err := f.check(); err != nil {
		return nil, err
	}
	lead := literals(t.Command, false)
	f.lead = len(lead)
	p, err := o.Program(base, spawn.Command{Argv: lead})
	if err != nil {
		return nil, err
	}
	f.program = p
	f.spec = &tool.Spec{
		Name: t.Name, Title: t.Title, Description: t.Description, Input: json.RawMessage(f.Input), Output: json.RawMessage(t.Result),
		Effects: t.Effects, Timeout: time.Duration(o.Timeout), Guarantees: o.Guarantees,
	}
	f.spec.Declare(t.Tier, tool.TierConfig)
	p.Publish(f.spec)
	if t.Result == nil {
		f.spec.Output = t.Output.schema()
	}
	return f, nil
}

// arguments reads the declared arguments, in the long form or in the short one.
func (f *form) arguments() error {
	if f.Arguments != nil && f.Input != nil {
		return tool.Errorf(tool.CodeInvalidInput, "arguments is the short form of input; write one of them")
	}
	if f.Input == nil {
		var list []shortForm
		var err error
		if f.Arguments != nil {
			list, err = readArguments(json.RawMessage(f.Arguments))
		} else {
			list = f.undeclared()
		}
		if err == nil {
			var input json.RawMessage
			input, err = inputOf(list, f.sure())
			f.Input = config.JSON(input)
		}
		if err != nil {
			return tool.Errorf(tool.CodeInvalidInput, "arguments: %w", err)
		}
	}
	var err error
	if f.about, f.required, err = readInput(json.RawMessage(f.Input)); err != nil {
		return tool.Errorf(tool.CodeInvalidInput, "input: %w", err)
	}
	return nil
}

// pieces returns the parts that can name arguments: the command line, and standard input.
func (f *form) pieces() []Piece {
	if f.Stdin == nil {
		return f.Command
	}
	return append(slices.Clone(f.Command), f.Stdin)
}

// sure lists the arguments that every call needs.
func (f *form) sure() (names []string) {
	for _, p := range f.pieces() {
		if p.always() {
			names = append(names, p.names()...)
		}
	}
	return names
}

// undeclared returns the arguments of a tool that declares none: a string for each placeholder.
func (f *form) undeclared() (list []shortForm) {
	for _, p := range f.pieces() {
		for _, name := range p.names() {
			if name != everything && !slices.ContainsFunc(list, func(one shortForm) bool { return one.name == name }) {
				list = append(list, shortForm{name, json.RawMessage(`{"type":"string"}`)})
			}
		}
	}
	return list
}

// check refuses a tool whose parts do not fit together.
func (f *form) check() (err error) {
	if err := check(f.Command, f.about); err != nil {
		return err
	}
	for _, name := range f.sure() {
		if a := f.about[name]; a != nil && a.Default == nil && !slices.Contains(f.required, name) {
			return tool.Errorf(tool.CodeInvalidInput, "{%s} need not be given; make it required, give it a default, "+
				"or put what it stands in into a list, which is left out then", name)
		}
	}
	if f.Stdin != nil && len(f.Stdin) != 1 {
		return tool.Errorf(tool.CodeInvalidInput, "stdin is one text, or a list of one, which is left out when its argument is")
	}
	for _, name := range f.Stdin.names() {
		if name != everything && f.about[name] == nil {
			return tool.Errorf(tool.CodeInvalidInput, "stdin: {%s} is not an argument; declare it under arguments", name)
		}
	}
	if err := f.checkAssets(); err != nil {
		return err
	}
	f.progress, err = f.Progress.compile(f.about)
	return err
}

func (f *form) checkAssets() error {
	for _, w := range f.Assets {
		pattern := w.before()
		_, err := filepath.Match(pattern, "")
		switch {
		case filepath.IsAbs(pattern), slices.Contains(strings.Split(pattern, "/"), ".."):
			return tool.Errorf(tool.CodeInvalidInput, "assets: %q is outside the working folder; give a pattern in it, from there", w)
		case err != nil && w.first() == "":
			return tool.Errorf(tool.CodeInvalidInput, "assets: %q is not a pattern: %w", w, err)
		}
		for _, p := range w.parts {
			if p.name != "" && (f.about[p.name] == nil || p.only) {
				return tool.Errorf(tool.CodeInvalidInput, "assets: {%s} in %q is not an argument", p.name, w)
			}
		}
	}
	return nil
}
