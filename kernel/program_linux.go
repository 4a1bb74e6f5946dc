package kernel

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// ReleaseProgram releases the pages of the program's own file from this process. They stay in the kernel's cache, and
// come back one by one when they are used: pages that only the start used, such as the tables of all packages, do not.
// Writable pages are left alone.
func ReleaseProgram() error {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return err
	}
	defer maps.Close()
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		if err := releaseMapping(lines.Text(), exe); err != nil {
			return err
		}
	}
	return lines.Err()
}

// releaseMapping releases the pages of one line of /proc/self/maps, if it maps the file read-only.
func releaseMapping(line, exe string) error {
	var from, to uintptr
	var mode string
	if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &mode); err != nil {
		return fmt.Errorf("/proc/self/maps: %q: %w", line, err)
	}
	if !strings.HasSuffix(line, " "+exe) || mode != "r-xp" && mode != "r--p" {
		return nil
	}
	// Otherwise the use of one byte could bring back two megabytes. A kernel without huge pages refuses this, which is
	// fine.
	_, _, _ = unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_NOHUGEPAGE)
	if _, _, errno := unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED); errno != 0 {
		return errno
	}
	return nil
}
