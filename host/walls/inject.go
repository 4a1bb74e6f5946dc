package walls

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"

	"toolpost/host/secret"
	"toolpost/tool"
)

// valueTime is how long a program that starts waits for the value of an exposed connection.
const valueTime = 30 * time.Second

// An Injector puts the credentials of one caller into what the programs of one instance of a source send. The programs hold
// a placeholder for each connection; the proxy of their room replaces it on the way to the hosts of the connection, while a
// call of that caller runs there, and puts it back in place of the value on the way in.
type Injector struct {
	caller   string // empty for the instance that only lists the tools: it never has a credential
	links    []*link
	redactor secret.Redactor // knows the values that were sent
	sessions tls.ClientSessionCache

	own    sync.Once
	ca     *authority // of the rooms of this instance
	failed error      // why there is none

	mu      sync.Mutex
	running []*tool.Call
	calls   context.Context // ends with the last of those that run
	idle    context.CancelFunc
	exposed map[string]string // values that the programs were given, by connection
}

// A link is one connection of the source.
type link struct {
	*tool.Credential // as the config has it, without a value
	hosts            []host
	form             *regexp.Regexp // of the placeholders of this connection in all instances
	placeholder      string
}

// NewInjector returns the injector of an instance of a source for a caller. Without a caller the instance gets placeholders
// and never a value.
func NewInjector(connections []*tool.Credential, caller string) (*Injector, error) {
	in := &Injector{caller: caller, exposed: map[string]string{}, sessions: tls.NewLRUClientSessionCache(maxLeaves)}
	for _, c := range connections {
		l, err := newLink(c)
		if err != nil {
			return nil, err
		}
		l.placeholder = "tp-" + c.Connection + "-" + rand.Text()
		l.form = regexp.MustCompile("tp-" + regexp.QuoteMeta(c.Connection) + "-[A-Z2-7]{26}") // names have no capitals
		in.links = append(in.links, l)
	}
	return in, nil
}

func newLink(c *tool.Credential) (*link, error) {
	l := &link{Credential: c}
	for _, text := range c.Hosts {
		h, err := parseHost(text)
		if err != nil {
			return nil, err
		}
		l.hosts = append(l.hosts, h)
	}
	return l, nil
}

// Folder names the folder of what the instance keeps for its caller; empty for the instance that only lists the tools.
func (in *Injector) Folder() string {
	if in == nil || in.caller == "" {
		return ""
	}
	digest := sha256.Sum256([]byte(in.caller))
	return hex.EncodeToString(digest[:16])
}

// Begin makes the credentials of a call available until it ends.
func (in *Injector) Begin(c *tool.Call) (end func(), err error) {
	if in.caller == "" || c.Caller.ID != in.caller {
		return nil, tool.Errorf(tool.CodeInternal, "%s: an instance of its source was asked to serve another caller", c.Tool)
	}
	for _, l := range in.links {
		if credentialOf(c, l.Connection) == nil {
			return nil, tool.Errorf(tool.CodeAccessDenied, "%s uses the connection %s, which %q does not have: run `toolpost "+
				"connections add %s`", c.Tool, l.Connection, in.caller, l.Connection).Because("connection_missing")
		}
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if len(in.running) == 0 {
		in.calls, in.idle = context.WithCancel(context.Background())
	}
	in.running = append(in.running, c)
	return func() {
		in.mu.Lock()
		defer in.mu.Unlock()
		in.running = slices.DeleteFunc(in.running, func(o *tool.Call) bool { return o == c })
		if len(in.running) == 0 {
			in.idle()
		}
	}, nil
}

// withCalls runs end when no call runs any more, at once if none does, unless stop is called before.
func (in *Injector) withCalls(end func()) (stop func() bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	return context.AfterFunc(in.calls, end)
}

func credentialOf(c *tool.Call, connection string) *tool.Credential {
	i := slices.IndexFunc(c.Credentials, func(o *tool.Credential) bool { return o.Connection == connection && o.Value != nil })
	if i < 0 {
		return nil
	}
	return c.Credentials[i]
}

// Active returns the credential of the running calls for a connection, or nil if no call runs. Its use is noted for each of them: which of
// its calls a program makes a request for cannot be told.
func (in *Injector) Active(connection string) *tool.Credential {
	in.mu.Lock()
	defer in.mu.Unlock()
	var all []*tool.Credential
	for _, c := range in.running {
		all = append(all, credentialOf(c, connection))
	}
	if len(all) == 0 {
		return nil
	}
	one := *all[len(all)-1]
	one.Used = func(host string) {
		for _, c := range all {
			if c.Used != nil {
				c.Used(host)
			}
		}
	}
	return &one
}

// Credentials returns those of a running call with their descriptions, for a runner that makes the requests itself.
func (in *Injector) Credentials() (all []*tool.Credential) {
	if in == nil {
		return nil
	}
	for _, l := range in.links {
		if active := in.Active(l.Connection); active != nil {
			one := *l.Credential
			one.Value, one.Used, one.Again = active.Value, active.Used, active.Again
			all = append(all, &one)
		}
	}
	return all
}

// Value returns the value of a connection for a request to an address that Check has let through, and notes that.
func (in *Injector) Value(ctx context.Context, connection, to string) (string, error) {
	one := in.Active(connection)
	u, err := url.Parse(to)
	if one == nil || err != nil {
		return "", tool.Errorf(tool.CodeUnavailable, "no call has a credential of the connection %s", connection)
	}
	one.Used(Address(u))
	return one.Value(ctx)
}

// Check refuses the address of a server to which no connection sends its value.
func (in *Injector) Check(method string, u *url.URL) error {
	if in == nil || slices.ContainsFunc(in.links, func(l *link) bool { return Sends(l.Credential, method, u) }) {
		return nil
	}
	return tool.Errorf(tool.CodeInvalidInput, "its connections send no key with %s to %s: add it to their hosts, methods and paths; "+
		"without TLS, only to an address of this machine or its network with a port", method, Address(u))
}

// Secret returns the value of an exposed connection, for the environment of a program. It implements secret.Source. A program
// that starts between calls gets the value that others of its instance have.
func (in *Injector) Secret(connection string) (string, error) {
	cred := in.Active(connection)
	if cred == nil {
		in.mu.Lock()
		defer in.mu.Unlock()
		if value, ok := in.exposed[connection]; ok {
			return value, nil
		}
		return "", tool.Errorf(tool.CodeUnavailable, "no call has a credential of the connection %s", connection)
	}
	ctx, cancel := context.WithTimeout(context.Background(), valueTime)
	defer cancel()
	value, err := cred.Value(ctx)
	if err != nil {
		return "", err
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.exposed[connection] = value
	in.redactor.Add("connection "+connection, value)
	return value, nil
}

// Quiet returns a log for the instance, in which the values that its programs have, or the proxy has sent, are redacted.
func (in *Injector) Quiet(log *slog.Logger) *slog.Logger {
	return slog.New(secret.Handler(log.Handler(), &in.redactor))
}

// Exposes lists the variables whose value programs get, as VARIABLE=CONNECTION.
func (in *Injector) Exposes() (all []string) {
	if in == nil || in.caller == "" {
		return nil
	}
	for _, l := range in.links {
		if l.Exposed && l.Env != "" {
			all = append(all, l.Env+"="+l.Connection)
		}
	}
	return all
}

// Outdated reports whether programs of the instance were given a value that a call no longer has.
func (in *Injector) Outdated(ctx context.Context, c *tool.Call) bool {
	in.mu.Lock()
	given := maps.Clone(in.exposed)
	in.mu.Unlock()
	for _, l := range in.links {
		cred := credentialOf(c, l.Connection)
		if !l.Exposed || cred == nil || given[l.Connection] == "" {
			continue
		}
		if value, err := cred.Value(ctx); err == nil && value != given[l.Connection] {
			return true
		}
	}
	return false
}

// Close forgets what the instance had.
func (in *Injector) Close() {
	in.own.Do(func() {}) // a room that starts later has no certificate
	if in.ca != nil {
		_ = os.RemoveAll(in.ca.dir)
	}
}

// intercepts lists the connections whose values the proxy sends.
func (in *Injector) intercepts() (all []*link) {
	if in == nil {
		return nil
	}
	for _, l := range in.links {
		if !l.Exposed {
			all = append(all, l)
		}
	}
	return all
}

// Intercepts reports whether programs need the proxy for their keys.
func (in *Injector) Intercepts() bool { return len(in.intercepts()) > 0 }

// covers reports whether the proxy reads what is sent to a host, because a connection names it.
func (in *Injector) covers(t host) bool {
	return slices.ContainsFunc(in.intercepts(), func(l *link) bool { return l.covers(t) })
}

// entries lists the hosts of the connections as a config would have them.
func (in *Injector) entries() (all []string) {
	if in == nil {
		return nil
	}
	for _, l := range in.links {
		all = append(all, l.Hosts...)
	}
	return all
}

// environment returns the variables of the connections, and those by which programs trust the certificates of the room.
func (in *Injector) environment() []string {
	var env []string
	for _, l := range in.links {
		if l.Env != "" && (!l.Exposed || in.caller == "") {
			env = append(env, l.Env+"="+l.placeholder)
		}
	}
	if in.ca == nil {
		return env
	}
	for _, name := range []string{
		"SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "PIP_CERT",
		"AWS_CA_BUNDLE", "DENO_CERT", "CARGO_HTTP_CAINFO", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
	} {
		env = append(env, name+"="+in.ca.bundle)
	}
	return env
}

// covers reports whether a connection names a host.
func (l *link) covers(t host) bool {
	return slices.ContainsFunc(l.hosts, func(h host) bool { return h.covers(t) })
}

// near reports whether a value may go there without TLS.
func (h host) near() bool {
	return h.port != 0 && (h.addr.IsValid() && !isPublic(h.addr) || h.name == "localhost")
}

// A request is what is asked of a host.
type request struct {
	to     host
	secure bool // over TLS
	method string
	url    *url.URL
}

// refuses returns why a value may not be sent with a request; "" if it may.
func (l *link) refuses(r request) string {
	switch {
	case !l.covers(r.to):
		return "which is not one of its hosts"
	case !r.secure && !slices.ContainsFunc(l.hosts, func(h host) bool { return h.covers(r.to) && h.near() }):
		return "without TLS, which is for an address of this machine or its network with a port"
	case len(l.Methods) > 0 && !slices.ContainsFunc(l.Methods, func(m string) bool { return strings.EqualFold(m, r.method) }):
		return "with a method that the connection does not name"
	case len(l.Paths) > 0 && !inPaths(l.Paths, r.url):
		return "with a path that the connection does not name"
	}
	return ""
}

// inject puts values in place of the placeholders in the headers of a request, and sets the header of a connection that has
// one if the program has not. It reports whether a value is sent. The error says why the request is refused, and may be shown to
// the program. Parts of an answer are never asked for: a program could put together from them a value that an earlier request has
// left at the host.
func (in *Injector) inject(ctx context.Context, r request, h http.Header) (sent bool, err error) {
	for _, name := range []string{"Range", "If-Range", "Request-Range"} {
		h.Del(name)
	}
	in.dropOverrides(r.to, h)
	for _, l := range in.intercepts() {
		used := l.in(h)
		name, _ := Header(l.Credential, "")
		missing := l.Header != "" && len(h[name]) == 0 && l.refuses(r) == ""
		cred := in.Active(l.Connection)
		switch {
		case l.form.MatchString(r.url.String()):
			return false, denied("the placeholder of connection %s was sent in a URL; it is replaced in headers only", l.Connection)
		case l.foreign(h):
			return false, denied("a placeholder of connection %s was sent that is not the one of this program", l.Connection)
		case used && l.refuses(r) != "":
			return false, denied("the placeholder of connection %s was sent to %s %s", l.Connection, r.to, l.refuses(r))
		case used && cred == nil:
			return false, denied("the placeholder of connection %s was sent to %s while no call was running", l.Connection, r.to)
		case cred == nil || !used && !missing:
			continue
		}
		if err := in.put(ctx, l, cred, r.to, h, missing); err != nil {
			return false, err
		}
		sent = true
	}
	return sent, nil
}

// dropOverrides removes the headers by which some servers take another method or path than that of the request, if a
// connection of the host names methods or paths.
func (in *Injector) dropOverrides(to host, h http.Header) {
	if !slices.ContainsFunc(in.intercepts(), func(l *link) bool { return l.covers(to) && len(l.Methods)+len(l.Paths) > 0 }) {
		return
	}
	maps.DeleteFunc(h, func(name string, _ []string) bool {
		switch strings.ToLower(strings.ReplaceAll(name, "_", "-")) { // to CGI and its heirs both are the same
		case "x-http-method-override", "x-http-method", "x-method-override", "x-original-url", "x-rewrite-url":
			return true
		}
		return false
	})
}

// put sends the current value of a credential.
func (in *Injector) put(ctx context.Context, l *link, cred *tool.Credential, to host, h http.Header, missing bool) error {
	value, err := cred.Value(ctx)
	if err != nil {
		return tool.AsError(err)
	}
	if !httpguts.ValidHeaderFieldValue(value) {
		return tool.Errorf(tool.CodeUnavailable, "the key of connection %s has characters that a header cannot have", l.Connection)
	}
	if err := in.redactor.AddAs(l.placeholder, value); err != nil {
		return tool.Errorf(tool.CodeUnavailable, "the key of connection %s is not sent: %w", l.Connection, err)
	}
	if missing {
		h.Set(Header(l.Credential, value))
	}
	l.rewrite(h, func(text string) string { return strings.ReplaceAll(text, l.placeholder, value) })
	cred.Used(to.String())
	return nil
}

func denied(format string, about ...any) error {
	return tool.Errorf(tool.CodeAccessDenied, format, about...)
}

// mentioned returns a connection of which a request has a placeholder, or "".
func (in *Injector) mentioned(u *url.URL, h http.Header) string {
	for _, l := range in.intercepts() {
		if strings.Contains(u.String(), l.placeholder) || l.in(h) {
			return l.Connection
		}
	}
	return ""
}

// in reports whether headers have the placeholder.
func (l *link) in(h http.Header) (found bool) {
	l.rewrite(h, func(text string) string {
		found = found || strings.Contains(text, l.placeholder)
		return text
	})
	return found
}

// foreign reports whether headers have a placeholder of another instance.
func (l *link) foreign(h http.Header) (found bool) {
	l.rewrite(h, func(text string) string {
		found = found || slices.ContainsFunc(l.form.FindAllString(text, -1), func(p string) bool { return p != l.placeholder })
		return text
	})
	return found
}

// rewrite changes the values of headers, and what is encoded in those of basic authentication.
func (l *link) rewrite(h http.Header, change func(string) string) {
	for _, values := range h {
		for i, text := range values {
			scheme, coded, _ := strings.Cut(text, " ")
			plain, err := base64.StdEncoding.DecodeString(strings.TrimSpace(coded))
			if err == nil && strings.EqualFold(scheme, "Basic") {
				if is := change(string(plain)); is != string(plain) {
					values[i] = scheme + " " + base64.StdEncoding.EncodeToString([]byte(is))
				}
				continue
			}
			values[i] = change(text)
		}
	}
}
