package stormfleet

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"toolpost/internal/kit"
	"toolpost/internal/netns"
)

// A network is what connects the machines: it can lose packets, all of those from one machine to another, or some, and delay them.
type network struct {
	tun  *os.File
	pipe map[[2]string]chan packet
}

// rules drop what is on its way between two machines. Callers are in the network itself, and not affected.
const rules = `table inet storm {
	set cuts { type ipv4_addr . ipv4_addr; }
	set lossy { type inet_proto; }
	chain forward {
		type filter hook forward priority 0;
		ip saddr . ip daddr @cuts drop
		meta l4proto @lossy numgen random mod 100 < 2 drop
	}
}`

// newNetwork prepares the network of this process, which netns.Alone made.
func newNetwork(t *testing.T) *network {
	t.Helper()
	n := &network{pipe: map[[2]string]chan packet{}}
	cmd := exec.CommandContext(t.Context(), "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	out, err := cmd.CombinedOutput()
	kit.OK(t, err, string(out))
	fd := kit.Must(unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0))(t)
	request := kit.Must(unix.NewIfreq("storm"))(t)
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	kit.OK(t, unix.IoctlIfreq(fd, unix.TUNSETIFF, request))
	n.tun = os.NewFile(uintptr(fd), "tun")
	netns.Run(t, "ip", "link", "set", "storm", "up")
	for _, file := range []string{"all/rp_filter", "default/rp_filter", "storm/rp_filter"} {
		kit.OK(t, os.WriteFile("/proc/sys/net/ipv4/conf/"+file, []byte("0"), 0o644))
	}
	kit.OK(t, os.WriteFile("/proc/sys/net/ipv4/conf/storm/accept_local", []byte("1"), 0o644))
	netns.Run(t, "ip", "route", "add", "default", "dev", "storm", "table", "77")
	netns.Run(t, "ip", "rule", "add", "pref", "10", "iif", "storm", "lookup", "main")
	var work sync.WaitGroup
	work.Go(func() { n.carry(&work) })
	t.Cleanup(func() { _ = n.tun.Close(); work.Wait() })
	return n
}

// cut loses everything that is sent from one of some machines to one of the others, or no longer.
func (n *network) cut(from, to []string, off bool) error {
	var ways []string
	for _, a := range from {
		for _, b := range to {
			ways = append(ways, a+" . "+b)
		}
	}
	return n.filter("cuts", strings.Join(ways, ", "), off)
}

// lose loses every fiftieth packet between machines, or no longer.
func (n *network) lose(on bool) error { return n.filter("lossy", "tcp", on) }

func (n *network) filter(set, elements string, on bool) error {
	verb := map[bool]string{true: "add", false: "delete"}[on]
	return command("nft", verb, "element", "inet", "storm", set, "{ "+elements+" }")
}

// delay sends what a machine gets and sends through the relay, or no longer.
func (n *network) delay(address string, on bool) error {
	verb := map[bool]string{true: "add", false: "delete"}[on]
	for _, way := range []string{"to", "from"} {
		if err := command("ip", "rule", verb, "pref", "20", way, address, "lookup", "77"); err != nil {
			return err
		}
	}
	return nil
}

func command(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// A packet is on its way until a time.
type packet struct {
	data []byte
	due  time.Time
}

// carry delays packets by 200 ms ± 100 ms. Those of one way keep their order, as on most networks, and the delay of a way changes
// four times a second.
func (n *network) carry(work *sync.WaitGroup) {
	defer func() {
		for _, p := range n.pipe {
			close(p)
		}
	}()
	delays := map[[2]string]packet{}
	for {
		b := make([]byte, 1<<16)
		size, err := n.tun.Read(b)
		if err != nil {
			return
		}
		if size < 20 || b[0]>>4 != 4 {
			continue
		}
		way, now := [2]string{string(b[12:16]), string(b[16:20])}, time.Now()
		d := delays[way]
		if now.After(d.due) { // data has one byte: the delay, in units of two milliseconds
			d = packet{[]byte{byte(50 + rand.IntN(100))}, now.Add(250 * time.Millisecond)}
			delays[way] = d
		}
		if n.pipe[way] == nil {
			p := make(chan packet, 4096)
			n.pipe[way] = p
			work.Go(func() { n.deliver(p) })
		}
		select {
		case n.pipe[way] <- packet{b[:size], now.Add(2 * time.Millisecond * time.Duration(d.data[0]))}:
		default: // a full queue loses packets, as everywhere
		}
	}
}

func (n *network) deliver(from <-chan packet) {
	for p := range from {
		time.Sleep(time.Until(p.due))
		_, _ = n.tun.Write(p.data) // the machine may be gone
	}
}
