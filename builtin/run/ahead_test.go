package run_test

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"toolpost/internal/kit"
	"toolpost/tool/tooltest"
)

// waiters returns the interpreters' children that wait for a program, if none runs.
func waiters() (pids []int) {
	for _, pid := range tooltest.Descendants(os.Getpid()) {
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if strings.HasPrefix(string(name), "tp:runCode") {
			pids = append(pids, pid)
		}
	}
	return pids
}

// While programs follow each other, a clean process waits for the next one. If it dies meanwhile, it is replaced, and the
// program does not notice.
func TestAProcessWaitsForTheNextProgram(t *testing.T) {
	w := newWorld(t, "{workers: 1}")
	known, killed := map[string]bool{}, 0
	kit.Eventually(t, "three that waited were killed", func() bool {
		o := w.run("python", "import random, uuid\nreturn f'{random.random()} {uuid.uuid4()}'")
		for word := range strings.FieldsSeq(fmt.Sprint(o.Result)) {
			if known[word] || o.err != nil {
				t.Fatalf("%s, %v", word, o.err)
			}
			known[word] = true
		}
		time.Sleep(50 * time.Millisecond) // it is confined by now, or soon
		for _, pid := range waiters() {
			if syscall.Kill(pid, syscall.SIGKILL) == nil {
				killed++
			}
			kit.Eventually(t, "it is gone", func() bool { return len(waiters()) == 0 })
		}
		return killed >= 3
	})
	kit.Eventually(t, "nobody waits for a program that does not come", func() bool { return len(waiters()) == 0 })
}
