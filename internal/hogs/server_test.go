package hogs

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"toolpost/internal/kit"
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
	status := kit.Must(os.ReadFile(fmt.Sprintf("/proc/%d/status", s.Pid())))(t)
	_, rest, _ := strings.Cut(string(status), name+":")
	kib := kit.Must(strconv.ParseInt(strings.Fields(rest)[0], 10, 64))(t)
	return kib << 10
}
