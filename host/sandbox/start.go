//go:build linux

package sandbox

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"toolpost/config/offlimits"
	"toolpost/tool"
)

// A Confined is a started child. It is a child of this program, and must be waited for like any other.
type Confined struct {
	Pid  int
	Init int // the room's first process, also our child: killing it ends everything in the room. 0 if there is none

	// Layers are the walls that were built.
	Layers []string

	// Window looks at the child's files. It is set if it was requested, and the caller closes it.
	Window *Window

	group  *group
	saw    func(Violation) // nil if violations are not reported
	egress net.Listener
	hangUp context.CancelFunc // closes the connections that came through the door
	work   sync.WaitGroup     // of the supervisor and the door
}

// Kill ends everything in the room at once, including the child, if the room has an init. The child must still be waited
// for, and End called.
func (c *Confined) Kill() {
	if c.Init != 0 {
		_ = unix.Kill(c.Init, unix.SIGKILL)
	}
}

// Alone reports whether the room is known to have only its first process and the child.
func (c *Confined) Alone() bool { return c.Init != 0 && c.group.only(2) }

// Start starts a child in a room. Every wall of the profile is in place before the program runs. If one cannot be built
// here, the error has the reason coverage_missing and nothing is started.
func Start(s Spawn) (*Confined, error) {
	m := thisMachine()
	if err := errors.Join(s.check(), m.cover(s.Profile)); err != nil {
		return nil, err
	}
	c, err := m.start(s)
	// The kernel counts the descriptors that all processes of a user are handing over against the limit of files of each.
	for end := time.Now().Add(handTime); errors.Is(err, unix.ETOOMANYREFS) && time.Now().Before(end); {
		time.Sleep(handPause)
		c, err = m.start(s)
	}
	if err != nil {
		return nil, explain(err)
	}
	return c, nil
}

// How long a start waits for other processes to receive what is being handed over, and its pauses.
const (
	handTime  = 5 * time.Second
	handPause = 20 * time.Millisecond
)

// Moved reports whether a start failed because a file that the room needs was replaced in the meantime. The start may be
// retried: the new file is subject to the same rules.
func Moved(err error) bool {
	wall, ok := errors.AsType[*wallError](err)
	return ok && slices.Contains([]syscall.Errno{unix.ELOOP, unix.ENOENT, unix.ENOTDIR, unix.EXDEV}, wall.errno)
}

// explain turns the error of a failed wall into one that says so, or that names the limit of open files. An error of the
// exec stays the kernel's own.
func explain(err error) error {
	switch wall, ok := errors.AsType[*wallError](err); {
	case outOfFiles(err):
		return tooFewFiles(err)
	case !ok:
		return err
	case strings.HasPrefix(wall.what, layerExec+": "):
		return wall.errno
	default:
		return tool.Errorf(tool.CodeUnavailable, "a wall of the sandbox could not be built: %w",
			wall).Because(CoverageMissing)
	}
}

// start starts a child; without a program it only builds the room.
func (m *machine) start(s Spawn) (*Confined, error) {
	p := &plan{Spawn: s, on: m}
	err := p.prepare()
	if err == nil {
		err = p.write()
	}
	if err != nil {
		return nil, err
	}
	ours.hold()
	c := &Confined{Layers: m.built(s.Profile, s.Violation != nil), saw: s.Violation}
	if err := c.deliver(p); err != nil {
		ours.release()
		return nil, err
	}
	return c, nil
}

// prepare finds the program and makes the view of the room.
func (p *plan) prepare() error {
	if p.NoEnv {
		p.Env = nil
	}
	if slices.ContainsFunc(slices.Concat(p.Argv, p.Env, []string{p.Path, p.Dir}),
		func(s string) bool { return strings.ContainsRune(s, 0) }) {
		return unix.EINVAL
	}
	files, err := p.resolveProgram()
	if err != nil {
		return err
	}
	if p.view, err = viewOf(p.Profile, files, p.on.systemNow()); err != nil {
		return tool.Errorf(tool.CodeUnavailable, "%w", err)
	}
	if p.view.shut && !p.on.Mounts { // Landlock grants a folder with everything in it
		return p.on.lacks(LayerMounts)
	}
	p.view.mountOwn(p.on, p.Profile)
	if p.on.Mounts && p.Tmp > 0 && p.Root != "" {
		p.view.mount("/dev/shm", partTmpfs, p.writeRights(), p.Tmp)
	}
	p.all = p.view.system.with(p.view)
	return p.chooseDir()
}

// chooseDir resolves the working folder: the room may not have the links that lead to it.
func (p *plan) chooseDir() error {
	if p.Root != "" { // it is not a folder of the host
		p.dir = filepath.Join("/", p.Dir)
		return nil
	}
	dir, err := filepath.Abs(p.Dir)                             // an empty one means ours
	if err == nil && strings.HasPrefix(dir, "/proc/self/fd/") { // an open one
		dir, err = os.Readlink(dir)
	}
	var a *offlimits.Anchor
	if err == nil {
		a, err = offlimits.Open(dir, p.Off, p.apart()...)
	}
	if err == nil {
		dir = a.Path
		a.Close()
	}
	switch {
	case p.Dir != "" && err != nil:
		return about(err)
	case p.Dir == "" && (err != nil || p.all.around(filepath.Join(dir, "x")) == nil):
		dir = "/"
	}
	p.dir = dir
	return nil
}

// deliver takes a room and turns it into what the plan requires. The next room is begun meanwhile.
func (c *Confined) deliver(p *plan) error {
	on := p.on.ground(p.Profile)
	b, err := ours.take(p.on, on)
	if err != nil {
		return err
	}
	b.supervise = func(listener *os.File) { c.supervise(p, listener) }
	err = errors.Join(b.group.limit(p.Limits.WithDefaults()), c.look(p, b))
	if err == nil && p.Born != nil {
		err = p.Born(b.tool)
	}
	if err == nil {
		err = b.finish(&p.script, p.Files)
	}
	if err != nil {
		b.abort()
		c.work.Wait()
		c.Window.Close()
		return err
	}
	_ = b.conn.Close()
	b.call(p.Name)
	reap(b.midwife)
	c.Pid, c.Init, c.group = b.tool, b.init, b.group
	if b.egress != nil {
		c.open(p, b.egress)
	}
	if on == p.on.ground(Profile{}) { // it is the common one
		ours.refill(p.on, on)
	}
	return nil
}

// look makes the window, if one was requested.
func (c *Confined) look(p *plan, b *birth) (err error) {
	if p.Look {
		c.Window, err = p.window(b.tool)
		b.root = func(root *os.File) { c.Window.root = root }
	}
	return err
}

// reapTime bounds the wait for a child that has been killed.
const reapTime = 5 * time.Second

// reap waits for a child of ours that is ending.
func reap(pid int) {
	if pid == 0 {
		return
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	for deadline := time.Now().Add(reapTime); time.Now().Before(deadline); {
		_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}},
			int(time.Until(deadline).Milliseconds())+1)
		if got, err := unix.Wait4(pid, nil, unix.WNOHANG, nil); got == pid || err == unix.ECHILD {
			return
		}
	}
}

// End ends the remaining processes of the room and removes it. The child itself must have been waited for.
func (c *Confined) End() {
	alone := c.group.only(1)
	if c.Kill(); c.Init != 0 && !alone { // the remaining processes end with it, and it ends after them
		reap(c.Init)
	}
	if c.egress != nil {
		c.egress.Close()
		c.hangUp()
	}
	c.work.Wait()
	ours.tidy(func() { // the kernel takes its time to tear down a room
		if c.Init != 0 && alone {
			reap(c.Init)
		}
		c.group.remove()
		ours.release()
	})
}

// Reached returns the limits of the room that its processes have reached, for the description of how they ended, and
// reports them as violations. It is called once, when they have ended.
func (c *Confined) Reached() []Violation {
	met := c.group.reached()
	if c.saw != nil {
		for _, v := range met {
			c.saw(v)
		}
	}
	return met
}

const egressPort = 3128 // of EgressAddress

// open serves the proxy's listener in the room. It works like any other although it is in another network namespace.
func (c *Confined) open(p *plan, file *os.File) {
	defer file.Close()
	l, err := net.FileListener(file)
	if err != nil {
		return // connections are refused
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.egress, c.hangUp = l, cancel
	if p.Egress == nil {
		l.Close()
		return
	}
	room := make(chan struct{}, 64)
	c.work.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			room <- struct{}{}
			c.work.Go(func() {
				defer func() { <-room }()
				defer context.AfterFunc(ctx, func() { conn.Close() })() // data that a dead child has sent may hide its end
				p.Egress(conn)
			})
		}
	})
}

// resolveProgram makes the path of the program absolute, and lists the files that it needs besides the system: itself,
// and the interpreters of scripts and of dynamic programs. An interpreter that /usr/bin/env would look up is looked up
// here, since that is a second exec, which may be forbidden.
func (p *plan) resolveProgram() ([]string, error) {
	if p.Path == "" {
		return nil, nil
	}
	if p.Root != "" {
		return nil, p.programInRoot()
	}
	if !filepath.IsAbs(p.Path) {
		var err error
		if p.Path, err = filepath.Abs(filepath.Join(p.Dir, p.Path)); err != nil {
			return nil, err
		}
	}
	var files []string
	for path := p.Path; path != "" && len(files) < 5; {
		if _, err := os.Stat(path); err != nil {
			if len(files) == 0 {
				return nil, tool.WithoutPath(err) // the caller, which knows the command, adds the rest
			}
			return files, nil // the exec fails and reports it
		}
		files = append(files, path)
		interpreter, argument := interpreterOf(path)
		if filepath.Base(interpreter) == "env" && !p.Subprocess && len(files) == 1 {
			found := onPath(argument, p.Env)
			if i := slices.IndexFunc(found, func(f string) bool { return unix.Access(f, unix.X_OK) == nil }); i >= 0 {
				p.Argv = append([]string{argument, p.Path}, p.Argv[1:]...)
				p.Path, interpreter = found[i], found[i]
			}
		}
		path = interpreter
	}
	return files, nil
}

// programInRoot makes the path of the program absolute, in an image that has everything needed to run it. The kernel
// resolves it there, so that no link of the image leads out of it.
func (p *plan) programInRoot() error {
	root, err := offlimits.Open(p.Root, p.Off, p.apart()...)
	if err != nil {
		return tool.Errorf(tool.CodeUnavailable, "%s cannot be the root of a confined child: %w", p.Root, about(err))
	}
	defer root.Close()
	if !root.Mode.IsDir() {
		return tool.Errorf(tool.CodeUnavailable, "%s cannot be the root of a confined child: it is not a folder",
			p.Root)
	}
	candidates := []string{filepath.Join("/", p.Dir, p.Path)}
	switch {
	case filepath.IsAbs(p.Path):
		candidates = []string{p.Path}
	case !strings.Contains(p.Path, "/"):
		candidates = onPath(p.Path, p.Env)
	}
	for _, path := range candidates {
		if f, err := resolve(root.Fd(), path, unix.O_PATH, resolveInRoom); err == nil {
			p.Path = path
			return f.Close()
		}
	}
	return tool.Errorf(tool.CodeUnavailable, "%s was not found in %s, which is the root of the program (looked for %s)",
		p.Path, p.Root, strings.Join(candidates, ", "))
}

// interpreterOf returns the program that the kernel runs in place of a file or together with it.
func interpreterOf(path string) (interpreter, argument string) {
	f, err := os.Open(path)
	if err != nil {
		return "", ""
	}
	defer f.Close()
	head := make([]byte, 256)
	n, _ := io.ReadFull(f, head)
	if line, ok := bytes.CutPrefix(head[:n], []byte("#!")); ok {
		line, _, _ = bytes.Cut(line, []byte("\n"))
		interpreter, argument, _ = strings.Cut(strings.TrimSpace(string(line)), " ")
		return interpreter, strings.TrimSpace(argument)
	}
	return loaderOf(f, head[:n]), ""
}

// loaderOf returns the dynamic loader of a 64-bit program; a static one has none.
func loaderOf(f io.ReaderAt, head []byte) string {
	var h elf.Header64
	if !bytes.HasPrefix(head, []byte(elf.ELFMAG)) ||
		binary.Read(bytes.NewReader(head), binary.NativeEndian, &h) != nil {
		return ""
	}
	const size = 56 // of a program header
	table := make([]byte, size*min(int(h.Phnum), 64))
	if _, err := f.ReadAt(table, int64(h.Phoff)); err != nil || h.Phentsize != size {
		return ""
	}
	for ; len(table) > 0; table = table[size:] {
		if elf.ProgType(binary.NativeEndian.Uint32(table)) == elf.PT_INTERP {
			name := make([]byte, min(binary.NativeEndian.Uint64(table[32:]), unix.PathMax))
			n, _ := f.ReadAt(name, int64(binary.NativeEndian.Uint64(table[8:])))
			return strings.TrimRight(string(name[:n]), "\x00")
		}
	}
	return ""
}

// onPath lists the places of a program on the PATH of an environment.
func onPath(name string, env []string) []string {
	var files []string
	for _, entry := range env {
		path, ok := strings.CutPrefix(entry, "PATH=")
		if !ok {
			continue
		}
		for _, folder := range filepath.SplitList(path) {
			files = append(files, filepath.Join(folder, name))
		}
	}
	return files
}
