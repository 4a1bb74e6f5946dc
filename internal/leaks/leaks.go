// Package leaks searches for keys of tests in places that must not have them: texts, files, and the environments and memory of
// programs.
package leaks

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toolpost/internal/kit"
)

// A form is how a canary may be written.
type form struct {
	canary string
	text   []byte
}

// forms returns each canary as it is, in hexadecimal, and in base64 at each of the three places that it may have in a longer text.
func forms(canaries []string) (all []form) {
	for _, canary := range canaries {
		if canary == "" {
			continue
		}
		all = append(all, form{canary, []byte(canary)}, form{canary, []byte(hex.EncodeToString([]byte(canary)))})
		for at := range 3 {
			text := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("-", at) + canary))
			all = append(all, form{canary, []byte(text[(at*8+5)/6 : len(text)-1])}) // the digits at its ends depend on what is beside it
		}
	}
	return all
}

// found returns the first canary that a text has, or "".
func found(text []byte, in []form) string {
	for _, f := range in {
		if bytes.Contains(text, f.text) {
			return f.canary
		}
	}
	return ""
}

// Text fails the test if a text has a canary.
func Text(t testing.TB, what, text string, canaries ...string) {
	t.Helper()
	if canary := found([]byte(text), forms(canaries)); canary != "" {
		t.Errorf("%s has %.12s…", what, canary)
	}
}

// Files fails the test if a file below a folder has a canary, and returns how many it read.
func Files(t testing.TB, dir string, canaries ...string) (read int) {
	t.Helper()
	kit.OK(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path) //nolint:gosec // of the test itself
		Text(t, path, string(text), canaries...)
		read++
		return err
	}))
	return read
}

// Programs fails the test if a canary is in the environment or the memory of a process. It returns in how many of them it found a text
// that each has which is to be searched: programs may end, or be others than the test means.
func Programs(t testing.TB, pids []int, known string, canaries ...string) (read int) {
	t.Helper()
	for _, pid := range pids {
		environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		Text(t, fmt.Sprint("the environment of process ", pid), string(environ), canaries...)
		if inMemory(t, pid, known, forms(canaries)) {
			read++
		}
	}
	return read
}

// overlap is how much two pieces of a memory have in common, since a text may be at the end of one.
const overlap = 4 << 10

func inMemory(t testing.TB, pid int, known string, in []form) (read bool) {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	mem, gone := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil || gone != nil {
		return false
	}
	defer mem.Close()
	piece := make([]byte, 1<<20)
	for line := range strings.Lines(string(maps)) {
		var from, to int64
		var rights string
		if n, _ := fmt.Sscanf(line, "%x-%x %s", &from, &to, &rights); n != 3 || !strings.HasPrefix(rights, "rw") {
			continue
		}
		for at := from; at < to; at += int64(len(piece) - overlap) {
			n, _ := mem.ReadAt(piece[:min(to-at, int64(len(piece)))], at)
			if canary := found(piece[:n], in); canary != "" {
				t.Errorf("the memory of process %d has %.12s…", pid, canary)
				return true
			}
			read = read || bytes.Contains(piece[:n], []byte(known))
		}
	}
	return read
}
