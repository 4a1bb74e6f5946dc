package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// look reads the start of a file, or lists a folder.
func look(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if names, err := f.Readdirnames(100); err == nil {
		return strings.Join(names, " "), nil
	}
	b, err := io.ReadAll(io.LimitReader(f, 4096))
	if err == nil && len(b) == 0 {
		err = fmt.Errorf("empty")
	}
	return string(b), err
}

func reads() []attempt {
	return []attempt{
		{"read", func(_ order, path string) (string, error) { return look(path) }},
		{"read from the middle", readMiddle},
		{"read by dots", func(o order, path string) (string, error) {
			return look(o.Root + "/../" + filepath.Base(o.Root) + "/./" + strings.TrimPrefix(path, o.Root))
		}},
		{"read by /proc/self/root", func(_ order, path string) (string, error) { return look("/proc/self/root" + path) }},
		{"read by /proc/1/root", func(_ order, path string) (string, error) { return look("/proc/1/root" + path) }},
		{"read by the parent's root", func(_ order, path string) (string, error) {
			return look(fmt.Sprintf("/proc/%d/root%s", os.Getppid(), path))
		}},
		{"read by a link", readByLink},
		{"read by a hard link", readByHardLink},
		{"read by a descriptor", readByDescriptor},
		{"rename it, then read", func(_ order, path string) (string, error) {
			if err := os.Rename(path, path+".mine"); err != nil {
				return "", err
			}
			return look(path + ".mine")
		}},
		{"rename a folder above, then read", func(o order, path string) (string, error) {
			for _, dir := range above(o, path) {
				if os.Rename(dir, dir+".mine") == nil {
					return look(dir + ".mine" + strings.TrimPrefix(path, dir))
				}
			}
			return "", fmt.Errorf("no folder above could be renamed")
		}},
		{"unmount, then read", func(o order, path string) (saw string, err error) {
			err = unmountThen(func(path string) error { saw, err = look(path); return err })(o, path)
			return saw, err
		}},
		{"read by an inherited descriptor", readInherited},
	}
}

func readMiddle(_ order, path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b := make([]byte, 4096)
	n, err := f.ReadAt(b, 1)
	if n > 0 {
		err = nil
	}
	return "?" + string(b[:n]), err
}

func readByLink(o order, path string) (string, error) {
	link := filepath.Join(o.Root, fmt.Sprintf("link-%d", time.Now().UnixNano()))
	if err := os.Symlink(path, link); err != nil {
		return "", err
	}
	defer os.Remove(link)
	return look(link)
}

func readByHardLink(o order, path string) (string, error) {
	link := filepath.Join(o.Root, fmt.Sprintf("hard-%d", time.Now().UnixNano()))
	if err := os.Link(path, link); err != nil {
		return "", err
	}
	defer os.Remove(link)
	return look(link)
}

func readByDescriptor(_ order, path string) (string, error) {
	fd, err := syscall.Open(path, oPath|syscall.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer syscall.Close(fd)
	return look(fmt.Sprintf("/proc/self/fd/%d", fd))
}

// readInherited tries every inherited folder that is still open.
func readInherited(o order, path string) (string, error) {
	for fd := 3; fd < 1024; fd++ {
		for _, name := range []string{strings.TrimPrefix(path, "/"), strings.TrimPrefix(path, o.Root+"/")} {
			f, err := syscall.Openat(fd, name, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
			if err != nil {
				continue
			}
			defer syscall.Close(f)
			return look(fmt.Sprintf("/proc/self/fd/%d", f))
		}
	}
	return "", fmt.Errorf("no descriptor leads there")
}

// swap puts a link to a folder of the host in the place of a folder, which the next room is to follow.
func swap(o order, path string) (string, error) {
	if err := os.Rename(path, path+".gone"); err != nil {
		return "", err
	}
	return "", os.Symlink(o.Beyond, path)
}

func readBeyond(_ order, path string) (string, error) { return look(filepath.Join(path, "canary")) }

func writeBeyond(_ order, path string) (string, error) {
	return "", write(filepath.Join(path, "made"), os.O_WRONLY|os.O_CREATE)
}
