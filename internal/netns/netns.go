// Package netns gives tests machines of their own: network namespaces that are connected with the one of the test. All of them
// vanish with the test's process.
package netns

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"toolpost/internal/kit"
)

// alone makes this test the child that has a network to itself.
const alone = "TOOLPOST_TEST_ALONE"

// Alone runs the test once more, in a network of its own whose machines reach each other, and reports whether this is that run.
func Alone(t *testing.T) bool {
	t.Helper()
	if os.Getenv(alone) != "" {
		kit.OK(t, os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644))
		Run(t, "ip", "link", "set", "lo", "up")
		return true
	}
	_, err := exec.LookPath("ip")
	if os.Getuid() != 0 || err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("networks can be made by root alone, with Debian's package iproute2: %v", err)
		}
		t.Skip("networks can be made by root alone, with Debian's package iproute2")
	}
	t.Parallel() // other tests have networks of their own
	left := 15 * time.Minute
	if end, ok := t.Deadline(); ok {
		left = time.Until(end)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout="+left.String()) //nolint:gosec // this test program
	cmd.Env = append(os.Environ(), alone+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	cmd.SysProcAttr.Unshareflags = syscall.CLONE_NEWNS // what it mounts vanishes with it
	out, err := cmd.CombinedOutput()
	kit.Check(t, err)
	t.Logf("%s", out)
	return false
}

// A Machine is the network of a process. Its address is 10.9.N.2, and that of the test, for it, 10.9.N.1.
type Machine struct {
	pid    int
	subnet string
}

// New makes a machine that does nothing. Words starts programs on it.
func New(t testing.TB, number int) *Machine {
	t.Helper()
	m := Lonely(t)
	m.link(t, number)
	return m
}

// Lonely is New without a connection to any other machine.
func Lonely(t testing.TB) *Machine {
	t.Helper()
	idle := exec.CommandContext(context.WithoutCancel(t.Context()), "sleep", "infinity")
	idle.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	kit.OK(t, idle.Start())
	t.Cleanup(func() {
		_ = idle.Process.Kill()
		_ = idle.Wait() // "killed" is the expected error
	})
	m := &Machine{pid: idle.Process.Pid}
	m.Do(t, "link", "set", "lo", "up")
	return m
}

// Of returns the machine of a process that was started in a network of its own.
func Of(t testing.TB, pid, number int) *Machine {
	t.Helper()
	m := &Machine{pid: pid}
	m.link(t, number)
	return m
}

// link connects the network of the machine with that of this process. The hardware address is fixed, so that packets to a
// machine that is cut off vanish: otherwise the kernel would soon say that it has no neighbour of that address.
func (m *Machine) link(t testing.TB, number int) {
	t.Helper()
	m.subnet = "10.9." + strconv.Itoa(number)
	name, hardware := "net"+strconv.Itoa(number), "02:00:00:00:00:01"
	if exec.CommandContext(t.Context(), "ip", "link", "show", name).Run() == nil { // of the last machine that had the address
		Run(t, "ip", "link", "delete", name)
	}
	Run(t, "ip", "link", "add", name, "type", "veth", "peer", "name", "out", "address", hardware, "netns", strconv.Itoa(m.pid))
	Run(t, "ip", "address", "add", m.subnet+".1/24", "dev", name)
	Run(t, "ip", "link", "set", name, "up")
	Run(t, "ip", "neighbour", "replace", m.Address(), "lladdr", hardware, "dev", name, "nud", "permanent")
	m.Do(t, "address", "add", m.Address()+"/24", "dev", "out")
	m.Cut(t, false)
}

// Address is that of the machine.
func (m *Machine) Address() string { return m.subnet + ".2" }

// Words begin the command of a program that runs on the machine.
func (m *Machine) Words(program ...string) []string {
	return append([]string{"nsenter", "-t", strconv.Itoa(m.pid), "-n"}, program...)
}

// Do runs the command ip on the machine.
func (m *Machine) Do(t testing.TB, args ...string) {
	t.Helper()
	Run(t, "nsenter", append(m.Words("ip")[1:], args...)...)
}

// Cut cuts the machine off from the others, or connects it again.
func (m *Machine) Cut(t testing.TB, off bool) {
	t.Helper()
	if off {
		m.Do(t, "link", "set", "out", "down")
		return
	}
	m.Do(t, "link", "set", "out", "up")
	m.Do(t, "route", "replace", "default", "via", m.subnet+".1")
}

// Relay passes connections to an address of the machine on to the same address in the network of this process, until the test
// ends.
func (m *Machine) Relay(t testing.TB, address string) {
	t.Helper()
	l := kit.Must(m.listen(address))(t)
	var work sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		work.Wait()
	})
	work.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			work.Go(func() { pass(from, address) })
		}
	})
}

func pass(from net.Conn, address string) {
	defer from.Close()
	to, err := new(net.Dialer).DialContext(context.Background(), "tcp", address)
	if err != nil {
		return
	}
	defer to.Close()
	var both sync.WaitGroup
	for a, b := range map[net.Conn]net.Conn{from: to, to: from} {
		both.Go(func() {
			_, _ = io.Copy(a, b)
			_, _ = a.Close(), b.Close() // the end of either is that of both
		})
	}
	both.Wait()
}

// listen listens on the machine: a socket belongs to the network of the thread that makes it.
func (m *Machine) listen(address string) (l net.Listener, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	here, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, err
	}
	defer here.Close()
	there, err := os.Open("/proc/" + strconv.Itoa(m.pid) + "/ns/net")
	if err != nil {
		return nil, err
	}
	defer there.Close()
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		return nil, err
	}
	l, err = new(net.ListenConfig).Listen(context.Background(), "tcp", address)
	return l, errors.Join(err, unix.Setns(int(here.Fd()), unix.CLONE_NEWNET))
}

// Run runs a program, which must succeed.
func Run(t testing.TB, name string, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	kit.OK(t, err, name, args, out)
}
