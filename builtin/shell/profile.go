package shell

import (
	"strings"
)

// A check looks at what a form cannot say.
type check func(*judging, []item) error

// A profile is what is known of a program. The files in the folder programs have them all; see table.go.
type profile struct {
	form
	subs    map[string]*form // its subcommands, by their words ("stash list"); the form then has what comes before
	modules map[string]*form // what python's -m may run
	// insert are arguments that are put before the caller's: a program's own way to forbid itself something.
	insert []string
	// spare is how it is told to leave a name out when it goes through folders, %s for the name.
	spare     string
	spareLast bool // the last word counts: it comes after what the caller says
	code      Code // which code it may run where no rule says
	check     check
	// without are the options with which an interpreter needs no script.
	without string
	// refused says what it does that nobody can judge. It is run only where a rule names its arguments, or
	// trusts it.
	refused string
}

var versioned = lazily(`^(python|pip|node|nodejs|perl|ruby|php|lua)[0-9]*(\.[0-9]+)*$`)

// profileOf gives what is known of a program by its name; nil: nothing.
func profileOf(name string) *profile {
	if m := versioned().FindStringSubmatch(name); m != nil {
		name = m[1]
	}
	return known().programs[name]
}

// sub finds the subcommand that arguments begin with: the longest name that is known.
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
