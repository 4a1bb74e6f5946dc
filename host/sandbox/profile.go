package sandbox

import (
	"cmp"
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
	// Proc says what it sees of /proc.
	Proc Proc

	Network Network
	// Unix lets it use Unix sockets, also those that others have left in Readable and Writable. Pairs of
	// sockets are always there.
	Unix bool
	// Subprocess lets it start programs.
	Subprocess bool
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
