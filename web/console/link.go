package console

import (
	"context"
	"crypto/rand"
	"time"

	"toolpost/engine/ask"
	"toolpost/host/secret"
	"toolpost/tool"
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

const linkPurpose = "key that seals links to the console"

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
	until = c.o.now().Add(LinkTTL).Truncate(time.Millisecond)
	code, err = c.links.keys.SealText(linkPurpose, link{p.ID, p.Proof, until.UnixMilli(), rand.Text()})
	return code, until, err
}

// maxCode is the maximum length of a code, which may contain the claims of an issuer: a part of a token of 16 KiB.
const maxCode = 32 << 10

// use returns the content of a code. The code is then used up, even if signing in fails.
func (c *Console) use(ctx context.Context, code string) (l link, err error) {
	ok, err := c.links.keys.OpenText(linkPurpose, code, &l)
	if err != nil {
		return l, err
	}
	if !ok {
		return l, errLink("was not made by this server, or its key has changed")
	}
	if !c.o.now().Before(time.UnixMilli(l.Until)) {
		return l, errLink("is more than a minute old")
	}
	first, err := c.links.keys.Once(ctx, c.links.marks, "link to the console", l.Once, 2*LinkTTL)
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
