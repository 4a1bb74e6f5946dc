package identity

import (
	"testing"

	"toolpost/config"
	"toolpost/internal/kit"
	"toolpost/tool"
)

// newProviderTest is a config with one provider, which names callers by a claim.
func newProviderTest(t *testing.T, caller, prefix string) (*issuerTest, pen) {
	t.Helper()
	d, key := &issuerTest{house: newHouse(t), clock: newClock()}, ecPen(t, "a")
	d.house.publish(key)
	p := Provider{Issuer: d.house.URL, ClientID: "toolpost", Caller: caller, Prefix: prefix}
	p.Roles = config.Ordered[Names]{{Name: "dev", Value: Names{"reader"}}}
	kit.OK(t, p.Validate())
	o := Options{Roles: map[string]Role{"reader": {}}}
	d.callers = kit.Must(New(o, Env{now: d.clock.now, Providers: []Provider{p}}))(t)
	return d, key
}

// Some providers say whether an address is verified as a text.
func TestUnverifiedAddressNamesNoCaller(t *testing.T) {
	for caller, otherwise := range map[string]string{"email": "", "": "mallory"} {
		d, key := newProviderTest(t, caller, "")
		claims := map[string]any{"iat": d.clock.in(0), "email": "ceo@acme.example", "sub": "mallory"}
		for _, word := range []any{false, "false", 0, 1, "null", "TRUE", "", []any{true}, map[string]any{}} {
			claims["email_verified"] = word
			p, err := d.admit(t, key.sign(t, d.claims(claims)))
			kit.Equal(t, p.ID, otherwise, caller, word, err)
		}
		for _, word := range []any{true, "true"} {
			claims["email_verified"] = word
			p, err := d.admit(t, key.sign(t, d.claims(claims)))
			kit.Equal(t, p.ID, "ceo@acme.example", caller, word, err)
		}
	}
	d, key := newProviderTest(t, "email", "")
	claims := d.claims(map[string]any{"iat": d.clock.in(0), "email": "ceo@acme.example"})
	kit.Equal(t, kit.Must(d.admit(t, key.sign(t, claims)))(t).ID, "ceo@acme.example", "a provider that says nothing of it")
	claims["email_verified"] = nil
	d.refuses(t, key.sign(t, claims))
}

// People may choose their names at an issuer, and could choose those of agents, or others that look like those of colleagues.
func TestNamesThatPassForOthersAreRefused(t *testing.T) {
	provided, key := newProviderTest(t, "preferred_username", "")
	trusted := newIssuerTest(t, func(o *Options) {
		o.JWT[0].Prefix, o.JWT[0].Caller, o.List = "", "preferred_username", nil
	})
	trusted.house.publish(key)
	named := newIssuerTest(t, func(o *Options) { o.JWT[0].Prefix, o.JWT[0].Caller = "a", "preferred_username" })
	named.house.publish(key)
	of := func(d *issuerTest, name string) string {
		return key.sign(t, d.claims(map[string]any{"iat": d.clock.in(0), "preferred_username": name}))
	}
	for _, d := range []*issuerTest{provided, trusted} {
		for _, name := range []string{
			"agent/claude", "agent/~claude", "ada ", " ada", "ada\u00a0", "ada\u200b", "a\u00adda", "\u202eada", "ada\u3164",
		} {
			d.refuses(t, of(d, name))
		}
		for _, name := range []string{"ada", "Ada Lovelace", "ada@acme.example", "agents/ada", "エイダ"} {
			kit.Equal(t, kit.Must(d.admit(t, of(d, name)))(t).ID, name)
		}
	}
	named.refuses(t, of(named, "gent/claude"))
	agents := newIssuerTest(t, func(o *Options) { o.JWT[0].Prefix = tool.AgentPrefix + "ci-" })
	agents.house.publish(key)
	kit.Equal(t, kit.Must(agents.admit(t, key.sign(t, agents.claims(nil))))(t).ID, "agent/ci-bob", "an issuer of agents")
	agents.refuses(t, key.sign(t, agents.claims(map[string]any{"sub": "bob\u200b"})))
}
