package access

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"toolpost/builtin/operate"
	"toolpost/config"
	"toolpost/identity"
	"toolpost/store"
	"toolpost/tool"
	"toolpost/web/console"
)

// admitOwner admits the owner, once a door is open.
func (a *Access) admitOwner(ctx context.Context, shown identity.Credentials) (tool.Principal, error) {
	gate := a.owner.Load()
	if gate == nil {
		return tool.Principal{}, tool.Errorf(tool.CodeAccessDenied, "the owner has no token")
	}
	return (*gate)(ctx, shown)
}

// findToken finds an issued token that is still live.
func (a *Access) findToken(ctx context.Context, digest string) (identity.Grant, bool, error) {
	if a.env.Storage.DB == nil {
		return identity.Grant{}, false, nil
	}
	t, ok, err := a.env.Storage.DB.Tokens().Lookup(ctx, digest)
	return t.Grant, ok && t.State == identity.Live, err
}

// ownersToken makes sure that the owner's token is known, if the config admits the owner. It returns a newly made token,
// this once.
func (a *Access) ownersToken() (fresh string, err error) {
	if !a.HasOwner() {
		return "", nil
	}
	var gate identity.Gate
	if a.env.Token != "" {
		gate, err = identity.StaticToken(a.env.Token)
	} else {
		dir := a.env.Config.StateDir()
		if a.env.NewToken {
			if fresh, err = identity.NewFileToken(dir); err != nil {
				return "", err
			}
		}
		var first string
		gate, first, err = identity.FileToken(dir)
		fresh = cmp.Or(fresh, first)
	}
	if err != nil {
		return "", err
	}
	a.owner.Store(&gate)
	return fresh, nil
}

// ConsolePath returns the path of a link, relative to the HTTP door, with which a browser signs in to the console as the
// user who runs this program; or why there is none.
func (a *Access) ConsolePath(ctx context.Context) (string, error) {
	p, err := a.Admit(ctx, identity.Credentials{Door: "http", Peer: identity.Self()})
	if err != nil {
		return "", err
	}
	code, _, err := a.Console.Link(p)
	return console.Open(code), err
}

// NewOwnerToken makes another token for the owner of a config's installation. A running server accepts it after a moment.
func NewOwnerToken(cfg *config.Config) (string, error) {
	var o identity.Options
	if err := cfg.Callers.Decode(&o); err != nil {
		return "", err
	}
	if o.Owner != nil && !*o.Owner {
		return "", tool.Errorf(tool.CodeInvalidInput, "the config says `callers: {owner: false}`: no token of the owner is "+
			"accepted; `toolpost token issue` makes one for a caller")
	}
	return identity.NewFileToken(cfg.StateDir())
}

// Tokens returns the tokens of the store, for callers of the config.
func (a *Access) Tokens() Tokens { return Tokens{a.env.Storage.DB.Tokens(), a} }

// Tokens are the tokens of the store; one is issued only to a caller that the config admits.
type Tokens struct {
	*store.TokenTable
	a *Access
}

// Issue implements the interface of the token tools.
func (t Tokens) Issue(ctx context.Context, of identity.Token, ttl time.Duration) (token string, err error) {
	if of.Listed, err = t.a.now.Load().CheckToken(of.Caller, of.Roles, of.Tools); err != nil {
		return "", err
	}
	return t.TokenTable.Issue(ctx, of, ttl)
}

// StillAdmitted refuses the caller of a job if its token was revoked, it has no live one, and the config does not list it. A
// caller that never had a token here is known by other credentials.
func (a *Access) StillAdmitted(ctx context.Context, p tool.Principal) error {
	if p.Rights == nil { // an operator
		return nil
	}
	tokens, err := a.env.Storage.DB.Tokens().Of(ctx, p.ID)
	if err != nil {
		return err
	}
	has := func(state string) bool {
		return slices.ContainsFunc(tokens, func(t identity.Token) bool { return t.State == state })
	}
	if _, listed := a.now.Load().Known(p.ID); has(identity.Revoked) && !has(identity.Live) && !listed {
		return tool.Errorf(tool.CodeAccessDenied, "the token of %q was revoked", p.ID).Because("caller_gone")
	}
	return nil
}

// ListCallers implements operate.Server.
func (a *Access) ListCallers(ctx context.Context) (operate.Callers, error) {
	known := a.now.Load()
	out := operate.Callers{Callers: []operate.Caller{}, Roles: []operate.Role{}, Issuers: known.Issuers()}
	for _, name := range slices.Sorted(maps.Keys(known.Roles())) {
		out.Roles = append(out.Roles, operate.Role{
			Name: name, All: known.Roles()[name] == nil, Tools: known.Roles()[name],
		})
	}
	operator := func(name, by string) {
		out.Callers = append(out.Callers, operate.Caller{
			Name: name, Kind: operate.KindOperator, Roles: []string{tool.OwnerRole}, All: true, By: []string{by},
		})
	}
	operator(identity.Local, "the user who runs this program")
	if a.HasOwner() {
		operator(identity.Owner, "the owner's token")
	}
	for _, one := range known.List() {
		out.Callers = append(out.Callers, operate.Caller{
			Name: one.Name, Kind: operate.KindListed, Roles: one.Roles, All: one.Tools == nil, Tools: one.Tools, By: one.By,
		})
	}
	caller := func(name, kind string) *operate.Caller {
		i := slices.IndexFunc(out.Callers, func(c operate.Caller) bool { return c.Name == name })
		if i < 0 {
			i = len(out.Callers)
			out.Callers = append(out.Callers, operate.Caller{Name: name, Kind: kind})
		}
		return &out.Callers[i]
	}
	for _, door := range slices.Sorted(maps.Keys(a.Anonymous())) {
		c := caller(a.Anonymous()[door].Name, operate.KindAnonymous)
		c.Doors = append(c.Doors, door)
	}
	if err := a.addTokens(ctx, caller); err != nil {
		return out, err
	}
	for i := range out.Callers {
		c := &out.Callers[i]
		c.Roles, c.By = append([]string{}, c.Roles...), append([]string{}, c.By...)
		c.Tokens = append([]identity.Token{}, c.Tokens...)
	}
	return out, nil
}

// addTokens adds the live tokens to their callers.
func (a *Access) addTokens(ctx context.Context, caller func(name, kind string) *operate.Caller) error {
	if a.env.Storage.DB == nil {
		return nil
	}
	tokens, err := a.env.Storage.DB.Tokens().List(ctx, 0)
	for _, t := range tokens {
		if t.State != identity.Live {
			continue
		}
		c := caller(t.Caller, operate.KindToken)
		c.Tokens = append(c.Tokens, t)
	}
	return err
}
