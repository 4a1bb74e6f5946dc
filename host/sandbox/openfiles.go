package sandbox

import (
	"errors"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"toolpost/tool"
)

// probeFiles is how many descriptors finding out about a machine takes, at the least.
const probeFiles = 16

// outOfFiles reports whether something failed for want of descriptors. That says nothing about the machine and its
// walls, and the next time there may be enough.
func outOfFiles(err error) bool { return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) }

// tooFewFiles says what to do about it.
func tooFewFiles(err error) error {
	var limit unix.Rlimit
	_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) // of ourselves, which cannot fail
	return tool.Errorf(tool.CodeUnavailable,
		"the limit of %d open files is too low to build the walls around a tool: %w; raise it (ulimit -n)",
		limit.Cur, err).Because(CoverageMissing)
}

// spareFiles is an error unless so many more descriptors can be had.
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

// remember finds out once, and again as long as there were too few descriptors to tell.
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
