//go:build linux

package sandbox_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"toolpost/config/offlimits"
	"toolpost/host/process"
	"toolpost/host/sandbox"
	"toolpost/internal/kit"
	"toolpost/tool"
	"toolpost/tool/tooltest"
)

// confine returns a Python command confined by a profile.
func confine(p sandbox.Profile, code string) process.Command {
	name, extra := python()
	p.Executable = append(slices.Clone(p.Executable), extra...)
	return process.Command{Argv: []string{name, "-I", "-S", "-c", code}, Env: []string{"PATH=/usr/bin:/bin"}, Confine: &sandbox.Confinement{Profile: p}}
}

func TestTheStrictestProfileRunsAProgram(t *testing.T) {
	tooltest.NoLeaks(t)
	out, exit := run(t, process.Command{Argv: []string{"/bin/echo", "hello"}, Confine: &sandbox.Confinement{}})
	if out != "hello\n" || exit != (process.Exit{}) {
		t.Errorf("%q, %v", out, exit)
	}
}

func TestAConfinedChildEndsAsItWouldElsewhere(t *testing.T) {
	tooltest.NoLeaks(t)
	for script, want := range map[string]process.Exit{
		"exit 3":                  {Code: 3},
		"kill -SEGV $$":           {Code: -1, Signal: syscall.SIGSEGV},
		"kill -KILL $$":           {Code: -1, Signal: syscall.SIGKILL},
		"kill -TERM $$; sleep 10": {Code: -1, Signal: syscall.SIGTERM},
		"trap 'exit 8' TERM; kill -TERM $$; true": {Code: 8},
	} {
		cmd := process.Command{Argv: []string{"/bin/sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}, Confine: &sandbox.Confinement{Profile: sandbox.Profile{Subprocess: true}}}
		if out, exit := run(t, cmd); exit != want {
			t.Errorf("%s: %v and not %v: %s", script, exit, want, out)
		}
	}
}

func TestConfinedChildInheritsNothingElse(t *testing.T) {
	tooltest.NoLeaks(t)
	inherited := kit.Must(os.Open(os.DevNull))(t)
	defer inherited.Close()
	if _, _, errno := syscall.Syscall(syscall.SYS_FCNTL, inherited.Fd(), syscall.F_SETFD, 0); errno != 0 { // it would be inherited
		t.Fatal(errno)
	}
	cmd := confine(sandbox.Profile{Proc: sandbox.ProcOwn}, `import os
fds=[]
for fd in range(1100):
    try: os.fstat(fd); fds.append(fd)
    except OSError: pass
pids=[p for p in os.listdir("/proc") if p.isdigit()]
print(fds, sorted(os.environ), os.getpid()!=1, len(pids), os.getcwd(), os.path.exists("/root"), os.path.exists("/home"))`)
	cmd.Dir = t.TempDir()
	out, _ := run(t, cmd)
	want := fmt.Sprintf("[0, 1, 2] ['LC_CTYPE', 'PATH', '%s'] True 2 %s False False\n", process.Marker, cmd.Dir)
	kit.Equal(t, strings.ReplaceAll(out, "'LC_CTYPE', ", ""), strings.ReplaceAll(want, "'LC_CTYPE', ", ""), out, want)
}

func TestTheNearerPathDecides(t *testing.T) {
	tooltest.NoLeaks(t)
	dir := kit.Must(filepath.EvalSymlinks(t.TempDir()))(t)
	kit.OK(t, os.MkdirAll(dir+"/a/b/c", 0o755))
	cmd := process.Command{Argv: []string{"/bin/sh", "-c", `cd "$0"; for d in a a/b a/b/c; do if echo > $d/f; then echo $d; fi; done 2>/dev/null`, dir}}
	cmd.Confine = &sandbox.Confinement{Profile: sandbox.Profile{Readable: []string{dir, dir + "/a/b"}, Writable: []string{dir + "/a", dir + "/a/b/c"}}}
	if out, _ := run(t, cmd); out != "a\na/b/c\n" {
		t.Errorf("it could write to %q", out)
	}
}

func TestHiddenPathsAreAbsent(t *testing.T) {
	tooltest.NoLeaks(t)
	dir := kit.Must(filepath.EvalSymlinks(t.TempDir()))(t)
	state := filepath.Join(dir, "state")
	kit.OK(t, os.MkdirAll(filepath.Join(state, "own"), 0o755))
	for _, name := range []string{"token", "state/token", "state/own/token"} {
		kit.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(canary), 0o644))
	}
	for name, p := range map[string]sandbox.Profile{
		"read":  {Readable: []string{dir, filepath.Join(state, "own")}},
		"write": {Writable: []string{dir, filepath.Join(state, "own")}},
	} {
		p.Off = &offlimits.List{Absent: []string{state + "/", filepath.Join(dir, "token")}}
		cmd := confine(p, `import os
def read(p):
    try: return open(p).read()
    except OSError as e: return e.strerror
def make(p):
    try: open(p, "w").close(); return "made"
    except OSError: return "not made"
print(os.listdir("state"), repr(read("token")), read("state/token"), len(read("state/own/token")), make("state/new"), make("state/token"))`)
		cmd.Dir = dir
		if out, _ := run(t, cmd); out != "['own'] '' No such file or directory 15 not made not made\n" {
			t.Errorf("%s: %s", name, out)
		}
	}
	left, err := os.ReadFile(filepath.Join(dir, "token"))
	if kit.OK(t, err); string(left) != canary {
		t.Errorf("the file that was hidden is %q now", left)
	}
}

func TestLinksResolveInARoom(t *testing.T) {
	tooltest.NoLeaks(t)
	dir := t.TempDir()
	kit.OK(t, os.MkdirAll(dir+"/real/deep", 0o755))
	kit.OK(t, os.WriteFile(dir+"/real/deep/file", []byte("found\n"), 0o644))
	kit.OK(t, os.Symlink("real", dir+"/link"))
	kit.OK(t, os.Symlink(dir+"/link/deep", dir+"/other"))
	cmd := process.Command{Argv: []string{"/bin/cat", dir + "/other/file"}, Confine: &sandbox.Confinement{Profile: sandbox.Profile{Readable: []string{dir + "/other"}}}}
	if out, _ := run(t, cmd); out != "found\n" {
		t.Error(out)
	}
}

func TestARoomThatCannotBeBuiltIsAnError(t *testing.T) {
	tooltest.NoLeaks(t)
	for name, c := range map[string]struct {
		p    sandbox.Profile
		want string
	}{
		"a relative path":    {sandbox.Profile{Readable: []string{"etc"}}, `"etc" is none`},
		"a NUL":              {sandbox.Profile{Readable: []string{"/a\x00b"}}, "absolute paths"},
		"a missing path":     {sandbox.Profile{Writable: []string{"/no/such"}}, "the walls name /no/such, which does not exist; make it"},
		"the kernel's files": {sandbox.Profile{Readable: []string{"/proc/self"}}, "it is the kernel's"},
		"too many paths":     {sandbox.Profile{Readable: manyFiles(t, 600)}, "too many paths"},
		"no such network":    {sandbox.Profile{Network: 17}, "does not exist"},
	} {
		_, err := process.Start(process.Command{Argv: []string{"/bin/true"}, Confine: &sandbox.Confinement{Profile: c.p}})
		kit.Fails(t, err, c.want, name)
	}
	for _, cmd := range []process.Command{{Argv: []string{"/bin/echo", "a\x00b"}}, {Argv: []string{"/bin/echo"}, Env: []string{"A=\x00"}}} {
		cmd.Confine = &sandbox.Confinement{}
		kit.Fails(t, kit.Err(process.Start(cmd)), "NUL", "a NUL")
	}
	for path, want := range map[string]string{"/no/such": "does not exist", "/etc/passwd": "not executable", "/": "it is a folder"} {
		_, err := process.Start(process.Command{Argv: []string{path}, Confine: &sandbox.Confinement{}})
		kit.Fails(t, err, want, path)
	}
}

// manyFiles makes files, each to be listed separately.
func manyFiles(t *testing.T, n int) []string {
	t.Helper()
	dir := t.TempDir()
	var files []string
	for i := range n {
		files = append(files, filepath.Join(dir, fmt.Sprint(i)))
		kit.OK(t, os.WriteFile(files[i], nil, 0o644))
	}
	return files
}

func TestAWallThatIsMissingRefusesTheStart(t *testing.T) {
	tooltest.NoLeaks(t)
	for name, c := range map[string]struct {
		layers []string
		p      sandbox.Profile
		names  string
	}{
		"no seccomp":            {[]string{sandbox.LayerSeccomp}, sandbox.Profile{}, sandbox.LayerSeccomp},
		"no notify":             {[]string{sandbox.LayerNotify}, sandbox.Profile{}, sandbox.LayerNotify},
		"nothing for files":     {[]string{sandbox.LayerMounts, sandbox.LayerLandlock}, sandbox.Profile{Subprocess: true}, sandbox.LayerMounts},
		"no loopback":           {[]string{sandbox.LayerNetwork}, sandbox.Profile{Subprocess: true, Network: sandbox.NetworkLoopback}, sandbox.LayerNetwork},
		"read-only in writable": {[]string{sandbox.LayerMounts}, sandbox.Profile{Subprocess: true, Writable: []string{"/var"}, Readable: []string{"/var/lib"}}, sandbox.LayerMounts},
		"no processors":         {[]string{sandbox.LayerCPU}, sandbox.Profile{Subprocess: true, Limits: sandbox.Limits{CPU: 1}}, sandbox.LayerCPU},
		"no memory":             {[]string{sandbox.LayerMemory}, sandbox.Profile{Subprocess: true, Limits: sandbox.Limits{Memory: 1 << 30}}, sandbox.LayerMemory},
		"no memory for one":     {[]string{sandbox.LayerMemory}, sandbox.Profile{Limits: sandbox.Limits{Memory: 1 << 30}}, sandbox.LayerMemory},
		"nothing for processes": {[]string{sandbox.LayerNamespaces, sandbox.LayerLandlock}, sandbox.Profile{Subprocess: true}, "mounts"},
		"nothing to count with": {[]string{sandbox.LayerNamespaces, sandbox.LayerPids}, sandbox.Profile{Subprocess: true}, sandbox.LayerPids},
	} {
		t.Run(name, func(t *testing.T) {
			sandbox.Without(t, c.layers...)
			_, err := process.Start(process.Command{Argv: []string{"/bin/true"}, Confine: &sandbox.Confinement{Profile: c.p}})
			if e := tool.AsError(err); e == nil || e.Reason != sandbox.CoverageMissing || !strings.Contains(e.Message, c.names) {
				t.Error(err)
			}
		})
	}
}

func TestLimitsHold(t *testing.T) {
	tooltest.NoLeaks(t)
	t.Cleanup(sandbox.Keep())
	work := t.TempDir()
	for name, c := range map[string]struct {
		limits sandbox.Limits
		code   string
		want   []string // its description contains one of these
	}{
		"memory":      {sandbox.Limits{Memory: 64 << 20}, `x=[bytearray(1<<20) for _ in range(400)]; print("TOO MUCH")`, []string{"limit of memory (64 MiB)", "MemoryError"}},
		"processes":   {sandbox.Limits{Processes: 12}, "import os,time\nfor _ in range(40):\n if os.fork()==0: time.sleep(1000)\nprint('TOO MUCH')", []string{"limit of processes (12)", "Resource temporarily unavailable"}},
		"files":       {sandbox.Limits{Files: 20}, `f=[open("/dev/null") for _ in range(30)]; print("TOO MUCH")`, []string{"Too many open files"}},
		"file size":   {sandbox.Limits{FileSize: 1 << 20}, `open("` + work + `/big","wb").write(bytes(2<<20)); print("TOO MUCH")`, []string{"File too large", "SIGXFSZ"}},
		"cpu time":    {sandbox.Limits{CPUTime: time.Second}, "while True: pass", []string{"SIGXCPU", "SIGKILL"}},
		"private tmp": {sandbox.Limits{}, `open("/tmp/big","wb").write(bytes(2<<20)); print("TOO MUCH")`, []string{"No space left"}},
	} {
		t.Run(name, func(t *testing.T) {
			for layer, asked := range map[string]bool{sandbox.LayerPids: c.limits.Processes > 0 && os.Geteuid() == 0, sandbox.LayerMemory: c.limits.Memory > 0} {
				if asked && slices.Contains(sandbox.Missing(), layer) {
					t.Skip("there is nothing to count with")
				}
			}
			cmd := confine(sandbox.Profile{Subprocess: true, Writable: []string{work}, Tmp: 1 << 20, Limits: c.limits}, c.code)
			child := kit.Must(process.Start(cmd))(t)
			defer child.Close()
			kit.OK(t, child.Stdout.SetReadDeadline(time.Now().Add(hang)))
			<-child.Exited()
			exit := child.Wait()
			out, _ := io.ReadAll(child.Stdout)
			said := child.Describe(exit)
			if strings.Contains(string(out), "TOO MUCH") || !slices.ContainsFunc(c.want, func(w string) bool { return strings.Contains(said, w) }) {
				t.Errorf("%s: %s", said, out)
			}
		})
	}
}

// The default limit of memory applies to each process if it cannot apply to all together, and the tool runs.
func TestWithoutCgroupsAProcessHasTheDefaultMemory(t *testing.T) {
	tooltest.NoLeaks(t)
	sandbox.Without(t, sandbox.LayerMemory)
	cmd := confine(sandbox.Profile{Subprocess: true}, "x=bytearray(100<<20); print('enough')\nx=bytearray(600<<20); print('TOO MUCH')")
	if out, _ := run(t, cmd); !strings.HasPrefix(out, "enough\n") || !strings.Contains(out, "MemoryError") {
		t.Error(out)
	}
}

func TestLimitsHoldForAnOrdinaryUser(t *testing.T) { asNobody(t, "TestLimitsHold") }

func TestNothingIsLeftWhenTheHostIsKilled(t *testing.T) {
	tooltest.NoLeaks(t)
	host := func(name string) *exec.Cmd {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), "SANDBOX_TEST_HOST="+name)
		out := kit.Must(cmd.StdoutPipe())(t)
		kit.OK(t, cmd.Start())
		line, _ := bufio.NewReader(out).ReadString('\n')
		kit.Equal(t, line, "ready\n", "the host says")
		return cmd
	}
	name := fmt.Sprint(os.Getpid())
	killed := host(name)
	kit.Eventually(t, "its children sleep", func() bool { return len(running(name)) == 2 })
	_ = killed.Process.Kill()
	_ = killed.Wait()
	gone := func() bool {
		reapAll() // they are our children now
		return len(running(name)) == 0 && len(tooltest.Descendants(os.Getpid())) == 0
	}
	kit.Eventually(t, "its children die", gone)
	kit.OK(t, host("short").Wait())                      // the next one sweeps
	kit.Eventually(t, "those of the next one die", gone) // on a slow machine it does not wait for all of its spare rooms
	if left := groups(killed.Process.Pid); len(left) > 0 {
		t.Errorf("cgroups are left: %v", left)
	}
}

// reapAll waits for all children that have ended, including adopted ones.
func reapAll() {
	for {
		if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
			return
		}
	}
}

// running lists the sleepers of a host.
func running(name string) []string {
	var found []string
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range lines {
		if text, _ := os.ReadFile(file); string(text) == "sleep\x001000."+name+"\x00" {
			found = append(found, file)
		}
	}
	return found
}

// groups lists the cgroups that a program made.
func groups(pid int) []string {
	out, _ := exec.Command("find", "/sys/fs/cgroup", "-maxdepth", "6", "-type", "d", "-name", fmt.Sprintf("toolpost-%d-*", pid)).Output()
	return strings.Fields(string(out))
}

func TestNoCgroupIsLeft(t *testing.T) {
	tooltest.NoLeaks(t)
	release := sandbox.Keep()
	for range 5 {
		run(t, process.Command{Argv: []string{"/bin/true"}, Confine: &sandbox.Confinement{}})
	}
	release()
	if left := groups(os.Getpid()); len(left) > 0 {
		t.Errorf("cgroups are left: %v", left)
	}
}

func TestAttemptsAreSeen(t *testing.T) {
	tooltest.NoLeaks(t)
	work := t.TempDir()
	var mu sync.Mutex
	var seen []string
	cmd := confine(sandbox.Profile{Writable: []string{work}}, `import os,socket
def attempt(f,*a):
    try: f(*a); print("it could", *a)
    except OSError: pass
open("`+work+`/mine","w").close()
open("/dev/null","w").close()
attempt(socket.create_connection,("127.0.0.1",9))
attempt(open,"/usr/x","w")
os.chdir("/usr"); attempt(os.mkdir,"y")
attempt(os.unlink,"/etc/passwd")
attempt(os.execv,"/bin/ls",["ls"])`)
	cmd.Confine.Violation = func(v sandbox.Violation) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, fmt.Sprint(v))
	}
	out, exit := run(t, cmd)
	if out != "" || exit != (process.Exit{}) {
		t.Errorf("%v: %s", exit, out)
	}
	for _, want := range []string{
		"{network no_network 127.0.0.1:9}", "{filesystem_write no_filesystem_write /usr/x}", "{filesystem_write no_filesystem_write /usr/y}",
		"{filesystem_write no_filesystem_write /etc/passwd}", "{subprocess no_subprocess /bin/ls}",
	} {
		if !slices.Contains(seen, want) {
			t.Errorf("%s was not seen", want)
		}
	}
	if slices.ContainsFunc(seen, func(v string) bool { return strings.Contains(v, work) || strings.Contains(v, "/dev/null") }) {
		t.Errorf("what is allowed was reported: %v", seen)
	}
}

func TestReportsOfAttemptsAreBounded(t *testing.T) {
	tooltest.NoLeaks(t)
	n := 0
	cmd := confine(sandbox.Profile{}, "import os\nfor _ in range(1000):\n try: os.mkdir('/x')\n except OSError: pass")
	cmd.Confine.Violation = func(sandbox.Violation) { n++ }
	if out, exit := run(t, cmd); exit != (process.Exit{}) {
		t.Errorf("%v: %s", exit, out)
	}
	kit.Equal(t, n, 64, "reported")
}

func TestARoomsNetworkIsItsOwn(t *testing.T) {
	tooltest.NoLeaks(t)
	l := newLab(t)
	out, _ := run(t, confine(sandbox.Profile{Network: sandbox.NetworkLoopback}, l.fill(`import socket
s=socket.socket(); s.bind(("127.0.0.1",0)); s.listen()
c=socket.create_connection(s.getsockname()); print("itself")
try: socket.create_connection(("127.0.0.1",$TCP),5); print("the host")
except OSError: print("not the host")`)))
	kit.Equal(t, out, "itself\nnot the host\n")
}

func TestEgressGoesThroughTheHostAlone(t *testing.T) {
	tooltest.NoLeaks(t)
	l := newLab(t)
	cmd := confine(sandbox.Profile{Network: sandbox.NetworkEgress}, l.fill(`import socket
c=socket.create_connection(("127.0.0.1",3128)); c.sendall(b"who\n"); print(c.makefile().readline().strip())
try: socket.create_connection(("127.0.0.1",$TCP),5); print("the host")
except OSError: print("nobody else")`))
	cmd.Confine.Egress = func(c net.Conn) {
		defer c.Close()
		line, _ := bufio.NewReader(c).ReadString('\n')
		fmt.Fprintf(c, "the proxy heard %s", line)
	}
	if out, _ := run(t, cmd); out != "the proxy heard who\nnobody else\n" {
		t.Error(out)
	}
}

// forked runs calls in a server of forks, each with guarantees of its own, and returns the output.
func forked(t *testing.T, l *lab, g tool.Guarantees, calls []string) string {
	t.Helper()
	copyFile(t, "testdata/forks.py", l.tool+"/forks.py", 0o644)
	kit.OK(t, os.WriteFile(l.tool+"/confine.py", []byte(sandbox.ForkPython()), 0o644))
	name, extra := python()
	server := sandbox.Profile{
		Readable: []string{l.read}, Writable: []string{l.work}, Executable: append([]string{l.tool}, extra...),
		Subprocess: true, Network: sandbox.NetworkLoopback, Proc: sandbox.ProcOwn,
	}
	script := kit.Must(sandbox.ForkScript(server, sandbox.FromGuarantees(g, server)))(t)
	kit.OK(t, os.WriteFile(l.tool+"/script", script, 0o644))
	argv := []string{name, "-I", "-S", l.tool + "/forks.py", l.tool + "/confine.py", l.tool + "/script"}
	for _, c := range calls {
		argv = append(argv, l.fill(c))
	}
	out, exit := run(t, process.Command{Argv: argv, Confine: &sandbox.Confinement{Profile: server}})
	t.Logf("%v: %s", exit, out)
	return out
}

// A read-only path within a writable one stays read-only, and a link in its place reveals nothing.
func TestReadOnlyPathInsideAWritableOne(t *testing.T) {
	tooltest.NoLeaks(t)
	l := newLab(t)
	kit.OK(t, os.MkdirAll(l.work+"/closed/deep", 0o755))
	kit.OK(t, os.WriteFile(l.work+"/file", nil, 0o644))
	kit.OK(t, os.Symlink(l.dir, l.work+"/link"))
	kit.OK(t, os.Symlink(l.work+"/closed", l.work+"/inner"))
	p := sandbox.Profile{Subprocess: true, Writable: []string{l.work}}
	for _, name := range []string{"closed", "file", "link", "inner", "gone"} {
		p.ReadOnly = append(p.ReadOnly, l.work+"/"+name)
	}
	out, _ := run(t, confine(p, l.fill(`
import os
def can(f):
    try: f()
    except OSError as err: return err.strerror
    return "yes"
print(can(lambda: open("$WORK/new", "w")), can(lambda: open("$WORK/closed/deep/new", "w")), can(lambda: open("$WORK/file", "a")),
      can(lambda: os.rename("$WORK/closed", "$WORK/open")), can(lambda: os.unlink("$WORK/file")), can(lambda: open("$SECRET")), can(lambda: open("$WORK/link/secret")), sep="; ")
`)))
	if out != "yes; Read-only file system; Read-only file system; Device or resource busy; Device or resource busy; No such file or directory; No such file or directory\n" {
		t.Error(out)
	}
}

// Files can be moved between the folders of a writable folder, with and without a network.
func TestFilesCanBeMovedBetweenFolders(t *testing.T) {
	tooltest.NoLeaks(t)
	for _, network := range []sandbox.Network{sandbox.NetworkNone, sandbox.NetworkAll} {
		l := newLab(t)
		kit.OK(t, os.MkdirAll(l.work+"/a", 0o755))
		kit.OK(t, os.MkdirAll(l.work+"/b", 0o755))
		kit.OK(t, os.WriteFile(l.work+"/a/file", nil, 0o644))
		out, _ := run(t, confine(sandbox.Profile{Writable: []string{l.work}, Network: network}, l.fill(`
import os
os.rename("$WORK/a/file", "$WORK/b/file")
os.link("$WORK/b/file", "$WORK/a/again")
try: os.link("/etc/passwd", "$WORK/a/passwd")
except OSError as err: print(err.strerror)
`)))
		kit.Equal(t, out, "Invalid cross-device link\n", "network %s", network)
	}
}

func TestForkedChildrenAreConfinedByThemselves(t *testing.T) {
	tooltest.NoLeaks(t)
	calls := []string{
		`2+2`, `open("$READ/file")`, `open("$WORK/x","w")`, `socket.socket()`, `os.fork()`, `subprocess.run(["/bin/true"])`,
		`os.execv("/bin/true",["true"])`, `os.kill(os.getppid(),0)`, `os.chmod("$WORK",0o755)`, `open("/proc/%d/mem"%os.getppid(),"rb")`,
		`import threading; t=threading.Thread(target=print); t.start(); t.join()`,
	}
	strict := tool.Guarantees{NoFilesystemRead: true, NoFilesystemWrite: true, NoNetwork: true, NoSubprocess: true}
	out := forked(t, newLab(t), strict, calls)
	for i := range calls {
		done := strings.Contains(out, fmt.Sprintf("%d done\n", i))
		if !strings.Contains(out, fmt.Sprintf("%d entered\n", i)) || done != (i == 0 || i == len(calls)-1) {
			t.Errorf("call %d, %s, went wrong", i, calls[i])
		}
	}
}

// A fork that may write cannot make a file that runs as its owner, and the objects that it leaves in its server's room
// are counted.
func TestForkedChildrenLeaveNothingUnseen(t *testing.T) {
	tooltest.NoLeaks(t)
	l := newLab(t)
	calls := []string{
		`open("$WORK/a","x"); os.chmod("$WORK/a",0o755)`,
		`os.chmod("$WORK/a",0o4755)`, `os.chmod("$WORK/a",0o2755)`, `os.open("$WORK/b",os.O_CREAT|os.O_WRONLY,0o4755)`, `os.mknod("$WORK/c",0o104755)`,
		`libc.mq_open(b"/q",0o102,0o600,None) < 0 and fail()`,
		`libc.shmget(77,4096,0o1600) < 0 and fail()`, `libc.semget(77,1,0o1600) < 0 and fail()`, `libc.msgget(77,0o1600) < 0 and fail()`,
	}
	out := forked(t, l, tool.Guarantees{}, calls)
	for i := range calls {
		kit.Equal(t, strings.Contains(out, fmt.Sprintf("%d done\n", i)), (i == 0 || i > 5), "call %d, %s", i, calls[i])
	}
	kit.Contains(t, out, "0 objects before, 3 after\n", "what is left is not counted")
}

func TestForkedChildrenLeaveNothingUnseenAsAnOrdinaryUser(t *testing.T) {
	asNobody(t, "TestForkedChildrenLeaveNothingUnseen")
}

func TestAForkCannotTakeTheEnvironmentAway(t *testing.T) {
	_, err := sandbox.ForkScript(sandbox.Profile{}, sandbox.Profile{NoEnv: true})
	if e := tool.AsError(err); e == nil || e.Reason != sandbox.CoverageMissing {
		t.Error(err)
	}
	kit.Refused(t, kit.Err(sandbox.ForkScript(sandbox.Profile{}, sandbox.Profile{Subprocess: true})), tool.CodeInvalidInput, "")
}
