//go:build linux

package sandbox

import (
	"errors"
	"testing"
)

// Without makes this machine lack layers, for a test.
func Without(t *testing.T, layers ...string) {
	t.Helper()
	real := thisMachine
	full := real()
	m := &machine{
		UserNS: full.UserNS, PidNS: full.PidNS, NetNS: full.NetNS, IPCNS: full.IPCNS, Mounts: full.Mounts, Proc: full.Proc,
		Seccomp: full.Seccomp, Notify: full.Notify, Landlock: full.Landlock, groups: full.groups, lastCap: full.lastCap, root: full.root,
		base: full.base, system: full.system, laid: map[int]*laid{}, why: map[string]string{},
	}
	groups := *full.groups
	groups.why = map[string]error{}
	for _, layer := range layers {
		switch layer {
		case LayerLandlock:
			m.Landlock = 0
		case LayerMounts:
			m.Mounts, m.Proc = false, false
		case LayerNetwork:
			m.NetNS = false
		case LayerNotify:
			m.Notify = false
		case LayerSeccomp:
			m.Seccomp, m.Notify = false, false
		case LayerNamespaces:
			m.UserNS, m.PidNS, m.NetNS, m.IPCNS, m.Mounts, m.Proc = false, false, false, false, false, false
		case LayerMemory:
			groups.why[ctlMemory] = errors.New("taken away")
		case LayerPids:
			groups.why[ctlPids] = errors.New("taken away")
		case LayerCPU:
			groups.why[ctlCPU] = errors.New("taken away")
		}
	}
	for name, err := range full.groups.why {
		if err != nil {
			groups.why[name] = err
		}
	}
	m.groups = &groups
	ours.close()
	thisMachine = func() *machine { return m }
	t.Cleanup(func() {
		ours.close()
		thisMachine = real
	})
}

// Feasible removes from a profile what this machine cannot build and the test does not need.
func Feasible(p Profile) Profile {
	m := thisMachine()
	if m.Landlock == 0 {
		p.Unix = false
		if p.WriteOnly {
			p.Writable = nil
		}
	}
	if m.groups.why[ctlPids] != nil && !m.backstopPids() {
		p.Limits.Processes = -1
	}
	return p
}

// Missing lists the layers that this machine lacks.
func Missing() []string {
	var missing []string
	for _, l := range Probe() {
		if !l.Works {
			missing = append(missing, l.Name)
		}
	}
	return missing
}
