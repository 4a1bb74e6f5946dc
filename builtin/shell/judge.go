package shell

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"toolpost/tool"
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
	strange       bool              // how it uses its arguments is unknown
	code          Code              // which code it may run
	moved         map[string]string // paths of a codebase that it names, and their places on the host
}

// changes reports whether the command may change files: it names some, runs code, or is unknown.
func (v *verdict) changes() bool { return len(v.writes) > 0 || v.strange || v.code.covers(CodeTree) }

// A judging is one command being judged.
type judging struct {
	*verdict
	ground place
	rule   Rule
	prof   *profile
	words  words    // of its arguments
	base   string   // start of relative paths
	spared []string // options that exclude names
}

// judge decides whether a command may run, and in which form. The program was found at file.
func (o *Options) judge(g place, name, file, dir string, args []string) (*verdict, error) {
	j := &judging{verdict: &verdict{name: name, dir: dir, moved: map[string]string{}}, ground: g, rule: o.rule(name), base: dir}
	if err := j.size(args); err != nil {
		return nil, err
	}
	if err := j.arguments(profileOf(filepath.Base(name)), args); err != nil {
		return nil, err
	}
	if o.named(o.Allow, name) && !o.listed(o.Allow, name, j.words) {
		return nil, j.refuse("these arguments: allow of the config names others")
	}
	if o.listed(o.Deny, name, j.words) || o.listed(o.Deny, filepath.Base(file), j.words) {
		return nil, denied(name)
	}
	j.argv = append([]string{file}, j.complete(args)...)
	return j.verdict, nil
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
	case strings.ContainsRune(all, 0):
		return tool.Errorf(tool.CodeInvalidInput, "an argument of %s holds a NUL byte", j.name)
	case len(all) > maxArgBytes:
		return tool.Errorf(tool.CodeInvalidInput,
			"the arguments of %s are larger than %d bytes: pass large values on standard input or in a file", j.name,
			maxArgBytes)
	}
	return nil
}

// words are what the config's allow and deny are compared with.
type words struct {
	plain   []string // subcommands and arguments
	options []string
}

// arguments judges the arguments of a program.
func (j *judging) arguments(prof *profile, args []string) error {
	for _, a := range args {
		if matchAny(j.rule.DenyArgs, a) {
			return j.refuse("the argument %q: a rule denies it", a)
		}
	}
	switch {
	case j.rule.Trust:
		return j.unknown(args)
	case prof == nil || prof.refused != "":
		for _, a := range args {
			if !matchAny(j.rule.AllowArgs, a) {
				return j.refuse("the argument %q: %s; a rule with allow_args or trust can allow it", a, j.whyStrange(prof))
			}
		}
		if len(j.rule.AllowArgs) == 0 {
			return j.refuse("no rule: %s; a rule with allow_args or trust can allow it", j.whyStrange(prof))
		}
		return j.unknown(args)
	}
	j.prof = prof
	return j.known(args)
}

func (j *judging) whyStrange(prof *profile) string {
	if prof != nil {
		return j.name + " " + prof.refused
	}
	return "nothing is known of what " + j.name + " does with its arguments"
}

// unknown judges arguments of an unknown program: anything that looks like a path is one.
func (j *judging) unknown(args []string) error {
	j.strange = true
	for _, a := range args {
		if strings.HasPrefix(a, "-") {
			j.words.options = append(j.words.options, a)
		} else {
			j.words.plain = append(j.words.plain, a)
		}
	}
	return each(args, j.loose)
}

// known judges the arguments of a program that has a profile.
func (j *judging) known(args []string) error {
	args, err := j.extra(args)
	if err != nil {
		return err
	}
	f := &j.prof.form
	if j.prof.subs != nil {
		if f, args, err = j.descend(args); err != nil {
			return err
		}
	}
	items, err := f.parse(args)
	if err != nil {
		return j.refuse("%v", err)
	}
	for _, it := range items {
		if j.words.add(it); it.name != "" && matchAny(j.rule.DenyArgs, it.name) {
			return j.refuse("the option %s: a rule denies it", it.name)
		}
	}
	if err := j.permitted(f, items); err != nil {
		return err
	}
	if err := j.judgeItems(f, items); err != nil || j.prof.check == nil {
		return err
	}
	return j.prof.check(j, items)
}

func (w *words) add(it item) {
	if it.name == "" {
		w.plain = append(w.plain, it.values...)
	} else {
		w.options = append(w.options, it.name)
	}
}

// extra removes the arguments that a rule allows beside those of the profile.
func (j *judging) extra(args []string) (left []string, err error) {
	for _, a := range args {
		if !matchAny(j.rule.AllowArgs, a) {
			left = append(left, a)
		} else if err := j.loose(a); err != nil {
			return nil, err
		}
	}
	return left, nil
}

// descend reads what comes before a subcommand and finds its form.
func (j *judging) descend(args []string) (*form, []string, error) {
	global := j.prof.form
	global.stop, global.args = true, "l*"
	items, err := global.parse(args)
	if err != nil {
		return nil, nil, j.refuse("%v", err)
	}
	first := slices.IndexFunc(items, func(it item) bool { return it.name == "" })
	if first < 0 {
		first = len(items)
	}
	for _, it := range items[:first] {
		j.words.add(it)
	}
	if err := j.judgeItems(&global, items[:first]); err != nil {
		return nil, nil, err
	}
	var rest []string
	for _, it := range items[first:] {
		rest = append(rest, it.values...)
	}
	name, rest, f := j.prof.sub(rest)
	if name == "" && has(items, "--version --help -v -V") {
		return &form{}, nil, nil
	}
	if f == nil {
		return nil, nil, j.refuse("the subcommand %q, which is not among those that are known to be harmless", name)
	}
	if len(j.rule.Subcommands) > 0 && !slices.Contains(j.rule.Subcommands, name) {
		return nil, nil, j.refuse("the subcommand %q: a rule allows only %s", name, strings.Join(j.rule.Subcommands, ", "))
	}
	j.subcommand = name
	j.words.plain = append(j.words.plain, strings.Fields(name)...)
	return f, rest, nil
}

// permitted checks what a form needs: a folder to write in, the network, code.
func (j *judging) permitted(f *form, items []item) error {
	what := "these arguments"
	if len(j.words.plain) > 0 {
		what = j.words.plain[0]
	}
	if f.net && !j.rule.Network {
		return j.refuse("%s, which reaches the network: a rule with network: true can allow it", what)
	}
	j.network, j.code = j.rule.Network, j.codeLevel()
	if need := f.code; !j.code.covers(need) {
		return j.refuse("%s, which runs code: a rule with code: %s can allow it", what, need)
	}
	if f.works(items) {
		return j.path(".", true)
	}
	return nil
}

// codeLevel returns which code may be run.
func (j *judging) codeLevel() Code { return cmp.Or(j.rule.Code, j.prof.code) }

// judgeItems judges every value by its kind.
func (j *judging) judgeItems(f *form, items []item) error {
	for _, it := range items {
		for i, v := range it.values {
			if err := j.value(kind(it.kinds[i]), v); err != nil {
				return err
			}
		}
	}
	if f.recurse != "always" && !has(items, f.recurse) {
		return nil
	}
	return j.recursion(f, items)
}

// recursion judges what a program finds by itself below its folders. If the program has an option to exclude names, the
// hidden ones are excluded.
func (j *judging) recursion(f *form, items []item) error {
	var folders []string
	write := false
	for _, it := range items {
		if it.name == "" && strings.ContainsAny(it.kinds, "rwd") {
			folders = append(folders, it.values[0])
			write = write || it.kinds != string(reads)
		}
	}
	switch {
	case len(folders) == 0:
		folders = []string{"."}
	case f.last != 0:
		write = f.args[0] != byte(reads)
		if !has(items, intoFolder) {
			folders = folders[:len(folders)-1]
		}
	}
	return each(folders, func(folder string) error { return j.below(f, folder, write) })
}

func (j *judging) below(f *form, folder string, write bool) error {
	names, err := j.ground.hidden(j.absolute(folder), write, f.follows)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !strings.HasSuffix(name, f.only) {
			continue
		}
		if j.prof.spare == "" || strings.ContainsAny(name, "*?[]\\{}!") {
			return j.refuse("%q: %s is below it and is not allowed", folder, name)
		}
		for option := range strings.FieldsSeq(strings.ReplaceAll(j.prof.spare, "%s", "\x00")) {
			j.spared = append(j.spared, strings.ReplaceAll(option, "\x00", name))
		}
	}
	return nil
}

// complete adds our own arguments to those of the caller.
func (j *judging) complete(args []string) []string {
	if j.prof == nil {
		return args
	}
	spared := slices.Compact(slices.Sorted(slices.Values(j.spared)))
	if !j.prof.spareLast {
		return slices.Concat(j.prof.insert, spared, args)
	}
	end := slices.Index(args, "--")
	if end < 0 {
		end = len(args)
	}
	return slices.Concat(j.prof.insert, args[:end], spared, args[end:])
}

// listed reports whether an entry of allow or deny matches a command: its program, then words that its arguments begin with,
// and options that it has, anywhere.
func (o *Options) listed(entries []string, name string, w words) bool {
	return slices.ContainsFunc(entries, func(entry string) bool {
		fields := strings.Fields(entry)
		if len(fields) == 0 || fields[0] != name {
			return false
		}
		at := 0
		for _, f := range fields[1:] {
			switch {
			case strings.HasPrefix(f, "-"):
				if !slices.Contains(w.options, f) {
					return false
				}
			case at < len(w.plain) && tool.Glob(f).Match(w.plain[at]):
				at++
			default:
				return false
			}
		}
		return true
	})
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
