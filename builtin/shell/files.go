package shell

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"toolpost/host/offlimits"
	"toolpost/host/workspace"
	"toolpost/tool"
	"toolpost/wire/regex"
)

// A part is an argument, or a piece of one, that the program may take for the name of a file.
type part struct {
	arg, from, to int
	plain         bool // it is a whole argument, and no option
	first         bool // and the first such
	valued        bool // it follows an option, whose value it may be
}

// parts lists what may name a file: each argument, what follows its = or : or @, and what is attached to a short option.
func parts(args []string) (all []part) {
	ended, first, option := false, true, false
	for i, arg := range args {
		p := part{arg: i, to: len(arg), valued: option}
		option = !ended && len(arg) > 1 && arg[0] == '-'
		switch ended = ended || arg == "--"; {
		case isWebAddress(arg[strings.IndexByte(arg, '=')+1:]):
			continue
		case !option:
			p.plain, p.first = true, first
			first = false
			all = append(all, p)
			p.plain, p.first = false, false
		default:
			for k := 1; k < len(arg) && k < 64 && isLetter(arg[k]); k++ { // a cluster of letters may end with a value
				p.from = k + 1
				all = append(all, p)
			}
		}
		for at := 0; at < len(arg); at = p.to + 1 {
			p.from, p.to = at, at+strings.IndexAny(arg[at:]+"=", "=:@")
			if p.to < len(arg) || at > 0 {
				all = append(all, p)
			}
			if at > 0 && arg[at-1] == '=' && p.to < len(arg) {
				all = append(all, part{arg: i, from: at, to: len(arg)})
			}
		}
	}
	return all
}

func isWebAddress(v string) bool {
	return strings.HasPrefix(v, "https://") || strings.HasPrefix(v, "http://")
}

const (
	odd     = " \t\r\n*?[]{}()<>|&;$`'\"\\^#!%," // hardly in the name of a file that is not there
	maxPath = 4096
	// maxHidden is how many files are hidden from a program: each is a mount of its own.
	maxHidden = 300
)

var isNumber = regex.Lazy(`^[-+]*[0-9.]+[A-Za-z%]{0,3}$`)

// An access is what a program does to a file that it names.
type access int

const (
	reads access = iota
	writes
	removes // and it is not there afterwards
)

// files judges every word that could name a file.
func (j *judging) files() error {
	if j.in("texts") {
		return nil
	}
	for _, o := range j.words.with(':') {
		if o.name == "-C" || o.name == "--directory" {
			j.bases = append(j.bases, under(j.bases[len(j.bases)-1], o.value), j.absolute(o.value))
		}
	}
	all := parts(j.args)
	last := 0
	for _, p := range all {
		if p.plain {
			last = p.arg
		}
	}
	for _, p := range all {
		if err := j.part(p, j.accessOf(p, last)); err != nil {
			return err
		}
	}
	return j.below()
}

// accessOf returns what the program does to a file that it names.
func (j *judging) accessOf(p part, last int) access {
	value, targets := j.args[p.arg][p.from:p.to], j.words.with('>')
	switch {
	case slices.ContainsFunc(targets, func(o option) bool { return o.value == value }),
		j.in("placers") && len(targets) == 0 && p.arg == last, j.in("writers"),
		p.plain && j.words.with('+') != nil, j.program == "dd" && p.from > 0 && strings.HasPrefix(j.args[p.arg], "of="):
		return writes
	case j.in("removers"):
		return removes
	}
	return reads
}

// part judges a word as the file that it could name.
func (j *judging) part(p part, how access) error {
	text := j.args[p.arg][p.from:p.to]
	separator := text == "/" && (p.from > 0 || p.valued) && how == reads
	if text == "" || text == "-" || text == "/dev/null" || len(text) > maxPath || separator && j.known() {
		return nil
	}
	exists := j.exists(text)
	folder := filepath.Dir(text)
	isText := strings.ContainsAny(text, odd) && (folder == "." || !j.exists(folder))
	isValue := (p.valued || !p.plain) && isNumber().MatchString(text)
	if !exists && (p.first && j.in("pattern first") || isText || isValue) {
		return nil
	}
	if means, ok := j.elsewhere(p, text, how, exists); ok {
		return j.move(p, means, how)
	}
	if scope := j.ground.scope; !exists && how == reads && j.changes && !p.valued && scope != nil {
		if err := scope.Path(j.absolute(text), true); err != nil { // it may be made
			return err
		}
	}
	note := exists || how != reads || j.in("readers") && p.plain && !p.valued
	return each(j.bases, func(base string) error { return j.judgePath(text, under(base, text), how, note) })
}

// elsewhere returns what a path means that answers of other tools contain: one that starts at a codebase, which a program
// would take for a path of the system, or a relative one in another root than that in which the command starts.
func (j *judging) elsewhere(p part, text string, how access, exists bool) (string, bool) {
	if filepath.IsAbs(text) {
		means, denied := j.ground.view.Meant(text, how != reads)
		return means, denied == nil && means != text
	}
	if exists || !p.plain || !j.ground.anywhere || j.bases[0] != j.dir || j.in("others", "run code") {
		return "", false
	}
	_, err := j.ground.view.Stat(text)
	return text, err == nil
}

// offered reports whether an absolute path is that of an offered folder, or below one, by its text.
func (j *judging) offered(path string) bool {
	return slices.ContainsFunc(j.ground.view.Roots(), func(r workspace.Root) bool {
		return offlimits.Within(filepath.Clean(path), r.Dir)
	})
}

// exists reports whether a word is the name of something that is there. It looks at offered folders only: a caller is not
// told what else the machine has.
func (j *judging) exists(text string) bool {
	return slices.ContainsFunc(j.bases, func(base string) bool {
		at := under(base, text)
		_, err := os.Lstat(at)
		return j.offered(at) && err == nil
	})
}

// move replaces a path of a codebase, which the program would take for one of the system, or one of another root. It must
// occur once: another occurrence may be a pattern, which must stay as it is.
func (j *judging) move(p part, means string, how access) error {
	text := j.args[p.arg][p.from:p.to]
	at, _, err := j.ground.view.Here(means, how != reads)
	others := slices.Delete(slices.Clone(j.args), p.arg, p.arg+1)
	if err != nil || slices.Contains(others, text) {
		return outside(text)
	}
	j.args[p.arg] = j.args[p.arg][:p.from] + at + j.args[p.arg][p.to:]
	return j.judgePath(text, at, how, true)
}

func under(base, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(base, path)
}

// absolute returns the absolute form of a path of the command, which may start at a codebase.
func (j *judging) absolute(path string) string {
	if means, denied := j.ground.view.Meant(path, true); filepath.IsAbs(path) && denied == nil && means != path {
		if at, _, err := j.ground.view.Here(means, true); err == nil {
			return at
		}
	}
	return under(j.bases[0], path)
}

func outside(shown string) error {
	return tool.Errorf(tool.CodeAccessDenied, "%s is not allowed: it is outside of the offered folders", shown)
}

// path judges a path and notes it.
func (j *judging) path(shown string, write bool) error {
	switch shown {
	case "":
		return j.refuse("an empty path")
	case "/dev/null":
		return nil
	}
	how := reads
	if write {
		how = writes
	}
	return j.judgePath(shown, j.absolute(shown), how, true)
}

// judgePath judges a path. Without note, it is only asked whether the path may be used.
func (j *judging) judgePath(shown, abs string, how access, note bool) error {
	if strings.HasPrefix(shown, "~") {
		return outside(shown)
	}
	if err := j.ground.check(shown, abs, how != reads); err != nil {
		return err
	}
	real, err := j.ground.resolve(abs)
	switch {
	case err != nil:
		return err
	case j.program == "git" && inGit(real):
		return j.ground.mayWrite(shown, real)
	case how == removes && j.ground.isRoot(abs):
		return j.refuse("%q: an offered folder itself cannot be removed or moved", shown)
	case how == removes:
		j.removes = append(j.removes, abs)
	}
	switch fixed := j.changes && j.ground.mayWrite(shown, real) != nil; {
	case !note:
	case how == reads:
		j.reads = append(j.reads, abs)
		if fixed {
			j.fixed = append(j.fixed, real)
		}
	default:
		j.writes = append(j.writes, abs)
	}
	return nil
}

// below judges what the program finds by itself below its folders. What its caller may not read there is hidden from it.
func (j *judging) below() error {
	recursive := j.words.has("-r", "-R", "--recursive", "--dereference-recursive", "-d", "--directories")
	changed, walked := j.removes, j.reads
	if j.in("writers") && recursive {
		changed = j.writes
	}
	for _, folder := range changed {
		names, err := j.ground.hidden(folder, true)
		if err != nil {
			return err
		}
		if len(names) > 0 {
			return j.refuse("%q: %s is below it and is not allowed", folder, filepath.Base(names[0]))
		}
	}
	switch {
	case !j.in("walkers"):
		return nil
	case len(walked) == 0 && (recursive || j.program == "rg"):
		walked = j.bases
	}
	return each(walked, func(folder string) error {
		names, err := j.ground.hidden(folder, false)
		if j.hidden = append(j.hidden, names...); len(j.hidden) > maxHidden {
			return j.refuse("%q: more than %d files below it are not allowed, which cannot all be hidden", folder, maxHidden)
		}
		return err
	})
}
