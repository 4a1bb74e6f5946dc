package tooltest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// NoLeaks fails t if, after its other clean-ups, there are goroutines or processes that did not exist when NoLeaks was
// called. So call it first. Processes are the descendants of this process, including zombies, and everything the spawn
// tool started, wherever it is now. They get a minute to end, since the machine may be busy with more than this.
// Goroutines that may stay are named by ignore.
//
// It looks at the whole test process: do not use it in parallel tests.
func NoLeaks(t testing.TB, ignore ...goleak.Option) {
	t.Helper()
	noLeaks(t, time.Minute, ignore)
}

func noLeaks(t testing.TB, patience time.Duration, ignore []goleak.Option) {
	t.Helper()
	ignore = append(slices.Clone(ignore), goleak.IgnoreCurrent())
	before := ours()
	t.Cleanup(func() {
		var left []proc
		err := eventually(patience, func() error {
			left = slices.DeleteFunc(ours(), func(p proc) bool { return slices.ContainsFunc(before, p.same) })
			return errors.Join(goleak.Find(ignore...), describe(left))
		})
		if err != nil {
			t.Errorf("something is left behind: %v", err)
		}
		end(left)
	})
}

// Descendants lists the processes below pid, including zombies, as far as /proc shows them.
func Descendants(pid int) []int {
	var pids []int
	for _, p := range descendants(processes(), pid) {
		pids = append(pids, p.pid)
	}
	return pids
}

// A proc is one process, as described in /proc/PID/stat.
type proc struct {
	pid, ppid   int
	name, state string
	start       string // when it was started: distinguishes it from a later one with the same pid
}

func (p proc) same(q proc) bool { return p.pid == q.pid && p.start == q.start }

func (p proc) String() string {
	if p.state == "Z" {
		return fmt.Sprintf("process %d (%s), which has ended and was not waited for", p.pid, p.name)
	}
	return fmt.Sprintf("process %d (%s)", p.pid, p.name)
}

// ours lists our descendants and the processes of the spawn tool.
func ours() []proc {
	all := processes()
	list := descendants(all, os.Getpid())
	for _, p := range all {
		if p.marked() && !slices.ContainsFunc(list, p.same) {
			list = append(list, p)
		}
	}
	return list
}

func descendants(all []proc, pid int) []proc {
	var below []proc
	for _, p := range all {
		if p.ppid == pid {
			below = append(append(below, p), descendants(all, p.pid)...)
		}
	}
	return below
}

// processes reads the names in /proc itself: filepath.Glob would list every process's folder too, to find stat in it.
func processes() []proc {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1) // the names read before an error count
	var all []proc
	for _, name := range names {
		if name[0] < '0' || name[0] > '9' {
			continue
		}
		b, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue // it has ended meanwhile
		}
		if p, ok := parseStat(string(b)); ok {
			all = append(all, p)
		}
	}
	return all
}

// parseStat reads "pid (name) state ppid ... start ...". The name may hold anything, brackets too.
func parseStat(stat string) (proc, bool) {
	pid, rest, _ := strings.Cut(stat, " (")
	last := strings.LastIndex(rest, ") ")
	if last < 0 {
		return proc{}, false
	}
	fields := strings.Fields(rest[last+2:])
	if len(fields) < 20 {
		return proc{}, false
	}
	p := proc{name: rest[:last], state: fields[0], start: fields[19]}
	var errPid, errParent error
	p.pid, errPid = strconv.Atoi(pid)
	p.ppid, errParent = strconv.Atoi(fields[1])
	return p, errPid == nil && errParent == nil
}

// mark is the argument that the spawn tool passes to sleep: a long time, and the pid of the test process.
func mark() string { return fmt.Sprintf("99999.%010d", os.Getpid()) }

// marked reports whether the spawn tool started it. It reads the arguments only of processes called sleep: otherwise
// each look of a test would read a file for each process of the machine.
func (p proc) marked() bool {
	if p.name != "sleep" {
		return false
	}
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid))
	return err == nil && bytes.HasSuffix(cmdline, []byte("\x00"+mark()+"\x00"))
}

// sleepers lists the processes of the spawn tool that still exist.
func sleepers() []proc {
	return slices.DeleteFunc(processes(), func(p proc) bool { return !p.marked() })
}

func describe(left []proc) error {
	var errs []error
	for _, p := range left {
		errs = append(errs, errors.New(p.String()))
	}
	return errors.Join(errs...)
}

// end kills the processes that a failed test left, so that they do not outlive the tests.
func end(left []proc) {
	for _, p := range left {
		_ = syscall.Kill(p.pid, syscall.SIGKILL)
	}
}

// eventually retries until cond returns nil or patience is over, and returns the last error.
func eventually(patience time.Duration, cond func() error) error {
	deadline := time.Now().Add(patience)
	for {
		err := cond()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}
