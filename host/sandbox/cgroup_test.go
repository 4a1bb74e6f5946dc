//go:build linux

package sandbox

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"toolpost/internal/kit"

	"golang.org/x/sys/unix"
)

// hierarchy returns a root folder with proc and sys as a machine shows them.
func hierarchy(t *testing.T, groups, mounts string, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	all := map[string]string{"proc/self/cgroup": groups, "proc/self/mountinfo": mounts}
	for name, content := range files {
		all["sys/fs/cgroup/"+name] = content
	}
	for name, content := range all {
		path := filepath.Join(root, name)
		kit.OK(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)))
	}
	return root
}

const (
	mountV2     = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
	mountHybrid = "31 30 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
	mountMemory = "32 30 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
	mountPids   = "33 30 0:29 /docker/abc /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
	mountCPU    = "34 30 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
)

func TestCgroupControllersAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		groups, mounts string
		v1             map[string]string
		v2             string
	}{
		"unified":   {"0::/user.slice/app", mountV2, nil, "sys/fs/cgroup/user.slice/app"},
		"delegated": {"0::/", mountV2, nil, "sys/fs/cgroup"},
		"version 1": {"4:memory:/x\n2:cpu,cpuacct:/y\n", mountMemory + mountCPU, map[string]string{"memory": "sys/fs/cgroup/memory/x", "cpu": "sys/fs/cgroup/cpu,cpuacct/y"}, ""},
		"hybrid": {"4:memory:/x\n3:pids:/docker/abc/in\n0::/z\n", mountHybrid + mountMemory + mountPids,
			map[string]string{"memory": "sys/fs/cgroup/memory/x", "pids": "sys/fs/cgroup/pids/in"}, "sys/fs/cgroup/unified/z"},
		"elsewhere":   {"3:pids:/other\n", mountPids, nil, ""},
		"none":        {"", "", nil, ""},
		"not a table": {"x\n:::\n\x00", "a b c - cgroup\n - \n", nil, ""},
	} {
		root := hierarchy(t, c.groups, c.mounts, nil)
		got := findControllers(root)
		want := map[string]string{}
		for k, v := range c.v1 {
			want[k] = filepath.Join(root, v)
		}
		if fmt.Sprint(got.v1) != fmt.Sprint(want) || c.v2 == "" != (got.v2 == "") || c.v2 != "" && got.v2 != filepath.Join(root, c.v2) {
			t.Errorf("%s: %v, %q", name, got.v1, got.v2)
		}
	}
}

func TestVersion2IsEnabledForTheGroupsBelow(t *testing.T) {
	root := hierarchy(t, "0::/", mountV2, map[string]string{
		"cgroup.controllers": "cpuset cpu memory pids", "cgroup.subtree_control": "memory", "cgroup.procs": fmt.Sprint(os.Getpid()),
	})
	c := findControllers(root)
	for _, name := range controllerNames() {
		kit.Check(t, c.offer(name), name)
	}
	c = findControllers(hierarchy(t, "0::/", mountV2, map[string]string{"cgroup.controllers": "cpu", "cgroup.subtree_control": ""}))
	c.probe()
	if c.why[ctlMemory] == nil || c.why[ctlPids] == nil {
		t.Error("what is not offered was taken for granted")
	}
}

func TestProcessorShareFitsTheKernelsLimits(t *testing.T) {
	for processors, want := range map[float64][2]string{
		2: {"20000", "10000"}, 0.1: {"1000", "10000"}, 0.05: {"1000", "20000"}, 0.001: {"1000", "1000000"}, 0.0001: {"1000", "1000000"},
	} {
		if quota, period := share(processors); quota != want[0] || period != want[1] {
			t.Errorf("%v processors: %s of %s", processors, quota, period)
		}
	}
}

func TestLimitsAreWrittenInTheWordsOfEachVersion(t *testing.T) {
	l := Limits{Memory: 1 << 20, Processes: 7, CPU: 1.5}
	for _, c := range []struct {
		name string
		v2   bool
		want map[string]string
	}{
		{ctlMemory, true, map[string]string{"memory.max": "1048576", "memory.swap.max": "0"}},
		{ctlMemory, false, map[string]string{"memory.limit_in_bytes": "1048576"}},
		{ctlPids, true, map[string]string{"pids.max": "8"}},
		{ctlCPU, true, map[string]string{"cpu.max": "15000 10000", "cpu.weight": "2"}},
		{ctlCPU, false, map[string]string{"cpu.cfs_quota_us": "15000", "cpu.cfs_period_us": "10000", "cpu.shares": "20"}},
	} {
		dir := t.TempDir()
		for file := range c.want {
			kit.OK(t, os.WriteFile(filepath.Join(dir, file), nil, 0o644))
		}
		kit.Check(t, setLimit(c.name, dir, c.v2, l))
		for file, want := range c.want {
			kit.Equal(t, readText(filepath.Join(dir, file)), want, file)
		}
	}
	if err := setLimit(ctlPids, filepath.Join(t.TempDir(), "none"), true, l); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a limit that cannot be set: %v", err)
	}
}

func TestOnlyGroupsOfTheDeadAreSwept(t *testing.T) {
	dir := t.TempDir()
	c := &controllers{v2: dir}
	kit.OK(t, enter(dir))
	keep := []string{groupName(ourNumber(), 1), "toolpost-x-y-z", "toolpost-12-34-5", "other", "toolpost-host"}
	gone := []string{groupName(ourNumber()+1, 1), groupName(5, 2)}
	for _, name := range append(slices.Clone(keep), gone...) {
		kit.OK(t, os.Mkdir(filepath.Join(dir, name), 0o755))
	}
	c.sweep()
	var left []string
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		left = append(left, e.Name())
	}
	slices.Sort(keep)
	kit.Equal(t, strings.Join(left, " "), strings.Join(keep, " "), "left are %v and not %v", left, keep)
}

// Environment variables that make this binary another program: one makes a group in a folder and stays, one clears a
// group.
const (
	sweepMake  = "SANDBOX_TEST_SWEEP_MAKE"
	sweepClear = "SANDBOX_TEST_SWEEP_CLEAR"
)

// TestSweepHelper is another program, if the environment says so.
func TestSweepHelper(t *testing.T) {
	if folder := os.Getenv(sweepMake); folder != "" {
		path := filepath.Join(folder, groupName(ourNumber(), 1))
		kit.OK(t, errors.Join(enter(folder), os.Mkdir(path, 0o755)))
		_ = writeTo(filepath.Join(path, "cgroup.procs"), "0") // joins it, if it is a real one
		fmt.Println("made", path)
		_, _ = io.Copy(io.Discard, os.Stdin)
	}
	if path := os.Getenv(sweepClear); path != "" {
		clearGroup(path)
	}
}

func helper(t *testing.T, before []string, env string) *exec.Cmd {
	t.Helper()
	words := append(slices.Clone(before), os.Args[0], "-test.run", "^TestSweepHelper$", "-test.v")
	cmd := exec.CommandContext(t.Context(), words[0], words[1:]...)
	cmd.Env = append(os.Environ(), env)
	return cmd
}

// Two programs that do not see each other's processes leave each other's groups alone, with all processes in them. The
// groups of a killed program are removed.
func TestGroupsOfAProgramWithOtherProcessNumbersAreLeftAlone(t *testing.T) {
	unshare := []string{"unshare", "--pid", "--fork", "--mount-proc", "--kill-child"}
	if os.Getuid() != 0 {
		unshare = append(unshare, "--user", "--map-root-user")
	}
	if out, err := exec.CommandContext(t.Context(), unshare[0], append(unshare[1:], "true")...).CombinedOutput(); err != nil {
		t.Skipf("this machine gives no PID namespace: %v: %s", err, out)
	}
	folders := []string{t.TempDir()}
	if real := findControllers("/").v1[ctlPids]; real != "" && unix.Access(real, unix.W_OK) == nil {
		folders = append(folders, real)
	}
	for _, folder := range folders {
		cmd := helper(t, unshare, sweepMake+"="+folder)
		in, _ := cmd.StdinPipe()
		out, err := cmd.StdoutPipe()
		if err = errors.Join(err, cmd.Start()); err != nil {
			t.Fatal(err)
		}
		path := ""
		for lines := bufio.NewScanner(out); path == "" && lines.Scan(); {
			_, path, _ = strings.Cut(lines.Text(), "made ")
		}
		c := &controllers{v1: map[string]string{ctlPids: folder}}
		c.sweep()
		if _, err := os.Stat(path); path == "" || err != nil {
			t.Errorf("%s: the group of a program that lives was swept: %v", folder, err)
		}
		_ = cmd.Process.Kill()
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
		in.Close()
		kit.Eventually(t, folder+": the group of a program that is gone is swept", func() bool {
			c.sweep()
			return errors.Is(exists(path), fs.ErrNotExist)
		})
	}
}

func exists(path string) error {
	_, err := os.Stat(path)
	return err
}

// A process that cannot be seen has pid 0 in the list of a group. A signal to 0 would go to ourselves.
func TestNoSignalIsSentToProcessZero(t *testing.T) {
	group := t.TempDir()
	kit.OK(t, os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte("0\n1\n-1\nx\n"), 0o644))
	cmd := helper(t, nil, sweepClear+"="+group)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("the program that swept: %v\n%s", err, out)
	}
	kit.Check(t, exists(group))
}

// Without a group there is nothing to read, least of all files with the same names in our own folder.
func TestMissingCgroupIsNotReadFromTheWorkingFolder(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"pids.current", "memory.events", "memory.oom_control", "pids.events", "cgroup.controllers"} {
		kit.OK(t, syscall.Mkfifo(name, 0o600)) // opening it blocks for ever
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if g := (&group{}); g.only(1) || len(g.reached()) > 0 {
			t.Error("a group that is not there is known")
		}
		kit.Fails(t, (&controllers{}).offer(ctlMemory), "", "a hierarchy that is not there has a controller")
	}()
	kit.Receive(t, "no file in our own folder is waited for", done)
}

func FuzzInterpreterOf(f *testing.F) {
	f.Add([]byte("#!/usr/bin/env python3\n"))
	f.Add([]byte("#!"))
	if program, err := os.ReadFile("/bin/true"); err == nil {
		f.Add(program[:min(len(program), 1024)])
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		path := filepath.Join(t.TempDir(), "program")
		kit.OK(t, os.WriteFile(path, content, 0o755))
		interpreterOf(path)
	})
}

func FuzzControllers(f *testing.F) {
	f.Add("0::/user.slice", mountV2)
	f.Add("4:memory:/x\n0::/", mountHybrid+mountMemory+mountPids+mountCPU)
	f.Fuzz(func(t *testing.T, groups, mounts string) {
		findControllers(hierarchy(t, groups, mounts, nil))
	})
}
