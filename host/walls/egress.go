package walls

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"toolpost/host/sandbox"
	"toolpost/tool"
)

const (
	maxHead  = 64 << 10 // bytes of a request before its body
	maxAddrs = 16       // addresses of a name that are tried
	maxNames = 1024     // names that are resolved: a * covers any number of them
)

// limits are the time limits of a child's connection.
type limits struct {
	head    time.Duration // to send its request
	resolve time.Duration // for a name
	connect time.Duration // for the connection to a host
	idle    time.Duration // without data in either direction
	half    time.Duration // likewise, after the child has closed its direction: it may wait for the rest, or be gone
	look    time.Duration // between two checks of the last two
	part    time.Duration // for the child to read why it was refused
	next    time.Duration // for the next request of a connection that stays open
}

// An egress is the way out of a room to the named hosts only. It speaks the two proxy protocols that programs use: HTTP,
// with CONNECT and with absolute URLs, and SOCKS5.
//
// A name is resolved once and keeps its addresses for the life of the egress. A host is reached only at one of these, and
// at an address that is not on the Internet only if the list names that address: the owner of a name must not open the
// inner network.
type egress struct {
	hosts  []host
	inject *Injector // nil if the source has no connections
	limits limits
	lookup func(ctx context.Context, network, name string) ([]netip.Addr, error)
	dial   func(ctx context.Context, network, address string) (net.Conn, error)

	mu   sync.Mutex
	pins map[string][]netip.Addr // by name
}

func newEgress(hosts []host) *egress {
	return &egress{
		hosts: hosts, pins: map[string][]netip.Addr{},
		limits: limits{
			head: 15 * time.Second, resolve: 10 * time.Second, connect: 20 * time.Second,
			idle: 10 * time.Minute, half: 10 * time.Second, look: 200 * time.Millisecond, part: time.Second,
			next: time.Minute,
		},
		lookup: net.DefaultResolver.LookupNetIP, dial: new(net.Dialer).DialContext,
	}
}

// names reports whether the list has the host.
func (e *egress) names(t host) bool {
	return slices.ContainsFunc(e.hosts, func(h host) bool { return h.covers(t) })
}

// connect connects to a host of the list. The error has the code access_denied if the host is not listed, and may be
// shown to the tool.
func (e *egress) connect(ctx context.Context, t host) (net.Conn, error) {
	if !e.names(t) || !t.addr.IsValid() && !isName(t.name) {
		return nil, tool.Errorf(tool.CodeAccessDenied,
			"%s may not be reached: to allow it add %s to network: in the config of the source", t, t.entry())
	}
	addrs, err := e.addresses(ctx, t)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, e.limits.connect)
	defer cancel()
	end, _ := ctx.Deadline()
	for i, addr := range addrs { // each within its share of the remaining time
		share, cancel := context.WithTimeout(ctx, time.Until(end)/time.Duration(len(addrs)-i))
		var conn net.Conn
		conn, err = e.dial(share, "tcp", netip.AddrPortFrom(addr, t.port).String())
		if cancel(); err == nil {
			return conn, nil
		}
	}
	return nil, unreached(t, err)
}

// unreached explains why there is no connection, without details of the machine's network.
func unreached(t host, err error) error {
	code, why := tool.CodeUnavailable, "cannot be reached"
	switch wait, ok := errors.AsType[net.Error](err); {
	case errors.Is(err, syscall.ECONNREFUSED):
		why = "refuses the connection"
	case ok && wait.Timeout():
		code, why = tool.CodeTimeout, "does not answer"
	}
	failure := tool.Errorf(code, "%s %s", t, why)
	failure.Err = err
	return failure
}

// addresses returns the addresses at which a host of the list may be reached.
func (e *egress) addresses(ctx context.Context, t host) ([]netip.Addr, error) {
	if t.addr.IsValid() {
		return []netip.Addr{t.addr}, nil
	}
	all, err := e.resolve(ctx, t)
	if err != nil {
		return nil, err
	}
	var open []netip.Addr
	for _, addr := range all {
		if isPublic(addr) || e.names(host{addr: addr, port: t.port}) {
			open = append(open, addr)
		}
	}
	if len(open) == 0 {
		at := host{addr: all[0], port: t.port}
		return nil, tool.Errorf(tool.CodeAccessDenied,
			"%s may not be reached: its address %s is not a public one; to allow it add %s as well to network: in "+
				"the config of the source", t, at.addr, at.entry())
	}
	return open, nil
}

// resolve returns the addresses of a name of the list, the same each time.
func (e *egress) resolve(ctx context.Context, t host) ([]netip.Addr, error) {
	e.mu.Lock()
	pinned, full := e.pins[t.name], len(e.pins) >= maxNames
	e.mu.Unlock()
	switch {
	case pinned != nil:
		return pinned, nil
	case full:
		return nil, tool.Errorf(tool.CodeUnavailable,
			"%s is not resolved: the tools of this source have asked for %d names already", t, maxNames)
	}
	ctx, cancel := context.WithTimeout(ctx, e.limits.resolve)
	defer cancel()
	found, err := e.lookup(ctx, "ip", t.name)
	if err != nil || len(found) == 0 {
		failure := tool.Errorf(tool.CodeUnavailable, "%s cannot be reached: its name does not resolve", t)
		failure.Err = err
		return nil, failure
	}
	addrs := make([]netip.Addr, 0, maxAddrs)
	for _, addr := range found[:min(len(found), maxAddrs)] {
		addrs = append(addrs, addr.Unmap())
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.pins[t.name] == nil { // the first answer counts, even if another goroutine got it
		e.pins[t.name] = addrs
	}
	return e.pins[t.name], nil
}

// What the proxy stops.
const (
	capNetwork    = "network"
	capCredential = "credential"
)

// serve returns the function that handles the connections of one room. Refusals are reported to the watch, up to its
// limit for a call.
func (e *egress) serve(w *Watch) func(net.Conn) {
	report := func(capability, target string) {
		if w != nil && len(w.Checks()) < mostChecks {
			w.saw(sandbox.Violation{Capability: capability, Guarantee: "no_" + capability, Target: target})
		}
	}
	return func(c net.Conn) {
		ctx, cancel := context.WithCancel(context.Background())
		pair := &connPair{egress: e, report: report, ctx: ctx, cancel: cancel, began: time.Now()}
		pair.child = &side{Conn: c, pair: pair}
		pair.head = &head{from: pair.child}
		pair.in = bufio.NewReader(pair.head)
		pair.serve()
	}
}

// proxyVariables point programs to the proxy. Most know one spelling of each; Node must be told to use them.
func proxyVariables() []string {
	way := map[string]string{
		"http_proxy": "http://" + sandbox.EgressAddress, "https_proxy": "http://" + sandbox.EgressAddress,
		// a named host on the loopback is the one outside
		"all_proxy": "http://" + sandbox.EgressAddress, "no_proxy": "",
	}
	env := []string{"NODE_USE_ENV_PROXY=1"}
	for name, value := range way {
		env = append(env, name+"="+value, strings.ToUpper(name)+"="+value)
	}
	slices.Sort(env)
	return env
}
