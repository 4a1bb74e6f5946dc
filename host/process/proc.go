package process

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A procfs reads the kernel's table of processes. Tests put a folder of their own in its place.
type procfs string

// A stat is what the table says about one process.
type stat struct {
	state   byte // R, S, D, T, Z ...
	parent  int
	session int
	threads int
	start   uint64 // in clock ticks since boot: with the pid it names a process for ever
	environ uint64 // where its environment is in its memory; 0: nowhere, or it is not for us to know
}

// dead reports whether only the entry is left. A process whose first thread has exited is a Z too, but
// it runs on as long as it has another.
func (s stat) dead() bool { return (s.state == 'Z' || s.state == 'X') && s.threads <= 1 }

// stat reads the entry of a process; false: there is none, or no longer.
func (p procfs) stat(pid int) (stat, bool) {
	fd, err := unix.Open(string(p)+"/"+strconv.Itoa(pid)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return stat{}, false
	}
	defer unix.Close(fd)
	var buf [2048]byte // for a name and about 50 numbers
	n, err := unix.Read(fd, buf[:])
	if err != nil {
		return stat{}, false
	}
	return parseStat(buf[:n])
}

// parseStat reads "PID (NAME) STATE PPID PGRP SESSION ...". The name may hold spaces and parentheses.
func parseStat(line []byte) (stat, bool) {
	end := bytes.LastIndexByte(line, ')')
	fields := bytes.Fields(line[end+1:])
	if end < 0 || len(fields) < 49 {
		return stat{}, false
	}
	number := func(i int) uint64 { n, _ := strconv.ParseUint(string(fields[i]), 10, 64); return n }
	return stat{
		state: fields[0][0], parent: int(number(1)), session: int(number(3)),
		threads: int(number(17)), start: number(19), environ: number(48),
	}, true
}

// children returns a way to look up the children of a process. The kernel keeps a list with each thread
// where it was built with CONFIG_PROC_CHILDREN; elsewhere the whole table is read once.
func (p procfs) children() func(pid int) []int {
	self := strconv.Itoa(os.Getpid())
	if _, err := os.Stat(filepath.Join(string(p), self, "task", self, "children")); err == nil {
		return p.listed
	}
	families := p.scan()
	return func(pid int) []int { return families[pid] }
}

// listed reads the lists of all threads of a process.
func (p procfs) listed(pid int) []int {
	var pids []int
	for _, thread := range p.numbers(strconv.Itoa(pid) + "/task") {
		list, _ := os.ReadFile(filepath.Join(string(p), strconv.Itoa(pid), "task", strconv.Itoa(thread), "children"))
		for _, field := range strings.Fields(string(list)) {
			if child, err := strconv.Atoi(field); err == nil {
				pids = append(pids, child)
			}
		}
	}
	return pids
}

// scan reads the whole table: the children of every process.
func (p procfs) scan() map[int][]int {
	families := map[int][]int{}
	for _, pid := range p.numbers("") {
		if s, ok := p.stat(pid); ok {
			families[s.parent] = append(families[s.parent], pid)
		}
	}
	return families
}

// numbers lists the entries of a folder that are numbers.
func (p procfs) numbers(folder string) []int {
	dir, err := os.Open(filepath.Join(string(p), folder))
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	var numbers []int
	for _, name := range names {
		if n, err := strconv.Atoi(name); err == nil {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// markers returns the values of our marker in the environment that a process was started with. One that
// hides its environment has none.
func (p procfs) markers(pid int) []string {
	var values []string
	for entry := range bytes.SplitSeq(p.read(pid, "environ"), []byte{0}) {
		if value, ok := bytes.CutPrefix(entry, []byte(Marker+"=")); ok {
			values = append(values, string(value))
		}
	}
	return values
}

func (p procfs) read(pid int, name string) []byte {
	file, err := os.Open(filepath.Join(string(p), strconv.Itoa(pid), name))
	if err != nil {
		return nil
	}
	defer file.Close()
	const most = 4 << 20 // the kernel takes no more than that for arguments and environment together
	text, _ := io.ReadAll(io.LimitReader(file, most))
	return text
}
