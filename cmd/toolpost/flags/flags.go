// Package flags makes the words and flags of a command from the arguments of the tool that it calls.
package flags

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"toolpost/builtin/define"
	"toolpost/cmd/toolpost/form"
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

// Choices returns the values that a flag of a tool can have; nil means any.
func Choices(f *pflag.Flag) []string {
	if one, ok := f.Value.(*flag); ok {
		return one.Enum
	}
	return nil
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
		return tool.Errorf(tool.CodeInvalidInput, "--%s must be one of %s, not %q%s", flag, strings.Join(f.Enum, ", "), text,
			nearest.Suggest(text, f.Enum, ""))
	}
	n, ok := f.value.(int64)
	shown := func(n int64) any {
		if f.isDuration() {
			return duration.Text(time.Duration(n) * time.Millisecond)
		}
		return n
	}
	switch {
	case !ok || f.Minimum == nil || n >= *f.Minimum && (f.Maximum == nil || n <= *f.Maximum):
		return nil
	case f.Maximum != nil:
		return tool.Errorf(tool.CodeInvalidInput, "--%s must be from %v to %v, not %v", flag, shown(*f.Minimum), shown(*f.Maximum),
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

// Inputs are the words and flags of a command for the arguments of a tool.
type Inputs struct {
	Least, Most int // how many words there may be; a negative Most means no limit

	properties map[string]*flag
	names      []string // of the words
	fixed      map[string]any
	flags      map[string]*flag
}

// Add gives a command the words and flags for the arguments A of a tool. The text given lists them:
//
//	job --all                the word JOB and the flag --all
//	tools...  tool?          any number of words; a word that may be missing
//	--limit,n:20             a flag with a short form and another default than the tool's
//	--role=roles             a flag with another name than its argument; --ttl=ttl_ms takes a duration
//	approve=true             a value that is always the same
func Add[A any](c *cobra.Command, given string) *Inputs {
	var schema struct {
		Properties map[string]*flag `json:"properties"`
	}
	if err := strictjson.Unmarshal(define.Input[A](nil), &schema); err != nil {
		panic(err) // a schema of our own has another form
	}
	in := &Inputs{properties: schema.Properties, fixed: map[string]any{}, flags: map[string]*flag{}}
	for word := range strings.FieldsSeq(given) {
		long, isFlag := strings.CutPrefix(word, "--")
		name, value, isFixed := strings.Cut(word, "=")
		switch {
		case isFlag:
			in.addFlag(c, long)
			continue
		case isFixed:
			in.fixed[name] = json.RawMessage(value)
			continue
		case strings.HasSuffix(name, "..."):
			in.Most = -1
		case strings.HasSuffix(name, "?"):
			in.Most++
		default:
			in.Least, in.Most = in.Least+1, in.Most+1
		}
		in.names = append(in.names, strings.TrimRight(name, "?."))
	}
	return in
}

// Read returns the arguments of the tool.
func (in *Inputs) Read(words []string) (map[string]any, error) {
	args := maps.Clone(in.fixed)
	for i, name := range in.names {
		switch {
		case i >= len(words):
		case words[i] == "":
			return nil, tool.Errorf(tool.CodeInvalidInput, "%s is empty", strings.ToUpper(name))
		case in.properties[name].Kind == "array":
			args[name] = words[i:]
		case in.properties[name].Kind == "object":
			args[name] = json.RawMessage(words[i])
		default:
			args[name] = words[i]
		}
	}
	for name, f := range in.flags {
		if err := f.check(name); err != nil {
			return nil, err
		}
		if f.value != nil && (f.value != "" || len(f.Enum) == 0) {
			args[f.name] = f.value
		}
	}
	return args, nil
}

// addFlag adds a flag that is written as Add describes.
func (in *Inputs) addFlag(c *cobra.Command, word string) {
	word, otherwise, ours := strings.Cut(word, ":")
	word, property, _ := strings.Cut(word, "=")
	name, short, _ := strings.Cut(word, ",")
	property = cmp.Or(property, strings.ReplaceAll(name, "-", "_"))
	f := in.properties[property]
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
	in.flags[name] = f
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
