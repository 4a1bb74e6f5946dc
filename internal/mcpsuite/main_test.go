package mcpsuite

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"toolpost/host/sandbox"
	"toolpost/tool/tooltest"
)

// orphanage is the argument that makes the test program run a peer instead of tests.
const orphanage = "orphanage"

func TestMain(m *testing.M) {
	if sandbox.Main() {
		return
	}
	if len(os.Args) > 2 && os.Args[1] == orphanage {
		os.Exit(runPeer(os.Args[2:]))
	}
	tooltest.DirectPython()
	os.Exit(m.Run())
}

// runPeer runs a program, waits for all processes that it leaves behind, and returns its exit status. The SDKs kill a
// server that has not ended four seconds after they hung up, which can happen on a busy machine. The children of such a
// server end by themselves, but without a parent that waits for them: in the test process they would look like a leak of
// the node there.
func runPeer(argv []string) int {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	_ = cmd.Run() // its exit status is used
	for {
		if _, err := unix.Wait4(-1, nil, 0, nil); err == unix.ECHILD {
			return cmd.ProcessState.ExitCode()
		}
	}
}
