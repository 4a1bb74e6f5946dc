//go:build linux

package sandbox

import (
	"golang.org/x/sys/unix"
)

// Landlock is the wall around files that needs no namespace, and a second one if there are mounts. Every right that the
// kernel knows is removed, and granted again path by path.

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
	// Never granted: device nodes, and ioctl on devices.
	rightsNever = unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK |
		unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
)

// landlockVersion returns the kernel's version of Landlock, or 0 if it has none.
func landlockVersion() int {
	v, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(v)
}

// The versions that added something that matters here.
const (
	landlockTruncate = 3 // without it a file that may be read can be truncated
	landlockTCP      = 4
	landlockIoctl    = 5
	landlockScopes   = 6 // signals and abstract sockets
)

// handledFS returns the rights on files that this version can restrict.
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

// A grant allows rights on a path and everything below it.
type grant struct {
	path   string
	rights uint64
	folder bool
}

// ruleset begins a ruleset that removes every right on files, and as many ways to other processes as it can.
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

// grant grants rights on paths without links.
func (s *script) grant(version int, grants []grant) {
	s.grantBy(version, grants, func(path string) *op { return s.openDirect(path, cwd, path, noLinks) })
}

// grantInside does so in a finished room, whose filter of system calls denies openat2, see setIDs. Names there lead only
// to what the room has.
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

// restrict puts the process that plays it behind the ruleset, and if noTCP is set behind a second one.
func (s *script) restrict(version int, noTCP bool) {
	s.in(LayerLandlock)
	s.call("restrict", unix.SYS_LANDLOCK_RESTRICT_SELF, regRules, 0)
	if !noTCP || version < landlockTCP {
		return
	}
	// Every ruleset forbids moving files from one folder to another, whether it handles files or not, and the kernel
	// reports that as a move between two disks. So this one must allow it everywhere; the first one decides.
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
