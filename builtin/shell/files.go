package shell

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"toolpost/config/offlimits"
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
func parts(args []string, web func(string) bool) (all []part) {
	ended, first, option := false, true, false
	for i, arg := range args {
		p := part{arg: i, to: len(arg), valued: option}
		option = !ended && len(arg) > 1 && arg[0] == '-'
		switch ended = ended || arg == "--"; {
		case web(arg[strings.IndexByte(arg, '=')+1:]):
			continue
		case !option:
			p.plain, p.first = true, first
			first = false
			all = append(all, p)
			p.plain, p.first = false, false
		case arg[1] != '-':
			for k := 1; k <= cluster(arg); k++ { // each may be the last option, and the rest its value
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

// isWebAddress reports whether a word is an address of the web, which it is not if there is a folder of that name.
func (j *judging) isWebAddress(v string) bool {
	scheme, _, ok := strings.Cut(v, "//")
	return ok && (scheme == "https:" || scheme == "http:") && !j.exists(scheme)
}

const (
	odd     = " \t\r\n*?[]{}()<>|&;$`'\"\\^#!%," // hardly in the name of a file that is not there
	maxPath = 4096
	// maxClosed is how many files are hidden from a program, or fixed: each is a mount of its own.
	maxClosed = 300
)

var isNumber = regex.Lazy(`^[-+]*\.?[0-9][0-9.]*[A-Za-z%]{0,3}$`)

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
	target := ""
	if words := j.marks().scan(j.args, false); len(words.plain) > 0 {
		target = words.plain[len(words.plain)-1]
	}
	for _, p := range parts(j.args, j.isWebAddress) {
		if err := j.part(p, j.accessOf(p, target)); err != nil {
			return err
		}
	}
	return j.below()
}

// accessOf returns what the program does to a file that it names.
func (j *judging) accessOf(p part, target string) access {
	value, targets := j.args[p.arg][p.from:p.to], j.words.with('>')
	switch {
	case slices.ContainsFunc(targets, func(o option) bool { return o.value == value }),
		j.in("placers") && len(targets) == 0 && p.plain && value == target, j.in("writers"),
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
	if err := j.upwards(text); err != nil {
		return err
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
	if err := j.may(text, exists); err != nil && how == reads {
		return err
	}
	note := exists || how != reads || p.plain && !p.valued && (j.in("readers") || j.mayChange() && j.program != "git")
	return each(j.bases, func(base string) error { return j.judgePath(text, under(base, text), how, note) })
}

// may refuses a new file that the program could make, although no option says so.
func (j *judging) may(text string, exists bool) error {
	if exists || !j.changes {
		return nil
	}
	real, err := j.ground.resolve(j.absolute(text))
	if err != nil || !j.ground.innermost(real).Write {
		return nil //nolint:nilerr // what is not there, and may not be made, may still be asked for
	}
	return j.ground.mayWrite(text, real)
}

// upwards refuses a .. after a link: the kernel goes up from where the link leads, and our judgement by the text from where
// it is.
func (j *judging) upwards(text string) error {
	return each(j.bases, func(at string) error {
		if filepath.IsAbs(text) {
			at = "/"
		}
		for name := range strings.SplitSeq(text, "/") {
			if name == ".." {
				above := slices.ContainsFunc(j.ground.view.Roots(), func(r workspace.Root) bool { return offlimits.Within(r.Dir, at) })
				if info, err := os.Lstat(at); !above && (!j.offered(at) || err == nil && info.Mode()&fs.ModeSymlink != 0) {
					return j.refuse("%q: it goes up from a link, or outside of the offered folders; name the file itself", text)
				}
			}
			at = filepath.Join(at, name)
		}
		return nil
	})
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
	if err := j.upwards(shown); err != nil {
		return err
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
	case j.subcommand != "" && j.program == "git" && workspace.InGit(j.ground.innermost(real).Dir, real):
		return j.ground.mayWrite(shown, real)
	case how == removes && j.ground.isRoot(abs):
		return j.refuse("%q: an offered folder itself cannot be removed or moved", shown)
	case how == removes:
		j.removes = append(j.removes, abs)
	}
	switch {
	case !note:
	case how == reads:
		if j.reads = append(j.reads, abs); j.mayChange() && j.ground.mayWrite(shown, real) == nil {
			j.writes = append(j.writes, abs)
		}
	default:
		j.writes = append(j.writes, abs)
	}
	return nil
}

// mayChange reports whether the program may change a file that it seems to read.
func (j *judging) mayChange() bool {
	keeps := j.in("keep their words", "placers") && !j.in("removers") || slices.Contains(j.of("subcommands that keep the files"), j.subcommand)
	return j.changes && !keeps
}

// reach adds the folders in which a program may change more than its words say.
func (j *judging) reach() {
	switch {
	case !j.mayChange() || j.in("writers", "removers"):
	case j.code.covers(CodeTree):
		for _, r := range j.ground.view.Roots() {
			if r.Write {
				j.writes = append(j.writes, r.Dir)
			}
		}
	case j.program == "git":
		j.writes = append(j.writes, j.repository)
	case j.in("compressors"):
		for _, path := range j.reads {
			j.writes = append(j.writes, filepath.Dir(path))
		}
	}
}

// below refuses to take away, or to change, a folder with something in it that may not be changed. The walls would stop the
// program there, halfway.
func (j *judging) below() error {
	changed := j.removes
	if j.in("writers") && j.words.has("-R", "--recursive") {
		changed = slices.Concat(changed, j.writes)
	}
	return each(changed, func(folder string) error {
		real, err := j.ground.resolve(folder)
		if err != nil {
			return err
		}
		c, err := j.ground.view.Closed(j.ground.ctx, real, false, true)
		for _, path := range slices.Concat(c.Hidden, c.Fixed, c.Git) {
			return j.refuse("%q: %s is below it and is not allowed", folder, filepath.Base(path))
		}
		return err
	})
}
