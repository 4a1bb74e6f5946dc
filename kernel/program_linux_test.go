package kernel_test

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"toolpost/internal/kit"
	"toolpost/kernel"
)

func TestReleasedPagesComeBack(t *testing.T) {
	before := fileRSS(t)
	kit.OK(t, kernel.ReleaseProgram())
	if after := fileRSS(t); after >= before {
		t.Errorf("%d kB of files are resident, and were %d", after, before)
	}
	kit.Equal(t, strings.Repeat("ab", 3), "ababab") // code and constants are still available
}

func fileRSS(t *testing.T) int {
	t.Helper()
	status := kit.Must(os.ReadFile("/proc/self/status"))(t)
	_, rest, _ := strings.Cut(string(status), "RssFile:")
	return kit.Must(strconv.Atoi(strings.Fields(rest)[0]))(t)
}
