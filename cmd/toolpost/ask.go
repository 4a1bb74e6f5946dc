package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"toolpost/cmd/toolpost/mcpadd"
	"toolpost/cmd/toolpost/terminal"
	"toolpost/tool"
	jsonschema "toolpost/wire/schema"
	"toolpost/wire/strictjson"
)

// A prompter puts the questions of tools to the person at the terminal, field by field.
type prompter struct {
	*terminal.Reader
	out *screen
}

// prompter returns nil if no person can be asked: the answers would come from a script, which did not see the question.
func (a *app) prompter(req callRequest) *prompter {
	in, ok := a.in.(*os.File)
	if !ok || a.json || req.events || !a.err.terminal || !newScreen(in).terminal {
		return nil
	}
	return newPrompter(in, a.err)
}

// newPrompter reads lines from in on request, and prompts for them on out if a person looks at it.
func newPrompter(in *os.File, out *screen) *prompter {
	if !out.terminal {
		return &prompter{terminal.NewReader(in, nil), out}
	}
	return &prompter{terminal.NewReader(in, out), out}
}

// answer puts a tool's questions to the person, and returns the answers.
func (p *prompter) answer(ctx context.Context, name string, a *tool.Ask) (json.RawMessage, error) {
	fmt.Fprintf(p.out, "%s %s\n", p.out.bold(clean(name)+" asks:"), cleanLines(a.Message))
	if len(a.Needs) == 0 {
		return p.form(ctx, a.Schema)
	}
	all := map[string]json.RawMessage{}
	for _, n := range a.Needs {
		if n.Message != "" && n.Message != a.Message {
			fmt.Fprintln(p.out, cleanLines(n.Message))
		}
		one, err := p.need(ctx, n)
		if err != nil {
			return nil, err
		}
		all[n.Key] = raw(one)
	}
	return raw(all), nil
}

// need asks for one of the needs of a question.
func (p *prompter) need(ctx context.Context, n tool.Need) (any, error) {
	switch n.Kind {
	case tool.NeedForm:
		content, err := p.form(ctx, n.Schema)
		return map[string]any{"action": tool.Accept, "content": content}, err
	case tool.NeedLink:
		return p.link(ctx, n)
	case tool.NeedRoots:
		dir, err := os.Getwd()
		if err != nil {
			return nil, tool.Errorf(tool.CodeUnavailable, "the current folder cannot be found: %w", err)
		}
		fmt.Fprintf(p.out, "it is told which folder you work in: %s\n", clean(dir))
		return map[string]any{"roots": []any{map[string]string{"uri": (&url.URL{Scheme: "file", Path: dir}).String()}}}, nil
	}
	return p.model(ctx, n)
}

// link shows the address that the person should visit. It opens nothing: the person sees the whole address first.
func (p *prompter) link(ctx context.Context, n tool.Need) (any, error) {
	fmt.Fprintf(p.out, "go to %s\n", p.out.bold(linkOf(n)))
	yes, err := p.field(ctx, "done", json.RawMessage(`{"type":"boolean","default":true}`), true)
	action := tool.Accept
	if string(yes) == "false" {
		action = tool.Decline
	}
	return map[string]any{"action": action}, err
}

// linkOf returns the address that the person should visit, or "" if the tool does not name one.
func linkOf(n tool.Need) string {
	var params struct {
		URL string `json:"url"`
	}
	_ = strictjson.Unmarshal(n.Params, &params) // without one there is nothing to show
	return clean(params.URL)
}

// model lets the person answer in place of a model: the command line has none.
func (p *prompter) model(ctx context.Context, n tool.Need) (any, error) {
	fmt.Fprintf(p.out, "a model is asked; you answer in its place\n%s\n", cleanLines(string(n.Params)))
	text, err := p.field(ctx, "answer", json.RawMessage(`{"type":"string"}`), true)
	return map[string]any{
		"role": "assistant", "model": "person", "content": map[string]any{"type": "text", "text": text},
	}, err
}

// form asks for a value that fits a schema: the fields of an object one by one, anything else at once.
func (p *prompter) form(ctx context.Context, schema json.RawMessage) (json.RawMessage, error) {
	s := readSchema(schema)
	if !slices.Contains(s.Type, "object") && s.Properties == nil {
		return p.field(ctx, "answer", schema, true)
	}
	for {
		answers := []byte{'{'}
		err := strictjson.Object(s.properties(schema), func(name, property []byte) error {
			v, err := p.field(ctx, string(name), bytes.Clone(property), slices.Contains(s.Required, string(name)))
			if err != nil || v == nil {
				return err
			}
			if len(answers) > 1 {
				answers = append(answers, ',')
			}
			answers = append(append(append(answers, strictjson.Quote(name)...), ':'), v...)
			return nil
		})
		if err != nil {
			return nil, err
		}
		answers = append(answers, '}')
		fault := mismatch(schema, answers)
		if fault == "" {
			return answers, nil
		}
		fmt.Fprintf(p.out, "%s; once more\n", p.out.amber(fault))
	}
}

// properties returns the properties of a schema in its own order, in which they are asked for.
func (s schema) properties(whole json.RawMessage) json.RawMessage {
	found := json.RawMessage(`{}`)
	_ = strictjson.Object(whole, func(name, value []byte) error { // it is an object: it was read before
		if string(name) == "properties" {
			found = value
		}
		return nil
	})
	return found
}

// mismatch reports what is wrong with a value, or "" if it fits.
func mismatch(schema, value json.RawMessage) string {
	if len(schema) == 0 {
		return ""
	}
	s, err := jsonschema.Compile(schema)
	if err != nil {
		return ""
	}
	v, err := strictjson.Decode(value)
	if err != nil {
		return "that is not JSON: " + clean(err.Error())
	}
	return clean(jsonschema.Words(s.Validate(v)))
}

// field asks for one value until it fits. It returns nil if the person leaves it out.
func (p *prompter) field(ctx context.Context, name string, schema json.RawMessage, required bool) (json.RawMessage, error) {
	f := readField(schema)
	f.show(p.out, name, required)
	for {
		read := p.Line
		if f.Format == "password" || f.WriteOnly {
			read = p.Secret
		}
		text, err := read(ctx)
		if err != nil {
			return nil, err
		}
		value := f.value(text)
		switch {
		case text == "" && f.Default != nil:
			value = f.Default
		case text == "" && !required:
			return nil, nil
		case text == "" && !slices.Contains(f.Type, "string"):
			value = nil
		}
		fault := "it has to be answered; Ctrl-D ends the call"
		if value != nil {
			fault = mismatch(schema, value)
		}
		if fault == "" {
			return value, nil
		}
		fmt.Fprintln(p.out, p.out.amber(fault))
	}
}

// A field is the part of a property's schema that helps to ask for it.
type field struct {
	schema
	Title     string            `json:"title"`
	Format    string            `json:"format"`
	WriteOnly bool              `json:"writeOnly"`
	Default   json.RawMessage   `json:"default"`
	Enum      []json.RawMessage `json:"enum"`
	EnumNames []string          `json:"enumNames"` // what MCP had before titles in oneOf
	OneOf     []option          `json:"oneOf"`
	Items     struct {
		Enum  []json.RawMessage `json:"enum"`
		AnyOf []option          `json:"anyOf"`
	} `json:"items"`
}

// An option is one of a few allowed values.
type option struct {
	Const json.RawMessage `json:"const"`
	Title string          `json:"title"`
}

func readField(b json.RawMessage) (f field) {
	if strictjson.Unmarshal(b, &f) != nil {
		return field{}
	}
	return f
}

// options returns the values to choose from; many allows several. If there are none, anything may be typed.
func (f field) options() (list []option, many bool) {
	enum, oneOf := f.Enum, f.OneOf
	if many = slices.Contains(f.Type, "array"); many {
		enum, oneOf = f.Items.Enum, f.Items.AnyOf
	}
	for i, v := range enum {
		o := option{Const: v}
		if !many && len(f.EnumNames) == len(enum) {
			o.Title = f.EnumNames[i]
		}
		list = append(list, o)
	}
	for _, o := range oneOf {
		if o.Const == nil { // more than a list of values
			return nil, many
		}
		list = append(list, o)
	}
	return list, many
}

// show prints what to enter.
func (f field) show(out *screen, name string, required bool) {
	title := name
	if f.Title != "" {
		title = f.Title
	}
	line := out.bold(clean(title))
	if f.Description != "" {
		line += ": " + clean(f.Description)
	}
	options, many := f.options()
	var hints []string
	switch {
	case len(options) > 0 && many:
		hints = append(hints, "numbers with commas between them")
	case len(options) > 0:
		hints = append(hints, "a number")
	case slices.Contains(f.Type, "boolean"):
		hints = append(hints, "y/n")
	case len(f.Type) > 0 && !slices.Contains(f.Type, "string"):
		hints = append(hints, strings.Join(f.Type, " or "))
	}
	if f.Default != nil {
		hints = append(hints, "default "+plainText(f.Default))
	} else if !required {
		hints = append(hints, "may be left empty")
	}
	if len(hints) > 0 {
		line += out.dim(" (" + clean(strings.Join(hints, ", ")) + ")")
	}
	fmt.Fprintln(out, line)
	for i, o := range options {
		fmt.Fprintf(out, "  %d  %s\n", i+1, clean(o.words()))
	}
}

func (o option) words() string {
	if o.Title != "" {
		return o.Title
	}
	return plainText(o.Const)
}

// plainText returns a JSON string as text, and any other value as JSON.
func plainText(v json.RawMessage) string {
	if text, err := strictjson.Unquote(v); err == nil && strictjson.KindOf(v) == "string" {
		return string(text)
	}
	return string(v)
}

// value converts typed text to JSON. Text that cannot be converted stays text; the schema check then finds the mistake.
func (f field) value(text string) json.RawMessage {
	options, many := f.options()
	switch {
	case len(options) > 0 && many:
		list := []json.RawMessage{}
		for one := range strings.SplitSeq(text, ",") {
			if one = strings.TrimSpace(one); one != "" {
				list = append(list, pick(options, one))
			}
		}
		return raw(list)
	case len(options) > 0:
		return pick(options, strings.TrimSpace(text))
	case slices.Contains(f.Type, "boolean"):
		switch strings.ToLower(strings.TrimSpace(text)) {
		case "y", "yes", "true":
			return json.RawMessage("true")
		case "n", "no", "false":
			return json.RawMessage("false")
		}
		return raw(text)
	case len(f.Type) == 0 || slices.Contains(f.Type, "string"):
		return raw(text)
	}
	if strictjson.Check([]byte(text)) != nil {
		return raw(text)
	}
	return json.RawMessage(text)
}

// pick finds an option by number, value or title. A value takes precedence over a number: 7 may be one.
func pick(options []option, text string) json.RawMessage {
	for _, o := range options {
		if plainText(o.Const) == text || o.Title != "" && strings.EqualFold(o.Title, text) {
			return o.Const
		}
	}
	if n, err := strconv.Atoi(text); err == nil && n >= 1 && n <= len(options) {
		return options[n-1].Const
	}
	return raw(text)
}

// unanswered shows the unanswered question of a call, and how to answer it. The state of a question from an MCP server is
// kept by the process that made the call, so here it ends with the question.
func (a *app) unanswered(name, job string, r *tool.Result) error {
	q := r.Ask
	if q.Kind == tool.AskApproval {
		return a.unapproved(q)
	}
	fmt.Fprintf(a.err, "%s %s asks: %s\n", a.err.amber("toolpost:"), clean(name), cleanLines(q.Message))
	var examples []string
	for _, n := range q.Needs {
		what := cleanLines(n.Message)
		switch n.Kind {
		case tool.NeedLink:
			what = strings.TrimSpace(what + " " + linkOf(n))
		case tool.NeedModel:
			what = strings.TrimSpace(what + " " + clean(string(n.Params)))
		}
		fmt.Fprintf(a.err, "%s (%s): %s\n", clean(n.Key), n.Kind, what)
		a.showInputs(n.Schema)
		examples = append(examples, `"`+clean(n.Key)+`": `+answerForms[n.Kind])
	}
	if len(q.Needs) == 0 {
		a.showInputs(q.Schema)
	}
	if job != "" {
		fmt.Fprintln(a.err, a.answerJob(job))
		return exitAsks
	}
	if r.Trace.Protocol == mcpadd.Protocol && a.server.url == "" {
		fmt.Fprintln(a.err, "The server does not wait for an answer, since this program ends now. Make the call at a terminal, or to a "+
			"Toolpost that runs: `toolpost serve`, and --server URL.")
		return exitAsks
	}
	example := "JSON"
	if len(examples) > 0 {
		example = "{" + strings.Join(examples, ", ") + "}"
	}
	fmt.Fprintf(a.err, "Answer by calling it again with the same arguments and\n  --answers '%s' --resume %s\n", example, clean(q.ID))
	return exitAsks
}

// answerForms are the forms of an answer, by the kind of need.
var answerForms = map[tool.NeedKind]string{
	tool.NeedForm:  `{"action": "accept", "content": {...}}`,
	tool.NeedLink:  `{"action": "accept"}`,
	tool.NeedModel: `{"role": "assistant", "model": "NAME", "content": {"type": "text", "text": "..."}}`,
	tool.NeedRoots: `{"roots": [{"uri": "file:///DIR"}]}`,
}

func (a *app) showInputs(schema json.RawMessage) {
	if lines := inputLines(schema); lines != "" {
		fmt.Fprintln(a.err, lines)
	} else if len(schema) > 0 {
		fmt.Fprintln(a.err, "  "+clean(string(schema)))
	}
}
