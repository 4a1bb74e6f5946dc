// Package connection keeps what callers have connected with providers: a token, or a key that a person pasted, each of one
// caller. Its stage gives a call what its source needs of them, and asks the caller to connect what is missing.
//
// What is kept is sealed with a key that is not in the database, for one caller and one connection: a row that is copied to
// another caller does not open. A token is renewed ahead of its expiry, by one program at a time: it claims the row by the
// database's clock, and writes it only if its version is still the one that was claimed. The new refresh token is on disk before the access token
// that came with it is used, since a provider may accept the previous one no longer.
package connection

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"toolpost/config"
	"toolpost/host/secret"
	"toolpost/identity"
	"toolpost/identity/oauth"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// A Row is what is stored of one connection of a caller.
type Row struct {
	Caller, Name string
	Version      int64  // 1 for the first; each change has the next
	Sealed       []byte // empty if the provider refuses what was kept: the caller has to connect again
	Scopes       []string
	Expires      time.Time // of the token; zero if that is unknown
	Connected    time.Time
	Used         time.Time // zero if it was not used; to the minute
}

// A Store keeps rows, for all programs that share it.
type Store interface {
	// Find returns a row; its Version is 0 if there is none.
	Find(ctx context.Context, caller, name string) (Row, error)
	// Put stores a row if the version of the stored one is r.Version-1, and otherwise reports false. It ends a claim.
	Put(ctx context.Context, r Row) (bool, error)
	// Claim reports whether this program, and no other one for a while, is to renew a row of this version.
	Claim(ctx context.Context, r Row, lasts time.Duration) (bool, error)
	// Remove deletes a row of that version.
	Remove(ctx context.Context, r Row) (bool, error)
	// List returns the rows of a caller; those of "" are for all callers.
	List(ctx context.Context, caller string) ([]Row, error)
	// All returns the rows of all callers.
	All(ctx context.Context) ([]Row, error)
	// Touch notes that a row was used.
	Touch(ctx context.Context, r Row, at time.Time) error
}

// An Env is what connections need from the program.
type Env struct {
	Store Store
	// Keys seals what is kept, with a key that is not in the store; nil means a key that ends with this program.
	Keys     *secret.Keyed
	Marks    secret.Marks     // which links were used
	Secrets  config.Secrets   // those of clients
	Redactor *secret.Redactor // learns the tokens of grants that all callers share
	// Shared reports whether several people may be this caller, such as those who come in without credentials.
	Shared  func(tool.Principal) bool
	Console func() string // the address of the console; "" if it is not served
	Log     *slog.Logger
	now     func() time.Time // nil means time.Now
}

// Connections are the connections of all callers.
type Connections struct {
	env     Env
	now     atomic.Pointer[plan]
	changes tool.Changes // of rows, by this program

	renewing singleflight.Group
	running  sync.WaitGroup // renewals
	servers  oauth.Servers
	mu       sync.Mutex
	waiting  map[string]int     // calls that wait for a person, by caller
	failed   map[string]failure // renewals, by what is bound
}

// A failure is why a row was not renewed, and until when that is not tried again.
type failure struct {
	err   error
	until time.Time
}

// New returns the connections of a program. It has none before Read.
func New(env Env) *Connections {
	if env.Keys == nil {
		env.Keys = secret.NewKeyed(nil)
	}
	if env.now == nil {
		env.now = time.Now
	}
	c := &Connections{env: env, waiting: map[string]int{}, failed: map[string]failure{}}
	c.now.Store(&plan{})
	return c
}

// Close waits for renewals: what a provider has granted is stored before the program ends.
func (c *Connections) Close() { c.running.Wait() }

// held is what is sealed.
type held struct {
	Access  string        `json:"access"` // or the key
	Refresh string        `json:"refresh,omitzero"`
	Lasts   time.Duration `json:"lasts,omitzero"`
	Client  string        `json:"client,omitzero"` // that a provider has registered
	Secret  string        `json:"secret,omitzero"`
	For     string        `json:"for"` // the origin of the connection that got it
}

// The reasons of refusals.
const (
	Missing    = "connection_missing"    // the caller has not connected it
	Refused    = "connection_refused"    // the provider accepts it no longer
	Unreadable = "connection_unreadable" // it was sealed with another key
	SharedName = "connection_shared"     // the caller may be several people
	Pasted     = "connection_pasted"     // it has a key that a person pastes, and no provider
)

const sealPurpose = "connections of callers"

func bound(caller, name string) []byte {
	b, _ := strictjson.Marshal([]string{caller, name}) // strings
	return b
}

func (c *Connections) seal(r *Row, h held) error {
	aead, err := c.env.Keys.Seal(sealPurpose)
	if err != nil {
		return err
	}
	plain, err := strictjson.Marshal(h)
	r.Sealed = aead.Seal(nil, nil, plain, bound(r.Caller, r.Name)) //nolint:gosec // it makes a nonce
	return err
}

// unseal opens a row. It returns nothing if the value was granted for another provider: it must not be sent to this one.
func (c *Connections) unseal(o *Options, r Row) (h held, err error) {
	aead, err := c.env.Keys.Seal(sealPurpose)
	if err != nil {
		return h, err
	}
	plain, err := aead.Open(nil, nil, r.Sealed, bound(r.Caller, r.Name))
	if err == nil {
		err = strictjson.Unmarshal(plain, &h)
	}
	if err != nil {
		return h, tool.Errorf(tool.CodeAccessDenied, "what was kept of the connection %s was sealed with another key than this program has: "+
			"connect again, or give each machine that shares the store the same `store: {key: FILE}`", r.Name).Because(Unreadable)
	}
	if h.For != o.origin() {
		return held{}, nil
	}
	return h, nil
}

// How tokens are renewed: ahead of their expiry, within a time, and by a program whose claim lasts longer than that.
const (
	ahead      = 5 * time.Minute
	renewTime  = oauth.RequestTime
	claimLasts = renewTime + 15*time.Second
	askAgain   = 100 * time.Millisecond
	pause      = 5 * time.Second // after a failure: a provider that is down gets no request for each call
)

// due reports whether a token should be renewed, and whether it can no longer be used: the provider's clock may be a little ahead.
func (c *Connections) due(r Row, h held) (soon, over bool) {
	if r.Expires.IsZero() {
		return false, false
	}
	left := r.Expires.Sub(c.env.now())
	return left < min(ahead, h.Lasts/3), left < min(10*time.Second, h.Lasts/10)
}

// find returns a row and what is in it: nothing if there is no row, or the provider refuses what it had.
func (c *Connections) find(ctx context.Context, o *Options, caller string) (r Row, h held, err error) {
	r, err = c.env.Store.Find(ctx, caller, o.Name)
	if err == nil && len(r.Sealed) > 0 {
		h, err = c.unseal(o, r)
	}
	return r, h, err
}

// value returns the current value of a connection.
func (c *Connections) value(ctx context.Context, o *Options, caller string) (string, error) {
	for {
		r, h, err := c.find(ctx, o, caller)
		if err != nil {
			return "", err
		}
		soon, over := c.due(r, h)
		switch renewable := o.Grant == machine || h.Refresh != ""; {
		case h.Access == "" && o.Grant != machine:
			return "", c.missing(o, caller, r)
		case h.Access != "" && (!soon || !renewable && !over):
			return c.use(ctx, r, h), nil
		case !renewable:
			return "", c.refused(o, caller)
		}
		done := c.renew(ctx, o, r)
		if h.Access != "" && !over { // no call waits for a provider as long as the present token is valid
			return c.use(ctx, r, h), nil
		}
		select {
		case got := <-done:
			ended, _ := got.Val.(bool)
			if got.Err != nil {
				return "", got.Err
			}
			if !ended && !tool.Sleep(ctx, askAgain) {
				return "", tool.Ended(ctx)
			}
		case <-ctx.Done():
			return "", tool.Ended(ctx)
		}
	}
}

// use notes that a value is going to be sent.
func (c *Connections) use(ctx context.Context, r Row, h held) string {
	if now := c.env.now(); now.Sub(r.Used) > time.Minute {
		if err := c.env.Store.Touch(ctx, r, now); err != nil { // nothing depends on it
			c.env.Log.Debug("the use of a connection was not noted", "connection", r.Name, "error", err)
		}
	}
	return h.Access
}

// renew renews a row, once for all calls of this program that want it. It sends whether the row may be another one now; if not,
// another program renews it.
func (c *Connections) renew(ctx context.Context, o *Options, r Row) <-chan singleflight.Result {
	done := make(chan singleflight.Result, 1)
	c.running.Go(func() {
		ended, err, _ := c.renewing.Do(string(bound(r.Caller, r.Name)), func() (any, error) {
			ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), renewTime) // the answer is stored even if no call waits for it
			defer stop()
			return c.renewRow(ctx, o, r.Caller)
		})
		done <- singleflight.Result{Val: ended, Err: err}
	})
	return done
}

// renewRow renews a row, if it still has to be and no other program does.
func (c *Connections) renewRow(ctx context.Context, o *Options, caller string) (ended bool, err error) {
	r, h, err := c.find(ctx, o, caller)
	if err != nil {
		return false, err
	}
	if soon, _ := c.due(r, h); !soon && h.Access != "" || o.Grant != machine && h.Refresh == "" {
		return true, nil // it was renewed, removed or refused meanwhile
	}
	c.mu.Lock()
	last := c.failed[string(bound(caller, o.Name))]
	c.mu.Unlock()
	if c.env.now().Before(last.until) {
		return false, last.err
	}
	if r.Version == 0 { // a token for all callers, which is the first one
		r = Row{Caller: caller, Name: o.Name, Version: 1, Connected: c.env.now()}
		if ok, err := c.env.Store.Put(ctx, r); err != nil || !ok {
			return false, err
		}
	}
	mine, err := c.env.Store.Claim(ctx, r, claimLasts)
	if err != nil || !mine {
		return false, err
	}
	next := r
	next.Version++
	t, err := c.fetch(ctx, o, h)
	if e := tool.AsError(err); e != nil && e.Reason == oauth.Ended {
		c.env.Log.Warn("a provider no longer accepts a connection", "connection", o.Name, "caller", caller, "why", e.Message)
		next.Sealed, next.Expires = nil, time.Time{}
		if _, err := c.env.Store.Put(ctx, next); err != nil {
			return false, err
		}
		return true, c.refused(o, caller)
	}
	if err != nil {
		if tool.CodeOf(err) == tool.CodeUnavailable {
			err = tool.Errorf(tool.CodeUnavailable, "the connection %s could not be renewed; try again in a moment: %w", o.Name, err)
		}
		return false, c.postpone(ctx, r, err)
	}
	h.Access, h.Refresh, h.Lasts, h.For = t.Access, t.Refresh, t.Lasts, o.origin()
	return true, c.keep(ctx, next, h, t)
}

// postpone ends a claim after an error. Calls of this program get the error until the next try.
func (c *Connections) postpone(ctx context.Context, r Row, why error) error {
	c.mu.Lock()
	now := c.env.now()
	maps.DeleteFunc(c.failed, func(_ string, f failure) bool { return !now.Before(f.until) })
	c.failed[string(bound(r.Caller, r.Name))] = failure{why, now.Add(pause)}
	c.mu.Unlock()
	r.Version++
	if _, err := c.env.Store.Put(context.WithoutCancel(ctx), r); err != nil {
		c.env.Log.Debug("a claim was not released", "connection", r.Name, "error", err)
	}
	return why
}

// fetch gets the next token of a connection.
func (c *Connections) fetch(ctx context.Context, o *Options, h held) (oauth.Token, error) {
	client, err := c.client(ctx, o, h)
	if err != nil {
		return oauth.Token{}, err
	}
	if o.Grant != machine {
		return o.granted(client.Renew(ctx, h.Refresh, ""))
	}
	t, err := client.Machine(ctx)
	if no, is := errors.AsType[*oauth.Refused](err); is {
		err = tool.Errorf(tool.CodeAccessDenied, "the provider gives no token to the client of the connection %s (%s): check its client_id and "+
			"client_secret in the config", o.Name, no).Because(Refused)
	}
	return t, err
}

// keep stores what a provider has granted. It goes on for a while if the store is away: the provider may accept the refresh token before
// no longer.
func (c *Connections) keep(ctx context.Context, r Row, h held, t oauth.Token) error {
	if r.Expires = (time.Time{}); t.Lasts > 0 {
		r.Expires = c.env.now().Add(t.Lasts)
	}
	if t.Scopes != nil {
		r.Scopes = t.Scopes
	}
	if err := c.seal(&r, h); err != nil {
		return err
	}
	for {
		ok, err := c.env.Store.Put(ctx, r)
		if err == nil && !ok {
			c.env.Log.Debug("a connection was changed while its token was renewed", "connection", r.Name, "caller", r.Caller)
			c.revokeRemoved(ctx, r)
		}
		if err == nil || !tool.Sleep(ctx, time.Second) {
			c.changes.Tell()
			return err
		}
	}
}

// revokeRemoved revokes what was granted for a row that was removed meanwhile. It leaves a row that is there alone: it may be this one, if
// the store lost its answer, or a newer one, which some providers would end with this one.
func (c *Connections) revokeRemoved(ctx context.Context, r Row) {
	now, err := c.env.Store.Find(ctx, r.Caller, r.Name)
	if err == nil && now.Version == 0 {
		err = c.revoke(ctx, r)
	}
	if err != nil {
		c.env.Log.Warn("what a provider granted for a removed connection was not revoked", "connection", r.Name, "caller", r.Caller, "error", err)
	}
}

// client returns this program as the provider of a connection knows it.
func (c *Connections) client(ctx context.Context, o *Options, h held) (*oauth.Client, error) {
	known := presets()[o.Preset]
	client := &oauth.Client{
		Server: known.Server, ID: o.ClientID, Scopes: o.Scopes, Params: known.Params,
		HTTP: oauth.HTTPClient(cmp.Or(o.Issuer, o.Token)),
	}
	client.Issuer = o.Issuer
	if o.Token == "" {
		var err error
		if client.Server, err = c.servers.Find(ctx, client.HTTP, o.Issuer); err != nil {
			return nil, err
		}
	}
	client.Authorize, client.Token = cmp.Or(o.Authorize, client.Authorize), cmp.Or(o.Token, client.Token)
	client.Device, client.Revoke = cmp.Or(o.Device, client.Device), cmp.Or(o.Revoke, client.Revoke)
	if client.ID == "" {
		client.ID, client.Secret = h.Client, h.Secret
	}
	if o.Secret != "" {
		var err error
		if client.Secret, err = c.env.Secrets.Secret(o.Secret); err != nil {
			return nil, err
		}
	}
	return client, nil
}

// missing returns the error of a connection that a caller does not have, or no longer.
func (c *Connections) missing(o *Options, caller string, r Row) error {
	if r.Version > 0 && len(r.Sealed) == 0 {
		return c.refused(o, caller)
	}
	return tool.Errorf(tool.CodeAccessDenied, "%s has not connected %s: %s", caller, o.Name, c.how(o, caller)).Because(Missing)
}

func (c *Connections) refused(o *Options, caller string) error {
	return tool.Errorf(tool.CodeAccessDenied, "the provider no longer accepts %s's connection %s; connect again: %s", caller, o.Name,
		c.how(o, caller)).Because(Refused)
}

// how says which command connects. A command on this machine is of the caller local, so another caller's has to be one to the server.
func (c *Connections) how(o *Options, caller string) string {
	command := "toolpost connections add " + o.Name
	if o.Key == pasted {
		command += " --key-stdin"
	}
	switch {
	case strings.HasPrefix(caller, tool.AgentPrefix):
		command += " --caller " + caller
	case caller != identity.Local:
		command += " --server " + cmp.Or(c.console(), "URL") + " --token TOKEN"
	}
	return "run `" + command + "`"
}
