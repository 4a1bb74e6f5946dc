package identity

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"toolpost/config"
	"toolpost/tool"
)

// Options is the callers section of a config. The zero value knows only the owner.
type Options struct {
	Owner *bool             `yaml:"owner" schema:"default=true" doc:"whether the owner's token is accepted as well as the callers' own"`
	Roles map[string]Role   `yaml:"roles" doc:"roles, and the tools that each may use"`
	List  map[string]Caller `yaml:"list" doc:"callers by name: what each may use, and how each is recognised"`
	JWT   []Issuer          `yaml:"jwt" doc:"issuers of JSON Web Tokens that are trusted"`
}

// A Role is a set of rights that callers can share.
type Role struct {
	Tools tool.Patterns `yaml:"tools" doc:"tools by name or as source.name, with * and ?; default: all tools"`
}

// A Caller is a caller that the config lists. Its rights are those of its roles and its own tools together.
type Caller struct {
	Roles        Names         `yaml:"roles" doc:"its roles"`
	Tools        tool.Patterns `yaml:"tools" doc:"tools that it may use in addition to those of its roles"`
	Tokens       []Digest      `yaml:"tokens" doc:"SHA-256 digests, in hex, of the tokens that it shows; tokens from 'toolpost token issue' need no entry here"`
	Certificates []string      `yaml:"certificates" doc:"client certificates: a subject such as CN=ci,O=acme, or a name such as spiffe://acme/ci, ci.acme.org or ci@acme.org"`
	Users        []User        `yaml:"users" doc:"names or ids of users of this machine who count as this caller on the command line and at Unix sockets"`
}

// An Issuer makes JSON Web Tokens.
type Issuer struct {
	Issuer     string     `yaml:"issuer" doc:"the issuer's URL, as in the claim iss"`
	Audience   Names      `yaml:"audience" doc:"accepted values of the claim aud; a token must carry one of them"`
	JWKS       string     `yaml:"jwks" kind:"path" doc:"URL or file with the issuer's public keys; default: taken from its OpenID configuration"`
	Caller     string     `yaml:"caller" schema:"default=sub" doc:"the claim that names the caller"`
	Prefix     string     `yaml:"prefix" doc:"prepended to the caller's name; no other caller's name may start with it"`
	Roles      ClaimRoles `yaml:"roles" doc:"how callers of this issuer get their roles"`
	Algorithms Names      `yaml:"algorithms" schema:"items.enum=RS256|RS384|RS512|PS256|PS384|PS512|ES256|ES384|ES512|EdDSA default=[\"RS256\",\"ES256\",\"EdDSA\"]" doc:"accepted signature algorithms"`

	provider *Provider // with which people sign in; nil if its tokens come from elsewhere
}

// ClaimRoles defines how roles follow from claims.
type ClaimRoles struct {
	Claim  string           `yaml:"claim" doc:"the claim with the caller's groups or roles; a dot reaches into an object, as in realm_access.roles"`
	Map    map[string]Names `yaml:"map" doc:"roles for each value of the claim; default: the values are role names"`
	Always Names            `yaml:"always" doc:"roles that every caller of this issuer has"`
}

// Names is a list of names; a single one may be written without a list.
type Names []string

// UnmarshalText implements encoding.TextUnmarshaler.
func (n *Names) UnmarshalText(b []byte) error {
	*n = Names{string(b)}
	return nil
}

// A Digest is the SHA-256 of a token.
type Digest struct{ sum [sha256.Size]byte }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Digest) UnmarshalText(b []byte) error {
	sum, err := hex.DecodeString(string(b))
	if err != nil || len(sum) != len(d.sum) {
		return errors.New("expected the digest of a token, a SHA-256 in 64 hexadecimal digits: printf %s \"$TOKEN\" " +
			"| sha256sum")
	}
	d.sum = [sha256.Size]byte(sum)
	return nil
}

// A User is a user of this machine.
type User struct{ uid uint32 }

// UnmarshalText implements encoding.TextUnmarshaler.
func (u *User) UnmarshalText(b []byte) error {
	text := string(b)
	if _, err := strconv.ParseUint(text, 10, 32); err != nil {
		known, err := user.Lookup(text)
		if err != nil {
			return fmt.Errorf("this machine has no user %.100q", text)
		}
		text = known.Uid
	}
	n, err := strconv.ParseUint(text, 10, 32)
	u.uid = uint32(n)
	return err
}

// maxID is how long the name of a caller may be, in bytes.
const maxID = 256

// CheckID checks whether a text can be the name of a caller.
func CheckID(id string) error {
	switch {
	case id == "" || len(id) > maxID || !utf8.ValidString(id) || strings.ContainsFunc(id, unicode.IsControl):
		return fmt.Errorf("the name of a caller is text of 1 to %d bytes, not %.40q", maxID, id)
	case id == Owner || id == Local:
		return fmt.Errorf("no caller can be called %q: that is who has the owner's token or runs this program; "+
			"choose another name", id)
	case tool.SelfNamed(id):
		return fmt.Errorf("no caller can be called %.100q: names with %s are those that agents give themselves; "+
			"choose another name", id, tool.SelfPrefix)
	case strings.HasPrefix(id, tool.AgentPrefix) && Agent{Name: id}.name() != id:
		return fmt.Errorf("no agent is called %.100q: its name is in lower case, of letters, digits and -._; write %q", id, Agent{Name: id}.name())
	}
	return nil
}

// Validate refuses senseless options. The config calls it.
func (o *Options) Validate() error {
	for _, name := range slices.Sorted(maps.Keys(o.Roles)) { // so that the same mistake is always reported first
		role := o.Roles[name]
		switch {
		case name == "" || len(name) > maxID || strings.ContainsFunc(name, unicode.IsControl):
			return fmt.Errorf("the name of a role is text of 1 to %d bytes, not %.40q", maxID, name)
		case role.Tools != nil && len(role.Tools) == 0:
			return fmt.Errorf("the role %q may use no tool; name some, or leave tools out for all", name)
		}
	}
	if err := o.validateList(); err != nil {
		return err
	}
	for i, one := range o.JWT {
		if err := o.knows("the issuer "+one.Issuer, one.Roles.names()); err != nil {
			return err
		}
		if len(o.List) == 0 && one.Roles.Claim == "" && len(one.Roles.Always) == 0 {
			return fmt.Errorf("callers of the issuer %s have no roles, and no caller is listed: they could use nothing; "+
				"add `roles: {always: [...]}` or `roles: {claim: ...}`", one.Issuer)
		}
		for _, other := range o.JWT[:i] {
			if one.Issuer == other.Issuer {
				return fmt.Errorf("the issuer %s is there twice", one.Issuer)
			}
			if strings.HasPrefix(one.Prefix, other.Prefix) || strings.HasPrefix(other.Prefix, one.Prefix) {
				return fmt.Errorf("callers of the issuers %s and %s could have the same names, "+
					"because one of the prefixes %q and %q begins with the other; give each a prefix of its own, "+
					"such as \"acme:\"",
					other.Issuer, one.Issuer, other.Prefix, one.Prefix)
			}
		}
	}
	return nil
}

// checkTools refuses tools of unknown sources.
func (o *Options) checkTools(sources []string) error {
	for _, name := range slices.Sorted(maps.Keys(o.Roles)) {
		if err := o.Roles[name].Tools.Check(sources); err != nil {
			return fmt.Errorf("the role %q: %w", name, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.List)) {
		if err := o.List[name].Tools.Check(sources); err != nil {
			return fmt.Errorf("the caller %q: %w", name, err)
		}
	}
	return nil
}

// validateList refuses callers that could not be told apart, or that could use nothing.
func (o *Options) validateList() error {
	shown := map[any]string{}
	for _, name := range slices.Sorted(maps.Keys(o.List)) {
		c := o.List[name]
		if err := CheckID(name); err != nil {
			return err
		}
		if err := o.knows(fmt.Sprintf("the caller %q", name), c.Roles); err != nil {
			return err
		}
		if err := o.unlike(name, c.Roles); err != nil {
			return err
		}
		if len(c.Roles)+len(c.Tools) == 0 {
			return fmt.Errorf("the caller %q has neither roles nor tools: it could use nothing; give it a role, or "+
				"tools: \"*\" for all", name)
		}
		ways := c.ways()
		if err := o.apart(name); err != nil && len(ways) > 0 {
			return fmt.Errorf("the caller %q has tokens, certificates or users: %w", name, err)
		}
		for _, way := range ways {
			if other, taken := shown[way]; taken && other != name {
				return fmt.Errorf("the callers %q and %q show the same token, certificate or user; each needs its own",
					other, name)
			}
			shown[way] = name
		}
	}
	return nil
}

// apart refuses the name of a caller that is not authenticated by an issuer, if an issuer could give it to one of its
// own: then each would have what belongs to the other. The names of an issuer are all that begin with its prefix.
func (o *Options) apart(id string) error {
	for _, i := range o.JWT {
		if strings.HasPrefix(id, i.Prefix) {
			return fmt.Errorf("%q can also be a caller of the issuer %s, whose prefix is %q; "+
				"choose another name, or give the issuer another prefix", id, i.Issuer, i.Prefix)
		}
	}
	return nil
}

// unlike refuses a caller with the name of a role that it does not have. If a config names callers and roles in one
// list, as for approvers, it would pass for a caller with that role; and an issuer may let people choose their names.
func (o *Options) unlike(id string, roles []string) error {
	if _, taken := o.Roles[id]; taken && !slices.Contains(roles, id) {
		return fmt.Errorf("%q is the name of a role, and no caller can be called so who does not have it; "+
			"choose another name", id)
	}
	return nil
}

// ways lists how a caller is recognised.
func (c Caller) ways() (all []any) {
	for _, d := range c.Tokens {
		all = append(all, d)
	}
	for _, name := range c.Certificates {
		all = append(all, name)
	}
	for _, u := range c.Users {
		all = append(all, u)
	}
	return all
}

// Validate refuses empty lists. The config calls it.
func (c *Caller) Validate() error {
	if list := config.EmptyList(c); list != "" {
		return fmt.Errorf("%s is an empty list; leave it out", list)
	}
	if slices.Contains(c.Certificates, "") {
		return errors.New("certificates has an empty name")
	}
	return nil
}

// knows checks that the roles exist.
func (o *Options) knows(who string, roles []string) error {
	for _, role := range roles {
		if _, ok := o.Roles[role]; !ok {
			return fmt.Errorf("%s has the role %q, which callers.roles does not have; there are %s", who, role,
				cmp.Or(strings.Join(slices.Sorted(maps.Keys(o.Roles)), ", "), "none"))
		}
	}
	return nil
}

func (c ClaimRoles) names() []string {
	all := slices.Clone([]string(c.Always))
	for _, roles := range c.Map {
		all = append(all, roles...)
	}
	slices.Sort(all)
	return all
}

// Validate refuses senseless options. The config calls it.
func (i *Issuer) Validate() error {
	switch {
	case i.Issuer == "":
		return errors.New("an issuer has no name; say `issuer: https://...`, as the claim iss of its tokens has it")
	case len(i.Audience) == 0 || slices.Contains(i.Audience, ""):
		return fmt.Errorf("the issuer %s has no audience: its tokens for others would be taken here; say "+
			"`audience: toolpost`, or whatever it calls this server", i.Issuer)
	case len(i.Roles.Map) > 0 && i.Roles.Claim == "":
		return fmt.Errorf("the issuer %s has a map of roles and no claim to look up in it; say `claim: groups`",
			i.Issuer)
	case i.Algorithms != nil && len(i.Algorithms) == 0:
		return errors.New("algorithms is an empty list; leave it out")
	}
	for _, name := range i.Algorithms {
		if !slices.Contains(asymmetric(), name) {
			return fmt.Errorf("tokens signed with %q are not taken; there are %s", name, strings.Join(asymmetric(), ", "))
		}
	}
	if where := i.JWKS; where == "" || strings.Contains(where, "://") {
		return safeURL(cmp.Or(where, i.Issuer))
	}
	return nil
}

// asymmetric lists the algorithms whose verification keys are public.
func asymmetric() []string {
	return []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
}

// safeURL refuses addresses from which an attacker on the network could supply keys.
func safeURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "":
		return fmt.Errorf("%.200q is not a URL to fetch keys from; expected https://..., or a file for jwks", text)
	case u.Scheme == "https":
		return nil
	case u.Scheme == "http" && (u.Hostname() == "localhost" || net.ParseIP(u.Hostname()).IsLoopback()):
		return nil
	}
	return fmt.Errorf("keys are fetched over https, or over http from this machine alone, not from %.200q", text)
}
