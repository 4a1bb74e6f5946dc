// Package workspace is the folders that a source offers: how a path that a caller wrote becomes an open file
// below one of them, and never another.
//
// Nothing is checked by name and then opened by name. A path is opened from the open folder of its root, by the
// kernel (openat2) where no link is met and step by step (os.Root) where one is, and what was opened is checked.
package workspace

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"toolpost/host/offlimits"
	"toolpost/tool"
)

// Options say what is offered. The zero value offers the base folder, read-only.
type Options struct {
	Roots     []RootOptions `yaml:"roots" doc:"folders that are offered; default: the folder of the config, read-only"`
	Sensitive Sensitive     `yaml:"sensitive" doc:"names of files and folders that nobody gets to see"`

	OffLimits *offlimits.Book `yaml:"-"` // what nobody sees or changes; nil: the state beside the config
}

// RootOptions is one folder that is offered.
type RootOptions struct {
	Path      string     `yaml:"path" doc:"the folder; a relative one starts at the folder of the config"`
	Write     bool       `yaml:"write" doc:"whether tools may write below it"`
	Codebase  string     `yaml:"codebase" doc:"its codebase_id; default: the name of the folder"`
	Callers   tool.Globs `yaml:"callers" doc:"who sees it, such as team-*; default: everyone"`
	HardLinks string     `yaml:"hard_links" doc:"refuse or allow files that have a second name, which may be outside; default: refuse"`
}

// A Root is a folder that is offered.
type Root struct {
	Codebase string
	Name     string // as the config has it, for messages
	Dir      string // absolute, links resolved
	Write    bool
	ID       offlimits.ID // which folder it is: another one may take its place
}

// A root is an open folder. Whatever happens to its name, dir and fd stay this folder. Where another folder has taken
// its place, another root takes the place of this one; it is closed when the last file that knows it is gone.
type root struct {
	Root
	dir     *os.Root
	file    *os.File // of fd
	fd      int
	abs     string // where the config says it is
	options RootOptions
	book    *offlimits.Book
}

// A Workspace is the open roots of one source.
type Workspace struct {
	base      string
	book      *offlimits.Book
	mu        sync.RWMutex // guards roots
	roots     []*root
	sensitive *sensitive
	noFast    bool           // open step by step, as where the kernel has no openat2
	changes   [64]sync.Mutex // who changes a file holds the one of its path
	sweeps    sweeps
}

// Open opens every root; relative ones start at base.
func Open(base string, o Options) (*Workspace, error) {
	names, err := newSensitive(o.Sensitive)
	if err != nil {
		return nil, err
	}
	if len(o.Roots) == 0 {
		o.Roots = []RootOptions{{Path: "."}}
	}
	w := &Workspace{base: base, sensitive: names, book: o.OffLimits}
	if w.book == nil {
		w.book = offlimits.NewBook(offlimits.Default(base))
	}
	for _, ro := range o.Roots {
		r, err := openRoot(base, ro, w.book)
		if err != nil {
			w.Close()
			return nil, err
		}
		w.roots = append(w.roots, r)
		if err := w.nameCodebase(r, ro); err != nil {
			w.Close()
			return nil, err
		}
	}
	return w, nil
}

// nameCodebase gives the newest root its codebase: the configured one, else one after its folder.
func (w *Workspace) nameCodebase(r *root, o RootOptions) error {
	taken := func(id string) bool {
		return slices.ContainsFunc(w.roots, func(other *root) bool { return other != r && other.Codebase == id })
	}
	if o.Codebase != "" {
		r.Codebase = o.Codebase
		if taken(o.Codebase) {
			return tool.Errorf(tool.CodeInvalidInput, "root %s: codebase %q is another root's; give it another id",
				r.Name, o.Codebase)
		}
		return nil
	}
	name := cmp.Or(strings.Trim(filepath.Base(r.Dir), "/"), "root")
	r.Codebase = name
	for n := 2; taken(r.Codebase); n++ {
		r.Codebase = name + "-" + strconv.Itoa(n)
	}
	return nil
}

// openRoot opens a root, and follows no link on the way that a tool could have made.
func openRoot(base string, o RootOptions, book *offlimits.Book) (*root, error) {
	name := cmp.Or(o.Path, ".")
	r := &root{Root: Root{Name: name, Write: o.Write}, abs: offlimits.Under(base, name), options: o, book: book}
	if o.HardLinks != "" && o.HardLinks != "allow" && o.HardLinks != "refuse" {
		return nil, tool.Errorf(tool.CodeInvalidInput, "root %s: hard_links is %q; say refuse or allow", name,
			o.HardLinks)
	}
	at, err := offlimits.Open(r.abs, book.Now())
	if err == nil {
		defer at.Close()
		err = r.resolve(at)
	}
	if err != nil {
		return nil, tool.Errorf(tool.CodeUnavailable, "root %s: %w; make the folder or correct the root's path", name,
			offlimits.Plain(err))
	}
	return r, nil
}

// resolve opens the folder that was found, by its descriptor.
func (r *root) resolve(at *offlimits.Anchor) (err error) {
	found := "/proc/self/fd/" + strconv.Itoa(at.Fd()) + "/" // the slash: what is no folder is an error, not a wait
	if r.dir, err = os.OpenRoot(found); err != nil {
		return err
	}
	if r.file, err = os.Open(found); err != nil {
		r.dir.Close()
		return err
	}
	r.fd, r.ID, r.Dir = int(r.file.Fd()), at.ID, at.Path
	return nil
}

// current reports whether the folder at the root's path is the one that is open.
func (r *root) current() bool {
	at, err := offlimits.Open(r.Dir, r.book.Now())
	if err != nil {
		return false
	}
	defer at.Close()
	return at.Path == r.Dir && at.ID == r.ID // with a link on the way it is looked for again
}

func (r *root) close() {
	r.dir.Close()
	r.file.Close()
}

// Close closes the roots. The workspace may not be used afterwards.
func (w *Workspace) Close() error {
	for _, r := range w.now() {
		r.close()
	}
	return nil
}

func (w *Workspace) now() []*root {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.roots
}

// fresh returns the roots, and those that are not there. A folder that was deleted and made again is opened again, by
// the same rules as at first: a link in its place is none.
func (w *Workspace) fresh() (roots []*root, gone []broken) {
	for i, r := range w.now() {
		if !r.current() {
			again, err := openRoot(w.base, r.options, w.book)
			if err != nil {
				gone = append(gone, broken{r, err})
				continue
			}
			again.Codebase = r.Codebase
			r = again
			w.mu.Lock()
			w.roots = slices.Clone(w.roots)
			w.roots[i] = again
			w.mu.Unlock()
		}
		roots = append(roots, r)
	}
	return roots, gone
}

// A broken root is not there, or not to be opened.
type broken struct {
	*root
	err error
}

// Roots lists all roots, in the order of the config.
func (w *Workspace) Roots() []Root { return public(w.now()) }

func public(roots []*root) []Root {
	list := make([]Root, len(roots))
	for i, r := range roots {
		list[i] = r.Root
	}
	return list
}

// A View is what one call sees of a workspace.
type View struct {
	ws    *Workspace
	roots []*root
	gone  []broken
	scope tool.Scope
}

// View returns what a call's caller may see; the call's scope is asked for every file.
func (w *Workspace) View(c *tool.Call) *View {
	v := &View{ws: w, scope: c.Scope}
	v.roots, v.gone = w.fresh()
	v.roots = slices.DeleteFunc(v.roots, func(r *root) bool { return !r.visible(c.Caller.ID) })
	v.gone = slices.DeleteFunc(v.gone, func(b broken) bool { return !b.visible(c.Caller.ID) })
	return v
}

func (r *root) visible(caller string) bool {
	return len(r.options.Callers) == 0 || r.options.Callers.Match(caller)
}

// Roots lists the roots that are visible, in the order of the config.
func (v *View) Roots() []Root { return public(v.roots) }

// Codebase narrows the view to one root. A codebase that does not exist and one that is not visible give the same
// error.
func (v *View) Codebase(id string) (*View, error) {
	for _, r := range v.roots {
		if r.Codebase == id {
			return &View{ws: v.ws, roots: []*root{r}, scope: v.scope}, nil
		}
	}
	for _, b := range v.gone {
		if b.Codebase == id {
			return nil, b.err
		}
	}
	known := join(v.roots, func(r *root) string { return r.Codebase })
	return nil, tool.Errorf(tool.CodeNotFound, "no codebase %q; there are: %s", id, known)
}

func join(roots []*root, name func(*root) string) string {
	names := make([]string, len(roots))
	for i, r := range roots {
		names[i] = name(r)
	}
	return strings.Join(names, ", ")
}
