package identity

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"toolpost/tool"
)

// Env is what callers need beside the config.
type Env struct {
	Dir    string // where relative paths of the config start
	Owner  Gate   // knows the owner by the token; nil: there is none
	Tokens Tokens // knows the tokens that were issued; nil: none were
	// Sources are those that there are, whose tools callers may use; nil: any.
	Sources []string
	Log     *slog.Logger // nil: silence
	// Before is what held until now: the keys of issuers that stay are kept. Nil: nothing did.
	Before *Callers

	now func() time.Time // nil: the clock
}

// Callers knows everybody of a config.
type Callers struct {
	o      Options
	env    Env
	rights map[string]*tool.Rights // of those who are listed

	known    map[any]string // who shows a token, a certificate or a user: see Caller.ways
	hasUsers bool           // somebody is known by a user

	issuers map[string]*issuer
	issued  *issued
}

// New makes the callers of a config.
func New(o Options, env Env) (*Callers, error) {
	if err := errors.Join(o.Validate(), o.checkTools(env.Sources)); err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "callers: %w", err)
	}
	env.Log = cmp.Or(env.Log, slog.New(slog.DiscardHandler))
	if env.now == nil {
		env.now = time.Now
	}
	c := &Callers{
		o: o, env: env, rights: map[string]*tool.Rights{}, known: map[any]string{}, issuers: map[string]*issuer{},
		issued: &issued{tokens: env.Tokens, now: env.now, known: map[string]answer{}, unknown: map[string]answer{}},
	}
	for name, one := range o.List {
		c.rights[name] = grant(o.Roles, one.Roles, one.Tools)
		for _, way := range one.ways() {
			c.known[way] = name
		}
		c.hasUsers = c.hasUsers || len(one.Users) > 0
	}
	for _, one := range o.JWT {
		c.issuers[one.Issuer] = newIssuer(one, env)
	}
	c.env.Before = nil // else each would keep all before it
	return c, nil
}

// HasOwner reports whether the owner's token is accepted.
func (c *Callers) HasOwner() bool { return c.o.Owner == nil || *c.o.Owner }

// Issuers gives those whose tokens are accepted, by their names, which are URLs.
func (c *Callers) Issuers() []string { return slices.Sorted(maps.Keys(c.issuers)) }

// Apart refuses the name of a caller who is known in another way than by a token of an issuer, where an issuer could
// call somebody so.
func (c *Callers) Apart(id string) error { return c.o.apart(id) }

// Lists reports whether the config lists a caller, by a name that no issuer can give to somebody else.
func (c *Callers) Lists(id string) bool { return c.rights[id] != nil && c.o.apart(id) == nil }

// Known returns the rights of a caller whom the config lists.
func (c *Callers) Known(id string) (rights *tool.Rights, ok bool) {
	rights, ok = c.rights[id]
	return rights, ok
}

// A Listed is a caller as the config lists it, for those who look after callers.
type Listed struct {
	Name  string
	Roles []string
	Tools tool.Patterns // that it may use; nil: all
	By    []string      // how it is recognised, in words
}

// List gives the callers whom the config lists, by name.
func (c *Callers) List() (all []Listed) {
	for _, name := range slices.Sorted(maps.Keys(c.o.List)) {
		one := Listed{Name: name, Roles: c.rights[name].Roles, Tools: c.rights[name].Tools}
		if n := len(c.o.List[name].Tokens); n > 0 {
			one.By = append(one.By, fmt.Sprintf("tokens of the config: %d", n))
		}
		for _, cert := range c.o.List[name].Certificates {
			one.By = append(one.By, "certificate "+cert)
		}
		for _, u := range c.o.List[name].Users {
			one.By = append(one.By, fmt.Sprintf("user %d", u.uid))
		}
		all = append(all, one)
	}
	return all
}

// Roles gives the roles of the config, with the tools that each may use; nil: all.
func (c *Callers) Roles() map[string]tool.Patterns {
	all := map[string]tool.Patterns{}
	for name, role := range c.o.Roles {
		all[name] = role.Tools
	}
	return all
}

// CheckToken reports whether a token for a caller with some roles and tools would be of use, and whether the config
// lists the caller.
func (c *Callers) CheckToken(id string, roles []string, tools tool.Patterns) (isListed bool, err error) {
	wrong := errors.Join(c.o.apart(id), c.o.knows("the token", roles), c.unlike(id, roles), tools.Check(c.env.Sources))
	if err := cmp.Or(CheckID(id), wrong); err != nil {
		return false, tool.Errorf(tool.CodeInvalidInput, "%w", err)
	}
	_, isListed = c.rights[id]
	if c.tokenRights(Grant{Caller: id, Roles: roles, Tools: tools, Listed: isListed}) != nil {
		return isListed, nil
	}
	if !isListed {
		return false, tool.Errorf(tool.CodeInvalidInput,
			"the config does not list the caller %q: say what the token is for, with --role, or with --tools and "+
				"names or patterns", id)
	}
	return true, tool.Errorf(tool.CodeInvalidInput,
		"%q could use nothing with the token: its roles and tools must be within what the config gives %q", id, id)
}

// Admit is the Gate.
func (c *Callers) Admit(ctx context.Context, shown Credentials) (tool.Principal, error) {
	switch {
	case shown.Proof != "":
		return c.byProof(ctx, shown)
	case shown.Token != "":
		return c.byToken(ctx, shown)
	case shown.Certificate != nil:
		return c.byCertificate(shown)
	case shown.Peer != nil:
		return c.byPeer(shown)
	case shown.Anonymous != "":
		return c.anonymous(shown)
	}
	return tool.Principal{}, WrongToken()
}

// maxToken is how long a token may be, in bytes.
const maxToken = 16 << 10

// byToken knows a caller by a token: the owner's, one that the config lists, one of an issuer, or one that was issued.
func (c *Callers) byToken(ctx context.Context, shown Credentials) (tool.Principal, error) {
	if len(shown.Token) > maxToken {
		return c.refuse(shown, errors.New("it is too long"))
	}
	if p, ok := c.byDigest(ctx, shown); ok {
		return p, nil
	}
	p, err := tool.Principal{}, errors.New("it belongs to no caller")
	switch {
	case strings.Count(shown.Token, ".") == 2:
		p, err = c.byJWT(ctx, shown.Token)
	case wellFormed(shown.Token):
		p, err = c.byIssued(ctx, shown)
	}
	return c.found(shown, p, err)
}

// byDigest knows the owner, and those whose tokens the config lists.
func (c *Callers) byDigest(ctx context.Context, shown Credentials) (tool.Principal, bool) {
	if c.HasOwner() && c.env.Owner != nil {
		if p, err := c.env.Owner(ctx, shown); err == nil {
			p.Proof = shown.tokenProof()
			return p, true
		}
	}
	name, ok := c.known[Digest{shown.digest()}]
	return tool.Principal{ID: name, Door: shown.Door, Rights: c.rights[name], Proof: shown.tokenProof()}, ok
}

// found gives who was found by a token, or why nobody was.
func (c *Callers) found(shown Credentials, p tool.Principal, err error) (tool.Principal, error) {
	switch {
	case tool.CodeOf(err) == tool.CodeUnavailable && tool.AsError(err).Reason == "store":
		return tool.Principal{}, err
	case err != nil:
		return c.refuse(shown, err)
	}
	p.Door = shown.Door
	return p, nil
}

// refuse tells the log why, and the caller nothing.
func (c *Callers) refuse(shown Credentials, why error) (tool.Principal, error) {
	c.env.Log.Debug("a token was refused", "door", shown.Door, "why", fmt.Sprintf("%.300s", why))
	return tool.Principal{}, WrongToken()
}

// byIssued knows a caller by a token that was issued here.
func (c *Callers) byIssued(ctx context.Context, shown Credentials) (tool.Principal, error) {
	digest := shown.digest()
	g, ok, err := c.issued.find(ctx, hex.EncodeToString(digest[:]))
	switch {
	case err != nil: // our fault, not the caller's
		c.env.Log.Error("a token cannot be looked up", "door", shown.Door, "error", fmt.Sprintf("%.300s", err))
		return tool.Principal{}, tool.Errorf(tool.CodeUnavailable,
			"you cannot be authenticated now; try again later").Because("store")
	case !ok:
		return tool.Principal{}, errors.New("it was never issued, or is over")
	}
	// the issuer, or the role, came later than the token
	if err := errors.Join(c.o.apart(g.Caller), c.unlike(g.Caller, g.Roles)); err != nil {
		return tool.Principal{}, err
	}
	rights := c.tokenRights(g)
	if rights == nil {
		return tool.Principal{}, fmt.Errorf("the config leaves %.100q nothing to use with it", g.Caller)
	}
	return tool.Principal{ID: g.Caller, Rights: rights, Proof: shown.tokenProof()}, nil
}

// unlike is that of the config, for the caller of a token: one whom the config lists was checked with it, and a token
// may leave it without a role.
func (c *Callers) unlike(id string, roles []string) error {
	if _, isListed := c.rights[id]; isListed {
		return nil
	}
	return c.o.unlike(id, roles)
}

// tokenRights returns the rights that a token gives; nil: none. A token takes away from what the config
// gives its caller.
func (c *Callers) tokenRights(g Grant) *tool.Rights {
	own := grant(c.o.Roles, g.Roles, g.Tools)
	has, isListed := c.rights[g.Caller]
	asked := len(g.Roles)+len(g.Tools) > 0
	switch {
	case isListed && asked:
		own = narrowed(has, g.Roles, own)
	case isListed:
		own = has
	case g.Listed:
		return nil
	}
	if nothing(own) {
		return nil
	}
	return own
}

func (c *Callers) byCertificate(shown Credentials) (tool.Principal, error) {
	for _, text := range namesOf(shown.Certificate) {
		if name, ok := c.known[text]; ok {
			return tool.Principal{ID: name, Door: shown.Door, Rights: c.rights[name], Proof: certificateProof(shown.Certificate, text)}, nil
		}
	}
	c.env.Log.Debug("a certificate was refused", "door", shown.Door,
		"subject", fmt.Sprintf("%.300s", shown.Certificate.Subject))
	return tool.Principal{}, tool.Errorf(tool.CodeAccessDenied,
		"the certificate belongs to no caller; its subject or one of its names must be among a caller's "+
			"certificates").Because(Reason)
}

// namesOf lists what a certificate says of whom it is for. A name of one kind cannot be taken for one of another: a
// subject has an equals sign first of all, an address of a service has ://, one of a person has @.
func namesOf(cert *x509.Certificate) []string {
	names := []string{cert.Subject.String()}
	for _, u := range cert.URIs {
		if name := u.String(); u.Scheme != "" && strings.Contains(name, "://") {
			names = append(names, name)
		}
	}
	for _, name := range cert.EmailAddresses {
		if strings.Contains(name, "@") && !strings.ContainsAny(name, "=/") {
			names = append(names, name)
		}
	}
	for _, name := range cert.DNSNames {
		if !strings.ContainsAny(name, "=@/") {
			names = append(names, name)
		}
	}
	return names
}

// byPeer knows a caller by the user of its process. Where the config names users it is one of them; elsewhere it is
// whose program this is. Only who is neither can be anonymous: the kernel's word is a better one than none.
func (c *Callers) byPeer(shown Credentials) (tool.Principal, error) {
	name, ok := c.known[User{shown.Peer.UID}]
	proof := userProof(shown.Peer.UID)
	switch {
	case ok:
		return tool.Principal{ID: name, Door: shown.Door, Rights: c.rights[name], Proof: proof}, nil
	case !c.hasUsers && int64(shown.Peer.UID) == int64(os.Getuid()):
		return tool.Principal{ID: Local, Door: shown.Door, Operates: true, Proof: proof}, nil
	case shown.Anonymous != "":
		return c.anonymous(shown)
	}
	return tool.Principal{}, tool.Errorf(tool.CodeAccessDenied,
		"no caller has the user id %d; list it among a caller's users in the config", shown.Peer.UID).Because(Reason)
}

// grant returns the rights of roles and of further tools together. Roles that no longer exist give nothing.
func grant(there map[string]Role, roles []string, tools tool.Patterns) *tool.Rights {
	r := &tool.Rights{Tools: append(tool.Patterns{}, tools...)}
	for _, name := range roles {
		if role, ok := there[name]; ok && !slices.Contains(r.Roles, name) {
			r.Roles = append(r.Roles, name)
			r.Tools = both(r.Tools, role.Tools)
		}
	}
	return r
}

// both returns the patterns of two lists, of which nil is everything.
func both(a, b tool.Patterns) tool.Patterns {
	if a == nil || b == nil {
		return nil
	}
	return append(slices.Clip(a), b...)
}

// nothing reports whether rights leave no tool.
func nothing(r *tool.Rights) bool { return r.Tools != nil && len(r.Tools) == 0 }

// narrowed returns what is left of rights where a token was issued with some of them. A token without roles has those
// of its caller.
func narrowed(r *tool.Rights, roles []string, to *tool.Rights) *tool.Rights {
	out := &tool.Rights{Roles: r.Roles, Tools: common(r.Tools, to.Tools)}
	if len(roles) > 0 {
		out.Roles = slices.DeleteFunc(slices.Clone(r.Roles), func(role string) bool {
			return !slices.Contains(roles, role)
		})
	}
	return out
}

// common returns patterns for names that both lists match. Of two patterns that merely overlap it gives none: rights
// may come out narrower than both, never wider than one.
func common(a, b tool.Patterns) tool.Patterns {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	out := tool.Patterns{}
	for _, pair := range [][2]tool.Patterns{{a, b}, {b, a}} {
		for _, g := range pair[0] {
			if slices.ContainsFunc(pair[1], func(h tool.Pattern) bool { return h.Covers(g) }) &&
				!slices.Contains(out, g) {
				out = append(out, g)
			}
		}
	}
	return out
}
