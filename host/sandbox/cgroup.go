//go:build linux

package sandbox

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"toolpost/config/offlimits"
)

// controllers are the folders below which this program may make cgroups: by controller, in version 1 or 2 of the
// hierarchy.
type controllers struct {
	v1  map[string]string // by controller
	v2  string            // empty if there is none
	why map[string]error  // a controller that cannot be used, and why
}

// ourNumber identifies this program among those that make groups, in any container: pids would not be unique.
var ourNumber = sync.OnceValue(func() int64 {
	return rand.Int64N(1<<62-1) + 1 //nolint:gosec // a name, not a secret
})

// entered holds the locks on the folders in which this program has announced itself, until it ends.
var entered struct {
	mu    sync.Mutex
	locks []*os.File
}

// groupSerial numbers the groups of this program.
var groupSerial atomic.Uint64

// groupName names a group after the program that made it, so that a later program can tell whether that one still runs.
func groupName(number int64, serial uint64) string {
	return fmt.Sprintf("toolpost-%016x-%d", number, serial)
}

// enter locks the byte of a folder that has this program's number as its offset, before it makes a group there. The
// kernel releases the lock when the program ends, not before, and shows it to every process that sees the folder.
func enter(folder string) error {
	entered.mu.Lock()
	defer entered.mu.Unlock()
	if slices.ContainsFunc(entered.locks, func(f *os.File) bool { return f.Name() == folder }) {
		return nil
	}
	f, err := os.Open(folder)
	if err != nil {
		return err
	}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK,
		&unix.Flock_t{Type: unix.F_RDLCK, Start: ourNumber(), Len: 1}); err != nil {
		f.Close()
		return fmt.Errorf("%s cannot be locked: %w", folder, err)
	}
	entered.locks = append(entered.locks, f)
	return nil
}

// findControllers looks up the cgroups of this program, in a root that has proc and sys.
func findControllers(root string) *controllers {
	c := &controllers{v1: map[string]string{}, why: map[string]error{}}
	places := ownGroups(filepath.Join(root, "proc/self/cgroup"))
	for _, m := range groupMounts(filepath.Join(root, "proc/self/mountinfo")) {
		for _, name := range append(controllerNames(), "") {
			place, in := places[name]
			if !in || (name == "") != m.v2 || name != "" && !slices.Contains(m.options, name) ||
				!offlimits.Within(place, m.root) {
				continue
			}
			// a group's path below the root of the mount
			folder := filepath.Join(root, m.point, strings.TrimPrefix(place, m.root))
			if m.v2 {
				c.v2 = folder
			} else {
				c.v1[name] = folder
			}
		}
	}
	return c
}

// ownGroups reads our cgroups from /proc/self/cgroup, by controller; version 2 has the empty name.
func ownGroups(path string) map[string]string {
	places := map[string]string{}
	for line := range lines(path) {
		if fields := strings.SplitN(line, ":", 3); len(fields) == 3 {
			for name := range strings.SplitSeq(fields[1], ",") {
				places[name] = fields[2]
			}
		}
	}
	return places
}

// A groupMount is the mount point of a hierarchy.
type groupMount struct {
	root, point string
	v2          bool
	options     []string
}

// groupMounts reads /proc/self/mountinfo.
func groupMounts(path string) []groupMount {
	var mounts []groupMount
	for line := range lines(path) {
		before, after, ok := strings.Cut(line, " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !ok || len(left) < 5 || len(right) < 3 || !strings.HasPrefix(right[0], "cgroup") {
			continue
		}
		mounts = append(mounts, groupMount{
			root: left[3], point: left[4], v2: right[0] == "cgroup2", options: strings.Split(right[2], ","),
		})
	}
	return mounts
}

func lines(path string) iter.Seq[string] { return strings.SplitSeq(readText(path), "\n") }

// probe makes a group and sets every limit, to find out which are available.
func (c *controllers) probe() {
	for _, name := range controllerNames() {
		err := c.offer(name)
		if err == nil {
			var g *group
			if g, err = c.make(name); err == nil {
				err = g.limit(Limits{Memory: 64 << 20, Processes: 16, CPU: 1})
				g.remove()
			}
		}
		c.why[name] = err
	}
}

// offer enables a controller of version 2 for the groups below ours. A group that has processes cannot do that unless it
// is the root; if we are the only ones in it, we move into a subgroup. In version 1 there is nothing to do.
func (c *controllers) offer(name string) error {
	if c.v1[name] != "" {
		return nil
	}
	if c.v2 == "" || !slices.Contains(strings.Fields(readText(filepath.Join(c.v2, "cgroup.controllers"))), name) {
		return errors.New("no hierarchy of cgroups has this controller for us")
	}
	err := c.enableOne(name)
	if errors.Is(err, syscall.EBUSY) && c.moveDown() == nil {
		err = c.enableOne(name)
	}
	return err
}

func (c *controllers) enableOne(name string) error {
	control := filepath.Join(c.v2, "cgroup.subtree_control")
	if slices.Contains(strings.Fields(readText(control)), name) {
		return nil
	}
	return writeTo(control, "+"+name)
}

// moveDown puts this program into a group of its own below the one it is in.
func (c *controllers) moveDown() error {
	for _, pid := range strings.Fields(readText(filepath.Join(c.v2, "cgroup.procs"))) {
		if n, _ := strconv.Atoi(pid); n != os.Getpid() && parentOf(n) != os.Getpid() {
			return fmt.Errorf("process %s shares our cgroup", pid)
		}
	}
	leaf := filepath.Join(c.v2, "toolpost-host")
	if err := os.Mkdir(leaf, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	for _, pid := range strings.Fields(readText(filepath.Join(c.v2, "cgroup.procs"))) {
		if err := writeTo(filepath.Join(leaf, "cgroup.procs"), pid); err != nil {
			return err
		}
	}
	return nil
}

func readText(path string) string {
	b, _ := os.ReadFile(path)
	return strings.TrimSpace(string(b))
}

// A group is the cgroup of a room: a folder for each hierarchy.
type group struct {
	folders map[string]string // by controller
	unified map[string]bool   // the controllers whose folder is in version 2
	procs   []*os.File        // the cgroup.procs files to join by
	limits  Limits

	mu    sync.Mutex
	count *os.File // pids.current, once it was read: it is read after each call of a warm program
}

// newGroup makes a group with the available controllers. It has no limits yet: joining a group takes the kernel a long
// time, so that is done in advance. Rooms have equal shares of the processors, however many processes are in each, and
// smaller shares than this program, which must stay responsive whatever happens in them.
func (c *controllers) newGroup() (*group, error) {
	g, err := c.make(slices.DeleteFunc(controllerNames(), func(name string) bool { return c.why[name] != nil })...)
	if err != nil {
		return nil, err
	}
	if folder := g.folders[ctlCPU]; folder != "" {
		if err := setWeight(folder, g.unified[ctlCPU], roomWeight); err != nil {
			g.remove()
			return nil, err
		}
	}
	return g, nil
}

// The weights of rooms when processors are short, compared to 100 for any other program. A room with limited processors
// yields to rooms without a limit: it is known to use a lot.
const (
	roomWeight    = 25
	limitedWeight = 2
)

func setWeight(folder string, v2 bool, weight int) error {
	file := "cpu.weight"
	if !v2 {
		file, weight = "cpu.shares", weight*1024/100
	}
	return writeTo(filepath.Join(folder, file), strconv.Itoa(weight))
}

func (c *controllers) make(names ...string) (*group, error) {
	g := &group{folders: map[string]string{}, unified: map[string]bool{}}
	own := groupName(ourNumber(), groupSerial.Add(1))
	for _, name := range names {
		parent := cmp.Or(c.v1[name], c.v2)
		folder := filepath.Join(parent, own)
		made := slices.Contains(slices.Collect(maps.Values(g.folders)), folder)
		if g.folders[name], g.unified[name] = folder, c.v1[name] == ""; made {
			continue
		}
		if err := g.make(parent, folder); err != nil {
			g.remove()
			return nil, err
		}
	}
	return g, nil
}

func (g *group) make(parent, folder string) error {
	if err := enter(parent); err != nil {
		return err
	}
	if err := os.Mkdir(folder, 0o755); err != nil {
		return err
	}
	procs, err := os.OpenFile(filepath.Join(folder, "cgroup.procs"), os.O_WRONLY, 0)
	if err == nil {
		g.procs = append(g.procs, procs)
	}
	return err
}

// limit sets the limits for which the group has controllers.
func (g *group) limit(l Limits) error {
	g.limits = l
	for name, wanted := range map[string]bool{ctlMemory: l.Memory > 0, ctlPids: l.Processes > 0, ctlCPU: l.CPU > 0} {
		if folder := g.folders[name]; wanted && folder != "" {
			if err := setLimit(name, folder, g.unified[name], l); err != nil {
				return err
			}
		}
	}
	return nil
}

// setLimit writes the limit of one controller.
func setLimit(name, folder string, v2 bool, l Limits) error {
	write := func(file, content string) error { return writeTo(filepath.Join(folder, file), content) }
	quota, period := share(l.CPU)
	bytes := strconv.FormatInt(l.Memory, 10)
	switch {
	case name == ctlPids:
		return write("pids.max", strconv.Itoa(l.Processes+1)) // the init is one
	case name == ctlMemory && v2:
		_ = write("memory.swap.max", "0") // there may be no swap
		return write("memory.max", bytes)
	case name == ctlMemory:
		err := write("memory.limit_in_bytes", bytes)
		_ = write("memory.memsw.limit_in_bytes", bytes) // there may be no swap accounting
		return err
	case v2:
		return errors.Join(setWeight(folder, v2, limitedWeight), write("cpu.max", quota+" "+period))
	default:
		return errors.Join(setWeight(folder, v2, limitedWeight), write("cpu.cfs_period_us", period),
			write("cpu.cfs_quota_us", quota))
	}
}

// share returns a room's quota of processor time and the period it is for, in microseconds. The period is short, so that
// a room that has used up its quota pauses only briefly; the kernel's minimum is 1 ms.
func share(processors float64) (quota, period string) {
	const least, short, long = 1000, 10_000, 1_000_000
	each := min(max(short, least/processors), long)
	return strconv.Itoa(max(least, int(processors*each))), strconv.Itoa(int(each))
}

// only reports whether the group is known to have at most n processes, including those that have ended but were not
// waited for.
func (g *group) only(n int) bool {
	folder := g.folders[ctlPids]
	if folder == "" { // the file of this name in our own folder counts other processes
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.count == nil {
		var err error
		if g.count, err = os.Open(filepath.Join(folder, "pids.current")); err != nil {
			return false
		}
	}
	var text [24]byte
	length, err := g.count.ReadAt(text[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return false
	}
	now, err := strconv.Atoi(string(bytes.TrimSpace(text[:length])))
	return err == nil && now <= n
}

// reached returns the limits that were reached, with their values.
func (g *group) reached() []Violation {
	var met []Violation
	happened := func(controller, file, what string) bool {
		folder := g.folders[controller]
		if folder == "" {
			return false
		}
		for line := range lines(filepath.Join(folder, file)) {
			if name, n, ok := strings.Cut(line, " "); ok && name == what && n != "0" {
				return true
			}
		}
		return false
	}
	if happened(ctlMemory, "memory.events", "oom_kill") || happened(ctlMemory, "memory.oom_control", "oom_kill") {
		met = append(met, Violation{Capability: "memory", Target: fmt.Sprintf("%d MiB", g.limits.Memory>>20)})
	}
	if happened(ctlPids, "pids.events", "max") {
		met = append(met, Violation{Capability: "processes", Target: strconv.Itoa(g.limits.Processes)})
	}
	return met
}

// close closes the files that were needed to join.
func (g *group) close() {
	for _, f := range g.procs {
		f.Close()
	}
	g.procs = nil
}

// removeTime is how long a group may take to become empty.
const removeTime = 5 * time.Second

// remove removes the group. The kernel needs a moment after the last process has ended.
func (g *group) remove() {
	g.close()
	g.mu.Lock()
	if g.count != nil {
		g.count.Close()
	}
	g.mu.Unlock()
	deadline := time.Now().Add(removeTime)
	for _, folder := range g.folders {
		for unix.Rmdir(folder) == unix.EBUSY && time.Now().Before(deadline) {
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// sweep removes the groups left by killed instances of this program, with all processes in them.
func (c *controllers) sweep() {
	for _, folder := range append(slices.Collect(maps.Values(c.v1)), c.v2) {
		left, _ := filepath.Glob(filepath.Join(folder, "toolpost-*-*"))
		for _, path := range left {
			if stale(path) {
				clearGroup(path)
			}
		}
	}
}

// stale reports whether the maker of a group is gone. A name that is not ours, or from an earlier version, is left alone.
func stale(path string) bool {
	var number int64
	var serial uint64
	name := filepath.Base(path)
	if n, err := fmt.Sscanf(name, "toolpost-%x-%d", &number, &serial); n != 2 || err != nil ||
		name != groupName(number, serial) || number == ourNumber() {
		return false
	}
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return false
	}
	defer folder.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: number, Len: 1}
	err = unix.FcntlFlock(folder.Fd(), unix.F_OFD_GETLK, &lock)
	return err == nil && lock.Type == unix.F_UNLCK
}

// clearGroup ends the processes of a group and removes it, if it can.
func clearGroup(path string) {
	for deadline := time.Now().Add(removeTime); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		ended := writeTo(filepath.Join(path, "cgroup.kill"), "1") == nil || killAll(path)
		if err := unix.Rmdir(path); err != unix.EBUSY || !ended {
			return
		}
	}
}

// writeTo writes to an existing file.
func writeTo(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// killAll ends the processes of a group, and reports whether it could. Processes in another PID namespace, which this
// program cannot see, are listed with pid 0, and a signal to 0 would go to ourselves.
func killAll(path string) bool {
	file := filepath.Join(path, "cgroup.procs")
	all := true
	for _, pid := range strings.Fields(readText(file)) {
		n, err := strconv.Atoi(pid)
		if err != nil || n <= 1 {
			all = false
			continue
		}
		fd, err := unix.PidfdOpen(n, 0)
		if err != nil {
			continue
		}
		if slices.Contains(strings.Fields(readText(file)), pid) { // it is still the process that was listed
			_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		}
		unix.Close(fd)
	}
	return all
}

// parentOf reads the parent from /proc/PID/stat: it follows the name, which may contain anything, and the state.
func parentOf(pid int) (parent int) {
	text := readText(fmt.Sprintf("/proc/%d/stat", pid))
	_, _ = fmt.Sscanf(text[strings.LastIndexByte(text, ')')+1:], "%s %d", new(string), &parent)
	return parent
}
