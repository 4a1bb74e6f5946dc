package namel3ss

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"toolpost/host/offlimits"
	"toolpost/host/process"
	"toolpost/host/sandbox"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

const (
	bwrapName   = "bwrap"
	networkHost = "host"

	// memoryFolder is the size of a folder in memory, such as /tmp.
	memoryFolder = 64 << 20
	// containerPath is where programs are looked for in a root, as in other containers.
	containerPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

func (o ContainerOptions) bwrap() bool { return filepath.Base(o.Runtime) == bwrapName }

// checkBwrap refuses what only an engine can do.
func (o ContainerOptions) checkBwrap() error {
	switch {
	case o.OCI != "":
		return tool.Errorf(tool.CodeInvalidInput, "container: oci_runtime is for podman and docker; bwrap runs the tool itself")
	case !slices.Contains([]string{"", "none", networkHost}, o.Network):
		return tool.Errorf(tool.CodeInvalidInput, "container: bwrap has the networks none and host, and none named %.80q; use podman or docker for it", o.Network)
	}
	_, err := o.limits()
	return err
}

// limits are those of one call, which bwrap leaves to others.
func (o ContainerOptions) limits() (sandbox.Limits, error) {
	memory, err := memoryOf(cmp.Or(o.Memory, "512m"))
	return sandbox.Limits{Memory: memory, CPU: cmp.Or(o.CPUs, 1), Processes: cmp.Or(o.PIDs, 128)}, err
}

// memoryOf reads an amount as docker and podman write it: 512m, 1g.
func memoryOf(text string) (int64, error) {
	unit := strings.TrimLeft(text, "0123456789")
	shift, known := map[string]uint{"": 0, "b": 0, "k": 10, "m": 20, "g": 30}[strings.ToLower(unit)]
	n, err := strconv.ParseInt(strings.TrimSuffix(text, unit), 10, 64)
	if !known || err != nil || n <= 0 || n > math.MaxInt64>>shift {
		return 0, tool.Errorf(tool.CodeInvalidInput, "container: memory is a number with b, k, m or g, such as 512m, not %.40q", text)
	}
	return n << shift, nil
}

// A bwrapTool runs in a folder that bwrap makes its root, for each call anew. The namespaces and mounts are bwrap's; the
// limits and the filter of system calls are ours, as around any other tool.
type bwrapTool struct {
	*containerTool
	limits sandbox.Limits
	sized  bool // this bwrap can bound folders in memory
	binds  bool // and take an open folder for a path
}

func (b *builder) bwrap(f *facts, bound *binding) (way, error) {
	t, err := b.contained(f, bound)
	if err != nil {
		return nil, err
	}
	if len(bound.Command) == 0 {
		return nil, tool.Errorf(tool.CodeUnavailable, "it runs in bwrap and has no command: a folder has none of its own; set command")
	}
	if t.image, err = b.rootFolder(bound.Image); err != nil {
		return nil, err
	}
	limits, err := b.Container.limits()
	if err != nil {
		return nil, err
	}
	help, err := helpOf(t.engine.path)
	if err != nil {
		return nil, err
	}
	return &bwrapTool{
		containerTool: t, limits: limits,
		sized: strings.Contains(help, "--size "), binds: strings.Contains(help, "--ro-bind-fd "),
	}, nil
}

// rootFolder finds the folder that is the image. One outside of the app must be the user's own choice: what is in it can
// be read.
func (b *builder) rootFolder(image string) (string, error) {
	if !filepath.IsAbs(image) {
		return "", tool.Errorf(tool.CodeInvalidInput, "its image %.80q is no absolute path; for bwrap it is the folder that becomes the root", image)
	}
	root, err := filepath.EvalSymlinks(image)
	if err != nil {
		return "", tool.Errorf(tool.CodeUnavailable, "its image, for bwrap the folder that becomes the root: %w", err)
	}
	if app, err := filepath.EvalSymlinks(b.app.root); b.Image == "" && (err != nil || within(root, app) == "") {
		return "", tool.Errorf(tool.CodeInvalidInput, "its image %.80q lies outside of the app; the config of the source must name it with `image`", image)
	}
	for _, folder := range []string{"dev", "proc", "tmp"} {
		if info, err := os.Lstat(filepath.Join(root, folder)); err != nil || !info.IsDir() {
			return "", tool.Errorf(tool.CodeUnavailable, "its image %.80q has no folder %s; make an empty one for bwrap to use", image, folder)
		}
	}
	return root, nil
}

// within gives the path of something below a folder, as seen from there; empty: it is not below it.
func within(path, folder string) string {
	below, err := filepath.Rel(folder, path)
	if err != nil || !filepath.IsLocal(below) {
		return ""
	}
	return filepath.Join("/", below)
}

// helpOf asks bwrap what it can do: older ones cannot bound folders in memory, nor take open ones.
func helpOf(path string) (string, error) {
	child, err := process.Start(process.Command{Argv: []string{path, "--help"}})
	if err != nil {
		return "", err
	}
	defer child.Close()
	child.CloseStdin()
	_ = child.Stdout.SetReadDeadline(time.Now().Add(endTime))
	const long = 1 << 20
	text, err := process.ReadDocument(child.Stdout, long)
	if err != nil {
		return "", tool.Errorf(tool.CodeUnavailable, "%s --help: %w", path, err)
	}
	return string(text), nil
}

func (t *bwrapTool) run(ctx context.Context, j *job) (*reply, error) {
	if err := t.covered(j); err != nil {
		return nil, err
	}
	doc, err := t.document(j)
	if err != nil {
		return nil, err
	}
	e, err := t.execute(ctx, doc, j)
	if err != nil {
		return nil, about(t.spec.Name, err)
	}
	if e.exit.Code == 1 && len(e.reply) == 0 && strings.HasPrefix(j.logs.last(), bwrapName+": ") {
		return nil, t.unstarted(j)
	}
	return e.outcome(t.spec.Name, j.logs.last())
}

// execute runs a call. Nothing of the tool is started before it is in its cgroup, and when bwrap has ended so has all that
// it started.
func (t *bwrapTool) execute(ctx context.Context, request []byte, j *job) (ending, error) {
	group, err := sandbox.Limit(t.limits)
	if err != nil {
		return ending{}, err
	}
	defer group.Remove()
	g, err := t.newGate(j)
	if err != nil {
		return ending{}, err
	}
	defer g.close() // after the child's end: an open gate lets it run
	child, err := process.Start(process.Command{
		Argv: t.arguments(j.walls), Dir: "/", Files: g.theirs,
		Stderr: func(line []byte) { j.logs.line("stderr", line) }, StderrLimit: maxLog,
	})
	if err != nil {
		return ending{}, err
	}
	defer child.Close()
	if err := g.open(ctx, group); err != nil {
		return ending{}, err
	}
	child.Feed(request)

	var e ending
	var readers sync.WaitGroup
	readers.Go(func() { e.reply = readReply(child.Stdout, j.logs) })
	e.exit = await(ctx, child)
	_ = child.Stdout.SetReadDeadline(time.Now().Add(drainTime))
	readers.Wait()
	if met := group.Reached(); len(met) > 0 {
		e.why = e.exit.String() + ": it reached its limit of " + strings.Join(met, " and of ")
	}
	return e, nil
}

// The descriptors of a gate, as bwrap has them.
const (
	fdInfo = 3 + iota
	fdBlock
	fdFilter
	fdVariables
	fdImage
)

// arguments are those of bwrap. The root is the image, and everything in it read-only; what can be written is in memory and
// ends with the call. /proc is read-only because it has switches of the whole machine, which user 0 may turn.
func (t *bwrapTool) arguments(g tool.Guarantees) []string {
	args := []string{
		t.engine.path, "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL",
		t.bind(), t.source(), "/", "--proc", "/proc", "--dev", "/dev", "--chdir", "/",
		"--info-fd", strconv.Itoa(fdInfo), "--block-fd", strconv.Itoa(fdBlock), "--seccomp", strconv.Itoa(fdFilter), "--args", strconv.Itoa(fdVariables),
	}
	host := t.network(g) == sandbox.NetworkAll
	if host {
		args = append(args, "--share-net")
	}
	args = append(args, t.hidden()...)
	if t.image == "/" {
		args = append(args, t.ownRun(host)...)
	}
	args = append(args, t.memory("/tmp")...)
	if g.NoFilesystemWrite {
		args = append(args, "--remount-ro", "/tmp")
	} else {
		args = append(args, t.memory("/dev/shm")...)
	}
	args = append(args, "--remount-ro", "/dev", "--remount-ro", "/proc")
	return slices.Concat(args, t.Args, []string{"--"}, t.command)
}

// bind and source put the open image into the room: whatever takes its name meanwhile is not it.
func (t *bwrapTool) bind() string {
	if t.binds {
		return "--ro-bind-fd"
	}
	return "--ro-bind"
}

func (t *bwrapTool) source() string {
	if t.binds {
		return strconv.Itoa(fdImage)
	}
	return "/proc/self/fd/" + strconv.Itoa(fdImage)
}

// network is what a call has. Without a guarantee it has a network of its own, in which there is nobody else.
func (t *bwrapTool) network(g tool.Guarantees) sandbox.Network {
	switch {
	case g.NoNetwork:
		return sandbox.NetworkNone
	case t.Network == networkHost:
		return sandbox.NetworkAll
	}
	return sandbox.NetworkLoopback
}

// memory puts an empty folder in memory somewhere.
func (t *bwrapTool) memory(folder string) []string {
	if t.sized {
		return []string{"--size", strconv.Itoa(memoryFolder), "--tmpfs", folder}
	}
	return []string{"--tmpfs", folder} // the limit of memory bounds it
}

// ownRun takes the /run of this machine away, where its programs leave what others reach them by. Only the addresses of
// name servers are needed from there, where there is a network.
func (t *bwrapTool) ownRun(host bool) []string {
	run, err := filepath.EvalSymlinks("/run")
	if err != nil {
		return nil
	}
	args := []string{"--tmpfs", run}
	if servers, err := filepath.EvalSymlinks("/etc/resolv.conf"); err == nil && host && within(servers, run) != "" {
		args = append(args, "--ro-bind", servers, servers)
	}
	return append(args, "--remount-ro", run)
}

// hidden takes out of the root what is for no tool, also what is not there yet.
func (t *bwrapTool) hidden() []string {
	var args []string
	for _, path := range t.book.Now().Hidden() {
		thing, err := offlimits.Find(path, t.book.Now())
		inside := within(thing.Path, t.image)
		if err != nil || inside == "" {
			continue
		}
		switch there, err := thing.Make(true); {
		case err != nil || !there:
		case thing.Folder:
			args = append(args, "--tmpfs", inside, "--remount-ro", inside)
		default:
			args = append(args, "--ro-bind", os.DevNull, inside) // which cannot be opened there
		}
	}
	return args
}

// variables gives bwrap those of the tool as options in memory: they are on no command line, and not in the environment of
// bwrap itself, which is outside and must not be told what to load.
func (t *bwrapTool) variables(j *job) (*os.File, error) {
	vars, err := t.given(j)
	if err != nil {
		return nil, err
	}
	var options strings.Builder
	for _, v := range slices.Concat([]string{"PATH=" + containerPath, "HOME=/"}, vars) { // the last one counts
		name, value, _ := strings.Cut(v, "=")
		if strings.ContainsRune(v, 0) {
			return nil, tool.Errorf(tool.CodeInvalidInput, "the variable %.80q has a NUL byte, which no program can be given", name)
		}
		options.WriteString("--setenv\x00" + name + "\x00" + value + "\x00")
	}
	file, err := sealed([]byte(options.String()))
	if err != nil {
		return nil, err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		_ = file.Close()
		return nil, tool.Errorf(tool.CodeUnavailable, "the variables of the container: %w", err)
	}
	return file, nil
}

// A gate holds bwrap back, before it starts the tool, until its process is where it has to be.
type gate struct {
	info   *os.File // bwrap tells the pid
	block  *os.File // and waits for a byte
	theirs []*os.File
}

func (t *bwrapTool) newGate(j *job) (_ *gate, err error) {
	g := &gate{}
	defer func() {
		if err != nil {
			g.close()
		}
	}()
	filter, err := sandbox.Filter(t.network(j.walls))
	if err != nil {
		return g, err
	}
	g.theirs = append(g.theirs, filter)
	variables, err := t.variables(j)
	if err != nil {
		return g, err
	}
	g.theirs = append(g.theirs, variables)
	image, err := offlimits.Open(t.image, t.book.Now())
	if err != nil {
		return g, tool.Errorf(tool.CodeUnavailable, "its image: %w", err)
	}
	g.theirs = append(g.theirs, image.File())
	info, theirInfo, err := os.Pipe()
	if err != nil {
		return g, tool.Errorf(tool.CodeUnavailable, "no more pipes for the call: %w; raise the limit of open files (ulimit -n)", err)
	}
	g.info, g.theirs = info, slices.Insert(g.theirs, 0, theirInfo)
	theirBlock, block, err := os.Pipe()
	if err != nil {
		return g, tool.Errorf(tool.CodeUnavailable, "no more pipes for the call: %w; raise the limit of open files (ulimit -n)", err)
	}
	g.block, g.theirs = block, slices.Insert(g.theirs, 1, theirBlock)
	return g, nil
}

func (g *gate) close() {
	closeAll(g.theirs)
	_ = g.info.Close() // nil where it was not made
	_ = g.block.Close()
}

// open puts the first process of the started bwrap into its cgroup and lets it go on. A bwrap that has ended already has
// no such process; its exit status tells why.
func (g *gate) open(ctx context.Context, group *sandbox.Limited) error {
	closeAll(g.theirs)
	defer context.AfterFunc(ctx, func() { _ = g.info.SetReadDeadline(time.Now()) })()
	const long = 64 << 10
	text, err := process.ReadDocument(g.info, long)
	if ctx.Err() != nil || err == nil && len(text) == 0 {
		return nil
	}
	var info map[string]int // the pid, and numbers of namespaces
	if err == nil {
		err = strictjson.Unmarshal(text, &info)
	}
	if err != nil || info["child-pid"] <= 0 {
		return tool.Errorf(tool.CodeUnavailable, "bwrap does not tell which process is the tool's, so that no limit would hold: %w", cmp.Or(err, errors.New("no child-pid")))
	}
	if err := group.Join(info["child-pid"]); err != nil {
		if errors.Is(err, unix.ESRCH) {
			return nil
		}
		return err
	}
	_, _ = g.block.Write([]byte{1}) // nobody reads it where bwrap has ended
	return nil
}
