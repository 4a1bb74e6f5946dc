package shell

import (
	"cmp"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"toolpost/host/offlimits"
	"toolpost/tool"
	"toolpost/wire/regex"
)

// A shape is the syntax of a kind that can be judged by its text alone.
type shape struct {
	text func() *regexp.Regexp
	what string
}

var (
	shapes = map[kind]shape{
		number:  {regex.Lazy(`^[-+]*[0-9.]+[A-Za-z%]{0,3}$`), "a number"}, // 5, -5, +5, 1.5, 10k, 512MiB and 50%
		keyword: {regex.Lazy(`^[A-Za-z0-9_+@%][A-Za-z0-9_.,:;+@%^~{}= #-]*$`), "a name"},
		remote: {
			regex.Lazy(`^([A-Za-z0-9_][A-Za-z0-9_.-]*|https://[A-Za-z0-9.-]+(:[0-9]+)?/[A-Za-z0-9_./~-]*)$`),
			"the name of a remote or an https address",
		},
		mode:   {regex.Lazy(`^([0-7]{3}|0[0-7]{3}|[ugoa]*[-+=][rwxX]*(,[ugoa]*[-+=][rwxX]*)*)$`), "a mode without set-id bits"},
		format: {regex.Lazy(`^\+`), "a format that begins with +"},
		linker: {regex.Lazy(`^(-s|-w|-X[ =][A-Za-z0-9_./]+=[^ '"]*|-X '[^']*'|-X "[^"]*"| )*$`), "-s, -w or -X"},
	}
	pathspec = regex.Lazy(`^:(\((exclude|top|icase|glob|literal|,)*\)|[!^/]+)`)
)

func isNumber(s string) bool { return shapes[number].text().MatchString(s) }

// value judges one value by its kind.
func (j *judging) value(k kind, v string) error {
	if s, ok := shapes[k]; ok {
		if s.text().MatchString(v) {
			return nil
		}
		return j.refuse("%q, where %s is wanted", v, s.what)
	}
	switch k {
	case free:
		return nil
	case commit:
		return j.commit(v)
	case pkg:
		return j.pkg(v)
	case script:
		return j.script(v)
	case loose:
		return j.loose(v)
	}
	return j.pathValue(k, v)
}

func (j *judging) pathValue(k kind, v string) error {
	j.elsewhere(v)
	switch {
	case v == "-" && (k == reads || k == archive):
		return nil // standard input or output
	case k == archive && strings.Contains(v, ":"):
		return j.refuse("the archive %q: it would be taken for a host's, because of its colon", v)
	case k == removes && j.ground.isRoot(j.absolute(v)):
		return j.refuse("%q: an offered folder itself cannot be removed or moved", v)
	}
	if k == archive {
		return j.fromDir(v, false)
	}
	if err := j.path(v, k == writes || k == removes); err != nil {
		return err
	}
	if k == enters {
		j.base = j.absolute(v)
	}
	return nil
}

// absolute returns the absolute form of a path of the command.
func (j *judging) absolute(path string) string { return j.leads(path, false) }

// leads is absolute for a path that may be created. A path that starts at a codebase is noted: a program would take it for a
// path of the system, so it is replaced before anything runs.
func (j *judging) leads(path string, makes bool) string {
	for _, from := range j.longest() {
		if offlimits.Within(path, from) {
			return j.moved[from] + path[len(from):]
		}
	}
	if !filepath.IsAbs(path) {
		return filepath.Join(j.base, path)
	}
	means, denied := j.ground.view.Meant(path, makes)
	if means == path || denied != nil {
		return filepath.Clean(path)
	}
	return j.move(path, means, makes)
}

// elsewhere notes a relative path that is in another root than the command's default start folder: answers contain such
// paths.
func (j *judging) elsewhere(path string) {
	if filepath.IsAbs(path) || !j.ground.anywhere || j.base != j.dir {
		return
	}
	_, here := os.Lstat(filepath.Join(j.base, path))
	if _, err := j.ground.view.Stat(path); err == nil && here != nil {
		j.move(path, path, false)
	}
}

// move notes the place of a path that means another, and returns it.
func (j *judging) move(path, means string, makes bool) string {
	at, _, err := j.ground.view.Here(means, makes)
	if err != nil {
		return filepath.Clean(path)
	}
	j.moved[path] = at
	return at
}

// longest lists the paths to replace, the longest first, so that nested paths precede those around them.
func (v *verdict) longest() []string {
	return slices.SortedFunc(maps.Keys(v.moved), func(a, b string) int {
		return cmp.Or(len(b)-len(a), strings.Compare(a, b))
	})
}

// writtenOut replaces paths of a codebase in a command by those of the host. Each must occur exactly once, as a whole
// argument or as the value of an option: a second occurrence may be a pattern, which must stay as it is.
func (v *verdict) writtenOut(args []string) ([]string, error) {
	args = slices.Clone(args)
	for _, path := range v.longest() {
		var found []int
		for i, arg := range args {
			option, whole := strings.CutSuffix(arg, path)
			if whole && (option == "" || strings.HasSuffix(option, "=") || option[0] == '-' && len(option) == 2) {
				found = append(found, i)
			}
		}
		if len(found) != 1 {
			return nil, outside(path)
		}
		args[found[0]] = strings.TrimSuffix(args[found[0]], path) + v.moved[path]
	}
	return args, nil
}

// path judges a path and notes it.
func (j *judging) path(shown string, write bool) error {
	if shown == "" {
		return j.refuse("an empty path")
	}
	if shown == "/dev/null" {
		return nil
	}
	if strings.HasPrefix(shown, "~") || strings.HasPrefix(strings.ToLower(shown), "file:") {
		return outside(shown)
	}
	abs := j.leads(shown, write)
	if err := j.ground.check(shown, abs, write); err != nil {
		return err
	}
	if write {
		j.writes = append(j.writes, abs)
	} else {
		j.reads = append(j.reads, abs)
	}
	return nil
}

// fromDir judges a path relative to the command's start folder, whatever folder it enters.
func (j *judging) fromDir(v string, write bool) error {
	base := j.base
	j.base = j.dir
	defer func() { j.base = base }()
	return j.path(v, write)
}

func outside(shown string) error {
	return tool.Errorf(tool.CodeAccessDenied, "%s is not allowed: it is outside of the offered folders", shown)
}

// commit judges an argument that git takes for a revision or for a path, whichever it finds. As a path it must be allowed;
// so must the path after a revision's colon.
func (j *judging) commit(v string) error {
	if v == "" || v == "-" {
		return nil
	}
	if strings.HasPrefix(v, "-") {
		return j.refuse("%q, which begins with a dash", v)
	}
	if spec := pathspec().FindString(v); spec != "" {
		return j.commitPath(strings.TrimPrefix(v, spec))
	}
	if strings.HasPrefix(v, ":(") {
		return j.refuse("%q, a pathspec that is not known to be harmless", v)
	}
	return each(strings.Split(v, ":"), j.commitPath)
}

func (j *judging) commitPath(part string) error {
	if part == "" || strings.HasPrefix(part, "@{") {
		return nil
	}
	return j.path(part, false)
}

// pkg judges a Go package: with a version, it would be fetched and run from elsewhere.
func (j *judging) pkg(v string) error {
	if strings.Contains(v, "@") || strings.HasPrefix(v, "-") {
		return j.refuse("the package %q: only packages without a version, of this module or the ones it names, are "+
			"known to be harmless", v)
	}
	return j.loose(v)
}

// script judges a file with code to run; a dash is standard input.
func (j *judging) script(v string) error {
	need := CodeTree
	if v == "-" {
		need = CodeAny
	}
	switch {
	case !j.codeLevel().covers(need):
		return j.refuse("%q, which is code: a rule with code: %s can allow it", v, need)
	case v == "-":
		return nil
	}
	j.elsewhere(v)
	return j.path(v, false)
}

// loose judges an argument of unknown meaning. Each part that a program could take for a path is judged as one: the whole,
// what follows a = or : or @, and a value attached to a short option.
func (j *judging) loose(v string) error {
	if isWebAddress(v) {
		return nil
	}
	parts := strings.FieldsFunc(v, func(r rune) bool { return strings.ContainsRune("=:,;@ \t\n'\"(){}<>|", r) })
	if len(v) > 2 && v[0] == '-' && v[1] != '-' {
		parts = append(parts, v[2:])
	}
	if !strings.HasPrefix(v, "-") && v != "" {
		parts = append(parts, v)
	}
	return each(parts, func(part string) error {
		if part = strings.TrimLeft(part, "-"); part == "" {
			return nil
		}
		return j.path(part, false)
	})
}

func isWebAddress(v string) bool {
	return strings.HasPrefix(v, "https://") || strings.HasPrefix(v, "http://")
}
