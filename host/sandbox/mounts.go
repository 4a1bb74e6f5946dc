//go:build linux

package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"toolpost/host/offlimits"
)

// A part is something at a path of the room.
type part struct {
	path   string
	from   string // where it is on the host; empty: at the same path
	kind   partKind
	rights uint64 // that Landlock gives on it
	folder bool
	size   int64 // of a tmpfs
	pinned bool  // it is mounted although it comes with the part around it: what is mounted cannot be moved or removed
}

// runs reports whether programs can be run from it.
func (p part) runs() bool { return p.rights&rightsExec != 0 }

// onHost returns where something in a part is on the host.
func (p part) onHost(path string) string {
	return filepath.Join(cmp.Or(p.from, p.path), strings.TrimPrefix(path, p.path))
}

type partKind int

const (
	partRead   partKind = iota // the host's, read-only
	partWrite                  // the host's
	partDevice                 // a device of the host
	partTmpfs
	partProcOwn
	partProcAll
	partHidden // nothing
)

func (k partKind) isHosts() bool { return k <= partDevice }

// A view is all that there is in a room, and the symbolic links that lead to it.
type view struct {
	parts  []part
	links  map[string]string
	off    *offlimits.List
	more   []string // folders in which no link is followed, beside those of off
	system *view    // what every room has
	image  string   // the folder that has the place of the host's root, without links; empty: none has
	shut   bool     // something that is off limits lies in one of the parts: only mounts can take that out
}

// systemView is what every room has: what programs are made of, and a few devices.
func systemView() (*view, error) {
	v := &view{links: map[string]string{}}
	err := errors.Join(v.addAll(system(), partRead, rightsRead|rightsExec), v.addDevices())
	v.sort()
	return v, err
}

func (v *view) addDevices() error {
	maps.Copy(v.links, map[string]string{
		"/dev/fd": "/proc/self/fd", "/dev/stdin": "/proc/self/fd/0", "/dev/stdout": "/proc/self/fd/1",
		"/dev/stderr": "/proc/self/fd/2",
	})
	devices := []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}
	return v.addAll(devices, partDevice, rightsRead|rightsWrite)
}

// viewOf is what one room has besides: what its profile makes executable, readable and writable, and what its
// program needs; less what is off limits, which may also lie in what every room has.
func viewOf(p Profile, program []string, system *view) (*view, error) {
	v := &view{links: map[string]string{}, off: p.Off, more: p.apart(), system: system}
	err := errors.Join(
		v.addAll(p.Readable, partRead, rightsRead),
		v.addAll(p.Executable, partRead, rightsRead|rightsExec),
		v.addAll(program, partRead, rightsRead|rightsExec),
		v.addAll(p.Writable, partWrite, p.writeRights()))
	if p.Root != "" {
		v.system, v.image = &view{}, p.Root
		err = errors.Join(err, v.addImage(p.Network == NetworkAll), v.addDevices())
	}
	v.sort()
	if err == nil {
		homes := v.homes()
		v.hold()
		err = v.close(p.ReadOnly, homes)
	}
	return v, err
}

// hold pins what the config names in folders that can be written, for this source or for another: a tool that moved it
// away would take it from all of them.
func (v *view) hold() {
	for _, p := range slices.Clone(v.parts) {
		if around := v.around(p.path); p.kind == partWrite && around != nil && around.kind == partWrite {
			v.find(p.path).pinned = true
			v.pin(p.path)
		}
	}
	for _, path := range v.off.Roots() {
		t, err := offlimits.Find(path, v.off, v.more...)
		around := v.around(t.Path)
		if err != nil || t.Missing() || !t.Folder || around == nil || around.kind != partWrite ||
			v.find(t.Path) != nil {
			continue
		}
		v.addPin(t.Path, around)
		v.pin(t.Path)
	}
	v.sort()
}

// apart lists the writable folders in which no link is followed, beside those of the list. A room that may change
// everything can do so without a link.
func (p Profile) apart() []string {
	return slices.DeleteFunc(slices.Clone(p.Writable), func(path string) bool { return filepath.Clean(path) == "/" })
}

// homes lists the folders that programs load code from, but for those that the profile itself names for writing.
func (v *view) homes() (all []string) {
	for _, home := range v.off.Folders() {
		t, err := offlimits.Find(home, v.off, v.more...)
		if p := v.find(t.Path); err != nil || p == nil || p.kind != partWrite {
			all = append(all, home)
		}
	}
	return all
}

// close takes from the view what is off limits, and makes paths read-only that lie in what can be written. Of those,
// one that is gone, or that a tool has put a link into, gives nothing.
func (v *view) close(readOnly, homes []string) error {
	if err := v.cover(partHidden, v.off.Hidden()); err != nil {
		return err
	}
	fixed := slices.Concat(v.off.Fixed(), homes)
	for _, path := range readOnly {
		if a, err := offlimits.Open(path, v.off, v.more...); err == nil {
			a.Close()
			fixed = append(fixed, path)
		}
	}
	return v.cover(partRead, fixed)
}

// cover puts nothing, or what can only be read, where things lie that are off limits. What is in no part is not in
// the room anyway, and what lies in a part that can only be read needs no cover to stay as it is.
func (v *view) cover(kind partKind, paths []string) error {
	for _, path := range paths {
		t, err := offlimits.Find(path, v.off, v.more...)
		if err != nil {
			return fmt.Errorf("%s cannot be kept from a confined child: %w", path, err)
		}
		for _, at := range v.places(t.Path) {
			if err := v.coverAt(at, t, kind); err != nil {
				return err
			}
		}
	}
	return nil
}

// places lists where in the room something of the host may be: where it is there, and where an image puts it.
func (v *view) places(real string) []string {
	if v.image == "" || v.image == "/" || !offlimits.Within(real, v.image) {
		return []string{real}
	}
	return []string{real, filepath.Join("/", strings.TrimPrefix(real, v.image))}
}

func (v *view) coverAt(at string, t offlimits.Thing, kind partKind) error {
	in := cmp.Or(v.find(at), v.around(at), v.system.find(at), v.system.around(at))
	switch {
	case in == nil || !in.kind.isHosts() || in.onHost(at) != t.Path: // the last: another file of an image
		return nil
	case kind == partRead && in.kind == partRead: // it cannot be changed, but what it lies in may be
		if p := v.find(at); p != nil {
			p.pinned = true
		}
		v.pin(at)
		v.sort()
		return nil
	}
	if there, err := t.Make(kind == partHidden); err != nil || !there {
		return err
	}
	v.shut = true
	c := part{path: at, kind: kind, folder: t.Folder, pinned: true}
	if at != t.Path {
		c.from = t.Path
	}
	if kind == partRead {
		c.rights = in.rights &^ rightsWrite
	}
	v.parts = append(slices.DeleteFunc(v.parts, func(p part) bool { return p.path == at }), c)
	v.pin(at)
	v.sort()
	return nil
}

// pin makes mounts of the folders that lead to something: else a child that may write them renames the one above it,
// and puts another in its place.
func (v *view) pin(path string) {
	for dir := filepath.Dir(path); dir != "/"; dir = filepath.Dir(dir) {
		around := v.around(dir)
		if around == nil {
			return
		}
		if p := v.find(dir); p != nil {
			p.pinned = true
		} else if around.kind == partWrite {
			v.addPin(dir, around)
		}
	}
}

func (v *view) addPin(dir string, around *part) {
	v.parts = append(v.parts, part{path: dir, kind: partWrite, rights: around.rights, folder: true, pinned: true})
}

// writeRights are the rights on what is writable.
func (p Profile) writeRights() uint64 {
	if p.WriteOnly {
		return rightsWrite
	}
	return rightsRead | rightsWrite
}

// with returns the view that has the parts of both.
func (v *view) with(o *view) *view {
	both := &view{parts: slices.Concat(v.parts, o.parts), links: o.links}
	both.sort()
	return both
}

func (v *view) addAll(paths []string, kind partKind, rights uint64) error {
	for _, path := range paths {
		if err := v.add(path, kind, rights); err != nil {
			return err
		}
	}
	return nil
}

// kernels are the folders that come from the kernel and not from a disk. A room has its own or none.
func kernels() []string { return []string{"/proc", "/sys", "/dev"} }

// add puts a path of the host into the view, where it really is, and the links on the way to it.
func (v *view) add(path string, kind partKind, rights uint64) error {
	a, err := offlimits.Open(path, v.off, v.more...)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s cannot be given to a confined child: %w; make it, or take it out of the config", path, about(err))
	case err != nil:
		return fmt.Errorf("%s cannot be given to a confined child: %w", path, about(err))
	}
	defer a.Close()
	maps.Copy(v.links, a.Links)
	real := a.Path
	if real == "/" {
		return v.addRoot(kind, rights)
	}
	if kind != partDevice && slices.ContainsFunc(kernels(), func(k string) bool { return offlimits.Within(real, k) }) {
		return fmt.Errorf("%s cannot be given to a confined child: it is the kernel's; a profile says what is seen "+
			"of /proc", path)
	}
	v.parts = append(v.parts, part{path: real, kind: kind, rights: rights, folder: a.Mode.IsDir()})
	return nil
}

// addRoot puts all that lies in the root into the view. The root itself is each room's own.
func (v *view) addRoot(kind partKind, rights uint64) error {
	entries, err := os.ReadDir("/")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if path := "/" + e.Name(); !slices.Contains(kernels(), path) {
			if err := v.add(path, kind, rights); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// addImage puts all that lies in the image into the view, as if that were the root. Links in it are left as they are:
// they lead to where they lead in the room. Of this machine's own root /run is left out, where its programs leave what
// others reach them by; only the addresses of name servers are needed from there, where there is a network.
func (v *view) addImage(network bool) error {
	a, err := offlimits.Open(v.image, v.off, v.more...)
	if err != nil {
		return fmt.Errorf("%s cannot be the root of a confined child: %w", v.image, about(err))
	}
	defer a.Close()
	v.image = a.Path
	entries, err := os.ReadDir(a.Path)
	if err != nil {
		return fmt.Errorf("%s cannot be the root of a confined child: %w", v.image, about(err))
	}
	own := append(kernels(), "/tmp")
	if v.image == "/" {
		own = append(own, "/run")
	}
	for _, e := range entries {
		at, from := "/"+e.Name(), filepath.Join(v.image, e.Name())
		switch {
		case slices.Contains(own, at):
		case e.Type() == fs.ModeSymlink:
			if v.links[at], err = os.Readlink(from); err != nil {
				return err
			}
		default:
			v.parts = append(v.parts, part{
				path: at, from: from, kind: partRead, rights: rightsRead | rightsExec, folder: e.IsDir(),
			})
		}
	}
	if v.image == "/" && network {
		if err := v.add("/etc/resolv.conf", partRead, rightsRead); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// mount puts a new file system into the view. Landlock's rights on it hold for all that lies in it, also for
// what is mounted there.
func (v *view) mount(path string, kind partKind, rights uint64, size int64) {
	v.parts = append(v.parts, part{path: path, kind: kind, rights: rights, folder: true, size: size})
	v.sort()
}

// mountOwn puts the /tmp and the /proc that a profile asks for into the view, where rooms have mounts of their own.
func (v *view) mountOwn(m *machine, p Profile) {
	if m.Mounts && p.Tmp > 0 {
		v.mount("/tmp", partTmpfs, p.writeRights(), p.Tmp)
		for _, path := range p.Scratch {
			v.mountScratch(path, p)
		}
	}
	if kind := map[Proc]partKind{ProcOwn: partProcOwn, ProcAll: partProcAll}[p.Proc]; m.Proc && kind != 0 {
		v.mount("/proc", kind, rightsRead, 0)
	}
}

// mountScratch puts an empty folder into the view, where it really is, and the links on the way to it.
func (v *view) mountScratch(path string, p Profile) {
	a, err := offlimits.Open(path, v.off, v.more...)
	if err != nil {
		return
	}
	defer a.Close()
	within := func(o string) bool { return offlimits.Within(a.Path, o) }
	if a.Path == "/" || !a.Mode.IsDir() || slices.ContainsFunc(kernels(), within) || v.find(a.Path) != nil ||
		v.inTree(a.Path) || v.system.find(a.Path) != nil || v.system.inTree(a.Path) {
		return
	}
	maps.Copy(v.links, a.Links)
	v.mount(a.Path, partTmpfs, p.writeRights(), p.Tmp)
}

// sort orders the parts from the outside in. Of several at one path the one with more rights stays, and has
// the rights of all; but what is given goes before what an image has there, and takes nothing from it.
func (v *view) sort() {
	slices.SortStableFunc(v.parts, func(a, b part) int {
		return cmp.Or(strings.Compare(a.path, b.path), cmp.Compare(b.kind, a.kind))
	})
	merged := v.parts[:0]
	for _, p := range v.parts {
		if n := len(merged); n > 0 && merged[n-1].path == p.path {
			if merged[n-1].from == p.from {
				merged[n-1].rights |= p.rights
				merged[n-1].pinned = merged[n-1].pinned || p.pinned
			}
			continue
		}
		merged = append(merged, p)
	}
	v.parts = merged
}

// about is an error about a path that the message has already.
func about(err error) error {
	if link, ok := errors.AsType[*offlimits.LinkError](err); ok {
		return link
	}
	return offlimits.Plain(err)
}

// around returns the part that a path lies in, the nearest one, and not the path itself.
func (v *view) around(path string) *part {
	var best *part
	for i, p := range v.parts {
		if offlimits.Within(path, p.path) && path != p.path && (best == nil || len(p.path) > len(best.path)) {
			best = &v.parts[i]
		}
	}
	return best
}

// find returns the part at a path; nil: there is none.
func (v *view) find(path string) *part {
	if i := slices.IndexFunc(v.parts, func(p part) bool { return p.path == path }); i >= 0 {
		return &v.parts[i]
	}
	return nil
}

// inHosts reports whether a path lies in a part that comes from the host.
func (v *view) inHosts(path string) bool {
	outer := v.around(path)
	return outer != nil && outer.kind.isHosts()
}

// inTree reports whether a part that comes from the host lies somewhere above a path: others may change then what is on
// the way to it, while the room is built.
func (v *view) inTree(path string) bool {
	return slices.ContainsFunc(v.parts, func(p part) bool {
		return p.kind.isHosts() && p.path != path && offlimits.Within(path, p.path)
	})
}

// grants are the rules of Landlock for a view. One on a folder holds for all that is in it, so that no other is needed
// there that gives no more; and there are none on what a child could have moved.
func (v *view) grants() []grant {
	var grants []grant
	for _, p := range v.parts {
		if around := v.around(p.path); p.rights != 0 && (around == nil || p.rights&^around.rights != 0) {
			grants = append(grants, grant{p.path, p.rights, p.folder})
		}
	}
	return grants
}

// foundation begins a room: a file system of its own at base, with the parts of a view. What the host mounts
// later is seen, where it lets that be.
func (s *script) foundation(v *view, base string) {
	s.in(LayerMounts)
	s.call("keep ours to ourselves", unix.SYS_MOUNT, 0, "/", 0, unix.MS_REC|unix.MS_SLAVE, 0)
	trees := s.trees(v, v)
	s.mountRoot(base)
	b := newBuilder(s, v, base)
	b.put(v, trees)
	b.folder("/tmp")
}

// mountRoot mounts the empty file system that a room begins with.
func (s *script) mountRoot(base string) {
	s.mountFS("tmpfs", base, unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=256k,nr_inodes=4096")
}

// complete adds the parts of a view to the room, and enters it. What is in none of its parts is then not there: no path
// leads to it. All is the view with what the foundation has. A view with an image has nothing of that: it begins anew,
// on top of it, and what is below goes with the host's root.
func (s *script) complete(v, all *view, base, dir string) {
	s.in(LayerMounts)
	trees := s.trees(v, all)
	b := newBuilder(s, all, base)
	if v.image != "" {
		s.mountRoot(base)
		b.folder("/tmp")
	}
	b.root = s.newReg()
	s.call("the room", unix.SYS_OPENAT, cwd, base, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0).into(b.root)
	b.put(v, trees)
	b.folder(dir)
	b.closeHidden(v)
	s.call("enter", unix.SYS_CHDIR, base)
	s.call("pivot", unix.SYS_PIVOT_ROOT, ".", ".")
	s.call("let the old ones go", unix.SYS_UMOUNT2, ".", unix.MNT_DETACH)
	s.setAttr("/", cwd, "/", 0, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
}

// trees opens what comes from the host, before anything is covered. What lies in a part of the same kind
// comes with that one.
func (s *script) trees(v, all *view) map[string]register {
	trees := map[string]register{}
	at := s.newReg()
	for _, p := range v.parts {
		p.rights = all.find(p.path).rights // of both, where the system has it too
		outer := all.around(p.path)
		from := p.onHost(p.path)
		inOuter := outer != nil && outer.kind == p.kind && outer.runs() == p.runs() && outer.onHost(p.path) == from
		if !p.kind.isHosts() || inOuter && !p.pinned {
			continue
		}
		fd := s.newReg()
		s.openDirect(from, cwd, from, noLinks).into(at)
		const clone = unix.AT_EMPTY_PATH | unix.AT_RECURSIVE | unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC
		s.call(p.path, unix.SYS_OPEN_TREE, at, "", clone).into(fd)
		s.call(p.path, unix.SYS_CLOSE, at)
		attr := uint64(unix.MOUNT_ATTR_NOSUID)
		if p.kind != partDevice {
			attr |= unix.MOUNT_ATTR_NODEV
		}
		if p.kind != partWrite { // a device can be written to all the same, but not be given another mode
			attr |= unix.MOUNT_ATTR_RDONLY
		}
		if !p.runs() {
			attr |= unix.MOUNT_ATTR_NOEXEC
		}
		s.setAttr(p.path, fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, attr)
		trees[p.path] = fd
	}
	return trees
}

// openDirect opens what is at a path without links, to be pointed at.
func (s *script) openDirect(what string, dir any, path string, resolve uint64) *op {
	how := s.words(unix.O_PATH|unix.O_CLOEXEC, 0, resolve)
	return s.call(what, unix.SYS_OPENAT2, dir, path, how, unix.SizeofOpenHow)
}

func (s *script) setAttr(what string, fd any, path string, flags uint64, attr uint64) {
	s.call(what, unix.SYS_MOUNT_SETATTR, fd, path, flags, s.words(attr, 0, 0, 0), unix.MOUNT_ATTR_SIZE_VER0)
}

func (s *script) mountFS(kind, path string, flags uint64, options string) {
	s.call(kind+" on "+path, unix.SYS_MOUNT, kind, path, kind, flags, options)
}

// A builder puts parts into a new root at base.
type builder struct {
	*script
	view *view
	base string
	root register // the open base; 0: all that is made is our own
	spot register // what is open for a moment
	made map[string]bool
}

// folder makes a folder and those above it, as far as they do not come with a part of the host.
func (b *builder) folder(path string) {
	if b.made[path] || b.view.inHosts(path) {
		return
	}
	b.made[path] = true
	b.folder(filepath.Dir(path))
	b.make(path, path, unix.SYS_MKDIRAT, 0o755)
}

// make makes a folder or a file in the room, unless it is there. What lies in a tree of the host is named from its open
// folder: its names may be others by then.
func (b *builder) make(what, path string, nr uintptr, mode int) {
	if b.root == 0 || !b.view.inTree(path) {
		b.call(what, nr, cwd, b.base+path, mode, 0).loose()
		return
	}
	dir := b.open(filepath.Dir(path))
	b.call(what, nr, dir, filepath.Base(path), mode, 0).loose()
	b.call(path, unix.SYS_CLOSE, dir)
}

// open opens a place of the room.
func (b *builder) open(path string) register {
	if b.root == 0 {
		b.openDirect(path, cwd, b.base+path, noLinks).into(b.spot)
	} else {
		b.openDirect(path, b.root, "."+path, noLinks|unix.RESOLVE_BENEATH).into(b.spot)
	}
	return b.spot
}

func newBuilder(s *script, v *view, base string) *builder {
	return &builder{script: s, view: v, base: base, spot: s.newReg(), made: map[string]bool{"/": true}}
}

// put puts the parts of a view into the room, from the outside in, then the links.
func (b *builder) put(v *view, trees map[string]register) {
	for _, p := range v.parts {
		tree, ok := trees[p.path]
		if p.kind.isHosts() && !ok {
			continue
		}
		b.place(p)
		b.fill(p, tree)
	}
	for path, target := range v.links {
		if !b.view.inTree(path) {
			b.folder(filepath.Dir(path))
			b.call(path, unix.SYS_SYMLINKAT, target, cwd, b.base+path).loose()
		}
	}
}

// place makes what a part is mounted on, unless it is there already.
func (b *builder) place(p part) {
	switch {
	case b.view.inHosts(p.path):
	case p.folder:
		b.folder(p.path)
	default:
		b.folder(filepath.Dir(p.path))
		b.make(p.path, p.path, unix.SYS_MKNODAT, unix.S_IFREG|0o644)
	}
}

// quiet are the flags of a file system with nothing in it that could do anything.
const quiet = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC

func (b *builder) fill(p part, tree register) {
	at := b.base + p.path
	switch p.kind {
	case partTmpfs:
		b.mountFS("tmpfs", at, quiet, fmt.Sprintf("mode=1777,size=%d", p.size))
	case partProcOwn:
		b.mountFS("proc", at, quiet|unix.MS_RDONLY, "subset=pid")
	case partProcAll:
		b.mountFS("proc", at, quiet|unix.MS_RDONLY, "")
	case partHidden:
		b.hide(p)
	default:
		b.mount(p.path, tree)
	}
}

// mount puts a tree in its place, and lets go of it.
func (b *builder) mount(path string, tree register) {
	to := b.open(path)
	const byDescriptors = unix.MOVE_MOUNT_F_EMPTY_PATH | unix.MOVE_MOUNT_T_EMPTY_PATH
	b.call(path, unix.SYS_MOVE_MOUNT, tree, "", to, "", byDescriptors)
	b.call(path, unix.SYS_CLOSE, to)
	b.call(path, unix.SYS_CLOSE, tree)
}

// empty is an empty file of the room, for as long as it takes to mount it.
const empty = "/.empty"

// hide covers a part with nothing: a folder with an empty one, a file with an empty one. A device such as /dev/null
// would take what is written to it, and is the host's.
func (b *builder) hide(p part) {
	if !p.folder {
		b.make(p.path, empty, unix.SYS_MKNODAT, unix.S_IFREG|0o444)
		nothing := b.newReg()
		b.call(p.path, unix.SYS_OPEN_TREE, b.open(empty), "",
			unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC).into(nothing)
		b.call(p.path, unix.SYS_CLOSE, b.spot)
		const attr = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC
		b.setAttr(p.path, nothing, "", unix.AT_EMPTY_PATH, attr)
		b.mount(p.path, nothing)
		b.call(p.path, unix.SYS_UNLINKAT, cwd, b.base+empty, 0) // the mount keeps it
		return
	}
	at := b.open(p.path)
	b.call(p.path, unix.SYS_FCHDIR, at) // a name would be looked up once more
	b.call(p.path, unix.SYS_CLOSE, at)
	b.call("nothing on "+p.path, unix.SYS_MOUNT, "tmpfs", ".", "tmpfs", quiet, "mode=0555,size=64k,nr_inodes=128")
}

// closeHidden makes the covers of folders read-only, once all that lies in them is there.
func (b *builder) closeHidden(v *view) {
	for _, p := range v.parts {
		if p.kind == partHidden && p.folder {
			at := b.open(p.path)
			b.setAttr(p.path, at, "", unix.AT_EMPTY_PATH, unix.MOUNT_ATTR_RDONLY)
			b.call(p.path, unix.SYS_CLOSE, at)
		}
	}
}
