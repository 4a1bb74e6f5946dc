package main

import (
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"
)

// The bits that make others' programs run as we.
const setIDs = syscall.S_ISUID | syscall.S_ISGID

// modes are the ways to make a file with such a bit. A path is a folder that may be written.
func modes() []attempt {
	return []attempt{
		{"chmod", mode(func(file string, _ int) error { return syscall.Chmod(file, 0o755|setIDs) })},
		{"set-group-id alone", mode(func(file string, _ int) error { return syscall.Chmod(file, 0o755|syscall.S_ISGID) })},
		{"fchmod", mode(func(_ string, fd int) error { return syscall.Fchmod(fd, 0o755|setIDs) })},
		{"fchmodat", mode(func(file string, _ int) error { return syscall.Fchmodat(-100, file, 0o755|setIDs, 0) })},
		{"fchmodat2", mode(fchmodat2)},
		{"chmod with high bits", mode(func(file string, _ int) error {
			return raw(sysChmod, file, 0xffffffff_00000000|0o755|setIDs)
		})},
		{"the mode of open", fresh(func(file string) error {
			fd, err := syscall.Open(file, syscall.O_CREAT|syscall.O_WRONLY, 0o755|setIDs)
			if err == nil {
				syscall.Close(fd)
			}
			return err
		})},
		{"the mode of creat", fresh(func(file string) error { return raw(sysCreat, file, 0o755|setIDs) })},
		{"the mode of openat2", fresh(openat2)},
		{"the mode of mknod", fresh(func(file string) error { return syscall.Mknod(file, syscall.S_IFREG|0o755|setIDs, 0) })},
		{"the mode of a folder", fresh(func(file string) error { return syscall.Mkdir(file, 0o755) }, func(file string) error {
			return syscall.Chmod(file, 0o755|setIDs)
		})},
	}
}

func mode(do func(file string, fd int) error) func(order, string) (string, error) {
	return func(_ order, dir string) (string, error) {
		f, err := os.CreateTemp(dir, "mode-")
		if err != nil {
			return "", err
		}
		defer f.Close()
		return "", do(f.Name(), int(f.Fd()))
	}
}

func fresh(steps ...func(file string) error) func(order, string) (string, error) {
	return func(_ order, dir string) (string, error) {
		file := fmt.Sprintf("%s/fresh-%d", dir, time.Now().UnixNano())
		for _, step := range steps {
			if err := step(file); err != nil {
				return "", err
			}
		}
		return "", nil
	}
}

// raw makes a system call of a path and a number.
func raw(nr uintptr, path string, n uintptr) error {
	p, err := syscall.BytePtrFromString(path)
	if err != nil {
		return err
	}
	_, _, errno := syscall.Syscall(nr, uintptr(unsafe.Pointer(p)), n, 0)
	return asError(errno)
}

func fchmodat2(file string, _ int) error {
	p, err := syscall.BytePtrFromString(file)
	if err != nil {
		return err
	}
	cwd := -100
	_, _, errno := syscall.Syscall6(452, uintptr(cwd), uintptr(unsafe.Pointer(p)), 0o755|setIDs, 0, 0, 0)
	return asError(errno)
}

func openat2(file string) error {
	p, err := syscall.BytePtrFromString(file)
	if err != nil {
		return err
	}
	how := struct{ flags, mode, resolve uint64 }{syscall.O_CREAT | syscall.O_WRONLY, 0o755 | setIDs, 0}
	cwd := -100
	fd, _, errno := syscall.Syscall6(437, uintptr(cwd), uintptr(unsafe.Pointer(p)), uintptr(unsafe.Pointer(&how)), 24, 0, 0)
	if errno == 0 {
		syscall.Close(int(fd))
	}
	return asError(errno)
}

// What one call leaves behind, and another must not find.
const key = 0x7001_9057

func leaveMemory(order, string) (string, error)    { return "", get(sysShmget, 4096, 0o1000|0o666) }
func leaveSemaphore(order, string) (string, error) { return "", get(sysSemget, 1, 0o1000|0o666) }
func findMemory(order, string) (string, error)     { return "", get(sysShmget, 4096, 0) }
func findSemaphore(order, string) (string, error)  { return "", get(sysSemget, 1, 0) }

func get(nr, size, flags uintptr) error {
	_, _, errno := syscall.Syscall(nr, key, size, flags)
	return asError(errno)
}

func leaveQueue(order, string) (string, error) { return "", queue(0o1000 | 0o666) }
func findQueue(order, string) (string, error)  { return "", queue(0) }

func queue(flags uintptr) error {
	_, _, errno := syscall.Syscall(sysMsgget, key, flags, 0)
	return asError(errno)
}
