package sandbox

import (
	"cmp"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"toolpost/config/offlimits"
	"toolpost/tool"
)

// A Profile states what a confined child may do. Its zero value is the strictest: the child has the system files that
// programs need (/usr, /bin, /lib and the few files of /etc that the C library reads), its own program and memory, and
// nothing else.
type Profile struct {
	// Name is what the system's ps shows: the name of a forked child, or the source of a room. A program has its own.
	Name string

	// Files and folders, by absolute paths. All other paths do not exist in the room. If one path lies within another,
	// the nearer one decides.
	Readable   []string // may be read
	Writable   []string // may be read and changed
	Executable []string // may be read and run: interpreters, their libraries, the tool's own code

	// Root is a folder that becomes the room's /, read-only, in place of the system's programs: an unpacked container
	// image, or / itself. Its /proc, /sys, /dev and /tmp are the room's own. Other paths of the profile are those of the
	// host, and appear at the same place in the room. If empty, the room has the host's programs.
	Root string
	// ReadOnly lists existing paths within Writable that cannot be changed.
	ReadOnly []string
	// Hidden lists existing paths that appear empty.
	Hidden []string
	// Off lists paths that are hidden, or cannot be changed, although they lie within one of the above. A hidden folder
	// or file appears empty. The list also applies to paths that do not exist yet when the room is built.
	Off *offlimits.List
	// WriteOnly removes the right to read from Writable.
	WriteOnly bool
	// Tmp is the size of a private /tmp in memory. There is none if it is 0 or if the room has no mounts of its own.
	Tmp int64
	// Scratch lists more folders like Tmp, under the same condition. A folder that lies in a part of the host that the
	// child has, or that does not exist on the host, is left out.
	Scratch []string
	// Proc selects what the child sees of /proc.
	Proc Proc

	Network Network
	// Unix lets the child use Unix sockets, including those that other processes have left in Readable and Writable.
	// Socket pairs are always allowed.
	Unix bool
	// Subprocess lets the child start programs.
	Subprocess bool
	// Forks means that the child's forks are calls that must be isolated from it and from each other: no process in the
	// room can reach another by its pid, or leave a queue. See ForkScript.
	Forks bool
	// NoEnv gives the child an empty environment.
	NoEnv bool

	Limits Limits
}

// Network states which hosts a child can reach.
type Network int

// The networks.
const (
	NetworkNone     Network = iota // none
	NetworkLoopback                // itself, on a loopback of its own
	NetworkEgress                  // itself, and the hosts that the proxy at EgressAddress allows
	NetworkAll                     // everything that the host can reach
)

// EgressAddress is the address of the host's proxy for a child with NetworkEgress. It is the same in every room: each has
// a loopback of its own.
const EgressAddress = "127.0.0.1:3128"

// String returns the name used in the config.
func (n Network) String() string {
	return [...]string{"none", "loopback", "hosts", "all"}[n]
}

// Proc states what a child sees of /proc.
type Proc int

// The views of /proc.
const (
	ProcNone Proc = iota // nothing
	ProcOwn              // its own processes
	ProcAll              // its own processes and the kernel's information about the machine
)

// Limits bound the resources of a child and all its processes. 0 means the default, a negative number no limit.
type Limits struct {
	Memory    int64         // bytes; 512 MiB
	CPU       float64       // processors; no limit
	Processes int           // and threads; 128
	Files     int           // open at once, in each process; 1024
	FileSize  int64         // bytes of a file that it writes; 1 GiB
	CPUTime   time.Duration // of each process; no limit
}

// The default limits of a profile.
const (
	DefaultMemory    = 512 << 20
	DefaultProcesses = 128
)

// WithDefaults replaces zero values with the defaults.
func (l Limits) WithDefaults() Limits {
	return Limits{
		Memory: cmp.Or(l.Memory, DefaultMemory), Processes: cmp.Or(l.Processes, DefaultProcesses),
		Files: cmp.Or(l.Files, 1024), FileSize: cmp.Or(l.FileSize, 1<<30),
		CPU: cmp.Or(l.CPU, -1), CPUTime: cmp.Or(l.CPUTime, -1),
	}
}

// Default is the profile of a tool without further settings: it reads the given folders and may start programs, all
// within the default limits; it has a private /tmp, its own processes in /proc, and no network.
func Default(readable ...string) Profile {
	return Profile{Readable: readable, Tmp: 64 << 20, Proc: ProcOwn, Subprocess: true}
}

// FromGuarantees returns p without the rights that the guarantees forbid. It only ever tightens. Executable stays: a tool
// that may not read files still has its own code.
func FromGuarantees(g tool.Guarantees, p Profile) Profile {
	if g.NoFilesystemRead {
		p.Readable, p.WriteOnly = nil, true
	}
	if g.NoFilesystemWrite {
		if !p.WriteOnly { // a writable file is readable too
			p.Readable = slices.Concat(p.Readable, p.Writable)
		}
		p.Writable, p.Tmp = nil, 0
	}
	if g.NoNetwork {
		p.Network, p.Unix = NetworkNone, false
	}
	if g.NoEnvRead {
		p.NoEnv, p.Proc = true, min(p.Proc, ProcOwn)
	}
	p.Subprocess = p.Subprocess && !g.NoSubprocess
	return p
}

// A Confinement is a profile with the callbacks for what happens in the room.
type Confinement struct {
	Profile
	// Violation, if not nil, is called for every attempt that a wall stops and that can be seen, from one goroutine, at
	// most 64 times for a child. It must not block for a long time.
	Violation func(Violation)
	// Egress is called with every connection that a child with NetworkEgress makes to EgressAddress, each in a goroutine
	// of its own, 64 at a time. It closes the connection. It must return soon after the child's end, which it sees as the
	// end of the connection.
	Egress func(net.Conn)
}

// A Spawn describes a program to start, and its confinement.
type Spawn struct {
	Path string   // the program; a relative one is looked up in Dir
	Argv []string // its arguments, its own name first
	// working folder; empty means ours if it is in the room, else /. A folder outside the room is created there, empty
	Dir   string
	Env   []string   // the whole environment
	Files []*os.File // its descriptors 0, 1, 2 and so on; the caller keeps and closes its own
	Look  bool       // whether a Window is wanted
	// Born, if not nil, is called with the pid of the child before the child does anything, while it is in our session.
	// An error ends the child.
	Born func(pid int) error
	Confinement
}

// A Violation is an attempt that a wall has stopped, or a limit that was reached.
type Violation struct {
	Capability string // network, filesystem_write, subprocess; of limits memory, processes
	Guarantee  string // the guarantee that forbids it, such as no_network; empty for a limit
	Target     string // the path or the address; for a limit, its value
}

// The layers of a room, as they are named in probes, errors and results.
const (
	LayerNamespaces = "user namespace"
	LayerPid        = "pid namespace"
	LayerNetwork    = "network namespace"
	LayerMounts     = "mounts"
	LayerProc       = "own /proc"
	LayerPrivileges = "no new privileges"
	LayerLandlock   = "landlock"
	LayerSeccomp    = "seccomp"
	LayerNotify     = "seccomp notify"
	LayerLimits     = "rlimits"
	LayerMemory     = "cgroup memory"
	LayerPids       = "cgroup pids"
	LayerCPU        = "cgroup cpu"

	layerExec  = "exec"
	layerGroup = "cgroup"
)

// A Layer is one kind of wall, and whether it can be built here.
type Layer struct {
	Name  string
	Works bool
	Why   string // what was found: a version, or why it does not work
	Means string // its purpose, in one sentence
}

// The controllers that a room needs.
const (
	ctlMemory = "memory"
	ctlPids   = "pids"
	ctlCPU    = "cpu"
)

func controllerNames() []string { return []string{ctlMemory, ctlPids, ctlCPU} }

// check refuses paths that are relative or contain NUL, and unknown networks and views of /proc.
func (p Profile) check() error {
	for _, path := range slices.Concat(p.Readable, p.Writable, p.Executable, p.ReadOnly, p.Hidden, p.Off.Hidden(), p.Off.Fixed(),
		[]string{cmp.Or(p.Root, "/")}) {
		if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
			return tool.Errorf(tool.CodeInvalidInput, "the sandbox needs absolute paths: %q is none", path)
		}
	}
	if p.Network < NetworkNone || p.Network > NetworkAll || p.Proc < ProcNone || p.Proc > ProcAll {
		return tool.Errorf(tool.CodeInvalidInput, "the sandbox's profile has a network or proc that does not exist")
	}
	return nil
}

// system lists the system files that programs need, which hold no user data: code, and the files of /etc that the C
// library and similar libraries read. Missing files are left out.
func system() []string {
	paths := []string{
		"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store", "/etc/ld.so.cache",
		"/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ld.so.preload", "/etc/alternatives", "/etc/localtime",
		"/etc/timezone", "/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/hosts", "/etc/host.conf",
		"/etc/resolv.conf", "/etc/gai.conf", "/etc/services", "/etc/protocols", "/etc/mime.types", "/etc/os-release",
		"/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/ca-certificates", "/etc/pki/tls", "/etc/pki/ca-trust",
		"/etc/inputrc", "/etc/terminfo", "/etc/locale.alias",
	}
	return slices.DeleteFunc(paths, func(p string) bool { _, err := os.Stat(p); return err != nil })
}
