package sandbox

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// limits sets what each process may use. What counts for all of a room's processes together are its cgroups.
func (p *plan) limits() {
	p.in(LayerLimits)
	l := p.Limits.withDefaults()
	p.limit("core", unix.RLIMIT_CORE, 0, 0)
	p.atMost("files", unix.RLIMIT_NOFILE, int64(l.Files))
	p.atMost("file size", unix.RLIMIT_FSIZE, l.FileSize)
	if l.CPUTime > 0 {
		// The first brings a signal that can be caught, the second does not.
		seconds := uint64((l.CPUTime + time.Second - 1) / time.Second)
		p.limit("cpu time", unix.RLIMIT_CPU, seconds, seconds+1)
	}
	if p.on.backstopMemory() {
		// Of one process, not of all: so this is the default only, and whoever asks for a limit is refused
		// (cover). To watch the sum and end the room when it is too large was considered; what is looked at now
		// and then is no wall. It counts what can be written to, not what is merely reserved, which would stop
		// the runtimes that reserve much.
		p.atMost("memory", unix.RLIMIT_DATA, l.Memory)
	}
	if p.on.backstopPids() {
		p.atMost("processes", unix.RLIMIT_NPROC, int64(l.Processes)+1) // the init is one
	}
}

// atMost lowers a limit; a negative one is none.
func (p *plan) atMost(what string, resource int, n int64) {
	if n >= 0 {
		p.limit(what, resource, uint64(n), uint64(n))
	}
}

func (p *plan) limit(what string, resource int, soft, hard uint64) {
	var now unix.Rlimit
	if unix.Getrlimit(resource, &now) == nil { // more than we have nobody can give
		soft, hard = min(soft, now.Max), min(hard, now.Max)
	}
	p.call(what, unix.SYS_PRLIMIT64, number(0), number(resource), p.words(number(soft), number(hard)), number(0))
}

func idMap(id int) string { return fmt.Sprintf("%d %d 1", id, id) }
