package kernel_test

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"toolpost/host/kernel"
)

func TestReleasedPagesComeBack(t *testing.T) {
	before := fileRSS(t)
	if err := kernel.ReleaseProgram(); err != nil {
		t.Fatal(err)
	}
	if after := fileRSS(t); after >= before {
		t.Errorf("%d kB of files are resident, and were %d", after, before)
	}
	if got := strings.Repeat("ab", 3); got != "ababab" { // code and constants are still available
		t.Error(got)
	}
}

func fileRSS(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "RssFile:")
	kB, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return kB
}
