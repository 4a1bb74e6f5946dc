// Package offlimits is the one list of the files that an installation protects from its tools: those that no tool may
// see, and those that no tool may change. Rooms and the built-in tools use the same list. The package also opens the
// paths of a config without following links that a tool could have made.
package offlimits

import (
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"toolpost/tool"
)

// A List names what is off limits, by absolute paths. A path that ends with a slash is a folder, with everything in it.
// The paths need not exist: each check uses what exists at that moment.
type List struct {
	// Absent is hidden from all tools: the state folder, the store, private keys, the files of secrets.
	Absent []string
	// Config is the config itself, or empty if there is none. Started programs do not see it; the built-in tools may read
	// it.
	Config string
	// ReadOnly lists what the config starts from: programs, scripts, apps' bindings, skills, plugins.
	ReadOnly []string
	// Writable are the folders that tools may change.
	Writable []Owned
	// Shown are the folders that tools may read. No tool may move one away: its source would lose it.
	Shown []string
	// Homes are the folders that programs load code from implicitly, such as a module beside a script. No source may
	// change their contents, unless its config names that folder, or one in it, for writing.
	Homes []Owned
}

// An Owned is a folder of a source.
type Owned struct{ Path, Source string }

// all returns the list; a nil list is empty.
func (l *List) all() List {
	if l == nil {
		return List{}
	}
	return *l
}

// Hidden lists what started programs do not see.
func (l *List) Hidden() []string {
	all := l.all()
	if all.Config == "" {
		return all.Absent
	}
	return append(slices.Clip(all.Absent), all.Config)
}

// Fixed lists what started programs see but cannot change.
func (l *List) Fixed() []string { return l.all().ReadOnly }

// Folders lists the homes of programs.
func (l *List) Folders() []string { return paths(l.all().Homes) }

// Roots lists the folders that tools may change.
func (l *List) Roots() []string { return paths(l.all().Writable) }

// Held lists the folders that the config gives to tools, which no tool may move.
func (l *List) Held() []string { return append(l.Roots(), l.all().Shown...) }

func paths(folders []Owned) []string {
	list := make([]string, len(folders))
	for i, f := range folders {
		list[i] = f.Path
	}
	return list
}

// Exposed reports whether a path is a folder that tools may change, or lies in one, after following links.
func (l *List) Exposed(path string) bool {
	return slices.ContainsFunc(l.Roots(), func(root string) bool { return l.meet(path, root, false) })
}

// StateName is the folder beside a config that holds the state of an installation by default. It is hidden from all tools
// even if the state is elsewhere: it may have been here before.
const StateName = ".toolpost"

// Default returns the list for tools that belong to no node: the state beside a config in dir.
func Default(dir string) *List { return &List{Absent: []string{filepath.Join(dir, StateName) + "/"}} }

// A Checker holds the current list and finds the ban on a file. A reload of the config changes the list for the sources
// that stay. A nil Checker has no list.
type Checker struct {
	now   atomic.Pointer[List]
	known atomic.Pointer[facts]
}

// NewChecker returns a checker with an initial list.
func NewChecker(l *List) *Checker {
	c := &Checker{}
	c.Set(l)
	return c
}

// Set replaces the list.
func (c *Checker) Set(l *List) {
	c.now.Store(l)
	c.known.Store(nil)
}

// Now returns the list, or nil if nothing is off limits.
func (c *Checker) Now() *List {
	if c == nil {
		return nil
	}
	return c.now.Load()
}

// A Ban states which access to a file is off limits.
type Ban int

// The kinds of Ban.
const (
	Free   Ban = iota // anything
	Config            // built-in tools may read it; no tool may change it, and started programs do not see it
	Fixed             // it may be read but not changed
	Secret            // it is hidden
)

// facts are the real paths of the things of a list, at one moment.
type facts struct {
	at    time.Time
	list  *List
	paths []fact
	homes []Owned
	roots []string
	ids   map[ID]Ban        // of the things that the list names
	inner func() map[ID]Ban // and of the contents of hidden folders
}

type fact struct {
	path string
	ban  Ban
}

// factsTTL is how long the real paths of the list are cached. A tool cannot move them, so this only delays the effect
// of a change by hand.
const factsTTL = time.Second

func (c *Checker) facts() facts {
	l := c.Now()
	if l == nil {
		return facts{inner: func() map[ID]Ban { return nil }}
	}
	if f := c.known.Load(); f != nil && f.list == l && time.Since(f.at) < factsTTL {
		return *f
	}
	f := l.look()
	c.known.Store(f)
	return *f
}

func (l *List) look() *facts {
	f := &facts{at: time.Now(), list: l, ids: map[ID]Ban{}}
	f.inner = sync.OnceValue(f.identify)
	add := func(path string, ban Ban) {
		for _, p := range append(l.where(path), filepath.Clean(path)) { // its real path, and as it is written
			if slices.Contains(f.paths, fact{p, ban}) {
				continue
			}
			f.paths = append(f.paths, fact{p, ban})
			if info, err := os.Lstat(p); err == nil {
				note(f.ids, info, ban)
			}
		}
	}
	for _, path := range l.Absent {
		add(path, Secret)
	}
	if l.Config != "" {
		add(l.Config, Config)
	}
	for _, path := range l.ReadOnly {
		add(path, Fixed)
	}
	for _, home := range l.Homes {
		for _, path := range append(l.where(home.Path), filepath.Clean(home.Path)) {
			f.homes = append(f.homes, Owned{path, home.Source})
		}
	}
	for _, root := range l.Held() {
		f.roots = append(append(f.roots, l.where(root)...), filepath.Clean(root))
	}
	return f
}

// most bounds how many files of hidden folders are known by identity.
const most = 100_000

func (f *facts) identify() map[ID]Ban {
	ids := maps.Clone(f.ids)
	for _, p := range f.paths {
		if p.ban != Secret {
			continue
		}
		_ = filepath.WalkDir(p.path, func(_ string, d fs.DirEntry, err error) error {
			if err != nil || len(ids) > most {
				return fs.SkipAll
			}
			if info, err := d.Info(); err == nil {
				note(ids, info, p.ban)
			}
			return nil
		})
	}
	return ids
}

func note(ids map[ID]Ban, info fs.FileInfo, ban Ban) {
	id := idOf(info)
	ids[id] = max(ids[id], ban)
}

// where returns the real path of a path, existing or not. No room can use a path that leads through a link in a folder
// that tools may change, but a process outside a room follows the link. So the result is the link's target, and each link
// on the way counts too.
func (l *List) where(path string) []string {
	a, rest, err := openNearest(path, l)
	if err != nil {
		return links(path)
	}
	defer a.Close()
	return []string{filepath.Join(a.Path, rest)}
}

// links returns the links that a path leads through, and where they end.
func links(path string) []string {
	var links []string
	at, rest := "/", names(path)
	for len(rest) > 0 && len(links) < maxLinks {
		here := filepath.Join(at, rest[0])
		rest = rest[1:]
		target, err := os.Readlink(here)
		if err != nil {
			at = here
			continue
		}
		links = append(links, here)
		at, rest = "/", append(names(Under(at, target)), rest...)
	}
	if len(rest) > 0 { // a loop leads nowhere
		return links
	}
	return append(links, at)
}

// At returns the ban on a path. The path is the real one of something that exists or is to be made: absolute and without
// links. The strictest ban counts.
func (c *Checker) At(real string) Ban {
	return c.strictest(func(path string) bool { return Within(real, path) })
}

func (c *Checker) strictest(about func(path string) bool) Ban {
	ban := Free
	for _, p := range c.facts().paths {
		if p.ban > ban && about(p.path) {
			ban = p.ban
		}
	}
	return ban
}

// Folder returns the ban on an open folder by its identity: it may be mounted in a second place.
func (c *Checker) Folder(id ID) Ban { return c.facts().ids[id] }

// Linked returns the ban on an open file with several names, by its identity.
func (c *Checker) Linked(id ID) Ban { return c.facts().inner()[id] }

// Inside returns the ban on what lies in a folder, or would: moving or removing the folder moves or removes that too. The
// strictest ban counts.
func (c *Checker) Inside(real string) Ban {
	inside := func(path string) bool { return path != real && Within(path, real) }
	ban := c.strictest(inside)
	if ban == Free && slices.ContainsFunc(c.facts().homes, func(h Owned) bool { return inside(h.Path) }) {
		ban = Fixed
	}
	return ban
}

// HoldsRoot reports whether a folder is one that the config gives to tools, or has such a folder in it: if
// it were moved or removed, the sources of that folder would lose it.
func (c *Checker) HoldsRoot(real string) bool {
	return slices.ContainsFunc(c.facts().roots, func(root string) bool { return Within(root, real) })
}

// LoadedBy returns a source whose programs load code from the folder of a path, or "" if there is none. Named are the
// folders that a config gives for writing: for a home that is one of them, or contains one with the path in it, its owner
// has decided.
func (c *Checker) LoadedBy(real string, named ...string) string {
	for _, h := range c.facts().homes {
		decided := func(folder string) bool { return Within(folder, h.Path) && Within(real, folder) }
		if Within(real, h.Path) && !slices.ContainsFunc(named, decided) {
			return h.Source
		}
	}
	return ""
}

// Within reports whether a path is a folder or something in it. Both are clean and absolute.
func Within(path, folder string) bool {
	return path == folder || folder == "/" || strings.HasPrefix(path, folder) && path[len(folder)] == '/'
}

// A Claim states how one source uses files; each protocol provides its own. Paths are absolute.
type Claim struct {
	Source string   // the source of the claim
	Keeps  []string // private to us: keys, the stored data of a source
	Starts []string // the files that it starts from
	Writes []string // folders that its tools may change
	Shows  []string // folders that its tools may only read
	// Homes are the folders that its programs load code from implicitly. If one ends with /. other sources may write the
	// folders in it: they are data.
	Homes []string
	Gains string // what code in a home would gain: "with secrets", "without walls"; empty means nothing
	// Stays means that rooms of the source may outlive a call. The cover of a file in a room disappears when a process
	// outside replaces the file, as editors do: such rooms are rebuilt when the config changes. It is set for every source
	// that starts programs; a protocol whose programs end with the call clears it.
	Stays bool
	// Bare means that its programs run without walls.
	Bare bool
}

// Own returns a home that the source's own config names for writing, or "" if there is none.
func (c Claim) Own() string {
	for _, home := range c.Homes {
		if slices.Contains(c.Writes, filepath.Clean(home)) {
			return filepath.Clean(home)
		}
	}
	return ""
}

// Add adds a claim to the list.
func (l *List) Add(c Claim) {
	add(&l.Absent, c.Keeps...)
	add(&l.ReadOnly, c.Starts...)
	add(&l.Shown, c.Shows...)
	for _, path := range c.Homes {
		add(&l.Homes, Owned{path, c.Source})
	}
	for _, path := range c.Writes {
		add(&l.Writable, Owned{path, c.Source})
	}
}

func add[T comparable](to *[]T, more ...T) {
	for _, one := range more {
		if !slices.Contains(*to, one) {
			*to = append(*to, one)
		}
	}
}

// Guard refuses to open a source whose programs would expose what they have to code of another source: one whose config
// names a home of theirs, or a folder in it, for writing. If the programs run without walls, a folder around a home is
// enough for a refusal, and so is one around what they start from: that would endanger the host.
func (l *List) Guard(c Claim) error {
	homes := c.Homes
	if c.Bare {
		homes = slices.Concat(homes, c.Starts)
	}
	for _, w := range l.all().Writable {
		for _, home := range homes {
			if w.Source == c.Source || c.Gains == "" || !l.meet(w.Path, home, c.Bare) {
				continue
			}
			return tool.Errorf(tool.CodeUnavailable, "source %q may write %s, and could put code for its program there, which "+
				"runs %s; move the program into a folder of its own and say `dir: FOLDER`, or let %[1]q write another folder",
				w.Source, filepath.Clean(w.Path), c.Gains).Because("off_limits")
		}
	}
	return nil
}

// meet reports whether a path is a home, or lies in one, or, if around is set, contains one.
func (l *List) meet(path, home string, around bool) bool {
	return slices.ContainsFunc(l.where(path), func(at string) bool {
		return slices.ContainsFunc(l.where(home), func(in string) bool {
			return at == in || Within(at, in) && !strings.HasSuffix(home, "/.") || around && Within(in, at)
		})
	})
}

// Same reports whether two lists protect the same things.
func (l *List) Same(o *List) bool {
	return l == o || l != nil && o != nil && same(l.Hidden(), o.Hidden()) && same(l.Fixed(), o.Fixed()) &&
		same(l.Writable, o.Writable) && same(l.Shown, o.Shown) && same(l.Homes, o.Homes)
}

// same compares lists without duplicates.
func same[T comparable](a, b []T) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(one T) bool { return !slices.Contains(b, one) })
}

// Outdates reports whether a change of the config leaves a source with rooms that were built for another list, or that
// may now change the config. What must only not be changed is nothing to a room that may not change it anyway: a program
// that keeps its state in memory is not started again for each source that comes or goes.
func (c Claim) Outdates(before, now *List) bool {
	if !c.Stays {
		return false
	}
	open := func(folder string) bool { return now.Config != "" && Within(now.Config, filepath.Clean(folder)) }
	hidden := before.all().Absent
	seen := func(path string) bool { // not hidden before and after
		return !slices.ContainsFunc(hidden, func(folder string) bool {
			return strings.HasSuffix(folder, "/") && Within(filepath.Clean(path), filepath.Clean(folder)) && slices.Contains(now.all().Absent, folder)
		})
	}
	if slices.ContainsFunc(c.Writes, open) || slices.ContainsFunc(differing(before.Hidden(), now.Hidden()), seen) {
		return true
	}
	kept := func(l *List) []string { return slices.Concat(l.Fixed(), l.Folders(), l.Held()) }
	return slices.ContainsFunc(differing(kept(before), kept(now)), func(path string) bool {
		return c.Bare || slices.ContainsFunc(c.Writes, func(folder string) bool { return now.meet(path, folder, true) })
	})
}

// differing returns what only one of two lists has.
func differing(a, b []string) []string {
	without := func(a, b []string) []string {
		return slices.DeleteFunc(slices.Clone(a), func(one string) bool { return slices.Contains(b, one) })
	}
	return append(without(a, b), without(b, a)...)
}

// Under returns a path of a config, clean; a relative one starts in dir.
func Under(dir, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}

// Given returns the non-empty paths, made absolute. A trailing slash is kept.
func Given(dir string, paths ...string) []string {
	var all []string
	for _, path := range paths {
		if path == "" {
			continue
		}
		full := Under(dir, path)
		if strings.HasSuffix(path, "/") && full != "/" {
			full += "/"
		}
		all = append(all, full)
	}
	return all
}

// Argv lists the files that a command starts from: its program, wherever it is found, the files among its arguments, and
// the folder named by its first argument, if interpreters would run it. An argument that names no existing file counts if
// it looks like code: a tool must not be able to create it. Paths that the source itself may change are left out.
func Argv(dir string, argv, writes []string) []string {
	var files []string
	first := firstArgument(argv)
	for i, arg := range argv {
		if i > 0 {
			files = append(files, module(dir, argv[i-1], arg)...)
		}
		if strings.HasPrefix(arg, "-") {
			_, arg, _ = strings.Cut(arg, "=") // such as --require=./first.js
		}
		if i == 0 {
			files = append(files, program(dir, arg)...)
		}
		if i == 0 || strings.Contains(arg, "://") || arg == "" || argv[i-1] == "-m" {
			continue
		}
		path := Given(dir, arg)[0]
		info, err := os.Stat(path)
		switch {
		case err != nil && isCode(path), err == nil && (info.Mode().IsRegular() || strings.HasSuffix(path, "/")):
			files = append(files, path)
		case err == nil && i == first && isProgram(path):
			files = append(files, path+"/")
		case err != nil && i == first:
			files = append(files, extended(path)...)
		}
	}
	return slices.DeleteFunc(files, func(path string) bool { return slices.Contains(writes, filepath.Clean(path)) })
}

// firstArgument returns the place of the first argument that is no option.
func firstArgument(argv []string) int {
	return slices.IndexFunc(argv[min(1, len(argv)):], func(arg string) bool { return !strings.HasPrefix(arg, "-") }) + 1
}

// program lists the file of a program, given by a path or found on PATH, and those that it links to, except the system's.
func program(dir, name string) []string {
	path := Under(dir, name)
	if !strings.Contains(name, "/") {
		found, err := exec.LookPath(name)
		if path, _ = filepath.Abs(found); err != nil {
			return nil
		}
	}
	files := chain(path)
	if len(files) == 0 {
		files = []string{path}
	}
	return slices.DeleteFunc(files, isSystem)
}

// chain lists a file and those that it links to, if it exists.
func chain(path string) (all []string) {
	for range maxLinks {
		if _, err := os.Lstat(path); err != nil {
			break
		}
		all = append(all, path)
		target, err := os.Readlink(path)
		if err != nil {
			break
		}
		path = Under(filepath.Dir(path), target)
	}
	return all
}

// extended lists the files that an interpreter finds under a name without their extension, as in `node index`.
func extended(path string) []string {
	files, _ := filepath.Glob(path + ".*") // an argument that is no pattern names no file
	return files
}

// isSystem reports whether a path belongs to the operating system.
func isSystem(path string) bool {
	in := func(folder string) bool { return Within(path, folder) }
	return path == "/" || slices.ContainsFunc([]string{"/bin", "/sbin", "/lib", "/lib64", "/dev", "/proc"}, in) ||
		in("/usr") && !in("/usr/local")
}

// named lists the existing files and folders that a text names, wholly or in part: -Ipath, --option=path, path:path.
func named(dir, text, separators string) (found []string) {
	parts := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(separators, r) })
	for _, part := range slices.Compact(append(parts, text)) {
		if strings.HasPrefix(part, "-") && !strings.HasPrefix(part, "--") {
			part = part[min(2, len(part)):]
		}
		if part = strings.TrimPrefix(part, "@"); part != "" {
			found = append(found, chain(Under(dir, part))...)
		}
	}
	return slices.DeleteFunc(found, isSystem)
}

// Homes lists the folders that a command in dir may load code from implicitly: those of its program and of every file that
// its arguments name, and every folder that they name. An argument after the first file names data if the source may write
// it, and if own is set, which means that its config says in which folder its code lies; unless it looks like code.
func Homes(dir string, argv, writes []string, own bool) (homes []string) {
	first, last := firstArgument(argv), ""
	for i, arg := range argv {
		before := last
		if last = arg; i == 0 {
			for _, file := range program(dir, arg) {
				homes = append(homes, filepath.Dir(file)+"/")
			}
			continue
		}
		for _, file := range module(dir, before, arg) {
			homes = append(homes, homeOf(dir, file, true))
		}
		paths := named(dir, arg, "=:,")
		switch {
		case before == "-m":
			continue
		case len(paths) == 0 && i == first:
			paths = extended(Under(dir, arg))
		case len(paths) == 0 && isCode(arg) && !strings.Contains(arg, "://"):
			paths = Given(dir, arg)
		}
		attached := strings.HasPrefix(arg, "-") && !strings.HasPrefix(arg, "--")
		for _, path := range paths {
			info, err := os.Stat(path)
			entry := i == first && err == nil && !info.IsDir()
			code := entry && filepath.Ext(path) == "" || isCode(path) || i == first && isProgram(path)
			if entry || code || (i == first || attached || !own) && !isWritten(writes, path) {
				homes = append(homes, homeOf(dir, path, code))
			}
		}
	}
	if len(argv) > 0 && isOne(filepath.Base(argv[0]), "uv uvx poetry npm npx pnpm yarn bun make cargo go") {
		homes = append(homes, Given(dir, projects(argv)...)...)
	}
	return homes
}

// Variables lists the folders that a program in dir may load code from because of its variables: every path in those that
// the config sets, unless the source may write it, and those of passed variables that are known to name code.
func Variables(dir string, set, passed map[string]string, writes []string) (homes []string) {
	for _, name := range []string{"PATH", "PYTHONPATH", "NODE_PATH", "PERL5LIB", "RUBYLIB", "CLASSPATH", "LD_LIBRARY_PATH"} {
		homes = append(homes, Given(dir, filepath.SplitList(passed[name])...)...)
	}
	for _, value := range set {
		for _, path := range named(dir, value, " \t\n=:,;") {
			if !isWritten(writes, path) {
				homes = append(homes, homeOf(dir, path, false))
			}
		}
	}
	for _, name := range []string{"BASH_ENV", "ENV", "NODE_OPTIONS", "PERL5OPT", "RUBYOPT", "PYTHONSTARTUP", "LD_PRELOAD"} {
		for _, path := range named(dir, passed[name], " \t\n=:,;") {
			homes = append(homes, homeOf(dir, path, false))
		}
	}
	return homes
}

// homeOf returns the folder of a file, or the folder itself. If a program works in it, or below it, others may write the
// folders in it, as they may without the path, unless the path is code.
func homeOf(dir, path string, code bool) string {
	home := filepath.Clean(path)
	if info, err := os.Stat(path); (err != nil || !info.IsDir()) && !strings.HasSuffix(path, "/") {
		home = filepath.Dir(home)
	}
	if !code && Within(dir, home) {
		return home + "/."
	}
	return home + "/"
}

// isWritten reports whether a source may write a file or folder because its config names it, or the file's folder.
func isWritten(writes []string, path string) bool {
	return slices.Contains(writes, filepath.Clean(path)) || slices.Contains(writes, filepath.Dir(path))
}

// Inline reports whether an argument of a command is code, as in `sh -c 'cd work && ./run'`: it may name any file.
func Inline(argv []string) bool {
	text := func(arg string) bool { return strings.ContainsAny(arg, " \t\n;&|$()`'\"<>") }
	language := slices.IndexFunc(argv, func(arg string) bool { return isOne(filepath.Base(arg), languages) })
	if language >= 0 && slices.ContainsFunc(argv[language+1:], text) {
		return true
	}
	for i, arg := range argv {
		option, value, joined := strings.Cut(arg, "=")
		long := isOne(option, "--eval --print --command --exec")
		short := i > 0 && len(arg) > 1 && arg[0] == '-' && arg[1] != '-'
		switch {
		case long && joined && text(value), short && strings.ContainsAny(arg[1:2], inlines) && text(arg[2:]):
			return true
		case (long || short && strings.ContainsAny(arg[len(arg)-1:], inlines)) && i+1 < len(argv) && text(argv[i+1]):
			return true
		}
	}
	return false
}

// inlines are the options by which shells and interpreters take code, and languages are programs that take it in any
// argument, and whose code can start others.
const (
	inlines   = "ceErpS"
	languages = "awk gawk mawk nawk original-awk sed ed ex vi vim nvim emacs make gmake find xargs m4 gdb expect busybox"
)

// projects lists the folders that the options of a runner name. The code that uvx runs may also come from elsewhere.
func projects(argv []string) (folders []string) {
	for i, arg := range argv {
		option, value, joined := strings.Cut(arg, "=")
		if !joined && i+1 < len(argv) {
			value = argv[i+1]
		}
		local := option == "--from" && (strings.HasPrefix(value, ".") || filepath.IsAbs(value))
		if local || value != "" && isOne(option, "--directory --project --prefix --cwd --dir -C") {
			folders = append(folders, strings.TrimSuffix(value, "/")+"/")
		}
	}
	return folders
}

// module lists the files of the Python module that an argument names, as in `-m name`, `-Bm name` and `-mname`, if they
// exist: a missing one comes from elsewhere, and an empty file would hide it. A folder takes precedence over a file of the
// same name, unless it is empty.
func module(dir, before, arg string) []string {
	letters := func(arg string) bool { return len(arg) > 1 && arg[0] == '-' && arg[1] != '-' }
	name := ""
	switch {
	case letters(before) && strings.HasSuffix(before, "m"):
		name = arg
	case letters(arg):
		_, name, _ = strings.Cut(arg, "m")
	}
	top, _, _ := strings.Cut(name, ".")
	if top == "" || strings.HasPrefix(top, "-") {
		return nil
	}
	both := Given(dir, top+".py", top+"/")
	for i, path := range both {
		if _, err := os.Stat(path); err == nil {
			return both[i:]
		}
	}
	return nil
}

// isProgram reports whether an interpreter would run a folder.
func isProgram(folder string) bool {
	return slices.ContainsFunc([]string{"__main__.py", "package.json", "index.js"}, func(name string) bool {
		_, err := os.Stat(filepath.Join(folder, name))
		return err == nil
	})
}

// isCode reports whether a name is one of a code file.
func isCode(path string) bool {
	return isOne(strings.ToLower(filepath.Ext(path)), ".py .pyz .js .mjs .cjs .ts .sh .bash .rb .pl .php .lua .jar .so .wasm")
}

func isOne(word, list string) bool { return slices.Contains(strings.Fields(list), word) }
