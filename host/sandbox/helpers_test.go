//go:build linux

package sandbox_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"toolpost/host/process"
	"toolpost/host/sandbox"
	"toolpost/internal/kit"
)

const (
	hang   = 60 * time.Second // bounds waits that only guard against a hang
	canary = "CANARY-7c1f0a9d"
	nobody = 65534
)

func TestMain(m *testing.M) {
	if sandbox.Main() {
		return
	}
	if os.Getenv("SANDBOX_TEST_HOST") != "" {
		beHost()
		return
	}
	_ = os.Setenv("SANDBOX_TEST_SECRET", canary)
	goleak.VerifyTestMain(m)
}

// python returns an interpreter that every user can run, and the files that it needs in a room.
var python = sync.OnceValues(func() (string, []string) {
	for _, name := range []string{"/usr/bin/python3", "python3"} {
		out, err := exec.Command(name, "-c", "import sys; print(sys.executable, sys.prefix)").Output()
		if fields := strings.Fields(string(out)); err == nil && len(fields) == 2 {
			return fields[0], fields[1:]
		}
	}
	panic("the tests of package sandbox need python3")
})

// tries returns the compiled testdata/try.c, or nil if there is no compiler.
var tries = sync.OnceValue(func() []byte {
	dir, err := os.MkdirTemp("", "try")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "try")
	if out, err := exec.Command("gcc", "-O1", "-w", "-o", file, "testdata/try.c").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "no C attempts: %v: %s\n", err, out)
		return nil
	}
	program, err := os.ReadFile(file)
	if err != nil {
		panic(err)
	}
	return program
})

// A lab holds the targets of attempts: folders, servers, and this process.
type lab struct {
	dir    string // not readable in any room
	secret string // a file in it
	tool   string // a folder that may be read and run, with the attempts' programs
	work   string // a folder that may be written, if the profile says so
	read   string // a folder that may be read, if the profile says so
	tcp    string // the port of a server on the loopback
	unix   string // the path of a server
	python string
	c      string
}

func newLab(t *testing.T) *lab {
	t.Helper()
	dir := kit.Must(os.MkdirTemp("", "lab"))(t) // short, as the path of a Unix socket must be
	t.Cleanup(func() { os.RemoveAll(dir) })
	l := &lab{dir: dir, secret: dir + "/secret", tool: dir + "/tool", work: dir + "/work", read: dir + "/read", unix: dir + "/read/sock"}
	l.python, _ = python()
	for _, folder := range []string{l.tool, l.work, l.read} {
		kit.OK(t, os.Mkdir(folder, 0o755))
	}
	kit.OK(t, os.WriteFile(l.secret, []byte(canary), 0o644))
	kit.OK(t, os.WriteFile(l.read+"/file", []byte("to be read"), 0o644))
	kit.OK(t, os.Symlink(l.secret, l.read+"/link"))
	kit.OK(t, os.Mkdir(l.read+"/empty", 0o755))
	copyFile(t, "testdata/try.py", l.tool+"/try.py", 0o644)
	if tries() != nil {
		l.c = l.tool + "/try"
		kit.OK(t, os.WriteFile(l.c, tries(), 0o755))
	}
	l.serve(t)
	return l
}

// serve listens at the addresses that attempts connect to.
func (l *lab) serve(t *testing.T) {
	t.Helper()
	accept := func(network, address string) net.Addr {
		s := kit.Must(net.Listen(network, address))(t)
		var work sync.WaitGroup
		work.Go(func() {
			for {
				conn, err := s.Accept()
				if err != nil {
					return
				}
				conn.Close()
			}
		})
		t.Cleanup(func() { s.Close(); work.Wait() })
		return s.Addr()
	}
	l.tcp = fmt.Sprint(accept("tcp", "127.0.0.1:0").(*net.TCPAddr).Port)
	accept("unix", l.unix)
	accept("unix", "@"+l.abstract())
	kit.OK(t, os.Chmod(l.unix, 0o777))
	datagrams := kit.Must(net.ListenPacket("unixgram", l.read+"/dgram"))(t)
	kit.OK(t, os.Chmod(l.read+"/dgram", 0o777))
	t.Cleanup(func() { datagrams.Close() })
}

func (l *lab) abstract() string { return "lab" + filepath.Base(l.dir) }

// fill replaces the lab's names in an attempt.
func (l *lab) fill(code string) string {
	return strings.NewReplacer("$DIR", l.dir, "$SECRET", l.secret, "$TOOL", l.tool, "$WORK", l.work, "$READ", l.read, "$TCP", l.tcp,
		"$UNIX", l.unix, "$ABSTRACT", l.abstract(), "$PARENT", fmt.Sprint(os.Getpid()), "$PYTHON", l.python, "$C", l.c).Replace(code)
}

// run runs a command and returns all its output.
func run(t *testing.T, cmd process.Command) (string, process.Exit) {
	t.Helper()
	c := kit.Must(process.Start(cmd))(t)
	defer c.Close()
	c.CloseStdin()
	kit.OK(t, c.Stdout.SetReadDeadline(time.Now().Add(hang)))
	out, err := io.ReadAll(c.Stdout)
	if err != nil {
		t.Fatalf("%v: %v; %s", cmd.Argv, err, c.Tail())
	}
	exit := c.Wait()
	return string(out) + c.Tail(), exit
}

func copyFile(t *testing.T, from, to string, mode os.FileMode) {
	t.Helper()
	b := kit.Must(os.ReadFile(from))(t)
	kit.OK(t, os.WriteFile(to, b, mode))
	kit.OK(t, os.Chmod(to, mode))
}

// asNobody runs a test of this binary as an ordinary user.
func asNobody(t *testing.T, test string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("this already runs as an ordinary user")
	}
	dir := kit.Must(os.MkdirTemp("", "nobody"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	kit.OK(t, os.Chmod(dir, 0o755))
	kit.OK(t, os.Mkdir(dir+"/testdata", 0o755))
	copyFile(t, "/proc/self/exe", dir+"/sandbox.test", 0o755)
	for _, name := range []string{"try.c", "try.py", "forks.py"} {
		copyFile(t, "testdata/"+name, dir+"/testdata/"+name, 0o644)
	}
	kit.OK(t, os.Mkdir(dir+"/tmp", 0o777))
	kit.OK(t, os.Chmod(dir+"/tmp", 0o777))
	cmd := exec.Command(dir+"/sandbox.test", "-test.run", "^"+test+"$", "-test.v", "-test.timeout", "8m")
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TOOLPOST_LONG=" + os.Getenv("TOOLPOST_LONG"), "TMPDIR=" + dir + "/tmp", "HOME=" + dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+test) {
		t.Fatalf("as an ordinary user: %v\n%s", err, failures(string(out)))
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "attempts") {
			t.Log("as an ordinary user: " + strings.TrimSpace(line))
		}
	}
}

// failures removes the lines of passed tests.
func failures(out string) string {
	var kept []string
	for line := range strings.Lines(out) {
		if !strings.Contains(line, "--- PASS") && !strings.Contains(line, "=== ") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

// witness is a word in our memory that an attempt tries to read.
var witness = new(uint64)

// special fills in values that only the tests know.
func special(code string) string {
	loader := "/none"
	for _, path := range []string{"/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"} {
		if _, err := os.Stat(path); err == nil {
			loader = path
		}
	}
	return strings.NewReplacer("$LOADER", loader, "$ADDRESS", fmt.Sprintf("%p", witness)).Replace(code)
}

// beHost is a program that starts a confined child with processes that hide, reports that they run, and waits. With an
// empty name it starts a short program instead.
func beHost() {
	name := os.Getenv("SANDBOX_TEST_HOST")
	script := "sleep 1000." + name + " & setsid sleep 1000." + name + " & echo ready; wait"
	if name == "short" {
		script = "echo ready"
	}
	c, err := process.Start(process.Command{
		Argv: []string{"/bin/sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"},
		Confine: &sandbox.Confinement{Profile: sandbox.Profile{Subprocess: true}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	line := make([]byte, 16)
	n, _ := c.Stdout.Read(line)
	fmt.Print(string(line[:n]))
	c.Wait()
	c.Close()
	sandbox.Keep()()
}
