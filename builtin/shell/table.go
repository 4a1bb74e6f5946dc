package shell

import (
	"embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"toolpost/wire/regex"
)

// The programs that are known, in files that people can compare with a manual page. A file consists of entries:
//
//	# a comment
//	tail, head                  names of programs, of subcommands as in "git log", or "python -m pytest"
//		-[qvz] -n:n --lines:n   lines that begin with a dash are options, see form.opts
//		$shared                 and those of another entry, whose name begins with a dollar sign
//		args r*                 any other line is a field of a form or a profile
//
// refused.txt is different: its entries are reasons, and below each are the names of programs. Those of environment.txt
// are lists.
//
//go:embed programs
var programFiles embed.FS

// A table holds all known programs.
type table struct {
	programs map[string]*profile
	shared   map[string]*form
	lists    map[string][]string // of environment.txt
}

// known reads the files when the first command is judged. A test makes sure that they can be read.
var known = sync.OnceValue(func() *table {
	t, err := readTable()
	if err != nil {
		panic("builtin/shell: " + err.Error())
	}
	return t
})

func readTable() (*table, error) {
	t := &table{}
	var all []error
	for _, name := range []string{"text.txt", "files.txt", "git.txt", "code.txt"} {
		all = append(all, eachEntry(name, t.add))
	}
	list := func(head string, lines []string) error { return enter(&t.lists, head, lines) }
	all = append(all, eachEntry("refused.txt", t.refuse), eachEntry("environment.txt", list))
	return t, errors.Join(all...)
}

// eachEntry splits a file into its entries: a line that is not indented, and the lines below it that are.
func eachEntry(file string, add func(head string, lines []string) error) error {
	data, err := programFiles.ReadFile("programs/" + file)
	if err != nil {
		return err
	}
	var head string
	var lines []string
	for n, line := range strings.Split(string(data)+"\n.", "\n") { // the dot ends the last entry
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "\t"):
			lines = append(lines, line[1:])
		default:
			if head != "" {
				if err := add(head, lines); err != nil {
					return fmt.Errorf("%s, above line %d: %s: %w", file, n+1, head, err)
				}
			}
			head, lines = line, nil
		}
	}
	return nil
}

func (t *table) refuse(why string, lines []string) error {
	return each(strings.Fields(strings.Join(lines, " ")), func(name string) error {
		return enter(&t.programs, name, &profile{refused: why})
	})
}

func (t *table) add(head string, lines []string) error {
	var p profile
	for _, line := range lines {
		if err := t.line(&p, line); err != nil {
			return fmt.Errorf("%q: %w", line, err)
		}
	}
	return each(strings.Split(head, ", "), func(name string) error { return t.name(name, p) })
}

// name adds the content of an entry under one of its names.
func (t *table) name(name string, p profile) error {
	program, sub, isSub := strings.Cut(name, " ")
	of := t.programs[program]
	switch {
	case strings.HasPrefix(name, "$"):
		return enter(&t.shared, name, &p.form)
	case !isSub:
		return enter(&t.programs, name, &p)
	case of == nil:
		return fmt.Errorf("%s is not known yet", program)
	}
	if module, ok := strings.CutPrefix(sub, "-m "); ok {
		return enter(&of.modules, module, &p.form)
	}
	return enter(&of.subs, sub, &p.form)
}

func enter[V any](into *map[string]V, name string, v V) error {
	if *into == nil {
		*into = map[string]V{}
	}
	if _, twice := (*into)[name]; twice {
		return fmt.Errorf("%s is there twice", name)
	}
	(*into)[name] = v
	return nil
}

// line reads one line of an entry.
func (t *table) line(p *profile, line string) (err error) {
	if line != "" && strings.ContainsRune("-$", rune(line[0])) {
		return t.options(p, line)
	}
	field, value, _ := strings.Cut(line, " ")
	f := &p.form
	into := map[string]any{
		"args": &f.args, "ends": &f.ends, "rest": &f.rest, "instead": &f.instead, "writing": &f.writing,
		"reading": &f.reading, "recurse": &f.recurse, "only": &f.only, "work": &f.work, "look": &f.look,
		"spare": &p.spare, "without": &p.without, "insert": &p.insert, "last": &f.last, "min": &f.min,
		"runs": &f.code, "code": &p.code, "check": &p.check,
		"single": &f.single, "stop": &f.stop, "follows": &f.follows, "net": &f.net, "spare-last": &p.spareLast,
	}[field]
	switch _, isFlag := into.(*bool); {
	case value == "" && !isFlag:
		return errors.New("it is no field, or has no value")
	case into == nil || value != "" && isFlag:
		return errors.New("there is no such field")
	}
	switch into := into.(type) {
	case *bool:
		*into = true
	case *string:
		*into = value
	case *[]string:
		*into = strings.Fields(value)
	case *kind:
		*into = kind(value[0])
	case *int:
		*into, err = strconv.Atoi(value)
	case *Code:
		err = into.UnmarshalText([]byte(value))
	case *check:
		if *into = checks()[value]; *into == nil {
			err = errors.New("there is no such check")
		}
	}
	return err
}

// options adds a line of options, with shared entries expanded.
func (t *table) options(p *profile, line string) error {
	for word := range strings.FieldsSeq(line) {
		if strings.HasPrefix(word, "$") {
			shared := t.shared[word]
			if shared == nil {
				return fmt.Errorf("there is no %s above", word)
			}
			word = shared.opts
		} else if !strings.HasPrefix(word, "-") {
			return fmt.Errorf("%s is no option", word)
		}
		p.opts += " " + word
	}
	return nil
}

// checks are the rules that a table cannot express, by their names in the files.
func checks() map[string]check {
	return map[string]check{
		"awk": checkAwk, "dd": checkDD, "git": checkGit, "go": checkGo, "jq": checkJQ, "link": checkLink,
		"make": checkMake, "node": checkNode, "placed": checkPlaced, "python": checkPython, "script": checkScript,
		"tar": checkTar, "unzip": checkUnzip,
	}
}

// A check judges what a form cannot express.
type check func(*judging, []item) error

// A profile describes a known program. The files in the folder programs have them all; see table.go.
type profile struct {
	form
	subs    map[string]*form // its subcommands, by their words ("stash list"); the form then describes what precedes them
	modules map[string]*form // what python's -m may run
	// insert are arguments that precede the caller's: a program's own way to forbid itself something.
	insert []string
	// spare is the option that excludes a name when the program walks folders, with %s for the name.
	spare     string
	spareLast bool // the last option wins, so it follows the caller's
	code      Code // which code it may run without a rule
	check     check
	// without are the options with which an interpreter needs no script.
	without string
	// refused describes what it does that cannot be judged. It is run only if a rule names its arguments, or trusts it.
	refused string
}

var versioned = regex.Lazy(`^(python|pip|node|nodejs|perl|ruby|php|lua)[0-9]*(\.[0-9]+)*$`)

// profileOf returns the profile of a program, or nil if it is unknown.
func profileOf(name string) *profile {
	if m := versioned().FindStringSubmatch(name); m != nil {
		name = m[1]
	}
	return known().programs[name]
}

// sub finds the subcommand that arguments begin with: the longest known name.
func (p *profile) sub(args []string) (name string, rest []string, f *form) {
	for n := min(2, len(args)); n > 0; n-- {
		name = strings.Join(args[:n], " ")
		if f := p.subs[name]; f != nil {
			return name, args[n:], f
		}
	}
	if len(args) > 0 {
		return args[0], args[1:], nil
	}
	return "", nil, p.subs[""]
}
