package singularity

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"toolpost/identity"
	"toolpost/tool"
)

const (
	doorName     = "nats"
	homeAccount  = "toolpost"             // of this process. NATS's initial account is unused
	fullAccount  = "full"                 // accepts no connection: NATS tells a client in it that there are too many
	hurryEvery   = 100 * time.Millisecond // how often unauthenticated connections are looked for
	recheckEvery = 400 * time.Millisecond // a caller that is no longer admitted is disconnected within a second
	askWithin    = 5 * time.Second        // for the gate to answer
	againWithin  = time.Second            // the same, for repeated questions
	unsureWithin = 5 * time.Second        // for a gate that cannot decide to recover
)

// The sender writes all of a NATS message: subject, headers and body. Nothing in it identifies the sender. The server itself
// only knows the account of each connection, and messages do not leave their account. So every caller gets an account of its
// own, and this process has a connection in each of them, on which its doors serve that one caller. Two other ways were
// considered. Signed requests would keep out every client that exists. One account with a prefix of subjects for each caller
// would rely on callers to use their own prefix, with a permission list on every connection to enforce it, and the subjects
// are the contract's.
//
// A connection outlives the credentials that opened it: a token is revoked, a certificate expires, a caller leaves the
// config. NATS asks once, when a client connects. Therefore the credentials of each connection are kept here and shown to
// the gate again and again, and a connection that is no longer admitted is cut off.

// A doorkeeper decides which clients may connect to the embedded server, assigns them to their accounts, and keeps checking
// them for as long as they are connected.
type doorkeeper struct {
	own  string // the token of this process
	gate identity.Gate
	log  *slog.Logger
	srv  *server.Server  // set before it starts
	full *server.Account // likewise
	most identity.Bounds
	idle time.Duration // how long an account is kept without guests
	rest time.Duration // how long before its NATS account can go to another caller
	none string        // the caller for connections without credentials; if empty they are refused

	callers int // limit of callers at the same time

	mu       sync.Mutex
	door     *serving                // nil if none is open
	ours     map[uint64]bool         // connections of this process, by their ids
	guests   map[uint64]*guest       // likewise
	of       identity.PerCaller[int] // guests
	accounts map[accountKey]*account
	made     int       // NATS accounts
	free     []vacancy // those that no caller has

	leaving []*account // used by the watch goroutine alone
}

// tooMany is the reason of a refusal.
const tooMany = "connections"

// A guest is a connection of a caller.
type guest struct {
	id      uint64
	shown   identity.Credentials // kept in memory only, to ask again
	account *account
	unsure  time.Time // since when the gate cannot decide; zero if it can
}

func newDoorkeeper(o ServerOptions) *doorkeeper {
	return &doorkeeper{
		own: rand.Text() + rand.Text(), gate: o.Gate, log: o.Log, most: o.Bounds, idle: o.idle, none: o.Anonymous.Name,
		ours: map[uint64]bool{}, of: identity.PerCaller[int]{}, guests: map[uint64]*guest{}, accounts: map[accountKey]*account{},
		callers: o.Callers, rest: o.rest,
	}
}

func (k *doorkeeper) register(name string) *server.Account {
	a, _ := k.srv.LookupOrRegisterAccount(name)
	return a
}

// dial connects this process to an account without a socket; "" is its own account.
func (k *doorkeeper) dial(account string, more ...nats.Option) (*nats.Conn, error) {
	return dial("", "the embedded server", k.log,
		append(more, nats.InProcessServer(k.srv), nats.UserInfo(cmp.Or(account, homeAccount), k.own))...)
}

// Check implements server.Authentication.
func (k *doorkeeper) Check(c server.ClientAuthentication) bool {
	given := c.GetOpts()
	if subtle.ConstantTimeCompare([]byte(given.Password), []byte(k.own)) == 1 {
		k.mu.Lock()
		k.ours[c.GetID()] = true
		k.mu.Unlock()
		c.RegisterUser(&server.User{Account: k.register(given.Username)})
		return true
	}
	if err := k.admit(c, given.Username); err != nil {
		if tool.AsError(err).Reason == tooMany { // NATS has a message for it, and no other way to send it
			c.RegisterUser(&server.User{Account: k.full})
		}
		k.log.Warn("NATS refused a connection", "from", fmt.Sprint(c.RemoteAddress()),
			"reason", tool.AsError(err).Message)
		return false
	}
	return true
}

// admit assigns a client to the account of its caller, and makes sure that the door has a desk there.
func (k *doorkeeper) admit(c server.ClientAuthentication, user string) error {
	g := &guest{id: c.GetID(), shown: k.credentials(c)}
	p, err := k.ask(context.Background(), askWithin, g.shown)
	switch {
	case err != nil && user != "" && g.shown.Token == "" && g.shown.Certificate == nil:
		return tool.Errorf(tool.CodeAccessDenied,
			"the user %.100q came without a password; give a token as the password, or no name", user)
	case err != nil:
		return err
	}
	if user != "" && user != p.ID {
		return tool.Errorf(tool.CodeAccessDenied,
			"the credentials are not those of the user %.100q: give the caller's name, or none", user)
	}
	door, err := k.enter(g, p)
	if err != nil {
		return err
	}
	if err := k.openDesk(door, g.account); err != nil {
		k.forget(g)
		return err
	}
	// A caller may send requests and read answers. It may neither read the requests of its other connections nor answer in
	// our place.
	may := &server.Permissions{
		Subscribe: &server.SubjectPermission{Deny: []string{prefixTools + ">", prefixToolpost + ">", "$SRV.>"}},
	}
	c.RegisterUser(&server.User{Username: p.ID, Account: g.account.nats, Permissions: may})
	return nil
}

// credentials returns what a client shows. A name, a key or a signature counts as something too, although we do not check
// it: a caller that sends one is not anonymous. A JWT is not among them: NATS drops it before we are asked, and clients that
// have one sign.
func (k *doorkeeper) credentials(c server.ClientAuthentication) identity.Credentials {
	given := c.GetOpts()
	shown := identity.Credentials{Door: doorName, Token: cmp.Or(given.Token, given.Password)}
	s := c.GetTLSConnectionState()
	if s != nil && len(s.VerifiedChains) > 0 {
		shown.Certificate = s.VerifiedChains[0][0]
	}
	if cmp.Or(shown.Token, given.Username, given.Nkey, given.Sig) == "" && (s == nil || len(s.PeerCertificates) == 0) {
		shown.Anonymous = k.none
	}
	return shown
}

// ask asks the gate. A certificate may have expired since its connection began.
func (k *doorkeeper) ask(
	ctx context.Context, within time.Duration, shown identity.Credentials,
) (tool.Principal, error) {
	switch cert := shown.Certificate; {
	case k.gate == nil || shown.Token == "" && cert == nil && shown.Anonymous == "":
		return tool.Principal{}, tool.Errorf(tool.CodeAccessDenied, "neither a token nor a certificate was shown")
	case cert != nil && time.Now().After(cert.NotAfter):
		return tool.Principal{}, tool.Errorf(tool.CodeAccessDenied, "the certificate has expired")
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return k.gate(ctx, shown)
}

// enter records a guest, and returns the door that needs a desk in its account.
func (k *doorkeeper) enter(g *guest, p tool.Principal) (*serving, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.guests) >= k.most.All-k.most.Strangers || k.of[p.ID] >= k.most.Each {
		k.sweep()
	}
	switch {
	case k.guests[g.id] != nil:
		return nil, tool.Errorf(tool.CodeConflict, "the connection has already authenticated")
	case len(k.guests) >= k.most.All-k.most.Strangers:
		return nil, tool.Errorf(tool.CodeUnavailable,
			"%d connections are open already: close some, or try again later", len(k.guests)).Because(tooMany)
	case k.of[p.ID] >= k.most.Each:
		return nil, tool.Errorf(tool.CodeQuotaExceeded,
			"%.100q has %d connections already: close some, or use one for several requests", p.ID,
			k.most.Each).Because(tooMany)
	}
	key := keyOf(p)
	a := k.accounts[key]
	if a == nil {
		free, err := k.takeAccount()
		if err != nil {
			return nil, err
		}
		a = &account{key: key, caller: p, nats: free}
		k.accounts[key] = a
	}
	a.guests++
	k.of.Add(p.ID, 1)
	g.account = a
	k.guests[g.id] = g
	return k.door, nil
}

// forget removes a guest that has gone.
func (k *doorkeeper) forget(g *guest) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.drop(g)
}

// drop is forget for callers that hold the lock.
func (k *doorkeeper) drop(g *guest) {
	if k.guests[g.id] != g {
		return
	}
	delete(k.guests, g.id)
	k.of.Add(g.account.caller.ID, -1)
	if g.account.guests--; g.account.guests == 0 {
		g.account.empty = time.Now()
	}
}

// openDesk makes sure that the door has a desk in an account.
func (k *doorkeeper) openDesk(s *serving, a *account) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s == nil || a.left || a.desk != nil {
		return nil
	}
	nc, err := k.dial(a.nats.Name)
	if err != nil {
		return err
	}
	if a.desk, err = s.newDesk(nc, a.caller); errors.Is(err, errClosing) {
		return nil
	}
	return err
}

// attach opens desks of the door in all present and future accounts.
func (k *doorkeeper) attach(s *serving) error {
	for _, a := range k.serving(s) {
		if err := k.openDesk(s, a); err != nil {
			return err
		}
	}
	return nil
}

// detach removes the door, which closes with all its desks.
func (k *doorkeeper) detach() {
	for _, a := range k.serving(nil) {
		a.mu.Lock()
		a.desk = nil
		a.mu.Unlock()
	}
}

// serving sets the door, and returns the present accounts.
func (k *doorkeeper) serving(s *serving) []*account {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.door = s
	return slices.Collect(maps.Values(k.accounts))
}

// watch checks repeatedly whether the connected clients are still admitted.
func (k *doorkeeper) watch(ctx context.Context, every time.Duration) {
	again, hurry := time.NewTicker(every), time.NewTicker(hurryEvery)
	defer again.Stop()
	defer hurry.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-hurry.C:
			k.hurry()
		case <-again.C:
			k.recheck(ctx)
			k.tidy()
		}
	}
}

// hurry cuts off the oldest unauthenticated connections if there are too many of them: otherwise they would keep out clients
// that do authenticate. The server itself only limits the time that each of them has.
func (k *doorkeeper) hurry() {
	k.mu.Lock()
	maps.DeleteFunc(k.ours, func(id uint64, _ bool) bool { return k.srv.GetClient(id) == nil })
	strangers := k.srv.NumClients() - len(k.ours) - len(k.guests)
	k.mu.Unlock()
	if strangers <= k.most.Strangers {
		return
	}
	all, err := k.srv.Connz(&server.ConnzOptions{Limit: 1 << 20, Sort: server.ByCid}) // the oldest first
	if err != nil {
		return
	}
	k.mu.Lock()
	strange := slices.DeleteFunc(all.Conns, func(c *server.ConnInfo) bool {
		return k.ours[c.Cid] || k.guests[c.Cid] != nil
	})
	full := len(strange) + len(k.guests) - k.most.All // by how many the server is over its limit
	k.mu.Unlock()
	for i, c := range strange[:max(0, len(strange)-k.most.Strangers)] {
		if i < full || time.Since(c.Start) > identity.Patience {
			_ = k.srv.DisconnectClientByID(c.Cid) // fails if it has just gone
			k.log.Warn("NATS cut off a connection that did not say who it is of", "from", c.IP)
		}
	}
}

// recheck asks once for each set of credentials, however many connections have shown them.
func (k *doorkeeper) recheck(ctx context.Context) {
	type credentials struct{ token, certificate string }
	guests := map[credentials][]*guest{}
	for _, g := range k.present() {
		shown := credentials{g.shown.Token, raw(g.shown.Certificate)}
		guests[shown] = append(guests[shown], g)
	}
	asking, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	for _, all := range guests {
		p, err := k.ask(asking, againWithin, all[0].shown)
		if ctx.Err() != nil {
			return
		}
		for _, g := range all {
			k.judge(g, p, err)
		}
	}
}

func raw(c *x509.Certificate) string {
	if c == nil {
		return ""
	}
	return string(c.Raw)
}

// present returns the guests.
func (k *doorkeeper) present() []*guest {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sweep()
	return slices.Collect(maps.Values(k.guests))
}

// sweep forgets guests that disconnected, which we are not told. Its caller holds the lock.
func (k *doorkeeper) sweep() {
	for _, g := range k.guests {
		if k.srv.GetClient(g.id) == nil {
			k.drop(g)
		}
	}
}

// judge cuts off a guest that is no longer admitted, or whose rights have changed: it then belongs to another account, and
// gets there when it reconnects.
func (k *doorkeeper) judge(g *guest, p tool.Principal, err error) {
	undecided := []tool.Code{tool.CodeUnavailable, tool.CodeTimeout, tool.CodeCancelled, tool.CodeInternal}
	switch {
	case err == nil && keyOf(p) == g.account.key:
		g.unsure = time.Time{}
		return
	case err == nil:
		k.cut(g, p, nil, "its rights have changed")
		return
	case slices.Contains(undecided, tool.CodeOf(err)):
		if g.unsure.IsZero() {
			g.unsure = time.Now()
		}
		if time.Since(g.unsure) < unsureWithin {
			return
		}
	}
	why := tool.Errorf(tool.CodeAccessDenied, "%s is no longer admitted", g.account.caller.ID)
	k.cut(g, g.account.caller, why, tool.AsError(err).Message)
}

// cut disconnects a guest. If it was the last one its account goes too, and if why is not nil the calls there end.
func (k *doorkeeper) cut(g *guest, p tool.Principal, why error, reason string) {
	k.log.Warn("NATS cut off a connection", "caller", g.account.caller.ID, "reason", reason)
	_ = k.srv.DisconnectClientByID(g.id) // fails if it has just gone
	k.forget(g)
	if k.evict(g.account, 0) {
		g.account.leave(p, why)
	}
}

// evict removes an account that has had no guests for a while, and reports whether it did.
func (k *doorkeeper) evict(a *account, idle time.Duration) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if a.guests > 0 || time.Since(a.empty) < idle || k.accounts[a.key] != a {
		return false
	}
	delete(k.accounts, a.key)
	k.leaving = append(k.leaving, a)
	return true
}

// tidy closes accounts that are no longer used.
func (k *doorkeeper) tidy() {
	k.mu.Lock()
	accounts := slices.Collect(maps.Values(k.accounts))
	k.mu.Unlock()
	for _, a := range accounts {
		if k.evict(a, k.idle) {
			a.leave(a.caller, nil)
		}
	}
	k.leaving = slices.DeleteFunc(k.leaving, func(a *account) bool {
		gone := a.gone()
		if gone {
			k.mu.Lock()
			k.free = append(k.free, vacancy{a.nats, time.Now()})
			k.mu.Unlock()
		}
		return gone
	})
}
