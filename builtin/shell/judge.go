package shell

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"toolpost/host/walls"
	"toolpost/tool"
	"toolpost/wire/regex"
)

// A verdict is a command that may run, exactly as it will run.
type verdict struct {
	argv          []string // the program by its absolute path, and its arguments
	name          string   // the program as the caller wrote it
	dir           string   // the folder in which it starts, absolute
	reads, writes []string // the paths that it names, absolute
	repository    string   // in which git works, if it is git: see guard
	unpack        *unpacking
	subcommand    string
	network       bool
	changes       bool // it may change files
	alone         bool // it starts no other program
	code          Code // which code it may run
}

// A judging is one command being judged.
type judging struct {
	*verdict
	program
	ground  place
	rule    Rule
	words   words
	args    []string // as they will run
	bases   []string // where relative paths may start
	removes []string
}

// judge decides whether a command may run, and in which form. The program was found at file.
func (o *Options) judge(g place, name, file, dir string, args []string) (*verdict, error) {
	j := &judging{
		verdict: &verdict{name: name, dir: dir}, program: programAt(name), ground: g, rule: o.rule(name),
		args: slices.Clone(args), bases: []string{dir},
	}
	j.words = j.marks().scan(args, j.stops())
	if err := cmp.Or(j.size(args), j.ruledOut(args)); err != nil {
		return nil, err
	}
	if err := j.command(file, args); err != nil {
		return nil, err
	}
	entry := func(e string) []string { return strings.Fields(e)[1:] }
	match := func(entries []string, name string, matches func(string) bool) bool {
		return slices.ContainsFunc(entries, func(e string) bool { return programOf(e) == name && matches(e) })
	}
	denies := func(e string) bool { return j.words.denies(entry(e), j.subcommand != "") }
	if o.named(o.Allow, name) && !match(o.Allow, name, func(e string) bool { return j.words.allows(entry(e)) }) {
		return nil, j.refuse("these arguments: allow of the config names others")
	}
	if match(o.Deny, name, denies) || match(o.Deny, filepath.Base(file), denies) {
		return nil, denied(name)
	}
	j.reach()
	j.argv = slices.Concat([]string{file}, j.inserted(), j.args)
	return j.verdict, nil
}

// stops reports whether the first argument that is no option ends the options: it is a script, and they are for the script.
func (j *judging) stops() bool {
	return j.in("shells") || j.in("run code") && !j.in("builders") && !j.isFamily()
}

// isFamily reports whether the program has subcommands.
func (j *judging) isFamily() bool { return j.of("subcommands") != nil }

func (j *judging) inserted() []string {
	if j.rule.Trust {
		return nil
	}
	return j.of("inserted")
}

// mentions reports whether the config allows a program at all, with any arguments.
func (o *Options) mentions(name string) bool {
	return o.named(o.Allow, name) || slices.ContainsFunc(o.Rules, func(r Rule) bool { return r.Program == name })
}

// named reports whether one of the entries is about a program.
func (o *Options) named(entries []string, name string) bool {
	return slices.ContainsFunc(entries, func(entry string) bool { return programOf(entry) == name })
}

// programOf returns the program of an entry of allow or deny.
func programOf(entry string) string {
	name, _, _ := strings.Cut(strings.TrimSpace(entry), " ")
	return name
}

// denied returns the refusal in the words of the Singularity contract.
func denied(name string) *tool.Error {
	return tool.Errorf(tool.CodeAccessDenied,
		"Command '%s' is not allowed by security policy", name).Because("command_denied")
}

// refuse returns the refusal of a command because of its arguments.
func (j *judging) refuse(format string, args ...any) *tool.Error {
	e := denied(j.name)
	e.Message += " with " + fmt.Sprintf(format, args...)
	return e
}

func (j *judging) size(args []string) error {
	most, all := cmp.Or(j.rule.MaxArgs, defaultMaxArgs), strings.Join(args, "")
	switch {
	case len(args) > most:
		return j.refuse("%d arguments: at most %d are allowed", len(args), most)
	case slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "-") && cluster(a) > maxCluster }):
		return j.refuse("an option of more than %d characters: write its value as an argument of its own", maxCluster)
	case strings.ContainsRune(all, 0):
		return tool.Errorf(tool.CodeInvalidInput, "an argument of %s holds a NUL byte", j.name)
	case len(all) > maxArgBytes:
		return tool.Errorf(tool.CodeInvalidInput,
			"the arguments of %s are larger than %d bytes: pass large values on standard input or in a file", j.name,
			maxArgBytes)
	}
	return nil
}

// ruledOut refuses an argument that a rule denies, also as a part of a cluster of letters, or in an abbreviation.
func (j *judging) ruledOut(args []string) error {
	for _, pattern := range j.rule.DenyArgs {
		for _, a := range slices.Concat(args, j.words.options) {
			if stands(a, pattern) {
				return j.refuse("the argument %q: a rule denies it", a)
			}
		}
	}
	return nil
}

// command judges a program with its arguments.
func (j *judging) command(file string, args []string) error {
	if j.rule.Trust || !j.known() {
		return j.unknown(args)
	}
	j.network = j.rule.Network
	code := CodeNone
	if j.in("run code") {
		code = CodeTree
	}
	j.code = cmp.Or(j.rule.Code, code)
	says := j.words.with('>') != nil || j.words.with('+') != nil
	j.changes = !j.in("texts", "readers") && (says || !j.in("change with an option") && j.words.with('<') == nil) || j.code.covers(CodeTree)
	j.alone = !j.in("starters", "run code", "shells") && !walls.IsScript(file)
	// What a rule allows is not judged as an option, and may start programs.
	left := slices.DeleteFunc(slices.Clone(args), func(a string) bool { return matchAny(j.rule.AllowArgs, a) })
	j.alone = j.alone && len(left) == len(args)
	if err := j.runs(left); err != nil {
		return err
	}
	return cmp.Or(j.files(), j.places())
}

// unknown judges a program of which nothing is known, or which a rule trusts: a rule names its arguments.
func (j *judging) unknown(args []string) error {
	j.changes, j.code = true, CodeAny
	why := "nothing is known of what " + j.name + " does with its arguments"
	if j.in("run other programs") {
		why = j.name + " runs other programs: name the program itself"
	}
	why += "; a rule with allow_args or trust can allow it"
	for _, a := range args {
		if !j.rule.Trust && !matchAny(j.rule.AllowArgs, a) {
			return j.refuse("the argument %q: %s", a, why)
		}
	}
	if !j.rule.Trust && len(j.rule.AllowArgs) == 0 {
		return j.refuse("no rule: %s", why)
	}
	return j.files()
}

// runs judges what the program runs: a subcommand, a script, code.
func (j *judging) runs(args []string) error {
	switch {
	case j.isFamily():
		return j.descend(args)
	case j.stops():
		return j.script(args)
	}
	w := j.marks().scan(args, false)
	if j.in("builders") && w.with('=') == nil {
		if err := j.need(CodeTree, "these arguments"); err != nil {
			return err
		}
	}
	if strings.HasSuffix(string(j.program), "make") {
		return j.build(w)
	}
	if refused := w.with('!'); refused != nil {
		return j.refuse("%s, which runs another program, follows links, or reads names of files from a file", refused[0].name)
	}
	return each(args, j.filter)
}

// need refuses code that may not run.
func (j *judging) need(code Code, what string) error {
	if j.code.covers(code) {
		return nil
	}
	return j.refuse("%s, which runs code: a rule with code: %s can allow it", what, code)
}

var awkRuns = regex.Lazy(`system|getline|ARGV|ARGC|@|\\\n|\\\r|extension|(?s:print.*>)|\|`)

// backup matches an option of sed, cp, mv or ln with a suffix that can turn a name into .git: a pattern, or its end.
var backup = regex.Lazy(`^(-[a-zA-Z]*[iS]|--[a-z-]+=)(t|it|git|.*[*].*)$`)

// filter refuses a program for awk that could run, read or write something. It searches the text and does not parse it, so
// that no trick of quoting hides anything; some harmless programs are refused. Tar's letters need their dash: without it
// they are no options.
func (j *judging) filter(arg string) error {
	awk := j.in("others") && strings.HasSuffix(string(j.program), "awk")
	if found := awkRuns().FindString(strings.ReplaceAll(arg, "||", "")); awk && found != "" {
		return j.refuse("%q in its program, which can run programs or open files", found)
	}
	inPlacer := func(o option) bool { return j.in("placers") && backup().MatchString("-S"+o.value) }
	if j.program == "sed" && backup().MatchString(arg) || slices.ContainsFunc(j.words.with(':'), inPlacer) {
		return j.refuse("%q: with this suffix, the name of a backup could be .git", arg)
	}
	if j.program == "tar" && arg == j.args[0] && !strings.HasPrefix(arg, "-") {
		return j.refuse("%q: letters need their dash", arg)
	}
	return nil
}

// script judges the options and the script of an interpreter. Without a script, it would read code from its standard input.
func (j *judging) script(args []string) error {
	w := j.marks().scan(args, true)
	if at := len(args) - len(w.plain) - 1; len(w.plain) > 0 && at >= 0 && args[at] == "-m" &&
		strings.HasPrefix(string(j.program), "py") && program(w.plain[0]).in("modules") {
		w = j.marks().scan(args[:at], true)
		w.plain = []string{"-m " + args[at+1]}
	}
	if err := j.listed(w); err != nil {
		return err
	}
	switch {
	case len(w.plain) > 0 && w.plain[0][0] == '+' && j.in("shells"):
		return j.need(CodeAny, w.plain[0])
	case w.with('=') != nil && w.has("--test"):
		return j.need(CodeTree, "--test")
	case w.with('=') != nil && len(w.plain) == 0 || j.code.covers(CodeAny):
		return nil
	case len(w.plain) == 0 || w.plain[0] == "-":
		return j.refuse("no script, so that it would run what is on its standard input: name a file, or allow it by a " +
			"rule with code: any")
	}
	return j.need(CodeTree, fmt.Sprintf("%q", w.plain[0]))
}

// listed refuses the options before a script, and those of make, that are not known to run no code: an option that has code,
// or a value that we would take for the script.
func (j *judging) listed(w words) error {
	m := j.marks()
	for _, name := range w.options {
		known := m[name] != 0 && m[name] != '!' || name[0] == '-' && len(name) == 2 && isDigit(name[1])
		if whole := len(name) > 2 && name[1] != '-'; known || whole && m[name] == 0 { // its letters follow
			continue
		}
		if err := j.need(CodeAny, name); err != nil {
			return err
		}
	}
	for _, o := range w.with(':') {
		if err := j.need(CodeAny, o.name+" "+o.value); err != nil && strings.HasPrefix(o.value, "-") {
			return err
		}
	}
	return nil
}

// makeWord matches a target of make, or a variable with plain text.
var makeWord = regex.Lazy(`^([A-Za-z_][A-Za-z0-9_]*=)?[A-Za-z0-9_./,:@%+ -]*$`)

// build judges the words of make. Its variables can hold code, and some choose its options or its shell.
func (j *judging) build(w words) error {
	if err := j.listed(w); err != nil {
		return err
	}
	return each(w.plain, func(word string) error {
		name, _, _ := strings.Cut(word, "=")
		chooses := strings.HasPrefix(name, "MAKE") || strings.HasPrefix(name, "GNUMAKE") || name == "SHELL" || name == "MFLAGS"
		if makeWord().MatchString(word) && !chooses {
			return nil
		}
		return j.need(CodeAny, fmt.Sprintf("%q", word))
	})
}

// descend judges a subcommand, and the options before it.
func (j *judging) descend(args []string) error {
	m := j.marks()
	before := m.scan(args, true)
	for _, name := range before.options {
		if m[name] != ':' && m[name] != '=' {
			return j.refuse("%s, which is not among the options that are known to be harmless before a subcommand", name)
		}
	}
	for _, o := range before.marked {
		if o.name != "-C" && o.name != "--prefix" {
			continue
		}
		if err := j.path(o.value, false); err != nil {
			return err
		}
		j.bases = []string{j.absolute(o.value)}
	}
	for name, mark := range m {
		if mark == ':' {
			delete(m, name)
		}
	}
	j.words = m.scan(before.plain, false)
	j.words.options = append(j.words.options, before.options...)
	if refused := j.words.with('!'); refused != nil {
		return j.refuse("%s, which runs another program", refused[0].name)
	}
	if len(before.plain) == 0 {
		if before.has("--version", "-v", "-V") {
			return nil
		}
		return j.refuse("no subcommand")
	}
	return j.verb(before.plain[0])
}

// verb judges a subcommand.
func (j *judging) verb(name string) error {
	j.subcommand = name
	second := ""
	if len(j.words.plain) > 1 {
		second = name + ":" + j.words.plain[1]
	}
	find := func(list string) bool {
		of := j.of(list)
		pairs := slices.ContainsFunc(of, func(s string) bool { return strings.HasPrefix(s, name+":") })
		return slices.Contains(of, second) || slices.Contains(of, name) && (!pairs || second == "")
	}
	only := func(allowed string) bool {
		return (&words{plain: j.words.plain, sure: j.words.sure}).allows(strings.Fields(allowed))
	}
	if len(j.rule.Subcommands) > 0 && !slices.ContainsFunc(j.rule.Subcommands, only) {
		return j.refuse("the subcommand %q: a rule allows only %s", name, strings.Join(j.rule.Subcommands, ", "))
	}
	if slices.Contains(j.of("subcommands that only read"), name) && j.words.with('>') == nil && !j.code.covers(CodeTree) {
		j.changes = false
	}
	if j.program == "git" {
		j.repository = j.bases[0]
		if err := j.git(name); err != nil {
			return err
		}
	}
	switch {
	case find("subcommands"):
	case find("subcommands that run the code of a tree"):
		return j.need(CodeTree, name)
	case find("subcommands that run any code"):
		return j.need(CodeAny, name)
	case !find("subcommands that reach the network"):
		return j.refuse("the subcommand %q, which is not among those that are known to be harmless", name)
	case !j.rule.Network:
		return j.refuse("%s, which reaches the network: a rule with network: true can allow it", name)
	}
	return nil
}

// git refuses what would change the settings of a repository, which name programs for later uses of git, and remotes of
// other protocols than https.
func (j *judging) git(subcommand string) error {
	changes := func(o string) bool { return !program(o).in("git config") && !program(o).in("git") && o != "-C" }
	remote := func(w string) bool {
		return strings.Contains(w, "::") || strings.Contains(w, "@") || strings.Contains(w, "://") && !strings.HasPrefix(w, "https://")
	}
	switch words := j.words.plain[1:]; {
	case subcommand == "config" && (len(words) > 1 || slices.ContainsFunc(j.words.options, changes)):
		return j.refuse("config, other than to read one setting, or all")
	case subcommand == "clone" && j.words.has("-c", "-u"):
		return j.refuse("an option that sets up the repository")
	case slices.Contains(j.of("subcommands that reach the network"), subcommand) && slices.ContainsFunc(words, remote):
		return j.refuse("a remote that is neither a name nor an https address")
	}
	return nil
}

// each calls do for every element, up to the first error.
func each[T any](list []T, do func(T) error) error {
	for _, one := range list {
		if err := do(one); err != nil {
			return err
		}
	}
	return nil
}

// matchAny compares a whole argument with patterns, in which * matches anything and ? one character.
func matchAny(patterns []string, s string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return tool.Glob(p).Match(s) })
}
