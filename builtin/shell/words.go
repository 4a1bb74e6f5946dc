package shell

import (
	"maps"
	"slices"
	"strings"

	"toolpost/tool"
)

// words are the arguments of a command, told apart as far as that is possible without the manual of the program.
type words struct {
	plain   []string // what is no option: subcommands, files, patterns; and values of options that the lists do not have
	sure    int      // how many of them, from the first, cannot be the value of an option
	options []string // by their names; of a cluster such as -rf, each letter too
	marked  []option // those with a mark in the lists
}

// An option is an option that matters. Its mark is explained in programs.txt.
type option struct {
	name, value string
	mark        byte
}

// marks are the options of a program that matter, by their names.
type marks map[string]byte

func (p program) marks() marks {
	m := marks{}
	if p.in("whole names") {
		m[wholeNames] = '='
	}
	for _, field := range p.of("options") {
		last := len(field) - 1
		m[field[:last]] = field[last]
	}
	return m
}

// wholeNames is set if a dash begins a whole name, not a cluster of letters.
const wholeNames = "-"

// find returns the option that a name stands for. Many programs take a beginning of a long name for the whole; go takes two
// dashes for one.
func (m marks) find(name string) string {
	single := strings.TrimPrefix(name, "-")
	switch {
	case m[name] != 0 || len(name) < 3:
		return name
	case strings.HasPrefix(name, "--") && len(single) > 2 && m[single] != 0:
		return single
	}
	found := name
	for _, full := range slices.Sorted(maps.Keys(m)) {
		if strings.HasPrefix(name, "--") && strings.HasPrefix(full, name) && (found == name || m[full] == '!') {
			found = full
		}
	}
	return found
}

// scan tells the arguments apart. With stop, the first one that is no option ends the options.
func (m marks) scan(args []string, stop bool) (w words) {
	unsure := false
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		switch {
		case arg == "--":
			w.plain = append(w.plain, args...)
			return w
		case arg != "-" && strings.HasPrefix(arg, "-"):
			left := w.option(m, arg, args)
			alone := strings.Contains(arg, "=") || arg[1] != '-' && isDigit(arg[len(arg)-1])
			unsure = unsure || len(left) == len(args) && m[m.find(arg)] == 0 && !alone
			args = left
			continue
		}
		if w.plain = append(w.plain, arg); !unsure {
			w.sure = len(w.plain)
		}
		if stop {
			w.plain = append(w.plain, args...)
			return w
		}
	}
	return w
}

// option adds an option, with the value that it has. It returns the arguments that are left.
func (w *words) option(m marks, arg string, rest []string) []string {
	name, value, attached := strings.Cut(arg, "=")
	take := func(name string) {
		w.options = append(w.options, name)
		mark := m[name]
		if needs := mark == ':' || mark == '>'; needs && value == "" && !attached && len(rest) > 0 {
			value, rest = rest[0], rest[1:]
		}
		if mark != 0 {
			w.marked = append(w.marked, option{name, value, mark})
		}
	}
	full := m.find(name)
	if m[full] != 0 || len(name) < 3 || strings.HasPrefix(arg, "--") || m[wholeNames] != 0 {
		take(full)
		return rest
	}
	w.options = append(w.options, name)
	for i := 1; i <= cluster(arg); i++ {
		value, attached = "", false
		letter := "-" + arg[i:i+1]
		valued := m[letter] == ':' || m[letter] == '>'
		if valued {
			value = arg[i+1:]
		}
		if take(letter); valued {
			break
		}
	}
	return rest
}

// with returns the options that have a mark.
func (w *words) with(mark byte) (all []option) {
	for _, o := range w.marked {
		if o.mark == mark {
			all = append(all, o)
		}
	}
	return all
}

func (w *words) has(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return slices.Contains(w.options, name) })
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// maxCluster bounds a cluster: each character of it is judged as an option, and the rest as its value.
const maxCluster = 256

// cluster returns how many characters of a word with one dash may be options: digits and signs too, since a value may follow
// them, but no program has an option that is a space or a =.
func cluster(arg string) int {
	return strings.IndexAny(arg[1:]+"=", "= \t\r\n")
}

// allows reports whether an entry of allow matches a command: its program, then the words that its arguments begin with, and
// options that it has, anywhere.
func (w *words) allows(entry []string) bool {
	at := 0
	for _, f := range entry {
		switch {
		case strings.HasPrefix(f, "-"):
			if !w.has(f) {
				return false
			}
		case at < w.sure && tool.Glob(f).Match(w.plain[at]):
			at++
		default:
			return false
		}
	}
	return true
}

// denies is allows for deny. The words may have others between them, which may be values of options, and a long option may
// be written in part. The first word of a program with subcommands is one.
func (w *words) denies(entry []string, subcommand bool) bool {
	left := w.plain
	for _, f := range entry {
		if strings.HasPrefix(f, "-") {
			if !slices.ContainsFunc(w.options, func(o string) bool { return stands(o, f) }) {
				return false
			}
			continue
		}
		at := slices.IndexFunc(left, func(word string) bool { return tool.Glob(f).Match(word) })
		if at < 0 || subcommand && at > 0 && len(left) == len(w.plain) {
			return false
		}
		left = left[at+1:]
	}
	return true
}

// stands reports whether an option is one that a pattern matches, or an abbreviation of one.
func stands(option, pattern string) bool {
	literal, _, _ := strings.Cut(strings.Split(pattern, "?")[0], "*")
	return tool.Glob(pattern).Match(option) || len(option) > 2 && strings.HasPrefix(option, "--") && strings.HasPrefix(literal, option)
}
