package sandbox

import (
	"io"
	"os"
	"strconv"

	"toolpost/tool"
)

// Where another program builds the room, such as bwrap, the limits and the filter of system calls are still ours: this is
// how it is given them.

// A Limited is a cgroup for processes that this package does not start.
type Limited struct{ group *group }

// Limit makes a cgroup with limits of memory, processors and processes; a 0 is the default and a negative number none, as
// in a Profile. The other limits belong to a process, and are left to whoever starts it. One that this machine cannot hold
// is an error with the reason coverage_missing. The caller calls Remove in the end.
func Limit(l Limits) (*Limited, error) {
	m, l := thisMachine(), l.withDefaults()
	if m.broken != nil {
		return nil, unlimited(m.broken.Error())
	}
	var names []string
	for _, c := range []struct {
		on          bool
		name, layer string
	}{{l.Memory > 0, ctlMemory, LayerMemory}, {l.Processes > 0, ctlPids, LayerPids}, {l.CPU > 0, ctlCPU, LayerCPU}} {
		switch {
		case c.on && m.groups.why[c.name] != nil:
			return nil, unlimited(m.explain(c.layer) + " is missing")
		case c.on:
			names = append(names, c.name)
		}
	}
	g, err := m.groups.make(names...)
	if err != nil {
		return nil, unavailable("no cgroup could be made", err)
	}
	err = g.limit(l)
	if folder := g.folders[ctlCPU]; err == nil && folder != "" { // a container is limited by default, and so no known hog
		err = setWeight(folder, g.unified[ctlCPU], roomWeight)
	}
	if err != nil {
		g.remove()
		return nil, unavailable("the limits of a cgroup could not be set", err)
	}
	return &Limited{g}, nil
}

func unlimited(why string) error {
	return tool.Errorf(tool.CodeUnsupported, "this machine cannot hold a limit that was asked for: %s; see toolpost doctor", why).Because(CoverageMissing)
}

// Join puts a process into the cgroup, and with it all that it starts from then on. What it started before stays outside.
func (l *Limited) Join(pid int) error {
	for _, procs := range l.group.procs {
		if _, err := procs.WriteString(strconv.Itoa(pid)); err != nil {
			return unavailable("a process could not be put into its cgroup", err)
		}
	}
	return nil
}

// Reached says which limits the processes have met, in the words of Confined.Reached.
func (l *Limited) Reached() []string { return l.group.reached() }

// Remove ends whoever is left and removes the cgroup. It may be called twice.
func (l *Limited) Remove() {
	l.group.close()
	for _, folder := range l.group.folders {
		clearGroup(folder)
	}
}

// Filter gives our filter of system calls as a file of instructions, struct sock_filter, for a child that another program
// puts into namespaces of its own. It has no Unix sockets but pairs, since those of others lie in any file system that it
// sees, and no way into further namespaces. The caller closes the file.
func Filter(n Network) (*os.File, error) {
	m := thisMachine()
	if !m.Seccomp {
		return nil, tool.Errorf(tool.CodeUnsupported, "this machine cannot filter system calls: %s is missing; see toolpost doctor", m.explain(LayerSeccomp)).Because(CoverageMissing)
	}
	f, err := filterPlan{network: n, subprocess: true, ownNetwork: n != NetworkAll, ownIPC: true, queues: true, ownMounts: true, ownPids: true}.compile()
	if err != nil {
		return nil, err
	}
	file, err := memoryFile(f.code)
	if err != nil {
		return nil, unavailable("no memory for a filter", err)
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		file.Close()
		return nil, unavailable("no memory for a filter", err)
	}
	return file, nil
}
