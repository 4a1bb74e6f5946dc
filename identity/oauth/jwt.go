package oauth

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"toolpost/wire/strictjson"
)

// TypeIDJAG is the type of an assertion that an identity provider lets us use a server for a person.
const TypeIDJAG = "oauth-id-jag+jwt"

// Unverified is a JWT whose signature was not checked, so that nothing in it is to be believed. It shows whom a token is for,
// before we send it anywhere.
type Unverified struct {
	Type   string // the header typ
	Claims map[string]any
}

// ReadJWT reads a JWT; ok is false if the text is not one.
func ReadJWT(text string) (t Unverified, ok bool) {
	signed, err := jose.ParseSignedCompact(text, []jose.SignatureAlgorithm{
		jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
		jose.HS256, jose.HS384, jose.HS512,
	})
	if err != nil {
		return t, false
	}
	v, err := strictjson.Decode(signed.UnsafePayloadWithoutVerification())
	t.Type, _ = signed.Signatures[0].Header.ExtraHeaders[jose.HeaderType].(string)
	t.Claims, ok = v.(map[string]any)
	return t, err == nil && ok
}

// Text returns a claim that is a text.
func (t Unverified) Text(name string) string {
	s, _ := t.Claims[name].(string)
	return s
}

// List returns a claim that is a text or a list of texts, such as aud.
func (t Unverified) List(name string) []string { return Texts(t.Claims[name]) }

// Texts returns the texts of a claim that is one or a list of them.
func Texts(claim any) (all []string) {
	switch v := claim.(type) {
	case string:
		return []string{v}
	case []any:
		for _, one := range v {
			if s, ok := one.(string); ok {
				all = append(all, s)
			}
		}
	}
	return all
}

// Names reports whether a claim has one of some URLs.
func (t Unverified) Names(claim string, urls ...string) bool {
	return slices.ContainsFunc(t.List(claim), func(one string) bool {
		return slices.ContainsFunc(urls, func(u string) bool { return u != "" && SameURL(one, u) })
	})
}

// Expired reports whether the token is over, or does not say when it will be.
func (t Unverified) Expired() bool { return t.Left() <= 0 }

// Left returns how long the token is valid; 0 or less if it is over, or does not say when it will be.
func (t Unverified) Left() time.Duration {
	n, _ := t.Claims["exp"].(json.Number)
	end, err := n.Float64()
	if left := end - float64(time.Now().UnixMilli())/1000; err == nil && left > 0 {
		return time.Duration(min(left, math.MaxInt32) * float64(time.Second))
	}
	return 0
}

// SameURL compares the names of servers. Some libraries add a slash to a name that is an origin.
func SameURL(a, b string) bool { return strings.TrimSuffix(a, "/") == strings.TrimSuffix(b, "/") }
