package shell

import (
	_ "embed"
	"slices"
	"strings"
	"sync"

	"toolpost/wire/regex"
)

var (
	//go:embed programs.txt
	programsText string
	//go:embed environment.txt
	environmentText string
)

// lists returns the lists of programs.txt and environment.txt by their heads: a line that is not indented, and the lines
// below it that are.
var lists = sync.OnceValue(func() map[string][]string {
	all, head := map[string][]string{}, ""
	for line := range strings.Lines(programsText + environmentText) {
		switch line = strings.TrimSuffix(line, "\n"); {
		case line == "" || line[0] == '#':
		case line[0] == '\t':
			all[head] = append(all[head], line[1:])
		default:
			head = line
		}
	}
	return all
})

var versioned = regex.Lazy(`^(python|pip|node|nodejs|perl|ruby|php|lua)[0-9]*(\.[0-9]+)*$`)

// A program is the name of a program as the lists have it.
type program string

// programAt returns the name of a program without its folder and its version.
func programAt(path string) program {
	name := path[strings.LastIndexByte(path, '/')+1:]
	if m := versioned().FindStringSubmatch(name); m != nil {
		name = m[1]
	}
	return program(name)
}

// in reports whether one of the lists has the program.
func (p program) in(names ...string) bool {
	return slices.ContainsFunc(names, func(list string) bool { return slices.Contains(wordsOf(list), string(p)) })
}

// of returns what the lines of a list, which begin with names of programs, say of this one.
func (p program) of(list string) (all []string) {
	for _, line := range lists()[list] {
		if fields := strings.Fields(line); slices.Contains(strings.Split(fields[0], ","), string(p)) {
			all = append(all, fields[1:]...)
		}
	}
	return all
}

// wordsOf returns the words of a list.
func wordsOf(list string) []string { return strings.Fields(strings.Join(lists()[list], " ")) }

// known reports whether the program is judged by its words alone.
func (p program) known() bool {
	return p.in("texts", "readers", "writers", "removers", "placers", "others", "run code", "shells")
}
