//go:build linux

package sandbox

import (
	"cmp"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"toolpost/tool"
)

// A machine lists what can be built here.
type machine struct {
	UserNS, PidNS, NetNS, IPCNS, Mounts, Proc, Seccomp, Notify bool

	Landlock int // its version; 0 if there is none
	groups   *controllers
	lastCap  int
	root     bool   // we are user 0
	base     string // a folder to build rooms on, whose contents no child is given
	why      map[string]string
	broken   error // why nothing confined can be started

	mu     sync.Mutex
	laid   map[int]*laid // by the number of cgroups to join
	system *view
}

// thisMachine probes the machine once, by building a room with every available layer.
var thisMachine = remember(probeMachine)

// Probe tries every layer and returns the results. It does so once for a program.
func Probe() []Layer { return thisMachine().layers() }

func probeMachine() *machine {
	m := &machine{
		UserNS: true, PidNS: true, NetNS: true, IPCNS: true, Mounts: true, Proc: true, Seccomp: true, Notify: true,
		Landlock: landlockVersion(), groups: findControllers("/"), lastCap: lastCap(), root: os.Geteuid() == 0,
		base: mountBase(), why: map[string]string{}, laid: map[int]*laid{},
	}
	if m.broken = spareFiles(probeFiles); m.broken != nil { // otherwise each layer would seem to be missing
		return m
	}
	if m.system, m.broken = systemView(); m.broken != nil {
		return m
	}
	m.groups.sweep()
	m.groups.probe()
	ours.hold()
	defer ours.release()
	for range 10 { // each round removes a layer
		err := m.try()
		if err == nil {
			return m
		}
		if wall, ok := errors.AsType[*wallError](err); !ok || outOfFiles(err) || !m.without(wall) {
			m.broken = err
			return m
		}
	}
	return m
}

// try builds a room with all remaining layers, and starts nothing in it.
func (m *machine) try() error {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close()
	p := Profile{Network: NetworkEgress, Proc: ProcOwn, Tmp: 1 << 20}
	c, err := m.start(Spawn{Path: "", Dir: "/", Files: []*os.File{null}, Confinement: Confinement{Profile: p}})
	if err != nil {
		return err
	}
	reap(c.Pid)
	c.End()
	return nil
}

// without removes the layer that failed, and those that depend on it. It reports whether another try makes sense.
func (m *machine) without(e *wallError) (hope bool) {
	clear(m.laid)
	layer, thing, _ := strings.Cut(e.what, ": ")
	off := func(works *bool, layer, why string) {
		hope = hope || *works
		*works, m.why[layer] = false, why
	}
	switch why := thing + ": " + e.errno.Error(); layer {
	case LayerNamespaces:
		if hope = m.root; !m.root || !m.UserNS { // root can build the rest without it
			m.IPCNS = false
			off(&m.PidNS, LayerPid, why)
			off(&m.NetNS, LayerNetwork, why)
			off(&m.Mounts, LayerMounts, why)
			off(&m.Proc, LayerProc, why)
		}
		off(&m.UserNS, LayerNamespaces, why)
	case layerGroup:
		for _, name := range controllerNames() {
			hope = hope || m.groups.why[name] == nil
			m.groups.why[name] = cmp.Or(m.groups.why[name], error(e))
		}
	case LayerPid:
		off(&m.Proc, LayerProc, "there is no pid namespace")
		off(&m.PidNS, LayerPid, why)
	case LayerNetwork:
		off(&m.NetNS, LayerNetwork, why)
	case LayerMounts:
		if strings.HasPrefix(thing, "proc on") {
			off(&m.Proc, LayerProc, why)
			break
		}
		off(&m.Proc, LayerProc, "there are no mounts of its own")
		off(&m.Mounts, LayerMounts, why)
	case LayerLandlock:
		hope, m.Landlock, m.why[layer] = m.Landlock > 0, 0, why
	case LayerSeccomp:
		if m.Notify {
			off(&m.Notify, LayerNotify, why)
		} else {
			off(&m.Seccomp, LayerSeccomp, why)
		}
	}
	return hope
}

// ground returns the ground of a room for a profile. A room that may use Unix sockets has a network namespace of its own
// even without network, since socket names belong to one.
func (m *machine) ground(p Profile) ground {
	outside := p.Network == NetworkAll || !m.NetNS
	var flags uintptr
	for flag, on := range map[uintptr]bool{
		unix.CLONE_NEWUSER: m.UserNS, unix.CLONE_NEWNS: m.Mounts,
		unix.CLONE_NEWNET: !outside && (p.Network != NetworkNone || p.Unix),
		unix.CLONE_NEWIPC: m.IPCNS, unix.CLONE_NEWUTS: m.IPCNS,
	} {
		if on {
			flags |= flag
		}
	}
	return ground{flags, outside}
}

// privileged reports whether a child starts with capabilities that must be dropped.
func (m *machine) privileged() bool { return m.UserNS || m.root }

// backstopPids reports whether processes are counted by user, which the kernel does for each user namespace separately,
// and not for user 0.
func (m *machine) backstopPids() bool { return m.groups.why[ctlPids] != nil && m.UserNS && !m.root }

func lastCap() int {
	n, err := strconv.Atoi(readText("/proc/sys/kernel/cap_last_cap"))
	if err != nil {
		return 63
	}
	return n
}

// mountBase finds a folder on which a room can be built.
func mountBase() string {
	for _, path := range []string{"/sys", "/proc"} {
		if info, err := os.Lstat(path); err == nil && info.IsDir() {
			return path
		}
	}
	return "/"
}

func (m *machine) layers() []Layer {
	landlock := "version " + strconv.Itoa(m.Landlock)
	if m.Landlock == 0 {
		landlock = "this kernel has none"
	}
	all := []Layer{
		{LayerNamespaces, m.UserNS, "", "walls do not need root"},
		{LayerPid, m.PidNS, "", "a tool sees only its own processes, and they all end with it"},
		{LayerNetwork, m.NetNS, "", "a tool without network access cannot reach any network"},
		{LayerMounts, m.Mounts, "", "a tool sees only the files that it is given"},
		{LayerProc, m.Proc, "", "a tool may see its own processes in /proc"},
		{LayerLandlock, m.Landlock > 0, landlock, "a tool reads, changes and runs only the paths that it is given"},
		{LayerSeccomp, m.Seccomp, "", "sockets, new processes and system calls that no tool needs can be refused"},
		{LayerNotify, m.Notify, "", "refused attempts are reported, and the guarantee no_subprocess can be kept"},
		{LayerPrivileges, m.broken == nil, "", "a tool has no capability and cannot get one"},
		{LayerLimits, m.broken == nil, "", "the open files, file sizes and processor time of a process are limited"},
		m.groupLayer(LayerMemory, ctlMemory, "the memory of all processes of a tool together is limited",
			"each process of a tool may use 512 MiB; a source whose walls set `memory` is refused"),
		m.groupLayer(LayerPids, ctlPids, "the number of processes of a tool is limited", m.uncounted()),
		m.groupLayer(LayerCPU, ctlCPU, "the processor time of a tool is limited",
			"a source whose walls set `cpu` is refused"),
	}
	for i, l := range all {
		if why := m.why[l.Name]; why != "" {
			all[i].Why = why
		}
		if m.broken != nil {
			all[i].Works, all[i].Why = false, m.broken.Error()
		}
	}
	return all
}

// groupLayer returns a layer of cgroups: its purpose, and the effect of its absence.
func (m *machine) groupLayer(name, controller, means, without string) Layer {
	l := Layer{Name: name, Works: m.groups.why[controller] == nil, Means: means}
	if !l.Works {
		l.Why, l.Means = m.groups.why[controller].Error(), "without it "+without
	}
	return l
}

// uncounted describes a limit of processes without cgroups.
func (m *machine) uncounted() string {
	if m.backstopPids() {
		return "processes are counted by user, separately in each sandbox"
	}
	return "a source is refused unless its walls say `processes: -1`"
}

// probeFiles is the minimum number of descriptors that probing a machine takes.
const probeFiles = 16

// outOfFiles reports whether a failure was due to a lack of descriptors. That has nothing to do with the machine's walls,
// and a retry may succeed.
func outOfFiles(err error) bool { return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) }

// tooFewFiles returns an error that names the limit and what to do about it.
func tooFewFiles(err error) error {
	var limit unix.Rlimit
	_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) // of ourselves, which cannot fail
	return tool.Errorf(tool.CodeUnavailable,
		"the limit of %d open files is too low to build the walls around a tool: %w; raise it (ulimit -n)",
		limit.Cur, err).Because(CoverageMissing)
}

// spareFiles returns an error unless n more descriptors are available.
func spareFiles(n int) error {
	for range n {
		f, err := os.Open(os.DevNull)
		if err != nil {
			return err
		}
		defer f.Close()
	}
	return nil
}

// remember caches the result of probe, unless there were too few descriptors to complete it.
func remember(probe func() *machine) func() *machine {
	var mu sync.Mutex
	var found *machine
	return func() *machine {
		mu.Lock()
		defer mu.Unlock()
		if found == nil || outOfFiles(found.broken) {
			found = probe()
		}
		return found
	}
}
