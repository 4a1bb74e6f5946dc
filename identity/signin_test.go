package identity

import (
	"testing"

	"toolpost/config"
	"toolpost/internal/kit"
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
