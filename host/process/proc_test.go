package process

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"toolpost/internal/kit"
)

const restOfStat = " S 7 8 9 0 -1 4194304 137 0 1 0 0 0 0 0 20 0 3 0 4711 6008832 480 18446744073709551615 1 2 3 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 4 5 6 7 8 9 10 0\n"

func TestStatEntriesWithStrangeNames(t *testing.T) {
	want := stat{state: 'S', parent: 7, session: 9, threads: 3, start: 4711, environ: 10}
	for _, name := range []string{"sleep", "a b", "a) S 1 2 3", "))", ""} {
		if got, ok := parseStat([]byte("12 (" + name + ")" + restOfStat)); !ok || got != want {
			t.Errorf("%q: %+v, %t", name, got, ok)
		}
	}
}

func FuzzStat(f *testing.F) {
	f.Add([]byte("12 (sleep)" + restOfStat))
	f.Add([]byte("12 (sleep) S"))
	f.Add([]byte(")"))
	f.Fuzz(func(t *testing.T, line []byte) { parseStat(line) })
}

// TestBothWaysToFindChildrenAgree lays out a table as a kernel with CONFIG_PROC_CHILDREN shows it and as one without it
// does.
func TestBothWaysToFindChildrenAgree(t *testing.T) {
	self := os.Getpid()
	listed, scanned := procfs(t.TempDir()), procfs(t.TempDir())
	for pid, parent := range map[int]int{9000001: self, 9000002: self, 9000003: 9000001, 9000004: 9000003} {
		writeEntry(t, scanned, fmt.Sprintf("%d/stat", pid), fmt.Sprintf("%d (x) S %d%s", pid, parent, restOfStat[4:]))
	}
	for list, content := range map[string]string{
		fmt.Sprintf("%d/task/%d/children", self, self): "9000001 ", fmt.Sprintf("%d/task/9000077/children", self): "9000002 ",
		"9000001/task/9000001/children": "9000003 ", "9000003/task/9000003/children": "9000004 ",
		"9000002/task/9000002/children": "", "9000004/task/9000004/children": "",
	} {
		writeEntry(t, listed, list, content)
	}
	want := map[int][]int{self: {9000001, 9000002}, 9000001: {9000003}, 9000002: nil, 9000003: {9000004}, 9000004: nil}
	for _, p := range []procfs{listed, scanned} {
		children := p.children()
		for pid, want := range want {
			kit.EqualSlices(t, slices.Sorted(slices.Values(children(pid))), want, "the children of %d", pid)
		}
	}
}

func writeEntry(t *testing.T, p procfs, name, content string) {
	t.Helper()
	path := filepath.Join(string(p), name)
	kit.OK(t, os.MkdirAll(filepath.Dir(path), 0o755))
	write(t, path, content, 0o644)
}
