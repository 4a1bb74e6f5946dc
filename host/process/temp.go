package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// TempDir makes a temporary folder for this program, and removes those left by programs that were killed. The caller
// removes the folder in the end.
func TempDir(kind string) (string, error) {
	prefix := "toolpost-" + kind + "-"
	sweepTemp(prefix)
	return os.MkdirTemp("", fmt.Sprintf("%s%d-%d-", prefix, os.Getpid(), startOf(os.Getpid())))
}

// sweepTemp removes folders whose names refer to a process that is gone. Folders of other users cannot be removed, and
// stay.
func sweepTemp(prefix string) {
	folders, _ := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*"))
	for _, folder := range folders {
		parts := strings.Split(strings.TrimPrefix(filepath.Base(folder), prefix), "-")
		if len(parts) != 3 {
			continue
		}
		pid, err := strconv.Atoi(parts[0])
		if err == nil && fmt.Sprint(startOf(pid)) != parts[1] {
			_ = RemoveTree(folder)
		}
	}
}

// startOf returns the time at which a process was started, in the kernel's own units, or 0 if it does not exist.
func startOf(pid int) uint64 {
	return ours.proc.started(pid)
}

// RemoveTree removes a folder, even if a program made folders in it that are not writable.
func RemoveTree(dir string) error {
	if err := os.RemoveAll(dir); err == nil {
		return nil
	}
	_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(path, 0o700) //nolint:gosec // a folder that cannot be entered cannot be emptied
		}
		return nil
	})
	return os.RemoveAll(dir)
}
