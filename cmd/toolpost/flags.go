package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"toolpost/builtin/define"
	"toolpost/cmd/toolpost/form"
	"toolpost/node"
	"toolpost/tool"
	"toolpost/wire/duration"
	"toolpost/wire/nearest"
	"toolpost/wire/strictjson"
)

// A flag is an argument of a tool on the command line: a pflag.Value whose type, bounds and help come from the tool's
// schema, and so from the tags of the tool's arguments.
type flag struct {
	Kind        string          `json:"type"`
	Format      string          `json:"format"`
	Description string          `json:"description"`
	Enum        []string        `json:"enum"`
	Minimum     *int64          `json:"minimum"`
	Maximum     *int64          `json:"maximum"`
	Default     json.RawMessage `json:"default"`

	name  string // of the argument
	text  string
	value any  // nil if it is not given
	ours  bool // the command has another default than the tool
}

// Type implements pflag.Value: the name of the type in the help.
func (f *flag) Type() string {
	if f.isDuration() {
		return "duration"
	}
	kinds := map[string]string{"integer": "int", "boolean": "bool", "array": "stringArray"}
	return cmp.Or(kinds[f.Kind], "string")
}

// isDuration reports whether the argument is a duration. The tools take those in milliseconds.
func (f *flag) isDuration() bool { return strings.HasSuffix(f.name, "_ms") }

// String implements pflag.Value.
func (f *flag) String() string { return f.text }

// Set implements pflag.Value.
func (f *flag) Set(text string) (err error) {
	f.text = text
	switch kind := f.Type(); {
	case kind == "duration":
		var d duration.Flag
		err = d.Set(text)
		f.value = time.Duration(d).Milliseconds()
	case kind == "int":
		f.value, err = strconv.ParseInt(text, 10, 64)
	case kind == "bool":
		f.value, err = strconv.ParseBool(text)
	case kind == "stringArray":
		list, _ := f.value.([]string)
		f.value = slices.Concat(list, []string{text})
	case f.Format == "date-time":
		f.value, err = moment(text, time.Now())
	default:
		f.value = text
		if i := slices.IndexFunc(f.Enum, func(one string) bool { return strings.EqualFold(one, text) }); i >= 0 {
			f.value = f.Enum[i]
		}
	}
	return err
}

// check refuses a value that the schema does not allow. The tool would do so too, without the name of the flag.
func (f *flag) check(flag string) error {
	if text, _ := f.value.(string); len(f.Enum) > 0 && text != "" && !slices.Contains(f.Enum, text) {
		return tool.Errorf(tool.CodeInvalidInput, "--%s is one of %s, not %q%s", flag, strings.Join(f.Enum, ", "), text,
			nearest.Suggest(text, f.Enum, ""))
	}
	n, ok := f.value.(int64)
	shown := func(n int64) any {
		if f.isDuration() {
			return time.Duration(n) * time.Millisecond
		}
		return n
	}
	switch {
	case !ok || f.Minimum == nil || n >= *f.Minimum && (f.Maximum == nil || n <= *f.Maximum):
		return nil
	case f.Maximum != nil:
		return tool.Errorf(tool.CodeInvalidInput, "--%s is from %v to %v, not %v", flag, shown(*f.Minimum), shown(*f.Maximum),
			shown(n))
	}
	return tool.Errorf(tool.CodeInvalidInput, "--%s cannot be negative", flag)
}

// usage is the help of the flag.
func (f *flag) usage() string {
	text := f.Description
	if f.ours {
		text, _, _ = strings.Cut(text, "; default")
	}
	if len(f.Enum) > 0 {
		text += "; one of " + strings.Join(f.Enum, ", ")
	}
	return text
}

// inputs gives a command the words and flags for the arguments A of a tool, and returns a function that reads them. The
// text given lists them:
//
//	job --all                the word JOB and the flag --all
//	tools...  tool?          any number of words; a word that may be missing
//	--limit,n:20             a flag with a short form and another default than the tool's
//	--role=roles             a flag with another name than its argument; --ttl=ttl_ms takes a duration
//	approve=true             a value that is always the same
func inputs[A any](c *cobra.Command, given string) func(words []string) (map[string]any, error) {
	var schema struct {
		Properties map[string]*flag `json:"properties"`
	}
	if err := strictjson.Unmarshal(define.Input[A](nil), &schema); err != nil {
		panic(err) // a schema of our own has another form
	}
	var names []string
	least, most, fixed, flags := 0, 0, map[string]any{}, map[string]*flag{}
	for word := range strings.FieldsSeq(given) {
		long, isFlag := strings.CutPrefix(word, "--")
		name, value, isFixed := strings.Cut(word, "=")
		switch {
		case isFlag:
			name, f := addFlag(c, long, schema.Properties)
			flags[name] = f
			continue
		case isFixed:
			fixed[name] = json.RawMessage(value)
			continue
		case strings.HasSuffix(name, "..."):
			most = -1
		case strings.HasSuffix(name, "?"):
			most++
		default:
			least, most = least+1, most+1
		}
		names = append(names, strings.TrimRight(name, "?."))
	}
	if c.Args == nil {
		c.Args = words(least, most)
	}
	return func(words []string) (map[string]any, error) {
		args := map[string]any{}
		for name, value := range fixed {
			args[name] = value
		}
		for i, name := range names {
			switch {
			case i >= len(words):
			case words[i] == "":
				return nil, tool.Errorf(tool.CodeInvalidInput, "%s is empty", strings.ToUpper(name))
			case schema.Properties[name].Kind == "array":
				args[name] = words[i:]
			case schema.Properties[name].Kind == "object":
				args[name] = json.RawMessage(words[i])
			default:
				args[name] = words[i]
			}
		}
		for name, f := range flags {
			if err := f.check(name); err != nil {
				return nil, err
			}
			if f.value != nil && (f.value != "" || len(f.Enum) == 0) {
				args[f.name] = f.value
			}
		}
		return args, nil
	}
}

// addFlag adds a flag that is written as inputs describes.
func addFlag(c *cobra.Command, word string, properties map[string]*flag) (string, *flag) {
	word, otherwise, ours := strings.Cut(word, ":")
	word, property, _ := strings.Cut(word, "=")
	name, short, _ := strings.Cut(word, ",")
	property = cmp.Or(property, strings.ReplaceAll(name, "-", "_"))
	f := properties[property]
	if f.name, f.ours = property, ours; ours {
		if err := f.Set(otherwise); err != nil {
			panic(err)
		}
	}
	added := c.Flags().VarPF(f, name, short, f.usage())
	if !ours {
		added.DefValue = form.PlainText(f.Default)
	}
	if f.Kind == "boolean" {
		added.NoOptDefVal = "true"
	}
	if len(f.Enum) > 0 {
		_ = c.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(f.Enum, cobra.ShellCompDirectiveNoFileComp))
	}
	return name, f
}

// moment reads a time, or how long ago it was. An empty text is the zero time.
func moment(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := duration.Parse(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	layouts := []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02T15:04", time.DateTime, time.DateOnly}
	for _, layout := range layouts {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, tool.Errorf(tool.CodeInvalidInput,
		"%q is neither a time such as 2026-01-31 or 2026-01-31T08:00:00Z nor an age such as 90m or 7d", text)
}

// completeTool completes the first word with names of tools, and later words with names of their inputs. Without
// a server it knows them from the last time that all tools were listed; a name that is new since then opens the sources.
func (a *app) completeTool(c *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(c.Context(), completeTimeout)
	defer cancel()
	if err := a.locate(ctx); err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	complete := func(known completions) []string { return known.names(word) }
	directive := cobra.ShellCompDirectiveNoFileComp
	if len(args) > 0 {
		complete = func(known completions) []string { return known.inputs(args[0], word) }
		directive |= cobra.ShellCompDirectiveNoSpace
	}
	if known, age, ok := a.remembered(); ok {
		if found := complete(known); len(found) > 0 || age < renewedAfter {
			return found, directive
		}
	}
	b, err := a.open(ctx, node.Options{})
	if err != nil {
		return nil, directive
	}
	defer b.close()
	tools, _ := a.catalogue(ctx, b) // without tools there is nothing to complete
	return complete(a.remember(tools)), directive
}

func (c completions) names(word string) (names []string) {
	for _, t := range c.Tools {
		if strings.HasPrefix(t.Name, word) {
			names = append(names, cobra.CompletionWithDesc(t.Name, t.About))
		}
	}
	return names
}

// inputs completes the name of an input.
func (c completions) inputs(name, word string) (found []string) {
	i := slices.IndexFunc(c.Tools, func(t completableTool) bool {
		return t.Name == name || slices.Contains(t.Also, name)
	})
	if i < 0 {
		return nil
	}
	for _, in := range c.Tools[i].Inputs {
		if strings.HasPrefix(in.Name, word) {
			found = append(found, cobra.CompletionWithDesc(in.Name+"=", in.Description))
		}
	}
	return found
}

// completeTimeout bounds how long a person waits for Tab.
const completeTimeout = 2 * time.Second

// completeFrom completes the only word of a command with the ids in the list that a tool gives. In about, names of the
// list's members stand for their values. Things with a state must be in the state only, unless that is empty.
func (a *app) completeFrom(o own, id, about, only string) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) (ids []string, _ cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(c.Context(), completeTimeout)
		defer cancel()
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		lists, _ := ask[map[string][]map[string]any](ctx, a, o, struct{}{}) // an empty list is not an error
		for _, list := range lists {
			for _, one := range list {
				words := strings.Fields(about)
				for i, word := range words {
					if value, ok := one[word]; ok {
						words[i] = fmt.Sprint(value)
					}
				}
				if only == "" || one["state"] == only {
					ids = append(ids, cobra.CompletionWithDesc(clean(fmt.Sprint(one[id])), clean(strings.Join(words, " "))))
				}
			}
		}
		return ids, cobra.ShellCompDirectiveNoFileComp
	}
}
