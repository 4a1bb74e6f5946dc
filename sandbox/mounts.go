package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// A part is something at a path of the room.
type part struct {
	path   string
	kind   partKind
	rights uint64 // that Landlock gives on it
	folder bool
	size   int64 // of a tmpfs
}

// runs reports whether programs can be run from it.
func (p part) runs() bool { return p.rights&rightsExec != 0 }

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
	parts []part
	links map[string]string
}

// systemView is what every room has: what programs are made of, and a few devices.
func systemView() (*view, error) {
	v := &view{links: map[string]string{
		"/dev/fd": "/proc/self/fd", "/dev/stdin": "/proc/self/fd/0", "/dev/stdout": "/proc/self/fd/1", "/dev/stderr": "/proc/self/fd/2",
	}}
	err := errors.Join(v.addAll(system(), partRead, rightsRead|rightsExec), v.addAll(devices(), partDevice, rightsRead|rightsWrite))
	v.sort()
	return v, err
}

// viewOf is what one room has besides: what its profile makes executable, readable and writable, and what its
// program needs.
func viewOf(p Profile, program []string) (*view, error) {
	v := &view{links: map[string]string{}}
	err := errors.Join(
		v.addAll(p.Readable, partRead, rightsRead),
		v.addAll(p.Executable, partRead, rightsRead|rightsExec),
		v.addAll(program, partRead, rightsRead|rightsExec),
		v.addAll(p.Writable, partWrite, p.writeRights()),
		v.addAll(p.Hidden, partHidden, 0))
	v.sort()
	v.close(p.ReadOnly)
	return v, err
}

// close makes paths read-only that lie in what can be written. One that leads anywhere else, by a link that a tool has put
// there, gives nothing.
func (v *view) close(paths []string) {
	for _, path := range paths {
		apart := &view{links: map[string]string{}}
		if apart.add(path, partRead, rightsRead) != nil || len(apart.parts) != 1 {
			continue
		}
		if outer := v.around(apart.parts[0].path); outer != nil && outer.kind == partWrite {
			v.parts = append(v.parts, apart.parts...)
		}
	}
	v.sort()
}

// writeRights are the rights on what is writable.
func (p Profile) writeRights() uint64 {
	if p.WriteOnly {
		return rightsWrite
	}
	return rightsRead | rightsWrite
}

// with gives the view that has the parts of both.
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
	real, info, err := v.resolve(path)
	if err != nil {
		return err
	}
	if real == "/" {
		return v.addRoot(kind, rights)
	}
	if kind != partDevice && slices.ContainsFunc(kernels(), func(k string) bool { return within(real, k) }) {
		return fmt.Errorf("%s cannot be given to a confined child: it is the kernel's; a profile says what is seen of /proc", path)
	}
	v.parts = append(v.parts, part{path: real, kind: kind, rights: rights, folder: info.IsDir()})
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

// mount puts a new file system into the view. Landlock's rights on it hold for all that lies in it, also for
// what is mounted there.
func (v *view) mount(path string, kind partKind, rights uint64, size int64) {
	v.parts = append(v.parts, part{path: path, kind: kind, rights: rights, folder: true, size: size})
	v.sort()
}

// sort orders the parts from the outside in. Of several at one path the one with more rights stays, and has
// the rights of all.
func (v *view) sort() {
	slices.SortStableFunc(v.parts, func(a, b part) int {
		return cmp.Or(strings.Compare(a.path, b.path), cmp.Compare(b.kind, a.kind))
	})
	merged := v.parts[:0]
	for _, p := range v.parts {
		if n := len(merged); n > 0 && merged[n-1].path == p.path {
			merged[n-1].rights |= p.rights
			continue
		}
		merged = append(merged, p)
	}
	v.parts = merged
}

// resolve follows the symbolic links of a path, and takes note of them.
func (v *view) resolve(path string) (string, fs.FileInfo, error) {
	rest := strings.Split(strings.Trim(filepath.Clean(path), "/"), "/")
	at := "/"
	info, err := os.Lstat(at)
	for links := 0; len(rest) > 0 && err == nil; {
		next := filepath.Join(at, rest[0])
		rest = rest[1:]
		if info, err = os.Lstat(next); err != nil {
			break
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			at = next
			continue
		}
		target, linkErr := os.Readlink(next)
		if links++; links > 40 {
			linkErr = syscall.ELOOP
		}
		if linkErr != nil {
			return "", nil, fmt.Errorf("%s: %w", path, linkErr)
		}
		v.links[next] = target
		if !filepath.IsAbs(target) {
			target = filepath.Join(at, target)
		}
		rest = append(strings.Split(strings.Trim(filepath.Clean(target), "/"), "/"), rest...)
		at = "/"
		info, err = os.Lstat(at)
	}
	if err != nil {
		return "", nil, fmt.Errorf("%s cannot be given to a confined child: %w", path, errors.Unwrap(err))
	}
	return at, info, nil
}

// around gives the part that a path lies in, the nearest one, and not the path itself.
func (v *view) around(path string) *part {
	var best *part
	for i, p := range v.parts {
		if within(path, p.path) && path != p.path && (best == nil || len(p.path) > len(best.path)) {
			best = &v.parts[i]
		}
	}
	return best
}

// at gives the part at a path that has one.
func (v *view) at(path string) part {
	return v.parts[slices.IndexFunc(v.parts, func(p part) bool { return p.path == path })]
}

// inHosts reports whether a path lies in a part that comes from the host.
func (v *view) inHosts(path string) bool {
	outer := v.around(path)
	return outer != nil && outer.kind.isHosts()
}

// within reports whether a path is a folder or something in it.
func within(path, folder string) bool {
	return path == folder || folder == "/" || strings.HasPrefix(path, folder+"/")
}

// grants are the rules of Landlock for a view.
func (v *view) grants() []grant {
	var grants []grant
	for _, p := range v.parts {
		if p.rights != 0 {
			grants = append(grants, grant{p.path, p.rights, p.folder})
		}
	}
	return grants
}

const mountAttrSize = 32

// foundation begins a room: a file system of its own at base, with the parts of a view. What the host mounts
// later is seen, where it lets that be.
func (s *script) foundation(v *view, base string) {
	s.in(LayerMounts)
	s.call("keep ours to ourselves", unix.SYS_MOUNT, number(0), s.text("/"), number(0), number(unix.MS_REC|unix.MS_SLAVE), number(0))
	trees := s.trees(v, v)
	s.mountFS("tmpfs", base, unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=256k,nr_inodes=4096")
	b := newBuilder(s, v, base)
	b.put(v, trees)
	b.folder("/tmp")
}

// complete adds the parts of a view to the room, and enters it. What is in none of its parts is then not there:
// no path leads to it. All is the view with what the foundation has.
func (s *script) complete(v, all *view, base, dir string) {
	s.in(LayerMounts)
	trees := s.trees(v, all)
	b := newBuilder(s, all, base)
	b.put(v, trees)
	b.folder(dir)
	b.closeHidden(v)
	s.call("enter", unix.SYS_CHDIR, s.text(base))
	s.call("pivot", unix.SYS_PIVOT_ROOT, s.text("."), s.text("."))
	s.call("let the old ones go", unix.SYS_UMOUNT2, s.text("."), number(unix.MNT_DETACH))
	s.setAttr("/", cwd, s.text("/"), 0, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
}

// trees opens what comes from the host, before anything is covered. What lies in a part of the same kind
// comes with that one.
func (s *script) trees(v, all *view) map[string]uint64 {
	trees := map[string]uint64{}
	for _, p := range v.parts {
		p.rights = all.at(p.path).rights // of both, where the system has it too
		outer := all.around(p.path)
		if !p.kind.isHosts() || outer != nil && outer.kind == p.kind && outer.runs() == p.runs() {
			continue
		}
		fd := s.newReg()
		s.call(p.path, unix.SYS_OPEN_TREE, cwd, s.text(p.path), number(unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE|unix.AT_SYMLINK_NOFOLLOW)).into(fd)
		attr := uint64(unix.MOUNT_ATTR_NOSUID)
		if p.kind != partDevice {
			attr |= unix.MOUNT_ATTR_NODEV
		}
		if p.kind == partRead {
			attr |= unix.MOUNT_ATTR_RDONLY
		}
		if !p.runs() {
			attr |= unix.MOUNT_ATTR_NOEXEC
		}
		s.setAttr(p.path, register(fd), s.text(""), unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, attr)
		trees[p.path] = fd
	}
	return trees
}

func (s *script) setAttr(what string, fd, path value, flags uint64, attr uint64) {
	s.call(what, unix.SYS_MOUNT_SETATTR, fd, path, number(flags), s.words(number(attr), number(0), number(0), number(0)), number(mountAttrSize))
}

func (s *script) mountFS(kind, path string, flags uint64, options string) {
	s.call(kind+" on "+path, unix.SYS_MOUNT, s.text(kind), s.text(path), s.text(kind), number(flags), s.text(options))
}

// A builder puts parts into a new root at base.
type builder struct {
	*script
	view *view
	base string
	made map[string]bool
}

// folder makes a folder and those above it, as far as they do not come with a part of the host.
func (b *builder) folder(path string) {
	if b.made[path] || b.view.inHosts(path) {
		return
	}
	b.made[path] = true
	b.folder(filepath.Dir(path))
	b.call(path, unix.SYS_MKDIRAT, cwd, b.text(b.base+path), number(0o755)).loose()
}

func newBuilder(s *script, v *view, base string) *builder {
	return &builder{script: s, view: v, base: base, made: map[string]bool{"/": true}}
}

// put puts the parts of a view into the room, from the outside in, then the links.
func (b *builder) put(v *view, trees map[string]uint64) {
	for _, p := range v.parts {
		tree, ok := trees[p.path]
		if p.kind.isHosts() && !ok {
			continue
		}
		b.place(p)
		b.fill(p, tree)
	}
	for path, target := range v.links {
		if !b.view.inHosts(path) {
			b.folder(filepath.Dir(path))
			b.call(path, unix.SYS_SYMLINKAT, b.text(target), cwd, b.text(b.base+path)).loose()
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
		b.call(p.path, unix.SYS_MKNODAT, cwd, b.text(b.base+p.path), number(unix.S_IFREG|0o644), number(0)).loose()
	}
}

func (b *builder) fill(p part, tree uint64) {
	const quiet = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	at := b.base + p.path
	switch p.kind {
	case partTmpfs:
		b.mountFS("tmpfs", at, quiet, fmt.Sprintf("mode=1777,size=%d", p.size))
	case partProcOwn:
		b.mountFS("proc", at, quiet|unix.MS_RDONLY, "subset=pid")
	case partProcAll:
		b.mountFS("proc", at, quiet|unix.MS_RDONLY, "")
	case partHidden:
		b.hide(p, at)
	default:
		b.call(p.path, unix.SYS_MOVE_MOUNT, register(tree), b.text(""), cwd, b.text(at), number(unix.MOVE_MOUNT_F_EMPTY_PATH))
		b.call(p.path, unix.SYS_CLOSE, register(tree))
	}
}

// hide covers a part with nothing: a folder with an empty one, a file with a device that has no end of nothing.
func (b *builder) hide(p part, at string) {
	if p.folder {
		b.mountFS("tmpfs", at, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0555,size=64k,nr_inodes=128")
		return
	}
	b.call(p.path, unix.SYS_MOUNT, b.text("/dev/null"), b.text(at), number(0), number(unix.MS_BIND), number(0))
}

// closeHidden makes the covers of folders read-only, once all that lies in them is there.
func (b *builder) closeHidden(v *view) {
	for _, p := range v.parts {
		if p.kind == partHidden && p.folder {
			b.setAttr(p.path, cwd, b.text(b.base+p.path), 0, unix.MOUNT_ATTR_RDONLY)
		}
	}
}
