package wrap

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"toolpost/config"
	"toolpost/wire/regex"
	"toolpost/wire/strictjson"
)

// maxOptions is how many options a draft has: models do not read more than that, and few people do.
const maxOptions = 24

// Commands reports whether the program only runs commands of its own.
func (p *Program) Commands() bool {
	return len(p.Options) == 0 && !slices.ContainsFunc(p.Operands, func(o Operand) bool { return !runs().MatchString(o.Name) })
}

// Draft writes the config of a source that runs the program with these words.
func (p *Program) Draft(words []string) string {
	d := &draft{taken: map[string]bool{}}
	for _, w := range words {
		d.piece(w)
	}
	for _, o := range p.Options {
		d.option(o)
	}
	for _, o := range p.Operands {
		d.operand(o)
	}
	name, tool := names(words)
	summary := cmp.Or(p.Summary, "Runs "+strings.Join(words, " ")+".")
	var b strings.Builder
	fmt.Fprintf(&b, "sources:\n  - name: %s\n    protocol: command\n    tool: %s\n    description: %s\n    command:\n%s",
		yamlText(name), yamlText(tool), yamlText(summary), d.command.String())
	if d.arguments.Len() > 0 {
		fmt.Fprintf(&b, "    arguments:\n%s", d.arguments.String())
	}
	b.WriteString("    effects: {exec: true} # change this: reads, writes, network, destructive? The tier follows from it\n")
	if len(d.left) > 0 {
		fmt.Fprintf(&b, "    # left out: %s\n", strings.Join(d.left, ", "))
	}
	return b.String()
}

var unfit = regex.Lazy(`[^A-Za-z0-9]+`)

// names returns a name for the source in a config, and one for the tool, made from the words that are not options.
func names(words []string) (source, tool string) {
	var said []string
	for _, w := range words {
		if !strings.HasPrefix(w, "-") {
			said = append(said, strings.Trim(unfit().ReplaceAllString(path.Base(w), "_"), "_"))
		}
	}
	tool = cmp.Or(strings.Trim(strings.Join(said, "_"), "_"), "program")
	if source = strings.ToLower(strings.ReplaceAll(tool, "_", "-")); source == config.OwnSource {
		source = "program"
	}
	return source, tool
}

// A draft is a source that is being written.
type draft struct {
	command, arguments strings.Builder
	taken              map[string]bool // names of arguments
	left               []string
	options            int
}

func (d *draft) piece(words ...string) {
	if len(words) == 1 {
		fmt.Fprintf(&d.command, "      - %s\n", yamlText(literal(words[0])))
		return
	}
	var list []string
	for _, w := range words {
		list = append(list, yamlText(w))
	}
	fmt.Fprintf(&d.command, "      - [%s]\n", strings.Join(list, ", "))
}

// literal doubles the braces of a word, as templates require.
func literal(word string) string { return strings.NewReplacer("{", "{{", "}", "}}").Replace(word) }

// runs matches a value that is a program or code, and so is not left to an argument.
var runs = regex.Lazy(`(?i)^((sub)?command|cmd|program|prog|script|shell|expr|expression|code|args?|arguments?)s?$`)

func (d *draft) option(o Option) {
	if runs().MatchString(o.Value) && !strings.HasPrefix(strings.ToLower(o.Value), "expr") || d.options == maxOptions {
		d.left = append(d.left, o.Flag)
		return
	}
	d.options++
	name := d.name(strings.TrimLeft(o.Flag, "-"))
	about := schemaOf(o.Value, o.Choices, o.Repeats)
	switch {
	case o.Value == "":
		about = "{type: boolean"
		d.piece("{"+name+"?}", o.Flag)
	case strings.HasPrefix(o.Flag, "--"):
		fmt.Fprintf(&d.command, "      - [%s]\n", yamlText(o.Flag+"={"+name+"}"))
	default:
		d.piece(o.Flag, "{"+name+"}")
	}
	d.argument(name, about, o.Doc)
}

func (d *draft) operand(o Operand) {
	if runs().MatchString(o.Name) {
		d.left = append(d.left, o.Name)
		return
	}
	name := d.name(o.Name)
	word := "{" + name + "}"
	switch {
	case o.Optional && o.Dashes:
		d.piece("--", word)
	case o.Optional:
		fmt.Fprintf(&d.command, "      - [%s]\n", yamlText(word))
	default:
		if o.Dashes {
			d.piece("--")
		}
		fmt.Fprintf(&d.command, "      - %s\n", yamlText(word))
	}
	d.argument(name, schemaOf(o.Name, nil, o.Repeats), o.Doc)
}

func (d *draft) argument(name, about, doc string) {
	if doc != "" {
		about += ", description: " + yamlText(doc)
	}
	fmt.Fprintf(&d.arguments, "      %s: %s}\n", yamlText(name), about)
}

// name makes a unique name for an argument.
func (d *draft) name(of string) string {
	name := strings.Trim(unfit().ReplaceAllString(strings.ToLower(of), "_"), "_")
	if name == "" || name[0] >= '0' && name[0] <= '9' {
		name = "option_" + name
	}
	for free, i := name, 2; ; free, i = name+"_"+strconv.Itoa(i), i+1 {
		if !d.taken[free] {
			d.taken[free] = true
			return free
		}
	}
}

// The names of values in help texts.
var (
	whole = regex.Lazy(`(?i)^(n|num|number|int|integer|uint|count|lines?|levels?|depth|width|bytes|port|secs?|seconds|jobs|cols|size_t|int64|uint64)$`)
	real  = regex.Lazy(`(?i)^(float|double|number|ratio|float64)$`)
	paths = regex.Lazy(`(?i)^(in|out|input|output|src|source|dest|archive|data|config)?[-_ ]?(file|path|dir|directory|folder|filename|pathname|tree)(name)?s?$`)
)

// schemaOf returns the schema of a value, without its closing brace.
func schemaOf(value string, choices []string, repeats bool) string {
	kind := "string"
	switch name, _, _ := strings.Cut(value, "..."); {
	case choices != nil:
	case whole().MatchString(name):
		kind = "integer"
	case real().MatchString(name):
		kind = "number"
	case paths().MatchString(name):
		kind = "path"
	}
	one := "{type: " + kind
	if choices != nil {
		list, _ := strictjson.Marshal(slices.Compact(choices)) // strings can always be marshalled
		one += ", enum: " + string(list)
	}
	if repeats {
		return "{type: array, items: " + one + "}"
	}
	return one
}

var (
	plainText = regex.Lazy(`^(?:[A-Za-z_./]|--?[A-Za-z])[\w./=+-]*$`)
	reserved  = regex.Lazy(`(?i)^(true|false|null|yes|no|on|off|y|n|~|[.]inf|[.]nan)$`)
)

// yamlText writes a text as YAML: as it is if that is valid, else in quotes.
func yamlText(text string) string {
	if plainText().MatchString(text) && !reserved().MatchString(text) {
		return text
	}
	return string(strictjson.Quote(text))
}
