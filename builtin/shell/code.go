package shell

import (
	"slices"
	"strings"
)

// checkScript refuses an interpreter without a script, which would read code from its standard input.
func checkScript(j *judging, items []item) error {
	if len(arguments(items)) > 0 || has(items, j.prof.without) || j.code.covers(CodeAny) {
		return nil
	}
	return j.refuse("no script, so that it would run what is on its standard input: name a file, or allow it by a rule with code: any")
}

// checkNode: with --test it finds the scripts by itself.
func checkNode(j *judging, items []item) error {
	if has(items, "--test") && !j.code.covers(CodeTree) {
		return j.refuse("--test, which runs code: a rule with code: tree can allow it")
	}
	return checkScript(j, items)
}

// checkPython knows the two modules that run the tests of a tree.
func checkPython(j *judging, items []item) error {
	at := slices.IndexFunc(items, func(it item) bool { return it.name == "-m" })
	if at < 0 {
		return checkScript(j, items)
	}
	switch {
	case j.code.covers(CodeAny):
		return nil
	case !j.code.covers(CodeTree):
		return j.refuse("-m, which runs code: a rule with code: tree can allow it")
	}
	var rest []string
	for _, it := range items[at+1:] {
		rest = append(rest, it.values...)
	}
	f := j.prof.modules[items[at].values[0]]
	if f == nil {
		return j.refuse("-m %s: a module that is not among those known to run only the code of a tree; a rule with code: any can allow it", items[at].values[0])
	}
	parsed, err := f.parse(rest)
	if err != nil {
		return j.refuse("%v", err)
	}
	return j.judgeItems(f, parsed)
}

// checkGo: a build of one main package writes its program into the working folder.
func checkGo(j *judging, items []item) error {
	if j.subcommand != "build" || has(items, "-o -n") {
		return nil
	}
	if slices.ContainsFunc(arguments(items), func(pkg string) bool { return strings.Contains(pkg, "...") }) {
		return nil
	}
	return j.path(".", true)
}

// checkMake refuses variables, which a makefile may take for commands, and a makefile from standard input.
func checkMake(j *judging, items []item) error {
	for _, arg := range arguments(items) {
		if strings.Contains(arg, "=") {
			return j.refuse("the assignment %q: a makefile may run what a variable holds", arg)
		}
	}
	return nil
}
