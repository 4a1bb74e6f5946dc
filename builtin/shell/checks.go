package shell

import (
	"slices"
	"strconv"
	"strings"

	"toolpost/wire/regex"
)

var (
	awkRuns    = regex.Lazy(`system|getline|ARGV|ARGC|@|\\\n|\\\r|extension`)
	awkOutputs = regex.Lazy(`(?s)print.*>`)
)

// checkAwk refuses a program whose text could run, read or write something. It searches the text and does not parse it, so
// that no trick of quoting hides anything; some harmless programs are refused.
func checkAwk(j *judging, items []item) error {
	args := arguments(items)
	if len(args) == 0 {
		return nil
	}
	text := strings.ReplaceAll(args[0], "||", "")
	switch {
	case awkRuns().MatchString(text):
		return j.refuse("%q in its program, which can run programs or open files", awkRuns().FindString(text))
	case strings.Contains(text, "|"):
		return j.refuse("a | in its program, which runs a program; in a pattern write a || b")
	case awkOutputs().MatchString(text):
		return j.refuse("a > after print in its program, which writes a file; put comparisons before it")
	}
	return nil
}

var jqImports = regex.Lazy(`\b(import|include|modulemeta)\b`)

// checkJQ refuses a filter that reads files which no argument names.
func checkJQ(j *judging, items []item) error {
	for _, it := range items {
		for i, v := range it.values {
			if kind(it.kinds[i]) == free && jqImports().MatchString(v) {
				return j.refuse("%s in its filter, which reads other files", jqImports().FindString(v))
			}
		}
	}
	return nil
}

// checkTar finds out in which direction the files go. Old-style letters without a dash are refused.
func checkTar(j *judging, items []item) error {
	if len(items) > 0 && items[0].name == "" {
		return j.refuse("%q: letters need their dash", items[0].values[0])
	}
	create := has(items, "-c --create -r")
	extract := has(items, "-x --extract --get")
	modes := 0
	for _, on := range []bool{create, extract, has(items, "-t --list")} {
		if on {
			modes++
		}
	}
	if modes != 1 && !has(items, "--version --help") {
		return j.refuse("not exactly one of -c, -x and -t")
	}
	for _, it := range items {
		if create && has([]item{it}, "-f --file") && it.values[0] != "-" {
			if err := j.fromDir(it.values[0], true); err != nil {
				return err
			}
		}
	}
	switch {
	case create:
		return j.recursion(&form{args: "r*"}, items)
	case extract && !has(items, "-O --to-stdout"):
		return j.untar(items)
	}
	return nil
}

// untar judges the folder into which an archive is unpacked; its entries are judged before it is unpacked: see unpacks.
func (j *judging) untar(items []item) error {
	u := &unpacking{into: j.base, quoted: true, ground: j.ground}
	var which []string
	file := "-"
	for _, it := range items {
		switch it.name {
		case "-f", "--file":
			file = it.values[0]
		case "--exclude":
			which = append(which, "--exclude="+it.values[0])
		case "--wildcards", "--exclude-vcs":
			which = append(which, it.name)
		case "--strip-components":
			n, err := strconv.Atoi(it.values[0])
			if err != nil || n < 0 {
				return j.refuse("%q, where a number is wanted", it.values[0])
			}
			u.strip = n
		}
	}
	if file == "-" {
		return j.refuse("an archive from standard input: what it would write cannot be judged before; put it into a " +
			"file and name that with -f")
	}
	u.list = slices.Concat([]string{"-t", "--quoting-style=escape", "-f", file}, which, []string{"--"}, arguments(items))
	j.unpack = u
	return j.path(".", true)
}

// checkLink lets symbolic links lead to places below their own folder, or to allowed places by their full path. A hard link
// gives a file a second name, so the first must be writable.
func checkLink(j *judging, items []item) error {
	for _, path := range arguments(items) {
		if has(items, "-s --symbolic") && slices.Contains(strings.Split(path, "/"), "..") {
			return j.refuse("%q: a link that leads upwards is not followed to where it leads", path)
		}
	}
	return checkPlaced(j, items)
}

// checkDD reads dd's own syntax.
func checkDD(j *judging, items []item) error {
	kinds := map[string]kind{
		"if": reads, "of": writes, "bs": number, "ibs": number, "obs": number, "cbs": number, "count": number,
		"skip": number, "seek": number, "conv": keyword, "status": keyword, "iflag": keyword, "oflag": keyword,
	}
	for _, operand := range arguments(items) {
		name, value, _ := strings.Cut(operand, "=")
		k, ok := kinds[name]
		if !ok {
			return j.refuse("the operand %q", operand)
		}
		if err := j.value(k, value); err != nil {
			return err
		}
	}
	return nil
}

// checkUnzip: without an option that only lists, it writes in the working folder or in the one that -d names.
func checkUnzip(j *judging, items []item) error {
	if has(items, "-l -v -t -p -z -Z -1") {
		return nil
	}
	list := append([]string{"-Z1"}, arguments(items)...)
	u := &unpacking{list: list, into: j.base, flat: has(items, "-j"), ground: j.ground}
	for _, it := range items {
		if it.name == "-d" {
			u.into = j.absolute(it.values[0])
		}
	}
	j.unpack = u
	return j.path(u.into, true)
}

// checkGit remembers the repository, whose own configuration is checked before git runs: see guard.
func checkGit(j *judging, _ []item) error {
	j.repository = j.base
	return nil
}

// checkScript refuses an interpreter without a script, which would read code from its standard input.
func checkScript(j *judging, items []item) error {
	if len(arguments(items)) > 0 || has(items, j.prof.without) || j.code.covers(CodeAny) {
		return nil
	}
	return j.refuse("no script, so that it would run what is on its standard input: name a file, or allow it by a " +
		"rule with code: any")
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
		return j.refuse("-m %s: a module that is not among those known to run only the code of a tree; a rule with "+
			"code: any can allow it", items[at].values[0])
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
