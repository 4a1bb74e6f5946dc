package node

import (
	"cmp"
	"context"
	"slices"
	"time"

	"toolpost/config"
	"toolpost/identity"
	"toolpost/protocol/all"
	"toolpost/store"
	"toolpost/tool"
	"toolpost/web/console"
)

// Admit identifies the caller by its credentials. It is the gate of every door, and uses the current config's callers.
func (n *Node) Admit(ctx context.Context, shown identity.Credentials) (tool.Principal, error) {
	p, err := n.callers.Load().Admit(ctx, shown)
	if next := n.coming.Load(); next != nil && err == nil {
		if then, gone := next.Admit(ctx, shown); gone != nil || then.ID != p.ID {
			p, err = tool.Principal{}, cmp.Or(gone, identity.WrongToken())
		}
	}
	return p, n.redactor.Error(err)
}

// dismiss ends the calls of callers that another config leaves out. A call may outlive its token, if that has expired.
func (n *Node) dismiss(ctx context.Context, next *identity.Callers) {
	before := n.callers.Load() // nil if nothing runs yet
	n.calls.Dismiss(func(p tool.Principal) bool {
		_, was := before.Admit(ctx, identity.Again(p))
		_, err := next.Admit(ctx, identity.Again(p))
		return was == nil && tool.CodeOf(err) == tool.CodeAccessDenied
	})
}

// Caller returns the caller of a name, with the rights that the config lists for it.
func (n *Node) Caller(id, door string) tool.Principal {
	rights, _ := n.callers.Load().Known(id)
	return tool.Principal{ID: id, Door: door, Rights: rights}
}

// CallerNames lists the callers that the config knows by name.
func (n *Node) CallerNames() []string {
	var names []string
	for _, one := range n.callers.Load().List() {
		names = append(names, one.Name)
	}
	return append(names, identity.Owner, identity.Local)
}

// Knows reports whether the config knows a caller by name.
func (n *Node) Knows(id string) bool { return slices.Contains(n.CallerNames(), id) }

// named returns the caller that a door assigns to all its clients. If a token issuer could use the same name, the caller may
// use nothing.
func (n *Node) named(id, door string) tool.Principal {
	p := n.Caller(id, door)
	if err := n.callers.Load().Apart(id); err != nil {
		n.o.Log.Error("the caller whom a door names may use nothing", "door", door, "error", err)
		p.Rights = &tool.Rights{Tools: tool.Patterns{}}
	}
	return p
}

// Anonymous returns the caller for clients without credentials, by the names of the doors that admit them.
func (n *Node) Anonymous() map[string]identity.Anonymous {
	anonymous, _ := all.Check(n.cfg, n.callers.Load().Lists) // errors were reported when the config was read
	return anonymous
}

// readCallers reads the callers section.
func (n *Node) readCallers(cfg *config.Config) (*identity.Callers, error) {
	var o identity.Options
	if err := cfg.Callers.Decode(&o); err != nil {
		return nil, err
	}
	return identity.New(o, identity.Env{
		Dir: cfg.Dir, Sources: cfg.SourceNames(), Owner: n.admitOwner, Tokens: n.findToken, Log: n.o.Log,
		Before: n.callers.Load(),
	})
}

// admitOwner admits the owner, once a door is open.
func (n *Node) admitOwner(ctx context.Context, shown identity.Credentials) (tool.Principal, error) {
	gate := n.owner.Load()
	if gate == nil {
		return tool.Principal{}, tool.Errorf(tool.CodeAccessDenied, "the owner has no token")
	}
	return (*gate)(ctx, shown)
}

// findToken finds an issued token that is still live.
func (n *Node) findToken(ctx context.Context, digest string) (identity.Grant, bool, error) {
	if n.store == nil {
		return identity.Grant{}, false, nil
	}
	t, ok, err := n.store.Tokens().Lookup(ctx, digest)
	return t.Grant, ok && t.State == identity.Live, err
}

// ownersToken makes sure that the owner's token is known, if the config admits the owner. It returns a newly made token,
// this once.
func (n *Node) ownersToken() (fresh string, err error) {
	if !n.callers.Load().HasOwner() {
		return "", nil
	}
	var gate identity.Gate
	if n.o.Token != "" {
		gate, err = identity.StaticToken(n.o.Token)
	} else {
		dir := n.cfg.StateDir()
		if n.o.NewToken {
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
	n.owner.Store(&gate)
	return fresh, nil
}

// openConsole makes the console. The codes of its links are valid in every program that shares the store.
func (n *Node) openConsole() *console.Console {
	o := console.Options{Gate: n.Admit, Version: n.o.Version, Keys: n.keep.keys, Log: n.o.Log}
	if n.store != nil {
		o.Marks = n.store.Outcomes()
	}
	return console.New(o)
}

// ConsolePath returns the path of a link, relative to the HTTP door, with which a browser signs in to the console as the
// user who runs this program; or why there is none.
func (n *Node) ConsolePath(ctx context.Context) (string, error) {
	p, err := n.Admit(ctx, identity.Credentials{Door: "http", Peer: identity.Self()})
	if err != nil {
		return "", err
	}
	code, _, err := n.console.Link(p)
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

// tokens are those of the store, for callers of the config.
type tokens struct {
	*store.TokenTable
	n *Node
}

// Issue implements tokentools.Tokens.
func (t tokens) Issue(ctx context.Context, of identity.Token, ttl time.Duration) (token string, err error) {
	if of.Listed, err = t.n.callers.Load().CheckToken(of.Caller, of.Roles, of.Tools); err != nil {
		return "", err
	}
	return t.TokenTable.Issue(ctx, of, ttl)
}
