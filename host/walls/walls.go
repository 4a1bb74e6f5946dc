// Package walls builds the sandbox profiles of the tools of a source: from the source's config, the needs of its
// protocol, and the guarantees of a call, which take rights away. The default lets a tool read its own folder, start
// programs and use a little memory, and nothing else.
package walls

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"toolpost/config"
	"toolpost/config/offlimits"
	"toolpost/host/process"
	"toolpost/host/sandbox"
	"toolpost/tool"
)

// Options are the settings in the config of a source. The zero value is the default.
type Options struct {
	Off       bool            `yaml:"off" doc:"run the tools without walls, except those that a guarantee needs"`
	Read      []string        `yaml:"read" kind:"path" doc:"files and folders that the tools may read, in addition to their own folder; relative to the config"`
	Write     []string        `yaml:"write" kind:"path" doc:"files and folders that the tools may change; default: none"`
	Run       []string        `yaml:"run" kind:"path" doc:"files and folders that the tools may read and run programs from, in addition to the system's and their interpreter's"`
	Network   Network         `yaml:"network" schema:"default=none" doc:"none; loopback: a private one; all; or a list of hosts, such as [api.example.com, *.example.org, 10.0.0.7:8080]"`
	Unix      bool            `yaml:"unix_sockets" doc:"allow Unix sockets, including those in folders that the tools may read"`
	Tmp       int64           `yaml:"tmp" kind:"bytes" schema:"default=67108864" doc:"bytes of the private /tmp"`
	Machine   bool            `yaml:"machine" doc:"show the tools what /proc says about this machine"`
	Memory    int64           `yaml:"memory" kind:"bytes" schema:"default=536870912" doc:"bytes of all processes of a tool together; -1: unlimited"`
	CPU       float64         `yaml:"cpu" doc:"number of CPUs; default: unlimited"`
	Processes int             `yaml:"processes" schema:"default=128" doc:"processes and threads of a tool; -1: unlimited"`
	Files     int             `yaml:"files" schema:"default=1024" doc:"open files per process"`
	FileSize  int64           `yaml:"file_size" kind:"bytes" schema:"default=1073741824" doc:"bytes of the largest file that a process may write"`
	CPUTime   config.Duration `yaml:"cpu_time" doc:"CPU time per process; default: unlimited"`

	Root      string             `yaml:"-"` // a folder that replaces the system's programs, see sandbox.Profile; empty if there is none
	Source    string             `yaml:"-"` // whose tools they are around, for the system's ps
	OffLimits *offlimits.Checker `yaml:"-"` // what no tool may see or change; nil means the state beside the config
	Injector  *Injector          `yaml:"-"` // for a source with connections; nil if it has none
}

// leastMemory is what the smallest programs need; the kernel refuses a limit below the memory that it must keep for them.
const leastMemory = 4 << 20

// Validate refuses limits within which nothing can run. The config calls it.
func (o *Options) Validate() error {
	if o.Memory > 0 && o.Memory < leastMemory {
		return fmt.Errorf("memory is in bytes, and no program runs in %d: give it 4MiB at the least, and an interpreter 64MiB",
			o.Memory)
	}
	return nil
}

// ChangeNothing reports whether programs behind these walls can neither change a file that stays nor reach a network.
func (o *Options) ChangeNothing() bool {
	return o.NoNetwork() && len(o.Write) == 0 && !o.Unix
}

// NoNetwork reports whether programs behind these walls reach no network.
func (o *Options) NoNetwork() bool {
	return !o.Off && (len(o.Network) == 0 || o.Network[0] == "none") && len(o.Injector.entries()) == 0
}

// Needs are the requirements of a protocol's tools.
type Needs struct {
	Dir   string   // the folder of the config, in which its relative paths start
	Read  []string // their own folder
	Write []string // private to them
	Run   []string // their program, its interpreter and libraries; see Code
	// Scratch lists folders that they may write like their /tmp, and that end with their room.
	Scratch []string
}

// Claim returns what tools behind these walls may change, for a config in base.
func (o Options) Claim(base string) offlimits.Claim {
	c := offlimits.Claim{Writes: absolute(base, o.Write), Homes: absolute(base, o.Run), Bare: o.Off, Stays: true}
	if kind, _, err := o.Network.kind(); o.Off {
		c.Gains = "without walls"
	} else if o.Unix || err != nil || kind > sandbox.NetworkLoopback || !o.NoNetwork() {
		c.Gains = "with a network"
	}
	return c
}

// Checker returns what no tool of a source may see or change, for a config in base.
func (o Options) Checker(base string) *offlimits.Checker {
	if o.OffLimits != nil {
		return o.OffLimits
	}
	return offlimits.NewChecker(offlimits.Default(base))
}

// Walls confine the tools of one source.
type Walls struct {
	off     bool
	profile sandbox.Profile
	network Network
	code    []string // if the walls are off: what a tool keeps that may not read files
	asked   *Walls   // if the walls are off: those of a call that asks for a sandbox
	checker *offlimits.Checker
	given   []string // the paths that the config gives, besides the needs of the tools
	o       Options  // as in the config
	base    string   // the folder of the config
	egress  *egress  // nil if no hosts are named
}

// Around returns the walls of a source.
func (o Options) Around(n Needs) (*Walls, error) {
	var err error
	if n.Dir, err = filepath.Abs(n.Dir); err != nil {
		return nil, tool.Errorf(tool.CodeUnavailable, "the folder of the config: %w", err)
	}
	w := &Walls{off: o.Off, network: o.Network, profile: sandbox.Default(n.Read...), checker: o.Checker(n.Dir), o: o, base: n.Dir}
	p := &w.profile
	if err := o.admit(); err != nil {
		return nil, err
	}
	if o.Off {
		*p, w.code = open(), n.Run
		o.Off = false
		w.asked, err = o.Around(n)
		return w, err
	}
	p.Readable = absolute(n.Dir, n.Read, o.Read)
	p.Writable = absolute(n.Dir, n.Write, o.Write)
	p.Executable = absolute(n.Dir, n.Run, o.Run)
	w.given = absolute(n.Dir, o.Read, o.Write, o.Run)
	p.Name, p.Root, p.Unix, p.Scratch = o.Source, o.Root, o.Unix, n.Scratch
	if o.Tmp != 0 {
		p.Tmp = max(o.Tmp, 0)
	}
	if o.Machine {
		p.Proc = sandbox.ProcAll
	}
	p.Limits = sandbox.Limits{
		Memory: o.Memory, CPU: o.CPU, Processes: o.Processes, Files: o.Files, FileSize: o.FileSize,
		CPUTime: time.Duration(o.CPUTime),
	}
	network, hosts, err := o.Network.kind()
	if err != nil {
		return nil, err
	}
	if p.Network = network; len(hosts) > 0 {
		w.egress = newEgress(hosts)
	}
	return w, w.connect(o.Injector)
}

// admit refuses walls that a program of a source with connections could go around.
func (o Options) admit() error {
	links := o.Injector.intercepts()
	all := len(o.Network) == 1 && o.Network[0] == sandbox.NetworkAll.String()
	if len(links) == 0 || !o.Off && !all {
		return nil
	}
	line := "walls: {off: true}"
	if !o.Off {
		line = "walls: {network: all}"
	}
	return tool.Errorf(tool.CodeInvalidInput, "source %s uses the connection %s, whose key the proxy of its room adds, and its `%s` "+
		"goes around the proxy: write `walls: {network: [%s]}` with the other hosts that it needs, or `expose: true` in the connection",
		o.Source, links[0].Connection, line, strings.Join(links[0].Hosts, ", "))
}

// connect opens the walls to the hosts of the connections, and to them only.
func (w *Walls) connect(in *Injector) error {
	more := in.entries()
	if len(more) == 0 || w.profile.Network == sandbox.NetworkAll {
		return nil
	}
	named := Network(more)
	if w.egress != nil {
		named = slices.Concat(w.network, named)
	}
	_, hosts, err := named.kind()
	if err != nil {
		return err
	}
	w.network, w.profile.Network, w.egress = named, sandbox.NetworkEgress, newEgress(hosts)
	w.egress.inject = in
	ca, err := in.authority()
	if err != nil {
		return tool.Errorf(tool.CodeUnavailable, "the certificate of its room cannot be made: %w", err)
	}
	if ca != nil {
		w.profile.Executable = append(w.profile.Executable, ca.bundle) // which a tool has that may not read files
	}
	return nil
}

// With returns the same walls around tools that run more code. They share the egress, so names are pinned for all.
func (w *Walls) With(code []string) *Walls {
	more := *w
	more.profile.Executable = absolute("/", w.profile.Executable, code)
	if w.off {
		more.profile, more.code, more.asked = w.profile, slices.Concat(w.code, code), w.asked.With(code)
	}
	return &more
}

// open returns the profile that forbids nothing.
func open() sandbox.Profile {
	return sandbox.Profile{
		Executable: []string{"/"}, Writable: []string{"/"}, Proc: sandbox.ProcAll, Network: sandbox.NetworkAll,
		Unix: true, Subprocess: true, Limits: sandbox.Limits{Memory: -1, Processes: -1, Files: -1, FileSize: -1},
	}
}

// absolute joins lists of paths; relative ones start in dir.
func absolute(dir string, lists ...[]string) []string {
	var all []string
	for _, path := range slices.Concat(lists...) {
		if path = offlimits.Under(dir, path); !slices.Contains(all, path) {
			all = append(all, path)
		}
	}
	return all
}

// Profile returns what a tool may do in a call with these guarantees. What is off limits is looked up now: the config may
// have changed since the walls were made.
func (w *Walls) Profile(g tool.Guarantees) sandbox.Profile {
	if w.off && g.Sandbox {
		return w.asked.Profile(g)
	}
	p := sandbox.FromGuarantees(g, w.profile)
	p.Off = w.checker.Now()
	if w.off && g.NoFilesystemRead {
		p.Executable = w.code
	}
	return p
}

// Stand reports whether there are walls around a tool in a call with these guarantees.
func (w *Walls) Stand(g tool.Guarantees) bool {
	g.SecretsAllowed = nil // it only requires giving a child no variable
	return !w.off || len(g.Asked()) > 0
}

// Holds returns the guarantees that hold around every call, requested or not: those that take nothing more from a tool.
func (w *Walls) Holds() tool.Guarantees {
	if w.off {
		return tool.Guarantees{}
	}
	held := tool.Guarantees{Sandbox: true}
	for _, one := range []tool.Guarantees{
		{NoFilesystemRead: true}, {NoFilesystemWrite: true}, {NoNetwork: true}, {NoSubprocess: true}, {NoEnvRead: true},
		{NoEnvWrite: true},
	} {
		if reflect.DeepEqual(sandbox.FromGuarantees(one, w.profile), w.profile) {
			held = held.Tighten(one)
		}
	}
	return held
}

// Confine returns the walls for one child, reporting to watch, or nil if there are none. A guarantee that cannot be
// enforced here is an error with the reason coverage_missing.
func (w *Walls) Confine(name string, g tool.Guarantees, watch *Watch) (*sandbox.Confinement, error) {
	switch {
	case !w.Stand(g):
		return nil, nil
	case w.off && g.Sandbox:
		return w.asked.Confine(name, g, watch)
	}
	if err := sandbox.Cover(name, g); err != nil {
		return nil, err
	}
	if err := w.mayGive(name); err != nil {
		return nil, err
	}
	c := &sandbox.Confinement{Profile: w.Profile(g)}
	if watch != nil {
		watch.mu.Lock()
		watch.checker = w.checker
		watch.mu.Unlock()
		c.Violation = watch.saw
	}
	if w.egress != nil && c.Network == sandbox.NetworkEgress {
		c.Egress = w.egress.serve(watch)
	}
	return c, nil
}

// mayGive refuses a config that gives its tools a path that is hidden from all of them: for nested paths the nearest one
// decides, and so a folder of the state would become visible.
func (w *Walls) mayGive(name string) error {
	for _, path := range w.given {
		if t, err := offlimits.Find(path, w.checker.Now()); err == nil && w.checker.At(t.Path) == offlimits.Secret {
			return tool.Errorf(tool.CodeAccessDenied, "%s was not run: its walls give it %s, "+
				"which is this installation's own: its state, its store, a key or a secret", name,
				path).Because("off_limits")
		}
	}
	return nil
}

// Environment adds the variables for the proxy, if there is one.
func (w *Walls) Environment(env []string) []string {
	if w.egress != nil {
		env = append(slices.Clone(env), proxyVariables()...)
	}
	if w.o.Injector != nil {
		env = append(slices.Clone(env), w.o.Injector.environment()...)
	}
	return env
}

// String describes what a tool may do.
func (w *Walls) String() string {
	if w.off {
		return "none"
	}
	p := w.profile
	limits := p.Limits
	if p.Root != "" {
		p.Readable = append([]string{p.Root + " as its root"}, p.Readable...)
	}
	parts := []string{"reads " + list(p.Readable), "changes " + list(p.Writable), "network " + w.network.String()}
	switch memory := cmp.Or(limits.Memory, sandbox.DefaultMemory); {
	case memory >= 0 && memory%(1<<20) == 0:
		parts = append(parts, fmt.Sprintf("%d MiB", memory>>20))
	case memory >= 0:
		parts = append(parts, fmt.Sprintf("%d bytes", memory))
	}
	if limits.Processes >= 0 {
		parts = append(parts, fmt.Sprintf("%d processes", cmp.Or(limits.Processes, sandbox.DefaultProcesses)))
	}
	return strings.Join(parts, "; ")
}

// list joins paths for a message; a path within another is left out.
func list(paths []string) string {
	var all []string
	for _, path := range paths {
		within := func(o string) bool { return path != o && offlimits.Within(path, o) }
		if !slices.ContainsFunc(paths, within) && !slices.Contains(all, path) {
			all = append(all, path)
		}
	}
	if len(all) == 0 {
		return "nothing"
	}
	return strings.Join(all, ", ")
}

// Find finds a program as a confined child can run it. It returns its absolute path, resolved through any script that
// only chooses a Python, since the files that such a script needs are not in the room. It also returns what running it
// takes besides the system: the folders of its installation, the files that its arguments name, such as a script, and the
// packages of Node.js in its own folder, if the script is one of them.
//
// A missing program is not an error: starting it will report that.
func Find(ctx context.Context, argv []string, dir string, env []string) (found, code []string, err error) {
	path := argv[0]
	switch onPath, err := exec.LookPath(path); {
	case strings.Contains(path, "/") && !filepath.IsAbs(path):
		path = filepath.Join(dir, path)
	case err != nil:
		return argv, nil, nil
	default:
		path = onPath
	}
	if strings.HasPrefix(filepath.Base(path), "python") && IsScript(path) {
		if path, err = throughShim(ctx, path, dir, env); err != nil {
			return nil, nil, err
		}
	}
	code = Code(path)
	for _, arg := range argv[1:] {
		file := offlimits.Under(dir, arg)
		if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() {
			continue
		}
		if filepath.IsAbs(arg) {
			code = append(code, arg)
		}
		// Packages of Node.js bring libraries and programs of their own, which they could otherwise read but not run.
		if in, _, ok := strings.Cut(file, "/node_modules/"); ok && offlimits.Within(in, dir) {
			code = append(code, in+"/node_modules")
		}
	}
	return append([]string{path}, argv[1:]...), code, nil
}

// Code lists what running a program takes besides the system: the folders of its installation, and of those that it links
// to.
func Code(path string) []string {
	var all []string
	for range 10 {
		for _, part := range installation(path) {
			if !slices.Contains(all, part) {
				all = append(all, part)
			}
		}
		target, err := os.Readlink(path)
		if err != nil {
			break
		}
		path = offlimits.Under(filepath.Dir(path), target)
	}
	return all
}

// Installed lists the folders of a program's installation that are not the system's. A virtual environment is one of
// them: it has links beside its folders, such as lib64.
func Installed(dir, program string) []string {
	path, err := exec.LookPath(program)
	if strings.Contains(program, "/") {
		path, err = offlimits.Under(dir, program), nil
	}
	if err != nil {
		return nil
	}
	parts := Code(path)
	if i := slices.IndexFunc(parts, func(part string) bool { return filepath.Base(part) == "pyvenv.cfg" }); i >= 0 {
		parts = append(parts, filepath.Dir(parts[i])+"/.")
	}
	return parts
}

// installation lists the code folders around a program PREFIX/bin/NAME that is not the system's. The rest of PREFIX is
// left out: it may be a home folder.
func installation(path string) []string {
	bin := filepath.Dir(path)
	prefix := filepath.Dir(bin)
	if filepath.Base(bin) != "bin" || slices.Contains([]string{"/", "/usr"}, prefix) {
		return nil
	}
	var parts []string
	for _, name := range []string{"bin", "lib", "lib64", "libexec", "include", "pyvenv.cfg"} {
		part := filepath.Join(prefix, name)
		if _, err := os.Lstat(part); err == nil {
			parts = append(parts, part)
		}
	}
	return parts
}

// throughShim resolves a script that only chooses a Python and starts it.
func throughShim(ctx context.Context, path, dir string, env []string) (string, error) {
	out, exit, words, err := process.Run(ctx, process.Command{
		Argv: []string{path, "-c", "import sys; print(sys.executable)"}, Dir: dir, Env: env,
	}, 64<<10)
	if err != nil {
		return "", tool.AsError(err)
	}
	found := strings.TrimSpace(string(out))
	if exit != (process.Exit{}) || !filepath.IsAbs(found) {
		return "", tool.Errorf(tool.CodeUnavailable, "%s does not start a Python: %s", path, words)
	}
	return found, nil
}

// IsScript reports whether a file begins with the line that names an interpreter.
func IsScript(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var start [2]byte
	_, err = io.ReadFull(f, start[:])
	return err == nil && string(start[:]) == "#!"
}
