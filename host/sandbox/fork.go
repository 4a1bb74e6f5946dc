//go:build linux

package sandbox

import (
	_ "embed" // for confine.py
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"toolpost/tool"
)

//go:embed confine.py
var forkPython string

// ForkPython returns a Python module for a server that forks a child for each call: Room(script) prepares a room in the
// server, enter() in the child puts that child into it, and left() in the server counts the objects of its children that
// outlive them.
func ForkPython() string { return forkPython }

// ForkScript writes the script for ForkPython's Room. The server itself runs confined, with the profile server; each
// child that it forks has the tighter profile call: rights by path, system calls, limits. Restrictions that the child
// inherits from its server are not set up again: making a filter takes the kernel as long as a small call. Data that a
// process has had cannot be removed from its memory, so a server with an environment cannot fork a child without one:
// that is an error with the reason coverage_missing.
//
// The child inherits the server's open descriptors and must close them before it enters. It shares the server's namespace
// of System V objects: a new one requires a capability, which the server, in which the tool's own code runs, must not
// have. So a server whose children have left an object must be ended, and the namespace with it: to the next child that
// is as if each had its own. POSIX message queues cannot be counted, so children cannot use them.
func ForkScript(server, call Profile) ([]byte, error) {
	m := thisMachine()
	switch {
	case call.check() != nil:
		return nil, call.check()
	case m.cover(server) != nil:
		return nil, m.cover(server)
	case call.NoEnv && !server.NoEnv:
		return nil, uncovered("a forked child has the environment of its server: start the server without one")
	case m.Landlock < landlockTruncate && !sameFiles(server, call):
		return nil, uncovered("a forked child has the files of its server: %s is missing", m.explain(LayerLandlock))
	case call.Network > server.Network || call.Subprocess && !server.Subprocess:
		return nil, tool.Errorf(tool.CodeInvalidInput, "a forked child cannot have more than its server")
	}
	own, err := viewOf(call, nil, m.systemNow())
	if err != nil {
		return nil, tool.Errorf(tool.CodeUnavailable, "%w", err)
	}
	own.mountOwn(m, call)
	return m.forkScript(server, call, own)
}

func sameFiles(a, b Profile) bool {
	return slices.Equal(a.Readable, b.Readable) && slices.Equal(a.Writable, b.Writable) &&
		slices.Equal(a.Executable, b.Executable) && a.WriteOnly == b.WriteOnly
}

// sameCalls reports whether the server's own filter of system calls is that of its children.
func sameCalls(server, call Profile) bool {
	return server.Forks && server.Subprocess == call.Subprocess && server.Network == call.Network &&
		server.Unix == call.Unix && slices.Equal(server.Writable, call.Writable)
}

// maxProcessName is the kernel's limit.
const maxProcessName = 15

// printable shortens a name, and makes it safe for any terminal.
func printable(name string, most int) string {
	name = strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return '_'
		}
		return r
	}, name)
	return name[:min(len(name), most)]
}

// bytes before the script: its first op for a child, the offset of its names, whether it has its own System V objects
const forkHead = 24

func (m *machine) forkScript(server, call Profile, own *view) ([]byte, error) {
	p := &plan{on: m, Spawn: Spawn{Confinement: Confinement{Profile: call}}}
	if m.Landlock > 0 {
		p.ruleset(m.Landlock)
		p.grantInside(m.Landlock, m.systemNow().with(own).grants())
	}
	first := p.here()
	if call.Limits != server.Limits {
		p.limits()
	}
	if call.Name != "" {
		p.call("name", unix.SYS_PRCTL, unix.PR_SET_NAME, p.bytes([]byte(printable(call.Name, maxProcessName))), 0, 0, 0)
	}
	if m.Landlock > 0 {
		p.restrict(m.Landlock, call.Network == NetworkNone)
	}
	if !sameCalls(server, call) {
		f, err := filterPlan{
			network: call.Network, unix: call.Unix, subprocess: call.Subprocess,
			// It is never alone: its server, which forks for other calls too, must not be affected.
			ownIPC: m.IPCNS, ownPids: false, ownMounts: m.Mounts && slices.Equal(server.Writable, call.Writable),
		}.compile()
		if err != nil {
			return nil, err
		}
		p.install(f)
	}
	if err := p.fits(); err != nil {
		return nil, err
	}
	image := p.image()
	head := bytesOf([]uint64{first, uint64(forkHead + len(image)), map[bool]uint64{true: 1}[m.IPCNS]})
	return slices.Concat(head, image, []byte(strings.Join(p.names, "\n"))), nil
}
