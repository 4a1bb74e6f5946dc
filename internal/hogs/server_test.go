package hogs

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"toolpost/internal/served"
)

// A server runs tools that are hogs, and others.
type server struct{ *served.Server }

func serve(t *testing.T, p place) *server {
	t.Helper()
	return &server{served.Start(t, p.bin, p.dir, "TMPDIR="+p.temp())}
}

// memory returns a number of /proc/PID/status, in bytes: VmRSS is the current size, VmHWM the peak.
func (s *server) memory(t *testing.T, name string) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.Pid()))
	must(t, err)
	_, rest, _ := strings.Cut(string(status), name+":")
	kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	must(t, err)
	return kib << 10
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits until cond returns no error.
func eventually(t *testing.T, cond func() error) {
	t.Helper()
	err := errors.New("not tried")
	for deadline := time.Now().Add(served.Hang); err != nil && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		err = cond()
	}
	if err != nil {
		t.Error(err)
	}
}
