package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	"toolpost/cmd/toolpost/cache"
	"toolpost/cmd/toolpost/form"
	"toolpost/cmd/toolpost/mcpadd"
	"toolpost/cmd/toolpost/terminal"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// A prompter puts the questions of tools to the person at the terminal, field by field.
type prompter struct {
	*terminal.Reader
	out *screen
}

// prompter returns nil if no person can be asked: the answers would come from a script, which did not see the question.
func (a *app) prompter(req callRequest) *prompter {
	in := a.keyboard()
	if in == nil || a.json || req.events || !a.err.terminal {
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

// agreed asks for consent on out; asked is false if there is no terminal to answer at.
func (a *app) agreed(ctx context.Context, out *screen, question string) (yes, asked bool, err error) {
	in := a.keyboard()
	if in == nil {
		return false, false, nil
	}
	yes, err = terminal.NewReader(in, out).Agreed(ctx, question)
	return yes, true, err
}

// answer puts a tool's questions to the person, and returns the answers.
func (p *prompter) answer(ctx context.Context, name string, a *tool.Ask) (json.RawMessage, error) {
	fmt.Fprintf(p.out, "%s %s\n", p.out.bold(clean(name)+" asks:"), cleanLines(a.Message))
	if len(a.Needs) == 0 {
		return p.form(ctx, a.Schema)
	}
	all := map[string]json.RawMessage{}
	for _, n := range a.Needs {
		if !strings.Contains(a.Message, n.Message) {
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
	for {
		fmt.Fprintln(p.out, p.out.bold("done")+p.out.dim(" (Enter when you are; n declines)"))
		line, err := p.Line(ctx)
		if err != nil {
			return nil, err
		}
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "", "done", "y", "yes", "true":
			return map[string]any{"action": tool.Accept}, nil
		case "n", "no", "false":
			return map[string]any{"action": tool.Decline}, nil
		}
	}
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
	s := form.ReadSchema(schema)
	if !slices.Contains(s.Type, "object") && s.Properties == nil {
		return p.field(ctx, "answer", schema, true)
	}
	for {
		answers := []byte{'{'}
		err := strictjson.Object(s.Members(schema), func(name, property []byte) error {
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
		fault := clean(form.Mismatch(schema, answers))
		if fault == "" {
			return answers, nil
		}
		fmt.Fprintf(p.out, "%s; once more\n", p.out.amber(fault))
	}
}

// field asks for one value until it fits. It returns nil if the person leaves it out.
func (p *prompter) field(ctx context.Context, name string, schema json.RawMessage, required bool) (json.RawMessage, error) {
	f := form.ReadField(schema)
	show(f, p.out, name, required)
	for {
		read := p.Line
		if f.Format == "password" || f.WriteOnly {
			read = p.Secret
		}
		text, err := read(ctx)
		if err != nil {
			return nil, err
		}
		value := f.Value(text)
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
			fault = clean(form.Mismatch(schema, value))
		}
		if fault == "" {
			return value, nil
		}
		fmt.Fprintln(p.out, p.out.amber(fault))
	}
}

// show prints what to enter.
func show(f form.Field, out *screen, name string, required bool) {
	title := name
	if f.Title != "" {
		title = f.Title
	}
	line := out.bold(clean(title))
	if f.Description != "" {
		line += ": " + clean(f.Description)
	}
	options, many := f.Options()
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
		hints = append(hints, "default "+form.PlainText(f.Default))
	} else if !required {
		hints = append(hints, "may be left empty")
	}
	if len(hints) > 0 {
		line += out.dim(" (" + clean(strings.Join(hints, ", ")) + ")")
	}
	fmt.Fprintln(out, line)
	for i, o := range options {
		fmt.Fprintf(out, "  %d  %s\n", i+1, clean(o.String()))
	}
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
			if what = strings.TrimSpace(what + " " + linkOf(n)); q.Kind == tool.AskConnection {
				what = "answer when you have connected it" // the message has the rest
			}
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
			"Toolpost that runs: start `toolpost serve` first.")
		return exitAsks
	}
	example := "JSON"
	if len(examples) > 0 {
		example = "{" + strings.Join(examples, ", ") + "}"
	}
	fmt.Fprintf(a.err, "Answer by calling it again with the same arguments and\n  --answers '%s' --resume %s\n", example, cache.Abbreviate(q.ID))
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
	if lines := form.InputLines(schema); lines != "" {
		fmt.Fprintln(a.err, lines)
	} else if len(schema) > 0 {
		fmt.Fprintln(a.err, "  "+clean(string(schema)))
	}
}
