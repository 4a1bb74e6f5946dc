package sandbox

import (
	"cmp"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"toolpost/host/offlimits"
	"toolpost/tool"
)

// A Profile says what a confined child may do. Its zero value is the strictest: the child has what programs
// are made of (/usr, /bin, /lib and the few files of /etc that the C library reads), its own program and
// memory, and nothing else.
type Profile struct {
	// Name is what the system's ps shows of a forked child. A program that is started has its own.
	Name string

	// Files and folders, by absolute paths. What is in none of them is not there at all. Where one lies
	// within another, the nearer one decides.
	Readable   []string // may be read
	Writable   []string // may be read and changed
	Executable []string // may be read and run: interpreters, their libraries, the tool's own code

	// Root is a folder that is the room's /, read-only, in the place of what programs are made of here: an unpacked
	// image of a container, or / itself. Its /proc, /sys, /dev and /tmp are the room's own. Other paths of the profile
	// are those of the host, and lie at the same place in the room. Empty: the room has the host's programs.
	Root string
	// ReadOnly is what cannot be changed although it lies in what is Writable. What does not exist cannot be named.
	ReadOnly []string
	// Off is what is not there, or cannot be changed, although it lies in one of them: where it is hidden a folder is
	// empty, and so is a file. It holds also for what is not there when the room is built.
	Off *offlimits.List
	// WriteOnly takes the right to read from what is Writable.
	WriteOnly bool
	// Tmp is the size of a private /tmp in memory. 0: there is none, nor where a room has no mounts of its own.
	Tmp int64
	// Scratch are more folders like that /tmp, where there is one. One that lies in something of the host that the child
	// has, or is not there on the host, is left out.
	Scratch []string
	// Proc says what it sees of /proc.
	Proc Proc

	Network Network
	// Unix lets it use Unix sockets, also those that others have left in Readable and Writable. Pairs of
	// sockets are always there.
	Unix bool
	// Subprocess lets it start programs.
	Subprocess bool
	// Forks says that what it forks are calls that are strangers to it and to each other: nothing in the room reaches
	// another process by its number, or leaves a queue. See ForkScript.
	Forks bool
	// NoEnv gives it no variable.
	NoEnv bool

	Limits Limits
}

// Network says whom a child can reach.
type Network int

// The networks.
const (
	NetworkNone     Network = iota // nobody
	NetworkLoopback                // itself, on a loopback that it shares with nobody
	NetworkEgress                  // itself, and through EgressAddress whom the host lets through
	NetworkAll                     // everybody whom the host can reach
)

// EgressAddress is where a child with NetworkEgress finds the host's proxy. It is the same in every room:
// each has a loopback of its own.
const EgressAddress = "127.0.0.1:3128"

// String returns the word of the config.
func (n Network) String() string {
	return [...]string{"none", "loopback", "hosts", "all"}[n]
}

// Proc says what a child sees of /proc.
type Proc int

// What is seen of /proc.
const (
	ProcNone Proc = iota // nothing
	ProcOwn              // its own processes
	ProcAll              // its own processes and what the kernel tells of the machine
)

// Limits bound what a child and all its processes use. A 0 is the default, a negative number is no limit.
type Limits struct {
	Memory    int64         // bytes; 512 MiB
	CPU       float64       // processors; no limit
	Processes int           // and threads; 128
	Files     int           // open at once, in each process; 1024
	FileSize  int64         // bytes of a file that it writes; 1 GiB
	CPUTime   time.Duration // of each process; no limit
}

// The limits of a profile that says nothing else.
const (
	DefaultMemory    = 512 << 20
	DefaultProcesses = 128
)

// WithDefaults puts the defaults in the place of what is left out.
func (l Limits) WithDefaults() Limits {
	return Limits{
		Memory: cmp.Or(l.Memory, DefaultMemory), Processes: cmp.Or(l.Processes, DefaultProcesses),
		Files: cmp.Or(l.Files, 1024), FileSize: cmp.Or(l.FileSize, 1<<30),
		CPU: cmp.Or(l.CPU, -1), CPUTime: cmp.Or(l.CPUTime, -1),
	}
}

// Default is the profile of a tool of which nothing more is said: it reads the given folders and may start
// programs, all within the default limits; it has a private /tmp, its own processes in /proc, and no network.
func Default(readable ...string) Profile {
	return Profile{Readable: readable, Tmp: 64 << 20, Proc: ProcOwn, Subprocess: true}
}

// FromGuarantees returns the profile of a tool that has p but for what the guarantees take from it. It only
// ever tightens. Executable stays: a tool that may not read files still has its own code.
func FromGuarantees(g tool.Guarantees, p Profile) Profile {
	if g.NoFilesystemRead {
		p.Readable, p.WriteOnly = nil, true
	}
	if g.NoFilesystemWrite {
		if !p.WriteOnly { // what may be written may be read
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

// A Confinement is a profile and who hears of what goes on behind its walls.
type Confinement struct {
	Profile
	// Violation is called for every attempt that a wall stops and that can be seen, from one goroutine, at
	// most 64 times for a child; it must not block for long. Nil: nobody looks.
	Violation func(Violation)
	// Egress is called with every connection that a child with NetworkEgress makes to EgressAddress, each in
	// a goroutine of its own, 64 at a time. It closes the connection. It must return soon after the child's
	// end, which it sees as the end of the connection.
	Egress func(net.Conn)
}

// A Spawn says what to start behind which walls.
type Spawn struct {
	Path string   // the program; a relative one is looked for in Dir
	Argv []string // its arguments, its own name first
	// working folder; empty: ours if it is in the room, else /. One that is not in the room is there, and empty
	Dir   string
	Env   []string   // the whole environment
	Files []*os.File // its descriptors 0, 1, 2 and so on; the caller keeps and closes its own
	Look  bool       // whether a Window is wanted
	// Born is told the pid of the child before that does anything, and while it is in our session; an error ends
	// it. Nil: nobody is told.
	Born func(pid int) error
	Confinement
}

// A Violation is an attempt that a wall has stopped, or a limit that was reached.
type Violation struct {
	Capability string // network, filesystem_write, subprocess; of limits memory, processes
	Guarantee  string // the guarantee that forbids it: no_network ...; empty: it is a limit
	Target     string // the path or the address; how much a limit allows
}

// The layers that a room is made of, as they are named in probes, errors and results.
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
	Means string // what it is for, in one sentence
}

// The controllers that a room needs.
const (
	ctlMemory = "memory"
	ctlPids   = "pids"
	ctlCPU    = "cpu"
)

func controllerNames() []string { return []string{ctlMemory, ctlPids, ctlCPU} }

// check refuses paths that say nothing, or say it to somebody else.
func (p Profile) check() error {
	for _, path := range slices.Concat(p.Readable, p.Writable, p.Executable, p.ReadOnly, p.Off.Hidden(), p.Off.Fixed(),
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

// system lists what programs are made of, and holds nothing of users: code, and the files of /etc that the C
// library and its friends read. What does not exist here is left out.
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
