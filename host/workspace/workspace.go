// Package workspace implements the folders that a source offers. It turns a path from a caller into an open file below
// one of these folders, and never into any other file.
//
// Nothing is checked by name and then opened by name. A path is opened from the open folder of its root: by the kernel
// (openat2) if it has no links, step by step (os.Root) otherwise. The file that was opened is then checked.
package workspace

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"toolpost/config/offlimits"
	"toolpost/kernel"
	"toolpost/tool"
)

// Options configure the offered folders. The zero value offers the base folder, read-only.
type Options struct {
	Roots     []RootOptions `yaml:"roots" doc:"folders to offer; default: the config's folder, read-only"`
	Sensitive Sensitive     `yaml:"sensitive" doc:"names of files and folders to hide"`

	OffLimits *offlimits.Checker `yaml:"-"` // what no caller may see or change; nil means the state beside the config
}

// RootOptions configures one offered folder.
type RootOptions struct {
	Path      string     `yaml:"path" kind:"path" doc:"the folder, relative to the config"`
	Write     bool       `yaml:"write" doc:"whether tools may write below it"`
	Codebase  string     `yaml:"codebase" doc:"its codebase_id; default: the folder's name"`
	Callers   tool.Globs `yaml:"callers" doc:"who can see it, such as team-*; default: everyone"`
	HardLinks string     `yaml:"hard_links" schema:"enum=refuse|allow default=refuse" doc:"what to do with files that have a second name, which may be outside of the root"`
}

// A Root is an offered folder.
type Root struct {
	Codebase string
	Name     string // as in the config, for messages
	Dir      string // absolute, links resolved
	Write    bool
	ID       offlimits.ID // identifies the folder: another may take its place
}

// A root is an open folder. Whatever happens to its name, dir and fd stay this folder. If another folder has taken its
// place, a new root replaces this one, which is closed when the last file that refers to it is gone. A root that was
// missing from the start has no dir and no file, and its ID matches no folder.
type root struct {
	Root
	dir     *os.Root
	file    *os.File // of fd
	fd      int
	abs     string // its path according to the config
	options RootOptions
	checker *offlimits.Checker
}

// A Workspace is the open roots of one source.
type Workspace struct {
	base      string
	checker   *offlimits.Checker
	mu        sync.RWMutex // guards roots
	roots     []*root
	sensitive *sensitive
	noFast    bool           // open step by step, as if the kernel had no openat2
	changes   [64]sync.Mutex // the change of a file holds the lock of its path
	sweeps    sweeps
}

// Open opens every root; relative ones start at base. A missing root is left out until it appears, unless it is the last
// one.
func Open(base string, o Options) (*Workspace, error) {
	names, err := newSensitive(o.Sensitive)
	if err != nil {
		return nil, err
	}
	if len(o.Roots) == 0 {
		o.Roots = []RootOptions{{Path: "."}}
	}
	w := &Workspace{base: base, sensitive: names, checker: o.OffLimits}
	if w.checker == nil {
		w.checker = offlimits.NewChecker(offlimits.Default(base))
	}
	for _, ro := range o.Roots {
		r, err := openRoot(base, ro, w.checker)
		if r != nil {
			w.roots = append(w.roots, r)
			err = errors.Join(w.nameCodebase(r, ro), w.checkCallers())
		}
		if err != nil {
			w.Close()
			return nil, err
		}
	}
	if roots, gone := w.fresh(); len(roots) == 0 {
		w.Close()
		return nil, gone[0].err
	}
	return w, nil
}

// Lacks returns an error that names the missing roots and the reasons, or nil if there are none.
func (w *Workspace) Lacks() (err error) {
	_, gone := w.fresh()
	for _, b := range gone {
		err = errors.Join(err, b.err)
	}
	return err
}

// Exposed reports whether tools, of this source or another, may change the folder of a path.
func (w *Workspace) Exposed(path string) bool { return w.checker.Now().Exposed(path) }

// nameCodebase sets the codebase of the newest root: the configured one, or one named after its folder.
func (w *Workspace) nameCodebase(r *root, o RootOptions) error {
	taken := func(id string) bool {
		return slices.ContainsFunc(w.roots, func(other *root) bool { return other != r && other.Codebase == id })
	}
	name := cmp.Or(o.Codebase, strings.Trim(filepath.Base(r.Dir), "/"), "root")
	r.Codebase = name
	for n := 2; taken(r.Codebase); n++ {
		if o.Codebase != "" {
			return tool.Errorf(tool.CodeInvalidInput, "root %s: codebase %q is another root's; give it another id",
				r.Name, o.Codebase)
		}
		r.Codebase = name + "-" + strconv.Itoa(n)
	}
	return nil
}

// checkCallers returns an error if a root is only for some callers, but others see it through a root that contains it. A
// root that lets its callers write what others only read is fine.
func (w *Workspace) checkCallers() error {
	for _, inner := range w.roots {
		for _, outer := range w.roots {
			c, more := inner.options.Callers, inner.Write && !outer.Write
			if len(c) > 0 && !more && outer != inner && offlimits.Within(inner.Dir, outer.Dir) &&
				!slices.Equal(c, outer.options.Callers) {
				return tool.Errorf(tool.CodeInvalidInput, "root %s: it has callers of its own, but root %s contains it and "+
					"shows it to others; give both the same callers, or move one out of the other", inner.Name, outer.Name)
			}
		}
	}
	return nil
}

// openRoot opens a root without following links that a tool could have made. A missing root is returned, too.
func openRoot(base string, o RootOptions, checker *offlimits.Checker) (*root, error) {
	name := cmp.Or(o.Path, ".")
	r := &root{Root: Root{Name: name, Write: o.Write}, abs: offlimits.Under(base, name), options: o, checker: checker}
	r.Dir = r.abs
	if o.HardLinks != "" && o.HardLinks != "allow" && o.HardLinks != "refuse" {
		return nil, tool.Errorf(tool.CodeInvalidInput, "root %s: hard_links is %q; say refuse or allow", name,
			o.HardLinks)
	}
	at, err := offlimits.Open(r.abs, checker.Now())
	if err == nil {
		defer at.Close()
		err = r.resolve(at)
	}
	if err != nil {
		return r, tool.Errorf(tool.CodeUnavailable, "root %s: %w; make the folder or correct the root's path", name,
			tool.WithoutPath(err))
	}
	return r, nil
}

// resolve opens the folder that was found, by its descriptor.
func (r *root) resolve(at *offlimits.Anchor) (err error) {
	found, err := kernel.Again(at.Fd())
	if err != nil {
		return err
	}
	found += "/" // anything but a folder is then an error, not a wait
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

// current reports whether the folder at the root's path is the open one. A path with links, such as one to the current
// release, may lead elsewhere by now.
func (r *root) current() bool {
	return offlimits.Is(r.Dir, r.ID) && (r.abs == r.Dir || offlimits.LeadsTo(r.abs, r.ID))
}

func (r *root) close() {
	if r.dir == nil {
		return
	}
	r.dir.Close()
	r.file.Close()
}

// Close closes the roots. The workspace must not be used afterwards.
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

// fresh returns the roots, and the missing ones. A folder that was deleted and recreated is opened again, by the same
// rules as before: a link in its place does not count.
func (w *Workspace) fresh() (roots []*root, gone []broken) {
	all := w.now()
	if !slices.ContainsFunc(all, func(r *root) bool { return !r.current() }) {
		return all, nil
	}
	for i, r := range all {
		if !r.current() {
			again, err := openRoot(w.base, r.options, w.checker)
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

// A broken root is missing, or must not be opened.
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

// A View is the part of a workspace that one call sees.
type View struct {
	ws    *Workspace
	roots []*root
	gone  []broken
	scope tool.Scope
	since time.Time         // when it was made, if it is kept
	meant map[string]string // resolves paths that start at a codebase, see Follow
}

// View returns what a call's caller may see; the call's scope is checked for every file. A call sees the same view when
// it runs as when policy judged it a moment before.
func (w *Workspace) View(c *tool.Call) *View {
	if c.Memo != nil {
		if v, ok := c.Memo.View.(*View); ok && v.ws == w && time.Since(v.since) < moment {
			seen := *v
			seen.scope = c.Scope // policy has decided by now
			return &seen
		}
	}
	v := w.look(c)
	if c.Memo != nil {
		v.since, c.Memo.View = time.Now(), v
	}
	return v
}

// moment is how long a call may reuse its view: a call that has waited longer gets a new one.
const moment = 100 * time.Millisecond

// look makes a view.
func (w *Workspace) look(c *tool.Call) *View {
	v := &View{ws: w, scope: c.Scope}
	v.roots, v.gone = w.fresh()
	hidden := func(r *root) bool { return !r.visible(c.Caller.ID) }
	if slices.ContainsFunc(v.roots, hidden) {
		v.roots = slices.DeleteFunc(slices.Clone(v.roots), hidden) // those of the workspace stay
	}
	v.gone = slices.DeleteFunc(v.gone, func(b broken) bool { return hidden(b.root) })
	return v
}

func (r *root) visible(caller string) bool {
	return len(r.options.Callers) == 0 || r.options.Callers.Match(caller)
}

// Roots lists the visible roots, in the order of the config.
func (v *View) Roots() []Root { return public(v.roots) }

// Codebase narrows the view to one root; an empty id leaves it unchanged. The error is the same for a codebase that does
// not exist and one that is not visible.
func (v *View) Codebase(id string) (*View, error) {
	if id == "" {
		return v, nil
	}
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

// MaxPath is the maximum length of a path in bytes: Linux's own limit.
const MaxPath = 4096

// A Place is a path within a root, determined by the text of the path alone. It may not exist, and a link may lead
// elsewhere.
type Place struct {
	*root
	Rel   string // below the root, clean; "." is the root itself
	Shown string // as the caller wrote it
}

// Abs returns the absolute path.
func (p Place) Abs() string { return filepath.Join(p.Dir, p.Rel) }

// LocateAll returns every place at which a path may be: for a relative path one in each root, in the order of the config.
// It does not access the disk.
func (v *View) LocateAll(path string) ([]Place, error) {
	if err := checkPath(path); err != nil {
		return nil, err
	}
	clean := filepath.Clean(cmp.Or(v.meant[path], path))
	found := make([]Place, 0, len(v.roots))
	for _, r := range v.roots {
		if rel, ok := r.locate(clean); ok {
			found = append(found, Place{r, rel, path})
		}
	}
	if len(found) == 0 {
		for _, b := range v.gone {
			if _, ok := b.locate(clean); ok {
				return nil, b.err
			}
		}
		return nil, denied(path, "it is outside the offered folders ("+v.names()+")")
	}
	return found, nil
}

// AtCodebase returns the meaning of a path that starts with a slash and is below no root: the contract and our answers
// write the folder lib of a codebase as /lib. Denied is the error for the caller if no codebase has the path. It uses the
// text of the path alone: policy judges this path whether or not it exists, so that a caller does not learn the contents
// of a closed folder. Other paths are returned unchanged.
func (v *View) AtCodebase(path string) (means string, denied error) {
	_, err := v.LocateAll(path)
	if !filepath.IsAbs(path) || tool.CodeOf(err) != tool.CodeAccessDenied {
		return path, nil
	}
	return "." + filepath.Clean(path), err
}

// Meant is AtCodebase for a path that is used. It is denied unless a codebase has it, or the folder that it begins with:
// a caller that asks for /etc/passwd means that very file. Makes allows a new file in the codebase itself.
func (v *View) Meant(path string, makes bool) (means string, denied error) {
	means, denied = v.AtCodebase(path)
	if denied == nil || means == "./" {
		return path, nil
	}
	top, _, deeper := strings.Cut(means[2:], "/")
	if !deeper {
		if _, err := v.Stat(means); err == nil || makes && tool.CodeOf(err) == tool.CodeNotFound {
			denied = nil
		}
	} else if dir, err := v.OpenDir(top); err == nil { // a link to a folder will do
		denied = dir.Close()
	}
	return means, denied
}

// Ambiguous reports whether the first root has a folder whose path, by its text, is that of another root or of the root
// itself: /x/a does not mean the file x/a of that root if there is a root /x.
func (v *View) Ambiguous() bool {
	one := &View{ws: v.ws, roots: v.roots[:1]}
	return slices.ContainsFunc(v.roots, func(r *root) bool {
		return slices.ContainsFunc([]string{r.abs, r.Dir}, func(dir string) bool {
			_, err := one.Stat("." + dir)
			return tool.CodeOf(err) != tool.CodeNotFound
		})
	})
}

// Follow allows a path that starts at a codebase to be used as the caller wrote it.
func (v *View) Follow(path string, makes bool) {
	if means, denied := v.Meant(path, makes); denied == nil && means != path {
		if v.meant == nil {
			v.meant = map[string]string{}
		}
		v.meant[path] = means
	}
}

// Here returns the absolute path that a call resolves to, for its record, and the other candidates: policy judges those
// too.
func (v *View) Here(path string, write bool) (here string, others []string, err error) {
	places, err := v.LocateAll(path)
	if err != nil {
		return "", nil, err
	}
	at := places[0]
	if len(places) == 1 {
		return at.Abs(), nil, nil
	}
	if s, err := v.existing(path, false); err == nil {
		at = s.Place
		s.close()
	} else if p, err := v.target(path); write && err == nil {
		at = p
	}
	for _, p := range places {
		if p.root != at.root {
			others = append(others, p.Abs())
		}
	}
	return at.Abs(), others, nil
}

// first returns the result of try in the first root that has the path.
func first[T any](v *View, path string, try func(Place) (*T, error)) (*T, error) {
	places, err := v.LocateAll(path)
	if err != nil {
		return nil, err
	}
	for _, p := range places {
		found, err := try(p)
		if err == nil {
			return found, nil
		}
		if tool.CodeOf(err) != tool.CodeNotFound {
			return nil, err
		}
	}
	return nil, tool.Errorf(tool.CodeNotFound, "%s: no such file in the offered folders (%s)", path, v.names())
}

// locate returns a clean path relative to the root: a relative one unchanged, an absolute one if its text is below the
// root.
func (r *root) locate(path string) (rel string, ok bool) {
	if !filepath.IsAbs(path) {
		return path, filepath.IsLocal(path)
	}
	if rel, ok = below(r.abs, path); !ok {
		rel, ok = below(r.Dir, path)
	}
	return rel, ok
}

// ForPrograms returns an error if a started program may not have a file, by its real path. The program's sandbox enforces
// this; the error explains it.
func (v *View) ForPrograms(shown, real string, write bool) error {
	switch ban := v.ws.checker.At(real); {
	case ban != offlimits.Free && (ban != offlimits.Fixed || write):
		return offLimitsError(shown, ban)
	case write:
		return v.checkCodeFolder(shown, real)
	}
	return nil
}

// checkCodeFolder refuses to change a file beside a program of another source, unless the config offers that very
// folder.
func (v *View) checkCodeFolder(shown, real string) error {
	var named []string
	for _, r := range v.roots {
		if r.Write {
			named = append(named, r.Dir)
		}
	}
	if source := v.ws.checker.LoadedBy(real, named...); source != "" {
		return denied(shown, fmt.Sprintf("a program of source %q loads code from that folder; write elsewhere, or offer the "+
			"folder itself: `roots: [{path: FOLDER, write: true}]`, if %[1]q has no secrets and no network", source)).Because("off_limits")
	}
	return nil
}

// below returns the part of a clean absolute path after a folder.
func below(dir, path string) (rel string, ok bool) {
	if path == dir {
		return ".", true
	}
	return strings.CutPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

func (v *View) names() string {
	return join(v.roots, func(r *root) string { return r.Name })
}

func checkPath(path string) error {
	switch {
	case path == "":
		return tool.Errorf(tool.CodeInvalidInput, "path is empty; name a file or a folder")
	case len(path) > MaxPath:
		return tool.Errorf(tool.CodeInvalidInput, "path has %d bytes; at most %d make sense", len(path), MaxPath)
	case !utf8.ValidString(path) || strings.ContainsFunc(path, unicode.IsControl):
		return tool.Errorf(tool.CodeInvalidInput, "path %q contains a control character or is not UTF-8", path)
	}
	return nil
}

// explain turns the error of a system call into ours, with the path as the caller wrote it.
func explain(shown string, err error) error {
	errno, ok := errors.AsType[unix.Errno](err)
	switch {
	case !ok:
		return denied(shown, "it leads outside the offered folders") // os.Root's own refusal carries no errno
	case errors.Is(err, fs.ErrNotExist), errno == unix.ENOTDIR:
		return tool.Errorf(tool.CodeNotFound, "%s: no such file", shown)
	case errors.Is(err, fs.ErrPermission), errno == unix.EROFS:
		return denied(shown, "the operating system forbids it: "+errno.Error())
	case errno == unix.ENXIO, errno == unix.ENODEV:
		return notRegular(shown)
	case errno == unix.ENAMETOOLONG:
		return tool.Errorf(tool.CodeInvalidInput, "%s: the name is too long", shown)
	case errno == unix.ELOOP:
		return tool.Errorf(tool.CodeInvalidInput, "%s: too many symbolic links", shown)
	case errno == unix.EINVAL: // a name that the file system does not accept
		return tool.Errorf(tool.CodeInvalidInput, "%s: the file system does not take this name", shown)
	case errno == unix.ENOSPC, errno == unix.EDQUOT:
		return tool.Errorf(tool.CodeUnavailable, "%s: the disk below this folder is full: %w; make room there, and try again",
			shown, errno).Because("disk_full")
	case errno == unix.EEXIST, errno == unix.ENOTEMPTY:
		return tool.Errorf(tool.CodeConflict, "%s: %w", shown, errno)
	}
	return tool.Errorf(tool.CodeInternal, "%s: %w", shown, errno)
}

func denied(shown, why string) *tool.Error {
	return tool.Errorf(tool.CodeAccessDenied, "%s is not allowed: %s", shown, why)
}

func offLimitsError(shown string, ban offlimits.Ban) *tool.Error {
	why := "it is what the config runs, so no tool may change it; change it by hand"
	switch ban {
	case offlimits.Secret:
		why = "it is this installation's own: its state, its store, a key or a secret"
	case offlimits.Config:
		why = "it is the config of this installation; change it by hand"
	}
	return denied(shown, why).Because("off_limits")
}

func deniedSensitive(shown string) *tool.Error {
	return denied(shown, "files with such names hold secrets").Because("sensitive")
}

func notRegular(shown string) *tool.Error {
	return tool.Errorf(tool.CodeInvalidInput, "%s is not a regular file but a device, pipe or socket", shown)
}
