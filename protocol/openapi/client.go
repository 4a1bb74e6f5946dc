package openapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"syscall"
	"time"

	"toolpost/host/walls"
	"toolpost/tool"
	"toolpost/wire/bounded"
)

// Bounds on HTTP.
const (
	dialTime     = 10 * time.Second
	fetchTime    = 30 * time.Second // for a document
	maxRedirects = 5
)

// newClient returns a client that stays at the origin of its request, and out of internal networks unless the request
// names an address there. Certificates are checked as usual.
func newClient(private bool) *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		d := &net.Dialer{Timeout: dialTime}
		host, _, _ := net.SplitHostPort(addr)
		if !private && !isLiteral(host) && !walls.IsProxy(addr) {
			d.ControlContext = func(_ context.Context, _, address string, _ syscall.RawConn) error {
				return checkPublic(host, address)
			}
		}
		return d.DialContext(ctx, network, addr)
	}
	transport.MaxIdleConnsPerHost, transport.IdleConnTimeout = 64, 30*time.Second
	transport.DisableCompression = true // a small answer could decompress to any size
	transport.MaxResponseHeaderBytes = 256 << 10
	return &http.Client{Transport: transport, CheckRedirect: stays}
}

// An innerError is a host name that resolves to an address that is not public.
type innerError struct{ host, address string }

func (e *innerError) Error() string {
	return fmt.Sprintf("%s has the address %s, which is not a public one; if it is right, write the address itself, or "+
		"set `private: true` in the config of the source", e.host, e.address)
}

// checkPublic checks the dialled address, after the name was resolved: the owner of a name can change its address at
// any time.
func checkPublic(host, address string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	if !walls.Public(at.Addr()) {
		return &innerError{host, at.Addr().String()}
	}
	return nil
}

// stays follows a redirect within the origin, and returns any other as the answer: headers and bodies are for one
// server only.
func stays(next *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects || originOf(next.URL) != originOf(via[0].URL) {
		return http.ErrUseLastResponse
	}
	return nil
}

// fetch reads a document from its URL.
func (r *Runner) fetch(ctx context.Context) ([]byte, *url.URL, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.o.Document, nil)
	if err != nil {
		return nil, nil, tool.Errorf(tool.CodeInvalidInput, "document: %s is not a URL", r.o.shown())
	}
	req.Header.Set("Accept", "application/vnd.oai.openapi+json, application/json, application/yaml, */*;q=0.5")
	resp, err := r.client.Do(req)
	if err != nil {
		return nil, nil, unreached(ctx, r.o.shown(), err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, nil, tool.Errorf(tool.CodeUnavailable, "the document %s cannot be fetched: the server answered %s",
			r.o.shown(), clip(resp.Status, 100))
	}
	data, err := bounded.ReadDocument(resp.Body, maxDocument)
	if err != nil {
		return nil, nil, tool.Errorf(tool.CodeUnavailable, "the document %s cannot be fetched: %w", r.o.shown(), err)
	}
	return data, req.URL, nil
}

// unreached explains why there is no answer. A request that was not sent was not executed; of any other that is
// unknown.
func unreached(ctx context.Context, who string, err error) error {
	if ctx.Err() != nil {
		return tool.Ended(ctx)
	}
	if asked, ok := errors.AsType[*url.Error](err); ok { // its text has the whole URL, which may contain a key
		err = asked.Err
	}
	if inner, ok := errors.AsType[*innerError](err); ok {
		return tool.Errorf(tool.CodeAccessDenied, "%s may not be reached: %w", who, inner).Because("private_address")
	}
	if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
		return tool.Errorf(tool.CodeUnavailable, "nothing answers at %s (%w)", who, dial.Err)
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return tool.Errorf(tool.CodeUnavailable, "%s cannot be reached: %w", who, dns)
	}
	if bad, ok := errors.AsType[*tls.CertificateVerificationError](err); ok { // nothing was sent
		return tool.BeforeRun(tool.Errorf(tool.CodeUnavailable, "the certificate of %s is not trusted: %w; that of an authority of your own "+
			"belongs into the file that SSL_CERT_FILE names", who, bad))
	}
	return tool.Errorf(tool.CodeCrash,
		"%s broke off before there was an answer; the call may have been done: %w", who, err)
}
