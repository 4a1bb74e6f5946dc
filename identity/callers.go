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

	"toolpost/config"
	"toolpost/identity/oauth"
	"toolpost/tool"
)

// Env is what callers need beside the config.
type Env struct {
	Dir    string // the base of relative paths in the config
	Owner  Gate   // authenticates the owner by the token; nil means no owner
	Tokens Tokens // finds issued tokens; nil means that there are none
	// Sources are the sources whose tools callers may use; nil means any.
	Sources []string
	// Providers are those with which people sign in.
	Providers []Provider
	Secrets   config.Secrets // of the providers; nil if no provider has one
	Log       *slog.Logger   // nil means no log
	// Before are the callers until now: the keys of issuers that stay are kept. Nil means none.
	Before *Callers

	now func() time.Time // nil means the system clock
}

// Callers authenticates all callers of a config.
type Callers struct {
	o      Options
	env    Env
	rights map[string]*tool.Rights // of the listed callers

	known    map[any]string // the caller of each token, certificate or user: see Caller.ways
	hasUsers bool           // some caller is known by a user

	issuers   map[string]*issuer
	providers []*Provider
	servers   oauth.Servers
	issued    *issued
	proofs    *proofs
}

// New makes the callers of a config.
func New(o Options, env Env) (*Callers, error) {
	o.JWT = slices.Clip(o.JWT)
	var providers []*Provider
	for _, p := range env.Providers {
		providers, o.JWT = append(providers, &p), append(o.JWT, p.asIssuer())
	}
	if err := errors.Join(o.Validate(), o.checkTools(env.Sources)); err != nil {
		return nil, tool.Errorf(tool.CodeInvalidInput, "callers: %w", err)
	}
	env.Log = cmp.Or(env.Log, slog.New(slog.DiscardHandler))
	if env.now == nil {
		env.now = time.Now
	}
	c := &Callers{
		o: o, env: env, rights: map[string]*tool.Rights{}, known: map[any]string{}, issuers: map[string]*issuer{},
		providers: providers, proofs: &proofs{},
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
	if env.Before != nil {
		c.proofs = env.Before.proofs
	}
	c.env.Before = nil // otherwise each would keep all earlier ones alive
	return c, nil
}

// HasOwner reports whether the owner's token is accepted.
func (c *Callers) HasOwner() bool { return c.o.Owner == nil || *c.o.Owner }

// Issuers returns the issuers of which programs can get tokens for us, by their names, which are URLs. Those with which people
// sign in are not among them.
func (c *Callers) Issuers() (all []string) {
	for name, i := range c.issuers {
		if i.provider == nil {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// Apart refuses the name of a caller that is not authenticated by an issuer, if an issuer could give the same name.
func (c *Callers) Apart(id string) error { return c.o.apart(id) }

// Lists reports whether the config lists a caller by a name that no issuer can give.
func (c *Callers) Lists(id string) bool { return c.rights[id] != nil && c.o.apart(id) == nil }

// Known returns the rights of a caller that the config lists.
func (c *Callers) Known(id string) (rights *tool.Rights, ok bool) {
	rights, ok = c.rights[id]
	return rights, ok
}

// A Listed is a caller as the config lists it, for operators.
type Listed struct {
	Name  string
	Roles []string
	Tools tool.Patterns // that it may use; nil means all
	By    []string      // how it is recognised, in words
}

// List returns the callers that the config lists, by name.
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

// Roles returns the roles of the config, with the tools that each may use; nil means all.
func (c *Callers) Roles() map[string]tool.Patterns {
	all := map[string]tool.Patterns{}
	for name, role := range c.o.Roles {
		all[name] = role.Tools
	}
	return all
}

// CheckToken checks whether a token for a caller with some roles and tools would be useful, and reports whether the
// config lists the caller.
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

// byToken authenticates a caller by a token: the owner's, one that the config lists, an issuer's, or an issued one.
func (c *Callers) byToken(ctx context.Context, shown Credentials) (tool.Principal, error) {
	if len(shown.Token) > maxToken {
		return c.refuse(shown, errors.New("it is too long"))
	}
	if p, ok := c.byDigest(ctx, shown); ok && shown.DPoP == nil {
		return p, nil
	}
	p, err := tool.Principal{}, errors.New("it belongs to no caller")
	switch {
	case strings.Count(shown.Token, ".") == 2:
		p, err = c.byJWT(ctx, shown)
	case wellFormed(shown.Token) && shown.DPoP == nil:
		p, err = c.byIssued(ctx, shown)
	}
	return c.found(shown, p, err)
}

// byDigest authenticates the owner, and the callers whose tokens the config lists.
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

// found returns the caller that was found by a token, or why there is none.
func (c *Callers) found(shown Credentials, p tool.Principal, err error) (tool.Principal, error) {
	switch {
	case tool.CodeOf(err) == tool.CodeUnavailable && tool.AsError(err).Reason == "store":
		return tool.Principal{}, err
	case errors.Is(err, errIDJAG):
		_, _ = c.refuse(shown, err)
		return tool.Principal{}, tool.Errorf(tool.CodeAccessDenied, "%w", errIDJAG).Because(Reason)
	case err != nil:
		return c.refuse(shown, err)
	}
	p.Door = shown.Door
	return p, nil
}

// refuse logs the reason, and does not tell it to the caller.
func (c *Callers) refuse(shown Credentials, why error) (tool.Principal, error) {
	c.env.Log.Debug("a token was refused", "door", shown.Door, "why", fmt.Sprintf("%.300s", why))
	return tool.Principal{}, WrongToken()
}

// byIssued authenticates a caller by a token that was issued here.
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
	// the issuer, or the role, is newer than the token; or it was not issued by this program
	if err := errors.Join(CheckID(g.Caller), c.o.apart(g.Caller), c.unlike(g.Caller, g.Roles)); err != nil {
		return tool.Principal{}, err
	}
	rights := c.tokenRights(g)
	if rights == nil {
		return tool.Principal{}, fmt.Errorf("the config leaves %.100q nothing to use with it", g.Caller)
	}
	return tool.Principal{ID: g.Caller, Rights: rights, Proof: shown.tokenProof()}, nil
}

// unlike is that of the config, for the caller of a token. A listed caller was checked with the config, and a token may
// leave it without a role.
func (c *Callers) unlike(id string, roles []string) error {
	if _, isListed := c.rights[id]; isListed {
		return nil
	}
	return c.o.unlike(id, roles)
}

// tokenRights returns the rights that a token gives, or nil if none. A token only narrows what the config gives its
// caller.
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

// namesOf lists the names in a certificate. A name of one kind cannot be mistaken for another: in a subject an
// equals sign comes first, the address of a service has ://, and that of a person @.
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

// byPeer authenticates a caller by the user of its process. If the config names users, it must be one of them;
// otherwise it must be the user that runs this program. Only other users can be anonymous: the kernel's word is better
// than none.
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

// both returns the patterns of two lists; nil means everything.
func both(a, b tool.Patterns) tool.Patterns {
	if a == nil || b == nil {
		return nil
	}
	return append(slices.Clip(a), b...)
}

// nothing reports whether rights allow no tool.
func nothing(r *tool.Rights) bool { return r.Tools != nil && len(r.Tools) == 0 }

// narrowed returns the rights that a token leaves of its caller's. A token without roles keeps those of its caller.
func narrowed(r *tool.Rights, roles []string, to *tool.Rights) *tool.Rights {
	out := &tool.Rights{Roles: r.Roles, Tools: common(r.Tools, to.Tools)}
	if len(roles) > 0 {
		out.Roles = slices.DeleteFunc(slices.Clone(r.Roles), func(role string) bool {
			return !slices.Contains(roles, role)
		})
	}
	return out
}

// common returns patterns for names that both lists match. Two patterns that merely overlap yield none: the result may
// be narrower than both, never wider than one.
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
