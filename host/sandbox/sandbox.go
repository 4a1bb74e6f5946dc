// Package sandbox confines a child with the kernel's own means (its walls), and reports which of them this machine can
// build. If a requested wall cannot be built, the call is refused: the tool never runs without it.
//
// A Profile states what a child may do. Start starts a program in a room that is made for that profile alone: its own
// processes, network and files (namespaces and mounts), rights by path (Landlock), system calls (seccomp), no privileges,
// and limits (rlimits and cgroups). All of it is in place before the program's first instruction.
//
// # How a child is started
//
//	host (this program)          forker                 room
//	-------------------          ------                 ----
//	writes a foundation  ------> forks the midwife ---> new namespaces; forks init and child
//	  (the same for all)                                child: mounts, Landlock rules; waits
//	writes a plan for one
//	profile  -----------------------------------------> child: its mounts, limits, filter; exec
//
// A Go program cannot fork: only one of its threads would be left in the child, and the next allocation might wait for a
// lock whose holder is gone. The usual solution is a helper program that builds the room and then executes the tool. That
// costs a program start on every call, and the helper must be given the profile in some format and trusted to read it
// correctly. Here the host writes down the exact system calls that the child is to make, as data (a script), and a loop
// of a few lines that neither allocates nor decides plays them in the fork. So every wall is a list that a test can read,
// and a failure names the call that failed.
//
// The forker is this program, started once more with nothing in it: forking the host itself would copy the page tables of
// a large process on every call, and with them all its secrets. The midwife exists because a process enters a new PID
// namespace only by being born in it. Making namespaces and mounts takes most of the time and is the same for every room,
// so one foundation is always laid in advance; the second script has the parts that depend on the profile.
//
// bwrap was measured and rejected: it does all of this at each start, and has neither Landlock nor a way to report what a
// filter has seen.
//
// # Where to look
//
// profile.go defines what can be requested, probe.go what this machine can build, room.go writes the two scripts and sets
// the limits, mounts.go, landlock.go, seccomp.go and cgroup.go each build one wall, host.go keeps the forker and the
// foundations, play.go runs in the fork, notify.go receives the stopped attempts, and fork.go does the same for the
// children of a warm Python server, which forks by itself.
package sandbox

import (
	"slices"
	"strings"

	"toolpost/config/offlimits"
	"toolpost/tool"
)

// CoverageMissing is the reason for a refusal because of a missing wall, in the words of the namel3ss contract.
const CoverageMissing = "coverage_missing"

// Elsewhere refuses the guarantees of a tool that is not started here, whatever this machine could build: a guarantee
// that is not enforced must not be promised.
func Elsewhere(name string, g tool.Guarantees) error {
	asked := g.Asked()
	if len(asked) == 0 {
		return nil
	}
	return uncovered("%s was not run: %s cannot be enforced for a tool that runs elsewhere; ask for it there",
		name, strings.Join(asked, ", "))
}

// Covered refuses a call that asks for more than the guarantees g, with which its program (such as "server") was
// started: the same walls are around all calls of a program that runs already.
func Covered(c *tool.Call, g tool.Guarantees, program string) error {
	asked, held := c.Tightened(g), g
	if c.Spec != nil {
		held = held.Tighten(c.Spec.Held)
	}
	if held.Covers(asked) {
		return nil
	}
	return uncovered("%s was not run: %s cannot be enforced for one call of a %s that runs already; put it into the guarantees "+
		"of its source", c.Tool, strings.Join(asked.Asked(), ", "), program)
}

func uncovered(format string, args ...any) error {
	return tool.Errorf(tool.CodeUnsupported, format, args...).Because(CoverageMissing)
}

// Cover checks that this machine can enforce the guarantees of a tool. The error names what cannot be enforced, and the
// missing layer.
func Cover(name string, g tool.Guarantees) error {
	asked := g.Asked()
	if len(asked) == 0 {
		return nil
	}
	m := thisMachine()
	if outOfFiles(m.broken) {
		return tooFewFiles(m.broken)
	}
	if m.broken != nil {
		return uncovered("%s was not run: %s cannot be enforced on this machine: no walls can be built: %w",
			name, strings.Join(asked, ", "), m.broken)
	}
	for _, guarantee := range asked {
		if missing := m.lacking(guarantee); missing != "" {
			return uncovered("%s was not run: %s cannot be enforced on this machine: %s is missing; see toolpost "+
				"doctor, or take the guarantee out of its source to run it without",
				name, guarantee, m.explain(missing))
		}
	}
	return nil
}

// explain returns why a layer is missing.
func (m *machine) explain(layer string) string {
	for _, l := range m.layers() {
		if l.Name == layer && l.Why != "" {
			return layer + " (" + l.Why + ")"
		}
	}
	return layer
}

// lacking returns the missing layer that keeps a guarantee from being enforced, or "" if it can be.
func (m *machine) lacking(guarantee string) string {
	layer, holds := LayerPid, m.apart() // a child has only what it is given, and cannot read from other processes
	switch guarantee {
	case "no_filesystem_read", "no_filesystem_write":
		layer, holds = LayerLandlock, m.filesHold()
	case "no_network":
		layer, holds = LayerSeccomp, m.Seccomp
	case "no_subprocess":
		layer, holds = LayerNotify, m.Seccomp && m.Notify
	}
	if holds {
		return ""
	}
	return layer
}

// filesHold reports whether files can be protected. Landlock alone suffices if it covers truncation and if the system
// calls that it does not see can be filtered.
func (m *machine) filesHold() bool {
	return m.Mounts || m.Landlock >= landlockTruncate && m.Seccomp
}

// apart reports whether a child can be isolated from other processes.
func (m *machine) apart() bool { return m.PidNS || m.Landlock >= landlockScopes && m.Seccomp }

// cover refuses a profile that this machine cannot build.
func (m *machine) cover(p Profile) error {
	switch {
	case outOfFiles(m.broken):
		return tooFewFiles(m.broken)
	case m.broken != nil:
		return uncovered("no walls can be built on this machine: %w; see toolpost doctor, or say `walls: {off: true}` "+
			"in the config of the source to run without", m.broken)
	}
	l, without := p.Limits.WithDefaults(), m.groups.why
	missing := layersThat([]layerIf{
		{LayerSeccomp, !m.Seccomp},
		{LayerMounts, !m.filesHold() || !m.Mounts && (nested(p) || p.Root != "")},
		{LayerPid, !m.apart()},
		{LayerLandlock, p.WriteOnly && len(p.Writable) > 0 && m.Landlock == 0},
		{LayerLandlock, p.Unix && p.Network == NetworkAll && m.Landlock < landlockScopes},
		{LayerNetwork, (p.Network == NetworkLoopback || p.Network == NetworkEgress) && !m.NetNS},
		{LayerNotify, !p.Subprocess && !m.Notify},
		{LayerMemory, p.Limits.Memory > 0 && without[ctlMemory] != nil}, // the default bounds each process, see limits
		{LayerCPU, l.CPU > 0 && without[ctlCPU] != nil},
		{LayerPids, l.Processes > 0 && without[ctlPids] != nil && !m.backstopPids()},
	})
	if len(missing) > 0 {
		return m.lacks(missing[0])
	}
	return nil
}

func (m *machine) lacks(layer string) error {
	return uncovered("this machine cannot build a wall that was asked for: %s is missing; see toolpost doctor, or say "+
		"`walls: {off: true}` in the config of the source to run it without", m.explain(layer))
}

// A layerIf is a layer, and whether a condition holds for it.
type layerIf struct {
	layer string
	is    bool
}

func layersThat(all []layerIf) (layers []string) {
	for _, l := range all {
		if l.is {
			layers = append(layers, l.layer)
		}
	}
	return layers
}

// nested reports whether a read-only path lies within a writable one, which Landlock cannot express.
func nested(p Profile) bool {
	return slices.ContainsFunc(slices.Concat(p.Readable, p.Executable, p.ReadOnly), func(inner string) bool {
		return slices.ContainsFunc(p.Writable, func(outer string) bool {
			return inner != outer && offlimits.Within(inner, outer)
		})
	})
}

// built lists the layers of a room with this profile. Without LayerNotify, attempts are stopped but not seen.
func (m *machine) built(p Profile, watched bool) []string {
	l := p.Limits.WithDefaults()
	return layersThat([]layerIf{
		{LayerNamespaces, m.UserNS}, {LayerPid, m.PidNS}, {LayerNetwork, m.NetNS && p.Network != NetworkAll},
		{LayerMounts, m.Mounts}, {LayerPrivileges, true}, {LayerLandlock, m.Landlock > 0}, {LayerSeccomp, m.Seccomp},
		{LayerNotify, m.Notify && (watched || !p.Subprocess)}, {LayerLimits, true},
		{LayerMemory, l.Memory > 0 && m.groups.why[ctlMemory] == nil},
		{LayerPids, l.Processes > 0 && m.groups.why[ctlPids] == nil}, {LayerCPU, l.CPU > 0},
	})
}
