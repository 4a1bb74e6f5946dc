package hogs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"toolpost/internal/kit"
)

// A place is the folder of a server, and what is checked for leftovers.
type place struct {
	dir    string
	bin    string   // the server's program
	mark   string   // on the command line of every hog
	mounts []string // that existed before
}

// temp returns the folder of the server's temporary files.
func (p place) temp() string { return filepath.Join(p.dir, "tmp") }

// nothingLeft waits until nothing is left of servers that have ended, and of their tools.
func (p place) nothingLeft(t *testing.T, servers ...int) {
	t.Helper()
	kit.Until(t, func() error {
		for what, left := range map[string][]string{
			"processes of hogs": p.processes(""), "processes of the server": p.own(), "cgroups": groups(servers),
			"temporary files": list(p.temp()), "mounts": p.newMounts(),
		} {
			if len(left) > 0 {
				return fmt.Errorf("%d %s are left: %.500v", len(left), what, left)
			}
		}
		return nil
	})
}

// processes lists the processes of all hogs, or of one, by their folders in /proc. An ended process has no command line.
func (p place) processes(hog string) []string {
	var found []string
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range lines {
		text, _ := os.ReadFile(file)
		if strings.Contains(string(text), hog+"\x00"+p.mark+"\x00") {
			found = append(found, filepath.Dir(file))
		}
	}
	return found
}

// own lists the processes that run the server's program: itself, the stage of its sandbox, and empty rooms.
func (p place) own() []string {
	links, _ := filepath.Glob("/proc/[0-9]*/exe")
	return slices.DeleteFunc(links, func(link string) bool {
		program, _ := os.Readlink(link)
		return program != p.bin
	})
}

// clear kills the processes that a failed test left, so that they do not outlive the tests.
func (p place) clear() {
	for _, folder := range p.processes("") {
		if pid, err := strconv.Atoi(filepath.Base(folder)); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// groups lists the cgroups that servers made, anywhere in the hierarchies.
func groups(servers []int) []string {
	var found []string
	for _, pid := range servers {
		way := "/sys/fs/cgroup"
		for range 8 {
			some, _ := filepath.Glob(filepath.Join(way, fmt.Sprintf("toolpost-%d-*", pid)))
			found = append(found, some...)
			way += "/*"
		}
	}
	return found
}

func list(dir string) []string {
	files, _ := os.ReadDir(dir)
	var names []string
	for _, f := range files {
		names = append(names, f.Name())
	}
	return names
}

// newMounts lists the new mounts of rooms, and in our own folder. Other mounts may come and go meanwhile.
func (p place) newMounts() []string {
	return slices.DeleteFunc(mounts(), func(line string) bool {
		point := strings.Fields(line)[4]
		ours := slices.Contains([]string{"/", "/sys", "/proc", "/tmp", "/dev"}, point) || strings.HasPrefix(point, p.dir+"/")
		return !ours || slices.Contains(p.mounts, line)
	})
}

func mounts() []string {
	text, _ := os.ReadFile("/proc/self/mountinfo")
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}
