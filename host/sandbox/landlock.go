//go:build linux

package sandbox

import (
	"golang.org/x/sys/unix"
)

// Landlock is the wall around files that needs no namespace, and a second one where there are mounts. Every
// right that the kernel knows is taken, and given back path by path.

// The rights, in groups.
const (
	rightsRead  = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	rightsExec  = unix.LANDLOCK_ACCESS_FS_EXECUTE
	rightsWrite = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE |
		unix.LANDLOCK_ACCESS_FS_REFER |
		unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | unix.LANDLOCK_ACCESS_FS_MAKE_REG |
		unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_SYM | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO |
		unix.LANDLOCK_ACCESS_FS_MAKE_SOCK
	rightsOfFile = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_EXECUTE
	// What nobody gets: device nodes, and ioctl on devices.
	rightsNever = unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK |
		unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
)

// landlockVersion is how much of Landlock this kernel has; 0: none.
func landlockVersion() int {
	v, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(v)
}

// The versions that brought something that matters here.
const (
	landlockTruncate = 3 // without it a file that may be read can be emptied
	landlockTCP      = 4
	landlockIoctl    = 5
	landlockScopes   = 6 // signals and abstract sockets
)

// handledFS lists the rights on files that this version can take.
func handledFS(version int) uint64 {
	all := uint64(rightsRead | rightsExec | rightsWrite | rightsNever)
	for since, right := range map[int]uint64{
		2: unix.LANDLOCK_ACCESS_FS_REFER, landlockTruncate: unix.LANDLOCK_ACCESS_FS_TRUNCATE,
		landlockIoctl: unix.LANDLOCK_ACCESS_FS_IOCTL_DEV,
	} {
		if version < since {
			all &^= right
		}
	}
	return all
}

// A grant gives rights back, on a path and all below it.
type grant struct {
	path   string
	rights uint64
	folder bool
}

// ruleset begins a ruleset that takes every right on files, and what it can of what leads to other processes.
func (s *script) ruleset(version int) {
	s.in(LayerLandlock)
	fields := []any{handledFS(version), 0, unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL}
	if version < landlockScopes {
		fields = fields[:2]
	}
	if version < landlockTCP {
		fields = fields[:1]
	}
	s.call("the ruleset", unix.SYS_LANDLOCK_CREATE_RULESET, s.words(fields...), 8*len(fields), 0).into(regRules)
}

// grant gives rights back, on paths without links.
func (s *script) grant(version int, grants []grant) {
	s.grantBy(version, grants, func(path string) *op { return s.openDirect(path, cwd, path, noLinks) })
}

// grantInside does so in a room that stands, whose filter of system calls has no openat2, see setIDs. Names lead to no
// more there than the room has.
func (s *script) grantInside(version int, grants []grant) {
	s.grantBy(version, grants, func(path string) *op {
		return s.call(path, unix.SYS_OPENAT, cwd, path, unix.O_PATH|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	})
}

func (s *script) grantBy(version int, grants []grant, open func(path string) *op) {
	s.in(LayerLandlock)
	fd := s.newReg()
	for _, g := range grants {
		rights := g.rights & handledFS(version)
		if !g.folder {
			rights &= rightsOfFile
		}
		beneath := s.words(rights, 0)
		open(g.path).into(fd)
		s.poke(beneath+8, fd)
		s.call(g.path, unix.SYS_LANDLOCK_ADD_RULE, regRules, unix.LANDLOCK_RULE_PATH_BENEATH, beneath, 0)
		s.call(g.path, unix.SYS_CLOSE, fd)
	}
}

// restrict puts the one who plays it behind the ruleset, and without TCP behind a second one.
func (s *script) restrict(version int, noTCP bool) {
	s.in(LayerLandlock)
	s.call("restrict", unix.SYS_LANDLOCK_RESTRICT_SELF, regRules, 0)
	if !noTCP || version < landlockTCP {
		return
	}
	// Every ruleset forbids to move files from one folder to another, whether it speaks of files or not, and the kernel
	// reports that as two disks. So this one has to allow it everywhere: where it may be done the first one says.
	const refer = unix.LANDLOCK_ACCESS_FS_REFER
	tcp := s.words(refer, unix.LANDLOCK_ACCESS_NET_BIND_TCP|unix.LANDLOCK_ACCESS_NET_CONNECT_TCP)
	rules, root := s.newReg(), s.newReg()
	s.call("the ruleset of TCP", unix.SYS_LANDLOCK_CREATE_RULESET, tcp, 16, 0).into(rules)
	s.call("the root", unix.SYS_OPENAT, cwd, "/", unix.O_PATH|unix.O_CLOEXEC, 0).into(root)
	beneath := s.words(refer, 0)
	s.poke(beneath+8, root)
	s.call("the root", unix.SYS_LANDLOCK_ADD_RULE, rules, unix.LANDLOCK_RULE_PATH_BENEATH, beneath, 0)
	s.call("the root", unix.SYS_CLOSE, root)
	s.call("restrict TCP", unix.SYS_LANDLOCK_RESTRICT_SELF, rules, 0)
}
