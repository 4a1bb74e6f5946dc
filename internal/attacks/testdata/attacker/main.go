// The attacker is one static program that every room runs. Its argument says what to attack; it tries all that it
// knows and prints what came of it. Whether something was really changed is for the host to see: a room may let it
// write to a cover that leads nowhere.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
	"unsafe"
)

// An order is what the attacker is told.
type order struct {
	Root   string   `json:"root"`   // the folder that the room may write
	Paths  []string `json:"paths"`  // below it: what must stay unread or unchanged
	What   string   `json:"what"`   // a key of plans
	Only   string   `json:"only"`   // one attempt alone
	Beyond string   `json:"beyond"` // a folder of the host that is not in the room
}

// A report is what came of one attempt.
type report struct {
	How string `json:"how"`
	On  string `json:"on"`
	Did string `json:"did"` // done, or the error
	Saw string `json:"saw,omitempty"`
}

// An attempt goes for one path. What it returns is what it read, if it came to read.
type attempt struct {
	how string
	try func(o order, path string) (string, error)
}

func plans() map[string][]attempt {
	return map[string][]attempt{
		"change": changes(),
		"read":   reads(),
		"mode":   modes(),
		"swap":   {{"swap the folder for a link", swap}},
		"beyond": {{"read through the link", readBeyond}, {"write through the link", writeBeyond}},
		"leave":  {{"leave shared memory", leaveMemory}, {"leave a semaphore", leaveSemaphore}, {"leave a queue", leaveQueue}},
		"find":   {{"find shared memory", findMemory}, {"find a semaphore", findSemaphore}, {"find a queue", findQueue}},
	}
}

func main() {
	var o order
	switch {
	case len(os.Args) == 1: // the program of a container: a namel3ss request on stdin
		var request struct{ Payload order }
		must(json.NewDecoder(os.Stdin).Decode(&request))
		say(map[string]any{"ok": true, "protocol_version": 1, "result": map[string]any{"reports": attack(request.Payload)}})
	case os.Args[1] == "names":
		say(names())
	default:
		must(json.Unmarshal([]byte(os.Args[1]), &o))
		say(attack(o))
	}
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func say(v any) { must(json.NewEncoder(os.Stdout).Encode(v)) }

// names lists the attempts of each plan.
func names() map[string][]string {
	names := map[string][]string{}
	for what, list := range plans() {
		for _, a := range list {
			names[what] = append(names[what], a.how)
		}
	}
	return names
}

// attack tries everything on every path.
func attack(o order) []report {
	reports := []report{}
	for _, path := range o.Paths {
		for _, a := range plans()[o.What] {
			if o.Only != "" && o.Only != a.how {
				continue
			}
			r := report{How: a.how, On: path, Did: "done"}
			saw, err := a.try(o, filepath.Join(o.Root, path))
			if r.Saw = saw; err != nil {
				r.Did = err.Error()
			}
			reports = append(reports, r)
		}
	}
	return reports
}

const evil = "EVIL\n"

// spare makes a file, or a folder if the path is one, that could take its place.
func spare(o order, path string) (string, error) {
	name := filepath.Join(o.Root, fmt.Sprintf("spare-%d-%d", os.Getpid(), time.Now().UnixNano()))
	if info, err := os.Lstat(path); err == nil && info.IsDir() {
		return name, os.Mkdir(name, 0o755)
	}
	return name, os.WriteFile(name, []byte(evil), 0o644)
}

// write opens a file in some way and writes to it.
func write(path string, flags int) error {
	f, err := os.OpenFile(path, flags, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(evil)
	return err
}

func only(f func(o order, path string) error) func(order, string) (string, error) {
	return func(o order, path string) (string, error) { return "", f(o, path) }
}

// above gives the folders between the root and a path, from the outside in.
func above(o order, path string) (folders []string) {
	for dir := filepath.Dir(path); len(dir) > len(o.Root); dir = filepath.Dir(dir) {
		folders = append([]string{dir}, folders...)
	}
	return folders
}

func changes() []attempt {
	return []attempt{
		{"write", only(func(_ order, path string) error { return write(path, os.O_WRONLY) })},
		{"append", only(func(_ order, path string) error { return write(path, os.O_WRONLY|os.O_APPEND) })},
		{"create", only(func(_ order, path string) error { return write(path, os.O_WRONLY|os.O_CREATE) })},
		{"truncate", only(func(_ order, path string) error { return os.Truncate(path, 1) })},
		{"write by /proc/self/root", only(func(_ order, path string) error { return write("/proc/self/root"+path, os.O_WRONLY) })},
		{"write by a link", only(writeByLink)},
		{"write by a hard link", only(writeByHardLink)},
		{"write by a descriptor", only(writeByDescriptor)},
		{"write to a mapping", only(writeByMapping)},
		{"chmod", only(func(_ order, path string) error { return os.Chmod(path, 0o777) })},
		{"utimes", only(func(_ order, path string) error { return os.Chtimes(path, time.Unix(1, 0), time.Unix(1, 0)) })},
		{"attribute", only(func(_ order, path string) error { return syscall.Setxattr(path, "user.evil", []byte("1"), 0) })},
		{"unlink", only(func(_ order, path string) error { return os.RemoveAll(path) })},
		{"rename away", only(func(_ order, path string) error { return os.Rename(path, path+".gone") })},
		{"rename over", only(renameOver)},
		{"exchange", only(exchange)},
		{"a link in its place", only(linkInPlace)},
		{"a folder in its place", only(func(_ order, path string) error { return os.MkdirAll(path+"/bin", 0o755) })},
		{"rename a folder above", only(renameAbove)},
		{"exchange a folder above", only(exchangeAbove)},
		{"remove a folder above", only(removeAbove)},
		{"a link for a folder above", only(linkAbove)},
		{"unmount, then write", only(unmountThen(func(path string) error { return write(path, os.O_WRONLY) }))},
		{"mount over it", only(mountOver)},
	}
}

func writeByLink(o order, path string) error {
	link := filepath.Join(o.Root, fmt.Sprintf("link-%d", time.Now().UnixNano()))
	if err := os.Symlink(path, link); err != nil {
		return err
	}
	defer os.Remove(link)
	return write(link, os.O_WRONLY)
}

func writeByHardLink(o order, path string) error {
	link := filepath.Join(o.Root, fmt.Sprintf("hard-%d", time.Now().UnixNano()))
	if err := os.Link(path, link); err != nil {
		return err
	}
	defer os.Remove(link)
	return write(link, os.O_WRONLY)
}

const oPath = 0x200000

func writeByDescriptor(_ order, path string) error {
	fd, err := syscall.Open(path, oPath|syscall.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	return write(fmt.Sprintf("/proc/self/fd/%d", fd), os.O_WRONLY)
}

func writeByMapping(_ order, path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	m, err := syscall.Mmap(int(f.Fd()), 0, 4, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return err
	}
	copy(m, "EVIL")
	return syscall.Munmap(m)
}

func renameOver(o order, path string) error {
	name, err := spare(o, path)
	if err != nil {
		return err
	}
	defer os.RemoveAll(name)
	return os.Rename(name, path)
}

func exchange(o order, path string) error {
	name, err := spare(o, path)
	if err != nil {
		return err
	}
	return renameat2(name, path, 2)
}

func renameat2(from, to string, flags uintptr) error {
	a, err := syscall.BytePtrFromString(from)
	if err != nil {
		return err
	}
	b, err := syscall.BytePtrFromString(to)
	if err != nil {
		return err
	}
	cwd := -100
	_, _, errno := syscall.Syscall6(sysRenameat2, uintptr(cwd), uintptr(unsafe.Pointer(a)), uintptr(cwd), uintptr(unsafe.Pointer(b)), flags, 0)
	return asError(errno)
}

func asError(errno syscall.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

func linkInPlace(o order, path string) error {
	name := filepath.Join(o.Root, fmt.Sprintf("link-%d", time.Now().UnixNano()))
	if err := os.Symlink("/etc/hostname", name); err != nil {
		return err
	}
	defer os.Remove(name)
	return os.Rename(name, path)
}

// renameAbove goes for each folder above in turn, and puts its own file where the path was.
func renameAbove(o order, path string) error {
	for _, dir := range above(o, path) {
		if os.Rename(dir, dir+".gone") == nil {
			return writeNew(path)
		}
	}
	return fmt.Errorf("no folder above could be renamed")
}

func writeNew(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(evil), 0o644)
}

func exchangeAbove(o order, path string) error {
	for _, dir := range above(o, path) {
		other := dir + fmt.Sprintf("-%d", time.Now().UnixNano())
		if os.Mkdir(other, 0o755) == nil && renameat2(dir, other, 2) == nil {
			return writeNew(path)
		}
		os.Remove(other)
	}
	return fmt.Errorf("no folder above could be exchanged")
}

func removeAbove(o order, path string) error {
	for _, dir := range above(o, path) {
		if os.RemoveAll(dir) == nil {
			return nil
		}
	}
	return fmt.Errorf("no folder above could be removed")
}

func linkAbove(o order, path string) error {
	for _, dir := range above(o, path) {
		if os.Rename(dir, dir+".gone") == nil {
			return os.Symlink("/etc", dir)
		}
	}
	return fmt.Errorf("no folder above could be renamed")
}

// unmountThen takes away what may cover a path, in every way that there is, and then does something to it.
func unmountThen(then func(path string) error) func(order, string) error {
	return func(_ order, path string) error {
		for range 3 {
			_ = syscall.Unmount(path, 2)
		}
		return then(path)
	}
}

func mountOver(o order, path string) error {
	name, err := spare(o, path)
	if err != nil {
		return err
	}
	defer os.RemoveAll(name)
	if err := syscall.Mount(name, path, "", syscall.MS_BIND, ""); err != nil {
		return err
	}
	return syscall.Unmount(path, 2)
}
