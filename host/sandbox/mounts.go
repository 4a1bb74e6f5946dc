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

	"toolpost/config/offlimits"
	"toolpost/tool"
)

// A part is something at a path of the room.
type part struct {
	path   string
	from   string // its place on the host; empty if it is the same path
	kind   partKind
	rights uint64 // the Landlock rights on it
	folder bool
	size   int64 // of a tmpfs
	pinned bool  // mounted although the part around it includes it: a mount cannot be moved or removed
}

// runs reports whether programs can be run from it.
func (p part) runs() bool { return p.rights&rightsExec != 0 }

// onHost returns the path on the host of something in a part.
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

// A view is everything that a room contains, and the symbolic links that lead to it.
type view struct {
	parts  []part
	links  map[string]string
	off    *offlimits.List
	more   []string // folders in which no link is followed, besides those of off
	system *view    // the contents of every room
	image  string   // the folder that replaces the host's root, without links; empty if there is none
	shut   bool     // something off limits lies in one of the parts: only mounts can remove it
}

// systemView returns the contents of every room: the system files that programs need, and a few devices.
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

// viewOf returns what one room has besides: what its profile makes executable, readable and writable, and what its
// program needs, without anything off limits, which may also lie in the system's part.
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
		err = v.close(p, homes)
	}
	return v, err
}

// hold pins the paths that the config names in writable folders, for this source or for another: a tool that moved one
// away would take it from all of them.
func (v *view) hold() {
	for _, p := range slices.Clone(v.parts) {
		if around := v.around(p.path); p.kind == partWrite && around != nil && around.kind == partWrite {
			v.find(p.path).pinned = true
			v.pin(p.path)
		}
	}
	for _, path := range v.off.Held() {
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

// apart lists the writable folders in which no link is followed, besides those of the list. A room that may change
// everything can do so without a link.
func (p Profile) apart() []string {
	return slices.DeleteFunc(slices.Clone(p.Writable), func(path string) bool { return filepath.Clean(path) == "/" })
}

// homes lists the folders that programs load code from, except those that the profile itself names as writable.
func (v *view) homes() (all []string) {
	for _, home := range v.off.Folders() {
		t, err := offlimits.Find(home, v.off, v.more...)
		if p := v.find(t.Path); err != nil || p == nil || p.kind != partWrite {
			all = append(all, home)
		}
	}
	return all
}

// close removes what is off limits or hidden from the view, and makes what the profile fixes, and homes, read-only if they
// lie in writable parts.
func (v *view) close(p Profile, homes []string) error {
	if err := v.cover(partHidden, slices.Concat(v.off.Hidden(), v.there(p.Hidden))); err != nil {
		return err
	}
	return v.cover(partRead, slices.Concat(v.off.Fixed(), homes, v.there(p.ReadOnly)))
}

// there returns the paths that exist, without those into which a tool has put a link.
func (v *view) there(paths []string) []string {
	return slices.DeleteFunc(slices.Clone(paths), func(path string) bool {
		a, err := offlimits.Open(path, v.off, v.more...)
		if err == nil {
			a.Close()
		}
		return err != nil
	})
}

// cover hides, or makes read-only, the things at paths that are off limits. A path in no part is not in the room anyway,
// and a path in a read-only part needs no cover to stay unchanged.
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

// places lists the paths in the room at which a file of the host may appear: its own, and the one that an image gives it.
func (v *view) places(real string) []string {
	if v.image == "" || v.image == "/" || !offlimits.Within(real, v.image) {
		return []string{real}
	}
	return []string{real, filepath.Join("/", strings.TrimPrefix(real, v.image))}
}

func (v *view) coverAt(at string, t offlimits.Thing, kind partKind) error {
	in := cmp.Or(v.find(at), v.around(at), v.system.find(at), v.system.around(at))
	switch {
	case in == nil || !in.kind.isHosts() || in.onHost(at) != t.Path: // the last condition: another file of an image
		return nil
	case kind == partRead && in.kind == partRead: // it cannot be changed, but its parent may be
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

// pin turns the folders that lead to a path into mounts: otherwise a child that may write them could rename one of them,
// and put another in its place.
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

// writeRights returns the rights on writable paths.
func (p Profile) writeRights() uint64 {
	if p.WriteOnly {
		return rightsWrite
	}
	return rightsRead | rightsWrite
}

// with returns a view with the parts of both.
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

// kernels lists the folders that come from the kernel and not from a disk. A room has its own or none.
func kernels() []string { return []string{"/proc", "/sys", "/dev"} }

// add adds a path of the host to the view, at its real place, with the links on the way to it.
func (v *view) add(path string, kind partKind, rights uint64) error {
	a, err := offlimits.Open(path, v.off, v.more...)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("the walls name %s, which does not exist; make it, or take it out of the config", path)
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

// addRoot adds everything in the root to the view. The root itself is each room's own.
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

// addImage adds everything in the image to the view, as if the image were the root. Links in it stay as they are: they
// are resolved in the room. Of this machine's own root, /run is left out, since it holds the sockets of its programs; a
// room with a network needs only the addresses of name servers from there.
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

// mount adds a new file system to the view. Landlock's rights on it hold for everything in it, including what is mounted
// there.
func (v *view) mount(path string, kind partKind, rights uint64, size int64) {
	v.parts = append(v.parts, part{path: path, kind: kind, rights: rights, folder: true, size: size})
	v.sort()
}

// mountOwn adds the /tmp and the /proc of a profile to the view, if rooms have mounts of their own.
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

// mountScratch adds an empty folder to the view, at its real place, with the links on the way to it.
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

// sort orders the parts from the outside in. Of several parts at one path, the one with more rights stays, and gets the
// rights of all. A path of the profile replaces that of an image, and takes no rights from it.
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

// about returns an error about a path that the message already contains.
func about(err error) error {
	if link, ok := errors.AsType[*offlimits.LinkError](err); ok {
		return link
	}
	return tool.WithoutPath(err)
}

// around returns the nearest part that a path lies in, but not the part at the path itself.
func (v *view) around(path string) *part {
	var best *part
	for i, p := range v.parts {
		if offlimits.Within(path, p.path) && path != p.path && (best == nil || len(p.path) > len(best.path)) {
			best = &v.parts[i]
		}
	}
	return best
}

// find returns the part at a path, or nil if there is none.
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

// inTree reports whether a part that comes from the host lies above a path: other processes may then change the way to it
// while the room is built.
func (v *view) inTree(path string) bool {
	return slices.ContainsFunc(v.parts, func(p part) bool {
		return p.kind.isHosts() && p.path != path && offlimits.Within(path, p.path)
	})
}

// grants returns the Landlock rules for a view. A rule on a folder holds for everything in it, so rules within it that
// grant no more are left out. There are no rules on paths that a child could have moved.
func (v *view) grants() []grant {
	var grants []grant
	for _, p := range v.parts {
		if around := v.around(p.path); p.rights != 0 && (around == nil || p.rights&^around.rights != 0) {
			grants = append(grants, grant{p.path, p.rights, p.folder})
		}
	}
	return grants
}

// foundation begins a room: a file system of its own at base, with the parts of a view. Later mounts of the host are
// visible if the host propagates them.
func (s *script) foundation(v *view, base string) {
	s.in(LayerMounts)
	s.call("keep ours to ourselves", unix.SYS_MOUNT, 0, "/", 0, unix.MS_REC|unix.MS_SLAVE, 0)
	trees := s.trees(v, v)
	s.mountRoot(base)
	b := newBuilder(s, v, base)
	b.put(v, trees)
	b.folder("/tmp")
}

// mountRoot mounts the empty file system that a room starts with.
func (s *script) mountRoot(base string) {
	s.mountFS("tmpfs", base, unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=256k,nr_inodes=4096")
}

// complete adds the parts of a view to the room, and enters it. Everything outside the parts is then gone: no path leads
// to it. The view all includes the foundation's parts. A view with an image has none of those: it starts anew, on top of
// the foundation, which goes away with the host's root.
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

// trees opens the parts that come from the host, before anything is covered. A path within a part of the same kind comes
// with that part.
func (s *script) trees(v, all *view) map[string]register {
	trees := map[string]register{}
	at := s.newReg()
	for _, p := range v.parts {
		p.rights = all.find(p.path).rights // of both, if the system has it too
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
		if p.kind != partWrite { // a device can still be written to, but its mode cannot be changed
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

// openDirect opens a path without following links, as an O_PATH descriptor.
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
	root register // the open base; 0 if everything made is our own
	spot register // a temporary descriptor
	made map[string]bool
}

// folder makes a folder and its parents, except those that come with a part of the host.
func (b *builder) folder(path string) {
	if b.made[path] || b.view.inHosts(path) {
		return
	}
	b.made[path] = true
	b.folder(filepath.Dir(path))
	b.make(path, path, unix.SYS_MKDIRAT, 0o755)
}

// make makes a folder or a file in the room, unless it exists. In a tree of the host it is named relative to its open
// folder, since the names on the path may have changed by then.
func (b *builder) make(what, path string, nr uintptr, mode int) {
	if b.root == 0 || !b.view.inTree(path) {
		b.call(what, nr, cwd, b.base+path, mode, 0).loose()
		return
	}
	dir := b.open(filepath.Dir(path))
	b.call(what, nr, dir, filepath.Base(path), mode, 0).loose()
	b.call(path, unix.SYS_CLOSE, dir)
}

// open opens a path of the room.
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

// put adds the parts of a view to the room, from the outside in, then the links.
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

// place makes the mount point of a part, unless it exists.
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

// quiet are the flags of a file system that holds nothing executable or privileged.
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

// mount mounts a tree at a path, and closes it.
func (b *builder) mount(path string, tree register) {
	to := b.open(path)
	const byDescriptors = unix.MOVE_MOUNT_F_EMPTY_PATH | unix.MOVE_MOUNT_T_EMPTY_PATH
	b.call(path, unix.SYS_MOVE_MOUNT, tree, "", to, "", byDescriptors)
	b.call(path, unix.SYS_CLOSE, to)
	b.call(path, unix.SYS_CLOSE, tree)
}

// empty is an empty file of the room, which exists only until it is mounted.
const empty = "/.empty"

// hide covers a folder with an empty folder, and a file with an empty file. A device such as /dev/null would accept
// writes, and belongs to the host.
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
	b.call(p.path, unix.SYS_FCHDIR, at) // a name would be resolved once more
	b.call(p.path, unix.SYS_CLOSE, at)
	b.call("nothing on "+p.path, unix.SYS_MOUNT, "tmpfs", ".", "tmpfs", quiet, "mode=0555,size=64k,nr_inodes=128")
}

// closeHidden makes the covers of folders read-only, once everything in them is in place.
func (b *builder) closeHidden(v *view) {
	for _, p := range v.parts {
		if p.kind == partHidden && p.folder {
			at := b.open(p.path)
			b.setAttr(p.path, at, "", unix.AT_EMPTY_PATH, unix.MOUNT_ATTR_RDONLY)
			b.call(p.path, unix.SYS_CLOSE, at)
		}
	}
}
