package shell

import (
	"fmt"
	"slices"
	"strings"
)

// A form lists the arguments that a program, or one of its subcommands, may be given. It lists only what is known to be
// harmless, so that unlisted options are refused, and so are abbreviations of listed ones.
type form struct {
	// opts are the options: "-l" a flag, "-[abc]" three flags, "-A:n" one with a value of a kind, "--arg:tt"
	// one with two, "--color?k" one whose value is optional and attached, "-#" a dash and a number.
	opts string
	// args are the kinds of the other arguments, one letter each; a star repeats the last one for all that follow. If it is
	// empty, there are none.
	args string
	last kind // of the last of them, if there are at least two

	single bool   // options have one dash and whole words, as those of find and go
	stop   bool   // the first argument that is not an option ends them
	ends   string // an option that ends them too, with its value
	// rest is followed by arguments for a program that is run, whatever they are: an option such as -args, or a number of
	// arguments.
	rest string

	instead string // options that replace the first argument, as grep's -e does
	writing string // options that make it write what it otherwise reads
	reading string // options that make it read what it otherwise writes
	recurse string // options that make it descend into folders and show the content of their files; "always"

	follows bool   // and it follows the links that it finds there
	only    string // and it reads only files with this suffix

	work string // when it writes in its working folder: "always", with "args", or with one of these options
	look string // options with which it does not write there
	net  bool   // it reaches the network
	code Code   // it runs code
	min  int    // how many arguments it takes at least
}

// A kind is the type of an argument.
type kind byte

const (
	number  kind = 'n'
	keyword kind = 'k' // a name of something: no slash, no dash in front
	free    kind = 't' // any text: a pattern, a message
	reads   kind = 'r' // a path
	writes  kind = 'w' // a path
	removes kind = 'd' // a path that does not exist afterwards
	enters  kind = 'c' // a folder: later paths start there
	archive kind = 'a' // a path that tar would take for a remote one if it had a colon
	commit  kind = 'v' // git's: a revision, or a path
	remote  kind = 'u' // git's: the name of a remote, or an https URL
	script  kind = 's' // a path to code that is run
	pkg     kind = 'p' // go's: a package
	linker  kind = 'g' // go's -ldflags
	mode    kind = 'm' // chmod's
	format  kind = 'f' // date's: an output format, not a time to set
	loose   kind = 'l' // anything; parts that look like a path are judged as one
)

// An option is an option of a form.
type option struct {
	kinds    string // of its values; empty for a flag
	optional bool   // its value is attached or absent
}

// An item is one parsed part of a command line: an option with its values, or an argument.
type item struct {
	name   string   // of an option, with its dashes; empty for an argument
	kinds  string   // of values
	values []string // as they were written
}

// options reads the table's short form.
func (f *form) options() map[string]option {
	table := map[string]option{}
	for word := range strings.FieldsSeq(f.opts) {
		if letters, ok := strings.CutPrefix(word, "-["); ok {
			for _, c := range strings.TrimSuffix(letters, "]") {
				table["-"+string(c)] = option{}
			}
			continue
		}
		name, kinds, required := strings.Cut(word, ":")
		if !required {
			name, kinds, _ = strings.Cut(word, "?")
		}
		table[name] = option{kinds: kinds, optional: !required && kinds != ""}
	}
	return table
}

// A parser splits arguments into items.
type parser struct {
	table map[string]option
	args  []string // what is left
	items []item
}

// parse parses the arguments of a program, or reports what it does not know.
func (f *form) parse(args []string) ([]item, error) {
	p := &parser{table: f.options(), args: args}
	for len(p.args) > 0 {
		arg := p.next()
		var err error
		switch {
		case arg == f.rest && arg != "":
			p.forProgram()
		case arg == "--":
			p.rest()
		case arg == "-" || !strings.HasPrefix(arg, "-"):
			p.argument(arg)
			if f.stop {
				p.rest()
			}
			if f.rest == "1" {
				p.forProgram()
			}
		case f.single: // -name and --name are the same, as for Go programs and find
			err = p.long("-" + strings.TrimPrefix(arg[1:], "-"))
		case strings.HasPrefix(arg, "--"):
			err = p.long(arg)
		default:
			err = p.short(arg)
		}
		if err != nil {
			return nil, err
		}
		if n := len(p.items); n > 0 && f.ends != "" && p.items[n-1].name == f.ends {
			p.rest()
		}
	}
	return p.items, f.assign(p.items)
}

func (p *parser) next() string {
	arg := p.args[0]
	p.args = p.args[1:]
	return arg
}

func (p *parser) argument(arg string) { p.items = append(p.items, item{values: []string{arg}}) }

func (p *parser) rest() {
	for len(p.args) > 0 {
		p.argument(p.next())
	}
}

// forProgram takes the rest as arguments of a program that is run.
func (p *parser) forProgram() {
	if len(p.args) > 0 {
		p.items = append(p.items, item{name: "...", kinds: strings.Repeat(string(loose), len(p.args)), values: p.args})
		p.args = nil
	}
}

// long reads --name, --name=value and --name value. A name must be complete.
func (p *parser) long(arg string) error {
	name, value, attached := strings.Cut(arg, "=")
	o, ok := p.table[name]
	if !ok {
		return unknownOption(name)
	}
	if !attached {
		return p.option(name, o)
	}
	if len(o.kinds) != 1 {
		return fmt.Errorf("%s with a value", name)
	}
	p.items = append(p.items, item{name, o.kinds, []string{value}})
	return nil
}

// short reads -abc, in which the last may have a value, attached or not.
func (p *parser) short(arg string) error {
	if _, ok := p.table["-#"]; ok && isDigits(arg[1:]) {
		p.items = append(p.items, item{name: "-#"})
		return nil
	}
	for i := 1; i < len(arg); i++ {
		name := "-" + arg[i:i+1]
		o, ok := p.table[name]
		switch rest := arg[i+1:]; {
		case !ok:
			return unknownOption(name)
		case o.kinds == "", rest == "":
			if err := p.option(name, o); err != nil {
				return err
			}
		case len(o.kinds) > 1:
			return fmt.Errorf("%s with an attached value", name)
		default:
			p.items = append(p.items, item{name, o.kinds, []string{rest}})
			return nil
		}
	}
	return nil
}

// option takes the values of an option that has none attached. A value that looks like an option is refused: if our table
// and the program differ, the program would read it as one.
func (p *parser) option(name string, o option) error {
	it := item{name: name}
	if !o.optional {
		it.kinds = o.kinds
	}
	for range len(it.kinds) {
		if len(p.args) == 0 {
			return fmt.Errorf("%s without its value", name)
		}
		value := p.next()
		if strings.HasPrefix(value, "-") && value != "-" && !isNumber(value) {
			return fmt.Errorf("%s followed by %s, which may be an option or its value: attach a value that begins with a "+
				"dash, as in --name=-value", name, value)
		}
		it.values = append(it.values, value)
	}
	p.items = append(p.items, it)
	return nil
}

func unknownOption(name string) error {
	return fmt.Errorf("%s, which is not among the options that are known to be harmless (write each in full)", name)
}

// assign assigns kinds to the arguments.
func (f *form) assign(items []item) error {
	kinds, many := strings.CutSuffix(f.args, "*")
	if len(kinds) > 0 && has(items, f.instead) && (len(kinds) > 1 || !many) {
		kinds = kinds[1:]
	}
	var args []*item
	for i := range items {
		if items[i].name == "" {
			args = append(args, &items[i])
		}
	}
	if len(args) < f.min {
		return fmt.Errorf("%d arguments; at least %d are wanted", len(args), f.min)
	}
	for i, a := range args {
		switch {
		case i < len(kinds):
			a.kinds = kinds[i : i+1]
		case many && kinds != "":
			a.kinds = kinds[len(kinds)-1:]
		default:
			return fmt.Errorf("the argument %q, where none is known to be harmless", a.values[0])
		}
		if f.last != 0 && i > 0 && i == len(args)-1 && !has(items, intoFolder) {
			a.kinds = string(f.last)
		}
		if v := a.values[0]; strings.HasPrefix(v, "-") && v != "-" && !isNumber(v) &&
			a.kinds != string(free) && a.kinds != string(loose) {
			return fmt.Errorf("the argument %q, which some take for an option: write ./%s", v, v)
		}
		a.kinds = f.turned(a.kinds, items)
	}
	return nil
}

// works reports whether a command with these items writes in its working folder.
func (f *form) works(items []item) bool {
	if f.work == "" || has(items, f.look) {
		return false
	}
	when, _, _ := strings.Cut(f.work, " ")
	return when == "always" || when == "args" && len(arguments(items)) > 0 || has(items, f.work)
}

// turned returns the kind of an argument after options that turn reading into writing, or the reverse.
func (f *form) turned(kinds string, items []item) string {
	switch {
	case kind(kinds[0]) == reads && has(items, f.writing):
		return string(writes)
	case kind(kinds[0]) == writes && has(items, f.reading):
		return string(reads)
	}
	return kinds
}

// has reports whether one of the named options is among the items.
func has(items []item, names string) bool {
	listed := strings.Fields(names)
	return slices.ContainsFunc(items, func(it item) bool { return slices.Contains(listed, it.name) })
}

// arguments returns the items that are not options.
func arguments(items []item) []string {
	var args []string
	for _, it := range items {
		if it.name == "" {
			args = append(args, it.values[0])
		}
	}
	return args
}

func isDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
