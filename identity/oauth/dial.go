package oauth

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"

	"toolpost/host/walls"
)

// RequestTime bounds one request to a provider. A person may take as long as the context of a login allows.
const RequestTime = 30 * time.Second

const dialTime = 10 * time.Second

// HTTPClient makes the requests that a server's metadata leads to: to its authorization server, and to the endpoints
// that this one names for registration and tokens. The config names none of them, and each could be an address that
// only this machine can reach, so that we would send a request there on the server's behalf.
func HTTPClient(server string) *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext, transport.DisableKeepAlives = newDialPolicy(server).dial, true
	transport.MaxResponseHeaderBytes = 256 << 10
	return &http.Client{Timeout: RequestTime, Transport: transport, CheckRedirect: CheckRedirect}
}

// maxRedirects bounds the redirects of a document.
const maxRedirects = 5

// CheckRedirect follows redirects of documents only. A request that carries a token, a code or a header with a secret
// is for the address that it is sent to and for no other.
func CheckRedirect(next *http.Request, via []*http.Request) error {
	switch first := via[0]; {
	case first.Method != http.MethodGet:
		return http.ErrUseLastResponse
	case len(via) > maxRedirects:
		return fmt.Errorf("it is somewhere else more than %d times", maxRedirects)
	case first.URL.Scheme == "https" && next.URL.Scheme != "https":
		return fmt.Errorf("it is at %s, which is not https", next.URL.Redacted())
	}
	return nil
}

// A dialPolicy is the part of the network that a server may refer us to: public addresses, and those that are no
// nearer than the server itself.
type dialPolicy struct {
	host   string // of the server
	server string // with its port
}

func newDialPolicy(server string) *dialPolicy {
	u, err := url.Parse(server)
	if err != nil {
		return &dialPolicy{}
	}
	return &dialPolicy{u.Hostname(), walls.Address(u)}
}

// The scopes of an address: how near it is to this machine.
const (
	scopePublic = iota
	scopePrivate
	scopeLocal    // this machine
	scopeReserved // no ordinary server has such an address, but services of clouds do
)

func scopeOf(ip netip.Addr) int {
	ip = ip.Unmap()
	switch shared := netip.MustParsePrefix("100.64.0.0/10"); {
	case ip.IsLoopback() || ip.IsUnspecified():
		return scopeLocal
	case ip.IsPrivate() || shared.Contains(ip):
		return scopePrivate
	case !ip.IsGlobalUnicast():
		return scopeReserved
	}
	return scopePublic
}

func (p *dialPolicy) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	d := &net.Dialer{Timeout: dialTime}
	if addr != p.server && !walls.IsProxy(addr) {
		d.ControlContext = func(ctx context.Context, _, address string, _ syscall.RawConn) error {
			return p.check(ctx, address)
		}
	}
	return d.DialContext(ctx, network, addr)
}

func (p *dialPolicy) check(ctx context.Context, address string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	if how := scopeOf(at.Addr()); how == scopePublic || how <= p.serverScope(ctx) {
		return nil
	}
	return fmt.Errorf("%s is an address of this machine or of its network, to which a server from outside may not send us",
		at.Addr())
}

// serverScope returns the scope of the server. A name can resolve to another address the next moment, so no name counts
// as this machine except localhost.
func (p *dialPolicy) serverScope(ctx context.Context) int {
	if ip, err := netip.ParseAddr(p.host); err == nil {
		return scopeOf(ip) % scopeReserved
	}
	if host := strings.ToLower(p.host); host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return scopeLocal
	}
	all, err := net.DefaultResolver.LookupNetIP(ctx, "ip", p.host)
	for _, ip := range all {
		if scopeOf(ip) == scopePublic {
			return scopePublic
		}
	}
	if err != nil || len(all) == 0 {
		return scopePublic
	}
	return scopePrivate
}
