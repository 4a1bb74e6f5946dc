package console

import (
	"context"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"time"

	"toolpost/engine/ask"
	"toolpost/host/secret"
	"toolpost/tool"
	"toolpost/wire/strictjson"
)

// LinkTTL is how long a link is valid.
const LinkTTL = time.Minute

// links makes the codes of links. Codes are not stored: a code is its own sealed content. So `toolpost console` can
// make one beside a running server, with nothing but the key that they share. Only a used code is remembered, until it
// would have expired anyway.
type links struct {
	keys  *secret.Keyed
	marks ask.Marks
}

func (l links) seal() (cipher.AEAD, error) { return l.keys.Seal("key that seals links to the console") }

// A link is the content of a code.
type link struct {
	Caller string `json:"caller"` // that asked for it
	Proof  string `json:"proof"`
	Until  int64  `json:"until"` // in Unix milliseconds
	Once   string `json:"once"`
}

// Link returns a code with which a browser can sign in once as the caller, and the time when it expires.
func (c *Console) Link(p tool.Principal) (code string, until time.Time, err error) {
	if p.Proof == "" {
		return "", until, tool.Errorf(tool.CodeUnsupported,
			"%q was recognised by nothing that can be checked again later; sign in to the console with a token", p.ID)
	}
	aead, err := c.links.seal()
	if err != nil {
		return "", until, err
	}
	until = c.o.now().Add(LinkTTL).Truncate(time.Millisecond)
	b, err := strictjson.Marshal(link{p.ID, p.Proof, until.UnixMilli(), rand.Text()})
	if err != nil {
		return "", until, err
	}
	return base64.RawURLEncoding.EncodeToString(aead.Seal(nil, nil, b, nil)), until, nil //nolint:gosec // it makes a nonce
}

// maxCode is the maximum length of a code, which may contain the claims of an issuer: a part of a token of 16 KiB.
const maxCode = 32 << 10

// use returns the content of a code. The code is then used up, even if signing in fails.
func (c *Console) use(ctx context.Context, code string) (l link, err error) {
	aead, err := c.links.seal()
	if err != nil {
		return l, err
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(code)
	if err == nil {
		b, err = aead.Open(nil, nil, b, nil)
	}
	if err == nil {
		err = strictjson.Unmarshal(b, &l)
	}
	if err != nil {
		return l, errLink("was not made by this server, or its key has changed")
	}
	if !c.o.now().Before(time.UnixMilli(l.Until)) {
		return l, errLink("is more than a minute old")
	}
	sum, err := c.links.keys.Sum("link to the console", []byte(l.Once))
	if err != nil {
		return l, err
	}
	first, err := c.links.marks.Mark(ctx, sum, [32]byte([]byte(rand.Text() + rand.Text())[:32]), 2*LinkTTL)
	switch {
	case err != nil:
		return l, err
	case !first:
		return l, errLink("was used before")
	}
	return l, nil
}

func errLink(why string) error {
	return tool.Errorf(tool.CodeAccessDenied, "this link %s: `toolpost console` makes a new one", why).Because("link")
}
