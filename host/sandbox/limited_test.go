package sandbox_test

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"toolpost/host/process"
	"toolpost/host/sandbox"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// held starts a shell that waits in a cgroup for a line, and then does what the script says.
func held(t *testing.T, l sandbox.Limits, script string) (*sandbox.Limited, *process.Child) {
	t.Helper()
	limited, err := sandbox.Limit(l)
	if err != nil {
		t.Skipf("no limits can be held here: %v", err)
	}
	t.Cleanup(limited.Remove)
	child, err := process.Start(process.Command{Argv: []string{"/bin/sh", "-c", "read line; " + script}, Env: []string{"PATH=/usr/bin:/bin"}})
	must(t, err)
	t.Cleanup(child.Close)
	must(t, limited.Join(child.Pid()))
	return limited, child
}

// groupsOf lists the folders of the cgroups of our own that a process is in.
func groupsOf(t *testing.T, pid int) []string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	must(t, err)
	var names, folders []string
	for line := range strings.Lines(string(text)) {
		if name := filepath.Base(strings.TrimSpace(line)); strings.HasPrefix(name, "toolpost-") {
			names = append(names, name)
		}
	}
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && slices.Contains(names, d.Name()) {
			folders = append(folders, path)
		}
		return nil
	})
	return folders
}

func TestLimitsHoldForAProcessThatJoins(t *testing.T) {
	tooltest.NoLeaks(t)
	for want, script := range map[string]string{
		"memory (32 MiB)": "head -c 200000000 /dev/zero | tail -c 150000000 >/dev/null",
		"processes (8)":   "for n in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 3600 & done; exit 1",
	} {
		limited, child := held(t, sandbox.Limits{Memory: 32 << 20, Processes: 8, CPU: 1}, script)
		folders := groupsOf(t, child.Pid())
		if met := limited.Reached(); len(met) > 0 || len(folders) == 0 {
			t.Errorf("before it began: %q, %q", met, folders)
		}
		child.Feed([]byte("go\n"))
		child.Wait()
		if met := limited.Reached(); len(met) != 1 || met[0] != want {
			t.Errorf("%q and not %s", met, want)
		}
		limited.Remove()
		for _, folder := range folders {
			if _, err := os.Stat(folder); err == nil {
				t.Errorf("%s is left", folder)
			}
		}
	}
}

func TestRemoveEndsWhoIsLeft(t *testing.T) {
	tooltest.NoLeaks(t)
	limited, child := held(t, sandbox.Limits{}, "true")
	limited.Remove()
	limited.Remove()
	select {
	case <-child.Exited():
	case <-time.After(hang):
		t.Error("it lives on")
		child.Kill()
	}
	if exit := child.Wait(); exit.Signal != syscall.SIGKILL {
		t.Errorf("it ended with %v", exit)
	}
}

func TestALimitThatCannotBeHeldIsRefused(t *testing.T) {
	for layer, l := range map[string]sandbox.Limits{
		sandbox.LayerMemory: {Processes: -1}, sandbox.LayerPids: {Memory: -1}, sandbox.LayerCPU: {Memory: -1, Processes: -1, CPU: 0.5},
	} {
		t.Run(layer, func(t *testing.T) {
			sandbox.Without(t, layer)
			_, err := sandbox.Limit(l)
			if e := tool.AsError(err); e == nil || e.Reason != sandbox.CoverageMissing || !strings.Contains(e.Message, layer) {
				t.Errorf("got %v", err)
			}
			none, err := sandbox.Limit(sandbox.Limits{Memory: -1, Processes: -1})
			must(t, err)
			none.Remove()
		})
	}
}

func TestFilterIsAFileOfInstructions(t *testing.T) {
	for _, network := range []sandbox.Network{sandbox.NetworkNone, sandbox.NetworkLoopback, sandbox.NetworkAll} {
		f, err := sandbox.Filter(network)
		if err != nil {
			t.Skipf("no filter here: %v", err)
		}
		code, err := io.ReadAll(f)
		_ = f.Close()
		if err != nil || len(code) == 0 || len(code)%8 != 0 {
			t.Errorf("%v: %d bytes, %v", network, len(code), err)
		}
	}
	sandbox.Without(t, sandbox.LayerSeccomp)
	if _, err := sandbox.Filter(sandbox.NetworkNone); tool.AsError(err) == nil || tool.AsError(err).Reason != sandbox.CoverageMissing {
		t.Errorf("got %v", err)
	}
}
