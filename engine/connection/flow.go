package connection

import (
	"cmp"
	"context"
	"crypto/rand"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/oauth2"

	"toolpost/host/secret"
	"toolpost/identity/oauth"
	"toolpost/tool"
	"toolpost/wire/nearest"
)

// How long a person has to agree, once a link was made.
const linkLasts = 10 * time.Minute

// anyPort is the address with which a client is registered that is for another device: a client has to have one.
const anyPort = "http://127.0.0.1/callback"

// CallbackPath is the path at which browsers come back to the console. The name of the connection follows it: what one provider answers
// is not taken for the answer of another one.
const CallbackPath = "/v1/connections/callback/"

// A link is what a state or a link contains, sealed. It is for one caller, and ends.
type link struct {
	Caller   string `json:"caller"`
	Name     string `json:"name"`
	Until    int64  `json:"until"` // in Unix seconds
	Once     string `json:"once"`
	Verifier string `json:"verifier,omitzero"`
	Redirect string `json:"redirect,omitzero"`
	Device   string `json:"device,omitzero"`
	For      string `json:"for,omitzero"`    // the origin of the connection, for a state
	Client   string `json:"client,omitzero"` // that the provider has registered for it
	Secret   string `json:"secret,omitzero"`
}

// The purposes of seals: a link to the console is no state of a provider's answer.
const (
	linkPurpose  = "links that connect accounts"
	statePurpose = "states of accounts that are being connected"
)

func (c *Connections) newLink(purpose string, l link) (string, error) {
	l.Until, l.Once = c.env.now().Add(linkLasts).Unix(), rand.Text()
	return c.env.Keys.SealText(purpose, l)
}

// openLink reads a link of a caller.
func (c *Connections) openLink(purpose, text string, p tool.Principal) (l link, err error) {
	ok, err := c.env.Keys.OpenText(purpose, text, &l)
	switch {
	case err != nil:
		return l, err
	case !ok:
		return l, tool.Errorf(tool.CodeInvalidInput, "this link was not made by this server, or its key has changed").Because("link")
	case c.env.now().Unix() >= l.Until:
		return l, tool.Errorf(tool.CodeInvalidInput, "this link is too old; begin again").Because("link")
	case l.Caller != p.ID && !actsFor(p, l.Caller):
		return l, tool.Errorf(tool.CodeAccessDenied, "this link is for another caller than %q", p.ID).Because("link")
	}
	return l, nil
}

// actsFor reports whether a caller may connect accounts for another one: an operator for an agent of this machine.
func actsFor(p tool.Principal, other string) bool {
	return p.Operator() && strings.HasPrefix(other, tool.AgentPrefix)
}

// Of returns the caller whose connections a call is about: the caller's own, or those of an agent.
func (c *Connections) of(p tool.Principal, other string) (string, error) {
	if other == "" || other == p.ID {
		return p.ID, c.apart(p)
	}
	if !actsFor(p, other) {
		return "", tool.Errorf(tool.CodeAccessDenied, "%q may not connect accounts for %q: only operators may, and only for agents; "+
			"people connect themselves, in the console or with a token of their own", p.ID, other)
	}
	return other, c.apart(tool.Principal{ID: other})
}

// apart refuses a caller that may be several people, or programs that only say what they are called.
func (c *Connections) apart(p tool.Principal) error {
	if tool.SelfNamed(p.ID) {
		return tool.Errorf(tool.CodeAccessDenied, "%q is what this agent calls itself, and another one could say the same: start it with "+
			"`toolpost as mcp --caller NAME`, so that it can have connections", p.ID).Because(SharedName)
	}
	if p.ID == "" || c.env.Shared != nil && c.env.Shared(p) {
		return tool.Errorf(tool.CodeAccessDenied, "%q may be anybody, so it has no connections; show a token, or sign in", p.ID).Because(SharedName)
	}
	return nil
}

func (c *Connections) named(name string) (*Options, error) {
	all := c.now.Load().named
	if o := all[name]; o != nil {
		return o, nil
	}
	return nil, tool.Errorf(tool.CodeNotFound, "the config has no connection %q%s", name, nearest.Hint(name, slices.Sorted(maps.Keys(all))))
}

// A Begin says how a caller wants to connect an account.
type Begin struct {
	Name, Caller string
	Link         string // that an earlier call asked to open; it names the connection and the caller
	Redirect     string // the address that the browser comes back to
	Device       bool   // use a code that a person types at another device
}

// A Begun is an account that is being connected.
type Begun struct {
	Name, Caller string
	State        string // Finish needs it
	URL          string // the page on which a person agrees
	Code         string // that the person types there, with Device
	Every        time.Duration
}

// begin returns which connection of which caller is meant.
func (c *Connections) begin(p tool.Principal, b Begin) (o *Options, caller string, err error) {
	if b.Link != "" {
		l, err := c.openLink(linkPurpose, b.Link, p)
		if err != nil {
			return nil, "", err
		}
		b.Name, b.Caller = l.Name, l.Caller
	}
	if caller, err = c.of(p, b.Caller); err == nil {
		o, err = c.named(b.Name)
	}
	return o, caller, err
}

// Start begins to connect an account.
func (c *Connections) Start(ctx context.Context, p tool.Principal, b Begin) (begun Begun, err error) {
	o, caller, err := c.begin(p, b)
	switch {
	case err != nil:
		return begun, err
	case o.Key == pasted:
		return begun, tool.Errorf(tool.CodeInvalidInput, "%s has a key that is pasted: %s", o.Name, c.how(o, caller)).Because(Pasted)
	case o.Grant == machine:
		return begun, tool.Errorf(tool.CodeInvalidInput, "%s needs no person: all callers use the token of its client", o.Name)
	}
	client, err := c.client(ctx, o, held{})
	if err != nil {
		return begun, err
	}
	begun.Name, begun.Caller = o.Name, caller
	l := link{Caller: caller, Name: o.Name, For: o.origin()}
	back := anyPort
	if !b.Device {
		if back, err = c.redirect(o, b.Redirect); err != nil {
			return begun, err
		}
	}
	if client.ID == "" && !(b.Device && client.Device == "") {
		if client.ID, client.Secret, err = client.Enrol(ctx, []string{back}); err != nil {
			return begun, err
		}
		l.Client, l.Secret = client.ID, client.Secret
	}
	if b.Device {
		d, err := client.StartDevice(ctx)
		if err != nil {
			return begun, explained(err)
		}
		l.Device, begun.URL, begun.Code, begun.Every = d.Code, d.Address, d.User, oauth.Seconds(d.Every, 5*time.Second)
		begun.State, err = c.newLink(statePurpose, l)
		return begun, err
	}
	l.Redirect, l.Verifier = back, oauth2.GenerateVerifier()
	if begun.State, err = c.newLink(statePurpose, l); err == nil {
		begun.URL, err = client.AuthorizeURL(begun.State, l.Verifier, l.Redirect)
	}
	return begun, err
}

// redirect returns the address that the browser comes back to: on the machine of the person, or at the console.
func (c *Connections) redirect(o *Options, wanted string) (string, error) {
	at := CallbackPath + o.Name
	if o.Redirect != "" && strings.HasSuffix(wanted, at) {
		return o.Redirect, nil
	}
	u, err := url.Parse(wanted)
	local := err == nil && u.Scheme == "http" && oauth.Loopback(u) && u.User == nil && u.Fragment == "" && u.RawQuery == ""
	if local || c.console() != "" && wanted == c.console()+at {
		return wanted, nil
	}
	return "", tool.Errorf(tool.CodeInvalidInput, "the browser cannot be sent to %q, which is neither this machine nor the console; if the console is "+
		"behind a proxy, give the connection `redirect: https://HOST%s`", wanted, at)
}

func (c *Connections) console() string {
	if c.env.Console == nil {
		return ""
	}
	return strings.TrimSuffix(c.env.Console(), "/")
}

// An End is what the provider sent the browser back with, and the connection at whose address of the console it came back. All but the
// state is empty for a device.
type End struct{ State, Code, Issuer, At string }

// Finish ends what Start has begun. done is false while the person has not decided at another device.
func (c *Connections) Finish(ctx context.Context, p tool.Principal, e End) (name string, done bool, err error) {
	l, err := c.openLink(statePurpose, e.State, p)
	if err != nil {
		return "", false, err
	}
	o, err := c.named(l.Name)
	if err != nil {
		return "", false, err
	}
	if l.For != o.origin() {
		return o.Name, false, tool.Errorf(tool.CodeConflict, "the config has changed the connection %s; begin again", o.Name).Because("link")
	}
	client, err := c.client(ctx, o, held{Client: l.Client, Secret: l.Secret})
	if err != nil {
		return o.Name, false, err
	}
	var t oauth.Token
	if l.Device != "" {
		t, err = client.PollDevice(ctx, l.Device)
	} else {
		t, err = c.exchange(ctx, client, l, e)
	}
	if no, is := err.(*oauth.Refused); is && (no.Code == oauth.Pending || no.Code == oauth.SlowDown) {
		return o.Name, false, nil
	}
	if t, err = o.granted(t, err); err != nil {
		return o.Name, false, explained(err)
	}
	h := held{Access: t.Access, Refresh: t.Refresh, Lasts: t.Lasts, Client: l.Client, Secret: l.Secret}
	return o.Name, true, c.put(ctx, o, l.Caller, h, t)
}

// exchange gets the token for a code, once. The code must come from the server that the person was sent to: another one could
// answer in its place, and get the code of this one.
func (c *Connections) exchange(ctx context.Context, client *oauth.Client, l link, e End) (t oauth.Token, err error) {
	if strings.HasSuffix(l.Redirect, CallbackPath+l.Name) && e.At != l.Name ||
		(client.NamesItself || e.Issuer != "") && strings.TrimSuffix(e.Issuer, "/") != strings.TrimSuffix(client.Issuer, "/") {
		return t, tool.Errorf(tool.CodeAccessDenied, "the answer is not from the provider of %s", l.Name).Because("issuer")
	}
	first, err := c.env.Keys.Once(ctx, c.env.Marks, statePurpose, l.Once, 2*linkLasts)
	if err != nil {
		return t, err
	}
	if !first {
		return t, tool.Errorf(tool.CodeConflict, "this link was used before; begin again").Because("link")
	}
	return client.Exchange(ctx, e.Code, l.Verifier, l.Redirect)
}

// explained puts the refusal of a provider into words.
func explained(err error) error {
	if no, is := err.(*oauth.Refused); is {
		return tool.Errorf(tool.CodeAccessDenied, "%w", no).Because(Refused)
	}
	return err
}

// Paste keeps a key that a person has pasted.
func (c *Connections) Paste(ctx context.Context, p tool.Principal, b Begin, key string) (name string, err error) {
	o, caller, err := c.begin(p, b)
	switch {
	case err != nil:
		return "", err
	case o.Key != pasted:
		return "", tool.Errorf(tool.CodeInvalidInput, "%s takes no key: %s", o.Name, c.how(o, caller))
	case len(key) < secret.MinSize || len(key) > 16<<10 || !httpguts.ValidHeaderFieldValue(key) || strings.TrimSpace(key) != key:
		return "", tool.Errorf(tool.CodeInvalidInput, "a key has %d characters or more, in one line and without spaces around it", secret.MinSize)
	}
	return o.Name, c.put(ctx, o, caller, held{Access: key}, oauth.Token{})
}

// put stores what a caller has connected, in place of what was there.
func (c *Connections) put(ctx context.Context, o *Options, caller string, h held, t oauth.Token) error {
	r := Row{Caller: caller, Name: o.Name, Scopes: t.Scopes, Connected: c.env.now()}
	h.For = o.origin()
	if t.Lasts > 0 {
		r.Expires = c.env.now().Add(t.Lasts)
	}
	if err := c.seal(&r, h); err != nil {
		return err
	}
	for range 100 {
		was, err := c.env.Store.Find(ctx, caller, o.Name)
		if err != nil {
			return err
		}
		r.Version = was.Version + 1
		if ok, err := c.env.Store.Put(ctx, r); err != nil || ok {
			c.changes.Tell()
			return err
		}
	}
	return tool.Errorf(tool.CodeConflict, "other programs change the connection %s all the time", o.Name)
}

// Remove forgets a connection, and revokes its tokens at the provider. If that fails, it is forgotten nevertheless, and why says so.
func (c *Connections) Remove(ctx context.Context, caller, name string) (why, err error) {
	for {
		r, err := c.env.Store.Find(ctx, caller, name)
		switch {
		case err != nil:
			return nil, err
		case r.Version == 0:
			if _, err := c.named(name); err != nil {
				return nil, err
			}
			return nil, tool.Errorf(tool.CodeNotFound, "%s has not connected %q", caller, name)
		}
		if ok, err := c.env.Store.Remove(ctx, r); err != nil || ok {
			if err != nil {
				return nil, err
			}
			c.changes.Tell()
			return c.revoke(ctx, r), nil
		}
	}
}

func (c *Connections) revoke(ctx context.Context, r Row) error {
	o := c.now.Load().named[r.Name]
	if len(r.Sealed) == 0 || o == nil || o.Key == pasted {
		return nil
	}
	h, err := c.unseal(o, r)
	if err != nil {
		return err
	}
	if h.Access == "" {
		return tool.Errorf(tool.CodeUnsupported, "the config has another provider for %s than the one that was connected: revoke it there", r.Name)
	}
	client, err := c.client(ctx, o, h)
	if err != nil {
		return err
	}
	if h.Refresh != "" { // ends its access tokens, too
		if err := client.Forget(ctx, h.Refresh, "refresh_token"); err != nil {
			return explained(err)
		}
	}
	return explained(client.Forget(ctx, h.Access, "access_token"))
}

// The states of a connection.
const (
	Connected    = "connected"
	NotConnected = "not connected"
	Lost         = "lost" // the provider accepts it no longer
	ForAll       = "for all callers"
)

// A Status is what is known of a connection of a caller; its value is not in it.
type Status struct {
	Name      string    `json:"name"`
	Caller    string    `json:"caller"`
	State     string    `json:"state" doc:"connected; not connected; lost: the provider accepts it no longer; or for all callers"`
	Kind      string    `json:"kind" doc:"account, pasted or client_credentials"`
	Provider  string    `json:"provider,omitzero"`
	Hosts     []string  `json:"hosts"`
	Scopes    []string  `json:"scopes,omitzero"`
	Connected time.Time `json:"connected,omitzero"`
	Expires   time.Time `json:"expires,omitzero" doc:"when the present token ends; it is renewed before, or at its next use"`
	Used      time.Time `json:"used,omitzero"`
	Memory    bool      `json:"memory,omitzero" doc:"there is no store: it is forgotten when the program ends"`
}

// List returns the connections that a caller has, or can have.
func (c *Connections) List(ctx context.Context, caller string, lasting bool) ([]Status, error) {
	rows, err := c.env.Store.List(ctx, caller)
	if err != nil {
		return nil, err
	}
	all, p := []Status{}, c.now.Load()
	for _, name := range slices.Sorted(maps.Keys(p.named)) {
		s := p.named[name].status(caller, NotConnected)
		if p.named[name].Grant == machine {
			s.State = ForAll
		}
		if i := slices.IndexFunc(rows, func(r Row) bool { return r.Name == name }); i >= 0 {
			c.fill(&s, p.named[name], rows[i])
		}
		s.Memory = !lasting
		all = append(all, s)
	}
	return all, nil
}

// All returns the connections of all callers, without those of no caller.
func (c *Connections) All(ctx context.Context) ([]Status, error) {
	rows, err := c.env.Store.All(ctx)
	all, p := []Status{}, c.now.Load()
	for _, r := range rows {
		if r.Caller == "" {
			continue
		}
		s := Status{Name: r.Name, Caller: r.Caller, Hosts: []string{}}
		if o := p.named[r.Name]; o != nil {
			s = o.status(r.Caller, NotConnected)
		}
		c.fill(&s, p.named[r.Name], r)
		all = append(all, s)
	}
	return all, err
}

func (o *Options) status(caller, state string) Status {
	return Status{Name: o.Name, Caller: caller, State: state, Kind: o.kind(), Provider: cmp.Or(o.Preset, o.Issuer), Hosts: o.Hosts}
}

// fill adds what is known of a row; o is nil if the config has no such connection.
func (c *Connections) fill(s *Status, o *Options, r Row) {
	switch {
	case len(r.Sealed) == 0:
		s.State = Lost
	case o == nil:
		s.State = Connected
	default:
		h, err := c.unseal(o, r)
		if err == nil && h.Access == "" {
			return // for another provider
		}
		if s.State = Connected; h.Refresh != "" && r.Expires.Before(c.env.now()) {
			r.Expires = time.Time{} // the next use renews it
		}
	}
	s.Scopes, s.Connected, s.Expires, s.Used = r.Scopes, r.Connected, r.Expires, r.Used
}
