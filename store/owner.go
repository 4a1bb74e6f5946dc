package store

import (
	"bytes"
	"os"
	"strconv"
	"strings"
)

// thisProcess names this program for as long as the machine runs, and for ever: no other process of any
// machine has had the name, or will have it.
func thisProcess() string { return nameOf(os.Getpid()) }

func nameOf(pid int) string { return bootID() + "/" + strconv.Itoa(pid) + "/" + startOf(pid) }

func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		host, _ := os.Hostname()
		return host
	}
	return strings.TrimSpace(string(id))
}

// startOf tells when a process started, in ticks of the kernel; empty: there is no such process.
func startOf(pid int) string {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return ""
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 || fields[0][0] == 'Z' {
		return ""
	}
	return string(fields[19])
}

// sameBoot reports whether a program is of this machine, since it last started.
func sameBoot(owner string) bool {
	boot, _, _ := strings.Cut(owner, "/")
	return boot == bootID()
}

// gone reports whether the program of that name has certainly ended. About another machine, and about the time
// before this one started again, nobody can tell.
func gone(owner string) bool {
	_, rest, _ := strings.Cut(owner, "/")
	pid, start, _ := strings.Cut(rest, "/")
	n, err := strconv.Atoi(pid)
	return err == nil && sameBoot(owner) && startOf(n) != start
}
